"""The served zones as values: each zone's state, and the state of its signing.

``publisher.py`` makes the next state, which ``reloader.py`` adopts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from maptr.config import ZoneConfig
from maptr.daemon import kept
from maptr.daemon.kept import Kept, KeyFiles
from maptr.dnssec.expiry import EXPIRING, Signatures, SignatureState, Validity
from maptr.dnssec.keys import MAX_TTL_OF_ZONE, steps_of
from maptr.errors import time_text
from maptr.protocol.names import Folded, to_text
from maptr.server.alarm import Alarm, AlarmKind
from maptr.server.status import LeftOutStatus, SecondaryStatus, SigningStatus, ZoneResult, ZoneStatus
from maptr.zone.diff import stripped
from maptr.zone.lint import LeftOut
from maptr.zone.masterfile import Source
from maptr.zone.snapshot import Snapshot, ZoneView

MAX_FINDINGS = 100  # findings of left-out records in a zone's status; ``maptr table check`` shows all
RETRY = 300  # seconds until a failed signing is retried; changed keys cause an immediate retry
DAILY = 86400.0  # seconds between two log lines about signatures that need attention

Clock = Callable[[], float]  # seconds since 1970


def expiring(zone: ZoneConfig) -> int:
    """Return how many seconds before the signatures expire an alarm is raised.

    If the server signs the zone, the alarm never precedes the time at which it renews the signatures.
    """
    return EXPIRING if zone.keys is None else min(EXPIRING, zone.signing.refresh)


@dataclass(frozen=True, slots=True, eq=False)
class SigningState:
    """A zone's signing state. Times are in seconds since 1970.

    ``unsigned`` is the serial of the zone file from which the served version was made, None if the server did not sign
    it. The signatures are valid from ``begins``, and are renewed at ``due``. ``pending`` is an accepted version that
    could not be signed. ``error`` is the reason for the last failure, "" after a success.
    """

    unsigned: int | None = None
    begins: float = 0.0
    due: float = 0.0
    key_files: KeyFiles = ()
    pending: ZoneView | None = None
    error: str = ""
    failed_at: float | None = None

    @property
    def retry_at(self) -> float | None:
        """The time of the next attempt after a failure; None after a success."""
        return (self.failed_at or 0.0) + RETRY if self.error else None

    def status(self, keys: Path, ttl: int) -> SigningStatus:
        """Return the status of signing with the keys in a folder. ``ttl`` is the zone's longest TTL."""
        failed_at = self.failed_at if self.error else None
        files = ((name, nanoseconds / 1e9) for name, _, _, _, nanoseconds in self.key_files)
        steps = tuple(steps_of(files, ttl, MAX_TTL_OF_ZONE))
        return SigningStatus(str(keys), self.unsigned, self.due or None, self.error, failed_at, self.retry_at, steps)

    def is_due(self, key_files: KeyFiles, now: float) -> bool:
        """Return whether to sign now: the keys have changed, the signatures are due, or a retry is due."""
        if self.key_files != key_files:
            return True
        if (retry_at := self.retry_at) is not None:
            # A time before the failure means that the clock was set back.
            return not retry_at - RETRY <= now < retry_at
        return not self.begins <= now < self.due  # a time before ``begins`` also means that the clock was set back


