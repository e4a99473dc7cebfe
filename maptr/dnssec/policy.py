"""The signing policy of a zone: lifetime and renewal of signatures, ZONEMD, CDS."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from maptr.errors import SigningError

# All times are in seconds.
LIFETIME = 14 * 86400  # the validity of a signature after the time of signing; Knot's default
INCEPTION_OFFSET = 3600  # from inception to the time of signing, for validators with a slow clock (RFC 6781 4.4.2)
REFRESH = 7 * 86400  # signatures with less time left are renewed: operators have a week to notice a failure


class Children(enum.StrEnum):
    """The content of the CDS and CDNSKEY RRsets, which tell the parent how to update the DS (RFC 7344, RFC 8078)."""

    PUBLISH = "publish"  # records for the active keys
    NONE = "none"  # no records
    DELETE = "delete"  # a request to remove the DS, before the zone becomes unsigned


@dataclass(frozen=True, slots=True)
class SigningPolicy:
    """The signing policy. Times are in seconds. Raises SigningError unless ``lifetime`` exceeds ``refresh``."""

    lifetime: int = LIFETIME
    inception: int = INCEPTION_OFFSET
    refresh: int = REFRESH
    zonemd: bool = True
    cds: Children = Children.PUBLISH
    dnskey_ttl: int | None = None  # None: the TTL of the SOA record

    def __post_init__(self) -> None:
        if self.lifetime <= self.refresh or self.refresh < 0 or self.inception < 0:
            reason = f"signatures that last {self.lifetime} s cannot be renewed {self.refresh} s before their end"
            raise SigningError(reason)

    @property
    def keep(self) -> int:
        """A signature with more time left than this is kept when its zone is signed again.

        The value is halfway between ``refresh`` and ``lifetime``. So, in a zone that changes often, old signatures are
        renewed at most twice as often as in a zone that never changes.
        """
        return self.refresh + (self.lifetime - self.refresh) // 2
