"""Mixed traffic through discover_async while the DNS server is stopped and started.

It runs for a few seconds; ``scripts/bench cache --load 60`` runs for a minute, with a restart every five seconds.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import dns.message

from maptr.client import Client
from maptr.discovery import DiscoveryFailed, NoMappingAuthority
from tests.cache.test_faults import Server
from tests.support.caching import table
from tests.support.scripted import zone
from tests.support.waiting import PATIENCE

NAANS = range(10000, 10200)
SHORT = zone({f"{naan}.ark.arpa.": [f'0 0 "h" "ark" "" d{naan}.example.'] for naan in NAANS})
IN_TABLE = range(10000, 10150)
ABSENT = (20000, 20001)
CLIENTS = 20
WITHOUT_DNS = ("memory stale", "disk stale", "natab")  # sources while DNS does not answer


def answer(query: dns.message.Message) -> dns.message.Message | None:
    """The zone with TTLs of one second, so that the cache keeps asking."""
    reply = SHORT(query)
    if reply is not None:
        for section in (reply.answer, reply.authority):
            for rrset in section:
                rrset.ttl = 1
    return reply


async def one(client: Client, naan: int, ark: str) -> str:
    """Discover an ARK, and return the outcome as a word. Raises for a wrong answer or an undocumented error."""
    try:
        found = await client.discover_async(ark)
    except NoMappingAuthority:
        assert naan in ABSENT, f"{ark} is there"
        return "none"
    except DiscoveryFailed:
        assert naan not in IN_TABLE, f"the table has {ark}"
        return "not known"
    assert naan not in ABSENT, f"{ark} is nowhere"
    in_table = f"https://t{naan}.example/{ark.replace(':', ':/')}"
    assert found.url() == (in_table if found.source == "natab" else f"https://d{naan}.example/{ark}")
    return found.source + (" stale" if found.stale else "")


def run(directory: Path, *, seconds: float, period: float) -> tuple[Counter[str], int]:
    """The outcomes, and how often the server was stopped: once a period, for a third of it."""
    server = Server()
    server.script = answer
    server.start()
    natab = table(*((str(naan), f"t{naan}.example") for naan in IN_TABLE))
    servers = [f"127.0.0.1#{server.port}"]
    client = Client(servers, table=natab, cache=directory / "c", lifetime=5.0, patience=0.05)
    outcomes: Counter[str] = Counter()
    rng = random.Random(6)

    async def ask(stop: asyncio.Event) -> None:
        while not stop.is_set():
            naan = rng.choice([*NAANS, *ABSENT])
            outcomes[await one(client, naan, f"ark:{naan}/x{rng.randrange(50)}")] += 1
            await asyncio.sleep(0.001)

    def seen_all() -> bool:
        return bool(outcomes["dns"] and outcomes["memory"]) and any(outcomes[each] for each in WITHOUT_DNS)

    async def main() -> int:
        stop = asyncio.Event()
        kills = 0
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(ask(stop))
            while kills < 2 or loop.time() + period < until:  # twice, however slow the machine is
                await asyncio.sleep(period * 2 / 3)
                await asyncio.to_thread(server.kill)
                kills += 1
                await asyncio.sleep(period / 3)
                await asyncio.to_thread(server.start)
            while loop.time() < until or (not seen_all() and loop.time() < until + PATIENCE):
                await asyncio.sleep(0.01)
            stop.set()
        return kills

    try:
        kills = asyncio.run(main())
    finally:
        server.kill()
        client.close()
    return outcomes, kills


def test_no_answer_is_wrong_and_no_error_is_undocumented(tmp_path: Path) -> None:
    outcomes, kills = run(tmp_path, seconds=3.5, period=1.0)
    assert kills >= 2
    assert outcomes["dns"]
    assert outcomes["memory"]
    assert any(outcomes[each] for each in WITHOUT_DNS)
