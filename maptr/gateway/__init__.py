"""The HTTP face of maptr: any ARK in, a redirect to its mapping authority out. Needs the extra ``gateway``.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""
