"""The result of a walk: Discovery, its candidates and its trace, and the errors that carry one.

``walk`` makes a Discovery, and ``choose`` has the functions that choose one of its candidates.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, Self, overload

import dns.exception

from maptr import url
from maptr.ark import NO_ARK, PROFILES, Ark, Profile
from maptr.errors import ArkSyntaxError, MaptrError, error_fields, json_text, printable
from maptr.members import Members
from maptr.naptr.automaton import Budget, BudgetSpent
from maptr.naptr.record import Kind, Naptr
from maptr.protocol import names
from maptr.protocol.extended_error import ExtendedError
from maptr.protocol.names import Labels
from maptr.states import Dns, Natab, States

CLOCK_SLACK = 60.0  # seconds; data that is newer than now by more than this is from another clock
SHOWN = 3  # URLs in the repr of a Discovery
_IN_JSON = ("host", "port", "order", "preference", "owner", "ttl", "source", "status")  # fields of a candidate
_RANK = ("order", "preference")
REGEXP_STEPS = 20_000
"""Steps of regexp matching in one walk: about 10 ms, and at most 50 ms, during which an event loop waits. A rule that
maptr writes takes about five."""

# The DNSSEC states of an answer (RFC 4033 5), best first. A discovery has the worst state of its answers.
SECURITY = ("secure", "insecure", "indeterminate", "bogus")
_SECURITY = {state: state for state in SECURITY}


class Outcome(enum.Enum):
    """How a query ended. Any that is not ``answered`` makes the walk incomplete. The value is a text for display."""

    ANSWER = "answer", "answered"
    NODATA = "no NAPTR records", "answered"
    NXDOMAIN = "no such name", "answered"
    SERVFAIL = "server failure", "passes"
    REFUSED = "refused"
    REFERRAL = "referred to other servers"
    TIMEOUT = "no answer in time", "passes"
    UNREACHABLE = "server unreachable", "passes"
    MALFORMED = "answer cannot be read"
    BOGUS = "answer fails DNSSEC validation"
    LIMIT = "a limit was reached"
    NO_ORIGIN = "the origin does not exist in this DNS"

    answered: bool  # whether the response says what there is, if only that there is nothing
    passes: bool  # whether the same query may well be answered a little later

    def __new__(cls, text: str, trait: str = "") -> Outcome:
        outcome = object.__new__(cls)
        outcome._value_ = text
        outcome.answered = trait == "answered"
        outcome.passes = trait == "passes"
        return outcome


class Limit(enum.Enum):
    """A limit of the walk, by the name of its setting in ``Settings``; URL_LENGTH is that of ``url.MAX_URL``."""

    DEPTH = "max_depth"
    QUESTIONS = "max_questions"
    CANDIDATES = "max_candidates"
    RECORDS = "max_records"
    REGEXP_STEPS = "regexp_steps"
    URL_LENGTH = "url_length"


class Value:
    """An immutable value with many attributes, which its constructor takes by name.

    A frozen dataclass takes longer to make (scripts/bench client), and a look-up of many ARKs makes some for each.
    """

    def _set(self, values: dict[str, Any]) -> None:
        """Take the arguments of a constructor, ``locals()``, as the attributes."""
        del values["self"]
        object.__setattr__(self, "__dict__", values)

    def __setattr__(self, name: str, *value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable: replace({name}=...) makes a copy")

    __delattr__ = __setattr__

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values, by the constructor's argument names."""
        own = self.__dict__
        values = own | changes
        if len(values) != len(own):
            unknown = sorted(changes.keys() - own.keys())
            raise TypeError(f"a {type(self).__name__} has no {', '.join(unknown)}")
        made = object.__new__(type(self))
        object.__setattr__(made, "__dict__", values)
        return made

    __replace__ = replace  # of copy.replace, since Python 3.13

    def _compared(self) -> tuple[object, ...]:
        """Return what decides whether two are equal."""
        return tuple(self.__dict__.values())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    def __eq__(self, other: object) -> bool:
        return self._compared() == other._compared() if isinstance(other, type(self)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._compared())


