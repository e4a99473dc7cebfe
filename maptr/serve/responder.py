"""Between the listeners and ``answer.py``: the context that replies depend on, and the rate limit on UDP."""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from maptr.context import NO_IDENTITY, Context, Identity, Transport
from maptr.cookies import CookieReply, CookieSettings, Hash, answer_cookie
from maptr.fastpath import ReadyAnswers
from maptr.limits import IDLE_TIMEOUT
from maptr.names import Labels
from maptr.protocol import UDP_PAYLOAD
from maptr.ready import Edns, Found
from maptr.rrl import RateLimiter, RrlSettings, Verdict
from maptr.serve.counters import Counters
from maptr.serve.hashing import make_shared_hash
from maptr.serve.seldom import Seldom
from maptr.siphash import KEY_SIZE
from maptr.snapshot import Snapshot

if TYPE_CHECKING:
    from maptr.rendering import Reply
    from maptr.serve.querylog import QueryLog

log = logging.getLogger("maptr.serve")


def fresh_cookies() -> CookieSettings:
    """Cookies of a secret made now: for one process that shares its addresses with no other."""
    return CookieSettings((os.urandom(KEY_SIZE),))


def make_ready(snapshot: Snapshot, context: Context, elsewhere: Iterable[Labels] = ()) -> ReadyAnswers:
    """The answers that lie ready for that context, none below ``elsewhere``. Takes a moment for a large zone."""

    def general(query: bytes, /, *, transport: Transport) -> Reply | None:
        return _general_path()(query, snapshot, transport=transport, context=context)

    edns = Edns(context.udp_payload, bool(context.cookies.secrets), bool(context.identity.nsid))
    return ReadyAnswers(snapshot, general, elsewhere, edns)


@functools.cache
def _general_path() -> Callable[..., Reply | None]:
    """``maptr.answer.make_reply``, imported when it is first needed: the first answers of a start need none of it."""
    from maptr.answer import make_reply

    return make_reply


class Responder:
    """Answers one query at a time. ``context`` may be replaced at any time, to rotate cookie secrets for one.

    Several workers are given equal cookie settings and each ``RrlSettings.shared(workers)``.
    """

    def __init__(
        self,
        *,
        identity: Identity = NO_IDENTITY,
        cookies: CookieSettings | None = None,
        rrl: RrlSettings | None = None,
        udp_payload: int = UDP_PAYLOAD,
        idle_timeout: float = IDLE_TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
        query_log: QueryLog | None = None,
    ) -> None:
        self.query_log = query_log
        self.context = Context(
            identity=identity,
            cookies=fresh_cookies() if cookies is None else cookies,
            clock=time.time,
            idle_timeout=idle_timeout,
            udp_payload=udp_payload,
            siphash=make_shared_hash(),
        )
        self.limiter = RateLimiter(rrl or RrlSettings(), clock, threading.Lock())  # of a thread for each socket
        self._reports = Seldom(1, clock)
        self.ready: ReadyAnswers | None = None

    def prepare(self, snapshot: Snapshot, elsewhere: Iterable[Labels] = ()) -> None:
        """Make answers from this snapshot fast, but not below ``elsewhere``. Takes a moment for a large zone."""
        self.ready = make_ready(snapshot, self.context, elsewhere)

    def find(self, query: bytes, snapshot: Snapshot) -> Found | None:
        """The ready reply to a query from that snapshot, if there is one."""
        ready = self.ready
        return ready.find(query) if ready is not None and ready.snapshot is snapshot else None

    def answer_cookie(self, cookie: bytes, client: str, siphash: Hash | None = None) -> CookieReply | None:
        """What goes back for a cookie; None where that is for the general path to say.

        ``siphash`` is for whoever has one of its own.
        """
        context = self.context
        secrets, required = context.cookies
        if not secrets:  # taken away a moment ago; what lies ready will follow
            return None
        reply = answer_cookie(cookie, client, secrets=secrets, now=context.clock(), siphash=siphash or context.siphash)
        return None if required and not reply.verified else reply

    def settle(
        self,
        found: Found,
        query: bytes,
        snapshot: Snapshot,
        transport: Transport,
        client: str,
        counters: Counters | None = None,
    ) -> bytes | None:
        """As ``answer`` for a ready reply: cookies and the rate limit are what it lacks."""
        option, verified = None, False
        if found.cookie is not None:
            cookie = self.answer_cookie(found.cookie, client)
            if cookie is None:
                return self.answer(query, snapshot, transport=transport, client=client, counters=counters)
            option, verified = cookie
            if counters is not None:
                counters.cookies[not verified] += 1
        if transport is not Transport.UDP or verified or self.limiter.is_exempt(client):
            return found.reply(query, option)
        verdict = self.limiter.judge(client, found.kind(query))
        if verdict is Verdict.SEND:
            return found.reply(query, option)
        self.report(client)
        return found.truncated(query, option) if verdict is Verdict.TRUNCATE else None

    def answer(
        self,
        query: bytes,
        snapshot: Snapshot,
        *,
        transport: Transport,
        client: str,
        reserve: int = 0,
        rcode: int | None = None,
        verified: bool = False,
        counters: Counters | None = None,
    ) -> bytes | None:
        """The octets to send, or None for silence.

        ``reserve`` and ``rcode`` as in ``make_reply``; ``verified``: the client showed who it is, so has no limit.
        Its cookie is counted among ``counters``.
        """
        reply = _general_path()(
            query,
            snapshot,
            transport=transport,
            client=client,
            context=self.context,
            reserve=reserve,
            rcode=rcode,
        )
        if reply is not None and reply.cookie and counters is not None:
            counters.cookies[not reply.verified] += 1
        if reply is None or transport is not Transport.UDP or reply.verified or verified:
            return None if reply is None else reply.wire
        verdict = self.limiter.judge(client, reply.kind)
        if verdict is Verdict.SEND:
            return reply.wire
        self.report(client)
        return reply.truncated() if verdict is Verdict.TRUNCATE else None

    def report(self, client: str) -> None:
        """Say in the log, once in a while, that the limit was reached."""
        if self._reports.left_out() is not None:
            log.warning(
                "response rate limit reached, by %s for one: since the start %d replies dropped, %d truncated",
                client,
                self.limiter.tally.dropped,
                self.limiter.tally.truncated,
            )
