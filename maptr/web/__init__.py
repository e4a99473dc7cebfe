"""Outgoing HTTP, bounded in size, time and destination.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""

SECONDS = 60.0  # for one file, redirects included; here, because HTTP takes 13 ms to import
