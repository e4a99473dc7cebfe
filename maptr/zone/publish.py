"""The guards of publication: whether a new version of a zone may replace the old one, and with which serial.

They catch mistakes that no reader can: a file that was cut at the end of a line is a valid zone.
"""

from __future__ import annotations

from typing import NamedTuple

from maptr.errors import ZoneError
from maptr.protocol.numbers import DNSKEY, RRSIG, ZONEMD
from maptr.protocol.serial import following_serial, is_newer
from maptr.registry.plan import REMOVAL_LIMIT
from maptr.zone.diff import ZoneDiff, content_digest, with_serial
from maptr.zone.snapshot import ZoneView


class Published(NamedTuple):
    """The published version: its serial, and the digest of everything else."""

    serial: int
    digest: str

    @classmethod
    def of(cls, zone: ZoneView) -> Published:
        return cls(zone.serial, content_digest(zone))


def choose_serial(new: ZoneView, published: Published | None, style: str, now: float) -> ZoneView:
    """The new version with its serial: the file's if that advanced, the published one if nothing else changed, else
    the next one in the style. ``now`` is in seconds since 1970.

    Raises ZoneError if the serial cannot be changed because it is signed.
    """
    if published is None or style == "file" or is_newer(new.serial, published.serial):
        return new
    if content_digest(new) == published.digest:
        serial = published.serial
    else:
        serial = following_serial(published.serial, style, now)
    if serial == new.serial:
        return new
    if {RRSIG, DNSKEY, ZONEMD} & new.nodes[new.origin].keys():
        raise ZoneError(f"serial {new.serial} did not advance, and is signed: the signer of the zone must raise it")
    return with_serial(new, serial)


def decide(old: ZoneView, new: ZoneView, max_shrink: float = REMOVAL_LIMIT, *, force: bool = False) -> ZoneView:
    """The version to serve: the new one, or the old one if nothing changed. Raises ZoneError for a refused version.

    ``force`` allows a zone that lost its names, and a serial that did not advance.
    """
    difference = ZoneDiff.between(old, new)
    if not difference:
        return old
    if force:
        return new
    if not is_newer(new.serial, old.serial):
        how = "did not advance" if new.serial == old.serial else f"went back from {old.serial}"
        count = len(difference.changes)
        raise ZoneError(
            f"serial {new.serial} {how} while the zone changed ({count} RRset{'' if count == 1 else 's'}):"
            " secondaries would not follow (RFC 1982)"
        )
    check_shrinkage(difference, max_shrink)
    return new


def check_shrinkage(difference: ZoneDiff, max_shrink: float = REMOVAL_LIMIT) -> None:
    """Raises ZoneError if the new version lost too many names of the old one."""
    if difference.shrinkage > max_shrink:
        raise ZoneError(
            f"it lost {difference.lost} of {difference.size} names"
            f" ({difference.shrinkage:.0%}, max_shrink is {max_shrink:.0%})"
        )
