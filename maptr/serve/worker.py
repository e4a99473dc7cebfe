"""One of several workers, from the fork to its end. Its owner, who supervises it, is ``workers.py``.

A worker is a copy of its owner with the zones as they were: what both only read takes no memory twice. It opens no
file and binds nothing. Between the two is a socket, on which the owner orders and the worker reports; its end is how
each learns of the other's. A worker that has no place yet is the reserve: it waits for one, and costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from maptr.serve.bind import Sockets
from maptr.serve.counters import Counters
from maptr.serve.front import Front
from maptr.serve.signals import HELD, STOP
from maptr.serve.tcp import GIVING_WAY, LEAVING

log = logging.getLogger("maptr.serve")

# Orders: the number of a place to answer at; to give way to a newer worker, or to leave within a second.
GIVE_WAY, LEAVE = b"give way", b"leave"
# Reports: it answers now; it takes nothing new any more.
ANSWERING, QUIET = b"answering", b"quiet"
# An order that asks for nothing but the same as a report: is anybody there?
HELLO = b"hello"
MAX_MESSAGE = 16  # octets of either

# Ours to act on, or meant for the owner, and none of them while a fork is under way: the copy would tell the
# owner's event loop of a signal of its own.
SIGNALS = (*STOP, *HELD)


@dataclass(frozen=True, slots=True)
class Forked:
    """A worker as its owner has it."""

    pid: int
    channel: socket.socket
    counters: Sequence[Counters]


def settle_memory() -> None:
    """Make what there is now good to share: without garbage, and where the collector will not write to it."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def fork(front: Front, places: Sequence[Sockets]) -> Forked:
    """A worker that waits for its place. For the main thread, while there is no other. Raises OSError."""
    counters = Counters.shared(front.writers(places[0]))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        pid = os.fork()
        if not pid:
            _work(front, places, theirs, counters, mask)
    except BaseException:
        ours.close()
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()
    ours.setblocking(False)
    return Forked(pid, ours, counters)


def reap(pid: int) -> int:
    """How a child ended; 0 where nobody can say, for the process was started with SIGCHLD ignored."""
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return 0


def ending(status: int) -> str:
    """How a process ended, by what waitpid(2) says."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"was killed by {signal.Signals(number).name}"
        except ValueError:
            return f"was killed by signal {number}"
    return f"ended with {os.waitstatus_to_exitcode(status)}"


def _work(
    front: Front,
    places: Sequence[Sockets],
    channel: socket.socket,
    counters: Sequence[Counters],
    mask: set[signal.Signals | int],
) -> NoReturn:
    """All of a worker's life. The frames below are the owner's and are never returned to."""
    code = 1
    try:
        _forget_owner({channel.fileno(), *(sock.fileno() for place in places for sock in place)}, mask)
        order = channel.recv(MAX_MESSAGE)
        if order.isdigit():
            place = places[int(order)]
            for other in places:
                if other is not place:
                    other.close()
            asyncio.run(_answer(front, place, channel, counters))
        code = 0
    except BaseException:
        log.exception("internal error, a worker ends")
    finally:
        os._exit(code)


def _forget_owner(ours: set[int], mask: set[signal.Signals | int]) -> None:
    """Let go of the owner's event loop, signals and descriptors, such as the control socket's connections."""
    asyncio._set_running_loop(None)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for number in (signal.SIGINT, *HELD):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for descriptor in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if descriptor > 2 and descriptor not in ours:
            with contextlib.suppress(OSError):  # that of the listing
                os.close(descriptor)


async def _answer(front: Front, sockets: Sockets, channel: socket.socket, counters: Sequence[Counters]) -> None:
    """Answer until told to give way or to leave, or until the owner is no more."""
    loop = asyncio.get_running_loop()
    channel.setblocking(False)
    giving_way, leaving = asyncio.Event(), asyncio.Event()

    def hear() -> None:
        try:
            order = channel.recv(MAX_MESSAGE)
        except BlockingIOError:
            return
        except OSError:
            order = b""
        if order == HELLO:
            report(HELLO)
            return
        giving_way.set()
        if order != GIVE_WAY:
            leaving.set()
            loop.remove_reader(channel)

    def report(what: bytes) -> None:
        with contextlib.suppress(OSError):  # nobody hears it any more
            channel.send(what)

    loop.add_reader(channel, hear)
    loop.add_signal_handler(signal.SIGTERM, giving_way.set)
    front.start(sockets, counters)
    report(ANSWERING)
    await giving_way.wait()
    # To clients that ask: close when you have your replies (RFC 7828 3.2.2).
    front.responder.context = front.responder.context._replace(idle_timeout=0)
    await front.quiet()
    report(QUIET)
    draining = loop.create_task(front.drain(GIVING_WAY))
    waiting = loop.create_task(leaving.wait())
    await asyncio.wait((draining, waiting), return_when=asyncio.FIRST_COMPLETED)
    for task in (draining, waiting):
        task.cancel()
    await asyncio.gather(draining, waiting, return_exceptions=True)
    await front.drain(LEAVING)
