"""The serials that secondaries have: asked by UDP and TCP, signed where there is a key, again and again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest

from maptr.protocol.address import Address
from maptr.protocol.names import Labels
from maptr.server.secondaries import Observed, Observer
from maptr.transfer import tsig
from maptr.transfer.acl import Key, NotifyTarget, keyring
from maptr.transfer.notify import is_truncated, make_soa_query, read_serial
from tests.transfer.test_xfr import EXAMPLE, KEY, NOW

Answer = Callable[[bytes], bytes]
PATIENCE = 20.0


def soa(query: bytes, serial: int = 7, rcode: dns.rcode.Rcode = dns.rcode.NOERROR, flags: int = dns.flags.AA) -> bytes:
    """A secondary's answer to an SOA query."""
    reply = dns.message.make_response(dns.message.from_wire(query))
    reply.flags |= flags
    reply.set_rcode(rcode)
    if not rcode:
        reply.answer.append(dns.rrset.from_text("example.", 60, "IN", "SOA", f". . {serial} 1 2 3 4"))
    return reply.to_wire()


class Secondary:
    """Answers on one port by UDP and by TCP; ``asked`` has the transports of the queries."""

    def __init__(self, by_udp: Answer, by_tcp: Answer | None = None) -> None:
        self.asked: list[str] = []
        self._answers = {"udp": by_udp, "tcp": by_tcp or by_udp}

    async def __aenter__(self) -> Secondary:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind(("127.0.0.1", self.port))
        asyncio.get_running_loop().add_reader(self._sock, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._sock)
        self._sock.close()
        self._server.close()

    def _read(self) -> None:
        query, client = self._sock.recvfrom(65535)
        self.asked.append("udp")
        self._sock.sendto(self._answers["udp"](query), client)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        query = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
        self.asked.append("tcp")
        reply = self._answers["tcp"](query)
        writer.write(len(reply).to_bytes(2, "big") + reply)
        await writer.drain()
        writer.close()


async def seen(
    secondary: Secondary, until: Callable[[Observed], bool], *, wanted: int = 7, key: Key | None = None, **times: float
) -> Observed:
    """What is seen of the secondary after an acknowledged NOTIFY."""
    observer = Observer(lambda: NOW, **{"after_notify": 0.01, "if_different": 0.02, "timeout": 5.0, **times})
    async with secondary:
        target = NotifyTarget(Address("127.0.0.1", secondary.port), None if key is None else key.name)
        observer.follow({(EXAMPLE, target): (wanted, key)})
        observer.acknowledged(EXAMPLE, target)
        async with asyncio.timeout(PATIENCE):
            while not until(observer.observed(EXAMPLE, target)):
                await asyncio.sleep(0.005)
        found = observer.observed(EXAMPLE, target)
        await observer.stop()
    return found


def is_seen(observed: Observed) -> bool:
    return observed != Observed()


def test_rfc1035_3_3_13_the_query() -> None:
    query = dns.message.from_wire(make_soa_query(EXAMPLE, 4711))
    assert (query.id, int(query.flags), str(query.question[0])) == (4711, 0, "example. IN SOA")


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (soa(make_soa_query(EXAMPLE, 1), 0xFFFFFFFF), 0xFFFFFFFF),
        (soa(make_soa_query(EXAMPLE, 1), rcode=dns.rcode.SERVFAIL), "SERVFAIL"),
        (soa(make_soa_query(EXAMPLE, 1), flags=0), "an answer without authority"),
        (dns.message.make_response(dns.message.from_wire(make_soa_query(EXAMPLE, 1))).to_wire(), "an answer without"),
        (soa(make_soa_query(EXAMPLE, 1))[:-1], "a malformed reply"),
    ],
)
def test_what_a_reply_says(reply: bytes, said: int | str) -> None:
    found = read_serial(reply)
    assert found == said if isinstance(said, int) else str(found).startswith(said)
    for end in range(12, len(reply)):
        read_serial(reply[:end])


def test_the_serial_and_when_it_was_seen() -> None:
    secondary = Secondary(soa)
    assert asyncio.run(seen(secondary, is_seen)) == Observed(7, NOW, "")
    assert secondary.asked == ["udp"], "and not again soon"


def test_one_that_lags_is_asked_until_it_has_the_serial() -> None:
    serials = iter([5, 5, 6])
    secondary = Secondary(lambda query: soa(query, next(serials, 7)))
    assert asyncio.run(seen(secondary, lambda observed: observed.serial == 7)) == Observed(7, NOW, "")
    assert len(secondary.asked) == 4


def test_a_truncated_reply_is_asked_by_tcp() -> None:
    def cut(query: bytes) -> bytes:
        return soa(query, flags=dns.flags.AA | dns.flags.TC)[: len(query)]

    assert is_truncated(cut(make_soa_query(EXAMPLE, 1)))
    secondary = Secondary(cut, soa)
    assert asyncio.run(seen(secondary, is_seen)).serial == 7
    assert secondary.asked == ["udp", "tcp"]


def test_what_was_seen_stays_where_there_is_no_further_answer() -> None:
    replies = iter([lambda query: soa(query, 5)])
    secondary = Secondary(lambda query: next(replies, lambda _: b"")(query))
    observed = asyncio.run(seen(secondary, lambda observed: bool(observed.error), timeout=0.05))
    assert observed == Observed(5, NOW, "no answer")


def test_nobody_there_is_said() -> None:
    async def run() -> Observed:
        secondary = Secondary(soa)
        observer = Observer(lambda: NOW, if_different=0.01, timeout=1.0)
        async with secondary:
            target = NotifyTarget(Address("127.0.0.1", secondary.port))
        observer.follow({(EXAMPLE, target): (7, None)})
        async with asyncio.timeout(PATIENCE):
            while not is_seen(observer.observed(EXAMPLE, target)):
                await asyncio.sleep(0.005)
        found = observer.observed(EXAMPLE, target)
        observer.follow({})
        assert observer.observed(EXAMPLE, target) == Observed(), "forgotten with the target"
        await observer.stop()
        return found

    observed = asyncio.run(run())
    assert observed.serial is None
    assert observed.error


def test_rfc8945_signed_where_a_key_is_named() -> None:
    keys: list[Labels | None] = []

    def signed(query: bytes) -> bytes:
        opened = tsig.open_query(query, keyring([KEY]), int(NOW))
        keys.append(opened.key)
        return opened.seal(soa(opened.query))

    assert asyncio.run(seen(Secondary(signed), is_seen, key=KEY)) == Observed(7, NOW, "")
    assert keys == [KEY.name]
    unsigned = Secondary(lambda query: soa(tsig.open_query(query, keyring([KEY]), int(NOW)).query))
    assert asyncio.run(seen(unsigned, is_seen, key=KEY, timeout=0.1)).error == "no answer", "an unsigned answer is none"