@dataclass(frozen=True, slots=True, eq=False)
class ZoneState:
    """One zone's current state. Times are in seconds since 1970.

    ``view`` is None if the zone was never loaded; its queries then get SERVFAIL. ``error`` is why the last file was
    refused, "" if it was accepted. ``validity`` is the period of the view's signatures. ``longest_ttl`` is None if the
    server does not sign the zone, ``left_out`` if it does not build the zone from a table. ``stored`` is the serial in
    the state folder, None if it is not known.

    The view was first served at ``published``, from ``sources``, checked with ``settings`` (``kept.settings_of``).
    ``changed`` are the names at which the view differs from the previous one (``ZoneDiff.names``), None if that is not
    known. ``is_kept`` says that the view is in the state folder for the next start, ``keep_error`` why that failed.
    ``is_forcible``: with force, the refused file would be accepted.
    ``frozen`` is the time since when the zone has been frozen, None if it is not. ``damaged`` has the faults of files
    in the state folder, until an operator reloads the zone.
    """

    zone: ZoneConfig
    view: ZoneView | None = None
    names: int = 0  # the number of names that have records
    loaded_at: float | None = None
    error: str = ""
    failed_at: float | None = None
    warnings: tuple[str, ...] = ()
    validity: Validity | None = None
    longest_ttl: int | None = None
    signed: SigningState = SigningState()
    left_out: LeftOut | None = None
    stored: int | None = None
    published: float | None = None
    sources: tuple[Source, ...] = ()
    settings: str = ""
    is_kept: bool = False
    keep_error: str = ""
    is_forcible: bool = False
    frozen: float | None = None
    damaged: tuple[str, ...] = ()
    changed: tuple[bytes, ...] | None = None

    @classmethod
    def restored(
        cls, zone: ZoneConfig, version: Kept, now: float, *, frozen: float | None = None, damaged: tuple[str, ...] = ()
    ) -> ZoneState:
        """Return a zone's state at a start, as if its kept version were already served."""
        view, signed = version.view, SigningState(version.unsigned if zone.keys else None)
        validity = Validity.of(view, now)
        if zone.keys and version.unsigned is not None and validity and version.settings == kept.settings_of(zone):
            due = validity.expires - zone.signing.refresh
            signed = SigningState(version.unsigned, validity.begins, due, version.key_files)
        return cls(
            zone,
            view,
            view.nodes.count(),
            loaded_at=now,
            warnings=version.warnings,
            validity=validity,
            longest_ttl=None if zone.keys is None else view.longest_ttl(),
            signed=signed,
            published=version.published,
            sources=version.sources,
            settings=version.settings,
            is_kept=True,
            frozen=frozen,
            damaged=damaged,
        )

    def accepted(self, sources: tuple[Source, ...]) -> ZoneState:
        """Return the state after the zone's files were accepted, before the view follows them."""
        settings = kept.settings_of(self.zone)
        is_kept = self.is_kept and (sources, settings) == (self.sources, self.settings)
        return replace(
            self, error="", failed_at=None, is_forcible=False, sources=sources, settings=settings, is_kept=is_kept
        )

    def version(self, signed: str) -> Kept:
        """Return the served version in the form in which it is kept. ``signed`` is as in ``Kept``."""
        assert self.view is not None  # noqa: S101 - only what is served is kept
        return Kept(
            self.view,
            self.published or 0.0,
            self.settings,
            self.sources,
            self.warnings,
            self.signed.unsigned,
            signed,
            self.signed.key_files,
        )

    def serving(self, view: ZoneView, now: float, changed: tuple[bytes, ...] | None = None) -> ZoneState:
        """Return the state with this view as the served version."""
        validity, names = Validity.of(view, now), view.nodes.count()
        longest = None if self.zone.keys is None else view.longest_ttl()
        return replace(
            self,
            view=view,
            names=names,
            loaded_at=now,
            published=now,
            validity=validity,
            longest_ttl=longest,
            is_kept=False,
            changed=changed,
        )

    def refusal(self) -> str:
        """Say why the last file is not served, what is served, and what to do, for the log and the alarm."""
        name = to_text(self.zone.name)
        if self.view is None:
            reason = self.error or f"not signed: {self.signed.error}"
            return f"zone {name} is not loaded, queries get SERVFAIL: {reason}"
        since = "" if self.published is None else f", published {time_text(self.published)}"
        remedy = f"correct it, then maptr reload {name}"
        if self.is_forcible:
            remedy = f"maptr reload {name} --force accepts it as it is"
        return f"zone {name} was not reloaded, still serving serial {self.view.serial}{since}: {self.error}; {remedy}"

    def refused(self) -> ZoneResult:
        """Return the result for a file that was refused because of ``error``."""
        serial = None if self.view is None else self.view.serial
        return ZoneResult(to_text(self.zone.name), "refused", serial, serial, self.error)

    def signatures(self, now: float) -> SignatureState:
        if self.validity is None:
            return SignatureState(Signatures.UNSIGNED)
        return self.validity.state(now, expiring=expiring(self.zone))

    def status(self, now: float, secondaries: tuple[SecondaryStatus, ...] = ()) -> ZoneStatus:
        signatures, left_out = self.signatures(now), self.left_out
        longest_ttl = self.zone.ttl if self.longest_ttl is None else self.longest_ttl
        return ZoneStatus(
            zone=to_text(self.zone.name),
            file=str(self.zone.file),
            serial=None if self.view is None else self.view.serial,
            names=self.names,
            loaded=self.loaded_at,
            published=self.published,
            frozen=self.frozen,
            keep_error=self.keep_error,
            error=self.error,
            failed=self.failed_at,
            warnings=self.warnings,
            left_out=None if left_out is None else left_out_status(left_out),
            signatures=None if self.view is None else signatures.state,
            signatures_expire=signatures.expires,
            signing=None if self.zone.keys is None else self.signed.status(self.zone.keys, longest_ttl),
            secondaries=secondaries,
        )

    def alarms(self, now: float) -> Iterator[Alarm]:
        """Yield the zone's alarms, without those of its secondaries."""
        name, signing_error = to_text(self.zone.name), self.signed.error
        if self.view is None or self.error:
            kind = AlarmKind.ZONE_NOT_LOADED if self.view is None else AlarmKind.ZONE_REFUSED
            yield Alarm(kind, self.refusal(), name, version=self.error or signing_error)
        if self.view is not None and signing_error:
            text = f"zone {name} was not signed, still serving serial {self.view.serial}: {signing_error}"
            text += f"; signing is retried every {RETRY} s, and by maptr control sign {name}"
            yield Alarm(AlarmKind.ZONE_NOT_SIGNED, text, name, version=signing_error)
        if self.keep_error:
            remedy = f"remove the cause, then maptr reload {name}"
            text = f"zone {name} is not kept for the next start: {self.keep_error}; {remedy}"
            yield Alarm(AlarmKind.ZONE_NOT_KEPT, text, name)
        if self.damaged:
            text = f"zone {name}: {'; '.join(self.damaged)}; compare the secondaries, then maptr reload {name}"
            yield Alarm(AlarmKind.STATE_DAMAGED, text, name, level=logging.WARNING)
        found = self.signatures(now)
        if found.is_alarm:
            text, version = f"zone {name}: {found.text(now)}", (found, now // DAILY)
            level = logging.WARNING if found.state is Signatures.EXPIRING else logging.ERROR
            yield Alarm(AlarmKind.SIGNATURES, text, name, level=level, version=version)
        if self.left_out and self.left_out.answered_by_others:
            yield Alarm(AlarmKind.RECORDS_LEFT_OUT, self.left_out_text(), name, version=self.left_out)

    def left_out_text(self) -> str:
        """Say which of its table's records the zone lacks, for the log and the alarm."""
        return f"zone {to_text(self.zone.name)}: {self.left_out}"

    def unsigned_view(self) -> ZoneView | None:
        """Return the served version as in its file, without the server's signatures and with the file's serial."""
        if self.view is None or self.zone.keys is None:
            return self.view
        return stripped(self.view, self.signed.unsigned)


def left_out_status(left_out: LeftOut) -> LeftOutStatus:
    findings = tuple(finding.to_dict() for finding in left_out[:MAX_FINDINGS])
    return LeftOutStatus(len(left_out.records), findings, str(left_out))


Served = Mapping[Folded, ZoneState]


def snapshot_of(served: Served) -> Snapshot:
    views = [state.view for state in served.values() if state.view is not None]
    broken = [state.zone.name for state in served.values() if state.view is None]
    return Snapshot.of(views, broken=broken)
