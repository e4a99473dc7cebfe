"""NOTIFY (RFC 1996) and SOA queries to one secondary: the messages, and their exchange over UDP and TCP."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable

import dns.rcode
from dnslib import DNSError, DNSHeader, DNSQuestion
from dnslib.label import DNSLabel

from maptr.answer.message import Message, MessageBuffer
from maptr.protocol.address import Address
from maptr.protocol.names import Labels, read_name
from maptr.protocol.numbers import AA, HEADER_SIZE, IN, MAX_MESSAGE, NOTIFY, RCODE_BITS, SOA, TC
from maptr.resolver.servers import socket_address
from maptr.server.state import Clock
from maptr.transfer import tsig
from maptr.transfer.acl import NotifyTarget, TsigKey
from maptr.zone.rrset import RRset

MAX_SOA_RECORDS = 100  # records of a response to an SOA query, including NS records, addresses and signatures


class NoResponse(Exception):
    """There is no usable response, with the reason."""


async def exchange(request: bytes, target: NotifyTarget, key: TsigKey | None, clock: Clock, timeout: float) -> bytes:
    """Return the response over UDP, or over TCP if that is truncated. Signs the request if there is a key.

    ``timeout`` is for each of the two. Raises NoResponse.
    """
    refused = ""
    packet, signer = (request, None) if key is None else tsig.sign_query(request, key, int(clock()))

    def fits(response: bytes) -> bool:
        nonlocal refused
        if read_response(request, response) is None:
            return False
        if signer is None or tsig.check_reply(response, signer, int(clock())):
            return True
        refused = tsig.refusal(response, signer) or refused
        return False

    try:
        async with asyncio.timeout(timeout):
            response = await _ask_by_udp(packet, target.address, fits)
        if not response[2] << 8 & TC:
            return response
        async with asyncio.timeout(timeout):
            response = await _ask_by_tcp(packet, target.address)
    except (OSError, EOFError) as error:
        if refused and isinstance(error, TimeoutError):
            raise NoResponse(f"the secondary refuses our TSIG key: {refused}") from None
        silent = isinstance(error, TimeoutError) and not error.strerror
        raise NoResponse("no answer" if silent else getattr(error, "strerror", None) or str(error)) from None
    if fits(response):
        return response
    if refused:
        raise NoResponse(f"the secondary refuses our TSIG key: {refused}")
    raise NoResponse("a TCP response to another query, or without a valid signature")


async def _ask_by_udp(packet: bytes, address: Address, fits: Callable[[bytes], bool]) -> bytes:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.connect(socket_address(*address))
        sock.send(packet)
        # A forged refusal must not hide the response that follows it.
        while not fits(response := await asyncio.get_running_loop().sock_recv(sock, MAX_MESSAGE)):
            await asyncio.sleep(0)  # a flood of packets must not block the event loop
        return response


async def _ask_by_tcp(packet: bytes, address: Address) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(len(packet).to_bytes(2, "big") + packet)
        return await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
    finally:
        writer.close()


def make_request(origin: Labels, soa: RRset | None = None) -> bytes:
    """Return an SOA query without recursion; with ``soa``, a NOTIFY with AA set and this hint (RFC 1996 3.7)."""
    buffer = MessageBuffer()
    DNSHeader(secrets.randbits(16), NOTIFY << 11 | AA if soa else 0, 1, bool(soa)).pack(buffer)
    buffer.put_question(DNSQuestion(DNSLabel(origin), SOA, IN), len(origin))
    if soa:
        buffer.put_rrset(soa, MAX_MESSAGE)
    return bytes(buffer.data)


def read_response(request: bytes, packet: bytes) -> int | None:
    """Return the rcode if the packet is the response to the request, otherwise None."""
    end = read_name(request, HEADER_SIZE)[1] + 4
    if len(packet) < HEADER_SIZE or packet[:2] != request[:2] or (packet[2] ^ request[2]) & 0xF8 != 0x80:
        return None
    # An error response may have no question, such as BIND's FORMERR.
    if packet[4:6] != b"\0\0" and packet[HEADER_SIZE:end] != request[HEADER_SIZE:end]:
        return None
    return packet[3] & RCODE_BITS


def read_serial(response: bytes) -> int:
    """Return the serial in the response to an SOA query. Raises NoResponse with the reason if it has none."""
    try:
        message = Message.parse(response, MAX_SOA_RECORDS)
    except DNSError as error:
        raise NoResponse(f"a malformed response: {error}") from None
    rcode = int.from_bytes(response[2:4], "big") & RCODE_BITS
    if rcode:
        raise NoResponse(dns.rcode.to_text(dns.rcode.Rcode.make(rcode)))
    if not message.header.aa:
        raise NoResponse("a response without AA")
    serials = [bytes(record.rdata.data[-20:-16]) for record in message.rr if record.rtype == SOA]
    if len(serials) != 1 or len(serials[0]) != 4:
        raise NoResponse("a response without SOA")
    return int.from_bytes(serials[0], "big")
