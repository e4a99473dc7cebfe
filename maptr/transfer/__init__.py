"""Zone transfers, their access control, NOTIFY, catalog zones and TSIG, without I/O.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""
