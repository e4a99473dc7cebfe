"""The keys of a signed zone: their roles, states and files.

A key folder has one PEM file (PKCS #8) for each key, ``<role>-<algorithm>-<key tag>.<state>.pem``, which only its owner
can read. A key rollover adds, renames and removes files. No string representation and no error message contains key
material. dnspython reads, writes and generates the keys.
"""

from __future__ import annotations

import enum
import math
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import dns.exception
import dns.name

from maptr.errors import MissingExtra, SigningError, Time, time_text
from maptr.files import flush_to_disk, read_whole, secret_fault, write_private
from maptr.protocol.names import Labels
from maptr.protocol.numbers import SECURE_ENTRY_POINT, ZONE_KEY

if TYPE_CHECKING:  # these modules and the late imports below need the package cryptography, an optional dependency
    from dns.dnssecalgs.base import GenericPrivateKey
    from dns.rdtypes.ANY.DNSKEY import DNSKEY
    from dns.rdtypes.ANY.DS import DS

FOLDER_MODE = 0o700
OTHERS = 0o077  # permission bits of group and others
MAX_PEM = 4096  # bytes; a PKCS #8 key of either algorithm has about 240
MAX_KEYS = 16  # keys in a folder: no rollover needs more, and the DNSKEY response remains small
CURVE = "secp256r1"  # the curve of ECDSAP256SHA256 (RFC 6605)
MAX_TTL_OF_ZONE = 86_400  # seconds; of the zones that maptr builds, and the usual TTL of a DS
MARGIN = 3_600  # seconds for secondaries, or the parent's servers, to get a new version
EXAMPLE = "csk-ecdsap256sha256-12345.active.pem"


class Role(enum.StrEnum):
    """The role of a key: it signs the DNSKEY RRset (KSK), the other RRsets (ZSK), or both (CSK)."""

    KSK = "ksk"
    ZSK = "zsk"
    CSK = "csk"


class KeyState(enum.StrEnum):
    """The state of a key in a rollover. The DNSKEY RRset has the keys of all three states.

    A ZSK signs only while active (pre-publication, RFC 7583 2.1). A KSK or CSK signs in every state, but CDS
    and DS refer only to active keys (double signature, RFC 7583 2.2).
    """

    PUBLISHED = "published"
    ACTIVE = "active"
    RETIRED = "retired"


class Algorithm(enum.StrEnum):
    """The algorithms that RFC 8624 3.1 recommends for signing, by mnemonic."""

    ECDSAP256SHA256 = "ecdsap256sha256"
    ED25519 = "ed25519"

    @property
    def number(self) -> int:
        """The algorithm number (RFC 6605 8, RFC 8080 6)."""
        return {Algorithm.ECDSAP256SHA256: 13, Algorithm.ED25519: 15}[self]

    @property
    def private_class(self) -> type[GenericPrivateKey]:
        """dnspython's class for private keys of this algorithm. Raises MissingExtra."""
        require_cryptography()
        import dns.dnssecalgs

        return dns.dnssecalgs.get_algorithm_cls(self.number)


_NAME = re.compile(
    rf"(?P<role>{'|'.join(Role)})-(?P<algorithm>[a-z0-9]+)-(?P<tag>\d{{1,5}})\.(?P<state>{'|'.join(KeyState)})\.pem"
)