class Reading(Value):
    """One record on the trace: what it means, whether it counted, and why.

    ``leads_to`` has the places of its candidates, each a host, a host and port, or a URL; or the name of the redirect.
    """

    naptr: Naptr
    kind: Kind
    counted: bool
    reasons: tuple[str, ...]
    leads_to: tuple[str, ...]

    def __init__(
        self,
        naptr: Naptr,
        kind: Kind,
        counted: bool,
        reasons: tuple[str, ...] = (),
        leads_to: tuple[str, ...] = (),
    ) -> None:
        self._set(locals())

    def __str__(self) -> str:
        """One printable line: ``+`` if it counted, the record, and the reasons."""
        reasons = f" ({'; '.join(self.reasons)})" if self.reasons else ""
        return printable(f"{'+' if self.counted else '-'} {self.naptr}{reasons}")

    def to_dict(self) -> dict[str, Any]:
        return {
            "record": self.naptr.to_text(),
            "kind": self.kind.value,
            "counted": self.counted,
            "reasons": list(self.reasons),
            "leads_to": list(self.leads_to),
        }

    @classmethod
    def _from_members(cls, members: Members) -> Reading:
        return cls(
            members.read("record", Naptr.from_text),
            members.one_of({kind.value: kind for kind in Kind}, "kind"),
            members.get(bool, "counted"),
            members.all_of(str, "reasons"),
            members.all_of(str, "leads_to"),
        )


class Link(Value):
    """One link of a chain of trust: the records of a name and type, and their DNSSEC state."""

    name: str
    rdtype: str
    security: str
    note: str
    server: str
    elapsed: float | None

    def __init__(
        self,
        name: str,
        rdtype: str,
        security: str,
        note: str = "",
        server: str = "",
        elapsed: float | None = None,
    ) -> None:
        self._set(locals())

    def __str__(self) -> str:
        """One printable line."""
        note = f" ({self.note})" if self.note else ""
        return printable(f"{self.name} {self.rdtype}: {self.security}{_where(self)}{note}")

    def to_dict(self) -> dict[str, Any]:
        return {"type" if name == "rdtype" else name: value for name, value in self.__dict__.items()}

    @classmethod
    def _from_members(cls, members: Members) -> Link:
        name, rdtype, note, server = (members.get(str, name) for name in ("name", "type", "note", "server"))
        return cls(
            name, rdtype, members.one_of(_SECURITY, "security"), note, server, members.optional(float, "elapsed")
        )


class TableRecord(Value):
    """One record of a table on the trace: its key, such as ``12345/x6``, and the URLs of its candidates."""

    key: str
    leads_to: tuple[str, ...]

    def __init__(self, key: str, leads_to: tuple[str, ...]) -> None:
        self._set(locals())

    def to_dict(self) -> dict[str, Any]:
        return {"key": self.key, "leads_to": list(self.leads_to)}

    @classmethod
    def _from_members(cls, members: Members) -> TableRecord:
        return cls(members.get(str, "key"), members.all_of(str, "leads_to"))


TABLE = "table"  # the type of a step that a table answers
GIVEN, CONFIGURED, PULLED, SYSTEM, BUILT_IN = "given", "configured", "pulled", "system", "builtin"  # kinds of tables


