"""Validator: trust anchors and the keys found from them, for ``Client(trust_anchors=...)``.

Reads files of anchors and the clock. The other modules here have no I/O.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import dns.dnssecalgs
import dns.exception
import dns.name
import dns.rdata
import dns.rdatatype
import dns.zonefile
from dns.rdatatype import DNSKEY, DS

from maptr.discovery import Outcome
from maptr.errors import ConfigError, MissingExtra
from maptr.files import read_whole
from maptr.protocol.names import Labels
from maptr.protocol.numbers import NAPTR
from maptr.resolver.exchange import Attempt, Exchange
from maptr.resolver.validation.answer import AnswerValidator
from maptr.resolver.validation.chain import Resolved, Trust
from maptr.resolver.validation.signed import Rdata, is_usable, parse
from maptr.walk import Answer
from maptr.zone.masterfile import AS_TEXT

# By dns.name.Name or str: the keys of a Mapping are invariant, so that a dict[str, ...] would match neither.
Anchors: TypeAlias = Mapping[Any, Iterable[Rdata]]
MakeExchange = Callable[[Labels, int], Exchange]


class Validator:
    """Validates answers by DNSSEC from trust anchors: of the root, or of any other zone.

    ``anchors``: a file with DS or DNSKEY records, as Unbound and ``maptr zone keys ds`` write them; or DS or DNSKEY
    rdatas by name, like dnspython's keyrings. It validates as RFC 4035 section 5 and RFC 5155 section 8 say, and keeps
    the keys that it validated for the next discovery. Threads may share it.

    Raises ConfigError for anchors that cannot be read or used, or if the package cryptography is missing or too old.

    >>> validator = Validator({"ark.arpa.": [key]})
    >>> Client([server], trust_anchors=validator).discover("ark:12345/x6np1wh8k").security
    'secure'
    """

    def __init__(self, anchors: Anchors | str | os.PathLike[str]) -> None:
        if not dns.dnssecalgs.algorithms:  # without cryptography, or with one too old for this dnspython
            newer = "a newer" if find_spec("cryptography") else "the"
            raise MissingExtra(f"validation needs {newer} package cryptography: pip install 'maptr[dnssec]'")
        if isinstance(anchors, Mapping):
            found = usable_anchors(anchors)
        else:
            try:
                found = read_anchors(read_whole(Path(anchors)).decode(*AS_TEXT), os.fspath(anchors))
            except OSError as error:
                raise ConfigError(f"{os.fspath(anchors)}: {error.strerror}", key="trust_anchors") from None
        self.trust = Trust(found, time.time)

    def __repr__(self) -> str:
        return f"<Validator from {', '.join(map(str, self.trust.anchors))}>"

    def exchange(self, name: Labels, rdtype: int, make: MakeExchange) -> ValidatedExchange:
        """Return a validated question; ``make`` makes the exchange for each lookup, one that asks for signatures."""
        return ValidatedExchange(self.start(name, rdtype), make)

    def start(self, name: Labels, rdtype: int = NAPTR) -> AnswerValidator:
        """Return a validated question, for any other driver."""
        return AnswerValidator(self.trust, name, rdtype)


class ValidatedExchange:
    """A validated question to DNS servers, which a driver uses like an ``Exchange``.

    The question comes first, then the lookups of its chain of trust, one after the other, each an Exchange.
    """

    answer: Answer | None = None

    def __init__(self, validation: AnswerValidator, make: MakeExchange) -> None:
        self._validation = validation
        self._make = make
        self._current = self._begin()

    def _begin(self) -> Exchange:
        lookup = self._validation.lookup
        self._begun = time.monotonic()
        return self._make(lookup.name.labels[:-1], int(lookup.rdtype))

    def next(self) -> Attempt | None:
        """Return the query to send now; None if the question is settled."""
        while self.answer is None:
            attempt = self._current.next()
            if attempt is not None:
                return attempt
            self._validation.tell(_result(self._current, time.monotonic() - self._begun))
            self.answer = self._validation.answer
            if self.answer is None:
                self._current = self._begin()
        return None

    def unanswered(self) -> Answer:
        """Return the answer for a walk whose time is over."""
        return Answer(Outcome.TIMEOUT, note=self._current.unanswered().note)


TrustAnchors: TypeAlias = Validator | Anchors | str | os.PathLike[str]


def _result(exchange: Exchange, elapsed: float) -> Resolved:
    """Return the result of an Exchange that is settled."""
    answer = exchange.answer
    assert answer is not None  # noqa: S101 - next() returns None only then
    if not exchange.packet:
        return Resolved(answer.outcome, None, answer.note, elapsed=elapsed, extended=answer.extended)
    try:
        message = parse(exchange.packet)
    except ValueError as error:
        return Resolved(Outcome.MALFORMED, None, f"the response cannot be read: {error}", answer.server, elapsed)
    return Resolved(answer.outcome, message, "", answer.server, elapsed)


# ---- trust anchors


def usable_anchors(given: Anchors, filename: str = "") -> Mapping[dns.name.Name, tuple[Rdata, ...]]:
    """Return the anchors with known algorithms, by zone. Raises ConfigError if there are none, or none of a zone."""
    found: dict[dns.name.Name, tuple[Rdata, ...]] = {}
    key = "" if filename else "trust_anchors"
    for name, rdatas in given.items():
        try:
            zone = dns.name.from_text(name) if isinstance(name, str) else name
        except dns.exception.DNSException as error:
            raise ConfigError(f"{name} is not a valid domain name: {error}", filename=filename, key=key) from None
        if wrong := [rdata for rdata in rdatas if not isinstance(rdata, dns.rdata.Rdata)]:
            raise TypeError(f"trust_anchors: {wrong[0]!r} is not an rdata of dnspython")
        known = tuple(rdata for rdata in rdatas if is_usable(rdata))
        if not known:
            raise ConfigError(f"no trust anchor of {zone} has a known algorithm", filename=filename, key=key)
        found[zone] = (*found.get(zone, ()), *known)
    if not found:
        raise ConfigError("no trust anchor", filename=filename, key=key)
    return found


def read_anchors(text: str, filename: str = "") -> Mapping[dns.name.Name, tuple[Rdata, ...]]:
    """Return the anchors in a text of DS and DNSKEY records, in the format of a zone file. Raises ConfigError."""
    given: dict[dns.name.Name, list[Rdata]] = {}
    try:
        for rrset in dns.zonefile.read_rrsets(text, rdclass=None, default_ttl=0):
            if rrset.rdtype not in (DS, DNSKEY):
                raise ValueError(f"{dns.rdatatype.to_text(rrset.rdtype)} is neither DS nor DNSKEY")
            given.setdefault(rrset.name, []).extend(rrset)
    except (dns.exception.DNSException, ValueError) as error:
        raise ConfigError(f"trust anchors cannot be read: {error}", filename=filename) from None
    return usable_anchors(given, filename)
