"""UDP in batches: one ``recvmmsg`` and one ``sendmmsg`` (``mmsg.py``) for as many queries as wait.

For Linux on 64 bits; elsewhere, or if anything of it is missing, ``udp.py`` serves with plain sockets. The memory of a
batch is laid out once (``slots.py``). What is sent is for ``batchreplies.py`` to say, and for ``alone.py`` while
queries come one by one.
"""

from __future__ import annotations

import ctypes
import logging
import socket
import struct
import sys
import threading

from maptr.context import Transport
from maptr.serve import mmsg
from maptr.serve.alone import Alone, Client, Control
from maptr.serve.batchreplies import BatchReplies
from maptr.serve.counters import Counters
from maptr.serve.plan import address, read_address
from maptr.serve.responder import Responder
from maptr.serve.slots import Slots
from maptr.serve.udp import Answer, is_anywhere

log = logging.getLogger("maptr.serve")

PATIENCE = 0.25  # seconds until a blocked thread looks whether it shall stop
QUEUE = 4  # queries found waiting that end taking them one by one (``alone.py``)


def why_not() -> str | None:
    """The reason why batches cannot be had here; None where they can."""
    if not sys.platform.startswith("linux"):
        return "not on Linux"
    if ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        return "not on 64 bits, little-endian"
    if any(read_address(octets) != address(octets) for octets in (b"", b"x", bytes(1000))):
        return "not CPython"
    return None if mmsg.are_there() else "no recvmmsg in the C library"


class BatchListener:
    """Answers what arrives on one socket, in a thread of its own that mostly waits in the kernel."""

    def __init__(
        self, sock: socket.socket, responder: Responder, general: Answer, counters: Counters | None = None
    ) -> None:
        self.counters = counters or Counters()  # written by the listener's thread alone
        self._sock = sock
        self._family = sock.family  # which a socket makes anew whenever it is asked
        self._anywhere = is_anywhere(sock)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="udp", daemon=True)
        self._slots = Slots(self._family, self._anywhere)
        self._query_log = responder.query_log
        self._calls = mmsg.MessageCalls(sock, self._slots, self.counters)
        self._replies = replies = BatchReplies(
            self._slots, responder, general, self.counters, family=self._family, anywhere=self._anywhere
        )
        self._alone = Alone(sock, responder, self.counters, plans=replies.plans, rest=self._take_one, look=self._look)

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
            if self._query_log is None:
                self._alone.run()

    def _run_batches(self) -> None:
        """Until queries come one by one, or ``stop``."""
        receive, replies = self._calls.receive, self._replies
        in_a_row = 0
        while not self._stopping and in_a_row < self._alone.wanted:
            count = receive()
            if count <= 0:
                # Nothing came for a while, or an ICMP error that an earlier reply met; or there is no socket any more.
                self._stopping |= self._sock.fileno() < 0
                continue
            self._take(count)
            in_a_row = in_a_row + 1 if count == 1 and replies.all_known else 0

    def _take(self, count: int) -> None:
        """Answer what lies in the first slots."""
        self.counters.count_batch(count)
        replies, send = self._replies, self._calls.send
        try:
            known = replies.plans()
            if known is not None:
                if self._query_log is not None:
                    for i in self._query_log.pick(count):
                        self._query_log.note(replies.query(i, count), Transport.UDP, replies.client(i))
                first = 0
                for end in (*replies.lay_out(known, count), count):
                    if first < end:
                        send(first, end)
                    first = end + 1
                known.sent()
        except Exception:
            log.exception("internal error, %d queries dropped", count)
        self._slots.clear(count)
        if self._anywhere:
            self._slots.reset_control[0][:] = self._slots.reset_control[1]

    def _look(self) -> bool:
        """Answer what waits. Whether that was a queue, for which batches are better."""
        count = self._calls.receive_now()
        if count > 0:
            self._take(count)
        return count >= QUEUE

    def _take_one(self, query: bytes, client: Client, control: Control | None) -> None:
        """A batch of one that was received elsewhere."""
        self._slots.put(query, to_sockaddr(self._family, client), control or ())
        self._take(1)


def to_sockaddr(family: socket.AddressFamily, client: Client) -> bytes:
    """An address as the kernel has it, of one as Python has it (ip(7), ipv6(7))."""
    host, port, *more = client
    octets = socket.inet_pton(family, host)
    head: bytes = struct.pack("=H", family) + port.to_bytes(2, "big")
    if family == socket.AF_INET:
        return head + octets
    flow, scope = more
    return b"".join((head, flow.to_bytes(4, "big"), octets, struct.pack("=I", scope)))
