"""Trust anchors: the keys from which validation starts, and the formats of BIND and Unbound that contain them.

Reads text, not files. ``chain`` uses the anchors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import dns.exception
import dns.name
import dns.rdata
import dns.rdatatype
import dns.zonefile
from dns.rdatatype import DNSKEY, DS

from maptr.client.validation.signed import ALGORITHMS, Rdata, may_sign
from maptr.errors import ConfigError

Anchors = Mapping[dns.name.Name, tuple[Rdata, ...]]
Given = Mapping[Any, Iterable[Rdata]]  # by dns.name.Name or str

DIGESTS = frozenset({1, 2, 4})  # SHA-1, SHA-256, SHA-384: what RFC 9905 lets validators accept
SHA1 = 1

_BIND = re.compile(r"\b(trust-anchors|trusted-keys|managed-keys)\s*\{")
_BIND_COMMENTS = re.compile(r'("[^"]*")|//[^\n]*|#[^\n]*|/\*.*?\*/', re.DOTALL)
_BIND_ENTRY = re.compile(
    r'\s*"?([^\s"]+)"?\s+(?:(initial|static)-(key|ds)\s+)?(\d+)\s+(\d+)\s+(\d+)\s+((?:"[^"]*"\s*)+);'
)


def usable(given: Given, filename: str = "") -> Anchors:
    """Anchors by zone, from DS or DNSKEY rdatas by name, as in dnspython's keyrings.

    Raises ConfigError if there are none, or if a zone has no usable one.
    """
    found: dict[dns.name.Name, tuple[Rdata, ...]] = {}
    key = "" if filename else "trust_anchors"
    for name, rdatas in given.items():
        zone = dns.name.from_text(name) if isinstance(name, str) else name
        known = tuple(rdata for rdata in rdatas if is_usable(rdata))
        if not known:
            raise ConfigError(f"no trust anchor of {zone} has a known algorithm", filename=filename, key=key)
        found[zone] = (*found.get(zone, ()), *known)
    if not found:
        raise ConfigError("no trust anchor", filename=filename, key=key)
    return found


def is_usable(rdata: Rdata) -> bool:
    """Whether a DS or DNSKEY has algorithms that are supported (RFC 4035 5.2, RFC 6840 5.2)."""
    if rdata.rdtype == DNSKEY:
        return may_sign(rdata)
    return bool(rdata.rdtype == DS and rdata.algorithm in ALGORITHMS and rdata.digest_type in DIGESTS)


def read(text: str, filename: str = "") -> Anchors:
    """Anchors from text. Raises ConfigError.

    The text has DS and DNSKEY records as in a zone file (Unbound, dnssec-keygen, ``maptr zone keys ds``), or BIND's
    ``trust-anchors``, ``trusted-keys`` and ``managed-keys``.
    """
    given: dict[dns.name.Name | str, list[Rdata]] = {}
    try:
        for name, rdata in _read_bind(text) if _BIND.search(text) else _read_records(text):
            given.setdefault(name, []).append(rdata)
    except (dns.exception.DNSException, ValueError) as error:
        raise ConfigError(f"trust anchors cannot be read: {error}", filename=filename) from None
    return usable(given, filename)


def _read_records(text: str) -> Iterator[tuple[dns.name.Name, Rdata]]:
    for rrset in dns.zonefile.read_rrsets(text, rdclass=None, default_ttl=0):
        if rrset.rdtype not in (DS, DNSKEY):
            raise ValueError(f"{dns.rdatatype.to_text(rrset.rdtype)} is neither DS nor DNSKEY")
        for rdata in rrset:
            yield rrset.name, rdata


def _read_bind(text: str) -> Iterator[tuple[dns.name.Name, Rdata]]:
    text = _BIND_COMMENTS.sub(lambda match: match[1] or " ", text)
    for block in _BIND.finditer(text):
        at, end = block.end(), text.find("}", block.end())
        if end < 0:
            raise ValueError(f"{block[1]} is never closed")
        while text[at:end].strip():
            entry = _BIND_ENTRY.match(text, at, end)
            if entry is None:
                raise ValueError(f"not an anchor: {text[at:end].strip()[:60]!r}")
            zone, _, kind, *numbers, data = entry.groups()
            octets = "".join(data.replace('"', " ").split())
            rdtype = "DS" if kind == "ds" else "DNSKEY"
            yield dns.name.from_text(zone), dns.rdata.from_text("IN", rdtype, " ".join([*numbers, octets]))
            at = entry.end()
