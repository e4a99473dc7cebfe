"""The cache that reconciles DNS with a table: see ``cache.Cache``, which is ``maptr.Cache``.

One file for each part: what is kept in memory and on disk, the watched table, the policies that choose between the
sides, the circuit in front of a dead server, and the questions under way. Here stands what the command line and the
configuration have to know of it, which neither imports any of that for.
"""

from __future__ import annotations

POLICIES = DNS_FIRST, NATAB_FIRST, DNS_ONLY, NATAB_ONLY = ("dns-first", "natab-first", "dns-only", "natab-only")
"""The names of the policies; what each of them means is in ``policy``."""

PATIENCE = 0.3  # seconds a caller waits for DNS where something else can answer (RFC 8767 section 5 says 1.8)
STALE_LIMIT = 86_400  # seconds past expiration; RFC 8767 section 5: one to three days
