"""One question put to plain DNS servers until one of them says: which server next, how, and what its reply means.

Without I/O, as ``walk`` is: a driver sends what ``next()`` gives, tells what came back, and stops at ``answer``.
``stub`` drives one at a time, ``bulk`` hundreds side by side.

    for each round, for each server that is not struck off:
        ask by UDP; by TCP where the reply is truncated; without EDNS where the server does not know it
        an answer, or "no such name": done           no reply in time: the next server
        refused, failed, unreadable, lame: struck off
        a referral further down: the servers named there, from the first round
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from maptr import names, url, wire
from maptr.attempt import Asked, Attempt, Server
from maptr.discovery import Outcome
from maptr.names import Labels
from maptr.protocol import AAAA, BADVERS, FORMERR, MAX_TTL, NAPTR, NOTIMP, REFUSED, YXDOMAIN, A
from maptr.question import TIME_OVER
from maptr.walk import Answer
from maptr.wire import Referral, Reply

RandomBytes = Callable[[int], bytes]

FIRST_SECONDS = 1.0  # for the first reply of a server; doubled each round (RFC 1536 1, RFC 1035 4.2.1)
ROUNDS = 3
MIXED_ROUNDS = 2  # rounds with 0x20; the last is without, for the rare server that does not echo the case
MAX_REFERRALS = 8  # down from the servers given; a domain name below ark.arpa rarely has two zone cuts
MAX_TRIES = 32  # packets for one question, all servers, rounds, referrals and aliases together
MAX_SOUGHT = 3  # servers of one referral whose addresses are sought where none is told with it
MAX_SEARCH_DEPTH = 2  # searches for the sake of a search
MAX_ALIASES = 8  # CNAMEs that one server leaves to be asked for separately
NOTE_LENGTH = 500  # characters of failures kept in a note


__all__ = [
    "FIRST_SECONDS",
    "MAX_ALIASES",
    "MAX_REFERRALS",
    "MAX_SEARCH_DEPTH",
    "MAX_SOUGHT",
    "MAX_TRIES",
    "ROUNDS",
    "Asked",
    "Attempt",
    "Exchange",
    "RandomBytes",
    "Server",
]


class Exchange:
    """One question under way; ``answer`` is None until it is settled.

    With ``dnssec``, for whoever validates, ``packet`` is then the reply, its aliases not followed. ``addresses`` are
    what a question for A or AAAA gave. ``seeking``: the servers whose addresses this question is part of finding.
    """

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
        self.answer: Answer | None = None
        self.addresses: tuple[str, ...] = ()
        self.packet = b""
        self._rdtype = rdtype
        self._dnssec = dnssec
        self._seeking = seeking
        self._search: _Search | None = None
        self._top = tuple(servers)
        self._randomness = randomness
        self._trust_ad = trust_ad
        self._asking = name
        self._start(self._top, cut=0)
        self._plain: set[Server] = set()
        self._notes: dict[str, None] = {}
        self._last = Outcome.TIMEOUT
        self._tries = self._referrals = self._aliases = 0
        self._tcp = False
        self._bogus = False
        self._vouched = True  # every alias on the way
        self._through = ""
        self._ttl = MAX_TTL
        if not servers:
            self.answer = Answer(Outcome.UNREACHABLE, note="no server to ask")

    def _start(self, servers: Sequence[Server], cut: int) -> None:
        self._servers = list(servers)
        self._cut = cut  # labels of the zone these servers were named for
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
        return Attempt(server, query, self._tcp, FIRST_SECONDS * 2**self._round)

    def hear(self, attempt: Attempt, packet: bytes) -> bool:
        """What came back; False where it is no reply to this attempt and the driver is to go on waiting."""
        if self._search is not None and self._search.exchange is not None:
            return self._search.exchange.hear(attempt, packet)
        if not wire.answers(attempt.query, packet):
            return False
        try:
            reply = wire.read(attempt.query, packet)
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
            self._settle(attempt, reply._replace(outcome=Outcome.NXDOMAIN, note="a DNAME makes the name too long"))
        elif reply.rcode in (FORMERR, NOTIMP, BADVERS) and attempt.server not in self._plain:
            self._plain.add(attempt.server)  # RFC 6891 6.2.2 and 7: a server without EDNS
        else:
            self._bogus |= reply.bogus and self._trust_ad
            outcome = Outcome.REFUSED if reply.rcode == REFUSED else Outcome.SERVFAIL
            self._strike(attempt, outcome, f"rcode {reply.rcode}")
        return True

    def silent(self, attempt: Attempt) -> None:
        """No reply in the attempt's seconds."""
        if self._search is not None and self._search.exchange is not None:
            self._search.exchange.silent(attempt)
            return
        self._tcp = False
        self._turn += 1
        self._last = Outcome.TIMEOUT
        self._notes[_silence(attempt)] = None

    def unreachable(self, attempt: Attempt, why: object) -> None:
        """The system says that the server cannot be asked."""
        if self._search is not None and self._search.exchange is not None:
            self._search.exchange.unreachable(attempt, why)
            return
        self._strike(attempt, Outcome.UNREACHABLE, str(why))

    def expire(self) -> None:
        """Settle it without an answer, because the walk's time is over."""
        self.answer = self.unanswered(None)

    def unanswered(self, attempt: Attempt | None) -> Answer:
        """What it comes to for a walk whose time is over now, while ``attempt`` waits for its reply."""
        notes = dict(self._notes)
        if attempt is not None and (self._search is None or self._search.exchange is None):
            notes[_silence(attempt)] = None
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
        ttl = reply.ttl if reply.ttl is None else min(reply.ttl, self._ttl)
        note = reply.note or self._through
        self.addresses = reply.addresses
        self.answer = Answer(reply.outcome, reply.records, ttl, note, str(attempt.server), security=security)

    def _vouches(self, attempt: Attempt, reply: Reply) -> bool:
        """Whether a server that the caller trusts says that its reply is authentic; not one that another told of."""
        return reply.authentic and attempt.server in self._top

    def _truncated(self, attempt: Attempt) -> None:
        if attempt.tcp:
            self._strike(attempt, Outcome.MALFORMED, "the reply is truncated over TCP")
        else:
            self._tcp = True

    def _onward(self, attempt: Attempt, reply: Reply) -> None:
        """To the servers below a zone cut, or from an alias to its target, which starts at the top again."""
        if reply.alias is not None:
            self._aliases += 1
            if self._aliases > MAX_ALIASES:
                self._strike(attempt, Outcome.MALFORMED, f"more than {MAX_ALIASES} CNAMEs")
                return
            self._asking, self._through, self._tcp = reply.alias, reply.note, False
            self._vouched &= self._vouches(attempt, reply)
            self._ttl = min(self._ttl, MAX_TTL if reply.ttl is None else reply.ttl)
            self._start(self._top, cut=0)
            return
        referral = reply.referral
        assert referral is not None  # noqa: S101 - wire.read sets one of the two
        refusal = self._refusal(attempt, referral)
        if refusal:
            self._strike(attempt, Outcome.REFERRAL, f"referred to {names.to_text(referral.cut)}: {refusal}")
            return
        self._referrals += 1
        self._tcp = False
        if usable := self._usable(attempt, referral.addresses):
            self._start([Server(text, attempt.server.port) for text in usable], len(referral.cut))
        else:
            self._search = _Search(attempt, referral.cut, self._sought(referral))

    def _refusal(self, attempt: Attempt, referral: Referral) -> str:
        """Why a referral is not followed: it must lead down, and towards the name."""
        if not names.is_below(self._asking, referral.cut) or len(referral.cut) <= self._cut:
            return "not further down, so this server is lame"
        if self._referrals >= MAX_REFERRALS:
            return f"more than {MAX_REFERRALS} referrals"
        if not self._usable(attempt, referral.addresses) and not self._sought(referral):
            shown = ", ".join(map(names.to_text, referral.servers[:3]))
            return f"no address of {shown} is told with it that may be asked, nor can one be sought"
        return ""

    @staticmethod
    def _usable(attempt: Attempt, addresses: Sequence[str]) -> list[str]:
        """Addresses we may ask: local ones only where the server that names them is local itself."""
        if _is_local(attempt.server.address):
            return list(addresses)
        return [text for text in addresses if not _is_local(text)]

    # ---- servers told without an address

    def _sought(self, referral: Referral) -> list[tuple[Labels, int]]:
        """The questions that may find an address: none about a server below the very cut, or sought already."""
        if referral.addresses or len(self._seeking) >= MAX_SEARCH_DEPTH:
            return []
        found = [
            server
            for server in referral.servers
            if not names.is_below(server, referral.cut) and names.fold(server) not in self._seeking
        ]
        return [(server, rdtype) for server in found[:MAX_SOUGHT] for rdtype in (A, AAAA)]

    def _seek(self, search: _Search) -> Attempt | None:
        """The next message of the search; None where it is over, and this question goes on or gives up."""
        while True:
            exchange = search.exchange
            if exchange is not None:
                exchange._tries = self._tries
                attempt = exchange.next()
                self._tries = exchange._tries
                if attempt is not None:
                    return attempt
                search.exchange = None
                if usable := self._usable(search.attempt, exchange.addresses):
                    self._search = None
                    self._start([Server(text, search.attempt.server.port) for text in usable], len(search.cut))
                    return None
            if not search.questions:
                self._search = None
                shown = names.to_text(search.cut)
                self._strike(search.attempt, Outcome.REFERRAL, f"referred to {shown}: no address of its servers")
                return None
            server, rdtype = search.questions.pop(0)
            seeking = self._seeking | {names.fold(server)}
            search.exchange = Exchange(server, self._top, self._randomness, rdtype=rdtype, seeking=seeking)

    def _strike(self, attempt: Attempt, outcome: Outcome, why: str) -> None:
        self._tcp = False
        self._last = outcome
        self._note(attempt, why)
        if attempt.server in self._servers:
            self._servers.remove(attempt.server)

    def _note(self, attempt: Attempt, why: str) -> None:
        self._notes[f"{attempt.server}: {why}"] = None


class _Search:
    """The addresses of a zone's servers are sought, at the servers first given; ``questions`` are still to ask."""

    __slots__ = ("attempt", "cut", "exchange", "questions")

    def __init__(self, attempt: Attempt, cut: Labels, questions: list[tuple[Labels, int]]) -> None:
        self.attempt = attempt
        self.cut = cut
        self.questions = questions
        self.exchange: Exchange | None = None


def _silence(attempt: Attempt) -> str:
    return f"{attempt.server}: no reply" + (" over TCP" if attempt.tcp else "")


def _is_local(address: str) -> bool:
    return url.parse_host(f"[{address.partition('%')[0]}]" if ":" in address else address).is_local