class Step(Value):
    """One query on the trace, sent or not. A query of type SOA tests whether the origin exists.

    A step of type TABLE is a look-up in a table; ``table_records`` are those that serve the ARK.

    ``elapsed`` is in seconds. ``security`` is the state of the answer. ``links`` are the links of the chain of trust
    that were followed for it, if maptr validates itself; links known from earlier queries are not followed again.
    ``limit`` is the limit because of which the query was not sent, or not all of its records were read.
    ``extended`` are the extended DNS errors (RFC 8914) of servers that failed. ``ttl``, ``server``, ``elapsed``,
    ``links`` and ``extended`` are not compared.
    """

    name: Labels
    depth: int
    outcome: Outcome
    readings: tuple[Reading, ...]
    note: str
    ttl: int | None
    server: str
    elapsed: float | None
    security: str
    links: tuple[Link, ...]
    rdtype: str
    table_records: tuple[TableRecord, ...]
    limit: Limit | None
    extended: tuple[ExtendedError, ...]

    def __init__(
        self,
        name: Labels,
        depth: int,
        outcome: Outcome,
        *,
        readings: tuple[Reading, ...] = (),
        note: str = "",
        ttl: int | None = None,
        server: str = "",
        elapsed: float | None = None,
        security: str = "indeterminate",
        links: tuple[Link, ...] = (),
        rdtype: str = "NAPTR",
        table_records: tuple[TableRecord, ...] = (),
        limit: Limit | None = None,
        extended: tuple[ExtendedError, ...] = (),
    ) -> None:
        self._set(locals())

    @property
    def complete(self) -> bool:
        """Whether the query was answered, and the answer read to its end."""
        return self.outcome.answered and self.limit is None

    @property
    def ended(self) -> str:
        """The query and how it ended, in words."""
        if self.rdtype == TABLE:
            return f"the table: {', '.join(f'record {record.key}' for record in self.table_records)}"
        outcome = f"no {self.rdtype} records" if self.outcome is Outcome.NODATA else self.outcome.value
        return f"{names.to_text(self.name)} {self.rdtype}: {outcome}"

    @property
    def remark(self) -> str:
        """The note in brackets, or the limit, if there is one."""
        note = self.note or (f"limit reached: {self.limit.value}" if self.limit else "")
        return f" ({note})" if note else ""

    def __str__(self) -> str:
        """One printable line: the query, how it ended, the server, and the time."""
        count = f", {len(self.readings)} records" if self.readings else ""
        security = f", {self.security}" if self.security != "indeterminate" else ""
        where = _where(self) if self.rdtype != TABLE else ""
        return printable(f"{self.ended}{count}{security}{where}{self.remark}")

    def __repr__(self) -> str:
        return f"<Step {self}>"

    def _compared(self) -> tuple[object, ...]:
        said = self.name, self.depth, self.outcome, self.readings, self.note
        return *said, self.security, self.rdtype, self.table_records, self.limit

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": names.to_text(self.name),
            "type": self.rdtype,
            "depth": self.depth,
            "outcome": self.outcome.name.lower(),
            "limit": self.limit and self.limit.value,
            "note": self.note,
            "ttl": self.ttl,
            "server": self.server,
            "elapsed": self.elapsed,
            "records": [reading.to_dict() for reading in self.readings],
            "table_records": [record.to_dict() for record in self.table_records],
            "security": self.security,
            "extended_errors": [error.to_dict() for error in self.extended],
            "chain": [link.to_dict() for link in self.links],
        }

    @classmethod
    def _from_members(cls, members: Members) -> Step:
        limit = {limit.value: limit for limit in Limit}
        return cls(
            members.read("name", names.parse),
            members.get(int, "depth"),
            members.one_of({outcome.name.lower(): outcome for outcome in Outcome}, "outcome"),
            readings=members.each("records", Reading._from_members),
            note=members.get(str, "note"),
            ttl=members.optional(int, "ttl"),
            server=members.get(str, "server"),
            elapsed=members.optional(float, "elapsed"),
            security=members.one_of(_SECURITY, "security"),
            links=members.each("chain", Link._from_members),
            rdtype=members.get(str, "type"),
            table_records=members.each("table_records", TableRecord._from_members),
            limit=None if members.optional(str, "limit") is None else members.one_of(limit, "limit"),
            extended=members.each(
                "extended_errors", lambda one: ExtendedError(one.get(int, "code"), one.get(str, "text"))
            ),
        )


def _where(asked: Step | Link) -> str:
    took = f" in {asked.elapsed * 1000:.1f} ms" if asked.elapsed is not None else ""
    return (f" from {asked.server}" if asked.server else "") + took


class Maker(Protocol):
    """Makes the URLs of ARKs: the regexp of a NAPTR record, or a target of a table."""

    @property
    def replacement(self) -> tuple[bytes | int, ...]:
        """The literal parts of a URL, and the numbers of the groups between them. Equal ones make equal URLs."""
        ...

    def apply(self, text: bytes, budget: Budget) -> bytes | None:
        """Return the URL for an ARK in resolution form; None if the rule is not for that ARK. Raises BudgetSpent."""
        ...


class _OwnUrl(NamedTuple):
    """The rule of a candidate that was read from JSON, which has none: it is for no other ARK."""

    replacement: tuple[bytes | int, ...]

    def apply(self, text: bytes, budget: Budget) -> None:
        return None


