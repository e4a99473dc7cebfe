"""What every long-running process needs: sockets, privileges, signals, certificate and connection limits.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""
