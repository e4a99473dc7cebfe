"""One request to a secondary: NOTIFY (RFC 1996) or an SOA query, over UDP and, if the response is truncated, TCP."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import secrets
import socket
from collections.abc import Callable, Iterator

import dns.rcode
from dnslib import DNSError, DNSHeader, DNSQuestion
from dnslib.label import DNSLabel

from maptr.answer.message import Message, MessageBuffer
from maptr.protocol.address import Address
from maptr.protocol.names import Labels, read_name
from maptr.protocol.numbers import AA, HEADER_SIZE, IN, MAX_MESSAGE, NOTAUTH, NOTIFY, PORT, RCODE_BITS, REFUSED, SOA, TC
from maptr.resolver.servers import socket_address
from maptr.server.state import Clock
from maptr.transfer import tsig
from maptr.transfer.acl import NotifyTarget, TsigKey
from maptr.zone.rrset import RRset

AFTER_REFUSAL = 1.0  # seconds to wait for a signed response after an unsigned refusal
MAX_SOA_RECORDS = 100  # records in a response to an SOA query, including NS records, addresses and signatures
# The errors if a source is not on the machine: from bind(2), also for its interface, and, where ``ip_nonlocal_bind`` is
# set, from connect(2).
NOT_HERE = (errno.EADDRNOTAVAIL, errno.ENODEV, errno.ENXIO, errno.EINVAL)


class NoResponse(Exception):
    """There is no usable response, with the reason. ``rcode`` is the response's, if it has an error."""

    def __init__(self, reason: str, rcode: int | None = None) -> None:
        super().__init__(reason)
        self.rcode = rcode


class NoAnswer(NoResponse):
    """No response came in time."""


class NoSource(NoResponse):
    """Nothing was sent, because the configured source is not an address of this machine."""


async def exchange(
    request: bytes, target: NotifyTarget, key: TsigKey | None, clock: Clock, timeout: float, source: str | None = None
) -> bytes:
    """Return the response over UDP, or over TCP if it is truncated. Signs the request if there is a key.

    ``timeout`` is for each transport. ``source`` is the address to send from; with None, the system chooses it. Raises
    NoResponse.
    """
    try:
        return await _exchange(request, target, key, clock, timeout, source)
    except NoSource:
        raise
    except NoResponse:
        # With ``ip_nonlocal_bind``, as for VRRP, a socket may be bound to any address.
        if source is not None and not is_here(source):
            raise _no_source(source) from None
        raise


async def _exchange(
    request: bytes, target: NotifyTarget, key: TsigKey | None, clock: Clock, timeout: float, source: str | None
) -> bytes:
    refused, unsigned = "", None
    packet, signer = (request, None) if key is None else tsig.sign_query(request, key, int(clock()))

    def fits(response: bytes) -> bool:
        nonlocal refused, unsigned
        rcode = read_response(request, response)
        if rcode is None:
            return False
        if signer is None or tsig.check_reply(response, signer, int(clock())):
            return True
        refused = tsig.refusal(response, signer) or refused
        if rcode in (REFUSED, NOTAUTH):  # perhaps forged: a signed response may follow
            unsigned = rcode
            limit.reschedule(min(limit.when() or 0.0, asyncio.get_running_loop().time() + AFTER_REFUSAL))
        return False

    reason = "a TCP response to another query or without a valid signature"
    try:
        async with asyncio.timeout(timeout) as limit:
            response = await _ask_by_udp(packet, target.address, source, fits)
        if not response[2] << 8 & TC:
            return response
        async with asyncio.timeout(timeout) as limit:
            if fits(response := await _ask_by_tcp(packet, target.address, source)):
                return response
    except TimeoutError as error:
        if not refused and unsigned is None:
            raise NoAnswer(error.strerror or "no answer") from None
    except (OSError, EOFError) as error:
        raise NoResponse(getattr(error, "strerror", None) or str(error)) from None
    if refused:
        raise NoResponse(f"the secondary refuses our TSIG key: {refused}")
    if unsigned is not None:
        raise NoResponse(f"{rcode_text(unsigned)} without a signature", unsigned)
    raise NoResponse(reason)


