"""What one run of the algorithm found, and why: Candidate, Step, Discovery.

These are values. How they come about is the business of ``walk``, which of them to take that of ``choose``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

from maptr import errors, names, url
from maptr.ark import Ark
from maptr.names import Labels
from maptr.naptr import Kind, Naptr
from maptr.nfa import Budget, BudgetSpent
from maptr.regexp import Substitution

REGEXP_STEPS = 200_000
"""Steps of regexp matching that one walk may spend, about 0.1 s; a rule of ours costs about 100."""


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
    LIMIT = "a limit was reached"

    @property
    def said(self) -> bool:
        return self in (Outcome.ANSWER, Outcome.NODATA, Outcome.NXDOMAIN)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One mapping authority found.

    ``host`` and ``port`` say where it is; ``target`` is the URL its rule made, without inflection or query
    string, and empty for an ``h`` record, which says no more than the host. ``order`` and ``preference`` are those
    of its own record; ``path`` holds the pairs of every record on the way, its own last. ``ttl`` is the shortest
    of all these records, in seconds.
    """

    host: str
    port: int | None
    order: int
    preference: int
    owner: str
    ttl: int = field(default=0, compare=False)
    source: str = "dns"
    target: str = ""
    path: tuple[tuple[int, int], ...] = ()
    made_for: str = field(default="", repr=False)
    substitution: Substitution | None = field(default=None, repr=False, compare=False)
    scheme: str = field(default="", compare=False)

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

        A scheme of the candidate's own, found by asking, goes before ``scheme``.
        Inflection and query string are carried along. Raises DiscoveryError where the rule does not match the ARK,
        or makes a URL at another place of it: that is another candidate, which only a walk may judge.
        """
        if self.substitution is None:
            port = f":{self.port}" if self.port is not None else ""
            return f"{self.scheme or scheme}://{self.host}{port}/{ark.resolution}{ark.tail}"
        if ark.resolution == self.made_for:
            return self.target + ark.tail
        try:
            made = self.substitution.apply(ark.resolution.encode(), Budget(REGEXP_STEPS))
            text = (made or b"").decode("ascii")
            where = url.parse(text) if made is not None else None
        except (BudgetSpent, ValueError) as error:
            raise errors.DiscoveryError(f"the rule of {self.host} at {self.owner} fails for {ark}: {error}") from None
        if where is None:
            raise errors.DiscoveryError(f"the rule of {self.host} at {self.owner} is not for {ark}")
        if (where.host.in_url.lower(), where.port) != (self.host.lower(), self.port):
            raise errors.DiscoveryError(f"the rule of {self.host} at {self.owner} leads elsewhere for {ark}")
        return text + ark.tail


@dataclass(frozen=True, slots=True)
class Reading:
    """One record on the trace: what it was taken for, and why it counted or did not."""

    naptr: Naptr
    kind: Kind
    counted: bool
    reasons: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "record": self.naptr.to_text(),
            "kind": self.kind.value,
            "counted": self.counted,
            "reasons": list(self.reasons),
        }


@dataclass(frozen=True, slots=True)
class Step:
    """One question on the trace, asked or not. ``elapsed`` is in seconds; it and ``server`` are not compared."""

    name: Labels
    depth: int
    outcome: Outcome
    readings: tuple[Reading, ...] = ()
    note: str = ""
    ttl: int | None = field(default=None, compare=False)
    server: str = field(default="", compare=False)
    elapsed: float | None = field(default=None, compare=False)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": names.to_text(self.name),
            "type": "NAPTR",
            "depth": self.depth,
            "outcome": self.outcome.name.lower(),
            "note": self.note,
            "ttl": self.ttl,
            "server": self.server,
            "elapsed": self.elapsed,
            "records": [reading.to_dict() for reading in self.readings],
        }


@dataclass(frozen=True, slots=True)
class Discovery(Sequence[Candidate]):
    """The result of a walk: its candidates, best first, and the trace that led to them.

    ``complete`` is False where something was not said or a limit was reached. ``ttl`` is how long the result
    may be kept, in seconds, and ``expiration`` the same as a time of the driver's clock; both are None
    where nothing may be kept. ``security`` is what is known of the answers' DNSSEC state.

    A cache adds where the answer came from (``source``: dns, memory, disk or natab), whether its time was over
    (``stale``), why it was taken (``reason``), and when the origin of the data said it (``fetched``, by the wall clock;
    None where that is not known).
    """

    ark: Ark
    candidates: tuple[Candidate, ...] = ()
    trace: tuple[Step, ...] = ()
    complete: bool = True
    source: str = "dns"
    security: str = "indeterminate"
    ttl: int | None = field(default=None, compare=False)
    expiration: float | None = field(default=None, compare=False)
    scheme: str = field(default="https", compare=False)
    stale: bool = False
    reason: str = field(default="", compare=False)
    fetched: float | None = field(default=None, compare=False)

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
        """Seconds since the data was said, by the same clock as ``fetched``; None where that is not known."""
        return None if self.fetched is None else max(0.0, now - self.fetched)

    def kept(self, source: str, fetched: float | None, *, stale: bool) -> Discovery:
        """The same, as a cache had it."""
        return self._but(source, self.expiration, stale, self.reason, fetched)

    def taken(self, reason: str, now: float) -> Discovery:
        """The same, with the reason why it was taken, its ``expiration`` counted from ``now``."""
        expiration = None if self.ttl is None else now + self.ttl
        return self._but(self.source, expiration, self.stale, reason, self.fetched)

    def _but(self, source: str, expiration: float | None, stale: bool, reason: str, fetched: float | None) -> Discovery:
        """``replace`` in a third of its time: a cache has two of these on the way of every answer."""
        found, trace, complete, security = self.candidates, self.trace, self.complete, self.security
        return Discovery(
            self.ark,
            found,
            trace,
            complete,
            source,
            security,
            self.ttl,
            expiration,
            self.scheme,
            stale,
            reason,
            fetched,
        )

    def preferring(self, chooser: Callable[[Discovery], Candidate]) -> Discovery:
        """The same, the chooser's choice first; the others keep their order."""
        chosen = chooser(self)
        return replace(self, candidates=(chosen, *(c for c in self.candidates if c != chosen)))

    def raise_for_none(self) -> None:
        """Nothing, where there is a candidate; else NoMappingAuthority if DNS said so, and if it did not
        DiscoveryTimeout (a question got no answer in time) or DiscoveryFailed."""
        if self.candidates:
            return
        if self.complete:
            raise errors.NoMappingAuthority(f"no mapping authority for {self.ark}: {self._why()}", self)
        timeout = any(step.outcome is Outcome.TIMEOUT for step in self.trace)
        kind = errors.DiscoveryTimeout if timeout else errors.DiscoveryFailed
        raise kind(f"no mapping authority known for {self.ark}: {self._why()}", self)

    def _why(self) -> str:
        steps = [step for step in self.trace if not step.outcome.said] or list(self.trace[:1])
        if not steps:
            return self.reason or "nothing was asked"
        step = steps[0]
        said = f"{names.to_text(step.name)} NAPTR: {step.outcome.value}"
        if step.outcome is Outcome.ANSWER:
            said += ", none of them leads to a mapping authority"
        said += f" ({step.note})" if step.note else ""
        if step.outcome is Outcome.NXDOMAIN and step.name[-2:] == (b"ark", b"arpa"):
            said += ". ark.arpa is not delegated on the public Internet today: name a server or another origin"
        return said

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
                }
                for c in self.candidates
            ],
            "trace": [step.to_dict() for step in self.trace],
        }
