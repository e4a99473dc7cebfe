"""dig, kdig, drill and OpenSSL query maptr over UDP, TCP and TLS, with each option they support."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.peers import TlsMaptr, run


@pytest.fixture(scope="module")
def server(vectors: Path) -> Iterator[TlsMaptr]:
    with TlsMaptr({"ark.arpa.": vectors / "peers.zone"}, "--nsid=ns1") as running:
        yield running


def run_tool(command: str, *arguments: object) -> str:
    done = run(command, *arguments)
    assert done.accepted, done.output
    return done.output


def query(tool: str, server: TlsMaptr, *options: str) -> str:
    port = server.tls_port if any(option.startswith("+tls") for option in options) else server.port
    out = run_tool(tool, f"@{server.host}", "-p", str(port), "12345.ark.arpa.", "NAPTR", "+norec", *options)
    assert "status: NOERROR" in out, out
    assert "ANSWER: 2" in out, out
    assert "WARNING" not in out, out
    return out


def dig(server: TlsMaptr, *options: str) -> str:
    return query("dig", server, "+time=5", *options)


def kdig(server: TlsMaptr, *options: str) -> str:
    return query("kdig", server, "+retry=0", *options)


@pytest.mark.parametrize("transport", ["+notcp", "+tcp", "+tls"])
def test_rfc7873_dig_accepts_the_cookie(server: TlsMaptr, transport: str) -> None:
    out = dig(server, transport, "+cookie=0102030405060708")
    assert re.search(r"; COOKIE: 0102030405060708010000[0-9a-f]{26} \(good\)", out), out


@pytest.mark.parametrize("transport", ["+notcp", "+tcp"])
def test_rfc7873_kdig_sends_the_cookie_again(server: TlsMaptr, transport: str) -> None:
    out = kdig(server, transport, "+cookie=0102030405060708")
    found = re.search(r"COOKIE: ([0-9A-Fa-f]{48})", out.replace(" ", "").replace("COOKIE:", "COOKIE: "))
    assert found, out
    again = kdig(server, transport, f"+cookie={found[1]}")
    assert found[1].lower() in again.replace(" ", "").lower()


@pytest.mark.parametrize("transport", ["+notcp", "+tcp", "+tls"])
def test_rfc5001_nsid(server: TlsMaptr, transport: str) -> None:
    assert '("ns1")' in dig(server, transport, "+nsid")
    assert "ns1" in kdig(server, transport, "+nsid")
    assert "ns1" not in kdig(server, transport)


def test_rfc7828_keepalive(server: TlsMaptr) -> None:
    assert "TCP KEEPALIVE: 10.0 secs" in dig(server, "+tcp", "+keepalive").replace("TCP-KEEPALIVE", "TCP KEEPALIVE")
    assert "KEEPALIVE" not in dig(server, "+notcp", "+keepalive")


def test_rfc8467_padding(server: TlsMaptr) -> None:
    padded = kdig(server, "+tls", "+padding")
    assert re.search(r"Received 468 B", padded), padded
    assert "PADDING" in padded
    assert "PADDING" not in kdig(server, "+tcp", "+padding=128")
    assert "PAD" in dig(server, "+tls", "+padding=64")


def test_several_queries_on_one_tls_connection(server: TlsMaptr) -> None:
    questions = ["12345.ark.arpa.", "NAPTR"] * 3
    out = run_tool("kdig", f"@{server.host}", "-p", server.tls_port, "+tls", "+keepopen", "+norec", *questions)
    assert out.count("status: NOERROR") == 3


def test_rfc7858_the_name_of_the_server_is_verified(server: TlsMaptr) -> None:
    kdig(server, "+tls", f"+tls-ca={server.directory}/tls.crt", "+tls-hostname=ns1.example")


def test_drill_reads_the_response(server: TlsMaptr) -> None:
    for options in ([], ["-t"], ["-b", "1232"]):
        out = run_tool("drill", "-p", str(server.port), *options, "12345.ark.arpa.", "NAPTR", f"@{server.host}")
        assert "rcode: NOERROR" in out
        assert "ANSWER: 2" in out


def test_rfc7858_openssl_negotiates_dot(server: TlsMaptr) -> None:
    out = run_tool(
        *("openssl", "s_client", "-connect", f"{server.host}:{server.tls_port}", "-alpn", "dot"),
        *("-CAfile", f"{server.directory}/tls.crt", "-verify_return_error"),
    )
    assert "ALPN protocol: dot" in out
    assert re.search(r"TLSv1\.3|Protocol *: TLSv1\.3", out)


def test_class_chaos_is_refused_unless_it_is_configured(server: TlsMaptr) -> None:
    out = run_tool("dig", f"@{server.host}", "-p", str(server.port), "version.bind", "TXT", "CH", "+norec")
    assert "status: REFUSED" in out
