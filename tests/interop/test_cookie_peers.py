"""RFC 9018 1: maptr and other servers behind one address accept each other's cookies."""

from __future__ import annotations

import time
from pathlib import Path

import dns.edns
import dns.message
import dns.query
import dns.rcode
import pytest

from maptr.protocol.cookies import answer_cookie, packed_address
from tests.interop.cookie_peers import SECRET, CookieBind, CookieNsd, StrictBind, StrictKnot
from tests.support.peers import Peer, require

CLIENT = packed_address("127.0.0.1")


def ask(server: Peer, cookie: bytes) -> tuple[str, bytes]:
    """The rcode, and the cookie that comes back."""
    option = dns.edns.GenericOption(dns.edns.OptionType.COOKIE, cookie)
    query = dns.message.make_query("12345.ark.arpa.", "NAPTR", options=[option])
    reply = dns.query.udp(query, server.host, 5, server.port)
    (returned,) = reply.options
    wire = returned.to_wire()
    assert wire is not None
    return dns.rcode.to_text(reply.rcode()), wire


@pytest.mark.parametrize("kind", [StrictBind, StrictKnot], ids=lambda kind: kind.name)
def test_a_cookie_of_maptr_is_good_there(kind: type[Peer], vectors: Path) -> None:
    require(*kind.commands)
    with kind({"ark.arpa.": vectors / "peers.zone"}) as server:
        ours = answer_cookie(b"maptr-01", CLIENT, secrets=[SECRET], now=time.time()).option
        assert ask(server, ours)[0] == "NOERROR"
        forged = ours[:-1] + bytes((ours[-1] ^ 1,))
        assert ask(server, forged)[0] == "BADCOOKIE"


@pytest.mark.parametrize("kind", [CookieBind, CookieNsd, StrictKnot], ids=lambda kind: kind.name)
def test_a_cookie_from_there_is_good_here(kind: type[Peer], vectors: Path) -> None:
    require(*kind.commands)
    with kind({"ark.arpa.": vectors / "peers.zone"}) as server:
        _, theirs = ask(server, b"maptr-01")
    answer = answer_cookie(theirs, CLIENT, secrets=[bytes(16), SECRET], now=time.time())
    assert answer.verified
    assert not answer_cookie(theirs, packed_address("127.0.0.2"), secrets=[SECRET], now=time.time()).verified