async def _ask_by_udp(packet: bytes, address: Address, source: str | None, fits: Callable[[bytes], bool]) -> bytes:
    to = socket_address(*address)
    with _socket(socket.SOCK_DGRAM, address, source) as sock:
        with _source_named(source):
            sock.connect(to)
        sock.send(packet)
        # A forged refusal must not hide the response that follows it.
        while not fits(response := await asyncio.get_running_loop().sock_recv(sock, MAX_MESSAGE)):
            await asyncio.sleep(0)  # a flood of packets must not block the event loop
        return response


async def _ask_by_tcp(packet: bytes, address: Address, source: str | None) -> bytes:
    to = socket_address(*address)
    with _socket(socket.SOCK_STREAM, address, source) as sock:
        with _source_named(source):
            await asyncio.get_running_loop().sock_connect(sock, to)
        reader, writer = await asyncio.open_connection(sock=sock)
        try:
            writer.write(len(packet).to_bytes(2, "big") + packet)
            return await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
        finally:
            writer.close()


def _socket(kind: socket.SocketKind, address: Address, source: str | None) -> socket.socket:
    """Return a socket for requests to an address, bound to the source. Raises NoSource."""
    sock = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET, kind)
    sock.setblocking(False)
    try:
        if source is not None:
            with _source_named(source):
                sock.bind(socket_address(source, 0))
    except BaseException:
        sock.close()
        raise
    return sock


@contextlib.contextmanager
def _source_named(source: str | None) -> Iterator[None]:
    """Raise NoSource for an error that means that the source is not an address of this machine."""
    try:
        yield
    except OSError as error:
        if source is None or error.errno not in NOT_HERE:
            raise
        raise _no_source(source) from None


def _no_source(source: str) -> NoSource:
    return NoSource(f"{source} is not an address of this machine")


def is_here(source: str) -> bool:
    """Return whether an address is one of this machine: a packet to it would have it as its source. Sends none."""
    if ipaddress.ip_address(source).is_loopback:
        return True
    with socket.socket(socket.AF_INET6 if ":" in source else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(socket_address(source, PORT))
        except OSError:
            return False
        return ipaddress.ip_address(sock.getsockname()[0].partition("%")[0]) == ipaddress.ip_address(
            source.partition("%")[0]
        )


def make_request(origin: Labels, soa: RRset | None = None) -> bytes:
    """Return an SOA query without recursion; with ``soa``, a NOTIFY with AA set and this hint (RFC 1996 3.7)."""
    buffer = MessageBuffer()
    DNSHeader(secrets.randbits(16), NOTIFY << 11 | AA if soa else 0, 1, bool(soa)).pack(buffer)
    buffer.put_question(DNSQuestion(DNSLabel(origin), SOA, IN), len(origin))
    if soa:
        buffer.put_rrset(soa, MAX_MESSAGE)
    return bytes(buffer.data)


def read_response(request: bytes, packet: bytes) -> int | None:
    """Return the RCODE if the packet is the response to the request, otherwise None."""
    end = read_name(request, HEADER_SIZE)[1] + 4
    if len(packet) < HEADER_SIZE or packet[:2] != request[:2] or (packet[2] ^ request[2]) & 0xF8 != 0x80:
        return None
    # An error response may have no question, such as BIND's FORMERR.
    if packet[4:6] != b"\0\0" and packet[HEADER_SIZE:end] != request[HEADER_SIZE:end]:
        return None
    return packet[3] & RCODE_BITS


def rcode_text(rcode: int) -> str:
    return dns.rcode.to_text(dns.rcode.Rcode.make(rcode))


def read_serial(response: bytes) -> int:
    """Return the serial in the response to an SOA query. Raises NoResponse with the reason if it has none."""
    try:
        message = Message.parse(response, MAX_SOA_RECORDS)
    except DNSError as error:
        raise NoResponse(f"a malformed response: {error}") from None
    rcode = int.from_bytes(response[2:4], "big") & RCODE_BITS
    if rcode:
        raise NoResponse(rcode_text(rcode), rcode)
    if not message.header.aa:
        raise NoResponse("a response without AA")
    serials = [bytes(record.rdata.data[-20:-16]) for record in message.rr if record.rtype == SOA]
    if len(serials) != 1 or len(serials[0]) != 4:
        raise NoResponse("a response without SOA")
    return int.from_bytes(serials[0], "big")
