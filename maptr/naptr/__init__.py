"""NAPTR records as Maptr reads them, and the regexps in them.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""
