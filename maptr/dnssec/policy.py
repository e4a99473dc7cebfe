"""How a zone is to be signed: for how long, when again, and what goes along. Signing itself is in ``dnssec.py``."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from maptr.errors import SigningError

# All in seconds.
LIFETIME = 14 * 86400  # of a signature, from now; Knot's default
INCEPTION_OFFSET = 3600  # a signature begins so long before now, for validators with a slow clock (RFC 6781 4.4.2)
REFRESH = 7 * 86400  # a zone is signed again when a signature has less than this left: a week to notice a failure


class Children(enum.StrEnum):
    """What CDS and CDNSKEY tell the parent (RFC 7344, RFC 8078)."""

    PUBLISH = "publish"  # the active keys
    NONE = "none"  # nothing
    DELETE = "delete"  # remove the DS: the zone is to be unsigned


@dataclass(frozen=True, slots=True)
class Policy:
    """How to sign; times in seconds. Raises SigningError where no signature could last."""

    lifetime: int = LIFETIME
    inception_offset: int = INCEPTION_OFFSET
    refresh: int = REFRESH
    zonemd: bool = True
    cds: Children = Children.PUBLISH
    dnskey_ttl: int | None = None  # None: that of the SOA

    def __post_init__(self) -> None:
        if self.lifetime <= self.refresh or self.refresh < 0 or self.inception_offset < 0:
            raise SigningError(
                f"signatures that last {self.lifetime} s cannot be renewed {self.refresh} s before their end"
            )

    @property
    def keep(self) -> int:
        """Seconds that a signature must still last to be kept when its zone is signed again.

        Those in the latter half of their time until they are due go too, so that a zone which changes often is
        signed again for its signatures' sake no more often than one that never changes, twice over.
        """
        return self.refresh + (self.lifetime - self.refresh) // 2