@dataclass(frozen=True, slots=True)
class ZoneKey:
    """A key pair. Its string representations do not contain the private key."""

    role: Role
    state: KeyState
    algorithm: Algorithm
    private: GenericPrivateKey = field(repr=False)

    @property
    def dnskey(self) -> DNSKEY:
        flags = ZONE_KEY if self.role is Role.ZSK else ZONE_KEY | SECURE_ENTRY_POINT
        return self.private.public_key().to_dnskey(flags)

    @property
    def rdata(self) -> bytes:
        """The rdata of the DNSKEY record in wire format."""
        return self.dnskey.to_wire() or b""

    @property
    def tag(self) -> int:
        """The key tag (RFC 4034 appendix B)."""
        import dns.dnssec

        return dns.dnssec.key_id(self.dnskey)

    @property
    def is_entry(self) -> bool:
        """Whether the parent has, or is going to have, a DS record for this key."""
        return self.role is not Role.ZSK and self.state is KeyState.ACTIVE

    def __str__(self) -> str:
        return f"{self.role.upper()} {self.tag} ({self.algorithm}, {self.state})"


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of one zone. Raises SigningError if they allow no chain of trust (RFC 4035 2.2)."""

    keys: tuple[ZoneKey, ...]

    def __post_init__(self) -> None:
        if not any(key.is_entry for key in self.keys):
            raise SigningError("no active KSK or CSK: no key would match the DS at the parent")
        if not self.zone_signers:
            raise SigningError("no active ZSK and no CSK: no key would sign the zone")
        signing = {key.algorithm for key in self.zone_signers} & {key.algorithm for key in self.dnskey_signers}
        for key in self.keys:
            if key.algorithm not in signing:
                reason = "every algorithm in use must sign both the DNSKEY RRset and the zone (RFC 4035 2.2)"
                raise SigningError(f"{key}: {reason}; add a CSK, or a KSK and an active ZSK, of this algorithm")

    @property
    def zone_signers(self) -> tuple[ZoneKey, ...]:
        """The keys that sign all RRsets except DNSKEY, CDS and CDNSKEY."""
        return tuple(
            key for key in self.keys if key.role is Role.CSK or (key.role is Role.ZSK and key.state is KeyState.ACTIVE)
        )

    @property
    def dnskey_signers(self) -> tuple[ZoneKey, ...]:
        """The keys that sign DNSKEY, CDS and CDNSKEY (RFC 7344 4.1)."""
        return tuple(key for key in self.keys if key.role is not Role.ZSK)

    @property
    def entries(self) -> tuple[ZoneKey, ...]:
        """The keys for which the parent has, or is going to have, a DS record."""
        return tuple(key for key in self.keys if key.is_entry)


def ds_rdata(origin: Labels, key: ZoneKey) -> bytes:
    """Return the rdata of a key's DS and CDS records, with SHA-256 (RFC 8624 3.3)."""
    import dns.dnssec

    return dns.dnssec.make_ds(dns.name.Name((*origin, b"")), key.dnskey, "SHA256").to_wire() or b""


def is_ds_of(key: ZoneKey, origin: Labels, ds: DS) -> bool:
    """Return whether a DS refers to a key. The parent chooses the digest (RFC 7344 5); only SHA-2 is compared."""
    import dns.dnssec
    from dns.dnssectypes import DSDigest

    if (ds.key_tag, ds.algorithm) != (key.tag, key.algorithm.number):
        return False
    name = dns.name.Name((*origin, b""))
    kinds = (DSDigest.SHA256, DSDigest.SHA384)
    return ds.digest_type not in kinds or dns.dnssec.make_ds(name, key.dnskey, DSDigest(ds.digest_type)) == ds


def require_cryptography() -> None:
    """Raise MissingExtra if the package cryptography is not installed."""
    if find_spec("cryptography") is None:
        raise MissingExtra("signing needs the package cryptography: pip install 'maptr[dnssec]'")


# ---- rollovers


@dataclass(frozen=True, slots=True)
class KeyStep:
    """A key in its state since a time, and its next step in a rollover, not before ``at``.

    ``next`` is "activate", "retire", "remove" or "". A published key may become active, and a retired one may be
    removed, when its last change has reached every secondary or the parent (MARGIN), and then every cache (the longest
    TTL; RFC 7583 3.2 and 3.3). A ZSK may be retired as soon as another one of its algorithm is active; a KSK or CSK
    only when the parent has the DS of the other one, which no file shows. A ZSK may be removed at once when its
    algorithm has no KSK or CSK: an algorithm signs the whole zone or nothing (RFC 4035 2.2).
    """

    tag: int
    role: str
    algorithm: str
    state: str
    since: Time
    next: str = ""
    at: Time | None = None
    advice: str = ""  # the next step as a text

    def to_be(self, next: str, at: float) -> KeyStep:
        """Return the key with its next step."""
        needs_ds = next == "retire" and self.role != Role.ZSK
        parent = ", once the parent has the DS of the other key" if needs_ds else ""
        return replace(self, next=next, at=at, advice=f"next: {next}, not before {time_text(at)}{parent}")


def steps_of(files: Iterable[tuple[str, float]], ttl: int, ds_ttl: int | None = None) -> list[KeyStep]:
    """Return the steps of keys, in order, from the names and modification times of their files.

    ``ttl`` is the zone's longest, ``ds_ttl`` the DS's, in seconds; by default the same. Skips files that are not keys.
    """
    found = [(match, since) for name, since in files if (match := _NAME.fullmatch(name))]
    keys = [KeyStep(int(it["tag"]), it["role"], it["algorithm"], it["state"], since) for it, since in found]
    return [_with_step(key, keys, ttl, ds_ttl) for key in keys]


