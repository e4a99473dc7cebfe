"""The packed table of a zone."""

from __future__ import annotations

import dns.name

from maptr.zone.packed import PackedNodes


def test_rfc4034_6_1_the_order_of_names() -> None:
    """The example of the section."""
    owners = ["example", "a.example", "yljkjljk.a.example", "Z.a.example", "zABC.a.EXAMPLE", "z.example"]
    names = [dns.name.from_text(owner).to_wire() or b"" for owner in owners]
    folded = [name.lower() for name in names]
    assert [name for _, name in PackedNodes(dict.fromkeys(reversed(folded), b""), {}).in_order()] == folded
