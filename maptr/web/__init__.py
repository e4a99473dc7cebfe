"""Outgoing HTTP, bounded in size, time and destination.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""

SECONDS = 60.0  # for one file, including redirects; here, because ``http`` is slow to import
