"""DNS servers as users write them, and those of resolv.conf."""

from __future__ import annotations

from pathlib import Path

import pytest

from maptr.client.servers import Server, find_servers, system_servers
from maptr.discovery import DiscoveryFailed

NOT_SERVERS = ("", "#53", "a#", "a#0", "a#65536", "a#x", "a#99999999", "192.0.2.1:53", "[::1]", "[::1]:53", "a/b")


def test_servers_are_read_from_text_and_from_resolv_conf(tmp_path: Path) -> None:
    assert find_servers("192.0.2.1") == [Server("192.0.2.1", 53)]
    assert find_servers("::1#5300") == [Server("::1", 5300)]
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
