"""The signing policy of a zone: lifetime and renewal of signatures, ZONEMD, CDS."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from maptr.errors import SigningError

# All in seconds.
LIFETIME = 14 * 86400  # of a signature, from the time of signing; Knot's default
INCEPTION_OFFSET = 3600  # from inception to the time of signing, for validators with a slow clock (RFC 6781 4.4.2)
REFRESH = 7 * 86400  # least time left until a zone is signed again: a week to notice a failure


class Children(enum.StrEnum):
    """What CDS and CDNSKEY tell the parent (RFC 7344, RFC 8078)."""

    PUBLISH = "publish"  # the active keys
    NONE = "none"  # nothing
    DELETE = "delete"  # remove the DS: the zone is to be unsigned


@dataclass(frozen=True, slots=True)
class SigningPolicy:
    """How to sign. Times in seconds. Raises SigningError for times with which no signature could last."""

    lifetime: int = LIFETIME
    inception: int = INCEPTION_OFFSET
    refresh: int = REFRESH
    zonemd: bool = True
    cds: Children = Children.PUBLISH
    dnskey_ttl: int | None = None  # None: that of the SOA

    def __post_init__(self) -> None:
        if self.lifetime <= self.refresh or self.refresh < 0 or self.inception < 0:
            reason = f"signatures that last {self.lifetime} s cannot be renewed {self.refresh} s before their end"
            raise SigningError(reason)

    @property
    def keep(self) -> int:
        """The time left that a signature needs to be kept when its zone is signed again.

        It is half of the time until a new signature is due. So a zone that changes often is signed again because of old
        signatures at most twice as often as a zone that never changes.
        """
        return self.refresh + (self.lifetime - self.refresh) // 2
