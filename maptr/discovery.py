"""What a walk found and why: Discovery, its candidates and its trace, and the errors that carry one.

A Discovery is a value. ``walk`` makes it, and ``choose`` decides which candidate to take.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import dns.exception

from maptr import url
from maptr.ark import Ark
from maptr.errors import MaptrError
from maptr.naptr.automaton import Budget, BudgetSpent
from maptr.naptr.record import Kind, Naptr
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.text import printable

if TYPE_CHECKING:
    from maptr.naptr.regexp import Substitution

if TYPE_CHECKING:
    pass

# What is known of an answer's DNSSEC state (RFC 4033 5). Of several answers a discovery has the worst.
SECURITY = ("secure", "insecure", "indeterminate", "bogus")


class Outcome(enum.Enum):
    """How a question ended. For the first three DNS said; for the rest it did not, and the walk is incomplete."""

    ANSWER = "answer"
    NODATA = "no NAPTR records"
    NXDOMAIN = "no such name"
    SERVFAIL = "server failure"
    REFUSED = "refused"
    REFERRAL = "referred to other servers"
    TIMEOUT = "no answer in time"
    UNREACHABLE = "server unreachable"
    MALFORMED = "answer cannot be read"
    BOGUS = "answer fails DNSSEC validation"
    LIMIT = "a limit was reached"
    NO_ORIGIN = "the origin does not exist in this DNS"

    said: bool

    def __init__(self, text: str) -> None:
        self.said = text in ("answer", "no NAPTR records", "no such name")


class Reading(NamedTuple):
    """One record on the trace: what it was taken for, and why it counted or did not."""

    naptr: Naptr
    kind: Kind
    counted: bool
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One printable line: ``+`` where it counted, the record, and the reasons."""
        reasons = f" ({'; '.join(self.reasons)})" if self.reasons else ""
        return printable(f"{'+' if self.counted else '-'} {self.naptr}{reasons}")

    def to_dict(self) -> dict[str, Any]:
        return {
            "record": self.naptr.to_text(),
            "kind": self.kind.value,
            "counted": self.counted,
            "reasons": list(self.reasons),
        }


class Link(NamedTuple):
    """One link of a chain of trust: the records of a name and type, and what validation made of them."""

    name: str
    rdtype: str
    security: str
    note: str = ""
    server: str = ""
    elapsed: float | None = None

    def __str__(self) -> str:
        """One printable line."""
        note = f" ({self.note})" if self.note else ""
        return printable(f"{self.name} {self.rdtype}: {self.security}{_where(self)}{note}")

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.rdtype,
            "security": self.security,
            "note": self.note,
            "server": self.server,
            "elapsed": self.elapsed,
        }


class Step(NamedTuple):
    """One question on the trace, asked or not; of type SOA where it was asked whether the origin exists. ``elapsed`` is
    in seconds; it, ``ttl`` and ``server`` are not compared.

    ``security`` is that of the answer. ``links`` are those of the chain of trust that were followed for it, where
    maptr validates by itself; what is known from questions before is not asked again, so they are not compared either.
    """

    name: Labels
    depth: int
    outcome: Outcome
    readings: tuple[Reading, ...] = ()
    note: str = ""
    ttl: int | None = None
    server: str = ""
    elapsed: float | None = None
    security: str = "indeterminate"
    links: tuple[Link, ...] = ()
    rdtype: str = "NAPTR"

    @property
    def ended(self) -> str:
        """The question and how it ended, in words."""
        outcome = f"no {self.rdtype} records" if self.outcome is Outcome.NODATA else self.outcome.value
        return f"{names.to_text(self.name)} {self.rdtype}: {outcome}"

    def __str__(self) -> str:
        """One printable line: the question, how it ended, who said so, and how long that took."""
        count = f", {len(self.readings)} records" if self.readings else ""
        security = f", {self.security}" if self.security != "indeterminate" else ""
        note = f" ({self.note})" if self.note else ""
        return printable(f"{self.ended}{count}{security}{_where(self)}{note}")

    def _compared(self) -> tuple[object, ...]:
        return *self[:5], self.security, self.rdtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Step) and self._compared() == other._compared()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._compared())

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": names.to_text(self.name),
            "type": self.rdtype,
            "depth": self.depth,
            "outcome": self.outcome.name.lower(),
            "note": self.note,
            "ttl": self.ttl,
            "server": self.server,
            "elapsed": self.elapsed,
            "records": [reading.to_dict() for reading in self.readings],
            "security": self.security,
            "chain": [link.to_dict() for link in self.links],
        }


