"""Whether a new version of a zone may take the place of the old one, and under which serial. Decides; reads nothing.

The zone file is the truth, but not every truth is meant: a file cut at a line end is a valid zone to every server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from maptr.errors import ZoneError
from maptr.protocol.numbers import DNSKEY, RRSIG, ZONEMD
from maptr.protocol.serial import following_serial, is_newer
from maptr.registry.plan import REMOVAL_LIMIT
from maptr.zone.snapshot import ZoneView

if TYPE_CHECKING:
    from maptr.zone.diff import ZoneDiff


class Guards(NamedTuple):
    """What a new version must be like; the words are those of ``[[zone]]``.

    ``serial``: "file" takes the file's as it is; "increment", "date" and "unix" make one where the file's did not
    advance. ``lint``: what to do about Maptr's own findings, "off", "warn" or "refuse".
    """

    max_shrink: float = REMOVAL_LIMIT
    serial: str = "file"
    lint: str = "warn"


class Published(NamedTuple):
    """What is known of the version that is out: its serial, and the digest of all the rest."""

    serial: int
    digest: str

    @classmethod
    def of(cls, zone: ZoneView) -> Published:
        from maptr.zone import diff  # here, for no zone is published twice at a start

        return cls(zone.serial, diff.content_digest(zone))


def choose_serial(new: ZoneView, published: Published | None, style: str, now: float) -> ZoneView:
    """The new version with the serial it gets: the file's where that advanced, what was published where nothing
    else changed, else the next one of the style. ``now`` is in seconds since 1970.

    Raises ZoneError where the serial may not be changed, because it is signed.
    """
    if published is None or style == "file" or is_newer(new.serial, published.serial):
        return new
    from maptr.zone import diff  # here, as above

    if diff.content_digest(new) == published.digest:
        serial = published.serial
    else:
        serial = following_serial(published.serial, style, now)
    if serial == new.serial:
        return new
    if {RRSIG, DNSKEY, ZONEMD} & new.nodes[new.origin].keys():
        raise ZoneError(f"serial {new.serial} did not advance, and is signed: whoever signs the zone must raise it")
    return diff.with_serial(new, serial)


def decide(old: ZoneView, new: ZoneView, guards: Guards, *, force: bool = False) -> ZoneView:
    """The version to serve: the new one, or the old where nothing changed. Raises ZoneError with the reason against it.

    ``force`` passes over what may be meant: a zone that lost its names, a serial that did not advance.
    """
    from maptr.zone.diff import ZoneDiff  # here, as above

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
    check_shrinkage(difference, guards)
    return new


def check_shrinkage(difference: ZoneDiff, guards: Guards) -> None:
    """ZoneError where the new version has too few of the old one's names."""
    if difference.shrinkage > guards.max_shrink:
        raise ZoneError(
            f"it lost {difference.lost} of {difference.size} names"
            f" ({difference.shrinkage:.0%}, max_shrink is {guards.max_shrink:.0%})"
        )
