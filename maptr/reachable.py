"""A chooser that asks: the first candidate that answers, remembered for a while.

    find = Reachable()  # keep it: it remembers
    discover("ark:12345/x6np1wh8k", chooser=find).url()

Candidates are tried in their order, those of higher orders too; an ``h`` candidate by https, then by http.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import ClassVar

from maptr import url, visit
from maptr.candidate import Candidate
from maptr.discovery import Discovery
from maptr.errors import NmaError
from maptr.liveness import Suspects, place_of

SECONDS = 2.0  # for one probe
ALL_SECONDS = 6.0  # for one choice
REMEMBER = 300.0  # seconds that an answer counts
REMEMBER_FAILURE = 60.0  # seconds that silence counts: less, for it may be the network's (RFC 2308 7.2)
MAX_REMEMBERED = 4096  # places; the oldest is forgotten first

Probe = Callable[[url.Url, float], None]
"""Asks a server, within so many seconds; NmaError where it does not answer."""


class Reachable:
    """A chooser; one object may serve many threads. Where nothing answers it takes the best candidate.

    ``schemes`` are tried in turn for a candidate that names none. ``probe`` is by default a connection, with TLS for
    https; ``info`` is another. Candidates on servers that ``suspects`` names are tried after the others, and
    are never left out.
    """

    waits: ClassVar[bool] = True  # so that ``discover_async`` calls it in a thread

    def __init__(
        self,
        *,
        schemes: tuple[str, ...] = ("https", "http"),
        seconds: float = SECONDS,
        allow_private: bool = False,
        probe: Probe | None = None,
        suspects: Suspects | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._schemes = schemes
        self._seconds = seconds
        self._probe = probe or connect(allow_private=allow_private)
        self._suspects = suspects
        self._clock = clock
        self._known: OrderedDict[str, tuple[bool, float]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, discovery: Discovery) -> Candidate:
        deadline = self._clock() + ALL_SECONDS
        for candidate in self._in_turn(discovery):
            for scheme in ("",) if candidate.target or candidate.port == 80 else self._schemes:
                tried = candidate._replace(scheme=scheme)
                where = url.parse(tried.url(discovery.ark, scheme=discovery.scheme))
                if self._answers(where, deadline):
                    return tried
        return discovery[0]

    def _in_turn(self, discovery: Discovery) -> list[Candidate]:
        """The candidates in their order, suspects last."""
        suspects = self._suspects
        if suspects is None:
            return list(discovery)
        return sorted(discovery, key=lambda one: suspects(url.parse(one.url(discovery.ark, scheme=discovery.scheme))))

    def failed(self, candidate: Candidate, discovery: Discovery) -> None:
        """Tell that a candidate did not answer a caller of its own: it is passed over for a while."""
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


def connect(*, allow_private: bool = False) -> Probe:
    """Answers where TCP, and TLS for https, can be set up."""

    def probe(where: url.Url, seconds: float) -> None:
        with visit.connection(where, seconds=seconds, allow_private=allow_private):
            pass

    return probe


def info(*, allow_private: bool = False) -> Probe:
    """Answers where ``?info`` does not end in a server error (5xx)."""

    def probe(where: url.Url, seconds: float) -> None:
        port = f":{where.port}" if where.port is not None else ""
        target = f"{where.scheme}://{where.host.in_url}{port}{where.rest.partition('?')[0]}?info"
        page = visit.get(target, seconds=seconds, allow_private=allow_private)
        if page.status >= 500:
            raise NmaError(f"{where.host.text}: HTTP status {page.status}")

    return probe
