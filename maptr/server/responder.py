"""The responder: answers queries from a ``ServerState``, with ready responses and the general path."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from maptr.answer.arena import ID, kind_number, kind_of, truncated
from maptr.answer.context import Context, ReceivedQuery, Transport
from maptr.answer.message import Reply
from maptr.answer.ready import Ready, ZoneNames
from maptr.answer.rrl import Action, RateLimiter, RateLimits
from maptr.daemon.log_limit import LogLimit
from maptr.errors import ZoneError
from maptr.protocol.cookies import answer_cookie, packed_address, timestamp
from maptr.server.counters import Counters
from maptr.server.query_log import QueryLog
from maptr.transfer.session import Access, Answered, answer
from maptr.transfer.tsig import CheckedQuery, check_query
from maptr.zone.snapshot import Snapshot

log = logging.getLogger("maptr.serve")

Learn = Callable[[bytes, Reply], None]


@dataclass(frozen=True, slots=True, eq=False)
class ServerState:
    """Everything that responses depend on. A reload replaces the whole state."""

    snapshot: Snapshot
    access: Access
    context: Context
    names: ZoneNames = field(init=False)

    def __post_init__(self) -> None:
        catalog = [self.access.catalog.origin] if self.access.catalog else []
        object.__setattr__(self, "names", ZoneNames.of(self.snapshot, catalog))

    def ready(self, transport: Transport) -> Ready:
        """Return an empty cache of ready responses, for one thread."""
        return Ready(self.names, self.context.udp_payload if transport is Transport.UDP else None)

    def answer_cookie(
        self, cookie: bytes, address: bytes, stamp: bytes, counters: Counters
    ) -> tuple[bytes, bool] | None:
        """Return a ready response's cookie, and whether the client's is valid; None if the general path must answer.
        Counts the cookie. ``address`` is the client's, packed; ``stamp`` is the present ``timestamp``."""
        cookies = self.context.cookies
        option, verified = answer_cookie(cookie, address, cookies.secrets, stamp)
        if cookies.required and not verified:  # the general path responds with BADCOOKIE
            return None
        counters.count_cookie(verified=verified)
        return option, verified


