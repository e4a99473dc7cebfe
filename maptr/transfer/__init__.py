"""Zone transfers, their access control, NOTIFY, catalog zones and TSIG, without I/O.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""
