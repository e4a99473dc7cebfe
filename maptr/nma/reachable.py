"""Choosers that connect: the first candidate that answers, or the mapping authority that the ARK was received with.

    find = Reachable()  # use it for many ARKs: it remembers which servers answer
    discover("ark:12345/x6np1wh8k", chooser=find).url()

Candidates are tried in their order, those of higher orders too, and an ``h`` candidate by https, then by http.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from maptr import url
from maptr.choose import Chooser, at_random, first
from maptr.discovery import Candidate, Discovery
from maptr.errors import NmaError
from maptr.naptr.regexp import Substitution
from maptr.registry.liveness import Suspects, place_of
from maptr.web import connect

SECONDS = 2.0  # for one probe
ALL_SECONDS = 6.0  # for one choice
REMEMBER = 300.0  # seconds to remember a success
REMEMBER_FAILURE = 60.0  # seconds to remember a failure; shorter, because it may be the network's (RFC 2308 7.2)
MAX_REMEMBERED = 4096  # places; the oldest is forgotten first

ProbeFunction = Callable[[url.Url, float], None]
"""Contacts a server within a number of seconds; raises NmaError if it does not answer."""


class Reachable:
    """A chooser that takes the first candidate that answers, or the best candidate if none does. It is thread-safe.

    ``schemes`` are tried in turn for a candidate without a scheme. ``probe`` is ``can_connect`` by default; ``info``
    is another one. ``suspects`` tells which servers are likely down: their candidates are tried after the others.
    """

    waits: ClassVar[bool] = True  # ``discover_async`` calls it in a thread

    def __init__(
        self,
        *,
        schemes: tuple[str, ...] = ("https", "http"),
        seconds: float = SECONDS,
        allow_private: bool = False,
        probe: ProbeFunction | None = None,
        suspects: Suspects | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._schemes = schemes
        self._seconds = seconds
        self._probe = probe or can_connect(allow_private=allow_private)
        self._suspects = suspects
        self._clock = clock
        self._known: OrderedDict[str, tuple[bool, float]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, discovery: Discovery) -> Candidate:
        return self.first(self._in_turn(discovery), discovery) or discovery[0]

    def first(self, candidates: Iterable[Candidate], discovery: Discovery) -> Candidate | None:
        """The first that answers, with the scheme that it answers to."""
        deadline = self._clock() + ALL_SECONDS
        for candidate in candidates:
            fixed = candidate.target or candidate.scheme or candidate.port == 80
            for scheme in ("",) if fixed else self._schemes:
                tried = candidate._replace(scheme=scheme or candidate.scheme)
                where = url.parse(tried.url(discovery.ark, scheme=discovery.scheme))
                if self._answers(where, deadline):
                    return tried
        return None

    def _in_turn(self, discovery: Discovery) -> list[Candidate]:
        """The candidates in their order, with suspects last."""
        suspects = self._suspects
        if suspects is None:
            return list(discovery)
        return sorted(discovery, key=lambda one: suspects(url.parse(one.url(discovery.ark, scheme=discovery.scheme))))

    def failed(self, candidate: Candidate, discovery: Discovery) -> None:
        """Report that a candidate did not answer the caller: it is skipped for a while."""
        where = url.parse(candidate.url(discovery.ark, scheme=discovery.scheme))
        self._remember(where, False)

    def _answers(self, where: url.Url, deadline: float) -> bool:
        now = self._clock()
        with self._lock:
            known, until = self._known.get(place_of(where), (False, 0.0))
        if until > now:
            return known
        if now >= deadline:
            return False
        try:
            self._probe(where, min(self._seconds, deadline - now))
        except NmaError:
            self._remember(where, False)
            return False
        self._remember(where, True)
        return True

    def _remember(self, where: url.Url, answered: bool) -> None:
        until = self._clock() + (REMEMBER if answered else REMEMBER_FAILURE)
        with self._lock:
            self._known[place_of(where)] = answered, until
            self._known.move_to_end(place_of(where))
            while len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)


class Own(Reachable):
    """A chooser that takes the mapping authority that the ARK was received with, if it answers (draft section 3.4).
    Otherwise it takes the best candidate.

    ``https://example.org/ark:12345/x1`` was received with ``https://example.org/``. If a candidate has that host, it is
    taken. If none has, a new candidate with the ``source`` ``ark`` is made, which neither DNS nor a table confirms;
    ``found_only`` prevents this. ``options`` are those of Reachable.
    """

    def __init__(self, *, found_only: bool = False, allow_private: bool = False, **options: Any) -> None:
        super().__init__(allow_private=allow_private, **options)
        self._found_only = found_only
        self._allow_private = allow_private

    def __call__(self, discovery: Discovery) -> Candidate:
        received = _received(discovery, allow_private=self._allow_private)
        if received is None:
            return discovery[0]
        place = received.host.lower(), received.port
        found = [one for one in discovery if (one.host.lower(), one.port) == place]
        others = [] if found or self._found_only else [received]
        return self.first(found or others, discovery) or discovery[0]


def named(name: str, *, allow_private: bool = False, require: str | None = None) -> Chooser:
    """The chooser with a name in CHOOSERS. It connects to public hosts only, unless ``allow_private``.

    With ``require`` (see ``raise_for_security``), only candidates of the discovery are chosen.
    """
    if name == "random":
        return at_random(random.Random())
    if name == "reachable":
        return Reachable(allow_private=allow_private)
    if name == "own":
        return Own(allow_private=allow_private, found_only=require is not None)
    return first


def _received(discovery: Discovery, *, allow_private: bool) -> Candidate | None:
    """The mapping authority that the ARK was received with, ranked as the best candidate, or None."""
    ark = discovery.ark
    scheme, mark, _ = ark.nma.partition("://")
    base = ark.nma if mark else f"https://{ark.nma}"
    if not ark.nma or url.refusal(base, allow_private=allow_private):
        return None
    where = url.parse(base)
    if "?" in where.rest or "#" in where.rest or not (mark or "." in where.host.text):
        return None
    made = discovery[0]._replace(host=where.host.in_url, port=where.port, owner="", source="ark", scheme="")
    if where.rest == "/":
        return made._replace(scheme=scheme.lower() if mark else "", target="", made_for="", substitution=None)
    whole = Substitution.parse(rb"!^(.*)$!\1!")
    return made._replace(
        target=base + ark.resolution,
        made_for=ark.resolution,
        substitution=whole._replace(replacement=(base.encode(), 1)),
    )


def can_connect(*, allow_private: bool = False) -> ProbeFunction:
    """A probe that succeeds if TCP, and TLS for https, can be set up."""

    def probe(where: url.Url, seconds: float) -> None:
        with connect.connection(where, seconds=seconds, allow_private=allow_private):
            pass

    return probe


def info(*, allow_private: bool = False) -> ProbeFunction:
    """A probe that succeeds if ``?info`` does not end in a server error (5xx)."""

    def probe(where: url.Url, seconds: float) -> None:
        port = f":{where.port}" if where.port is not None else ""
        target = f"{where.scheme}://{where.host.in_url}{port}{where.rest.partition('?')[0]}?info"
        page = connect.get(target, seconds=seconds, allow_private=allow_private)
        if page.status >= 500:
            raise NmaError(f"{where.host.text}: HTTP status {page.status}")

    return probe
