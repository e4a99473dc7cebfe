"""Rdata in presentation format (RFC 1035 5.1, RFC 3597 5), read into uncompressed wire format.

dnspython reads the fields of the types that it knows. The reasons for a refusal are our own, worded like those of name
servers' checkers.
"""

from __future__ import annotations

import binascii
import datetime
import ipaddress
import re
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial

import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.tokenizer
import dns.ttl

from maptr.errors import ZoneError
from maptr.naptr.record import MAX_STRING
from maptr.protocol.names import Labels, check, parse, read_name, read_wire, to_wire
from maptr.protocol.numbers import AAAA, CNAME, DNSKEY, DS, HTTPS, NAPTR, NS, NSEC, RRSIG, SVCB, TXT, A
from maptr.registry.table import shown
from maptr.zone.rrset import RRSIG_HEAD, bitmap

MAX_RDATA = 0xFFFF  # bytes (RFC 1035 3.2.1)
# Type 0, OPT, NXNAME (RFC 9824 2), and the Q and meta types (RFC 6895 3.1): no zone has records of them.
META_TYPES = frozenset({0, 41, 128, *range(249, 256)})
NOT_OF_ZONES = "the type is for queries and messages, not for zones"
_NOT_THE_DATA = "generic data (RFC 3597 5) that is not the data of {}"
MISSING = "unexpected end of line: a field is missing"
BAD_ESCAPE = "bad escape: \\DDD has three digits, up to 255, and \\\\ is a backslash"

GENERIC = "\\#"
_ESCAPE = re.compile(r"\\(?:\d{3}|.)", re.DOTALL)
_ESCAPES = re.compile(r"(?:[^\\]|\\\D|\\(?:[01]\d|2[0-4]|25(?=[0-5]))\d)*", re.DOTALL)
_GROUP = re.compile(r"\w+")
_QUOTED = r'"([^"\\]*(?:\\(?:\D|\d\d\d)[^"\\]*)*)"'
_BLANK = "[ \t]+"
_NAPTR_FIELDS = re.compile(rf"(\d{{1,5}}){_BLANK}(\d{{1,5}}){_BLANK}{_QUOTED}{_BLANK}{_QUOTED}{_BLANK}{_QUOTED}")
_TEXT_FIELDS = re.compile(rf"{_QUOTED}(?:{_BLANK}{_QUOTED})*")
_ESCAPED_BYTE = re.compile(rb"\\(\d\d\d|.)", re.DOTALL)
_TOKENIZED = re.compile(r"[();\"\s@]")  # characters with a meaning for a tokenizer
_RP, _KEY, _CERT, _IPSECKEY, _OPENPGPKEY, _DHCID = 17, 25, 37, 45, 61, 49
_PRIVATE = 65280  # RFC 6895 3.1
_NXT_BYTES = 16
# Types with the fields of one that dnspython knows: MD, MF, MB, MG, MR and MINFO (RFC 1035 3.3), TALINK, TA.
_FIELDS_OF = {3: NS, 4: NS, 7: NS, 8: NS, 9: NS, 14: _RP, 58: _RP, 32768: DS}
# The minimum size in bytes of types with a last field of any length: NSAP, EID, NIMLOC, CERT, SINK, DS, DNSKEY, DHCID,
# TLSA, SMIMEA, CDS, CDNSKEY, OPENPGPKEY, HHIT, BRID, TA, DLV.
_LEAST = {22: 1, 31: 1, 32: 1, 37: 6, 40: 3, 43: 5, 48: 5, 49: 1, 52: 4, 53: 4, 59: 5, 60: 5, 61: 1, 67: 1, 68: 1}
_LEAST |= {32768: 5, 32769: 5}
_TEXTS = frozenset({TXT, 56, 99, 258, 261, 262})  # types of any number of character-strings (RFC 1035 3.3)
_STRINGS = _TEXTS | {13, 19, 20, NAPTR}
_BASE64 = frozenset({24, _KEY, _CERT, _IPSECKEY, RRSIG, DNSKEY, _DHCID, 60, _OPENPGPKEY})


def bad_field(text: str, reason: str) -> ZoneError:
    """Return the error for a field of a line, or for its end, which has no text."""
    return ZoneError(f"near '{shown(text)}': {reason}" if text else reason)


class _FieldError(dns.exception.SyntaxError):
    """A refusal with a reason of our own."""


