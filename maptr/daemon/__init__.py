"""The needs of every long-running process: sockets, privileges, signals, certificate and connection limits.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""
