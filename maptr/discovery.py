"""Discovery: what one run of the algorithm found, and why. It is made of candidates and of steps (``trace.py``).

A value: how it comes about is the business of ``walk``, and which candidate to take that of ``choose``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, overload

from maptr import errors
from maptr.ark import Ark
from maptr.candidate import Candidate
from maptr.protocol import names
from maptr.trace import Outcome, Step

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
        from maptr import summary

        return summary.line(self)

    def __repr__(self) -> str:
        """Short, for it may hold 64 candidates and 32 steps: ``to_dict`` has everything."""
        from maptr import summary

        return summary.tag(self)

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
        from maptr import summary

        message = summary.none(self)
        if self.complete:
            raise errors.NoMappingAuthority(message, self)
        timeout = any(step.outcome is Outcome.TIMEOUT for step in self.trace)
        raise (errors.DiscoveryTimeout if timeout else errors.DiscoveryFailed)(message, self)

    def unsaid(self) -> str:
        """What makes it incomplete, in words: the first question without an answer; empty where it is complete."""
        from maptr import summary

        return summary.unsaid(self)

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
        raise errors.DiscoveryFailed(message, self)

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
