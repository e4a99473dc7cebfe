"""The source of requests to secondaries, on a machine where any address can be bound, as for VRRP."""

from __future__ import annotations

import sys

from tests.support.namespaces import with_loopback

PROGRAM = """
import asyncio, sys, time
from maptr.protocol.names import parse
from maptr.server.requests import NoResponse, exchange, make_request
from maptr.transfer.acl import NotifyTarget

async def ask(target, source):
    try:
        target = NotifyTarget.from_text(target)
        await exchange(make_request(parse("ark.arpa")), target, None, time.time, 0.3, source)
    except NoResponse as error:
        print(type(error).__name__)

for source in sys.argv[2:]:
    asyncio.run(ask(sys.argv[1], source))
"""


def test_a_source_that_is_bound_without_being_here_is_no_source() -> None:
    """With ``ip_nonlocal_bind``, bind(2) takes any address."""
    with with_loopback() as network:
        network.cable()
        network.ip("address add 192.0.2.1/24 dev va", "address add 2001:db8::1/64 dev va nodad")
        for version in ("ipv4", "ipv6"):
            network.run("sh", "-c", f"echo 1 > /proc/sys/net/{version}/ip_nonlocal_bind", or_skip=True)

        def asked(target: str, *sources: str) -> list[str]:
            return network.run(sys.executable, "-c", PROGRAM, target, *sources).split()

        assert asked("192.0.2.9:53", "192.0.2.1", "192.0.2.2", "203.0.113.7") == ["NoAnswer", "NoSource", "NoSource"]
        assert asked("[2001:db8::9]:53", "2001:db8::1", "2001:db8::2") == ["NoAnswer", "NoSource"]
