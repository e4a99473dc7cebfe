"""Outgoing HTTP, bounded in size, time and destination.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""

SECONDS = 60.0  # for one file, redirects included; here, because HTTP takes 13 ms to import