class Candidate(Value):
    """One mapping authority found, as given by a NAPTR record (RFC 3403 section 4) or a record of a table.

    ``url`` makes URLs, and raises DiscoveryError for an ARK that the record's rule is not for.

    ``target`` is the URL that its rule made, without inflection or query string; it is empty for an ``h`` record.
    Without a ``substitution``, it is the whole URL of its own ARK alone.
    ``order`` and ``preference`` are its own record's; ``path`` has the pairs of all records on the way, its own last.
    ``ttl`` is the shortest of these records, in seconds. ``ark`` is the ARK for which it was found, and
    ``substitution`` makes URLs for other ARKs. An ``h`` record's URL has the ``default_scheme``, unless a chooser that
    connected has set ``scheme``. ``status`` is the HTTP status that the registry asks for in redirects, or None.
    Comparison ignores ``ttl``, ``ark``, ``substitution``, the schemes and ``status``.

    >>> best = discover("ark:12345/x6np1wh8k", nameservers=[server])[0]
    >>> best.url("ark:12345/x5?info")
    'https://ark.example.org/ark:12345/x5?info'
    """

    host: str
    port: int | None
    order: int
    preference: int
    owner: str
    ttl: int
    source: str
    target: str
    path: tuple[tuple[int, int], ...]
    ark: Ark
    substitution: Maker | None
    scheme: str
    default_scheme: str
    status: int | None

    def __init__(
        self,
        host: str,
        port: int | None,
        order: int,
        preference: int,
        owner: str,
        *,
        ttl: int = 0,
        source: str = "dns",
        target: str = "",
        path: tuple[tuple[int, int], ...] = (),
        ark: Ark = NO_ARK,
        substitution: Maker | None = None,
        scheme: str = "",
        default_scheme: str = "https",
        status: int | None = None,
    ) -> None:
        self._set(locals())

    def _compared(self) -> tuple[object, ...]:
        place = self.host, self.port, self.order, self.preference, self.owner
        return *place, self.source, self.target, self.path, self.target and self.ark.in_url

    def __str__(self) -> str:
        """Its place and its rank: ``ark.example.org:8443 (order 10, preference 10)``."""
        where = self.target or (self.host if self.port is None else f"{self.host}:{self.port}")
        return f"{where} (order {self.order}, preference {self.preference})"

    def __repr__(self) -> str:
        """The fields that are not defaults, without those that only make URLs."""
        defaults = Candidate.__init__.__kwdefaults__ or {}
        shown = {name: value for name, value in self.__dict__.items() if name not in ("ark", "substitution")}
        text = ", ".join(f"{name}={each!r}" for name, each in shown.items() if each != defaults.get(name, NO_ARK))
        return f"Candidate({text})"

    @property
    def orders(self) -> tuple[int, ...]:
        """The orders along the path without final zeros. A chooser chooses among candidates with equal ``orders``, so
        a redirect with order 0 makes no difference."""
        orders = [order for order, _ in self.path]
        while orders and orders[-1] == 0:
            orders.pop()
        return tuple(orders)

    def to_dict(self) -> dict[str, Any]:
        """Return its fields in JSON types, with the URL of its own ARK, or None."""
        return self._to_dict(None if self.ark is NO_ARK else self.url())

    def _to_dict(self, made: str | None) -> dict[str, Any]:
        """``to_dict`` with a URL that is known: making one may take a regexp."""
        written = {"url": made, **{name: getattr(self, name) for name in _IN_JSON}}
        return {**written, "target": self.target, "path": [dict(zip(_RANK, rank, strict=True)) for rank in self.path]}

    @classmethod
    def _from_members(cls, members: Members, ark: Ark, scheme: str) -> Candidate:
        """Read what ``_to_dict`` wrote for this ARK in a discovery with this scheme."""
        made = members.get(str, "url")
        own_scheme = made.partition("://")[0]
        if own_scheme.lower() not in url.PORTS:
            raise members.error("url", f"{made!r:.60} is not a URL of http or https")
        target, port = members.get(str, "target"), members.optional(int, "port")
        is_whole = made == target and bool(ark.tail)
        candidate = cls(
            members.get(str, "host"),
            port,
            members.get(int, "order"),
            members.get(int, "preference"),
            members.get(str, "owner"),
            ttl=members.get(int, "ttl"),
            source=members.get(str, "source"),
            target=target,
            path=members.each("path", lambda rank: (rank.get(int, "order"), rank.get(int, "preference"))),
            ark=ark,
            substitution=_OwnUrl((target.encode(),)) if target and not is_whole else None,
            scheme="" if target or port == 80 or own_scheme == scheme else own_scheme,
            default_scheme=scheme,
            status=members.optional(int, "status"),
        )
        if candidate.url(ark, scheme=scheme) != made:
            raise members.error("url", f"is not the URL of {ark} at this candidate")
        return candidate

    def url(self, ark: Ark | str | None = None, *, scheme: str | None = None) -> str:
        """Return the URL for an ARK, by default its own: what the rule makes of it, or for ``h``
        ``scheme://host[:port]/ark:NAAN/name``.

        A scheme of the candidate, set by a chooser that connected, overrides ``scheme``, and port 80 means http.
        Inflection and query string are kept. Raises DiscoveryError if the rule does not match the ARK, or makes a URL
        at another host or port: that would be another candidate, which needs a separate walk. Raises ArkSyntaxError for
        text that is not an ARK, and if there is no ARK.
        """
        if ark is None:
            ark = self.ark
        if not isinstance(ark, Ark) or ark is NO_ARK:
            ark = Ark.parse(ark, bare=True)
        if self.substitution is None and not self.target:
            path = ark.in_url if ark.name else str(ark)  # a bare NAAN without a slash (draft table 1)
            server = url.at(self.host, self.port, self.scheme or scheme or self.default_scheme)
            return f"{server}/{path}{ark.tail}"
        if self.target and (ark is self.ark or ark.in_url == self.ark.in_url):
            return self.target + ark.tail if self.substitution else self.target
        rule = f"the rule of {self.host} at {self.owner}"
        try:
            made = None
            if self.substitution is not None:
                made = self.substitution.apply(ark.in_url.encode(), Budget(REGEXP_STEPS))
            if made is None:
                raise DiscoveryError(f"{rule} is not for {ark}", Discovery(ark, complete=False))
            text = made.decode("ascii")
            where = url.parse(text)
        except (BudgetSpent, ValueError) as error:
            raise DiscoveryError(f"{rule} fails for {ark}: {error}", Discovery(ark, complete=False)) from None
        elsewhere = (where.host.in_url.lower(), where.port) != (self.host.lower(), self.port)
        if elsewhere or not url.is_at(text, self.target or text):
            raise DiscoveryError(f"{rule} makes a URL at another place for {ark}", Discovery(ark, complete=False))
        return text + ark.tail