def _with_step(key: KeyStep, keys: Iterable[KeyStep], ttl: int, ds_ttl: int | None) -> KeyStep:
    if _is_left_over(key, keys):
        return key.to_be("remove", key.since)
    since = math.ceil(key.since)  # rounded up: at the second that is shown, a step is not too early
    if key.state == KeyState.PUBLISHED:
        return key.to_be("activate", since + ttl + MARGIN)
    if key.state == KeyState.RETIRED:
        wait = ttl if ds_ttl is None or key.role == Role.ZSK else max(ttl, ds_ttl)
        return key.to_be("remove", since + wait + MARGIN)
    later = [new.since for new in keys if new.since > key.since and _replaces(new, key)]
    return key.to_be("retire", min(later)) if later else key


def _is_left_over(key: ZoneKey | KeyStep, keys: Iterable[ZoneKey | KeyStep]) -> bool:
    """Return whether some algorithm has a KSK or CSK among the keys, but this key's has none."""
    entries = {each.algorithm for each in keys if each.role != Role.ZSK}
    return bool(entries) and key.algorithm not in entries


def _replaces(new: ZoneKey | KeyStep, old: ZoneKey | KeyStep) -> bool:
    """Return whether an active key does the work of another one."""
    same = old.role != Role.ZSK or new.algorithm == old.algorithm
    return same and new.state == KeyState.ACTIVE and new.role in (old.role, Role.CSK)


def key_steps(files: Iterable[KeyFile], ttl: int, ds_ttl: int | None = None) -> list[KeyStep]:
    """Return the steps of the keys in a folder, as ``steps_of`` does. Raises OSError."""
    return steps_of([(path.name, path.stat().st_mtime) for path, _ in files], ttl, ds_ttl)


def check_change(
    folder: Path, tag: int, state: KeyState | None, now: float, ttl: int, ds_ttl: int | None = None
) -> tuple[ZoneKey, list[ZoneKey]]:
    """Return a key and the others, if a rollover may give it this ``state`` now; None removes it.

    Raises SigningError if caches would have data that no key verifies: see ``KeyStep``. A key stops being active only
    while another one is.
    """
    files = read_keys(folder)
    path, key = _find(files, folder, tag)
    others = [each.key for each in files if each.key is not key]
    (step,) = [step for step in key_steps(files, ttl, ds_ttl) if step.tag == tag]
    if step.at is not None and now < step.at and step.next == {KeyState.ACTIVE: "activate", None: "remove"}.get(state):
        what = "become active" if state else "be removed"
        reason = f"{key} must not {what} before {time_text(step.at)}: caches may still hold the older data"
        raise SigningError(reason, filename=str(path))
    is_alone = not any(_replaces(each, key) for each in others)
    if state is not None and key.state is KeyState.ACTIVE is not state and is_alone:
        reason = f"{key} is the only active one: activate its successor first"
        if key.role is Role.ZSK:
            reason = f"{key} is the only active one of its algorithm: activate another, or remove its KSK first"
        raise SigningError(reason, filename=str(path))
    return key, others


# ---- the key folder


class KeyFile(NamedTuple):
    path: Path
    key: ZoneKey


def read_keys(folder: Path) -> list[KeyFile]:
    """Return the keys in the folder, sorted by file name: from files in ``.pem``, or BIND's ``.private``.

    Raises SigningError for a folder or file that other users can read, for a file name that does not match its key
    (BIND's never does), and if the package cryptography is missing; OSError if the folder or a file cannot be read.
    """
    require_cryptography()
    try:
        mode = folder.stat().st_mode
    except FileNotFoundError as error:
        advice = f"{error.strerror}; restore it, or for a zone without a DS: maptr zone keys add {folder}"
        raise FileNotFoundError(error.errno, advice, str(folder)) from None
    if not stat.S_ISDIR(mode):
        raise SigningError("is not a directory", filename=str(folder))
    if mode & OTHERS:
        reason = f"is open to others (mode {stat.S_IMODE(mode):04o}): chmod {FOLDER_MODE:o} it"
        if not any(_NAME.fullmatch(path.name) for path in folder.iterdir()):
            reason = "is not a key folder: it holds no key and is open to others; maptr zone keys add makes a new one"
        raise SigningError(reason, filename=str(folder))
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".pem", ".private"))
    if len(paths) > MAX_KEYS:
        raise SigningError(f"{len(paths)} keys, {MAX_KEYS} at most", filename=str(folder))
    found = [KeyFile(path, _read(path)) for path in paths]
    tags = [file.key.tag for file in found]
    for tag in tags:
        if tags.count(tag) > 1:
            raise SigningError(f"two files have the key tag {tag}", filename=str(folder))
    return found


