"""Limits that several modules share and none of them owns."""

from __future__ import annotations

REMOVAL_LIMIT = 0.30
"""The part of a table that one plan may remove, or of a zone's names that one reload may lose: octoDNS's own default
(``max_delete``). A registry file cut cleanly at a line end is valid, and every DNS server would load the zone made
from it."""
