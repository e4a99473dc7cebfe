"""A zone's keys as files: the folder is the truth, and a rollover is files that come, change their name and go.

One PEM file (PKCS #8) a key, ``<role>-<algorithm>-<key tag>.<state>.pem``, readable by nobody but its owner. What the
states mean is said in ``zonekeys.py``. No text made here, of an error either, has anything from inside a file.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from maptr.dnssec.keys import Algorithm, Key, KeySet, Role, State
from maptr.errors import MissingExtra, SigningError
from maptr.files import PRIVATE, keep

FOLDER_MODE = 0o700
OTHERS = 0o077  # permission bits of group and world
MAX_PEM = 4096  # octets; a PKCS #8 key of either algorithm has some 240
MAX_KEYS = 16  # more DNSKEYs than this is no rollover, and no reply that fits
_NAME = re.compile(r"(?P<role>[a-z]+)-(?P<algorithm>[a-z0-9]+)-(?P<tag>\d{1,5})\.(?P<state>[a-z]+)\.pem")


class KeyFile(NamedTuple):
    """A key and the file it is in."""

    path: Path
    key: Key


def read_keys(folder: Path) -> list[KeyFile]:
    """The keys in the folder by file name; files that do not end in ``.pem`` are none of our business.

    Raises SigningError for a folder or file that others can read, a name that does not fit its key, and where the
    package cryptography is missing; OSError where something cannot be read.
    """
    require_cryptography()
    try:
        mode = folder.stat().st_mode
    except FileNotFoundError as error:
        advice = f"{error.strerror}; it is made by: maptr zone keys add {folder}"
        raise FileNotFoundError(error.errno, advice, str(folder)) from None
    if mode & OTHERS and stat.S_ISDIR(mode) and not any(_NAME.fullmatch(path.name) for path in folder.iterdir()):
        reason = "is no key folder: it holds no key and is open to others; maptr zone keys add makes a new one"
        raise SigningError(reason, filename=str(folder))
    _check_private(folder, mode, FOLDER_MODE)
    paths = sorted(path for path in folder.iterdir() if path.suffix == ".pem")
    if len(paths) > MAX_KEYS:
        raise SigningError(f"{len(paths)} keys, {MAX_KEYS} at most", filename=str(folder))
    found = [KeyFile(path, _read(path)) for path in paths]
    _check_tags(folder, found)
    return found


def read_key_set(folder: Path) -> KeySet:
    """The keys in the folder, to sign with. Raises what ``read_keys`` does, and SigningError for no chain."""
    return KeySet(tuple(file.key for file in read_keys(folder)))


def add_key(folder: Path, role: Role, algorithm: Algorithm, state: State) -> KeyFile:
    """Make a key and its file, and the folder where there is none. Raises SigningError and OSError."""
    require_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    taken = {file.key.tag for file in read_keys(folder)}
    if len(taken) == MAX_KEYS:
        raise SigningError(f"there are {MAX_KEYS} keys already", filename=str(folder))
    while True:
        is_ed25519 = algorithm is Algorithm.ED25519
        private = ed25519.Ed25519PrivateKey.generate() if is_ed25519 else ec.generate_private_key(ec.SECP256R1())
        key = Key(role, state, algorithm, private)
        if key.tag not in taken:  # so that a tag names one key (RFC 4034 appendix B: it need not)
            break
    octets = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / _name(key)
    keep(path, octets)  # under its name when it is whole: a server may be looking, or this be killed
    _sync(folder)
    return KeyFile(path, key)


def set_state(folder: Path, tag: int, state: State) -> KeyFile:
    """Give a key another state, that is: its file another name. Raises SigningError and OSError."""
    path, key = _find(folder, tag)
    key = replace(key, state=state)
    moved = path.rename(folder / _name(key))
    _sync(folder)
    return KeyFile(moved, key)


def remove_key(folder: Path, tag: int) -> KeyFile:
    """Delete a key's file. Raises SigningError for a key that is active or not there, and OSError."""
    path, key = _find(folder, tag)
    if key.state is State.ACTIVE:
        raise SigningError(f"{key} is in use: retire it first, and wait", filename=str(path))
    path.unlink()
    _sync(folder)
    return KeyFile(path, key)


def _find(folder: Path, tag: int) -> KeyFile:
    for file in read_keys(folder):
        if file.key.tag == tag:
            return file
    raise SigningError(f"no key has the tag {tag}", filename=str(folder))


def _name(key: Key) -> str:
    return f"{key.role}-{key.algorithm}-{key.tag:05d}.{key.state}.pem"


def _read(path: Path) -> Key:
    require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO without a writer must not hang us
    with os.fdopen(handle, "rb") as file:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise SigningError("is no regular file", filename=str(path))
        match = _NAME.fullmatch(path.name)
        if match is not None:
            _check_private(path, mode, PRIVATE)
        octets = file.read(MAX_PEM + 1)
    if match is not None and match["algorithm"] not in tuple(Algorithm):
        reason = f"maptr signs with {' and '.join(Algorithm)} (RFC 8624 3.1), not with {match['algorithm']}"
        raise SigningError(reason, filename=str(path))
    try:
        if match is None:
            raise ValueError
        role, state = Role(match["role"]), State(match["state"])
        algorithm = Algorithm(match["algorithm"])
    except ValueError:
        example = "csk-ecdsap256sha256-12345.active.pem"
        raise SigningError(f"a key's file has a name such as {example}", filename=str(path)) from None
    try:
        private = load_pem_private_key(octets, None) if len(octets) <= MAX_PEM else None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        private = None
    fits = (
        isinstance(private, ed25519.Ed25519PrivateKey)
        if algorithm is Algorithm.ED25519
        else (isinstance(private, ec.EllipticCurvePrivateKey) and isinstance(private.curve, ec.SECP256R1))
    )
    if not fits:
        raise SigningError(f"holds no PEM private key of {algorithm} without a password", filename=str(path))
    assert isinstance(private, ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey)  # noqa: S101 - just checked
    key = Key(role, state, algorithm, private)
    if key.tag != int(match["tag"]):
        raise SigningError(f"the key in it has the tag {key.tag}", filename=str(path))
    return key


def _check_private(path: Path, mode: int, wanted: int) -> None:
    if wanted == FOLDER_MODE and not stat.S_ISDIR(mode):
        raise SigningError("is no directory", filename=str(path))
    if mode & OTHERS:
        shown = stat.S_IMODE(mode)
        raise SigningError(f"is open to others (mode {shown:04o}): chmod {wanted:o} it", filename=str(path))


def _check_tags(folder: Path, files: list[KeyFile]) -> None:
    tags = [file.key.tag for file in files]
    for tag in tags:
        if tags.count(tag) > 1:
            raise SigningError(f"two files have the key tag {tag}", filename=str(folder))


def _sync(folder: Path) -> None:
    """A name given or taken lasts only when its directory is on disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def require_cryptography() -> None:
    """MissingExtra where the package to sign with is missing; what signs cannot even be imported then."""
    if find_spec("cryptography") is None:
        raise MissingExtra("signing needs the package cryptography: pip install 'maptr[dnssec]'")
