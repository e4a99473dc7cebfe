"""A mapping authority that was found, the URL it has for an ARK, and its rank among others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from maptr import errors, url
from maptr.ark import Ark
from maptr.naptr.automaton import Budget, BudgetSpent
from maptr.naptr.record import Naptr

if TYPE_CHECKING:
    from maptr.naptr.regexp import Substitution

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
            raise errors.DiscoveryError(f"the rule of {self.host} at {self.owner} fails for {ark}: {error}") from None
        if where is None:
            raise errors.DiscoveryError(f"the rule of {self.host} at {self.owner} is not for {ark}")
        if (where.host.in_url.lower(), where.port) != (self.host.lower(), self.port):
            raise errors.DiscoveryError(f"the rule of {self.host} at {self.owner} leads elsewhere for {ark}")
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
