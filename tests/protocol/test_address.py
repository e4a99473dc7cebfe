"""The text form of socket addresses."""

from __future__ import annotations

import pytest

from maptr.protocol.address import Address


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
