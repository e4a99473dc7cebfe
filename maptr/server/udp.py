"""The UDP listeners: one that receives queries in batches, on 64-bit Linux, and one that receives them one by one.

``BatchListener`` has its own thread. It looks up ready responses for all queries of a batch at once; queries without
one take the general path. ``batch.py`` has a batch's memory and the system calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import struct
import threading
from collections.abc import Sequence
from typing import cast

from maptr.answer.arena import NO_RESPONSE, SILENCE, kind_of, rcodes, truncated
from maptr.answer.context import ReceivedQuery, Transport
from maptr.answer.ready import Ready
from maptr.answer.rrl import Action
from maptr.daemon.process import in_thread
from maptr.daemon.sockets import IP_PKTINFO
from maptr.protocol.cookies import timestamp
from maptr.protocol.numbers import MAX_MESSAGE
from maptr.server.batch import Slots
from maptr.server.counters import Counters
from maptr.server.responder import Responder

BATCH = 128  # messages in one system call
WAIT = 0.25  # seconds after which a waiting thread checks whether to stop
MAX_CLIENTS = 10_000  # clients in the cache of networks

# The overload limit. The general path takes about fifty times as long as a ready response. MAX_FULL consecutive full
# batches mean that more queries arrive than can be answered: then at most MAX_GENERAL of a batch take that path, so
# that ordinary queries are still answered.
MAX_FULL = 8
MAX_GENERAL = 4

# Without batches: queries answered before the event loop continues. Enough to avoid most wake-ups, few enough for TCP.
BURST = 64
CONTROL = 64  # bytes for packet information; an in6_pktinfo with its header has 40


class BatchListener:
    """Answers the queries on one socket in its own thread."""

    def __init__(self, sock: socket.socket, responder: Responder, counters: Counters) -> None:
        self._sock = sock
        self._responder = responder
        self._counters = counters
        self._slots = Slots(sock, BATCH)
        self._state = responder.state
        self._ready = self._state.ready(Transport.UDP)
        self._network = functools.lru_cache(MAX_CLIENTS)(self._network_of)
        self._results = counters.queries[Transport.UDP]
        self._full = 0  # consecutive full batches
        self._general_left = 0  # queries of this batch that may still take the general path
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="udp", daemon=True)

    def start(self) -> None:
        # The kernel applies the timeout of the blocking socket; Python's timeout would need a poll(2) for each call.
        self._sock.setblocking(True)
        wait = struct.pack("@ll", 0, int(WAIT * 1e6))
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
        self._thread.start()

    async def stop(self) -> None:
        self._stopping = True
        await in_thread(self._thread.join)  # the thread ends within WAIT seconds
        self._sock.close()

    def _run(self) -> None:
        receive = self._slots.calls.receive
        while not self._stopping:
            count = receive()
            if count > 0:
                try:
                    self._take(count)
                except Exception:
                    self._responder.log_internal_error(f"{count} queries dropped")
            elif self._sock.fileno() < 0:
                return  # the socket is closed; other reasons are a timeout and an ICMP error for an earlier response

    def _take(self, count: int) -> None:
        """Answer the queries in the first ``count`` slots."""
        state = self._responder.state
        if state is not self._state:
            with contextlib.suppress(OSError):  # no memory: the old ones are kept, and the next batch retries
                self._state, self._ready = state, state.ready(Transport.UDP)
        ready = self._ready
        ready.tidy()
        counters, slots = self._counters, self._slots
        counters.received += count
        counters.calls += 1
        self._full = self._full + 1 if count == BATCH else 0
        self._general_left = count if self._full <= MAX_FULL else MAX_GENERAL
        keys = slots.keys(count)
        found = [*map(ready.known.get, keys)]
        settled: set[int] = set()
        if None in found:
            self._find(ready, found, keys, settled)
        records = cast(list[bytes], found)
        networks = [*map(self._network, slots.clients(count))]
        if any(networks):
            self._limit(records, networks, settled)
        joined = slots.lay_out(records)
        codes = rcodes(joined)
        counters.ready += count
        for code in {*codes}:
            self._results[code] += codes.count(code)  # before sending, so that every received response is counted
        query_log = self._responder.query_log
        if query_log is not None:
            for i in query_log.pick(count):
                query_log.write(slots.received(i, keys[i]), codes[i])
        first = 0
        if SILENCE in codes:
            counters.silent += codes.count(SILENCE)
            for i in [i for i, code in enumerate(codes) if code == SILENCE]:
                counters.lost += slots.calls.send(first, i)
                first = i + 1
        counters.lost += slots.calls.send(first, count)

    def _find(self, ready: Ready, records: list[bytes | None], keys: list[bytes], settled: set[int]) -> None:
        """Find a batch's missing records. Adds to ``settled`` those that need no check of the rate limit."""
        memory, addresses, cookies = self._slots.memory, self._slots.addresses, self._slots.cookies
        stamp = timestamp(self._state.context.clock())
        for i, record in enumerate(records):
            if record is not None:
                continue
            try:
                found = ready.find(keys[i])
                if found is not None:
                    records[i], cookie = found
                    if not cookie:
                        continue
                    checked = self._state.answer_cookie(cookie, memory[addresses[i]], stamp, self._counters)
                    if checked is not None:
                        memory[cookies[i]], verified = checked
                        if verified:
                            settled.add(i)
                        continue
                records[i] = self._ask_general(ready, i, keys[i], settled)
            except Exception:
                self._responder.log_internal_error(f"query dropped: {keys[i].hex()}")
                settled.add(i)
                records[i] = NO_RESPONSE

    def _ask_general(self, ready: Ready, i: int, key: bytes, settled: set[int]) -> bytes:
        """Return the record of the general path's response, or, under overload, of no response."""
        settled.add(i)
        self._counters.ready -= 1
        if not self._general_left:
            self._counters.overload += 1
            return NO_RESPONSE
        self._general_left -= 1
        self._counters.general += 1
        query = self._slots.received(i, key)
        reply = next(self._responder.general(self._state, query, self._counters, ready.learn), None)
        return NO_RESPONSE if reply is None else self._slots.store_reply(i, reply)

    def _limit(self, records: list[bytes], networks: Sequence[str | None], settled: set[int]) -> None:
        """Apply the rate limit to a batch: truncate or drop the responses that exceed it."""
        limiter = self._responder.limiter
        places, replies = [], []
        for i, network in enumerate(networks):
            if network is not None and i not in settled:
                places.append(i)
                replies.append((network, kind_of(records[i])))
        for place, action in limiter.judge_each(replies):
            i = places[place]
            self._responder.report(self._slots.client(i))
            records[i] = truncated(records[i]) if action is Action.TRUNCATE else NO_RESPONSE

    def _network_of(self, client: bytes) -> str | None:
        """Return the network by which a client is counted; None for an exempt client."""
        return self._responder.limiter.network(socket.inet_ntop(self._slots.family, client))


