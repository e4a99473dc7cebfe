"""Names and defaults of policies and cached answers, for modules that start without them.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

Policy = Literal["dns-first", "natab-first", "dns-only", "natab-only"]
"""The names of the built-in policies: which source answers. ``cache.policy`` has their rules."""

POLICIES: tuple[Policy, ...] = get_args(Policy)
DNS_FIRST: Final = "dns-first"
NATAB_FIRST: Final = "natab-first"
DNS_ONLY: Final = "dns-only"
NATAB_ONLY: Final = "natab-only"

PATIENCE = 0.3  # seconds to wait for DNS when a stale answer or the table could answer; RFC 8767 section 5: 1.8
STALE_LIMIT = 86_400  # seconds past expiration; RFC 8767 section 5: one to three days
MAX_NAMES = 100_000  # kept in memory, about 1 kB each
