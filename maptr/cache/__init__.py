"""Names and defaults of policies and kept answers, for what starts without them.

Inner room: it may change with any release. ``help(maptr)`` lists the public names.
"""

from __future__ import annotations

POLICIES = DNS_FIRST, NATAB_FIRST, DNS_ONLY, NATAB_ONLY = ("dns-first", "natab-first", "dns-only", "natab-only")

PATIENCE = 0.3  # seconds that a caller waits for DNS if a stale answer or the table has one; RFC 8767 section 5: 1.8
STALE_LIMIT = 86_400  # seconds past expiration; RFC 8767 section 5: one to three days
MAX_NAMES = 100_000  # kept in memory, about 1 kB each