def age_of(fetched: float | None, now: float) -> float | None:
    """Return the seconds since ``fetched``, by the same clock; None if unknown, or if the clock was set back."""
    if fetched is None or fetched > now + CLOCK_SLACK:
        return None
    return max(0.0, now - fetched)


class Discovery(Value, Sequence[Candidate]):
    """The result of a walk: a sequence of its candidates, best first.

    ``trace`` has every query in the order of reading. ``complete`` is False if a query was not answered or a limit was
    reached. ``ttl`` is how long the result may be cached, in seconds, and ``expiration`` the same as a time of the
    client's clock; both are None if it must not be cached. ``security`` is the DNSSEC state of the answers.

    ``url`` and ``choose`` raise NoMappingAuthority or DiscoveryFailed if there is no candidate.

    ``discover_many`` also makes one for an item that is not an ARK: ``error`` says why, ``position`` is the item's
    position in the stream, from 0. ``ark``, ``url`` and ``choose`` raise the error.

    A cache adds where the data came from (``source``: dns, memory, disk or natab), whether it had expired (``stale``),
    why it was used (``reason`` in words, ``states`` for programs), the wall-clock time at which it was fetched from its
    origin (``fetched``, or None), and its ``age`` in seconds when the discovery was made. ``table`` is the kind of the
    table that answered: given, configured, pulled, system or builtin; ``table_date`` is the date of its data, in
    seconds since 1970, and ``fetched`` when its source confirmed them.

    ``work`` is the cost of reading and matching its rules, in steps of regexp matching of about 0.25 µs.

    It is immutable; ``replace`` makes a copy with other values. Comparison ignores times, ``scheme``, ``reason`` and
    ``work``.

    >>> found = discover("ark:12345/x6np1wh8k", nameservers=[server])
    >>> [(candidate.host, candidate.order) for candidate in found]
    [('ark.example.org', 0)]
    >>> found.complete, found.security, [step.outcome.name for step in found.trace]
    (True, 'indeterminate', ['ANSWER'])
    """

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
    states: States | None
    fetched: float | None
    age: float | None
    error: ArkSyntaxError | None
    position: int | None
    work: int
    table: str
    table_date: float | None

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
        states: States | None = None,
        fetched: float | None = None,
        age: float | None = None,
        error: ArkSyntaxError | None = None,
        position: int | None = None,
        work: int = 0,
        table: str = "",
        table_date: float | None = None,
    ) -> None:
        self._set(locals())

    @property
    def ark(self) -> Ark:
        """The ARK. Raises the error of an item that is not one."""
        if self.error is not None:
            raise self.error
        found: Ark = self.__dict__["ark"]
        return found

    def _compared(self) -> tuple[object, ...]:
        made = self.candidates, self.trace, self.complete, self.source, self.security, self.stale
        return (*made, self.ark if self.error is None else str(self.error))

    def __str__(self) -> str:
        """One printable line: the ARK with its URL, or why there is none. ``to_text`` has all candidates."""
        if not self.candidates:
            return printable(self._none())
        remarks = [f"and {len(self) - 1} more"] if len(self) > 1 else []
        remarks += [f"from {self.source}"] if self.source != "dns" else []
        remarks += ["stale"] if self.stale else []
        remarks += [] if self.complete else [f"there may be more: {self.incomplete_reason()}"]
        return printable(f"{self.ark}: {self.url()}" + (f" ({', '.join(remarks)})" if remarks else ""))

    def __repr__(self) -> str:
        """The first URLs and the state; ``to_dict`` has everything."""
        if self.error is not None:
            return f"<Discovery of item {self.position}: {self.error}>"
        shown = [repr(candidate.url(self.ark, scheme=self.scheme)) for candidate in self.candidates[:SHOWN]]
        shown += [f"{len(self) - SHOWN} more"] if len(self) > SHOWN else []
        state = ["complete" if self.complete else "not complete", self.source, *(["stale"] if self.stale else [])]
        return f"<Discovery of {str(self.ark)!r}: [{', '.join(shown)}], {', '.join([*state, self.security])}>"

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
        """The candidates of the lowest order, to choose among. The others are the fallback."""
        return tuple(c for c in self.candidates if c.orders == self.candidates[0].orders)

    def choose(self, chooser: Callable[[Discovery], Candidate] | None = None) -> Candidate:
        """Return the first candidate, or the chooser's. Raises NoMappingAuthority or DiscoveryFailed without one, and
        TypeError for a chooser that returns something else."""
        self.raise_for_none()
        if chooser is not None and not callable(chooser):
            raise TypeError(f"{chooser!r:.60} is not a chooser; a client's discover() also takes the name of one")
        chosen = self.candidates[0] if chooser is None else chooser(self)
        if not isinstance(chosen, Candidate):
            raise TypeError(f"the chooser {chooser!r} gives {chosen!r:.60}, not a Candidate")
        return chosen

    def url(self, chooser: Callable[[Discovery], Candidate] | None = None) -> str:
        """Return the URL of the ARK at the candidate that ``choose`` returns. Raises the errors of ``choose``."""
        return self.choose(chooser).url(self.ark, scheme=self.scheme)

    def urls(self) -> list[str]:
        """Return the URL of each candidate, best first."""
        return [candidate.url(self.ark, scheme=self.scheme) for candidate in self.candidates]

    def age_at(self, now: float) -> float | None:
        """Return the seconds since ``fetched``, by the same clock; None if unknown, or if the clock was set back."""
        return age_of(self.fetched, now)

    def expiring(self, now: float, **changes: Any) -> Discovery:
        """Return a copy whose ``expiration`` and ``age`` are counted from ``now``, with other changes."""
        until = None if self.ttl is None else now + self.ttl
        return self.replace(expiration=until, age=self.age_at(now), **changes)

    def preferring(self, chooser: Callable[[Discovery], Candidate]) -> Discovery:
        """Return a copy with the chooser's choice first; the others keep their order."""
        chosen = self.choose(chooser)
        return self.replace(candidates=(chosen, *(c for c in self.candidates if c != chosen)))

    def raise_for_none(self) -> None:
        """Raise an error if there is no candidate: the stored error of an item that is not an ARK, NoMappingAuthority
        if the discovery is complete, DiscoveryTimeout if a query was not answered in time, else DiscoveryFailed."""
        if self.candidates:
            return
        if self.error is not None:
            raise self.error
        message = self._none()
        if self.complete:
            raise NoMappingAuthority(message, self)
        timeout = any(step.outcome is Outcome.TIMEOUT for step in self.trace)
        raise (DiscoveryTimeout if timeout else DiscoveryFailed)(message, self)

    def incomplete_reason(self) -> str:
        """Return the reason why it is incomplete: the first query that is. Empty if it is complete."""
        if self.complete:
            return ""
        if self.error is not None:
            return str(self.error)
        steps = [step for step in self.trace if not step.complete]
        if not steps:
            return self.reason
        more = f", and {len(steps) - 1} more" if len(steps) > 1 else ""
        return steps[0].ended + steps[0].remark + more

    @property
    def decisive(self) -> Step | None:
        """The query that says why there is no candidate: the first that was not answered, else the first; None if
        nothing was asked."""
        return next((step for step in self.trace if not step.outcome.answered), next(iter(self.trace), None))

    @property
    def may_pass(self) -> bool:
        """Whether it is incomplete for a reason that may soon be over, so that it helps to wait."""
        return not self.complete and any(step.outcome.passes for step in self.trace)

    @property
    def missing_origin(self) -> str:
        """The origin, if it does not exist in this DNS; "" if it exists, or if that is not known."""
        found = next((step.name for step in self.trace if step.outcome is Outcome.NO_ORIGIN), ())
        if not found:
            return ""
        own = self.ark.naan.encode()
        return names.to_text(found[1:] if found[:1] == (own,) else found)

    def advice(self) -> str:
        """Return advice for the command line if the origin does not exist in this DNS, else ""."""
        origin = self.missing_origin
        if not origin:
            return ""
        if origin.lower() != names.to_text(names.ARK_ARPA):
            return f"the DNS servers that were asked do not have {origin}: name one that does (@SERVER)"
        where = "ark.arpa is not delegated on the public Internet"
        if self.states is not None and self.states.table is Natab.HAS_NOT:
            return f"{where}, and the table does not have this NAAN: maptr table pull --apply gets today's registry"
        return f"{where}: maptr up serves it on this machine"

    def _none(self) -> str:
        """Return the message that there is no candidate, with the first unanswered query, or else the first query."""
        if self.error is not None:
            return str(self.error)
        known = "" if self.complete else " known"
        step = self.decisive
        why = self.reason or "nothing was asked"
        if step is not None and not (self.states is not None and self.states.table is Natab.UNUSABLE and self.complete):
            nowhere = ""
            if step.outcome is Outcome.ANSWER:
                reason = next((reason for reading in step.readings for reason in reading.reasons), "")
                nowhere = f", but none of its records leads to a mapping authority{reason and f' ({reason})'}"
            why = step.ended + nowhere + step.remark
        return f"no mapping authority{known} for {self.ark}: {why}"

    def raise_for_security(self, require: str | None) -> None:
        """Raise DiscoveryFailed if the answers do not have the required DNSSEC state. None means any state."""
        if require is None or self.security == require:
            return
        message = f"{self.ark}: the answers are {self.security}, not {require}"
        for step in self.trace:
            if step.security == self.security:
                why = next((link.note for link in reversed(step.links) if link.security == step.security), step.note)
                message += f": {names.to_text(step.name)} NAPTR" + (f": {why}" if why else "")
                break
        if self.security == "indeterminate" and not any(step.links for step in self.trace):
            message += "; they were not validated: configure trust anchors, or a resolver to trust"
        raise DiscoveryFailed(message, self)

    def to_text(self) -> str:
        """Return one line per candidate, best first: URL, order, preference, and the owner of its record."""
        return "\n".join(
            f"{url}\t{c.order}\t{c.preference}\t{c.owner}" for url, c in zip(self.urls(), self.candidates, strict=True)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything, in JSON types. Its fields are those of ``maptr discover --json``."""
        return {
            "ark": str(self.ark) if self.error is None else None,
            "received": None if self.error is not None else self.ark.received(),
            "complete": self.complete,
            "source": self.source,
            "table": self.table or None,
            "table_date": self.table_date,
            "scheme": self.scheme,
            "security": self.security,
            "stale": self.stale,
            "reason": self.reason,
            "states": self.states and {name: state.name.lower() for name, state in self.states._asdict().items()},
            "fetched": self.fetched,
            "age": None if self.age is None else round(self.age, 3),
            "ttl": self.ttl,
            **error_fields(self.error),
            "position": self.position,
            "candidates": [c._to_dict(made) for made, c in zip(self.urls(), self.candidates, strict=True)],
            "trace": [step.to_dict() for step in self.trace],
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Discovery:
        """Return the discovery that ``to_dict`` wrote, or ``maptr discover --json``. Raises ValueError, whose text
        begins with the path of the wrong member: ``trace[0].outcome: 'x' is not one of ...``.

        It equals the first one. Its candidates have no rule: each makes the URL of its own ARK only. ``work`` is 0.

        >>> found = discover("ark:12345/x6np1wh8k", nameservers=[server])
        >>> Discovery.from_dict(found.to_dict()) == found
        True
        """
        members = Members(document)
        error, ark = None, NO_ARK
        if members.optional(str, "error") is not None:
            if members.get(list, "candidates"):
                raise members.error("error", "a text that is not an ARK has no candidates")
            suggestion = members.optional(str, "suggestion") or ""
            error = ArkSyntaxError(members.get(str, "error"), suggestion=suggestion)
        else:
            ark = _read_ark(members)
        scheme = members.one_of({scheme: scheme for scheme in url.PORTS}, "scheme")
        fetched, age, ttl = (
            members.optional(float, "fetched"),
            members.optional(float, "age"),
            members.optional(int, "ttl"),
        )
        return cls(
            ark,
            members.each("candidates", lambda each: Candidate._from_members(each, ark, scheme)),
            members.each("trace", Step._from_members),
            members.get(bool, "complete"),
            source=members.get(str, "source"),
            security=members.one_of(_SECURITY, "security"),
            ttl=ttl,
            expiration=None if fetched is None or age is None or ttl is None else fetched + age + ttl,
            scheme=scheme,
            stale=members.get(bool, "stale"),
            reason=members.get(str, "reason"),
            states=members.optional_inner("states", _read_states),
            fetched=fetched,
            age=age,
            error=error,
            position=members.optional(int, "position"),
            table=members.optional(str, "table") or "",
            table_date=members.optional(float, "table_date"),
        )

    def _repr_html_(self) -> str:
        """Return candidates and walk as HTML without scripts, for Jupyter."""
        from html import escape  # late: only notebooks need it

        def row(made: str, c: Candidate) -> str:
            link = f'<a href="{escape(made)}" rel="noreferrer">{escape(made)}</a>'
            shown = link if url.server_of(made) else escape(made)  # only web addresses become links
            cells = shown, c.order, c.preference, escape(c.owner), c.ttl
            return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"

        def items(shown: Sequence[object]) -> str:
            return "".join(f"<li>{escape(str(each))}</li>" for each in shown)

        title = escape(str(self.ark if self.candidates else self))
        if self.error is not None:  # nothing was asked
            return f"<div><b>{title}</b></div>"
        state = ["complete" if self.complete else f"not complete: {self.incomplete_reason()}", self.security]
        state += [f"from {self.source}" + (f" ({self.table} table)" if self.table else "")]
        state += ["stale"] if self.stale else []
        rows = "".join(map(row, self.urls(), self.candidates))
        head = "<tr><th>URL</th><th>order</th><th>preference</th><th>record at</th><th>TTL</th></tr>"
        table = f"<table>{head}{rows}</table>" if rows else ""
        steps = "".join(f"<li>{escape(str(step))}<ul>{items(step.readings)}</ul></li>" for step in self.trace)
        walk = f"<details><summary>the walk</summary><ol>{steps}</ol></details>" if steps else ""
        return f"<div><b>{title}</b> <small>{escape(', '.join(state))}</small>{table}{walk}</div>"

    def to_json(self) -> str:
        """Return ``to_dict`` as JSON."""
        return json_text(self.to_dict())


def _read_ark(members: Members) -> Ark:
    """Return the ARK of a discovery, which any profile may have read."""
    text, received = members.get(str, "ark"), members.inner("received")
    resolution = received.get(str, "resolution")
    if text == str(NO_ARK):  # of a discovery that never began
        return NO_ARK
    profiles = [profile for profile in PROFILES if _reads_as(text, profile) == text]
    if not profiles:
        raise members.error("ark", f"{text!r:.60} is not an ARK in normal form")
    profile = next((profile for profile in profiles if _reads_as(resolution, profile) == text), None)
    if profile is None:
        raise received.error("resolution", f"{resolution!r:.60} is another one")
    return Ark.parse(text, profile=profile, bare=True).with_received(
        resolution=resolution,
        tail=received.get(str, "tail"),
        nma=received.get(str, "nma"),
        hyphenated=received.get(str, "hyphenated"),
        notes=received.all_of(str, "notes"),
    )


def _reads_as(text: str, profile: Profile) -> str | None:
    """Return the normal form of an ARK; None for other text."""
    with suppress(ArkSyntaxError):
        return str(Ark.parse(text, profile=profile, bare=True))
    return None


def _read_states(members: Members) -> States:
    return States(
        members.one_of({state.name.lower(): state for state in Dns}, "dns"),
        members.one_of({state.name.lower(): state for state in Natab}, "table"),
    )


class DiscoveryError(MaptrError):
    """A discovery without a usable mapping authority. ``discovery`` has the walk so far, without a step if none began.

    >>> try:
    ...     discover("ark:99999/x1", nameservers=[server])
    ... except DiscoveryError as error:
    ...     [(step.outcome.name, step.server == server) for step in error.discovery.trace]
    [('NXDOMAIN', True)]
    """

    def __init__(self, message: str = "", discovery: Discovery | None = None) -> None:
        super().__init__(message)
        # An empty one is false.
        self.discovery: Discovery = (
            discovery if discovery is not None else Discovery(NO_ARK, complete=False, reason=message)
        )


class NoMappingAuthority(DiscoveryError):
    """DNS answered that this ARK has no mapping authority (draft-kunze-ark appendix B): asking again does not help.

    >>> try:
    ...     discover("ark:99999/x1", nameservers=[server])
    ... except NoMappingAuthority as error:
    ...     error.discovery.complete
    True
    """


class DiscoveryFailed(DiscoveryError):
    """DNS did not give an answer: a server failed, a limit was reached, or the origin does not exist in this DNS.

    >>> try:
    ...     discover("ark:12345/x1", nameservers=[server], origin="ark.example")
    ... except DiscoveryFailed as error:
    ...     error.discovery.complete, error.discovery.trace[0].outcome.name
    (False, 'REFUSED')
    """


class DiscoveryTimeout(DiscoveryFailed, dns.exception.Timeout):
    """The lifetime of the whole walk passed before DNS answered. It is also a ``dns.exception.Timeout``.

    >>> try:
    ...     discover("ark:12345/x1", nameservers=[server], lifetime=0)
    ... except DiscoveryTimeout as error:
    ...     error.discovery.trace[0].outcome.name
    'TIMEOUT'
    """


class NoServer(DiscoveryFailed):
    """No server can be queried: none is configured, or a name has no address. No walk began."""


class NoServerInTime(NoServer, DiscoveryTimeout):
    """The name of a server was not looked up in time."""
