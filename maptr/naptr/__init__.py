"""NAPTR records as Maptr reads them, and the regexps in them.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""
