"""Signatures of minisign (https://jedisct1.github.io/minisign/): whether a file is what the holder of a key signed.

A public key is 42 octets in base64: "Ed", a key's number of 8 octets, an Ed25519 key. A signature file has four lines:
an untrusted comment; in base64 "ED" (the signature is of the BLAKE2b-512 hash) or "Ed" (of the content itself, as
older versions made them), the key's number, the signature; a trusted comment; and a signature over the first signature
and that comment. By its ``timestamp:`` an older file that was validly signed in its day can be told.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from importlib.util import find_spec

from maptr.errors import MissingExtra, SignatureError

MAX_FILE = 8192  # octets of a key or a signature; minisign's own comments end at 1024
SUFFIX = ".minisig"
_TIMESTAMP = re.compile(r"(?:^|\t)timestamp:([0-9]{1,12})(?:\t|$)")
_COMMENT = "trusted comment: "


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An Ed25519 key, and the number that signatures name it by."""

    number: bytes
    octets: bytes

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """The text of a ``.pub`` file, or its second line alone. Raises SignatureError, and so MissingExtra."""
        if find_spec("cryptography") is None:
            raise MissingExtra("signatures need the package cryptography: pip install 'maptr[dnssec]'")
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("untrusted comment:")]
        octets = _decoded(lines[0]) if len(lines) == 1 else b""
        if len(octets) != 42 or octets[:2] != b"Ed":
            raise SignatureError("no public key of minisign: one line of base64 is wanted, below an untrusted comment")
        return cls(octets[2:10], octets[10:])

    def __str__(self) -> str:
        return self.number[::-1].hex().upper()  # as minisign shows it


@dataclass(frozen=True, slots=True)
class Signed:
    """What the signer said of the file; ``at`` in seconds since 1970, None where he did not."""

    comment: str
    at: int | None


def verify(key: PublicKey, content: bytes, signature: str) -> Signed:
    """What the signer says of the content. Raises SignatureError unless the signature file is the key's for it."""
    lines = signature.replace("\r\n", "\n").rstrip("\n").split("\n")
    if len(lines) != 4 or not lines[0].startswith("untrusted comment:") or not lines[2].startswith(_COMMENT):
        raise SignatureError("no signature of minisign: four lines are wanted")
    octets, over_all = _decoded(lines[1]), _decoded(lines[3])
    kind, number, made = octets[:2], octets[2:10], octets[10:]
    if len(octets) != 74 or len(over_all) != 64 or kind not in (b"ED", b"Ed"):
        raise SignatureError("no signature of minisign: wrong in length or kind")
    if number != key.number:
        raise SignatureError(f"signed with the key {number[::-1].hex().upper()}, not {key}")
    comment = lines[2].removeprefix(_COMMENT)
    _check(key, made, hashlib.blake2b(content).digest() if kind == b"ED" else content, "its signature is not for it")
    _check(key, over_all, made + comment.encode("utf-8", "surrogateescape"), "its trusted comment was changed")
    stamp = _TIMESTAMP.search(comment)
    return Signed(comment, int(stamp[1]) if stamp else None)


def _check(key: PublicKey, signature: bytes, message: bytes, otherwise: str) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key.octets).verify(signature, message)
    except (InvalidSignature, ValueError):
        raise SignatureError(otherwise) from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""
