"""Domain names as tuples of labels, without the root: presentation format, wire format, and comparison.

Labels keep their case; ``fold`` returns the form for comparison. The walk and the zone writer use these names instead
of dnspython's, which take longer to import and to create.
"""

from __future__ import annotations

import re
from typing import NewType

Labels = tuple[bytes, ...]
Folded = NewType("Folded", Labels)
"""Labels in lower case, for comparison and lookup. Take a part of one as ``Folded(name[1:])``."""

ARK_ARPA = Folded((b"ark", b"arpa"))  # the origin of Maptr (draft-kunze-ark appendix B)

MAX_LABEL = 63  # RFC 1035 2.3.4
MAX_NAME = 255  # RFC 1035 2.3.4, in bytes of wire format, the root label included
MAX_JUMPS = 126  # a name of 255 bytes has at most 127 labels, so it needs no more compression pointers
ROOT, WILDCARD = b"\0", b"\1*"  # in wire format: RFC 1035 3.1, RFC 4592 2.1.1

# The bytes that presentation format writes unescaped. All others are written as \DDD, which every zone reader accepts;
# they include the colon, because Knot rejects an unescaped colon.
_PLAIN = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_/=~*+"
_PLAIN_NAME = _PLAIN + b"."
_SHOWN = [chr(octet) if octet in _PLAIN else f"\\{octet:03d}" for octet in range(256)]
_TOKEN = re.compile(rb"\\\d{1,3}|\\[^\d]?|[^.\\]+|\.")  # an escape, plain bytes, or a dot
_LENGTHS = [bytes((size,)) for size in range(256)]


def parse(text: str) -> Labels:
    """Return the labels of a name in presentation format (RFC 1035 5.1), with or without a final dot.

    Raises ValueError for an empty or overlong label, an overlong name, a bad escape or a non-ASCII character.
    """
    if text in ("", "."):
        return ()
    if not text.isascii():
        raise ValueError("not ASCII: an international name is written in A-labels (xn--...)")
    octets = text.encode("ascii")
    if b"\\" not in octets:
        return check(tuple(octets.removesuffix(b".").split(b".")))
    labels = [bytearray()]
    for token in _TOKEN.findall(octets):
        if token == b".":
            labels.append(bytearray())
        elif token.startswith(b"\\"):
            labels[-1].append(_unescape(token[1:]))
        else:
            labels[-1] += token
    return check(tuple(map(bytes, labels if labels[-1] else labels[:-1])))


def required(text: str) -> Labels:
    """Return the labels of a name that a person typed; an empty text does not mean the root. Raises ValueError."""
    if not text:  # perhaps a script's empty variable
        raise ValueError("is empty: a domain name is required")
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a valid domain name: {error}") from None


def mailbox(text: str) -> str:
    """Return the domain name of an e-mail address (RFC 1035 8) in presentation format, or the text if it is a name."""
    user, at, domain = text.rpartition("@")
    return ".".join([user.replace(".", "\\."), domain]) if at else text


def _unescape(escaped: bytes) -> int:
    if not escaped:
        raise ValueError("a name ends inside an escape")
    if not escaped.isdigit():
        return escaped[0]
    if len(escaped) != 3:
        raise ValueError("a numeric escape needs three digits")
    if int(escaped) > 255:
        raise ValueError(f"\\{int(escaped)} is not a byte")
    return int(escaped)


def check(labels: Labels) -> Labels:
    """Return the labels. Raises ValueError for an empty or overlong label, or an overlong name (RFC 1035 2.3.4)."""
    if b"" in labels:
        raise ValueError("empty label")
    size = wire_length(labels)
    if size > MAX_LABEL and (longest := max(map(len, labels))) > MAX_LABEL:
        raise ValueError(f"label of {longest} bytes, {MAX_LABEL} at most")
    if size > MAX_NAME:
        raise ValueError(f"name of {size} bytes, {MAX_NAME} at most")
    return labels


def to_text(labels: Labels) -> str:
    """Return the absolute name in presentation format, with ``\\DDD`` for bytes that a zone reader could misread."""
    joined = b".".join(labels)
    if joined.count(b".") == len(labels) - 1 and not joined.translate(None, _PLAIN_NAME):
        return joined.decode("ascii") + "."
    return ".".join(["".join([_SHOWN[octet] for octet in label]) for label in labels]) + "."


def to_wire(labels: Labels) -> bytes:
    """Return the name in uncompressed wire format (RFC 1035 3.1)."""
    return b"".join([_LENGTHS[len(label)] + label for label in labels]) + b"\0"


def parent(name: bytes) -> bytes:
    """Return a name in wire format without its first label."""
    return name[1 + name[0] :]


def next_closer(name: bytes, encloser: bytes) -> bytes:
    """Return the next closer name, one label longer than the encloser (RFC 5155 1.3). All are in wire format."""
    at, end = 0, len(name) - len(encloser)
    while (behind := at + 1 + name[at]) < end:
        at = behind
    return name[at:]


def from_wire(octets: bytes, at: int = 0) -> Labels:
    """Return the labels of an uncompressed name in wire format."""
    return read_wire(octets, at)[0]


def folded_from_wire(octets: bytes) -> Folded:
    """Return the labels of a name in folded, uncompressed wire format, as in a packed table."""
    return Folded(read_wire(octets, 0)[0])


def read_wire(octets: bytes, at: int) -> tuple[Labels, int]:
    """Return the labels of an uncompressed name in wire format, and the offset of its end. Raises IndexError."""
    labels: list[bytes] = []
    while size := octets[at]:
        labels.append(octets[at + 1 : at + 1 + size])
        at += size + 1
    return tuple(labels), at + 1


def read_name(packet: bytes, at: int) -> tuple[Labels, int]:
    """Return the name at an offset of a message, compressed or not, and the offset of its end (RFC 1035 4.1.4).

    Raises ValueError for a forward pointer, too many pointers, and a name that is too long or incomplete.
    """
    labels: list[bytes] = []
    size, jumps, end = 1, 0, 0
    try:
        while length := packet[at]:
            if length <= MAX_LABEL:
                start = at + 1
                at = start + length
                size += length + 1
                if size > MAX_NAME:
                    raise ValueError("a name too long")
                labels.append(packet[start:at])
            elif length >= 0xC0:
                target = (length & 0x3F) << 8 | packet[at + 1]
                jumps += 1
                if target >= at or jumps > MAX_JUMPS:
                    raise ValueError("a compression pointer does not lead back")
                end = end or at + 2
                at = target
            else:
                raise ValueError("a label of an unknown kind")
    except IndexError:
        raise ValueError("a name cut short") from None
    return tuple(labels), end or at + 1


def wire_length(labels: Labels) -> int:
    return sum(map(len, labels)) + len(labels) + 1


def fold(labels: Labels) -> Folded:
    """Return the form for comparison: ASCII lower case (RFC 4343)."""
    return Folded(tuple(map(bytes.lower, labels)))


def is_below(labels: Labels, origin: Labels) -> bool:
    """Return whether the name is the origin or below it."""
    if not origin:
        return True
    above = labels[-len(origin) :]
    return above == origin or bool(above and above[-1].lower() == origin[-1].lower() and fold(above) == fold(origin))