def read_key_set(folder: Path) -> KeySet:
    """Return the keys in the folder as a ``KeySet``. Raises the errors of both."""
    keys = tuple(file.key for file in read_keys(folder))
    try:
        return KeySet(keys)
    except SigningError as error:
        raise SigningError(error.reason, filename=str(folder)) from None


def add_key(folder: Path, role: Role, algorithm: Algorithm, state: KeyState | None = None) -> KeyFile:
    """Generate a key and write its file. A folder that is missing or empty becomes a key folder.

    Without ``state``, the first key of its role is active, as is the first ZSK of an algorithm, and others are
    published. Raises SigningError and OSError.
    """
    private_class = algorithm.private_class
    if not folder.exists():
        folder.mkdir(mode=FOLDER_MODE, parents=True)
    elif folder.is_dir() and not any(folder.iterdir()):
        folder.chmod(FOLDER_MODE)
    keys = [file.key for file in read_keys(folder)]
    if len(keys) == MAX_KEYS:
        raise SigningError(f"there are {MAX_KEYS} keys already", filename=str(folder))
    taken = {key.tag for key in keys}
    while True:
        key = ZoneKey(role, KeyState.PUBLISHED, algorithm, private_class.generate())  # type: ignore[attr-defined]
        if key.tag not in taken:  # key tags need not be unique (RFC 4034 appendix B), but file names must be
            break
    is_first = not any(each.role is role and _replaces(each, key) for each in keys)
    key = replace(key, state=state or (KeyState.ACTIVE if is_first else KeyState.PUBLISHED))
    path = folder / _name(key)
    write_private(path, key.private.to_pem())  # atomic, because a server may read the folder at any time
    return KeyFile(path, key)


def set_state(folder: Path, tag: int, state: KeyState) -> KeyFile:
    """Change the state of a key by renaming its file. Raises SigningError and OSError."""
    path, key = _find(read_keys(folder), folder, tag)
    if key.state is state:
        return KeyFile(path, key)
    key = replace(key, state=state)
    moved = path.rename(folder / _name(key))
    os.utime(moved)  # ``KeyStep`` counts from the time of the change
    flush_to_disk(folder)
    return KeyFile(moved, key)


def remove_key(folder: Path, tag: int) -> KeyFile:
    """Delete the file of a key. Raises SigningError for a key that is in use or does not exist, and OSError."""
    files = read_keys(folder)
    path, key = _find(files, folder, tag)
    if key.state is KeyState.ACTIVE and not _is_left_over(key, [file.key for file in files]):
        raise SigningError(f"{key} is in use: retire it first, and wait", filename=str(path))
    path.unlink()
    flush_to_disk(folder)
    return KeyFile(path, key)


def _find(files: Iterable[KeyFile], folder: Path, tag: int) -> KeyFile:
    for file in files:
        if file.key.tag == tag:
            return file
    raise SigningError(f"no key has the tag {tag}", filename=str(folder))


def _name(key: ZoneKey) -> str:
    return f"{key.role}-{key.algorithm}-{key.tag:05d}.{key.state}.pem"


def _read(path: Path) -> ZoneKey:
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise SigningError(f"a key's file has a name such as {EXAMPLE}", filename=str(path))
    if fault := secret_fault(path.stat()):
        raise SigningError(fault, filename=str(path))
    pem = read_whole(path, MAX_PEM)
    if match["algorithm"] not in tuple(Algorithm):
        reason = f"maptr signs with {' and '.join(Algorithm)} (RFC 8624 3.1), not with {match['algorithm']}"
        raise SigningError(reason, filename=str(path))
    algorithm = Algorithm(match["algorithm"])
    private = _private_key(pem, algorithm)
    if private is None:
        raise SigningError(f"contains no unencrypted PEM private key for {algorithm}", filename=str(path))
    key = ZoneKey(Role(match["role"]), KeyState(match["state"]), algorithm, private)
    if key.tag != int(match["tag"]):
        raise SigningError(f"the key in this file has the tag {key.tag}", filename=str(path))
    return key


def _private_key(pem: bytes, algorithm: Algorithm) -> GenericPrivateKey | None:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        private = algorithm.private_class.from_pem(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm, dns.exception.DNSException):
        return None
    curve = getattr(private.key, "curve", None)  # type: ignore[attr-defined]
    return private if curve is None or curve.name == CURVE else None
