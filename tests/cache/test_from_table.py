"""Answers from the table: from an ARK's own record, even if no zone can hold it, and never from another record."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from maptr import registry
from maptr.client import Client
from maptr.discovery import DiscoveryFailed, NoMappingAuthority
from maptr.registry.followed_file import WatchedTable
from maptr.registry.table import Entry, Nma, Table
from maptr.walk import Settings
from maptr.zone.build import NameServer, ZoneSettings, build
from tests.support.caching import HOME, SILENT, Rig, dns_answer, host
from tests.support.command_line import run
from tests.support.entries import LONG, MAIN, PRIVATE, REDIRECTED, entry, tables, written
from tests.support.peers import Maptr


def client_of(table: Table) -> Client:
    return Client(table=table, policy="natab-only", nameservers=["192.0.2.1"])


def url_of(table: Table, ark: str) -> str:
    return client_of(table).discover(ark).url()


def test_the_table_answers_what_its_entry_says_though_no_zone_can_hold_it(tmp_path: Path) -> None:
    table = tables(entry("12345/x7", LONG), entry("13030", LONG))
    made = LONG.replace("${content}", "12345/x7a")
    assert url_of(table, "ark:12345/x7a") == made
    assert url_of(table, "ark:12345/x6a") == "https://main.nlm.nih.gov/ark:/12345/x6a"
    assert url_of(table, "ark:13030/a") == LONG.replace("${content}", "13030/a")
    assert url_of(tables(entry("12345/x7", PRIVATE, LONG)), "ark:12345/x7a") == made, "of several, the usable one"
    file = written(tmp_path / "registry.json", table)
    result = run("url", "ark:12345/x7a", "--table", file, "--policy", "natab-only")
    assert (result.exit_code, result.stdout) == (0, f"{made}\n")


def test_a_naan_may_have_more_shoulders_than_a_walk_reads_records() -> None:
    shoulders = [entry(f"12345/{n}", f"https://h{n}.nlm.nih.gov/${{suffix}}") for n in range(3000)]
    found = client_of(tables(*shoulders)).discover("ark:12345/2999a")
    assert found.url() == "https://h2999.nlm.nih.gov/a"
    assert found.complete
    assert [candidate.host for candidate in found][:4] == [f"h{n}.nlm.nih.gov" for n in (2999, 299, 29, 2)]


@pytest.mark.parametrize("target", [PRIVATE, "https:///x7/${content}", "https://x7.nlm.nih.gov/${what}", "https://x7/"])
def test_an_unusable_entry_has_none_and_never_the_answer_of_its_naan(target: str) -> None:
    table = tables(entry("12345/x7", target))
    with pytest.raises(NoMappingAuthority, match=r"record 12345/x7: .*x7|record 12345/x7: 10\.0\.0\.1 is not a public"):
        url_of(table, "ark:12345/x7a")
    assert url_of(table, "ark:12345/x6a").startswith("https://main.")
    with pytest.raises(NoMappingAuthority):
        url_of(Table([entry("12345", target)]), "ark:12345/x7a")
    with pytest.raises(NoMappingAuthority, match="record 12345/x7: the record names no mapping authority"):
        url_of(tables(entry("12345/x7")), "ark:12345/x7a")
    with pytest.raises(NoMappingAuthority):
        url_of(table, "ark:13030/a")


def test_a_private_host_answers_only_if_the_caller_allows_it() -> None:
    table = tables(entry("12345/x7", PRIVATE))
    generous = Client(table=table, policy="natab-only", settings=Settings(allow_private=True))
    assert generous.discover("ark:12345/x7a").url() == "http://10.0.0.1/12345/x7a"
    with pytest.raises(NoMappingAuthority):
        client_of(table).discover("ark:12345/x7a")


@pytest.mark.parametrize("policy", ["dns-first", "natab-first"])
def test_an_unusable_entry_has_none_if_dns_says_so_and_is_not_known_while_dns_is_silent(policy: str) -> None:
    table = tables(entry("12345/x7", PRIVATE))
    reason = r"has it, unusable: record 12345/x7: 10\.0\.0\.1 is not a public"
    with pytest.raises(NoMappingAuthority, match=reason) as caught:
        Rig({HOME: dns_answer()}, table, policy).sources.discover("ark:12345/x7a")
    assert caught.value.discovery.to_dict()["states"] == {"dns": "none", "table": "unusable"}
    with pytest.raises(DiscoveryFailed) as silent:
        Rig({HOME: SILENT}, table, policy).sources.discover("ark:12345/x7a")
    assert re.search(reason, silent.value.discovery.reason)


def test_a_record_that_cannot_be_read_is_not_known() -> None:
    records = [
        {"what": "12345", "target": {"url": MAIN}},
        {"what": "ark:/12345/x7", "target": {"url": 5}},
        {"what": "13030", "target": 5},
    ]
    table = registry.read(json.dumps({"data": records}), on_bad=lambda error: None)
    assert table.unread == {"12345/x7", "13030"}
    for one in (table, pickle.loads(pickle.dumps(table)), table.without(["99999"])):
        for ark in ("ark:12345/x7a", "ark:13030/a"):
            with pytest.raises(DiscoveryFailed, match="cannot be read"):
                url_of(one, ark)
        assert url_of(one, "ark:12345/x6a") == "https://main.nlm.nih.gov/ark:/12345/x6a"


def test_a_record_that_became_unreadable_keeps_its_last_content(tmp_path: Path) -> None:
    file = tmp_path / "registry.json"
    good = [{"what": f"{naan}", "target": {"url": MAIN}} for naan in range(12345, 12355)]

    def write(target: object) -> None:
        file.write_text(json.dumps({"data": [*good, {"what": "12345/x7", "target": {"url": target}}]}))

    write("https://x7.nlm.nih.gov/${content}")
    with Client(["192.0.2.1"], table=file, policy="natab-only") as client:
        assert client.discover("ark:12345/x7a").url() == "https://x7.nlm.nih.gov/12345/x7a"
        write(5)
        assert isinstance(client.table, WatchedTable)
        client.table.refresh()
        assert client.discover("ark:12345/x7b").url() == "https://x7.nlm.nih.gov/12345/x7b"


W6: dict[str, Any] = {"url": "https://w6.nlm.nih.gov/${content}", "http_code": 303}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"data": [{"what": "99166/w6", "where": "https://w6.nlm.nih.gov", "target": W6}]}),
        json.dumps({"date_created": "2026", "data": [{"what": "99166/w6", "target": W6, "date_created": "2026"}]}),
        json.dumps({"data": [{"what": "99166/w6", "nmas": [{"target": W6, "acronym": "W6"}]}]}),
        "naa:\nwhat: 99166/w6\nwhere: 303 https://w6.nlm.nih.gov/$id\n",
        'ark:/99166/w6:\n  redirect: "303 https://w6.nlm.nih.gov/$id"\n',
    ],
    ids=["json-v1", "json-v2", "nmas", "anvl", "prefixes"],
)
def test_the_redirect_status_of_the_registry_is_that_of_the_candidate(text: str, tmp_path: Path) -> None:
    table = registry.read(text)
    for one in (table, registry.read(registry.write_json(table))):
        assert [nma.status for nma in one["99166/w6"].nmas] == [303]
        found = client_of(one).discover("ark:99166/w6a?info")
        assert [(c.url(found.ark), c.status) for c in found] == [("https://w6.nlm.nih.gov/99166/w6a?info", 303)]
    file = tmp_path / "registry"
    file.write_text(text)
    arguments = ["discover", "ark:99166/w6a", "--table", str(file), "--policy", "natab-only", "--json"]
    assert json.loads(run(*arguments).stdout)["candidates"][0]["status"] == 303


def test_a_candidate_has_the_status_of_its_own_record_and_none_from_dns() -> None:
    w6 = Entry("12345", "w6", (Nma("https://w6.nlm.nih.gov/${content}", status=303),))
    b2 = Entry("12345", "b2", (Nma("https://w6.nlm.nih.gov/${content}", status=301),))  # the same URL for w6a
    whole = entry("12345", "https://main.nlm.nih.gov/p/${content}")
    assert [(c.host, c.status) for c in client_of(Table([whole, b2, w6])).discover("ark:12345/w6a")] == [
        ("w6.nlm.nih.gov", 303),
        ("main.nlm.nih.gov", 302),
    ]
    found = Rig({HOME: dns_answer(host("d.example."))}, tables(w6)).sources.discover("ark:12345/w6a")
    assert [c.status for c in found] == [None]


def test_a_redirect_in_the_zone_gives_the_url_of_the_table(tmp_path: Path) -> None:
    y8 = REDIRECTED.replace("x8.", "y8.")
    table = tables(entry("12345/x8", REDIRECTED), entry("12345/X8", y8))
    zone = tmp_path / "zone"
    zone.write_text(build(table, 1, ZoneSettings(servers=(NameServer.parse("ns1=192.0.2.1"),))).text)
    assert run("zone", "check", "--strict", zone).exit_code == 0
    with Maptr({"ark.arpa.": zone}) as server:
        client = Client(table=table, policy="dns-only", nameservers=[f"127.0.0.1#{server.port}"])
        for ark, target in (("12345/x8a", REDIRECTED), ("12345/X8a", y8), ("12345/x9", MAIN)):
            made = target.replace("${content}", ark)
            assert client.discover(f"ark:{ark}").url() == url_of(table, f"ark:{ark}") == made
        assert {one.record: one.verdict for one in client.drift("12345")} == dict.fromkeys(table, "same")
