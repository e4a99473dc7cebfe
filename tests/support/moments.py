"""The changes of the real registry, and a secondary that follows them by IXFR and counts the bytes."""

from __future__ import annotations

import datetime
import gzip
import itertools
import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import dns.message
import dns.rdatatype
import dns.rrset
import dns.xfr
import dns.zone

from maptr.protocol.names import to_wire
from maptr.transfer.acl import keyring
from maptr.transfer.journal import Journal
from maptr.transfer.session import Access
from maptr.zone.diff import Difference
from maptr.zone.snapshot import Snapshot, ZoneView
from tests.support.transfers import HERE, allowing, answered

ORIGIN = "ark.arpa."


def states(directory: Path) -> Iterator[tuple[float, dict[str, Any]]]:
    """The registry before its first change and after the changes of each moment: the time and the JSON."""
    document = json.loads(gzip.decompress((directory / "naan_records_2024-06-21.json.gz").read_bytes()))
    records = {record["what"]: record for record in document["data"]}
    yield 0.0, document
    lines = gzip.decompress((directory / "naan_updates.jsonl.gz").read_bytes()).splitlines()
    for when, events in itertools.groupby(map(json.loads, lines), key=lambda event: str(event["t"])):
        for event in events:
            if event["op"] == "remove":
                del records[event["what"]]
            else:
                records[event["what"]] = event["new"]
        yield datetime.datetime.fromisoformat(when).timestamp(), {**document, "data": list(records.values())}


def ever_touched(documents: Iterable[dict[str, Any]]) -> set[str]:
    """The NAANs with a record that some moment added, changed or removed."""
    found = [{record["what"]: record for record in document["data"]} for document in documents]
    return {
        what.partition("/")[0]
        for before, after in itertools.pairwise(found)
        for what in before.keys() | after.keys()
        if before.get(what) != after.get(what)
    }


def of_naans(document: dict[str, Any], naans: Collection[str]) -> dict[str, Any]:
    """The registry with only the records of these NAANs."""
    return {**document, "data": [record for record in document["data"] if record["what"].partition("/")[0] in naans]}


def with_part(whole: ZoneView, part: ZoneView, naans: Collection[str]) -> ZoneView:
    """A zone with these NAANs as in ``part``, which has only them and the apex."""
    owners = {(naan.encode(), *whole.origin) for naan in naans}
    assert part.nodes.keys() - {whole.origin} <= owners
    values = dict.fromkeys(map(to_wire, owners), b"") | part.nodes.pack_all()
    return ZoneView.of(whole.origin, whole.nodes.replaced(values))


class Follower:
    """A published zone, its journal, and a secondary of dnspython, which takes the first version by AXFR.

    ``axfr`` and ``ixfr`` count the bytes of the transfers.
    """

    def __init__(self, view: ZoneView) -> None:
        self.view = view
        self.journal = Journal.start(view)
        self.zone = dns.zone.Zone(ORIGIN, relativize=False)
        self.axfr = self._take(None, self._query("AXFR"))
        self.ixfr = 0

    def publish(self, view: ZoneView) -> Difference | None:
        """Publish a version and transfer it by IXFR. Returns the difference, or None if nothing changed."""
        change = Difference.between(self.view, view)
        if change is None:
            return None
        before, self.journal, self.view = self.view.serial, self.journal.extend(self.view, view), view
        self.ixfr += self._take(before, self._query("IXFR", before))
        return change

    def _take(self, serial: int | None, query: dns.message.Message) -> int:
        rdtype = dns.rdatatype.AXFR if serial is None else dns.rdatatype.IXFR
        size = 0
        with dns.xfr.Inbound(self.zone, rdtype, serial) as inbound:
            for wire in self._asked(query):
                size += len(wire)
                done = inbound.process_message(dns.message.from_wire(wire, xfr=True, one_rr_per_rrset=True))
        assert done
        return size

    def _asked(self, query: dns.message.Message) -> Iterator[bytes]:
        access = Access(keyring([]), {self.view.origin: allowing(HERE)}, {self.view.origin: self.journal})
        wire = query.to_wire()
        return answered(wire, Snapshot.of([self.view]), access, now=0)

    @staticmethod
    def _query(rdtype: str, serial: int = 0) -> dns.message.Message:
        query = dns.message.make_query(ORIGIN, rdtype, id=1)
        if rdtype == "IXFR":
            query.authority.append(dns.rrset.from_text(ORIGIN, 0, "IN", "SOA", f". . {serial} 0 0 0 0"))
        return query
