"""The stub resolver: drivers of the walk, the stub resolver, and bulk lookups.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""