def _where(asked: Step | Link) -> str:
    """Who said it, and how long that took."""
    took = f" in {asked.elapsed * 1000:.1f} ms" if asked.elapsed is not None else ""
    return (f" from {asked.server}" if asked.server else "") + took


REGEXP_STEPS = 20_000
"""Steps of regexp matching that one walk may spend: about 10 ms, or 50 ms of the costliest, for which an event loop is
held. A rule of ours costs about five."""


class Candidate(NamedTuple):
    """One mapping authority found.

    ``host`` and ``port`` say where it is; ``target`` is the URL its rule made, without inflection or query
    string, and empty for an ``h`` record, which says no more than the host. ``order`` and ``preference`` are those
    of its own record; ``path`` holds the pairs of every record on the way, its own last. ``ttl`` is the shortest
    of all these records, in seconds; it is not compared, nor what makes URLs for other ARKs. ``status`` is the HTTP
    status that the registry wants for a redirect to it, None where that is not known, as from DNS; nor is it compared.

    >>> best = discover("ark:12345/x6np1wh8k", nameservers=[server])[0]
    >>> best.url(Ark.parse("ark:12345/x5?info"))
    'https://ark.example.org/ark:12345/x5?info'
    """

    host: str
    port: int | None
    order: int
    preference: int
    owner: str
    ttl: int = 0
    source: str = "dns"
    target: str = ""
    path: tuple[tuple[int, int], ...] = ()
    made_for: str = ""
    substitution: Substitution | None = None
    scheme: str = ""
    status: int | None = None

    def _compared(self) -> tuple[object, ...]:
        return self[:5] + self[6:10]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Candidate) and self._compared() == other._compared()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._compared())

    def __str__(self) -> str:
        """Where it is, and its rank: ``ark.example.org:8443 (order 10, preference 10)``."""
        where = self.target or (self.host if self.port is None else f"{self.host}:{self.port}")
        return f"{where} (order {self.order}, preference {self.preference})"

    def __repr__(self) -> str:
        """What is not as it mostly is, and nothing of how URLs for other ARKs are made."""
        usual = self._field_defaults
        shown = ((name, getattr(self, name)) for name in self._fields if name not in ("made_for", "substitution"))
        text = ", ".join(f"{name}={value!r}" for name, value in shown if name not in usual or value != usual[name])
        return f"Candidate({text})"

    @property
    def orders(self) -> tuple[int, ...]:
        """Orders along the path, less final noughts: candidates of equal ``orders`` are for a chooser to choose
        among, whether or not a redirect with order 0 led to some of them."""
        orders = [order for order, _ in self.path]
        while orders and orders[-1] == 0:
            orders.pop()
        return tuple(orders)

    def url(self, ark: Ark, *, scheme: str = "https") -> str:
        """The URL for an ARK: what the rule makes of it, or ``scheme://host[:port]/ark:NAAN/name`` for ``h``.

        A scheme of the candidate's own, found by asking, goes before ``scheme``, and port 80 means http.
        Inflection and query string are carried along. Raises DiscoveryError where the rule does not match the ARK,
        or makes a URL at another place of it: that is another candidate, which only a walk may judge.
        """
        if self.substitution is None:
            path = ark.in_url if ark.name else str(ark)  # a bare NAAN without a slash (draft table 1)
            return f"{url.at(self.host, self.port, self.scheme or scheme)}/{path}{ark.tail}"
        if ark.in_url == self.made_for:
            return self.target + ark.tail
        try:
            made = self.substitution.apply(ark.in_url.encode(), Budget(REGEXP_STEPS))
            text = (made or b"").decode("ascii")
            where = url.parse(text) if made is not None else None
        except (BudgetSpent, ValueError) as error:
            raise DiscoveryError(f"the rule of {self.host} at {self.owner} fails for {ark}: {error}") from None
        if where is None:
            raise DiscoveryError(f"the rule of {self.host} at {self.owner} is not for {ark}")
        if (where.host.in_url.lower(), where.port) != (self.host.lower(), self.port):
            raise DiscoveryError(f"the rule of {self.host} at {self.owner} leads elsewhere for {ark}")
        return text + ark.tail


class Found(NamedTuple):
    """A candidate, its record, and which of that record's hosts it is."""

    candidate: Candidate
    naptr: Naptr
    nth: int

    def rank(self, depth: int) -> tuple[object, ...]:
        path = self.candidate.path
        return _padded(path, depth), self.naptr.canonical(), self.nth, len(path), self.candidate.owner.lower()


