"""BatchReplies: what is sent to a batch of queries that lie in slots, laid out there for one call. No socket.

Nothing but a key is made for a query whose answer is known by its octets: such an answer is a *plan* in one bytes
object (``plan.py``), so a batch of them is one join, one copy and four strided copies (``slots.py``). For others plans
are made on the way: of replies that lie ready, of cookies, of what the general path says, and of the rate limit's no.
Cookies are hashed for all queries of a batch together, and replies counted together.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Hashable, Sequence

from maptr.context import Transport
from maptr.protocol import FORMERR, NOERROR, NXDOMAIN, REFUSED
from maptr.ready import HEADER
from maptr.rrl import Verdict
from maptr.serve.clients import Clients
from maptr.serve.counters import BADVERS, Counters
from maptr.serve.counters import SILENCE as UNANSWERED
from maptr.serve.jar import CookieJar
from maptr.serve.plan import BAD_VERSION, HEAD, ID, PLAN, SILENCE, own, truncated
from maptr.serve.plans import Plans
from maptr.serve.responder import Responder
from maptr.serve.slots import AREA, BATCH, START, Slots, key_of
from maptr.serve.udp import Answer

log = logging.getLogger("maptr.serve")

# Rcodes but NOERROR, by how often they come.
OTHER_CODES = (NXDOMAIN, REFUSED, FORMERR, *sorted({*range(1, 16)} - {NXDOMAIN, REFUSED, FORMERR}))

# The general path takes twenty times what a plan does. Where so many full batches came in a row, more wait than can be
# answered, so of each only so many take it: a flood of what has no ready reply shall not keep the others' queries out.
MAX_FULL = 8  # a thousand queries at once
MAX_GENERAL = 16

UDP = Transport.UDP
NONE: Sequence[int] = ()


class BatchReplies:
    """For the thread of one listener. ``general`` answers what does not lie ready.

    ``all_known`` says whether all queries of the last batch had plans.
    """

    def __init__(
        self,
        slots: Slots,
        responder: Responder,
        general: Answer,
        counters: Counters,
        *,
        family: socket.AddressFamily,
        anywhere: bool,
    ) -> None:
        self.all_known = False
        self._slots = slots
        self._responder = responder
        self._general = general
        self._counters = counters
        self._results = counters.results(UDP)
        self._family = family
        self._anywhere = anywhere
        self._plans: Plans | None = None
        self._jar = CookieJar(slots)
        self._clients: Clients[Hashable] = Clients()
        self._full = 0  # batches in a row
        # Of the batch at hand:
        self._general_left = 0  # queries that may still take the general path
        self._cookies = False  # whether replies have any
        self._longer = NONE  # queries that are longer than a slot
        self._made: dict[int, int] = {}  # the rcodes of replies that are counted elsewhere

    def plans(self) -> Plans | None:
        """The plans of what is answered from now; None while there are no zones."""
        ready = self._responder.ready
        if ready is None:
            return None
        if self._plans is None or self._plans.ready is not ready:
            self._plans = Plans(ready)
        return self._plans

    def lay_out(self, known: Plans, count: int) -> Sequence[int]:
        """Lay out the replies to the first queries, and count them. Which of these get none.

        They last until ``known.sent()``.
        """
        self._cookies, self._longer = False, NONE
        if self._made:  # of a batch that a bug has cost
            self._made.clear()
        self._full = self._full + 1 if count == BATCH else 0
        self._general_left = count if self._full <= MAX_FULL else MAX_GENERAL
        slots = self._slots
        queries = slots.keys(count)
        plans = [*map(known.tables.known.get, queries)]
        settled = None
        self.all_known = all(plans)
        if not self.all_known:
            settled = self._fill(known, plans, queries, slots.lengths[count].tolist())
        exempt = self._clients.exempt
        if slots.only_client(count) not in exempt and not exempt.issuperset(clients := slots.clients(count)):
            settled = settled or set()
            self._limit(known, plans, queries, clients, settled)
        joined = b"".join(plans)  # type: ignore[arg-type]
        slots.memory[slots.plans : slots.plans + len(joined)] = joined
        for to, of in slots.fields[count]:
            to[:] = of
        if self._cookies:
            to, of = slots.copy_cookie_places[count]
            to[:] = of
        for i in self._longer:
            slots.make_whole(i)
        if self._anywhere:
            self._answer_from_where_it_came(count)
        silent = sorted(i for i in settled if plans[i] is SILENCE) if settled else []
        # Before they are sent, so that whoever has a reply finds it counted, even if this process is killed meanwhile.
        self._count(count, joined, len(silent))
        return silent

    def _answer_from_where_it_came(self, count: int) -> None:
        """Send from the addresses that the queries of a batch came to."""
        to, of = self._slots.copy_control[count]
        to[:] = of
        self._slots.no_interface[0][:] = self._slots.no_interface[1]

    def _fill(self, known: Plans, plans: list[bytes | None], queries: list[bytes], sizes: list[int]) -> set[int]:
        """Plans for the queries of a batch that are not known by their octets.

        Which of them the rate limit has judged, or does not concern.
        """
        settled: set[int] = set()
        which = [i for i, plan in enumerate(plans) if plan is None]
        self._longer = [i for i in which if sizes[i] > START]
        for i in self._longer:
            key = queries[i] = key_of(queries[i][: START - ID] + self._slots.rest(i, sizes[i]))
            plans[i] = known.tables.known.get(key)
        if self._longer:
            which = [i for i in which if plans[i] is None]
        missed, asked = known.tables.fill(which, plans, queries, sizes)
        self.all_known = not missed
        for i in missed:
            plans[i], cookie = self._look_up(known, i, self._whole(i, queries[i], sizes[i]), settled)
            if cookie is not None:
                asked.append((i, cookie))
        if asked:
            self._cookies = True
            self._answer_cookies(asked, plans, queries, sizes, settled)
        return settled

    def _look_up(self, known: Plans, i: int, query: bytes, settled: set[int]) -> tuple[bytes, bytes | None]:
        """The plan for a query, and its cookie; a bug in answering costs its query, not the batch."""
        try:
            if (found := known.look_up(query)) is not None:
                return found
        except Exception:
            log.exception("internal error, query dropped: %s", query.hex())
            settled.add(i)
            return self._own(i, None), None
        return self._ask_general(i, query, settled), None

    def _ask_general(self, i: int, query: bytes, settled: set[int]) -> bytes:
        """The plan of a reply made for this query alone, the rate limit among it; of silence where too many wait."""
        settled.add(i)
        if not self._general_left:
            self._counters.overload += 1
            self._counters.count_ready(-1)  # which it is not
            return self._own(i, None)
        self._general_left -= 1
        self._counters.general += 1
        try:
            reply = self._general(query, UDP, self.client(i))
        except Exception:
            log.exception("internal error, query dropped: %s", query.hex())
            reply = None
        self._made[i] = UNANSWERED if reply is None else reply[3] & 0xF
        return self._own(i, reply)

    def _own(self, i: int, reply: bytes | None) -> bytes:
        """The plan of a reply that goes through the slot's area, or of silence."""
        if reply is None:
            self._counters.silent += 1
            return SILENCE
        place = self._slots.areas + AREA * i
        self._slots.memory[place : place + len(reply) - HEADER] = reply[HEADER:]
        return own(reply, self._slots.area_addresses[i])

    def _answer_cookies(
        self,
        asked: list[tuple[int, bytes]],
        plans: list[bytes | None],
        queries: list[bytes],
        sizes: list[int],
        settled: set[int],
    ) -> None:
        """Put the cookies of replies where their plans have them; who showed a good one has no limit."""
        context = self._responder.context
        if context.cookies.secrets:  # else taken away a moment ago; what lies ready will follow
            good = self._jar.answer(asked, secrets=context.cookies.secrets, now=context.clock())
            settled.update(good)
            self._counters.verified += len(good)
            if not context.cookies.required:
                self._counters.unverified += len(asked) - len(good)
                return
        for i, _ in asked:
            if i not in settled:
                plans[i] = self._ask_general(i, self._whole(i, queries[i], sizes[i]), settled)

    def _limit(
        self,
        known: Plans,
        plans: list[bytes | None],
        queries: list[bytes],
        clients: Sequence[Hashable],
        settled: set[int],
    ) -> None:
        """Hold the replies of a batch to the rate limit; those that go too far are cut, or silent."""
        limiter, known_clients = self._responder.limiter, self._clients
        exempt, networks = known_clients.exempt, known_clients.networks
        places, replies = [], []
        for i, client in enumerate(clients):
            if client in exempt or i in settled:
                continue
            network = networks.get(client) or known_clients.remember(client, limiter.network(self.client(i)))
            if network is not None:
                places.append(i)
                replies.append((network, known.kind(plans[i] or SILENCE, queries[i])))
        for place, verdict in limiter.judge_each(replies):
            i = places[place]
            self._responder.report(self.client(i))
            if verdict is Verdict.TRUNCATE:
                plans[i] = truncated(plans[i] or SILENCE)
            else:
                settled.add(i)
                self._counters.silent += 1
                plans[i] = SILENCE

    def _count(self, count: int, joined: bytes, silent: int) -> None:
        """Count the replies of a batch but those of the general path, which counts for itself."""
        results, made = self._results, self._made
        codes = joined[HEAD + 1 :: PLAN.size]
        good = codes.count(NOERROR)
        self._counters.count_ready(count - len(made))
        # The plans of silence and of BADVERS read as NOERROR.
        bad_versions = joined[BAD_VERSION :: PLAN.size].count(1)
        results[NOERROR] += good - silent - bad_versions
        if bad_versions:
            results[BADVERS] += bad_versions
        if silent:
            results[UNANSWERED] += silent
        others = count - good
        for code in OTHER_CODES:  # the more frequent first: to look which there are would cost more
            if not others:
                break
            some = codes.count(code)
            results[code] += some
            others -= some
        if made:
            for code in made.values():
                results[code] -= 1
            made.clear()

    def _whole(self, i: int, key: bytes, size: int) -> bytes:
        """A query with its ID, of its key."""
        base = self._slots.bases[i]
        return (self._slots.memory[base : base + ID] + key)[:size]

    def query(self, i: int, count: int) -> bytes:
        """A query of a batch of so many, as it came."""
        slots = self._slots
        size, base = slots.lengths[count].tolist()[i], slots.bases[i]
        start = slots.memory[base : base + min(size, START)]
        return start if size <= START else start + slots.rest(i, size)

    def client(self, i: int) -> str:
        """The address that a query came from."""
        return socket.inet_ntop(self._family, self._slots.memory[self._slots.addresses[i]])
