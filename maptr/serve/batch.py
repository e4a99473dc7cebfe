"""UDP in batches: one ``recvmmsg`` and one ``sendmmsg`` for as many queries as wait, called through ctypes.

For Linux on 64 bits; elsewhere, or if anything of it is missing, ``udp.py`` serves with plain sockets. The memory of a
batch is laid out once (``slots.py``), and nothing but a key is made for a query whose answer is known by its octets:
such an answer is a *plan* in one bytes object (``plan.py``), so a batch of them is one join, one copy and four strided
copies. Cookies are hashed for all queries of a batch together, and replies counted together.
"""

from __future__ import annotations

import ctypes
import logging
import socket
import struct
import sys
import threading
from collections.abc import Hashable, Sequence

from maptr.context import Transport
from maptr.protocol import FORMERR, NOERROR, NXDOMAIN, REFUSED
from maptr.ready import HEADER
from maptr.rrl import Verdict
from maptr.serve.alone import Alone, Client, Control
from maptr.serve.clients import Clients
from maptr.serve.counters import BADVERS, Counters
from maptr.serve.counters import SILENCE as UNANSWERED
from maptr.serve.jar import CookieJar
from maptr.serve.plan import BAD_VERSION, HEAD, ID, PLAN, SILENCE, address, own, read_address, truncated
from maptr.serve.plans import Plans
from maptr.serve.responder import Responder
from maptr.serve.slots import AREA, BATCH, SIZES, START, Slots, key_of
from maptr.serve.udp import Answer, is_anywhere

log = logging.getLogger("maptr.serve")

PATIENCE = 0.25  # seconds until a blocked thread looks whether it shall stop
# Rcodes but NOERROR, by how often they come.
OTHER_CODES = (NXDOMAIN, REFUSED, FORMERR, *sorted({*range(1, 16)} - {NXDOMAIN, REFUSED, FORMERR}))
QUEUE = 4  # queries found waiting that end taking them one by one (``alone.py``)

UDP = Transport.UDP
MSG_DONTWAIT = 0x40
MSG_WAITFORONE = 0x10000

# As ctypes passes them on.
_int, _unsigned, _pointer = ctypes.c_int.from_param, ctypes.c_uint.from_param, ctypes.c_void_p.from_param
_COUNTS = [_unsigned(count) for count in SIZES]
_NOW = _int(MSG_DONTWAIT)


def why_not() -> str | None:
    """The reason why batches cannot be had here; None where they can."""
    if not sys.platform.startswith("linux"):
        return "not on Linux"
    if ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        return "not on 64 bits, little-endian"
    if any(read_address(octets) != address(octets) for octets in (b"", b"x", bytes(1000))):
        return "not CPython"
    libc = ctypes.CDLL(None)
    return None if hasattr(libc, "recvmmsg") and hasattr(libc, "sendmmsg") else "no recvmmsg in the C library"


