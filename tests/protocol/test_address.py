"""The text form of socket addresses."""

from __future__ import annotations

import pytest

from maptr.protocol.address import Address, read_target


@pytest.mark.parametrize(
    ("text", "shown"), [("127.0.0.1:53", "127.0.0.1:53"), ("[::1]:0", "[::1]:0"), ("[0:0::1]:65535", "[::1]:65535")]
)
def test_address_text(text: str, shown: str) -> None:
    assert str(Address.from_text(text)) == shown


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1", "127.0.0.1:", ":53", "127.0.0.1:65536", "127.0.0.1:x", "::1:53", "[127.0.0.1]:53", "h:53"]
)
def test_invalid_address_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|must be an IP address|brackets"):
        Address.from_text(text)


@pytest.mark.parametrize("text", ["[fe80::1]:53", "[febf::1]:0"])
def test_rfc4007_6_a_link_local_address_needs_its_interface(text: str) -> None:
    for read, given in ((Address.from_text, text), (read_target, text), (read_target, text[1 : text.index("]")])):
        with pytest.raises(ValueError, match=r"add its interface, as in fe[0-9a-f]+::1%eth0"):
            read(given)
    assert Address.from_text(text.replace("]", "%eth1]")).host.endswith("::1%eth1")
    assert read_target("fec0::1").host == "fec0::1"
