"""Limits that several modules share and none of them owns."""

from __future__ import annotations

REMOVAL_LIMIT = 0.30
"""The part of a table that one plan may remove, or of a zone's names that one reload may lose: octoDNS's own default
(``max_delete``). A registry file cut cleanly at a line end is valid, and every DNS server would load the zone made
from it."""

MAX_TABLE = 64 << 20  # octets of a registry file; the real one has 1.2 million, natab for 100,000 NAANs has 8

# Of connections by TCP and TLS, over all addresses together (``serve.connections``).
MAX_CONNECTIONS = 500  # BIND's tcp-clients is 150, NSD's tcp-count 100; an idle one here costs some kilobytes
MAX_PER_CLIENT = 50  # RFC 7766 6.2.2 lets a server limit connections of one client
# Seconds a client has for one whole message, from the last reply to its final octet: "on the order of a few
# seconds" (RFC 7766 6.2.3). It bounds a trickle of octets as it does silence.
IDLE_TIMEOUT = 10.0

# How a zone is signed (``signing.Policy``).
LIFETIME = 14 * 86400  # seconds a signature lasts from now, Knot's default too
INCEPTION_OFFSET = 3600  # seconds it begins before now, for validators whose clock is slow (RFC 6781 4.4.2)
REFRESH = 7 * 86400  # seconds before the end from which a zone is signed again: a week to notice that it was not
