"""maptr's HTTP interface: any ARK in, a redirect to its mapping authority out. Needs the extra ``gateway``.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""
