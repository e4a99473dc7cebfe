"""Zones that the server signs itself, with what lies in their key folders: when, and what becomes of it.

The rule of when is ``resign.py``'s, the same as for ``maptr zone sign``; what is published is ``publisher``'s business.
Reads files and takes long, so it belongs in a thread.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import dns.exception

from maptr.dnssec.expiry import EXPIRING, Validity, signature_state
from maptr.dnssec.policy import Policy
from maptr.errors import reason_of
from maptr.protocol.names import to_text
from maptr.zone.snapshot import ZoneView

if TYPE_CHECKING:
    from maptr.server.zones import ZoneSource

log = logging.getLogger("maptr.serve")

LOOK_INTERVAL = 5.0  # seconds between two looks at the key folders and at what is due
# Seconds until a zone that could not be signed is tried again, doubled each time; a change of its keys comes at once.
RETRY_FIRST = 60
RETRY_LAST = 3600

Stamp = tuple[tuple[str, int, int, int, int], ...]


class Signing(NamedTuple):
    """The folder of the keys that a zone is signed with, and how."""

    keys: Path
    policy: Policy = Policy()


class Signed(NamedTuple):
    """How it stands with signing a zone. Times are seconds since 1970.

    ``unsigned`` is the serial the zone file had of which the served version was made, None while that is not ours;
    its signatures hold from ``begins`` on, and from ``due`` on it is signed again.
    ``pending`` was accepted and could not be signed; ``error`` says why the last try failed, "" when it did not.
    """

    unsigned: int | None = None
    begins: float = 0.0
    due: float = 0.0
    stamp: Stamp = ()
    pending: ZoneView | None = None
    error: str = ""
    failed_at: float | None = None
    pause: int = 0

    @property
    def retry_at(self) -> float | None:
        """When a zone that could not be signed is tried again."""
        return (self.failed_at or 0.0) + self.pause if self.error else None

    def is_due(self, source: ZoneSource, now: float) -> bool:
        """Whether to sign: keys came, changed their name or went, signatures near their end, or a retry is due."""
        assert source.signing is not None  # noqa: S101 - for zones that are signed
        if self.stamp != stamp_of(source.signing.keys):
            return True
        if (retry_at := self.retry_at) is not None:
            return not retry_at - self.pause <= now < retry_at  # before it failed: as below
        return not self.begins <= now < self.due  # before they begin: the clock was wrong, and was put right


UNTRIED = Signed()


def stamp_of(folder: Path) -> Stamp:
    """What tells one state of a key folder from another, without reading a key."""
    try:
        found = [(path.name, path.stat()) for path in [folder, *sorted(folder.glob("*.pem"))]]
    except OSError as error:
        return ((str(error), 0, 0, 0, 0),)
    # The folder's own times are left out: files that are no keys come and go.
    return tuple(
        (name, status.st_mode, status.st_uid, *((status.st_ino, status.st_mtime_ns) if at else (0, 0)))
        for at, (name, status) in enumerate(found)
    )


def sign(
    source: ZoneSource, plain: ZoneView, served: ZoneView | None, before: Signed | None, now: float
) -> tuple[ZoneView | None, Signed]:
    """The version to serve of a zone whose file says ``plain``: signed anew, or the one served where that is good.

    Where signing fails, it is the one served, or after a restart the one kept, or None; ``error`` then says why.
    Raises nothing that a file could cause.
    """
    from maptr.dnssec import store  # here, for dnspython takes 40 ms to import

    assert source.signing is not None  # noqa: S101 - for zones that are signed
    assert source.state is not None  # noqa: S101 - the configuration has seen to it
    name = to_text(source.origin)
    before = before or UNTRIED
    stamp = stamp_of(source.signing.keys)  # before they are read: what changes meanwhile is seen at the next look
    old = served
    if served is None and (kept := store.read(source.state, source.origin)) is not None:
        old = kept.view
        before = before._replace(unsigned=kept.unsigned)
    try:
        view = _renew(source, source.signing, plain, old, now)
    except (OSError, ValueError, KeyError, dns.exception.DNSException) as error:  # SigningError is the last of them
        reason = reason_of(error)
    else:
        validity = Validity.of(view, now)
        assert validity is not None  # noqa: S101 - it was signed
        if view is not old:
            until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(validity.expires))
            log.info("zone %s signed, serial %d, until %s", name, view.serial, until)
        return view, Signed(plain.serial, validity.begins, validity.expires - source.signing.policy.refresh, stamp)
    pause = min(2 * before.pause, RETRY_LAST) or RETRY_FIRST
    if old is None:
        log.error("zone %s not signed, queries get SERVFAIL, next try in %d s: %s", name, pause, reason)
    else:
        log.error("zone %s not signed, serial %d stays, next try in %d s: %s", name, old.serial, pause, reason)
    failed = before._replace(stamp=stamp, pending=plain, error=reason, failed_at=now, pause=pause)
    return old, failed


def check(signing: Signing) -> None:
    """That the key folder can be signed with. Raises SigningError and OSError."""
    from maptr.dnssec import keyfolder

    keyfolder.read_key_set(signing.keys)


def _renew(source: ZoneSource, signing: Signing, plain: ZoneView, old: ZoneView | None, now: float) -> ZoneView:
    """Raises SigningError and OSError."""
    # Here, for a server that signs nothing starts without these.
    from maptr.dnssec import keyfolder

    keyfolder.require_cryptography()
    from maptr.dnssec import store  # here, for dnspython takes 40 ms to import
    from maptr.dnssec.resign import Renewal
    from maptr.zone import text

    assert source.state is not None  # noqa: S101 - as above
    renewal = Renewal(keyfolder.read_key_set(signing.keys), signing.policy, now, source.guards.serial)
    view = renewal.renew(plain, old)
    if view is old:
        return view
    try:
        store.write(source.state, source.origin, text.to_text(view), plain.serial)
    except OSError as error:
        # To serve is better than not to: but not for a zone that is good as it is.
        if old is not None and not signature_state(old, now, expiring=min(EXPIRING, signing.policy.refresh)).is_alarm:
            raise
        name, reason = to_text(source.origin), reason_of(error)
        log.error("zone %s: its signed version cannot be kept for the next start: %s", name, reason)
    return view