class Responder:
    """Answers from ``state``, which ``swap`` replaces; until the first ``swap``, the server is starting.

    ``answer`` and ``answers`` are for one thread; ``general`` is thread-safe.
    """

    def __init__(
        self,
        context: Context,
        *,
        rrl: RateLimits = RateLimits(),  # noqa: B008 - it is frozen
        clock: Callable[[], float] = time.monotonic,
        query_log: QueryLog | None = None,
    ) -> None:
        self.query_log = query_log
        # The limiter needs a lock: each UDP socket has its own thread.
        self.limiter = RateLimiter(clock, threading.Lock(), rrl)
        self._reports = LogLimit(1, clock)
        self._refusals = LogLimit(clock=clock)
        self._errors = LogLimit(clock=clock)
        self.swap(ServerState(Snapshot.starting(), Access(), context))

    def swap(self, state: ServerState) -> None:
        """Replace the state. Raises OSError, and keeps the old state, if there is no memory for ready responses."""
        self._current = state, {transport: state.ready(transport) for transport in Transport}

    @property
    def state(self) -> ServerState:
        return self._current[0]

    def answer(self, query: ReceivedQuery, counters: Counters) -> bytes | None:
        """Return the first message of the response, or None for no response. Raises ZoneError as ``answers`` does."""
        return next(self.answers(query, counters), None)

    def answers(self, query: ReceivedQuery, counters: Counters) -> Iterator[bytes]:
        """Yield the messages of one response: none, one, or many for a transfer.

        Logs and raises a ZoneError if a transfer cannot continue. An internal error is logged and drops the query.
        """
        transport = query.transport
        state, of_transport = self._current
        ready = of_transport[transport]
        ready.tidy()
        found, more = self._find(state, ready, query, counters), None
        if found is None:
            more = self.general(state, query, counters, ready.learn)
            found = next(more, b"")
        first = found or None
        code = counters.count(transport, first)
        if self.query_log is not None and self.query_log.pick(1):
            self.query_log.write(query, code)
        if first is not None:
            yield first
            if more is not None:
                yield from more

    def general(self, state: ServerState, query: ReceivedQuery, counters: Counters, learn: Learn) -> Iterator[bytes]:
        """Verify, answer, limit and sign: yield the messages of the general path, or of a transfer.

        The caller counts and sends them. ``learn`` receives the general path's response and must belong to the same
        ``state``: a ready response of one state must not be learned from another. Raises as ``answers`` does.
        """
        begun = False
        try:
            checked = check_query(query, state.access.keys, int(state.context.clock()))
            answered = answer(checked, state.snapshot, state.access, state.context)
            self._log_answered(checked, answered)
            if (reply := answered.reply) is None:
                return
            if reply.cookie:
                counters.count_cookie(verified=reply.verified)
            learn(checked.query.wire, reply)
            for message in self._limit(checked, reply, answered.messages):
                yield checked.sign(message)
                begun = True
        except ZoneError as error:
            if (suffix := self._errors.suffix()) is not None:
                log.error("a transfer to %s ends early: %s%s", query.client, error, suffix)
            raise
        except Exception:
            self.log_internal_error(f"query dropped: {query.wire.hex()}")
            if begun:
                raise ZoneError("a transfer cut off") from None

    def log_internal_error(self, effect: str) -> None:
        """Log the current exception, at a limited rate, because every query may cause it."""
        if (suffix := self._errors.suffix()) is not None:
            log.exception("internal error, %s%s", effect, suffix)

    def report(self, client: str) -> None:
        """Log that the rate limit was reached, itself at a limited rate."""
        if self._reports.suffix() is not None:
            log.warning(
                "response rate limit reached (client %s among others): %d replies dropped, %d truncated"
                " since the start",
                *(client, self.limiter.tally.dropped, self.limiter.tally.truncated),
            )

    def _find(self, state: ServerState, ready: Ready, query: ReceivedQuery, counters: Counters) -> bytes | None:
        """Return the ready response, empty if the rate limit drops it; None if there is none."""
        wire, transport, client = query
        key = wire[ID:]
        known = ready.known.get(key)
        found = ready.find(key) if known is None else (known, b"")
        if found is None:
            return None
        record, cookie = found
        option, verified = b"", False
        if cookie:
            stamp = timestamp(state.context.clock())
            checked = state.answer_cookie(cookie, packed_address(client), stamp, counters)
            if checked is None:
                return None
            option, verified = checked
        if transport is Transport.UDP and not verified:
            action = self._judge(client, kind_of(record))
            if action is Action.DROP:
                return b""
            if action is Action.TRUNCATE:
                record = truncated(record)
        return ready.response(wire, record, option)

    def _limit(self, checked: CheckedQuery, reply: Reply, messages: Iterable[bytes]) -> Iterable[bytes]:
        """Return the messages that the rate limit lets through: all, a truncated response, or none."""
        if checked.query.transport is not Transport.UDP or reply.verified or checked.key is not None:
            return messages
        action = self._judge(checked.query.client, kind_number(reply.kind))
        if action is Action.SEND:
            return messages
        return (reply.truncated(),) if action is Action.TRUNCATE else ()

    def _judge(self, client: str, kind: int) -> Action:
        action = self.limiter.judge(client, kind)
        if action is not Action.SEND:
            self.report(client)
        return action

    def _log_answered(self, checked: CheckedQuery, answered: Answered) -> None:
        """Log a transfer and, at a limited rate because any client can cause it, a bad signature or a refusal."""
        event = answered.event
        if event is not None and not event.refused:
            log.info("%s of zone %s to %s: %s", *event[:4])
        elif event is not None and (suffix := self._refusals.suffix()) is not None:
            reason = f": {event.result}" if event.result else ""
            log.info("%s of zone %s to %s refused%s%s", *event[:3], reason, suffix)
        elif checked.error and (suffix := self._refusals.suffix()) is not None:
            log.info("query from %s with an invalid signature: %s%s", checked.query.client, checked.fault, suffix)
