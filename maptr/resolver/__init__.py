"""Walks over DNS: the stub resolver, dnspython's resolvers, bulk lookups, and validation.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""
