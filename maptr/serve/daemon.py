"""The daemon: binds, answers from one immutable Snapshot, and swaps it when the zones are read again.

SIGHUP reads the zone files anew, SIGTERM and SIGINT stop. Whoever runs it configures logging ("maptr.serve").
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from maptr.acl import Key, Secondaries
from maptr.answer import Transport, respond
from maptr.errors import ConfigError, ZoneError
from maptr.exchange import exchange
from maptr.names import Labels
from maptr.serve import tcp, udp, zones
from maptr.serve.primary import Primary
from maptr.snapshot import Snapshot

log = logging.getLogger("maptr.serve")

# Tries to find one port that is free for UDP and TCP both, where any port will do.
PORT_TRIES = 20


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: an IP address literal and a port, 0 for any free one."""

    host: str
    port: int

    @classmethod
    def from_text(cls, text: str) -> Address:
        """Read ``HOST:PORT``, an IPv6 host in brackets. Raises ValueError."""
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:5353 or [::1]:5353")
        try:
            address = ipaddress.ip_address(host[1:-1] if bracketed else host)
        except ValueError:
            raise ValueError(f"{text!r}: the host must be an IP address, IPv6 in brackets") from None
        if bracketed is not (address.version == 6):
            raise ValueError(f"{text!r}: IPv6 addresses, and only those, stand in brackets")
        return cls(str(address), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Daemon:
    """Serve the zones on the addresses until told to stop. ``snapshot`` is what it answers from now.

    ``keys``, ``secondaries``, ``catalog`` and ``state`` are those of ``maptr.serve.primary.Primary``, ``clock`` is in
    seconds since 1970. Raises ConfigError.
    """

    def __init__(
        self,
        sources: Sequence[zones.ZoneSource],
        addresses: Sequence[Address],
        snapshot: Snapshot,
        *,
        keys: Iterable[Key] = (),
        secondaries: Mapping[Labels, Secondaries] | None = None,
        catalog: tuple[Labels, Secondaries] | None = None,
        state: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._primary = Primary(sources, keys=keys, secondaries=secondaries, catalog=catalog, state=state, clock=clock)
        self._access = self._primary.access(snapshot)
        self.snapshot = snapshot
        self.bound: list[Address] = []
        self._sources = tuple(sources)
        self._addresses = tuple(addresses)
        self._sockets: list[tuple[socket.socket, socket.socket]] = []
        self._stopping = asyncio.Event()
        self._reload_wanted = asyncio.Event()

    def bind(self) -> None:
        """Open every socket; ``bound`` then has the real ports. Raises ConfigError if one cannot be had."""
        try:
            for address in self._addresses:
                pair = _bind_pair(address)
                self._sockets.append(pair)
                self.bound.append(Address(address.host, pair[0].getsockname()[1]))
        except BaseException:
            for pair in self._sockets:
                for sock in pair:
                    sock.close()
            self._sockets.clear()
            raise

    async def run(self, *, signals: bool = False) -> None:
        """Answer until ``stop``; binds first where that has not been done.

        ``signals``: SIGHUP, SIGTERM and SIGINT mean what they mean to a daemon; for the main thread only.
        """
        if not self._sockets:
            self.bind()
        self._access = self._primary.start(self.snapshot)
        loop = asyncio.get_running_loop()
        udp_listeners = [udp.UdpListener(pair[0], self.answer) for pair in self._sockets]
        tcp_listeners = [tcp.TcpListener(pair[1], self.answers) for pair in self._sockets]
        for tcp_listener in tcp_listeners:
            await tcp_listener.start()
        for udp_listener in udp_listeners:
            udp_listener.start(loop)
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop)
            loop.add_signal_handler(signal.SIGHUP, self.reload)
        reloader = loop.create_task(self._reload_when_wanted())
        count = len(self.snapshot.zones)
        log.info(
            "ready, serving %d zone%s on %s (udp, tcp)",
            count,
            "" if count == 1 else "s",
            ", ".join(map(str, self.bound)),
        )
        self._primary.tell(self._access, self.snapshot)
        try:
            await self._stopping.wait()
        finally:
            reloader.cancel()
            await self._primary.stop()
            for udp_listener in udp_listeners:
                udp_listener.stop(loop)
            for tcp_listener in tcp_listeners:
                await tcp_listener.stop()
        log.info("stopped")

    def stop(self) -> None:
        self._stopping.set()

    def reload(self) -> None:
        """Read the zones again soon; asked for during a reload, once more after it."""
        self._reload_wanted.set()

    def answer(self, query: bytes, transport: Transport, client: str) -> bytes | None:
        """One reply from the snapshot of this moment. A bug in answering costs its query, not the server."""
        return next(self.answers(query, transport, client), None)

    def answers(self, query: bytes, transport: Transport, client: str) -> Iterator[bytes]:
        """The messages of one reply, many for a transfer. Raises ZoneError, logged, where one cannot go on."""
        messages = exchange(
            query,
            self.snapshot,
            self._access,
            transport=transport,
            client=client,
            now=int(self._clock()),
            reply=respond,
            note=log.info,
        )
        begun = False
        try:
            for message in messages:
                yield message
                begun = True
        except ZoneError as error:
            log.error("a transfer to %s ends early: %s", client, error)
            raise
        except Exception:
            log.exception("internal error, query dropped: %s", query.hex())
            if begun:
                raise ZoneError("a transfer cut off") from None

    async def _reload_when_wanted(self) -> None:
        while True:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            # In a thread, for parsing takes far longer than any query may wait.
            try:
                await self._publish(await asyncio.to_thread(zones.reload, self._sources, self.snapshot))
            except Exception:
                log.exception("internal error, nothing reloaded")

    async def _publish(self, snapshot: Snapshot) -> None:
        """Answer from this snapshot from now on, its journals swapped with it, and tell the secondaries."""
        old, before = self.snapshot, self._access
        access = await asyncio.to_thread(self._primary.follow, before, old, snapshot)
        self.snapshot, self._access = snapshot, access
        self._primary.tell(access, snapshot, old, before)


def _bind_pair(address: Address) -> tuple[socket.socket, socket.socket]:
    """A UDP and a TCP socket on the same port. Raises ConfigError."""
    for attempt in range(PORT_TRIES):
        try:
            udp_socket = udp.open_socket(address.host, address.port)
        except OSError as error:
            raise _cannot_listen(address, error) from error
        try:
            return udp_socket, tcp.open_socket(address.host, udp_socket.getsockname()[1])
        except OSError as error:
            udp_socket.close()
            if address.port or error.errno != errno.EADDRINUSE or attempt == PORT_TRIES - 1:
                raise _cannot_listen(address, error) from error
    raise AssertionError("unreachable")


def _cannot_listen(address: Address, error: OSError) -> ConfigError:
    return ConfigError(f"cannot listen on {address}: {error.strerror or error}")
