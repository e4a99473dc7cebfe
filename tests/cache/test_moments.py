"""The 130 changes of the real registry, replayed: pull, plan, natab, zone, serial, IXFR, answers, and drift.

At first the server has the whole zone; after that it has only the NAANs of each change, so that a query for any other
name fails the test.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import dns.message
import dns.rdatatype
import dns.zone
import pytest

from maptr import registry
from maptr.answer.context import PLAIN, ReceivedQuery
from maptr.cache.sources import Sources
from maptr.config.model import RrlConfig
from maptr.protocol.address import Address
from maptr.protocol.serial import next_serial
from maptr.reconcile.drift import Reconciler
from maptr.reconcile.verdict import Verdict
from maptr.registry.followed_file import TableState
from maptr.registry.plan import Plan
from maptr.registry.pull import apply_pull, plan_pull
from maptr.registry.table import Table
from maptr.resolver.resolver import Resolver
from maptr.server.counters import Counters
from maptr.server.responder import Responder, ServerState
from maptr.transfer.session import Access
from maptr.zone.build import build
from maptr.zone.diff import Difference
from maptr.zone.lint import publishable
from maptr.zone.load import read_checked
from maptr.zone.snapshot import Snapshot, ZoneView
from tests.support.moments import ORIGIN, Follower, ever_touched, of_naans, states, with_part
from tests.support.registries import applied
from tests.support.running import answering, daemon_of

# How often the secondary's zone is compared with one built anew; MAPTR_MOMENTS=130 compares it after each change.
WHOLE = int(os.environ.get("MAPTR_MOMENTS", "2"))


class Recording(Responder):
    """The responder of maptr, which also records every query."""

    def __init__(self) -> None:
        super().__init__(PLAIN, rrl=RrlConfig(responses_per_second=0))
        self.queries: list[bytes] = []

    def answers(self, query: ReceivedQuery, counters: Counters) -> Iterator[bytes]:
        self.queries.append(query.wire)
        return super().answers(query, counters)

    def follow(self, snapshot: Snapshot) -> None:
        """Use another snapshot, and forget the queries."""
        self.swap(ServerState(snapshot, Access(), self.context))
        self.queries = []

    @property
    def asked(self) -> set[str]:
        return {dns.message.from_wire(query).question[0].name.to_text().lower() for query in self.queries}


class CurrentTable:
    """The source of a table that the test replaces."""

    is_read = True

    def __init__(self, table: Table) -> None:
        self.table = table

    def current(self) -> TableState:
        return TableState(self.table)


def zone_text(table: Table, serial: int) -> str:
    return build(publishable(table)[0], serial).text


def publish(table: Table, serial: int, directory: Path) -> Snapshot:
    path = directory / "ark.arpa.zone"
    path.write_text(zone_text(table, serial))
    return Snapshot.of([read_checked(path, (b"ark", b"arpa")).view])


def the_zone(snapshot: Snapshot) -> ZoneView:
    (view,) = snapshot.zones.values()
    return view


def touched_by(plan: Plan) -> set[str]:
    return {entry.naan for entry in (*plan.added, *plan.removed, *(new for _, new in plan.changed))}


def check_one_change(change: Difference, naans: set[str]) -> None:
    """The difference has NAPTR and TXT records of the touched NAANs only."""
    records = [record for record in change if record.rdtype != dns.rdatatype.SOA]
    for record in records:
        assert record.owner[0].decode() in naans
        assert len(record.owner) == 3
        assert record.rdtype in (dns.rdatatype.NAPTR, dns.rdatatype.TXT)
    assert len(records) == len(set(records)), "unchanged records are not sent"


def check_natab(table: Table) -> None:
    """natab has each NAAN, except for reported losses."""
    text, losses = registry.write_natab(table)
    back = registry.read(text)
    assert list(back) == table.naans()
    lost = {loss.record for loss in losses}
    assert [back[naan] for naan in back if naan not in lost] == [table[naan] for naan in back if naan not in lost]


@pytest.mark.real_data
def test_the_real_moments(real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The shortcut answers without the responder, which would miss the query.
    monkeypatch.setattr("maptr.server.udp.why_not", lambda: "every query is kept")
    (_, start), *moments = states(real_data)
    source, target = tmp_path / "source.json", tmp_path / "naans.json"
    serial = next_serial("date", 0.0)
    source.write_text(json.dumps(start))
    apply_pull(plan_pull(target, [str(source)]), wall=lambda: 0.0)
    table = registry.read(target.read_bytes())
    # For speed, each plan has only the records that any change touches. The last pull has all records.
    some = ever_touched([start, *(document for _, document in moments)])
    before = registry.read(json.dumps(of_naans(start, some)))
    whole = publish(table, serial, tmp_path)
    secondary = Follower(the_zone(whole))
    server = Recording()
    monkeypatch.setattr("maptr.server.settings.responder_of", lambda config: server)
    daemon = daemon_of(whole, Address("127.0.0.1", 0))
    with answering(daemon):
        # Negative answers are kept for minutes, which the test may take, so the clock of the answers is slower.
        resolver = Resolver([f"127.0.0.1#{daemon.bound[0].port}"], lifetime=20.0)
        current = CurrentTable(table)
        sources = Sources(resolver, current, "dns-first", clock=lambda: time.monotonic() / 100)
        first = [drift for group in Reconciler(sources).verdicts() for drift in group]
        assert {drift.verdict for drift in first} <= {Verdict.SAME, Verdict.LOSSY}
        reconciled = seen = 0
        for seen, (when, document) in enumerate(moments, 1):
            after = registry.read(json.dumps(of_naans(document, some)))
            plan, before = Plan.between(before, after), after
            touched = touched_by(plan)
            table = Table(applied(plan, table).values())
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
            current.table = table
            for naan in touched:
                sources.forget(naan)
            verdicts = [drift for group in Reconciler(sources).verdicts(sorted(touched)) for drift in group]
            assert [d for d in verdicts if d.verdict not in (Verdict.SAME, Verdict.LOSSY)] == []
            assert server.asked == {f"{naan}.ark.arpa." for naan in touched}
            reconciled += len(touched)
        source.write_text(json.dumps(moments[-1][1]))
        pull = plan_pull(target, [str(source)])
        assert applied(pull.plan, registry.read(target.read_bytes())) == dict(table), "as all the changes"
        apply_pull(pull, wall=lambda: 0.0)
        server.queries = []
        last = [drift for group in Reconciler(sources).verdicts() for drift in group]
    assert seen == 130
    assert server.asked == set(), "answers of untouched NAANs are kept"
    assert {drift.verdict for drift in last} <= {Verdict.SAME, Verdict.LOSSY}
    assert dict(table) == dict(registry.read(target.read_bytes()))
    assert dict(table) == dict(registry.read((real_data / "naan_records.json").read_bytes()))
    assert reconciled >= 130
    assert secondary.ixfr < secondary.axfr, "the changes of two years are smaller than one copy of the zone"