class BatchListener:
    """Answers what arrives on one socket, in a thread of its own that mostly waits in the kernel."""

    def __init__(
        self, sock: socket.socket, responder: Responder, general: Answer, counters: Counters | None = None
    ) -> None:
        self.counters = counters or Counters()  # written by the listener's thread alone
        self._sock = sock
        self._fd = sock.fileno()
        self._family = sock.family  # which a socket makes anew whenever it is asked
        self._results = self.counters.results(UDP)
        self._responder = responder
        self._general = general
        self._anywhere = is_anywhere(sock)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="udp", daemon=True)
        libc = ctypes.CDLL(None)
        self._recvmmsg, self._sendmmsg = libc.recvmmsg, libc.sendmmsg
        self._slots = Slots(self._family, self._anywhere)
        # Arguments are made once: they cost half of a call. The same goes for an errno that each call would keep.
        self._receive, self._receive_now = (
            (_int(self._fd), self._slots.received, _unsigned(BATCH), _int(flags), _pointer(None))
            for flags in (MSG_WAITFORONE, MSG_DONTWAIT)
        )
        self._plans: Plans | None = None
        self._known = False  # whether all queries of the last batch had plans
        self._alone = Alone(sock, responder, self.counters, plans=self._learned, rest=self._take_one, look=self._look)
        self._jar = CookieJar(self._slots)
        self._clients: Clients[Hashable] = Clients()
        self._cookies = False  # whether replies of this batch have any
        self._longer: Sequence[int] = ()  # queries of this batch that are longer than a slot
        self._made: dict[int, int] = {}  # of this batch, the rcodes of replies that are counted elsewhere

    def start(self, loop: object = None) -> None:
        # A blocking socket with a timeout of the kernel's: Python's own would cost a poll a call.
        self._sock.setblocking(True)
        wait = struct.pack("@ll", 0, int(PATIENCE * 1e6))
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
        self._thread.start()

    def stop(self, loop: object = None) -> None:
        self._stopping = True
        self._alone.stop()
        self._thread.join()
        self._sock.close()

    def _run(self) -> None:
        while not self._stopping:
            self._run_batches()
            self._alone.run()

    def _run_batches(self) -> None:
        """Until queries come one by one, or ``stop``."""
        receive, arguments = self._recvmmsg, self._receive
        in_a_row = 0
        while not self._stopping and in_a_row < self._alone.wanted:
            count = receive(*arguments)
            if count <= 0:
                # Nothing came for a while, or an ICMP error that an earlier reply met; or there is no socket any more.
                self._stopping |= self._sock.fileno() < 0
                continue
            self._take(count)
            in_a_row = in_a_row + 1 if count == 1 and self._known else 0

    def _take(self, count: int) -> None:
        """Answer what lies in the first slots."""
        self.counters.count_batch(count)
        try:
            self._answer(count)
        except Exception:
            self._made.clear()
            log.exception("internal error, %d queries dropped", count)
        self._slots.clear(count)
        self._cookies, self._longer = False, ()
        if self._anywhere:
            self._slots.reset_control[0][:] = self._slots.reset_control[1]

    def _look(self) -> bool:
        """Answer what waits. Whether that was a queue, for which batches are better."""
        count = self._recvmmsg(*self._receive_now)
        if count > 0:
            self._take(count)
        return bool(count >= QUEUE)

    def _take_one(self, query: bytes, client: Client, control: Control | None) -> None:
        """A batch of one that was received elsewhere."""
        self._slots.put(query, to_sockaddr(self._family, client), control or ())
        self._take(1)

    def _learned(self) -> Plans | None:
        """The plans of what is answered from now; None while there are no zones."""
        ready = self._responder.ready
        if ready is None:
            return None
        if self._plans is None or self._plans.ready is not ready:
            self._plans = Plans(ready)
        return self._plans

    def _answer_from_where_it_came(self, count: int) -> None:
        """Send from the addresses that the queries of a batch came to."""
        to, of = self._slots.copy_control[count]
        to[:] = of
        self._slots.no_interface[0][:] = self._slots.no_interface[1]

    def _answer(self, count: int) -> None:
        known = self._learned()
        if known is None:
            return
        slots = self._slots
        queries = slots.keys(count)
        plans = [*map(known.tables.known.get, queries)]
        settled = None
        self._known = all(plans)
        if not self._known:
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
        first = 0
        for end in (*silent, count):
            if first < end:
                self._send(first, end)
            first = end + 1
        known.sent()

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
        self._known = not missed
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
            found = known.ready.find(query, stream=False)
            if found is not None:
                return known.learn(query, found), found.cookie
        except Exception:
            log.exception("internal error, query dropped: %s", query.hex())
            settled.add(i)
            return self._own(i, None), None
        return self._ask_general(i, query, settled), None

    def _ask_general(self, i: int, query: bytes, settled: set[int]) -> bytes:
        """The plan of a reply made for this query alone, the rate limit among it."""
        settled.add(i)
        self.counters.general += 1
        try:
            reply = self._general(query, UDP, self._client(i))
        except Exception:
            log.exception("internal error, query dropped: %s", query.hex())
            reply = None
        self._made[i] = UNANSWERED if reply is None else reply[3] & 0xF
        return self._own(i, reply)

    def _own(self, i: int, reply: bytes | None) -> bytes:
        """The plan of a reply that goes through the slot's area, or of silence."""
        if reply is None:
            self.counters.silent += 1
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
            self.counters.verified += len(good)
            if not context.cookies.required:
                self.counters.unverified += len(asked) - len(good)
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
            network = networks.get(client) or known_clients.remember(client, limiter.network(self._client(i)))
            if network is not None:
                places.append(i)
                replies.append((network, known.kind(plans[i] or SILENCE, queries[i])))
        for place, verdict in limiter.judge_each(replies):
            i = places[place]
            self._responder.report(self._client(i))
            if verdict is Verdict.TRUNCATE:
                plans[i] = truncated(plans[i] or SILENCE)
            else:
                settled.add(i)
                self.counters.silent += 1
                plans[i] = SILENCE

    def _send(self, first: int, end: int) -> None:
        """Send replies of a run of slots. One that the kernel refuses is lost, as on any network."""
        while first < end:
            sent = self._sendmmsg(self._receive[0], self._slots.sent[first], _COUNTS[end - first], _NOW)
            if sent == end - first:
                return
            first += max(sent, 0)
            if sent <= 0:
                self.counters.lost += 1
                first += 1

    def _count(self, count: int, joined: bytes, silent: int) -> None:
        """Count the replies of a batch but those of the general path, which counts for itself."""
        results, made = self._results, self._made
        codes = joined[HEAD + 1 :: PLAN.size]
        good = codes.count(NOERROR)
        self.counters.count_ready(count - len(made))
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

    def _client(self, i: int) -> str:
        return socket.inet_ntop(self._family, self._slots.memory[self._slots.addresses[i]])


def to_sockaddr(family: socket.AddressFamily, client: Client) -> bytes:
    """An address as the kernel has it, of one as Python has it (ip(7), ipv6(7))."""
    host, port, *more = client
    octets = socket.inet_pton(family, host)
    head: bytes = struct.pack("=H", family) + port.to_bytes(2, "big")
    if family == socket.AF_INET:
        return head + octets
    flow, scope = more
    return b"".join((head, flow.to_bytes(4, "big"), octets, struct.pack("=I", scope)))
