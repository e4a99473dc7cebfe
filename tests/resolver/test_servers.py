"""DNS servers as users write them, and those in resolv.conf."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import dns.rdata
import dns.resolver
import pytest

from maptr import discover, discover_many
from maptr.discovery import DiscoveryFailed
from maptr.errors import ConfigError
from maptr.resolver.servers import ResolverOptions, Server, check_server, find_servers, is_address, system_servers
from maptr.resolver.stub import Stub
from maptr.resolver.validation.validator import Validator

KEY = dns.rdata.from_text("IN", "DNSKEY", f"257 3 13 {'A' * 86}==")
NOT_SERVERS = (
    *("", "#53", "a#", "a#0", "a#65536", "a#x", "a#99999999", "192.0.2.1:53", "[::1]", "[::1]:53", "a/b"),
    *(
        "a..b",
        ".",
        "a" * 64,
        "-a",
        "a b",
        " 192.0.2.1",
        "192.0.2.1\n",
        "@192.0.2.1",
        "a,b",
        "256.1.1.1",
        "192.0.2.1%lo",
    ),
)


@pytest.mark.parametrize("text", ["fe80::1", "fe80::1#5300", "tcp://fe80::1", "tls://fe80::1"])
def test_rfc4007_6_a_link_local_server_needs_its_interface(text: str) -> None:
    for ask in (discover, lambda ark, nameservers: next(discover_many([ark], nameservers=nameservers))):
        with pytest.raises(ConfigError, match="add its interface, as in fe80::1%eth0"):
            ask("ark:12345/x", nameservers=[text])
        with pytest.raises(DiscoveryFailed, match=r"the server fe80::1%none cannot be reached: no interface"):
            ask("ark:12345/x", nameservers=[text.replace("::1", "::1%none")])


@pytest.mark.parametrize("text", ["192.0.2.1%eth0", "fe80::1%", "fe80::1%eth0/64", "x%eth0"])
def test_what_is_not_an_address(text: str) -> None:
    assert not is_address(text)


def test_a_name_with_a_link_local_address_keeps_its_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(10, 2, 17, "", ("fe80::1", 53, 0, 4)), (10, 2, 17, "", ("2001:db8::1", 53, 0, 0))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: [*found, (2, 2, 17, "", ("192.0.2.1", 53))])
    assert find_servers("h.example") == [Server("fe80::1%4"), Server("2001:db8::1"), Server("192.0.2.1")]


def test_servers_are_read_from_text() -> None:
    assert find_servers("192.0.2.1") == [Server("192.0.2.1", 53)]
    assert find_servers("::1#5300") == [Server("::1", 5300)]
    assert find_servers("tcp://fe80::1%1#5300")[0].socket_address == ("fe80::1", 5300, 0, 1)
    assert Server("127.0.0.1", 5300) in find_servers("localhost", 5300) or find_servers("localhost", 5300)
    for bad in NOT_SERVERS:
        for scheme in ("", "tcp://", "tls://"):
            with pytest.raises(ValueError, match="not a server"):
                check_server(scheme + bad)
    with pytest.raises(DiscoveryFailed, match=r"^no address for the server nowhere\.invalid: [A-Z]"):  # and no errno
        find_servers("nowhere.invalid")
    for url in ("https://", "https://a b/"):
        with pytest.raises(ValueError, match=f"^{url}: "):
            check_server(url)


# ---- resolv.conf(5)


@pytest.fixture
def resolv_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Write the file of the system."""
    conf = tmp_path / "resolv.conf"
    monkeypatch.setattr("maptr.resolver.servers.RESOLV_CONF", str(conf))
    monkeypatch.delenv("RES_OPTIONS", raising=False)

    def write(text: str) -> Path:
        conf.write_text(text)
        return conf

    return write


def test_the_first_three_servers_are_those_of_the_system(resolv_conf: Callable[[str], Path]) -> None:
    three = "# x\nnameserver 192.0.2.1\nnameserver bad\nsearch a\nnameserver 2001:db8::1\n"
    conf = resolv_conf(three + "nameserver 192.0.2.9\n" * 3)
    assert system_servers() == ["192.0.2.1", "2001:db8::1", "192.0.2.9"]
    conf.unlink()
    conf.mkdir()
    with pytest.raises(DiscoveryFailed, match="no resolver"):
        system_servers()


