"""Signing of zones by the server, with the keys in their key folders.

``dnssec/sign.py`` decides which signatures to renew, as it does for ``maptr zone sign``; the publisher decides what is
served. Reads files and takes long: call it in a thread.
"""

from __future__ import annotations

import logging
from pathlib import Path

import dns.exception

from maptr.dnssec import store
from maptr.dnssec.expiry import Validity, signature_state
from maptr.errors import reason_of
from maptr.protocol.names import to_text
from maptr.server.state import NEVER_SIGNED, KeyFiles, Signing, SigningState, ZoneSource, ZoneState
from maptr.server.status import time_text
from maptr.zone.snapshot import ZoneView

log = logging.getLogger("maptr.serve")

CHECK_INTERVAL = 5.0  # seconds between two checks of the key folders and due times
# Seconds until a zone that could not be signed is tried again, doubled each time. Changed keys are tried at once.
RETRY_FIRST = 60
RETRY_LAST = 3600


def key_files(folder: Path) -> KeyFiles:
    """The names, modes, owners and times of the keys in a folder. Reads no key."""
    try:
        found = [(path.name, path.stat()) for path in [folder, *sorted(folder.glob("*.pem"))]]
    except OSError as error:
        return ((str(error), 0, 0, 0, 0),)
    # The folder's own times are left out: they change with files that are not keys.
    return tuple(
        (name, status.st_mode, status.st_uid, *((status.st_ino, status.st_mtime_ns) if at else (0, 0)))
        for at, (name, status) in enumerate(found)
    )


def is_due(state: ZoneState, now: float) -> bool:
    """Whether it is time to sign a zone."""
    signing, signed = state.source.signing, state.signed or NEVER_SIGNED
    if signing is None or (state.view is None and signed.pending is None):
        return False
    return signed.is_due(key_files(signing.keys), now)


def sign(
    source: ZoneSource, unsigned: ZoneView, served: ZoneView | None, before: SigningState | None, now: float
) -> tuple[ZoneView | None, SigningState]:
    """The view to serve for a zone file: newly signed, or ``served`` if that is still good.

    If signing fails, it is ``served``, after a restart the stored version, or None; ``error`` has the reason.
    Raises nothing that a file could cause.
    """
    assert source.signing is not None  # noqa: S101 - for zones that are signed
    assert source.state is not None  # noqa: S101 - the configuration requires it
    name, old, before = to_text(source.origin), served, before or NEVER_SIGNED
    keys = key_files(source.signing.keys)  # before they are read: a change in between is seen at the next check
    if served is None and (kept := store.read(source.state, source.origin)) is not None:
        old, before = kept.view, before._replace(unsigned=kept.unsigned)
    try:
        view = _renew(source, source.signing, source.state, unsigned, old, now)
    except (OSError, ValueError, KeyError, dns.exception.DNSException) as error:  # SigningError is a DNSException
        reason = reason_of(error)
    else:
        validity = Validity.of(view, now)
        assert validity is not None  # noqa: S101 - it was signed
        if view is not old:
            log.info("zone %s signed, serial %d, until %s", name, view.serial, time_text(validity.expires))
        due = validity.expires - source.signing.policy.refresh
        return view, SigningState(unsigned.serial, validity.begins, due, keys)
    pause = min(2 * before.pause, RETRY_LAST) or RETRY_FIRST
    stays = "queries get SERVFAIL" if old is None else f"serial {old.serial} stays"
    log.error("zone %s not signed, %s, next try in %d s: %s", name, stays, pause, reason)
    return old, before._replace(key_files=keys, pending=unsigned, error=reason, failed_at=now, pause=pause)


def check(signing: Signing) -> None:
    """Check that the key folder has keys to sign with. Raises SigningError and OSError."""
    from maptr.dnssec import keys as zonekeys  # late, as in _renew

    zonekeys.read_key_set(signing.keys)


def _renew(
    source: ZoneSource, signing: Signing, state: Path, unsigned: ZoneView, old: ZoneView | None, now: float
) -> ZoneView:
    """Raises SigningError and OSError."""
    # Late, for a start: most servers sign nothing.
    from maptr.dnssec import keys as zonekeys
    from maptr.dnssec.sign import Renewal
    from maptr.zone import text

    renewal = Renewal(zonekeys.read_key_set(signing.keys), signing.policy, now, source.guards.serial)
    view = renewal.renew(unsigned, old)
    if view is old:
        return view
    try:
        store.write(state, source.origin, text.to_text(view), unsigned.serial)
    except OSError as error:
        # A zone that cannot be stored is served, unless the served signatures are still good.
        if old is not None and not signature_state(old, now, expiring=signing.expiring).is_alarm:
            raise
        name, reason = to_text(source.origin), reason_of(error)
        log.error("zone %s: its signed version cannot be kept for the next start: %s", name, reason)
    return view
