"""Signing of zones by the server, with the keys in the zones' key folders.

``dnssec/sign.py`` decides which signatures to renew, as it does for ``maptr zone sign``; ``publisher.py`` decides what
is served. Signing reads files and takes long: call it in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import dns.exception

from maptr.config import ZoneConfig
from maptr.daemon.kept import KeyFiles
from maptr.dnssec.expiry import EXPIRING, Validity, signature_state
from maptr.errors import reason_of, time_text
from maptr.protocol.names import to_text
from maptr.protocol.serial import is_newer
from maptr.server import state_folder
from maptr.server.state import SigningState, ZoneState, expiring
from maptr.zone.diff import Published
from maptr.zone.snapshot import ZoneView

log = logging.getLogger("maptr.serve")

EXPECTED = (OSError, ValueError, KeyError, dns.exception.DNSException)  # a SigningError is a DNSException
CHECK_INTERVAL = 5.0  # seconds between two checks for changed keys and due signatures


def key_files(folder: Path) -> KeyFiles:
    """Return the names, modes, owners, inodes and times of the keys in a folder, without reading them."""
    try:
        found = [(path.name, path.stat()) for path in [folder, *sorted(folder.glob("*.pem"))]]
    except OSError as error:
        return ((str(error), 0, 0, 0, 0),)
    # The folder's own inode and time are left out, because files that are not keys change its time.
    return tuple(
        (name, status.st_mode, status.st_uid, *((status.st_ino, status.st_mtime_ns) if at else (0, 0)))
        for at, (name, status) in enumerate(found)
    )


def is_due(state: ZoneState, now: float) -> bool:
    """Return whether to sign a zone now. A frozen zone is signed if its keys change or its signatures are about to end.

    A version that an operator publishes is signed regardless.
    """
    keys, signed, validity = state.zone.keys, state.signed, state.validity
    if keys is None or (state.view is None and signed.pending is None):
        return False
    files = key_files(keys)
    if state.frozen is not None and validity and not signed.error and files == signed.key_files:
        return not validity.begins <= now < validity.expires - EXPIRING
    return signed.is_due(files, now)


def sign(
    zone: ZoneConfig,
    unsigned: ZoneView,
    served: ZoneView | None,
    before: SigningState,
    now: float,
    others: Callable[[], Iterable[int]] = tuple,
    *,
    force: bool = False,
) -> tuple[ZoneView | None, SigningState]:
    """Return the version to serve, newly signed, or ``served`` if that is still valid, and the signing state.

    If signing fails, the version is ``served``, and the state's ``error`` has the reason. A bad file is never an
    exception. ``others`` gives the secondaries' serials, which a new serial passes; with ``force``, even if nothing
    else changes.
    """
    assert zone.keys is not None  # noqa: S101 - only signed zones are passed
    assert zone.state is not None  # noqa: S101 - the configuration requires it
    name = to_text(zone.name)
    keys = key_files(zone.keys)  # before the keys are read, so that the next check notices a change in between
    try:
        old = state_folder.last_removed(zone.state, zone.name) if served is None else served
        is_passed = force and old is not None and any(is_newer(other, old.serial) for other in others())
        last = _last_signed(zone.state, zone)
        view = _renew(zone, unsigned, old, now, last, others, is_new=served is None, is_passed=is_passed)
    except Exception as error:
        reason = reason_of(error)
        if not isinstance(error, EXPECTED) and reason != before.error:
            log.exception("internal error, zone %s not signed", name)
    else:
        validity = Validity.of(view, now)
        assert validity is not None  # noqa: S101 - it was signed
        if view is not served:
            log.info("zone %s signed, serial %d, until %s", name, view.serial, time_text(validity.expires))
        due = validity.expires - zone.signing.refresh
        return view, SigningState(unsigned.serial, validity.begins, due, keys)
    return served, replace(before, key_files=keys, pending=unsigned, error=reason, failed_at=now)


def check(keys: Path) -> None:
    """Check that a zone can be signed with the keys in a folder. Raises SigningError and OSError."""
    from maptr.dnssec import keys as zonekeys  # late, as in _renew

    zonekeys.read_key_set(keys)


def _last_signed(folder: Path, zone: ZoneConfig) -> Published | None:
    """Return the serial and digest of the last signed version, if they are known without it."""
    try:
        stored = state_folder.read_serial(folder, zone.name)
    except OSError:
        return None
    return None if stored is None else stored.signed


def _renew(
    zone: ZoneConfig,
    unsigned: ZoneView,
    old: ZoneView | None,
    now: float,
    last: Published | None,
    others: Callable[[], Iterable[int]],
    *,
    is_new: bool,
    is_passed: bool,
) -> ZoneView:
    """Return the signed version, or ``old`` if that is still valid. Raises SigningError and OSError.

    ``is_new``: no version is served, and ``old`` is from an earlier configuration. ``is_passed``: pass a secondary
    whose serial is greater than ``old``'s. ``last`` is the last signed version's, even if the version is lost.
    """
    # Late, for a fast start: most servers do not sign.
    from maptr.dnssec import keys as zonekeys
    from maptr.dnssec.sign import Renewal
    from maptr.zone import text

    assert zone.keys is not None  # noqa: S101 - as in ``sign``
    assert zone.state is not None  # noqa: S101 - as in ``sign``
    state = zone.state
    renewal = Renewal(zonekeys.read_key_set(zone.keys), zone.signing, now, zone.serial)
    if old is None:
        log.info("zone %s: signing its %d names", to_text(zone.name), unsigned.nodes.count())
    passing = replace(renewal, last=None if last is None else last.serial, others=others)
    if old is None and last is not None and last.serial == unsigned.serial:
        view = renewal.sign(unsigned, None)
        if Published.of(view) != last:
            view = passing.sign(unsigned, None)
    else:
        view = passing.sign(unsigned, old) if is_passed else passing.renew(unsigned, old)
    if view is old and not is_new:
        return view
    try:
        state_folder.write_signed(state, zone.name, text.to_text(view), unsigned.serial)
        state_folder.write_serial(state, zone.name, Published.of(unsigned), Published.of(view))
    except OSError as error:
        # If it cannot be stored, it is served only if the old version's signatures are about to expire.
        if old is not None and not is_new and not signature_state(old, now, expiring=expiring(zone)).is_alarm:
            raise
        name, reason = to_text(zone.name), reason_of(error)
        log.error("zone %s: its signed version cannot be kept for the next start: %s", name, reason)
    return view
