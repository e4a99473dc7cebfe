"""One question to DNS servers, without I/O: decides which server to query next, and what follows from each response.

A driver (``multiplexer``) sends the query that ``next()`` returns, reports to the attempt's exchange what came back,
and stops when ``answer`` is set.

    for each round, for each server that is not struck off:
        query over UDP; over TCP after a truncated response, and again if the server closes the connection early;
            without EDNS if the server does not support it; in the letter case of the response if that differs
        an answer, or "no such name": done
        no response in time: the next server, or the same again; a late response also counts if it makes progress
        failed, by the only server: once more
        refused, failed, malformed, lame: strike the server off
        a referral towards the name: start again at the addresses (glue) that it gives
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from maptr import url
from maptr.discovery import Outcome
from maptr.protocol import names
from maptr.protocol.extended_error import ExtendedError
from maptr.protocol.names import Labels
from maptr.protocol.numbers import BADVERS, FORMERR, MAX_TTL, NOTIMP, REFUSED, SERVFAIL
from maptr.resolver.message import (
    DnsResponse,
    Referral,
    SentQuery,
    Truncated,
    is_response_to,
    make_query,
    read_response,
    restore_case,
    spelled_name,
)
from maptr.resolver.servers import CaseBlind, ResolverOptions, Server, ServerFailure
from maptr.walk import TIME_OVER, Answer

_new = tuple.__new__  # faster than the class itself: scripts/bench client

FIRST_SECONDS = 1.0  # for the first response of a server; doubled in each round (RFC 1536 1, RFC 1035 4.2.1)
TCP_TRIPS, TLS_TRIPS = 2, 3  # round trips to a response: connection, keys (RFC 8446 2), query
ROUNDS = 3
MAX_TRIES = 32  # queries for one question: all servers, rounds, referrals and aliases together
MAX_CLOSED = 4  # TCP connections closed without a response that are opened again for one question
MAX_ALIASES = 8  # CNAMEs whose target one server leaves to a further query
MAX_REFERRALS = 8  # down from the servers given; a domain name below ark.arpa rarely has two zone cuts
TRAILING = "bytes after the last record are ignored"
NOTE_LENGTH = 500  # characters of failures in a note
MAX_EXTENDED = 8  # extended errors of one question, and of one response


class Attempt(NamedTuple):
    """One query to one server, how many seconds to wait for the response, its exchange, and its number there."""

    server: Server
    query: SentQuery
    tcp: bool
    seconds: float
    exchange: Exchange
    number: int


class StubOptions(NamedTuple):
    """The servers that may answer, and how to query them. Exchanges share it.

    ``case_blind`` are servers queried without 0x20. With ``trust_ad``, the servers' AD bit counts; ``dnssec`` asks for
    the signatures that validation needs. ``options`` may have other limits than FIRST_SECONDS and ROUNDS.
    """

    servers: tuple[Server, ...]
    case_blind: CaseBlind
    trust_ad: bool = False
    dnssec: bool = False
    options: ResolverOptions = ResolverOptions()
    random_bytes: Callable[[int], bytes] = os.urandom


class _Aliases(NamedTuple):
    """The CNAMEs from ``name`` that were followed: the note about them, whether all are authentic, their lowest TTL."""

    name: Labels = ()
    note: str = ""
    authentic: bool = True
    ttl: int = MAX_TTL
    followed: int = 0


class _Turns:
    """The servers queried in turn, from the first round on; ``cut`` is the number of labels of their zone cut.

    Attempts up to number ``past`` were made earlier. ``spellings`` has the name as each server spelled it in a
    response.
    """

    __slots__ = ("cut", "index", "may_repeat", "past", "round", "servers", "spellings", "tcp")

    def __init__(self, servers: tuple[Server, ...], cut: int, past: int) -> None:
        self.servers = servers
        self.cut = cut
        self.past = past
        self.round = self.index = 0
        self.tcp = False
        self.may_repeat = len(servers) == 1  # its failure may be brief, so it is asked once more
        self.spellings: dict[Server, bytes] = {}


class _Failures(NamedTuple):
    """How the last query that failed ended, the notes of all, and whether a trusted server said that data is bogus.

    ``extended`` are the extended errors of all.
    """

    last: Outcome = Outcome.TIMEOUT
    notes: tuple[str, ...] = ()
    bogus: bool = False
    extended: tuple[ExtendedError, ...] = ()

    def with_last(self, last: Outcome, note: str) -> _Failures:
        return self._replace(last=last, notes=(*self.notes, note))


class Exchange:
    """One question to DNS servers; ``answer`` is None until it is settled.

    With ``dnssec``, ``packet`` is then the response, and its aliases are not followed.
    """

    answer: Answer | None = None
    packet = b""
    _plain: frozenset[Server] = frozenset()  # servers without EDNS
    _tries = _referrals = _closed = 0
    _aliases = _Aliases()
    _failures = _Failures()

    def __init__(self, name: Labels, rdtype: int, stub: StubOptions) -> None:
        self._name = name  # or that to which CNAMEs led
        self._rdtype = rdtype
        self._stub = stub
        self._turns = _Turns(stub.servers, 0, 0)
        if not stub.servers:
            self.answer = Answer(Outcome.UNREACHABLE, note="no server to ask")

    def next(self) -> Attempt | None:
        """Return the query to send now; None if the question is settled."""
        if self.answer is not None:
            return None
        stub, turns = self._stub, self._turns
        if turns.index >= len(turns.servers):
            turns.index, turns.round = 0, turns.round + 1
        rounds = stub.options.attempts or ROUNDS
        if not turns.servers or turns.round >= rounds or self._tries >= MAX_TRIES:
            self.answer = self._failure(self._failures.last, self._failures.notes)
            return None
        self._tries += 1
        server = turns.servers[turns.index]
        tcp = turns.tcp or server.tcp
        trips = TLS_TRIPS if server.tls else TCP_TRIPS if tcp else 1
        seconds = stub.options.timeout or FIRST_SECONDS * trips * 2**turns.round
        # The last of several rounds is without 0x20, for a network that drops such queries or their responses.
        is_mixed = turns.round < max(1, rounds - 1) and not tcp and server not in stub.case_blind
        sent = make_query(
            self._name,
            stub.random_bytes,
            mix=is_mixed,
            spelling=turns.spellings.get(server, b""),
            rdtype=self._rdtype,
            edns=server not in self._plain,
            ask_ad=stub.trust_ad,
            dnssec=stub.dnssec,
        )
        return _new(Attempt, (server, sent, tcp, seconds, self, self._tries))

    def receive(self, attempt: Attempt, packet: bytes) -> bool:
        """Process a packet. Returns False if it is not a response to this attempt; the driver then keeps waiting.

        Late responses, to earlier attempts of these turns, count if they make progress; others do not, because another
        query is on its way.
        """
        if self.answer is not None:
            return False
        if attempt.number == self._tries:
            return self._process(attempt, packet)
        turns = self._turns
        if attempt.number <= turns.past or attempt.server not in turns.servers:
            return False
        if not self._process(attempt, packet, late=True):
            return False
        if attempt.server in turns.servers:  # if not, it was struck off
            turns.index = turns.servers.index(attempt.server)  # what follows is asked there
        return True

    def _process(self, attempt: Attempt, packet: bytes, late: bool = False) -> bool:
        query = attempt.query
        if not is_response_to(query, packet, any_case=attempt.tcp):
            return self._respell(attempt, packet)
        packet = restore_case(query, packet)
        try:
            response = read_response(query, packet)
        except Truncated:
            if late and self._turns.tcp:
                return False
            if attempt.tcp:
                self._strike(attempt.server, Outcome.MALFORMED, "the response is truncated over TCP")
            self._turns.tcp = not attempt.tcp
            return True
        except ValueError as error:
            if not late:
                self._strike(attempt.server, Outcome.MALFORMED, f"the response cannot be read: {error}")
            return not late
        outcome = response.outcome
        if outcome.answered or (self._stub.dnssec and response.alias is not None):
            self._end_with(attempt, response)
            self.packet = packet
        elif outcome is Outcome.REFERRAL:
            if response.alias is not None:
                self._follow_alias(attempt, response, response.alias)
            elif response.referral is not None:
                self._follow_referral(attempt, response.referral)
        elif response.rcode in (FORMERR, NOTIMP, BADVERS) and attempt.server not in self._plain:
            self._plain |= {attempt.server}  # RFC 6891 6.2.2 and 7: a server without EDNS
        elif late:
            return False
        elif response.rcode == SERVFAIL and self._turns.may_repeat and not response.bogus:
            self._turns.may_repeat = False
        else:
            if response.bogus and self._stub.trust_ad:
                self._failures = self._failures._replace(bogus=True)
            outcome = Outcome.REFUSED if response.rcode == REFUSED else Outcome.SERVFAIL
            extended = tuple(dict.fromkeys((*self._failures.extended, *response.extended)))
            self._failures = self._failures._replace(extended=extended[:MAX_EXTENDED])
            reasons = (f"rcode {response.rcode}", *map(str, response.extended[:MAX_EXTENDED]))
            self._strike(attempt.server, outcome, ", ".join(reasons))
        return True

    def _respell(self, attempt: Attempt, packet: bytes) -> bool:
        """Ask again in the letter case of a response that differs from the query only in that, once for each server.

        Such a response is not read, because forging one takes fewer guesses.
        """
        server, spellings = attempt.server, self._turns.spellings
        if attempt.tcp or server in spellings or not is_response_to(attempt.query, packet, any_case=True):
            return False
        spellings[server] = spelled_name(attempt.query, packet)
        self._stub.case_blind.add(server)
        return True

    def timed_out(self, attempt: Attempt) -> None:
        """Record that no response came within the seconds of the attempt."""
        self._turns.tcp = False
        self._turns.index += 1
        note = f"{attempt.server}: no reply" + (" over TCP" if attempt.tcp else "")
        self._failures = self._failures.with_last(Outcome.TIMEOUT, note)

    def closed_early(self, attempt: Attempt) -> None:
        """Record that the server closed the TCP connection without a response: it may have too many, so ask again."""
        self._closed += 1
        if self._closed > MAX_CLOSED:
            self._strike(attempt.server, Outcome.UNREACHABLE, "the server closes the TCP connection early")

    def unreachable(self, attempt: Attempt, why: object) -> None:
        """Record an error of the operating system about the server."""
        self._strike(attempt.server, Outcome.UNREACHABLE, str(why))

    def skipped(self, attempt: Attempt, failure: ServerFailure) -> None:
        """Record that the attempt was not sent, because the server failed a moment ago."""
        self._strike(attempt.server, failure.outcome, f"{failure.why} a moment ago, so not asked again yet")

    def unanswered(self) -> Answer:
        """Return the answer for a walk whose time is over."""
        return self._failure(Outcome.TIMEOUT, self._failures.notes or (TIME_OVER,))

    def _failure(self, outcome: Outcome, notes: Iterable[str]) -> Answer:
        security, through = "bogus" if self._failures.bogus else "indeterminate", self._aliases.note
        first = [f"{through}, without recursion"] if through else []
        note = "; ".join(dict.fromkeys([*first, *notes]))[:NOTE_LENGTH]
        return Answer(outcome, note=note, security=security, extended=self._failures.extended)

    # ---- what a response leads to

    def _end_with(self, attempt: Attempt, response: DnsResponse) -> None:
        security, aliases = "indeterminate", self._aliases
        if self._stub.trust_ad:
            security = "secure" if aliases.authentic and self._is_authentic(attempt, response) else "insecure"
        ttl = None if response.ttl is None else min(response.ttl, aliases.ttl)
        note = response.note or aliases.note
        if response.trailing:
            note = f"{note}; {TRAILING}" if note else TRAILING
        zone = aliases.name if aliases.followed else response.zone
        asked = str(attempt.server)
        self.answer = _new(Answer, (response.outcome, response.records, ttl, note, asked, None, security, (), zone, ()))

    def _is_authentic(self, attempt: Attempt, response: DnsResponse) -> bool:
        """Return whether a server that the caller trusts, not one from a referral, says that its data is authentic."""
        return response.authentic and attempt.server in self._stub.servers

    def _follow_alias(self, attempt: Attempt, response: DnsResponse, target: Labels) -> None:
        """Ask for the target, at the first servers: it may be anywhere (RFC 1034 3.6.2)."""
        past = self._aliases
        if past.followed >= MAX_ALIASES:
            self._strike(attempt.server, Outcome.MALFORMED, f"more than {MAX_ALIASES} CNAMEs")
            return
        authentic = past.authentic and self._is_authentic(attempt, response)
        ttl = past.ttl if response.ttl is None else min(past.ttl, response.ttl)
        self._aliases = _Aliases(past.name or self._name, response.note, authentic, ttl, past.followed + 1)
        self._name = target
        self._turns = _Turns(self._stub.servers, 0, self._tries)

    def _follow_referral(self, attempt: Attempt, referral: Referral) -> None:
        """Ask the servers below the cut, which must be further down and towards the name (RFC 1034 5.3.3 4b)."""
        servers = _usable_servers(attempt.server, referral.addresses)
        refusal = ""
        if not names.is_below(self._name, referral.cut) or len(referral.cut) <= self._turns.cut:
            refusal = "not closer to the name, so this server is lame"
        elif self._referrals >= MAX_REFERRALS:
            refusal = f"more than {MAX_REFERRALS} referrals"
        elif not servers:
            refusal = f"no usable address of {', '.join(map(names.to_text, referral.servers[:3]))} in the response"
        if refusal:
            self._strike(attempt.server, Outcome.REFERRAL, f"referred to {names.to_text(referral.cut)}: {refusal}")
            return
        self._referrals += 1
        self._turns = _Turns(servers, len(referral.cut), self._tries)

    def _strike(self, asked: Server, outcome: Outcome, why: str) -> None:
        turns = self._turns
        turns.tcp = False
        turns.index -= turns.servers[: turns.index].count(asked)
        turns.servers = tuple(server for server in turns.servers if server != asked)
        self._failures = self._failures.with_last(outcome, f"{asked}: {why}")


def _usable_servers(asked: Server, addresses: Sequence[str]) -> tuple[Server, ...]:
    """Return the servers at these addresses; local ones only if the server that named them is local.

    None of them if that one was queried over TLS, because it is not known which certificates the others have.
    """
    if asked.tls:
        return ()
    if not url.is_local(asked.address):
        addresses = [text for text in addresses if not url.is_local(text)]
    return tuple(Server(text, asked.port, asked.tcp) for text in addresses)
