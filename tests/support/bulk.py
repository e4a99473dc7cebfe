"""A zone for bulk runs, with rules, redirects and a response that needs TCP, and its server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.hostile import Hostile, hostile, hosts, naptr

REGEXP = rb"!^ark:/?1/(.*)$!https://u.example/\1!"
ZONE = {
    "1.ark.arpa.": [naptr(flags=b"u", regexp=REGEXP), naptr("h.example.", order=9)],
    "2.ark.arpa.": [naptr("a.example.", flags=b""), naptr("b.example.", flags=b"", order=1)],
    "a.example.": [naptr("ha.example.")],
    "b.example.": [naptr("hb.example."), naptr("2.ark.arpa.", flags=b"")],
    "3.ark.arpa.": [naptr(f"h{i:03}.example.", order=i) for i in range(80)],  # by TCP
}


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with hostile(hosts(ZONE)) as running:
        yield running
