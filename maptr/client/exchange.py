"""One question to DNS servers, without I/O: which server to query next, how, and what each response leads to.

A driver sends the message that ``next()`` returns, reports what came back, and stops when ``answer`` is set. ``stub``
drives one exchange at a time, ``multiplexer`` hundreds side by side.

    for each round, for each server that is not struck off:
        query by UDP; by TCP after a truncated response; without EDNS if the server does not support it
        an answer, or "no such name": done           no response in time: the next server
        refused, failed, unreadable, lame: strike the server off
        a referral towards the name: start again with the servers that it names
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from maptr import url
from maptr.client import message as wire
from maptr.client.message import Query, Referral, Reply, read_reply
from maptr.discovery import Outcome
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.protocol.numbers import AAAA, BADVERS, FORMERR, MAX_TTL, NAPTR, NOTIMP, PORT, REFUSED, YXDOMAIN, A
from maptr.walk import TIME_OVER, Answer


class Server(NamedTuple):
    """Where to ask: an address literal and a port."""

    address: str
    port: int = PORT

    def __str__(self) -> str:
        return f"{self.address}#{self.port}"


class Attempt(NamedTuple):
    """One message to one server, and how long to wait for the reply, in seconds."""

    server: Server
    query: Query
    tcp: bool
    seconds: float


class Asked(Protocol):
    """What a driver drives: an ``Exchange``, or several that make one answer."""

    answer: Answer | None

    def next(self) -> Attempt | None: ...
    def hear(self, attempt: Attempt, packet: bytes) -> bool: ...
    def silent(self, attempt: Attempt) -> None: ...
    def unreachable(self, attempt: Attempt, why: object) -> None: ...
    def expire(self) -> None: ...
    def unanswered(self, attempt: Attempt | None) -> Answer: ...


MAX_REFERRALS = 8  # down from the servers given; a domain name below ark.arpa rarely has two zone cuts
MAX_SOUGHT = 3  # servers of one referral whose addresses are sought where none is told with it
MAX_SEARCH_DEPTH = 2  # searches for the sake of a search


class Search(NamedTuple):
    """The addresses of a zone's servers are sought, at the servers first given; ``questions`` are still to ask.

    ``attempt`` is what the referral replied to.
    """

    attempt: Attempt
    cut: Labels
    questions: list[tuple[Labels, int]]


def usable(asked: Server, addresses: Sequence[str]) -> list[Server]:
    """The servers at these addresses that may be asked: local ones only where the one that names them is local."""
    if not _is_local(asked.address):
        addresses = [text for text in addresses if not _is_local(text)]
    return [Server(text, asked.port) for text in addresses]


def sought(referral: Referral, seeking: frozenset[Labels]) -> list[tuple[Labels, int]]:
    """The questions, name and type, that may find an address where none is told.

    None about a server below the very cut, nor about one that is sought already: ``seeking``, folded.
    """
    if referral.addresses or len(seeking) >= MAX_SEARCH_DEPTH:
        return []
    found = [
        server
        for server in referral.servers
        if not names.is_below(server, referral.cut) and names.fold(server) not in seeking
    ]
    return [(server, rdtype) for server in found[:MAX_SOUGHT] for rdtype in (A, AAAA)]


def _is_local(address: str) -> bool:
    return url.parse_host(f"[{address.partition('%')[0]}]" if ":" in address else address).is_local


RandomBytes = Callable[[int], bytes]
_new = tuple.__new__  # half the time of a NamedTuple's own

FIRST_SECONDS = 1.0  # for the first reply of a server; doubled each round (RFC 1536 1, RFC 1035 4.2.1)
ROUNDS = 3
MIXED_ROUNDS = 2  # rounds with 0x20; the last is without, for the rare server that does not echo the case
MAX_TRIES = 32  # packets for one question, all servers, rounds, referrals and aliases together
MAX_ALIASES = 8  # CNAMEs that one server leaves to be asked for separately
NOTE_LENGTH = 500  # characters of failures kept in a note


class Exchange:
    """One question under way; ``answer`` is None until it is settled.

    With ``dnssec``, for whoever validates, ``packet`` is then the reply, its aliases not followed. ``addresses`` are
    what a question for A or AAAA gave. ``seeking``: the servers whose addresses this question is part of finding.
    """

    answer: Answer | None = None
    addresses: tuple[str, ...] = ()
    packet = b""
    _search: Search | None = None
    _inner: Exchange | None = None  # the search's question under way
    _plain: frozenset[Server] = frozenset()  # servers without EDNS
    _notes: tuple[str, ...] = ()
    _last = Outcome.TIMEOUT
    _cut = 0  # labels of the zone that the servers were named for
    _round = _turn = _tries = _referrals = _aliases = 0
    _tcp = False
    _bogus = False
    _vouched = True  # every alias on the way
    _through = ""
    _ttl = MAX_TTL

    def __init__(
        self,
        name: Labels,
        servers: Sequence[Server],
        randomness: RandomBytes,
        *,
        rdtype: int = NAPTR,
        trust_ad: bool = False,
        dnssec: bool = False,
        seeking: frozenset[Labels] = frozenset(),
    ) -> None:
        self.name = name
        self._rdtype = rdtype
        self._dnssec = dnssec
        self._seeking = seeking
        self._top = self._servers = tuple(servers)
        self._randomness = randomness
        self._trust_ad = trust_ad
        self._asking = name
        if not servers:
            self.answer = Answer(Outcome.UNREACHABLE, note="no server to ask")

    def _start(self, servers: Sequence[Server], cut: int) -> None:
        self._servers = tuple(servers)
        self._cut = cut
        self._round = self._turn = 0

    def next(self) -> Attempt | None:
        """The message to send now, None where the question is settled."""
        if self.answer is not None:
            return None
        if self._search is not None and (attempt := self._seek(self._search)) is not None:
            return attempt
        if self._turn >= len(self._servers):
            self._turn, self._round = 0, self._round + 1
        if not self._servers or self._round >= ROUNDS or self._tries >= MAX_TRIES:
            self.answer = self._without(self._last, self._notes)
            return None
        self._tries += 1
        server = self._servers[self._turn]
        mix = self._round < MIXED_ROUNDS
        size = 2 + (names.wire_length(self._asking) if mix else 0)
        query = wire.make_query(
            self._asking,
            self._randomness(size),
            mix=mix,
            rdtype=self._rdtype,
            edns=server not in self._plain,
            ask_ad=self._trust_ad,
            dnssec=self._dnssec,
        )
        return _new(Attempt, (server, query, self._tcp, FIRST_SECONDS * 2**self._round))

    def hear(self, attempt: Attempt, packet: bytes) -> bool:
        """What came back; False where it is no reply to this attempt and the driver is to go on waiting."""
        if self._inner is not None:
            return self._inner.hear(attempt, packet)
        if not wire.answers(attempt.query, packet):
            return False
        try:
            reply = read_reply(attempt.query, packet)
        except ValueError as error:
            self._strike(attempt, Outcome.MALFORMED, f"the reply cannot be read: {error}")
            return True
        if reply.truncated:
            self._truncated(attempt)
        elif reply.outcome.said or (self._dnssec and reply.alias is not None):
            self._settle(attempt, reply)
            self.packet = packet
        elif reply.outcome is Outcome.REFERRAL:
            self._onward(attempt, reply)
        elif reply.rcode == YXDOMAIN:
            self._settle(
                attempt,
                reply._replace(outcome=Outcome.NXDOMAIN, note="a DNAME makes the name too long", zone=self.name),
            )
        elif reply.rcode in (FORMERR, NOTIMP, BADVERS) and attempt.server not in self._plain:
            self._plain |= {attempt.server}  # RFC 6891 6.2.2 and 7: a server without EDNS
        else:
            self._bogus |= reply.bogus and self._trust_ad
            outcome = Outcome.REFUSED if reply.rcode == REFUSED else Outcome.SERVFAIL
            self._strike(attempt, outcome, f"rcode {reply.rcode}")
        return True

    def silent(self, attempt: Attempt) -> None:
        """No reply in the attempt's seconds."""
        if self._inner is not None:
            self._inner.silent(attempt)
            return
        self._tcp = False
        self._turn += 1
        self._last = Outcome.TIMEOUT
        self._note(_silence(attempt))

    def unreachable(self, attempt: Attempt, why: object) -> None:
        """The system says that the server cannot be asked."""
        if self._inner is not None:
            self._inner.unreachable(attempt, why)
            return
        self._strike(attempt, Outcome.UNREACHABLE, str(why))

    def expire(self) -> None:
        """Settle it without an answer, because the walk's time is over."""
        self.answer = self.unanswered(None)

    def unanswered(self, attempt: Attempt | None) -> Answer:
        """What it comes to for a walk whose time is over now, while ``attempt`` waits for its reply."""
        notes = self._notes
        if attempt is not None and self._inner is None and (silence := _silence(attempt)) not in notes:
            notes = (*notes, silence)
        return self._without(Outcome.TIMEOUT, notes or (TIME_OVER,))

    def _without(self, outcome: Outcome, notes: Iterable[str]) -> Answer:
        security = "bogus" if self._bogus else "indeterminate"
        through = [f"{self._through}, without recursion"] if self._through else []
        return Answer(outcome, note="; ".join([*through, *notes])[:NOTE_LENGTH], security=security)

    # ---- what a reply leads to

    def _settle(self, attempt: Attempt, reply: Reply) -> None:
        security = "indeterminate"
        if self._trust_ad:
            security = "secure" if self._vouched and self._vouches(attempt, reply) else "insecure"
        _, _, outcome, records, self.addresses, ttl, note, _, _, _, _, zone = reply
        if ttl is not None and ttl > self._ttl:
            ttl = self._ttl
        if self._through:
            note, zone = note or self._through, self.name
        # All fields, in their order.
        self.answer = _new(Answer, (outcome, records, ttl, note, str(attempt.server), None, security, (), zone))

    def _vouches(self, attempt: Attempt, reply: Reply) -> bool:
        """Whether a server that the caller trusts says that its reply is authentic; not one that another told of."""
        return reply.authentic and attempt.server in self._top

    def _truncated(self, attempt: Attempt) -> None:
        if attempt.tcp:
            self._strike(attempt, Outcome.MALFORMED, "the reply is truncated over TCP")
        else:
            self._tcp = True

    def _onward(self, attempt: Attempt, reply: Reply) -> None:
        """To the servers below a zone cut, or from an alias to its target."""
        if reply.alias is not None:
            self._follow_alias(attempt, reply, reply.alias)
        else:
            assert reply.referral is not None  # noqa: S101 - read_reply sets one of the two
            self._follow_referral(attempt, reply.referral)

    def _follow_alias(self, attempt: Attempt, reply: Reply, target: Labels) -> None:
        """The target is asked for from the top: it may be anywhere (RFC 1034 3.6.2)."""
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            self._strike(attempt, Outcome.MALFORMED, f"more than {MAX_ALIASES} CNAMEs")
            return
        self._asking, self._through, self._tcp = target, reply.note, False
        self._vouched &= self._vouches(attempt, reply)
        self._ttl = min(self._ttl, MAX_TTL if reply.ttl is None else reply.ttl)
        self._start(self._top, cut=0)

    def _follow_referral(self, attempt: Attempt, referral: Referral) -> None:
        """It must lead down, and towards the name (RFC 1034 5.3.3 4b)."""
        servers = usable(attempt.server, referral.addresses)
        questions = sought(referral, self._seeking)
        refusal = ""
        if not names.is_below(self._asking, referral.cut) or len(referral.cut) <= self._cut:
            refusal = "not further down, so this server is lame"
        elif self._referrals >= MAX_REFERRALS:
            refusal = f"more than {MAX_REFERRALS} referrals"
        elif not servers and not questions:
            shown = ", ".join(map(names.to_text, referral.servers[:3]))
            refusal = f"no address of {shown} is told with it that may be asked, nor can one be sought"
        if refusal:
            self._strike(attempt, Outcome.REFERRAL, f"referred to {names.to_text(referral.cut)}: {refusal}")
            return
        self._referrals += 1
        self._tcp = False
        if servers:
            self._start(servers, len(referral.cut))
        else:
            self._search = Search(attempt, referral.cut, questions)

    def _seek(self, search: Search) -> Attempt | None:
        """The next message of the search; None where it is over, and this question goes on or gives up."""
        while True:
            if (inner := self._inner) is not None:
                inner._tries = self._tries  # one budget for both
                attempt = inner.next()
                self._tries = inner._tries
                if attempt is not None:
                    return attempt
                self._inner = None
                if servers := usable(search.attempt.server, inner.addresses):
                    self._search = None
                    self._start(servers, len(search.cut))
                    return None
            if not search.questions:
                self._search = None
                shown = names.to_text(search.cut)
                self._strike(search.attempt, Outcome.REFERRAL, f"referred to {shown}: no address of its servers")
                return None
            server, rdtype = search.questions.pop(0)
            seeking = self._seeking | {names.fold(server)}
            self._inner = Exchange(server, self._top, self._randomness, rdtype=rdtype, seeking=seeking)

    def _strike(self, attempt: Attempt, outcome: Outcome, why: str) -> None:
        self._tcp = False
        self._last = outcome
        self._note(f"{attempt.server}: {why}")
        self._servers = tuple(server for server in self._servers if server != attempt.server)

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes = (*self._notes, text)


def _silence(attempt: Attempt) -> str:
    return f"{attempt.server}: no reply" + (" over TCP" if attempt.tcp else "")
