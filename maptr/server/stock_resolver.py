"""A resolver for dnslib's stock ``DNSServer`` that gives maptr's answers.

It is for tests, and for programs that use such a server. The stock server has limits that a resolver cannot change: a
thread per packet, one message per TCP connection, and no response for names that are not UTF-8.
"""

from __future__ import annotations

from typing import Any

from dnslib import DNSError, DNSRecord
from dnslib.server import BaseResolver

from maptr.answer.context import Transport
from maptr.answer.message import Message
from maptr.answer.respond import respond
from maptr.protocol.numbers import MAX_MESSAGE
from maptr.zone.snapshot import Snapshot


class MaptrResolver(BaseResolver):  # type: ignore[misc] # dnslib has no types
    """Answers from ``snapshot``, which may be replaced at any time.

    >>> from dnslib.server import DNSServer
    >>> from maptr.zone.masterfile import read_master_file
    >>> zone = read_master_file("zone", b"@ 60 SOA ns hostmaster 1 1 1 1 1\\n@ 60 NS ns\\n", (b"example",))
    >>> stock = DNSServer(MaptrResolver(Snapshot.of([zone])), address="127.0.0.1", port=0)
    >>> stock.start_thread()
    >>> stock.stop()
    >>> stock.server.server_close()
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def resolve(self, request: DNSRecord, handler: Any) -> DNSRecord:
        """Return the response of ``respond``. Raises DNSError if there is none."""
        transport = Transport.TCP if handler.protocol == "tcp" else Transport.UDP
        # For UDP the handler has the datagram, for TCP only the message that dnslib has parsed.
        query = handler.request[0] if transport is Transport.UDP else bytes(request.pack())
        reply = respond(query, self.snapshot, transport=transport, client=handler.client_address[0])
        if reply is None:
            raise DNSError("no response to this packet")
        return Message.parse(reply, MAX_MESSAGE)
