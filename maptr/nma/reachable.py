"""Choosers that connect to mapping authorities.

    find = Reachable()  # use it for many ARKs: it remembers which servers answer
    discover("ark:12345/x6np1wh8k", chooser=find).url()

They try the candidates in order, including those of higher orders, and an ``h`` candidate over https, then over http.
Servers at addresses that are not public are refused.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import ClassVar

from maptr import entry_points, url
from maptr.choose import CHOOSERS, Chooser, at_random, first
from maptr.discovery import Candidate, Discovery
from maptr.errors import ConfigError, NmaError
from maptr.naptr.regexp import Prefix, Substitution
from maptr.resolver.call import checked
from maptr.web.http import ProbeFunction, try_connection

SECONDS = 2.0  # for one probe of a chooser
ALL_SECONDS = 6.0  # for one choice
REMEMBER = 300.0  # seconds to remember a success
REMEMBER_FAILURE = 60.0  # seconds to remember a failure; shorter, because the network may be the cause (RFC 2308 7.2)
MAX_REMEMBERED = 4096  # places; the oldest is forgotten first


class Reachable:
    """A chooser that takes the first candidate that answers, or the best candidate if none does. It is thread-safe.

    Use one for many ARKs: it remembers which servers answer. ``schemes`` are tried in turn for a candidate without a
    scheme. ``lifetime``: seconds for one server; a choice takes at most 6. ``allow_private`` allows servers at
    addresses that are not public. ``probe`` contacts a server and raises NmaError if it does not answer; by default it
    sets up TCP, and TLS for https. ``suspects`` tells which servers are likely down: their candidates are tried last.
    Raises ConfigError for other schemes, or a negative number of seconds.

    >>> chooser = Reachable(lifetime=0.1)
    >>> discover("ark:12345/x1", nameservers=[server], chooser=chooser)[0].host
    'ark.example.org'
    """

    waits: ClassVar[bool] = True  # ``discover_async`` calls it in a thread

    def __init__(
        self,
        *,
        schemes: tuple[str, ...] = ("https", "http"),
        lifetime: float = SECONDS,
        allow_private: bool = False,
        probe: ProbeFunction | None = None,
        suspects: Callable[[url.Url], bool] | None = None,
    ) -> None:
        if isinstance(schemes, str) or not set(schemes) <= {"https", "http"}:
            raise ConfigError(f"{schemes!r} are not schemes among https and http", key="schemes")
        self._schemes, self._lifetime = schemes, checked(lifetime, "lifetime")
        self._probe = probe or partial(try_connection, allow_private=allow_private)
        self._suspects = suspects or (lambda where: False)
        self._clock = time.monotonic
        self._known: dict[str, tuple[bool, float]] = {}  # the oldest first
        self._lock = threading.Lock()

    def __call__(self, discovery: Discovery) -> Candidate:
        in_turn = sorted(discovery, key=lambda one: self._suspects(_url_of(one, discovery)))
        return self.first(in_turn, discovery) or discovery[0]

    def first(self, candidates: Iterable[Candidate], discovery: Discovery) -> Candidate | None:
        """Return the first of these candidates of the discovery that answers, with the scheme that it answers to."""
        deadline = self._clock() + ALL_SECONDS
        for tried in chain.from_iterable(with_schemes(candidate, self._schemes) for candidate in candidates):
            if self._answers(_url_of(tried, discovery), deadline):
                return tried
        return None

    def failed(self, candidate: Candidate, discovery: Discovery) -> None:
        """Report that a candidate did not answer the caller: it is skipped for a while."""
        self._remember(_url_of(candidate, discovery), False)

    def _answers(self, where: url.Url, deadline: float) -> bool:
        now = self._clock()
        with self._lock:
            known, until = self._known.get(where.server, (False, 0.0))
        if until > now:
            return known
        if now >= deadline:
            return False
        with suppress(NmaError):
            self._probe(where, min(self._lifetime, deadline - now))
            return self._remember(where, True)
        return self._remember(where, False)

    def _remember(self, where: url.Url, answered: bool) -> bool:
        until = self._clock() + (REMEMBER if answered else REMEMBER_FAILURE)
        with self._lock:
            self._known.pop(where.server, None)
            self._known[where.server] = answered, until
            if len(self._known) > MAX_REMEMBERED:
                del self._known[next(iter(self._known))]
        return answered


class Own(Reachable):
    """A chooser that takes the mapping authority that the ARK was received with, if it answers (draft section 3.4).
    Otherwise it takes the best candidate.

    ``https://example.org/ark:12345/x1`` was received with ``https://example.org/``. If a candidate has that host, it is
    taken. If none has, a new candidate with the ``source`` ``ark`` is made, which neither DNS nor a table confirms;
    ``found_only`` prevents this. Other options and errors are Reachable's.

    >>> received = "https://ark.example.org/ark:12345/x1"
    >>> discover(received, nameservers=[server], chooser=Own(found_only=True, lifetime=0.1))[0].host
    'ark.example.org'
    """

    def __init__(
        self,
        *,
        found_only: bool = False,
        schemes: tuple[str, ...] = ("https", "http"),
        lifetime: float = SECONDS,
        allow_private: bool = False,
        probe: ProbeFunction | None = None,
    ) -> None:
        super().__init__(schemes=schemes, lifetime=lifetime, allow_private=allow_private, probe=probe)
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


def with_schemes(candidate: Candidate, schemes: Iterable[str]) -> list[Candidate]:
    """Return a candidate with each of the schemes, or unchanged if its record fixes the scheme, as port 80 does."""
    if candidate.target or candidate.scheme or candidate.port == 80:
        return [candidate]
    return [candidate.replace(scheme=scheme) for scheme in schemes]


def _url_of(candidate: Candidate, discovery: Discovery) -> url.Url:
    return url.parse(candidate.url(discovery.ark, scheme=discovery.scheme))


def named(
    name: str,
    *,
    allow_private: bool = False,
    require: str | None = None,
    suspects: Callable[[url.Url], bool] | None = None,
) -> Chooser:
    """Return the chooser with a name from CHOOSERS, or from an installed package. Raises ConfigError, PluginError.

    It connects to public hosts only, unless ``allow_private``. With ``require`` (see ``raise_for_security``), only
    candidates of the discovery are chosen. ``suspects``: see Reachable.
    """
    match name:
        case "random":
            return at_random(random.Random())
        case "reachable":
            return Reachable(allow_private=allow_private, suspects=suspects)
        case "own":
            return Own(allow_private=allow_private, found_only=require is not None)
        case "first":
            return first
    found: Chooser | None = entry_points.load(entry_points.CHOOSERS, name)
    if found is None:
        known = ", ".join([*CHOOSERS, *entry_points.names(entry_points.CHOOSERS)])
        raise ConfigError(f"{name!r} is not one of {known}", key="chooser")
    return found


def _received(discovery: Discovery, *, allow_private: bool) -> Candidate | None:
    """Return the mapping authority that the ARK was received with, ranked as the best candidate, or None."""
    ark = discovery.ark
    scheme, mark, _ = ark.nma.partition("://")
    base = ark.nma if mark else f"https://{ark.nma}"
    if not ark.nma or url.refusal(base, allow_private=allow_private):
        return None
    where = url.parse(base)
    if "?" in where.rest or "#" in where.rest or not (mark or "." in where.host.text):
        return None
    made = discovery[0].replace(host=where.host.in_url, port=where.port, owner="", source="ark", scheme="")
    if where.rest == "/":
        return made.replace(scheme=scheme.lower() if mark else "", target="", substitution=None)
    substitution = Substitution(Prefix(((b"", 0),)), (base.encode(), 1))
    return made.replace(target=base + ark.resolution, ark=ark, substitution=substitution)
