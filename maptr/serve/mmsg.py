"""recvmmsg(2) and sendmmsg(2), which Python does not have, called through ctypes: a batch of messages in one call."""

from __future__ import annotations

import ctypes
import functools
import socket
from collections.abc import Callable

from maptr.serve.counters import Counters
from maptr.serve.slots import BATCH, SIZES, Slots

MSG_DONTWAIT = 0x40
MSG_WAITFORONE = 0x10000

# As ctypes passes them on: arguments are made once, for they cost half of a call. The same goes for an errno that each
# call would keep.
_int, _unsigned, _pointer = ctypes.c_int.from_param, ctypes.c_uint.from_param, ctypes.c_void_p.from_param
_COUNTS = [_unsigned(count) for count in SIZES]
_NOW = _int(MSG_DONTWAIT)


def are_there() -> bool:
    """Whether the C library has both."""
    libc = ctypes.CDLL(None)
    return hasattr(libc, "recvmmsg") and hasattr(libc, "sendmmsg")


class MessageCalls:
    """The calls on one socket, for messages in some slots.

    ``receive`` waits until there is a message, ``receive_now`` does not; both give how many came, at most BATCH, and
    -1 where none did.
    """

    def __init__(self, sock: socket.socket, slots: Slots, counters: Counters) -> None:
        libc = ctypes.CDLL(None)
        self._sendmmsg = libc.sendmmsg
        self._descriptor = _int(sock.fileno())
        self._slots = slots
        self._counters = counters
        receive = functools.partial(libc.recvmmsg, self._descriptor, slots.received, _unsigned(BATCH))
        self.receive: Callable[[], int] = functools.partial(receive, _int(MSG_WAITFORONE), _pointer(None))
        self.receive_now: Callable[[], int] = functools.partial(receive, _NOW, _pointer(None))

    def send(self, first: int, end: int) -> None:
        """Send replies of a run of slots. One that the kernel refuses is lost, as on any network."""
        while first < end:
            sent = self._sendmmsg(self._descriptor, self._slots.sent[first], _COUNTS[end - first], _NOW)
            if sent == end - first:
                return
            first += max(sent, 0)
            if sent <= 0:
                self._counters.lost += 1
                first += 1
