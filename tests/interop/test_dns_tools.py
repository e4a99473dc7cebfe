"""dig, kdig, drill and OpenSSL query maptr over UDP, TCP and TLS, with each option they support."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.peers import TlsMaptr, output


@pytest.fixture(scope="module")
def server(vectors: Path) -> Iterator[TlsMaptr]:
    with TlsMaptr({"ark.arpa.": vectors / "peers.zone"}, "--nsid=ns1") as running:
        yield running


def query(server: TlsMaptr, tool: str, *options: str) -> str:
    port = server.tls_port if "+tls" in options else server.port
    out = output(tool, f"@{server.host}", "-p", port, "12345.ark.arpa.", "NAPTR", "+norec", *options)
    assert "status: NOERROR" in out, out
    assert "ANSWER: 2" in out, out
    assert "WARNING" not in out, out
    return out


COOKIE = "+cookie=0102030405060708"
NSID = r"\"ns1\""
KEEPALIVE = r"TCP.KEEPALIVE: 10\.0 secs"


@pytest.mark.parametrize("transport", ["+notcp", "+tcp", "+tls"])
@pytest.mark.parametrize(
    ("tool", "option", "shown"),
    [
        ("dig", COOKIE, r"; COOKIE: 0102030405060708010000[0-9a-f]{26} \(good\)"),  # RFC 7873
        ("dig", "+nsid", NSID),  # RFC 5001
        ("kdig", "+nsid", NSID),
        ("dig", "+keepalive", {"+tcp": KEEPALIVE, "+tls": KEEPALIVE}),  # RFC 7828
        ("kdig", "+padding", {"+tls": "(?s)PADDING.*Received 468 B"}),  # RFC 8467
        ("dig", "+padding=64", {"+tls": "PAD: "}),
    ],
)
def test_options(server: TlsMaptr, transport: str, tool: str, option: str, shown: str | dict[str, str]) -> None:
    """An option that counts on some transports only is left out of the response on the others."""
    out = query(server, tool, transport, option)
    pattern = shown if isinstance(shown, str) else shown.get(transport)
    assert re.search(pattern or "^", out), out
    assert pattern or not re.search("KEEPALIVE|PAD", out), out


@pytest.mark.parametrize("transport", ["+notcp", "+tcp"])
def test_rfc7873_kdig_sends_the_cookie_again(server: TlsMaptr, transport: str) -> None:
    found = re.search(r"COOKIE:([0-9A-F]{48})", query(server, "kdig", transport, COOKIE).replace(" ", "").upper())
    assert found
    again = query(server, "kdig", transport, f"+cookie={found[1]}")
    assert found[1] in again.replace(" ", "").upper()


def test_several_queries_on_one_tls_connection_to_a_verified_server(server: TlsMaptr) -> None:
    """RFC 7858."""
    verified = ("+tls", f"+tls-ca={server.directory}/tls.crt", "+tls-hostname=ns1.example")
    questions = ["12345.ark.arpa.", "NAPTR"] * 3
    out = output("kdig", f"@{server.host}", "-p", server.tls_port, *verified, "+keepopen", "+norec", *questions)
    assert out.count("status: NOERROR") == 3


def test_drill_reads_the_response(server: TlsMaptr) -> None:
    for options in ([], ["-t"], ["-b", "1232"]):
        out = output("drill", "-p", str(server.port), *options, "12345.ark.arpa.", "NAPTR", f"@{server.host}")
        assert "rcode: NOERROR" in out
        assert "ANSWER: 2" in out
