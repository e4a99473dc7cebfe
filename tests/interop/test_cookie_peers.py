"""RFC 9018 1: maptr and other servers behind one address accept each other's cookies."""

from __future__ import annotations

import time
from pathlib import Path

import dns.edns
import dns.message
import dns.query
import dns.rcode
import pytest

from maptr.protocol.cookies import answer_cookie, packed_address, sign, timestamp
from tests.support.peers import Bind, Knot, Nsd, Peer

SECRET = bytes.fromhex("e5e973e5a6b2a43f48e7dc849e37bfcf")  # RFC 9018 A.1
CLIENT = packed_address("127.0.0.1")


class CookieBind(Bind):
    settings = f'    cookie-algorithm siphash24;\n    cookie-secret "{SECRET.hex()}";\n'


class StrictBind(Bind):
    """Answers BADCOOKIE to cookies of another secret."""

    settings = f"{CookieBind.settings}    require-server-cookie yes;\n"


class CookieNsd(Nsd):
    settings = f'    answer-cookie: yes\n    cookie-secret: "{SECRET.hex()}"\n'


class CookieKnot(Knot):
    sections = f"mod-cookies:\n  - id: cookies\n    secret: 0x{SECRET.hex()}\n    badcookie-slip: 10000\n"
    settings = "    global-module: mod-cookies/cookies\n"


class StrictKnot(CookieKnot):
    """Answers BADCOOKIE to cookies of another secret."""

    sections = CookieKnot.sections.replace("10000", "1")  # every wrong cookie


def ask(server: Peer, cookie: bytes) -> tuple[str, bytes]:
    """The rcode, and the cookie of the response."""
    option = dns.edns.GenericOption(dns.edns.OptionType.COOKIE, cookie)
    query = dns.message.make_query("12345.ark.arpa.", "NAPTR", options=[option])
    reply = dns.query.udp(query, server.host, 5, server.port)
    (returned,) = reply.options
    wire = returned.to_wire()
    assert wire is not None
    return dns.rcode.to_text(reply.rcode()), wire


@pytest.mark.parametrize("kind", [StrictBind, CookieNsd, StrictKnot], ids=lambda kind: kind.name)
def test_servers_accept_each_others_cookies(kind: type[Peer], vectors: Path) -> None:
    with kind({"ark.arpa.": vectors / "peers.zone"}) as server:
        made = ask(server, b"maptr-01")[1]
        _, verified = answer_cookie(made, CLIENT, [bytes(16), SECRET], timestamp(time.time()))
        assert verified
        assert not answer_cookie(made, packed_address("127.0.0.2"), [SECRET], timestamp(time.time()))[1]
        good = sign(b"maptr-01" + timestamp(time.time()), CLIENT, SECRET)
        assert ask(server, good)[0] == "NOERROR"
        if kind is not CookieNsd:  # NSD cannot require cookies
            assert ask(server, good[:-1] + bytes((good[-1] ^ 1,)))[0] == "BADCOOKIE"