def _padded(path: tuple[tuple[int, int], ...], depth: int) -> tuple[tuple[int, int], ...]:
    # A path that ends early counts as going on with noughts: the draft holds order and preference at 0,
    # and then a redirect must not decide.
    return path + ((0, 0),) * (depth - len(path))


def rank(
    found: Sequence[Found],
    ark: Ark,
    scheme: str = "https",
    unknown: Sequence[tuple[tuple[int, int], ...]] = (),
) -> tuple[Candidate, ...]:
    """Candidates by (order, preference) along their path, then rdata in canonical order; each URL once.

    URLs that differ only in the slash after ``ark:`` are one. ``unknown`` are the paths of records that are for the ARK
    but make no URL that is known: candidates of a worse rank than one of them are left out.
    """
    if len(found) < 2 and not unknown:
        return tuple([candidate for candidate, _, _ in found])
    depth = max(map(len, [*unknown, *[one.candidate.path for one in found]]))
    if unknown:
        worst = min(_padded(path, depth) for path in unknown)
        found = [one for one in found if _padded(one.candidate.path, depth) <= worst]
    ranked: dict[str, Candidate] = {}
    for one in sorted(found, key=lambda one: one.rank(depth)):
        candidate = one.candidate
        ranked.setdefault(url.same_place(candidate.url(ark, scheme=scheme)), candidate)
    return tuple(ranked.values())


CLOCK_SLACK = 60.0  # seconds; what was said later than now by more than this was said by another clock