class UdpListener:
    """Answers on one socket in the event loop. A response is lost if the kernel cannot send it at once."""

    def __init__(self, sock: socket.socket, responder: Responder, counters: Counters) -> None:
        self._sock = sock
        self._responder = responder
        self._counters = counters

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._sock, self._answer_waiting)

    async def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._sock)
        self._sock.close()

    def _answer_waiting(self) -> None:
        answer_waiting(self._sock, self._responder, self._counters)


def answer_waiting(sock: socket.socket, responder: Responder, counters: Counters) -> None:
    """Answer queries that wait in the kernel, at most BURST."""
    for _ in range(BURST):
        try:
            query, control, _flags, client = sock.recvmsg(MAX_MESSAGE, CONTROL)
        except OSError:  # no more queries, or an ICMP error for an earlier response
            return
        reply = responder.answer(ReceivedQuery(query, Transport.UDP, client[0]), counters)
        if reply is not None:
            with contextlib.suppress(OSError):
                sock.sendmsg([reply], reply_source(control), 0, client)


def reply_source(control: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """Return the packet information for a response: the query's destination, without the interface."""
    sources = []
    for level, kind, data in control:
        if (level, kind) == (socket.IPPROTO_IP, IP_PKTINFO):  # ip(7): interface, local address, destination
            sources.append((level, kind, bytes(4) + data[4:]))
        elif (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):  # RFC 3542 6: address, interface
            sources.append((level, kind, data[:16] + bytes(4)))
    return sources
