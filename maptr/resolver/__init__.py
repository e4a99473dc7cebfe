"""Walks over DNS: the stub resolver, dnspython's resolvers, bulk lookups, and validation.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""
