"""A load of mixed traffic through the async cache while its DNS server goes and comes back."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import dns.message
import dns.rcode

from maptr.cache.cache import Cache
from maptr.errors import DiscoveryFailed, NoMappingAuthority
from tests.caching import table
from tests.test_cache_faults import Server
from tests.test_client import zone

RESTARTS = 3
NAANS = range(10000, 10200)
SHORT = zone({f"{naan}.ark.arpa.": [f'0 0 "h" "ark" "" d{naan}.example.'] for naan in NAANS})
IN_TABLE = range(10000, 10150)


def answer(query: dns.message.Message) -> dns.message.Message | None:
    """The zone, with a TTL of a second, so that the cache is kept asking."""
    reply = SHORT(query)
    if reply is not None:
        for section in (reply.answer, reply.authority):
            for rrset in section:
                rrset.ttl = 1
    return reply


def test_no_wrong_answer_and_no_error_out_of_contract(tmp_path: Path) -> None:
    server = Server()
    server.script = answer
    server.start()
    natab = table(*((str(naan), f"t{naan}.example") for naan in IN_TABLE))
    cache = Cache(natab, tmp_path / "c", nameservers=[f"127.0.0.1#{server.port}"], lifetime=0.5, patience=0.05)
    outcomes: dict[str, int] = {}
    rng = random.Random(6)

    async def client(stop: asyncio.Event) -> None:
        while not stop.is_set():
            naan = rng.choice([*NAANS, 20000, 20001])
            try:
                found = await cache.discover_async(f"ark:{naan}/x{rng.randrange(50)}")
            except NoMappingAuthority:
                assert naan >= 20000
                outcome = "none"
            except DiscoveryFailed:
                assert naan not in IN_TABLE, "the table has it"
                outcome = "not known"
            else:
                assert found[0].host == (f"t{naan}.example" if found.source == "natab" else f"d{naan}.example")
                assert found.source == "natab" or naan < 20000
                outcome = found.source + (" stale" if found.stale else "")
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            await asyncio.sleep(0.001)

    async def main() -> None:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(client(stop))
            for _ in range(RESTARTS):
                await asyncio.sleep(0.5)
                await asyncio.to_thread(server.kill)
                await asyncio.sleep(0.5)
                await asyncio.to_thread(server.start)
            await asyncio.sleep(0.5)
            stop.set()

    try:
        asyncio.run(main())
    finally:
        server.kill()
        cache.close()
    assert outcomes["dns"]
    assert outcomes["memory"]
    assert outcomes.get("memory stale", 0) + outcomes.get("disk stale", 0) + outcomes.get("natab", 0)
