"""Zones: built from the registry, read, checked, compared, published.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""