class _Fields(dns.tokenizer.Tokenizer):
    """The fields of one record. ``last`` is the one that was read last, empty after all of them."""

    last = ""

    def get(self, want_leading: bool = False, want_comment: bool = False) -> dns.tokenizer.Token:
        token = super().get(want_leading, want_comment)
        self.last = "" if token.is_eol_or_eof() else str(token.value)
        return token

    def as_int(self, token: dns.tokenizer.Token, base: int = 10) -> int:
        if token.is_identifier() and not str(token.value).isdigit():
            raise _FieldError("is not a number")  # type: ignore[no-untyped-call]
        return super().as_int(token, base)

    def get_eol_as_token(self) -> dns.tokenizer.Token:
        token = self.get()
        if not token.is_eol_or_eof():
            raise _FieldError("too many fields for this record type")  # type: ignore[no-untyped-call]
        return token


@lru_cache
def type_text(rdtype: int) -> str:
    """Return the mnemonic of a type, or ``TYPE65280`` (RFC 3597 5)."""
    return dns.rdatatype.to_text(dns.rdatatype.RdataType.make(rdtype))


def type_number(text: str) -> int:
    """Return the number of a type from its mnemonic or ``TYPE65280``. Raises ZoneError for any other word."""
    try:
        return int(dns.rdatatype.from_text(text))
    except (dns.exception.DNSException, ValueError):
        raise bad_field(text, "unknown RR type") from None


def read_rdata(rdtype: int, tokens: Sequence[str], origin: Labels) -> bytes:
    """Return the wire format of rdata from its tokens, which keep their quotes.

    ``origin`` completes relative names. Raises ZoneError with the reason, and the field, if the rdata is not valid.
    """
    if rdtype in META_TYPES:
        raise ZoneError(NOT_OF_ZONES)
    read = _READERS.get(rdtype, _known)
    wire = read(rdtype, tokens, dns.name.Name((*origin, b"")))
    if _is_invalid(rdtype, wire):
        raise ZoneError(f"data of {type_text(rdtype)} with an empty or invalid field: BIND rejects the zone")
    if len(wire) > MAX_RDATA:
        raise ZoneError(f"the rdata has {len(wire)} bytes, {MAX_RDATA} at most")
    return wire


def _is_invalid(rdtype: int, wire: bytes) -> bool:
    """Return whether a field is empty or invalid, which dnspython accepts and BIND does not."""
    match rdtype:
        case 11:  # WKS: a bitmap ends at its last bit (RFC 1035 3.4.2)
            return len(wire) > 5 and not wire[-1]
        case 19:  # X25: an address has 4 digits or more (RFC 1183 3.1)
            return wire[0] < 4 or not wire[1:].isdigit()
        case 25:  # KEY: no key follows flags that say so, and one follows all others (RFC 2535 3.1.2)
            return (len(wire) == 4) is not (wire[0] >= 0xC0)
        case 24 | 46:  # SIG, RRSIG: a signature, of a type
            return len(wire) <= read_wire(wire, 18)[1] or wire[:2] == b"\0\0"
        case 34:  # ATMA: an address of one of two formats, the second in digits
            return len(wire) < 2 or wire[0] > 1 or (wire[0] == 1 and not wire[1:].isdigit())
        case 45:  # IPSECKEY: a key (RFC 4025 2.1), behind a gateway of one of four kinds
            gateway = {0: 3, 1: 7, 2: 19}.get(wire[1]) or read_wire(wire, 3)[1]
            return len(wire) <= gateway
        case 47:  # NSEC: a bitmap (RFC 4034 4.1.2)
            return len(wire) <= read_wire(wire, 0)[1]
        case 55:  # HIP: an identity tag and a key (RFC 8005 5)
            return not wire[0] or wire[2:4] == b"\0\0"
        case 57:  # RKEY: flags of 0
            return len(wire) <= 4 or wire[:2] != b"\0\0"
        case 259:  # DOA: two numbers, a location, a media type, data
            return len(wire) < 10 or len(wire) < 10 + wire[9]
    return len(wire) < _LEAST.get(rdtype, 0)


