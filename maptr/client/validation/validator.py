"""Validator: trust anchors and the keys found from them, for ``discover(trust_anchors=...)``.

Reads the file of anchors and the clock. The rest of this package, and the package cryptography, are imported only when
a validator is made.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import dns.name

from maptr.client.exchange import Asked, Attempt, Exchange
from maptr.client.validation.chain import Heard, Trust
from maptr.client.validation.inquiry import Inquiry
from maptr.client.validation.message import parse
from maptr.discovery import Outcome
from maptr.errors import ConfigError, MissingExtra
from maptr.protocol.names import Labels
from maptr.protocol.numbers import NAPTR
from maptr.walk import Answer

if TYPE_CHECKING:
    import dns.rdata

    from maptr.client.validation.chain import Trust
    from maptr.client.validation.inquiry import Inquiry

# By dns.name.Name or str: keys of a Mapping are invariant, and a dict[str, ...] would be none of both.
Anchors: TypeAlias = "Mapping[Any, Iterable[dns.rdata.Rdata]]"
TrustAnchors: TypeAlias = "Validator | Anchors | str | os.PathLike[str]"


class Validator:
    """Validates answers by DNSSEC from trust anchors: of the root, or of any zone below which you trust nobody else.

    ``anchors``: a file with DS or DNSKEY records (as Unbound and ``maptr zone keys ds`` write them) or with BIND's
    ``trust-anchors``; or DS or DNSKEY rdatas by name, as dnspython's keyrings. Keep it: the keys that it
    validated serve the next discovery. Many threads may share one. ``clock`` is Unix time.

    Raises ConfigError for anchors that cannot be read or used, or where the package cryptography is missing or too old.

    >>> validator = Validator({"ark.arpa.": [key]})
    >>> discover("ark:12345/x6np1wh8k", nameservers=[server], trust_anchors=validator).security
    'secure'
    """

    def __init__(self, anchors: Anchors | str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        import dns.dnssecalgs

        if not dns.dnssecalgs.algorithms:  # without cryptography, or one too old for this dnspython
            newer = "a newer" if find_spec("cryptography") else "the"
            raise MissingExtra(f"validation needs {newer} package cryptography: pip install 'maptr[dnssec]'")
        from maptr.client.validation import anchors as reading
        from maptr.client.validation.chain import Trust

        if isinstance(anchors, Mapping):
            found = reading.anchors(anchors)
        else:
            try:
                found = reading.read(Path(anchors).read_text("utf-8"), os.fspath(anchors))
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or error
                raise ConfigError(f"{os.fspath(anchors)}: {reason}", key="trust_anchors") from None
        self.trust: Trust = Trust(found, clock)

    def __repr__(self) -> str:
        return f"<Validator from {', '.join(map(str, self.trust.anchors))}>"

    @classmethod
    def of(cls, given: TrustAnchors) -> Validator:
        """The same validator, or one with these anchors."""
        return given if isinstance(given, Validator) else cls(given)

    def has_keys(self, name: Labels) -> bool:
        """Whether what begins at a name is known, so that questions below it need no keys from above."""
        return self.trust.recall(dns.name.Name((*name, b""))) is not None

    def exchange(
        self,
        name: Labels,
        start: Callable[[Labels, int], Exchange],
        clock: Callable[[], float] = time.monotonic,
        rdtype: int = NAPTR,
    ) -> Asked:
        """The question of a name, for a driver of ``asking``; ``start`` makes that of a name and type."""

        return ValidatedExchange(name, self.trust, start, clock, rdtype)

    def inquire(self, name: Labels, rdtype: int = NAPTR) -> Inquiry:
        """The same, for who asks in another way."""
        from maptr.client.validation.inquiry import Inquiry

        return Inquiry(self.trust, name, rdtype)


class ValidatedExchange:
    """One question under way; ``answer`` is None until it is settled. ``start`` makes the Exchange of a name and
    type, with ``dnssec``; ``clock`` tells how long each took, in seconds."""

    def __init__(
        self,
        name: Labels,
        trust: Trust,
        start: Callable[[Labels, int], Exchange],
        clock: Callable[[], float],
        rdtype: int = NAPTR,
    ) -> None:
        self.answer: Answer | None = None
        self._inquiry = Inquiry(trust, name, rdtype)
        self._start = start
        self._clock = clock
        self._current = self._begin()

    def _begin(self) -> Exchange:
        need = self._inquiry.need
        self._begun = self._clock()
        return self._start(need.name.labels[:-1], int(need.rdtype))

    def next(self) -> Attempt | None:
        """The message to send now, None where the question is settled."""
        while self.answer is None:
            attempt = self._current.next()
            if attempt is not None:
                return attempt
            self._inquiry.tell(_heard(self._current, self._clock() - self._begun))
            self.answer = self._inquiry.answer
            if self.answer is None:
                self._current = self._begin()
        return None

    def hear(self, attempt: Attempt, packet: bytes) -> bool:
        """What came back; False where it is no reply to this attempt and the driver is to go on waiting."""
        return self._current.hear(attempt, packet)

    def silent(self, attempt: Attempt) -> None:
        self._current.silent(attempt)

    def unreachable(self, attempt: Attempt, why: object) -> None:
        self._current.unreachable(attempt, why)

    def expire(self) -> None:
        """Settle it without an answer, because the walk's time is over."""
        self.answer = self.unanswered(None)

    def unanswered(self, attempt: Attempt | None) -> Answer:
        """What it comes to for a walk whose time is over now, while ``attempt`` waits for its reply."""
        return Answer(Outcome.TIMEOUT, note=self._current.unanswered(attempt).note)


def _heard(exchange: Exchange, elapsed: float) -> Heard:
    """What an Exchange that is settled has heard."""
    answer = exchange.answer
    assert answer is not None  # noqa: S101 - next() gives None only then
    if not exchange.packet:
        return Heard(answer.outcome, None, answer.note, elapsed=elapsed)
    try:
        message = parse(exchange.packet)
    except ValueError as error:
        return Heard(Outcome.MALFORMED, None, f"the reply cannot be read: {error}", answer.server, elapsed)
    return Heard(answer.outcome, message, "", answer.server, elapsed)
