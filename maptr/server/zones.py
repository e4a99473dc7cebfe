"""Zone files for the server: where they are, and reading them. Whether what was read is published: ``publisher``."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from maptr.errors import ZoneError
from maptr.files import read_whole, stamp
from maptr.protocol.names import Labels
from maptr.server.state import ZoneSource
from maptr.zone.snapshot import ZoneView

if TYPE_CHECKING:  # imported below where they are used
    from maptr.zone.finding import Finding
    from maptr.zone.plainzone import Plain


def read_zone(source: ZoneSource) -> ZoneView:
    """Read and check one zone file.

    Raises ZoneError with file and line for what is wrong in it, OSError where it or a file it includes cannot
    be read. Data outside the zone is an error, where dnspython's own reader passes over it in silence.
    """
    return _read(read_whole(source.path), source).view


def read_octets(octets: bytes, source: ZoneSource) -> ZoneView:
    """The zone in the octets of its file, its ZONEMD not looked at. Raises what ``read_zone`` does."""
    plain = read_plain(octets, source.origin)
    return _read_any(octets, source).view if plain is None else plain.view


class Checked(NamedTuple):
    """A zone file that read well and has no error; what may be wrong with it all the same, a line each."""

    view: ZoneView
    warnings: tuple[str, ...] = ()


def read_checked(source: ZoneSource) -> Checked:
    """Read a zone file as ``read_zone`` does, and look at the zone as a whole.

    Raises ZoneError for a DNS error, for a ZONEMD that does not hold, for what Maptr finds where that is to be
    refused, and for a file that changed while it was read; OSError where a file cannot be read.
    """
    before = stamp(source.path)
    octets = read_whole(source.path)
    read = _read(octets, source)
    warnings = _check(read, source)
    if stamp(source.path) != before:
        raise ZoneError("changed while it was read: write beside it and rename", filename=str(source.path))
    return Checked(read.view, warnings)


class _Read(NamedTuple):
    """A zone as it was read; the files it includes, and the names to look at closely (None: all)."""

    view: ZoneView
    included: tuple[tuple[Path, bytes], ...]
    doubtful: frozenset[Labels] | None = None


def _read(octets: bytes, source: ZoneSource) -> _Read:
    """A zone in the quickest way that takes it; a ZONEMD must hold."""
    from maptr.zone import integrity

    plain = read_plain(octets, source.origin)
    read = _read_any(octets, source) if plain is None else _Read(plain.view, (), plain.doubtful)
    try:
        integrity.check_digest(read.view)
    except ZoneError as error:
        raise ZoneError(error.reason, filename=str(source.path)) from None
    return read


def _read_any(octets: bytes, source: ZoneSource) -> _Read:
    """Any zone at all, by dnspython."""
    from maptr.zone.reader import read_zone_file, view_of  # 40 ms

    zone, included = read_zone_file(source.path, octets, source.origin)
    return _Read(view_of(zone, source.path), included)


def read_plain(octets: bytes, origin: Labels) -> Plain | None:
    """The zone in a plain file, or None for dnspython to read it. ``origin`` is folded."""
    from maptr.zone import plainzone

    with uncollected():
        return plainzone.read_plain(octets, origin)


@contextmanager
def uncollected() -> Iterator[None]:
    """Nobody looks for garbage meanwhile: for what makes many objects and no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# Checkers call these errors, and BIND refuses the zone. NSD, Knot and PowerDNS serve it; so do we, with a warning.
_SERVED_ALL_THE_SAME = ("no-address", "server-alias")


def _check(read: _Read, source: ZoneSource) -> tuple[str, ...]:
    """What may be wrong with the zone as a whole, a line each. Raises ZoneError for what is not served."""
    from maptr.zone import integrity

    found = list(integrity.check(read.view))
    _refuse(found, source)
    if source.guards.lint != "off" and (read.doubtful is None or read.doubtful):
        from maptr.zone.rulecheck import check_rules

        rules = check_rules(read.view, read.doubtful)
        if source.guards.lint == "refuse":
            _refuse(rules, source)
        found += rules
    return tuple(map(str, found))


def _refuse(findings: Sequence[Finding], source: ZoneSource) -> None:
    if not findings:
        return
    from maptr.zone.finding import Severity

    errors = [
        found for found in findings if found.severity is Severity.ERROR and found.code not in _SERVED_ALL_THE_SAME
    ]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise ZoneError(f"{errors[0]}{more}", filename=str(source.path))
