"""Scripted name servers that take and return dnspython messages. For hostile packets see ``hostile``."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rrset

Script = Callable[[dns.message.Message], dns.message.Message | None]


class Scripted(socketserver.ThreadingUDPServer):
    """A name server that does what a function says; None is silence."""

    daemon_threads = True

    def finish_request(self, request: Any, client_address: Any) -> None:
        data, sock = request
        reply = self.answer(dns.message.from_wire(data))
        if reply is not None:
            with suppress(OSError):  # the test is over already, and its socket closed
                sock.sendto(reply.to_wire(), client_address)

    def __init__(self, answer: Script) -> None:
        self.answer = answer
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # a lost query is repeated only later


@contextmanager
def running(server: socketserver.TCPServer) -> Iterator[int]:
    """Run a server in a thread, and yield its port."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def serving(answer: Script) -> AbstractContextManager[int]:
    """The port of a scripted server."""
    return running(Scripted(answer))


def zone(records: dict[str, list[str]], rcode: dns.rcode.Rcode = dns.rcode.NXDOMAIN) -> Script:
    """NAPTR by name; another name has the rcode, with a SOA."""

    def answer(query: dns.message.Message) -> dns.message.Message:
        reply = dns.message.make_response(query)
        reply.flags |= dns.flags.AA
        name = query.question[0].name.canonicalize().to_text()
        if records.get(name):
            reply.answer.append(dns.rrset.from_text_list(name, 300, "IN", "NAPTR", records[name]))
        else:
            reply.set_rcode(dns.rcode.NOERROR if name in records else rcode)
            reply.authority.append(dns.rrset.from_text("ark.arpa.", 900, "IN", "SOA", "a. b. 1 2 3 4 60"))
        return reply

    return answer
