"""MaptrResolver: the same answers under dnslib's stock ``DNSServer``.

For tests and for those who run such a server already. The stock server has limits that no resolver can lift:
a thread a packet, one message a TCP connection, no answer to names that are not UTF-8.
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
    """Answers from ``snapshot``, which may be replaced at any time."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def resolve(self, request: DNSRecord, handler: Any) -> DNSRecord:
        """The reply, as ``respond`` laid it out. Raises DNSError, which the server takes as silence."""
        transport = Transport.TCP if handler.protocol == "tcp" else Transport.UDP
        # UDP hands over the datagram; of TCP only what dnslib understood of the message is left.
        query = handler.request[0] if transport is Transport.UDP else bytes(request.pack())
        reply = respond(query, self.snapshot, transport=transport, client=handler.client_address[0])
        if reply is None:
            raise DNSError("a packet that gets no answer")
        return Message.parse(reply, MAX_MESSAGE)