class Discovery(Sequence[Candidate]):
    """The result of a walk: its candidates, best first, and the trace that led to them.

    ``trace`` has every question, in the order in which they were read. ``complete`` is False where something was not
    said or a limit was reached. ``ttl`` is how long the result may be kept, in seconds, and ``expiration`` the same as
    a time of the driver's clock; both are None where nothing may be kept. ``security`` is what is known of the answers'
    DNSSEC state.

    A cache adds where the answer came from (``source``: dns, memory, disk or natab), whether its time was over
    (``stale``), why it was taken (``reason``), and when the origin of the data said it (``fetched``, by the wall clock;
    None where that is not known).

    Its values are not to be changed: ``replace`` makes another. Two are equal where all is equal but times,
    ``scheme`` and ``reason``.

    >>> found = discover("ark:12345/x6np1wh8k", nameservers=[server])
    >>> [(candidate.host, candidate.order) for candidate in found]
    [('ark.example.org', 0)]
    >>> found.complete, found.security, [step.outcome.name for step in found.trace]
    (True, 'indeterminate', ['ANSWER'])
    """

    _ARGUMENTS = (
        *("ark", "candidates", "trace", "complete", "source", "security"),
        *("ttl", "expiration", "scheme", "stale", "reason", "fetched"),
    )
    __slots__ = _ARGUMENTS

    ark: Ark
    candidates: tuple[Candidate, ...]
    trace: tuple[Step, ...]
    complete: bool
    source: str
    security: str
    ttl: int | None
    expiration: float | None
    scheme: str
    stale: bool
    reason: str
    fetched: float | None

    def __init__(
        self,
        ark: Ark,
        candidates: tuple[Candidate, ...] = (),
        trace: tuple[Step, ...] = (),
        complete: bool = True,
        source: str = "dns",
        security: str = "indeterminate",
        ttl: int | None = None,
        expiration: float | None = None,
        scheme: str = "https",
        stale: bool = False,
        reason: str = "",
        fetched: float | None = None,
    ) -> None:
        # One by one: a loop takes twice the time.
        _set_ark(self, ark)
        _set_candidates(self, candidates)
        _set_trace(self, trace)
        _set_complete(self, complete)
        _set_source(self, source)
        _set_security(self, security)
        _set_ttl(self, ttl)
        _set_expiration(self, expiration)
        _set_scheme(self, scheme)
        _set_stale(self, stale)
        _set_reason(self, reason)
        _set_fetched(self, fetched)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Discovery does not change: replace({name}=...) makes another one")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a Discovery does not change")

    def replace(self, **changes: Any) -> Discovery:
        """The same with other values, by the names of the constructor."""
        return Discovery(**dict(zip(self._ARGUMENTS, _values(self), strict=True), **changes))

    def of(self, ark: Ark, expiration: float | None) -> Discovery:
        """The same for another ARK; for whoever knows that it holds for that one."""
        return Discovery(
            ark,
            self.candidates,
            self.trace,
            self.complete,
            self.source,
            self.security,
            self.ttl,
            expiration,
            self.scheme,
            self.stale,
            self.reason,
            self.fetched,
        )

    def _compared(self) -> tuple[object, ...]:
        return self.ark, self.candidates, self.complete, self.source, self.security, self.stale

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Discovery) and self._compared() == other._compared() and self.trace == other.trace

    def __hash__(self) -> int:
        return hash(self._compared())

    def __reduce__(self) -> tuple[object, ...]:
        return Discovery, tuple(getattr(self, name) for name in self._ARGUMENTS)

    def __str__(self) -> str:
        """One line: the ARK with its URL, or why there is none. ``to_text`` has all candidates."""

        return line(self)

    def __repr__(self) -> str:
        """Short, for it may hold 64 candidates and 32 steps: ``to_dict`` has everything."""

        return tag(self)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Candidate]: ...
    def __getitem__(self, index: int | slice) -> Candidate | Sequence[Candidate]:
        return self.candidates[index]

    def __len__(self) -> int:
        return len(self.candidates)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.candidates)

    @property
    def best(self) -> tuple[Candidate, ...]:
        """The candidates of the lowest order: those to choose among. The others are the fallback."""
        return tuple(c for c in self.candidates if c.orders == self.candidates[0].orders)

    def choose(self, chooser: Callable[[Discovery], Candidate] | None = None) -> Candidate:
        """One candidate: the first, or the chooser's. Raises NoMappingAuthority or DiscoveryFailed if none."""
        self.raise_for_none()
        return chooser(self) if chooser is not None else self.candidates[0]

    def url(self, chooser: Callable[[Discovery], Candidate] | None = None) -> str:
        """The URL that answers for the ARK, by the candidate ``choose`` gives; raises as it does."""
        return self.choose(chooser).url(self.ark, scheme=self.scheme)

    def urls(self) -> list[str]:
        """Every candidate's URL, best first."""
        return [candidate.url(self.ark, scheme=self.scheme) for candidate in self.candidates]

    def age(self, now: float) -> float | None:
        """Seconds since the data was said, by the same clock as ``fetched``; None where that is not known, as where it
        was said later than now: a clock was set since."""
        if self.fetched is None or self.fetched > now + CLOCK_SLACK:
            return None
        return max(0.0, now - self.fetched)

    def expiring(self, now: float, **changes: Any) -> Discovery:
        """The same, its ``expiration`` counted from ``now``, and other values changed too."""
        return self.replace(expiration=None if self.ttl is None else now + self.ttl, **changes)

    def preferring(self, chooser: Callable[[Discovery], Candidate]) -> Discovery:
        """The same, the chooser's choice first; the others keep their order."""
        chosen = chooser(self)
        return self.replace(candidates=(chosen, *(c for c in self.candidates if c != chosen)))

    def raise_for_none(self) -> None:
        """Nothing, where there is a candidate; else NoMappingAuthority if DNS said so, and if it did not
        DiscoveryTimeout (a question got no answer in time) or DiscoveryFailed."""
        if self.candidates:
            return

        message = none(self)
        if self.complete:
            raise NoMappingAuthority(message, self)
        timeout = any(step.outcome is Outcome.TIMEOUT for step in self.trace)
        raise (DiscoveryTimeout if timeout else DiscoveryFailed)(message, self)

    def unsaid(self) -> str:
        """What makes it incomplete, in words: the first question without an answer; empty where it is complete."""

        return unsaid(self)

    def raise_for_security(self, require: str | None) -> None:
        """Nothing, where the answers are as secure as required (None: any are); else DiscoveryFailed."""
        if require is None or self.security == require:
            return
        message = f"{self.ark}: the answers are {self.security}, not {require}"
        for step in self.trace:
            if step.security == self.security:
                why = next((link.note for link in reversed(step.links) if link.security == step.security), step.note)
                message += f": {names.to_text(step.name)} NAPTR" + (f": {why}" if why else "")
                break
        if self.security == "indeterminate" and not any(step.links for step in self.trace):
            message += "; nobody validated them: name trust anchors, or a resolver that is to be trusted"
        raise DiscoveryFailed(message, self)

    def to_text(self) -> str:
        """One candidate a line, best first: URL, order, preference, and the owner of its record."""
        return "\n".join(
            f"{url}\t{c.order}\t{c.preference}\t{c.owner}" for url, c in zip(self.urls(), self.candidates, strict=True)
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "ark": str(self.ark),
            "complete": self.complete,
            "source": self.source,
            "security": self.security,
            "stale": self.stale,
            "reason": self.reason,
            "fetched": self.fetched,
            "ttl": self.ttl,
            "candidates": [
                {
                    "url": c.url(self.ark, scheme=self.scheme),
                    "host": c.host,
                    "port": c.port,
                    "order": c.order,
                    "preference": c.preference,
                    "owner": c.owner,
                    "ttl": c.ttl,
                    "source": c.source,
                    "status": c.status,
                }
                for c in self.candidates
            ],
            "trace": [step.to_dict() for step in self.trace],
        }


