"""The 130 real moments of the registry, replayed: pull, plan, zone, our answers, and what a client's cache makes of it.

At the first moment the whole zone is served; after that only what the moment touched, so that a question for anything
else would be seen at once.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dns.message
import pytest

from maptr import registry
from maptr.answer import Transport
from maptr.cache.cache import Cache
from maptr.drift import Verdict
from maptr.lint import publishable
from maptr.plan import Plan
from maptr.pull import apply, look
from maptr.rrl import RrlSettings
from maptr.serve import zones
from maptr.serve.counters import Counters
from maptr.serve.daemon import Address, Daemon
from maptr.serve.zones import ZoneSource
from maptr.snapshot import Snapshot
from maptr.table import Table
from maptr.zone import build
from tests.test_serve import Running


class Recording(Daemon):
    """Our own server on loopback; every query is kept."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__([], [Address("127.0.0.1", 0)], snapshot, rrl=RrlSettings(responses_per_second=0))
        self.queries: list[bytes] = []
        answers = self.front.answers

        def recorded(query: bytes, transport: Transport, client: str, counters: Counters | None = None) -> object:
            self.queries.append(query)
            return answers(query, transport, client, counters)

        setattr(self.front, "answers", recorded)  # noqa: B010 - mypy would not have it assigned

    @property
    def asked(self) -> set[str]:
        return {dns.message.from_wire(query).question[0].name.to_text().lower() for query in self.queries}


@contextmanager
def answering(snapshot: Snapshot) -> Iterator[Recording]:
    running = Running()
    daemon = Recording(snapshot)
    daemon.bind()
    future = asyncio.run_coroutine_threadsafe(daemon.run(), running.loop)
    try:
        yield daemon
    finally:
        running.call(daemon.stop)
        future.result(10)
        running.close()


def publish(table: Table, directory: Path) -> Snapshot:
    path = directory / "ark.arpa.zone"
    path.write_text(build(publishable(table)[0], 1).text)
    return zones.load((ZoneSource.from_text(f"ark.arpa={path}"),))


def touched_by(plan: Plan) -> set[str]:
    return {entry.naan for entry in (*plan.added, *plan.removed, *(new for _, new in plan.changed))}


@pytest.mark.real_data
def test_the_real_moments(real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Batches answer from what a reload made ready, and pass by whoever would keep each query.
    monkeypatch.setattr("maptr.serve.batch.why_not", lambda: "every query is kept")
    document = json.loads(gzip.decompress((real_data / "naan_records_2024-06-21.json.gz").read_bytes()))
    records = {record["what"]: record for record in document["data"]}
    lines = gzip.decompress((real_data / "naan_updates.jsonl.gz").read_bytes()).splitlines()
    moments = [list(group) for _, group in itertools.groupby(map(json.loads, lines), key=lambda event: event["t"])]
    assert len(moments) == 130
    source, target = tmp_path / "source.json", tmp_path / "naans.json"
    source.write_text(json.dumps(document))
    apply(look(target, [str(source)]), wall=lambda: 0.0)
    table = registry.read(target.read_bytes())
    with answering(publish(table, tmp_path)) as server:
        cache = Cache(table, nameservers=[f"127.0.0.1#{server.bound[0].port}"], lifetime=20.0)
        first = [drift for group in cache.drift_many() for drift in group]
        assert {drift.verdict for drift in first} <= {Verdict.SAME, Verdict.LOSSY}
        reconciled = 0
        for events in moments:
            for event in events:
                records.pop(event["what"], None)
                records |= {event["what"]: event["new"]} if event["op"] != "remove" else {}
            source.write_text(json.dumps({**document, "data": list(records.values())}))
            pull = look(target, [str(source)])
            apply(pull, wall=lambda: 0.0)
            touched = touched_by(pull.plan)
            table = pull.plan.apply(table)
            part = Table(entry for entry in table.values() if entry.naan in touched)
            server.front.snapshot, server.queries = publish(part, tmp_path), []
            cache.follow(table)
            for naan in touched:
                cache.forget(naan)
            verdicts = [drift for group in cache.drift_many(sorted(touched)) for drift in group]
            assert [d for d in verdicts if d.verdict not in (Verdict.SAME, Verdict.LOSSY)] == []
            assert server.asked == {f"{naan}.ark.arpa." for naan in touched}
            reconciled += len(touched)
        server.queries = []
        last = [drift for group in cache.drift_many() for drift in group]
    assert server.asked == set(), "what was not touched is known, and asks nothing"
    assert {drift.verdict for drift in last} <= {Verdict.SAME, Verdict.LOSSY}
    assert dict(table) == dict(registry.read(target.read_bytes()))
    assert dict(table) == dict(registry.read((real_data / "naan_records.json").read_bytes()))
    assert reconciled >= 130
