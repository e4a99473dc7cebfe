"""The zone file that ``zone build`` or ``zone sign`` replaces: whether it is one, and what it would lose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from maptr.cli import output
from maptr.cli.target import refuse_foreign

if TYPE_CHECKING:
    from maptr.protocol.names import Labels
    from maptr.zone.snapshot import ZoneView


def existing_zone(target: Path | None, origin: Labels, *, overwrite: bool) -> ZoneView | None:
    """The zone in the file to be replaced; None where there is none. UsageError for a file that is not such a zone."""
    if target is None or not target.is_file():
        refuse_foreign(target, lambda octets: False, overwrite=overwrite)
        return None
    from maptr.errors import ZoneError
    from maptr.files import read_whole
    from maptr.protocol.names import fold
    from maptr.server.state import ZoneSource
    from maptr.server.zones import read_octets

    found: ZoneView | None = None
    try:
        found = read_octets(read_whole(target), ZoneSource(fold(origin), target))
    except (ZoneError, OSError):
        refuse_foreign(target, lambda octets: False, overwrite=overwrite)
    return found


def guard(target: Path | None, old: ZoneView | None, new: ZoneView, *, force: bool) -> None:
    """End the command where the new zone has too few of the old one's names."""
    if old is None or force:
        return
    from maptr.errors import ZoneError
    from maptr.zone.diff import ZoneDiff
    from maptr.zone.publish import Guards, check_shrinkage

    try:
        check_shrinkage(ZoneDiff.between(old, new), Guards())
    except ZoneError as error:
        output.fail(f"{target} stays as it is: {error.reason} (--force overrides)", output.EXIT_NONE)