_values = attrgetter(*Discovery.__slots__)
# The slots, for the constructor alone.
(
    _set_ark,
    _set_candidates,
    _set_trace,
    _set_complete,
    _set_source,
    _set_security,
    _set_ttl,
    _set_expiration,
    _set_scheme,
    _set_stale,
    _set_reason,
    _set_fetched,
) = (getattr(Discovery, name).__set__ for name in Discovery.__slots__)


SHOWN = 3  # URLs in the repr


def line(found: Discovery) -> str:
    """One printable line: the ARK with its URL and what there is to mind, or why there is none."""
    if not found.candidates:
        return printable(none(found))
    mind = [f"and {len(found) - 1} more"] if len(found) > 1 else []
    mind += [f"from {found.source}"] if found.source != "dns" else []
    mind += ["stale"] if found.stale else []
    mind += [] if found.complete else [f"this may not be all: {unsaid(found)}"]
    return printable(f"{found.ark}: {found.url()}" + (f" ({', '.join(mind)})" if mind else ""))


def tag(found: Discovery) -> str:
    """What it is, for whoever debugs: the first URLs, and the state of the whole."""
    urls = [repr(candidate.url(found.ark, scheme=found.scheme)) for candidate in found.candidates[:SHOWN]]
    urls += [f"{len(found) - SHOWN} more"] if len(found) > SHOWN else []
    state = [
        "complete" if found.complete else "not complete",
        found.source,
        *(["stale"] if found.stale else []),
        found.security,
    ]
    return f"<Discovery of {str(found.ark)!r}: [{', '.join(urls)}], {', '.join(state)}>"


def none(found: Discovery) -> str:
    """That there is no candidate, and why."""
    known = "" if found.complete else " known"
    return f"no mapping authority{known} for {found.ark}: {_why(found)}"


def advice(found: Discovery) -> str:
    """What to do where the origin does not exist in the DNS that was asked; empty where it is not known to be so."""
    origin = next((step.name for step in found.trace if step.outcome is Outcome.NO_ORIGIN), None)
    if origin is None:
        return ""
    if names.fold(origin) != names.ARK_ARPA:
        return f"{names.to_text(origin)} does not exist in the DNS that was asked: name a server that has it (@SERVER)"
    return (
        "ark.arpa is not delegated on the public Internet: name a server that has it (@SERVER), or serve it on this"
        " machine (maptr up)"
    )


def unsaid(found: Discovery) -> str:
    """What makes it incomplete: the first question without an answer; empty where it is complete."""
    if found.complete:
        return ""
    steps = [step for step in found.trace if not step.outcome.said]
    if not steps:
        return "a limit of the walk was reached"
    more = f", and {len(steps) - 1} more" if len(steps) > 1 else ""
    return _ended(steps[0]) + _note(steps[0]) + more


def _why(found: Discovery) -> str:
    step = _to_blame(found)
    if step is None:
        return found.reason or "nothing was asked"
    nowhere = ", none of them leads to a mapping authority" if step.outcome is Outcome.ANSWER else ""
    return _ended(step) + nowhere + _note(step)


def _to_blame(found: Discovery) -> Step | None:
    """The first question that was not answered, or the first of all; None where nothing was asked."""
    return next((step for step in found.trace if not step.outcome.said), next(iter(found.trace), None))


def _ended(step: Step) -> str:
    return step.ended


def _note(step: Step) -> str:
    return f" ({step.note})" if step.note else ""


class DiscoveryError(MaptrError):
    """A discovery gave no mapping authority; the walk so far is in ``discovery``."""

    def __init__(self, message: str = "", discovery: Discovery | None = None) -> None:
        super().__init__(message)
        self.discovery = discovery


class NoMappingAuthority(DiscoveryError):
    """DNS answered, and the answer is that nobody serves this ARK."""


class DiscoveryFailed(DiscoveryError):
    """DNS did not say: a server failed or was silent, a limit was reached, or the origin does not exist in this DNS."""


class DiscoveryTimeout(DiscoveryFailed, dns.exception.Timeout):
    """The lifetime of the whole walk passed before DNS said."""
