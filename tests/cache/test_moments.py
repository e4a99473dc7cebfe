"""The 130 real moments of the registry, replayed: pull, plan, natab, zone, serial, IXFR, our answers, and what a
client's cache makes of them.

At the first moment the whole zone is served; after that only what the moment touched, so that a question for anything
else would be seen at once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

import dns.message
import dns.rdatatype
import dns.zone
import pytest

from maptr import registry
from maptr.answer.context import Transport
from maptr.answer.rate_limit import RrlSettings
from maptr.cache.cache import Cache
from maptr.cache.drift import Verdict
from maptr.protocol.address import Address
from maptr.protocol.serial import next_serial
from maptr.registry.plan import Plan
from maptr.registry.pull import apply_pull, plan_pull
from maptr.registry.table import Table
from maptr.server import zone_file
from maptr.server.counters import Counters
from maptr.server.daemon import Daemon
from maptr.server.responder import Responder, State
from maptr.server.state import ZoneSource
from maptr.transfer.session import Access
from maptr.zone.build import build
from maptr.zone.diff import Difference
from maptr.zone.lint import publishable
from maptr.zone.snapshot import Snapshot, ZoneView
from tests.support.moments import ORIGIN, Follower, ever_touched, of_naans, states, with_part
from tests.support.registries import applied
from tests.support.running import answering, served

# After so many of the moments the secondary's zone is compared with the one built anew; MAPTR_MOMENTS=130 does each.
WHOLE = int(os.environ.get("MAPTR_MOMENTS", "2"))


class Recording(Responder):
    """Answers as our own server does; every query is kept."""

    def __init__(self) -> None:
        super().__init__(rrl=RrlSettings(responses_per_second=0))
        self.queries: list[bytes] = []

    def answers(self, query: bytes, transport: Transport, client: str, counters: Counters) -> Iterable[bytes]:
        self.queries.append(query)
        return super().answers(query, transport, client, counters)

    def follow(self, snapshot: Snapshot) -> None:
        """Answer from this from now on, and forget what was asked."""
        self.swap(State(snapshot, Access(), self.context))
        self.queries = []

    @property
    def asked(self) -> set[str]:
        return {dns.message.from_wire(query).question[0].name.to_text().lower() for query in self.queries}


def zone_text(table: Table, serial: int) -> str:
    return build(publishable(table)[0], serial).text


def publish(table: Table, serial: int, directory: Path) -> Snapshot:
    path = directory / "ark.arpa.zone"
    path.write_text(zone_text(table, serial))
    return Snapshot.of([zone_file.read_checked(ZoneSource.from_text(f"ark.arpa={path}")).view])


def the_zone(snapshot: Snapshot) -> ZoneView:
    (view,) = snapshot.zones.values()
    return view


def touched_by(plan: Plan) -> set[str]:
    return {entry.naan for entry in (*plan.added, *plan.removed, *(new for _, new in plan.changed))}


def check_one_change(change: Difference, naans: set[str]) -> None:
    """Of each NAAN that was touched, and of no other name, its NAPTR and TXT RRsets alone."""
    for record in (*change.removed, *change.added):
        assert record.owner[0].decode() in naans
        assert len(record.owner) == 3
        assert record.rdtype in (dns.rdatatype.NAPTR, dns.rdatatype.TXT)
    assert not set(change.removed) & set(change.added), "what stays is not sent"


def check_natab(table: Table) -> None:
    """natab says of each NAAN what it can hold."""
    text, losses = registry.write_natab(table)
    back = registry.read(text)
    assert list(back) == table.naans()
    lost = {loss.record for loss in losses}
    assert [back[naan] for naan in back if naan not in lost] == [table[naan] for naan in back if naan not in lost]


@pytest.mark.real_data
def test_the_real_moments(real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Batches find ready responses themselves, and the responder would not see each query.
    monkeypatch.setattr("maptr.server.batch.why_not", lambda: "every query is kept")
    (_, start), *moments = states(real_data)
    source, target = tmp_path / "source.json", tmp_path / "naans.json"
    serial = next_serial("date", 0.0)
    source.write_text(json.dumps(start))
    apply_pull(plan_pull(target, [str(source)]), wall=lambda: 0.0)
    table = registry.read(target.read_bytes())
    # Moment by moment those records are pulled that any moment touches: the bulk, read each time, stays what it is.
    some = ever_touched([start, *(document for _, document in moments)])
    some_source, some_target = tmp_path / "some-source.json", tmp_path / "some.json"
    some_target.write_text(json.dumps(of_naans(start, some)))
    whole = publish(table, serial, tmp_path)
    secondary = Follower(the_zone(whole))
    server = Recording()
    daemon = Daemon(served(whole), [Address("127.0.0.1", 0)], responder=server)
    with answering(daemon):
        # What DNS did not have is known for minutes. This may take longer, so the cache's time goes slower.
        nameservers = [f"127.0.0.1#{daemon.bound[0].port}"]
        cache = Cache(table, nameservers=nameservers, lifetime=20.0, clock=lambda: time.monotonic() / 100)
        first = [drift for group in cache.drift_many() for drift in group]
        assert {drift.verdict for drift in first} <= {Verdict.SAME, Verdict.LOSSY}
        reconciled = seen = 0
        for seen, (when, document) in enumerate(moments, 1):
            some_source.write_text(json.dumps(of_naans(document, some)))
            pull = plan_pull(some_target, [str(some_source)], force=True)  # few are left, so that much of them changes
            apply_pull(pull, wall=lambda: 0.0)
            touched = touched_by(pull.plan)
            table = Table(applied(pull.plan, table).values())
            part = Table(entry for entry in table.values() if entry.naan in touched)
            check_natab(part)
            following = next_serial("date", when, serial)
            published = publish(part, following, tmp_path)
            server.follow(published)
            change = secondary.publish(with_part(secondary.view, the_zone(published), touched))
            if change is not None:
                assert (change.from_serial, change.to_serial) == (serial, following)
                check_one_change(change, touched)
                serial = following
            if seen % (130 // WHOLE) == 0:
                assert secondary.zone == dns.zone.from_text(zone_text(table, serial), ORIGIN, relativize=False)
                check_natab(table)
            cache.follow(table)
            for naan in touched:
                cache.forget(naan)
            verdicts = [drift for group in cache.drift_many(sorted(touched)) for drift in group]
            assert [d for d in verdicts if d.verdict not in (Verdict.SAME, Verdict.LOSSY)] == []
            assert server.asked == {f"{naan}.ark.arpa." for naan in touched}
            reconciled += len(touched)
        source.write_text(json.dumps(moments[-1][1]))
        pull = plan_pull(target, [str(source)])
        assert applied(pull.plan, registry.read(target.read_bytes())) == dict(table), "as all the moments together"
        apply_pull(pull, wall=lambda: 0.0)
        server.queries = []
        last = [drift for group in cache.drift_many() for drift in group]
    assert seen == 130
    assert server.asked == set(), "what was not touched is known, and asks nothing"
    assert {drift.verdict for drift in last} <= {Verdict.SAME, Verdict.LOSSY}
    assert dict(table) == dict(registry.read(target.read_bytes()))
    assert dict(table) == dict(registry.read((real_data / "naan_records.json").read_bytes()))
    assert reconciled >= 130
    assert secondary.ixfr < secondary.axfr, "all the changes of two years are less than the zone once"
