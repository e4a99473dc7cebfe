"""DNS servers as users write them, and those of resolv.conf."""

from __future__ import annotations

from pathlib import Path

import pytest

from maptr import discover, discover_many
from maptr.client.servers import Server, find_servers, is_address, system_servers
from maptr.discovery import DiscoveryFailed
from maptr.errors import ConfigError

NOT_SERVERS = ("", "#53", "a#", "a#0", "a#65536", "a#x", "a#99999999", "192.0.2.1:53", "[::1]", "[::1]:53", "a/b")


@pytest.mark.parametrize("text", ["fe80::1", "fe80::1#5300", "tcp://fe80::1", "tls://fe80::1"])
def test_rfc4007_6_a_link_local_server_needs_its_interface(text: str) -> None:
    for ask in (discover, lambda ark, nameservers: next(discover_many([ark], nameservers=nameservers))):
        with pytest.raises(ConfigError, match="write its interface, too, as in fe80::1%eth0"):
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


def test_servers_are_read_from_text_and_from_resolv_conf(tmp_path: Path) -> None:
    assert find_servers("192.0.2.1") == [Server("192.0.2.1", 53)]
    assert find_servers("::1#5300") == [Server("::1", 5300)]
    assert find_servers("tcp://fe80::1%1#5300")[0].place == ("fe80::1", 5300, 0, 1)
    assert Server("127.0.0.1", 5300) in find_servers("localhost", 5300) or find_servers("localhost", 5300)
    for bad in NOT_SERVERS:
        with pytest.raises(ValueError, match="not a server"):
            find_servers(bad)
    with pytest.raises(DiscoveryFailed, match=r"^no address for the server nowhere\.invalid: [A-Z]"):  # and no errno
        find_servers("nowhere.invalid")
    conf = tmp_path / "resolv.conf"
    conf.write_text(
        "# x\nnameserver 192.0.2.1\nnameserver bad\nsearch a\nnameserver 2001:db8::1\n" + "nameserver 192.0.2.9\n" * 3
    )
    assert system_servers(str(conf)) == ["192.0.2.1", "2001:db8::1", "192.0.2.9"]
    with pytest.raises(DiscoveryFailed, match="no resolver"):
        system_servers(str(tmp_path / "none"))
