"""Zones: built from the registry, read, checked, compared, published.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""
