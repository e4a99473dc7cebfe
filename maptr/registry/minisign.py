"""minisign: verification of signatures (https://jedisct1.github.io/minisign/).

A public key is 42 bytes in base64: "Ed", a key ID of 8 bytes, an Ed25519 key. A signature file has four lines: an
untrusted comment; in base64 "ED" (the BLAKE2b-512 hash is signed) or "Ed" (the content itself is signed, as in older
versions), the key ID and the signature; a trusted comment; and a signature over the first signature and that comment.
The comment's ``timestamp:`` shows whether a validly signed file is older than another one.
"""

from __future__ import annotations

import base64
import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec

from maptr.errors import MissingExtra, SignatureError

MAX_FILE = 8192  # bytes of a key or signature file; minisign limits its comments to 1024
SUFFIX = ".minisig"
_TIMESTAMP = re.compile(r"(?:^|\t)timestamp:([0-9]{1,12})(?:\t|$)")
_COMMENT = "trusted comment: "


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key and its ID."""

    key_id: bytes
    key: bytes

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Parse a ``.pub`` file, or only its second line. Raises SignatureError (or its subclass MissingExtra)."""
        if find_spec("cryptography") is None:
            raise MissingExtra("signatures need the package cryptography: pip install 'maptr[dnssec]'")
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("untrusted comment:")]
        content = _decoded(lines[0]) if len(lines) == 1 else b""
        if len(content) != 42 or content[:2] != b"Ed":
            raise SignatureError("not a minisign public key: expected an untrusted comment and one line of base64")
        return cls(content[2:10], content[10:])

    def __str__(self) -> str:
        return self.key_id[::-1].hex().upper()  # as minisign shows it


def verify(key: PublicKey, content: bytes, signature: str) -> int | None:
    """Verify a signature file. Returns its time in seconds since 1970, None if its trusted comment has none.

    Raises SignatureError unless the key signed this content.
    """
    lines = signature.replace("\r\n", "\n").rstrip("\n").split("\n")
    if len(lines) != 4 or not lines[0].startswith("untrusted comment:") or not lines[2].startswith(_COMMENT):
        raise SignatureError("not a minisign signature: expected four lines")
    decoded, global_signature = _decoded(lines[1]), _decoded(lines[3])
    kind, key_id, signed = decoded[:2], decoded[2:10], decoded[10:]
    if len(decoded) != 74 or len(global_signature) != 64 or kind not in (b"ED", b"Ed"):
        raise SignatureError("not a minisign signature: wrong length or algorithm")
    if key_id != key.key_id:
        raise SignatureError(f"signed with the key {key_id[::-1].hex().upper()}, not {key}")
    comment = lines[2].removeprefix(_COMMENT)
    _check(key, signed, hashlib.blake2b(content).digest() if kind == b"ED" else content, "it is of another content")
    _check(key, global_signature, signed + comment.encode("utf-8", "surrogateescape"), "its comment was changed")
    stamp = _TIMESTAMP.search(comment)
    return int(stamp[1]) if stamp else None


def _check(key: PublicKey, signature: bytes, message: bytes, reason: str) -> None:
    # Imported here because cryptography is an optional extra.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key.key).verify(signature, message)
    except (InvalidSignature, ValueError):
        raise SignatureError(reason) from None


def _decoded(text: str) -> bytes:
    with suppress(ValueError):
        return base64.b64decode(text.strip(), validate=True)
    return b""