@pytest.mark.parametrize(
    "text", [None, "", "# nameserver 192.0.2.1\n", "search example.\n", "nameserver\n", "nameserver x\n"]
)
def test_without_a_nameserver_the_server_is_localhost(text: str | None, resolv_conf: Callable[[str], Path]) -> None:
    conf = resolv_conf(text or "")
    if text is None:
        conf.unlink()
    assert system_servers() == ["127.0.0.1"]
    assert Stub().servers == (Server("127.0.0.1"),)


def test_a_pipe_without_writer_and_a_device_without_end_name_no_server(resolv_conf: Callable[[str], Path]) -> None:
    conf = resolv_conf("")
    conf.unlink()
    conf.symlink_to("/dev/zero")
    assert system_servers() == ["127.0.0.1"]
    conf.unlink()
    os.mkfifo(conf)
    assert system_servers() == ["127.0.0.1"]


def test_a_server_that_cannot_be_asked_is_skipped_with_a_line_in_the_log(
    resolv_conf: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    conf = resolv_conf("nameserver fe80::1\nnameserver fe80::1%none\nnameserver fe80::1%1\nnameserver 192.0.2.1#53\n")
    assert system_servers() == ["fe80::1%1"]
    reasons = ("fe80::1 is link-local: add its interface", "no interface with this name", "is not an IP address")
    assert [reason in line for reason, line in zip(reasons, caplog.messages, strict=True)] == [True] * 3
    assert caplog.messages[0].startswith(f"{conf}: nameserver fe80::1 is skipped: ")


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", ResolverOptions()),
        ("ndots:2 edns0 trust-ad", ResolverOptions()),
        ("timeout:2 attempts:4 rotate use-vc", ResolverOptions(2, 4, True, True)),
        ("timeout:99999 attempts:99999", ResolverOptions(30, 5)),  # RES_MAXRETRANS, RES_MAXRETRY
        ("timeout:0 attempts:x", ResolverOptions(1, 1)),
        ("timeout: attempts:-1", ResolverOptions(1, 1)),
        ("timeout:2 timeout:3", ResolverOptions(3)),
    ],
)
def test_options_are_those_of_glibc(
    words: str,
    options: ResolverOptions,
    resolv_conf: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolv_conf(f"nameserver 192.0.2.1\noptions {words}\n")
    assert Stub().asking.options == options
    assert Stub().servers == (Server("192.0.2.1", tcp=options.tcp),)
    resolv_conf("nameserver 192.0.2.1\n")
    monkeypatch.setenv("RES_OPTIONS", words)
    assert Stub().asking.options == options


def test_options_hold_for_the_servers_of_the_system_only(resolv_conf: Callable[[str], Path]) -> None:
    conf = resolv_conf("nameserver 192.0.2.1\nnameserver 192.0.2.2\noptions timeout:7\n")
    assert Stub(["192.0.2.2"]).asking.options.timeout == 7
    for servers in (["192.0.2.3"], ["192.0.2.1", "192.0.2.3"], ["192.0.2.1#5300"]):
        assert Stub(servers).asking.options == ResolverOptions()
    conf.unlink()
    assert Stub(["192.0.2.2"]).asking.options == ResolverOptions()


@pytest.mark.parametrize("validating", [False, True])
def test_timeout_attempts_and_rotate_hold_for_every_question(
    validating: bool, resolv_conf: Callable[[str], Path]
) -> None:
    resolv_conf("nameserver 192.0.2.1\nnameserver 192.0.2.2\noptions timeout:3 attempts:2 rotate\n")
    stub = Stub(validator=Validator({"ark.arpa.": [KEY]}) if validating else None)
    first: list[str] = []
    for _ in range(4):
        exchange, asked = stub.exchange((b"12345", b"ark", b"arpa")), []
        while (attempt := exchange.next()) is not None:
            asked.append(attempt.server.address)
            assert attempt.seconds == 3
            attempt.exchange.timed_out(attempt)
        assert asked[:2] == asked[2:]
        first.append(asked[0])
    assert first in (["192.0.2.1", "192.0.2.2"] * 2, ["192.0.2.2", "192.0.2.1"] * 2)