def _known(rdtype: int, tokens: Sequence[str], origin: dns.name.Name) -> bytes:
    """Read the fields of a type that dnspython knows, or generic data."""
    fields = _Fields(" ".join(tokens))
    as_type = dns.rdatatype.RdataType.make(_FIELDS_OF.get(rdtype, rdtype))
    try:
        return dns.rdata.from_text("IN", as_type, fields, origin, relativize=False).to_wire() or b""
    except (dns.exception.DNSException, ValueError, LookupError, ArithmeticError, struct.error) as error:
        word, reason = next(_bad_text(rdtype, tokens), (fields.last, ""))
        reason = reason or _reason(error, rdtype, word, tokens)
        raise bad_field(word, reason) from error


def _bad_text(rdtype: int, tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each field whose text is bad whatever its meaning, with the reason."""
    for token in tokens:
        size = len(_ESCAPE.sub("x", token[1:-1] if token.startswith('"') else token))
        if not _ESCAPES.fullmatch(token):
            yield token, BAD_ESCAPE
        elif rdtype in _STRINGS and size > MAX_STRING:
            advice = ": write several, each in quotes" if rdtype in _TEXTS else ""
            yield token, f"a string of {size} bytes, {MAX_STRING} at most{advice}"


def _reason(error: BaseException, rdtype: int, word: str, tokens: Sequence[str]) -> str:
    """Say why a field was refused, in our own words: by the kinds of the error and of the field."""
    cause = error.__cause__ or error
    name = type_text(rdtype)
    if isinstance(error, _FieldError):
        return str(error)
    if tokens[:1] == [GENERIC]:
        return _NOT_THE_DATA.format(name)
    if not word and cause is error:
        return MISSING
    if word.isdigit() and rdtype not in (A, AAAA):
        return "is out of range"
    for kind, reason in _REASONS.items():
        if isinstance(cause, kind):
            return reason
    if rdtype in (A, AAAA):
        return "bad IPv4 address" if rdtype == A else "bad IPv6 address"
    if isinstance(cause, binascii.Error):
        return "bad base64 text" if rdtype in _BASE64 else "bad hexadecimal text"
    return f"bad data of {name}"


_REASONS: dict[type[BaseException], str] = {
    dns.name.EmptyLabel: "empty label",
    dns.name.LabelTooLong: "label too long",
    dns.name.NameTooLong: "name too long",
    dns.ttl.BadTTL: "is not a time",
    dns.rdatatype.UnknownRdatatype: "unknown RR type",
}


def _octets(tokens: Sequence[str]) -> bytes | None:
    """Return the octets of generic data (RFC 3597 5); None for another form."""
    if tokens[:1] != [GENERIC]:
        return None
    return _known(_PRIVATE, tokens, dns.name.root)


def _checked(rdtype: int, octets: bytes, end: int) -> bytes:
    """Return generic data. Raises ZoneError if it does not end where its fields do."""
    if end != len(octets):
        raise ZoneError(_NOT_THE_DATA.format(type_text(rdtype)))
    return octets


def _name_end(octets: bytes, at: int) -> int:
    """Return the end of an uncompressed name; -1 if the octets are not a name."""
    try:
        labels, end = read_name(octets, at)
    except ValueError:
        return -1
    return end if to_wire(labels) == octets[at:end] else -1


def _next(rdtype: int, tokens: Sequence[str], origin: dns.name.Name) -> bytes:
    """Read NXT, the next name and the types (RFC 2535 5.2): a bitmap of the types below 128, type 0 first."""
    if (octets := _octets(tokens)) is not None:
        end = _name_end(octets, 0)
        types = octets[end:]
        is_bitmap = not types or (len(types) <= _NXT_BYTES and types[-1] and not types[0] & 0x80)
        return _checked(rdtype, octets, len(octets) if end > 0 and is_bitmap else -1)
    if not tokens:
        raise ZoneError(MISSING)
    bits = bytearray(_NXT_BYTES)
    for token in tokens[1:]:
        number = type_number(token)
        if not 0 < number < len(bits) * 8:
            raise bad_field(token, "is out of range")
        bits[number >> 3] |= 0x80 >> (number & 7)
    return _known(NS, tokens[:1], origin) + bytes(bits).rstrip(b"\0")


def _prefixed(rdtype: int, tokens: Sequence[str], origin: dns.name.Name) -> bytes:
    """Read A6: the prefix length, the rest of an address, and the prefix's name (RFC 2874 3.1)."""
    if (octets := _octets(tokens)) is not None:
        bits = octets[0] if octets else 129
        end = 1 + (128 - bits + 7) // 8
        is_suffix = bits <= 128 and len(octets) >= end and (bits == 128 or octets[1] <= 0xFF >> bits % 8)
        return _checked(rdtype, octets, -1 if not is_suffix else _name_end(octets, end) if bits else end)
    size, *rest = tokens or [""]
    if not (size.isascii() and size.isdigit() and len(size) <= 3 and int(size) <= 128):
        raise bad_field(size, "is out of range" if size else MISSING)
    bits = int(size)
    wanted = (bits < 128) + (bits > 0)
    if len(rest) < wanted:
        raise ZoneError(MISSING)
    if len(rest) > wanted:
        raise bad_field(rest[wanted], "too many fields for this record type")
    suffix = b""
    if bits < 128:
        try:
            address = int(ipaddress.IPv6Address(rest[0]))
        except ValueError:
            raise bad_field(rest[0], "bad IPv6 address") from None
        suffix = (address & ((1 << 128 - bits) - 1)).to_bytes((128 - bits + 7) // 8, "big")
    return bytes((bits,)) + suffix + (_known(NS, rest[-1:], origin) if bits else b"")


def _service(rdtype: int, tokens: Sequence[str], origin: dns.name.Name) -> bytes:
    """Read SVCB and HTTPS. Parameters in AliasMode, priority 0, are kept (RFC 9460 2.4.2), which dnspython refuses."""
    octets = _octets(tokens)
    if octets is not None and octets[:2] == b"\0\0":
        in_service_mode = [GENERIC, str(len(octets)), f"0001{octets[2:].hex()}"]
    elif octets is None and tokens[:1] == ["0"]:
        in_service_mode = ["1", *tokens[1:]]
    else:
        return _known(rdtype, tokens, origin)
    return b"\0\0" + _known(rdtype, in_service_mode, origin)[2:]


def _association(rdtype: int, tokens: Sequence[str], origin: dns.name.Name) -> bytes:
    """Read TLSA and SMIMEA. BIND, NSD and Knot load data of any length, dnspython only the matching type's length."""
    if (octets := _octets(tokens)) is not None:
        return octets
    if tokens[2:3] not in (["1"], ["2"]):
        return _known(rdtype, tokens, origin)
    wire = _known(rdtype, [*tokens[:2], "0", *tokens[3:]], origin)
    return wire[:2] + bytes((int(tokens[2]),)) + wire[3:]


def _groups(rdtype: int, tokens: Sequence[str], origin: dns.name.Name) -> bytes:
    """Read NID and L64 (RFC 6742 2.1 and 2.3): BIND writes groups without leading zeros, which dnspython wants."""
    wide = [_GROUP.sub(lambda group: group[0].rjust(4, "0"), token) if ":" in token else token for token in tokens]
    return _known(rdtype, wide, origin)


_READERS: dict[int, Callable[[int, Sequence[str], dns.name.Name], bytes]] = {
    30: _next,
    38: _prefixed,
    52: _association,  # TLSA
    53: _association,  # SMIMEA
    104: _groups,  # NID
    106: _groups,  # L64
    SVCB: _service,
    HTTPS: _service,
}


# ---- plain rdata: the forms that maptr writes, for types that may be many in a zone


def _plain_name(text: str, origin: Labels) -> bytes:
    if _TOKENIZED.search(text) or text.endswith("\\."):
        raise ValueError("a group, a comment, @, or an escaped final dot")
    labels = parse(text)
    return to_wire(labels if text.endswith(".") else check((*labels, *origin)))


@lru_cache(maxsize=1024)  # most signatures of a zone have the same signer
def _plain_absolute(text: str) -> bytes:
    if not text.endswith("."):
        raise ValueError("a relative name")
    return _plain_name(text, ())


def _plain_text(text: str, _: Labels) -> bytes:
    if not _TEXT_FIELDS.fullmatch(text):
        raise ValueError("not in quotes")
    return b"".join(map(_plain_string, re.findall(_QUOTED, text)))


def _plain_naptr(text: str, _: Labels) -> bytes:
    fields, replacement = text.rsplit(None, 1)
    if ":" in replacement:
        raise ValueError("a port that is not escaped, which check.py finds")
    return _naptr_fields(fields) + _plain_absolute(replacement)


@lru_cache(maxsize=1024)
def _naptr_fields(text: str) -> bytes:
    match = _NAPTR_FIELDS.fullmatch(text)
    if match is None:
        raise ValueError("not six fields, three of them quoted")
    order, preference, *strings = match.groups()
    return struct.pack("!HH", int(order), int(preference)) + b"".join(map(_plain_string, strings))


def _plain_soa(text: str, origin: Labels) -> bytes:
    primary, mailbox, *numbers = text.split()
    return _plain_name(primary, origin) + _plain_name(mailbox, origin) + struct.pack("!5I", *map(_number, numbers))


def _plain_numbers_name(count: int, text: str, origin: Labels) -> bytes:
    *numbers, name = text.split()
    return struct.pack(f"!{count}H", *map(_number, numbers)) + _plain_name(name, origin)


def _plain_ds(text: str, _: Labels) -> bytes:
    tag, algorithm, kind, *digest = text.split()
    octets = bytes.fromhex("".join(digest))
    if len(octets) != _DS_SIZES[int(kind)] or int(algorithm) == 0:
        raise ValueError("another size of digest")
    return struct.pack("!HBB", _number(tag), _number(algorithm), _number(kind)) + octets


def _plain_rrsig(text: str, _: Labels) -> bytes:
    covered, *numbers, expiration, inception, tag, signer, signature = text.split(None, 8)
    times = _time(expiration), _time(inception)
    head = RRSIG_HEAD.pack(_TYPES[covered], *map(_number, numbers), *times, _number(tag))
    return head + _plain_absolute(signer) + binascii.a2b_base64("".join(signature.split()), strict_mode=True)


def _plain_nsec(text: str, _: Labels) -> bytes:
    following, types = text.split(None, 1)
    return _plain_absolute(following) + _bitmap(types)


def _plain_string(text: str) -> bytes:
    """Return the wire format of a quoted character string (RFC 1035 3.3)."""
    octets = _ESCAPED_BYTE.sub(_unescaped, text.encode()) if "\\" in text else text.encode()
    if len(octets) > MAX_STRING:
        raise ValueError("a long string")
    return bytes((len(octets),)) + octets


def _unescaped(match: re.Match[bytes]) -> bytes:
    return match[1] if len(match[1]) == 1 else bytes((int(match[1]),))  # ValueError above 255


def _number(text: str) -> int:
    if not text.isdigit():
        raise ValueError("not a number")
    return int(text)


@lru_cache(maxsize=64)  # most signatures of a zone have the same times
def _time(text: str) -> int:
    if len(text) != len("YYYYMMDDHHMMSS") or not text.isdigit():
        raise ValueError("another form of time")
    return int(datetime.datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=datetime.UTC).timestamp())


@lru_cache(maxsize=1024)  # most names have the same types
def _bitmap(text: str) -> bytes:
    return bitmap([_TYPES[rdtype] for rdtype in text.split()])


_DS_SIZES = {1: 20, 2: 32, 4: 48}
_COVERED = "A NS CNAME SOA MX TXT AAAA SRV NAPTR DNAME DS RRSIG NSEC DNSKEY CDS CDNSKEY ZONEMD"
_TYPES = {name: int(dns.rdatatype.RdataType[name]) for name in _COVERED.split()}
_PLAIN: dict[str, tuple[int, Callable[[str, Labels], bytes]]] = {
    "A": (A, lambda text, _: socket.inet_pton(socket.AF_INET, text)),
    "NS": (NS, _plain_name),
    "CNAME": (CNAME, _plain_name),
    "TXT": (TXT, _plain_text),
    "AAAA": (AAAA, lambda text, _: socket.inet_pton(socket.AF_INET6, text)),
    "NAPTR": (NAPTR, _plain_naptr),
    "SOA": (6, _plain_soa),
    "PTR": (12, _plain_name),
    "MX": (15, partial(_plain_numbers_name, 1)),
    "SRV": (33, partial(_plain_numbers_name, 3)),
    "DS": (DS, _plain_ds),
    "RRSIG": (RRSIG, _plain_rrsig),
    "NSEC": (NSEC, _plain_nsec),
}
PLAIN = {name.encode(): found for name, found in _PLAIN.items()}
"""Types, each with its reader, from text and an origin to wire format. The readers raise ValueError, KeyError, OSError
and struct.error for another form, which ``read_rdata`` reads or refuses."""
