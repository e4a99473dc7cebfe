"""What one run of the algorithm found, and why: Candidate, Step, Discovery.

These are values. How they come about is the business of ``walk``, which of them to take that of ``choose``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

from maptr import errors, names, url
from maptr.ark import Ark
from maptr.names import Labels
from maptr.naptr import Kind, Naptr
from maptr.nfa import Budget, BudgetSpent

if TYPE_CHECKING:
    from maptr.regexp import Substitution

REGEXP_STEPS = 200_000
"""Steps of regexp matching that one walk may spend, about 0.1 s; a rule of ours costs about 100."""


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

    @property
    def said(self) -> bool:
        return self in (Outcome.ANSWER, Outcome.NODATA, Outcome.NXDOMAIN)


class Candidate(NamedTuple):
    """One mapping authority found.

    ``host`` and ``port`` say where it is; ``target`` is the URL its rule made, without inflection or query
    string, and empty for an ``h`` record, which says no more than the host. ``order`` and ``preference`` are those
    of its own record; ``path`` holds the pairs of every record on the way, its own last. ``ttl`` is the shortest
    of all these records, in seconds; it is not compared, nor what makes URLs for other ARKs.
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

    def _compared(self) -> tuple[object, ...]:
        return self[:5] + self[6:10]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Candidate) and self._compared() == other._compared()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._compared())

    def __repr__(self) -> str:
        shown = ((name, getattr(self, name)) for name in self._fields if name not in ("made_for", "substitution"))
        return f"Candidate({', '.join(f'{name}={value!r}' for name, value in shown)})"

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


class Reading(NamedTuple):
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


class Link(NamedTuple):
    """One link of a chain of trust: the records of a name and type, and what validation made of them."""

    name: str
    rdtype: str
    security: str
    note: str = ""
    server: str = ""
    elapsed: float | None = None

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
    """One question on the trace, asked or not. ``elapsed`` is in seconds; it, ``ttl`` and ``server``
    are not compared.

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

    def _compared(self) -> tuple[object, ...]:
        return *self[:5], self.security

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Step) and self._compared() == other._compared()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._compared())

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
            "security": self.security,
            "chain": [link.to_dict() for link in self.links],
        }


class Discovery(Sequence[Candidate]):
    """The result of a walk: its candidates, best first, and the trace that led to them.

    ``complete`` is False where something was not said or a limit was reached. ``ttl`` is how long the result
    may be kept, in seconds, and ``expiration`` the same as a time of the driver's clock; both are None
    where nothing may be kept. ``security`` is what is known of the answers' DNSSEC state.

    A cache adds where the answer came from (``source``: dns, memory, disk or natab), whether its time was over
    (``stale``), why it was taken (``reason``), and when the origin of the data said it (``fetched``, by the wall clock;
    None where that is not known).

    Its values are not to be changed: ``replace`` makes another. Two are equal where all is equal but times,
    ``scheme`` and ``reason``. ``trace`` may be given as a function, which is called when somebody first looks: writing
    the reasons down costs more than finding the candidates.
    """

    _ARGUMENTS = (
        *("ark", "candidates", "trace", "complete", "source", "security"),
        *("ttl", "expiration", "scheme", "stale", "reason", "fetched"),
    )
    __slots__ = tuple("_trace" if name == "trace" else name for name in _ARGUMENTS)

    def __init__(
        self,
        ark: Ark,
        candidates: tuple[Candidate, ...] = (),
        trace: tuple[Step, ...] | Callable[[], tuple[Step, ...]] = (),
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
        self.ark: Final = ark
        self.candidates: Final = candidates
        self._trace = trace
        self.complete: Final = complete
        self.source: Final = source
        self.security: Final = security
        self.ttl: Final = ttl
        self.expiration: Final = expiration
        self.scheme: Final = scheme
        self.stale: Final = stale
        self.reason: Final = reason
        self.fetched: Final = fetched

    @property
    def trace(self) -> tuple[Step, ...]:
        """Every question, in the order in which they were read."""
        trace = self._trace
        if callable(trace):
            trace = self._trace = trace()
        return trace

    def replace(self, **changes: Any) -> Discovery:
        """The same with other values, by the names of the constructor."""
        values = {name: getattr(self, "_trace" if name == "trace" else name) for name in self._ARGUMENTS}
        return Discovery(**{**values, **changes})

    def of(self, ark: Ark, expiration: float | None) -> Discovery:
        """The same for another ARK; for whoever knows that it holds for that one."""
        return Discovery(
            ark,
            self.candidates,
            self._trace,
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

    def __repr__(self) -> str:
        return f"Discovery({', '.join(f'{name}={getattr(self, name)!r}' for name in self._ARGUMENTS)})"

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

    def expiring(self, now: float) -> Discovery:
        """The same, its ``expiration`` counted from ``now``."""
        return self.replace(expiration=None if self.ttl is None else now + self.ttl)

    def preferring(self, chooser: Callable[[Discovery], Candidate]) -> Discovery:
        """The same, the chooser's choice first; the others keep their order."""
        chosen = chooser(self)
        return self.replace(candidates=(chosen, *(c for c in self.candidates if c != chosen)))

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
        raise errors.DiscoveryFailed(message, self)

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
            said += (
                ". ark.arpa is not delegated on the public Internet today: maptr up serves it on this machine,"
                " @SERVER names a server that has it, --origin another origin"
            )
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
