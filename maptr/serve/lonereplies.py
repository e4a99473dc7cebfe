"""What is sent to a query that came alone by UDP (``alone.py``), where the shortest way does not know: no socket.

Whole replies to letters in another case and to cookies (``wholes.py``), then plans, then nothing; the rate limit, and
what is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from maptr.context import Transport
from maptr.cookies import NO_COOKIE
from maptr.fastpath import ReadyAnswers
from maptr.rrl import Verdict
from maptr.serve.clients import Clients
from maptr.serve.counters import SILENCE as UNANSWERED
from maptr.serve.counters import Counters
from maptr.serve.hashing import make_hash
from maptr.serve.plan import BAD_VERSION, HEAD, truncated, whole
from maptr.serve.plans import Plans
from maptr.serve.responder import Responder
from maptr.serve.wholes import Wholes

NO_ANSWERS = b"\0\0"  # where a header counts them


class LoneReplies:
    """For one thread. ``plans`` gives those of this moment, ``others`` counts what may be a flood: see ``alone.py``."""

    def __init__(self, responder: Responder, counters: Counters, plans: Callable[[], Plans | None]) -> None:
        self.wholes = Wholes()
        self.clients: Clients[str] = Clients()
        self.others = 0
        self._responder = responder
        self._counters = counters
        self._plans = plans
        self._answer_cookie, self._siphash = responder.answer_cookie, make_hash()

    def turn_to_now(self) -> ReadyAnswers | None:
        """What replies are made of now; those made of something before are forgotten."""
        ready = self._responder.ready
        self.wholes.turn_to(ready)
        return ready

    def find(self, octets: bytes, client: str) -> bytes | None:
        """The reply to a query, both without ID, that is known whole and may go; counted."""
        wholes = self.wholes
        found = wholes.find(octets)
        if found is None:
            return None
        reply, key, option = found
        cookie = self._answer_cookie(option, client, self._siphash) if option else NO_COOKIE
        if cookie is None or self._responder.ready is not wholes.ready:
            return None
        if not cookie.verified and client not in self.clients.exempt:
            network, kind = self.clients.networks.get(client), wholes.kinds.get(key)
            if network is None or kind is None or not self._responder.limiter.passes(network, kind):
                return None
        self._counters.alone[reply[1]] += 1
        if not option:
            return reply
        self._counters.cookies[not cookie.verified] += 1
        return reply + cookie.option

    def make(self, octets: bytes, client: str) -> bytes | None:
        """After ``find``, a reply by its plan, kept and counted; empty if none shall go, None if others make it."""
        known = self._plans()
        plan, option = (None, b"") if known is None else known.tables.find_alone(octets)
        cookie = self._answer_cookie(option, client, self._siphash) if option else NO_COOKIE
        # What is counted otherwise than its header says goes as a batch.
        if plan is None or known is None or cookie is None or plan[BAD_VERSION]:
            self.others += 1
            return None
        kind = known.kind(plan, octets)
        verdict = Verdict.SEND if cookie.verified else self._judge(client, kind)
        if verdict is Verdict.DROP:
            self._counters.count_batch(1)
            self._counters.silent += 1
            self._counters.count_one_ready(Transport.UDP, UNANSWERED)
            return b""
        self._counters.alone[plan[HEAD + 1]] += 1
        if option:
            self._counters.cookies[not cookie.verified] += 1
        if plan[HEAD + 4 : HEAD + 6] == NO_ANSWERS:
            self.others += 1
            reply = self.wholes.make_shared(plan, octets)
        else:
            reply = whole(plan, octets)
        if known.ready is self.wholes.ready:
            asked = octets[: len(octets) - len(option)]
            self.wholes.learn(asked, reply, kind, cookie=bool(option))
        if verdict is Verdict.TRUNCATE:
            reply = whole(truncated(plan), octets)
        return reply + cookie.option

    def _judge(self, client: str, kind: Hashable) -> Verdict:
        """What the rate limit makes of a reply."""
        clients, limiter = self.clients, self._responder.limiter
        if client in clients.exempt:
            return Verdict.SEND
        network = clients.networks.get(client) or clients.remember(client, limiter.network(client))
        over = [] if network is None else [*limiter.judge_each([(network, kind)])]
        if over:
            self._responder.report(client)
        return over[0][1] if over else Verdict.SEND
