"""Records that a zone cannot hold: never answered by another record's rule without a word, on any side."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from maptr import registry
from maptr.cache.cache import Cache
from maptr.cli.group import main
from maptr.discovery import DiscoveryFailed, NoMappingAuthority
from maptr.errors import TableError
from maptr.registry.followed_file import WatchedTable
from maptr.registry.table import Entry, Nma, Table
from maptr.walk import Settings
from maptr.zone.build import ZoneSettings, build
from maptr.zone.lint import OTHER_ANSWER, lint, publishable
from tests.support.caching import HOME, Rig, host, said
from tests.support.peers import Maptr

MAIN = "https://main.nlm.nih.gov/ark:/${content}"
LONG = "https://x7.nlm.nih.gov/" + "x" * 230 + "/${content}"
PRIVATE = "http://10.0.0.1/${content}"
REDIRECTED = "https://x8.nlm.nih.gov/" + "x" * 208 + "/${content}"  # fits only where the NAAN need not be matched


def entry(key: str, *targets: str) -> Entry:
    naan, _, shoulder = key.partition("/")
    return Entry(naan, shoulder, tuple(Nma(target) for target in targets))


def tables(*more: Entry) -> Table:
    return Table([entry("12345", MAIN), *more])


def written(path: Path, table: Table) -> str:
    data = [
        {"what": entry.key, "nmas": [{"target": {"url": nma.target, "http_code": nma.status}} for nma in entry.nmas]}
        for entry in table.values()
    ]
    path.write_text(json.dumps({"data": data}))
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def natab_only(table: Table, ark: str, **options: Any) -> str:
    return Cache(table, policy="natab-only", nameservers=["192.0.2.1"]).discover(ark, **options).url()


# --- from the table


def test_the_table_answers_what_its_entry_says_though_no_zone_can_hold_it(tmp_path: Path) -> None:
    table = tables(entry("12345/x7", LONG), entry("13030", LONG))
    made = LONG.replace("${content}", "12345/x7a")
    assert natab_only(table, "ark:12345/x7a") == made
    assert natab_only(table, "ark:12345/x6a") == "https://main.nlm.nih.gov/ark:/12345/x6a"
    assert natab_only(table, "ark:13030/a") == LONG.replace("${content}", "13030/a")
    file = written(tmp_path / "registry.json", table)
    result = run("url", "ark:12345/x7a", "--table", file, "--policy", "natab-only")
    assert (result.exit_code, result.stdout) == (0, f"{made}\n")


@pytest.mark.parametrize("target", [PRIVATE, "https:///x7/${content}", "https://x7.nlm.nih.gov/${what}", "https://x7/"])
def test_an_entry_that_nobody_can_use_is_not_known_and_never_its_naan_s_answer(target: str) -> None:
    table = tables(entry("12345/x7", target))
    with pytest.raises(DiscoveryFailed, match=r"record 12345/x7: .*x7|record 12345/x7: 10\.0\.0\.1 is not a public"):
        natab_only(table, "ark:12345/x7a")
    assert natab_only(table, "ark:12345/x6a").startswith("https://main.")
    with pytest.raises(DiscoveryFailed):
        natab_only(Table([entry("12345", target)]), "ark:12345/x7a")
    with pytest.raises(NoMappingAuthority):
        natab_only(table, "ark:13030/a")


def test_an_entry_without_a_mapping_authority_is_not_known() -> None:
    with pytest.raises(DiscoveryFailed, match="record 12345/x7: the record names no mapping authority"):
        natab_only(tables(entry("12345/x7")), "ark:12345/x7a")


def test_of_several_nmas_those_that_can_be_used_answer() -> None:
    table = tables(entry("12345/x7", PRIVATE, LONG))
    assert natab_only(table, "ark:12345/x7a") == LONG.replace("${content}", "12345/x7a")


def test_a_private_host_is_the_entry_s_answer_where_the_caller_allows_it() -> None:
    table = tables(entry("12345/x7", PRIVATE))
    cache = Cache(table, policy="natab-only", nameservers=["192.0.2.1"])
    allowing = Settings(allow_private=True)
    for _ in range(2):
        assert cache.discover("ark:12345/x7a", settings=allowing).url() == "http://10.0.0.1/12345/x7a"
        with pytest.raises(DiscoveryFailed):
            cache.discover("ark:12345/x7a")


def test_where_dns_says_none_an_unusable_entry_changes_nothing_and_where_it_is_silent_nothing_is_known() -> None:
    table = tables(entry("12345/x7", PRIVATE))
    with pytest.raises(NoMappingAuthority):
        Rig({HOME: said()}, table).cache.discover("ark:12345/x7a")
    with pytest.raises(DiscoveryFailed, match="unusable"):
        Rig({}, table, "natab-only").cache.discover("ark:12345/x7a")
    assert Rig({HOME: said(host("d.example."))}, table, "natab-first").cache.discover("ark:12345/x7a").source == "dns"


def test_a_record_that_cannot_be_read_is_not_known_either(tmp_path: Path) -> None:
    good = {"what": "12345", "target": {"url": MAIN}}
    text = json.dumps({"data": [good, {"what": "ark:/12345/x7", "target": {"url": 5}}, {"what": "13030", "target": 5}]})
    table = registry.read(text, on_bad=lambda error: None)
    assert table.unread == {"12345/x7", "13030"}
    for one in (table, pickle.loads(pickle.dumps(table)), table.without(["99999"])):
        for ark in ("ark:12345/x7a", "ark:13030/a"):
            with pytest.raises(DiscoveryFailed, match="cannot be read"):
                natab_only(one, ark)
        assert natab_only(one, "ark:12345/x6a") == "https://main.nlm.nih.gov/ark:/12345/x6a"
    file = tmp_path / "registry.json"
    file.write_text(text)
    assert f"error: ark:/12345/x7: {OTHER_ANSWER}: " in run("table", "check", str(file)).stdout


def test_an_unreadable_record_goes_on_as_it_was_last_read(tmp_path: Path) -> None:
    file = tmp_path / "registry.json"
    good = [{"what": f"{naan}", "target": {"url": MAIN}} for naan in range(12345, 12355)]
    x7 = {"what": "12345/x7", "target": {"url": "https://x7.nlm.nih.gov/${content}"}}
    file.write_text(json.dumps({"data": [*good, x7]}))
    with Cache(file, policy="natab-only", nameservers=["192.0.2.1"]) as cache:
        assert cache.discover("ark:12345/x7a").url() == "https://x7.nlm.nih.gov/12345/x7a"
        file.write_text(json.dumps({"data": [*good, {"what": "12345/x7", "target": {"url": 5}}]}))
        assert isinstance(cache.table, WatchedTable)
        cache.table.reload()
        assert cache.discover("ark:12345/x7b").url() == "https://x7.nlm.nih.gov/12345/x7b"


# --- the redirect status


@pytest.mark.parametrize(
    "text",
    [
        '{"data": [{"what": "99166/w6", "where": "https://w6.nlm.nih.gov",'
        ' "target": {"url": "https://w6.nlm.nih.gov/${content}", "http_code": 303}}]}',
        '{"date_created": "2026", "data": [{"what": "99166/w6", "where": "https://w6.nlm.nih.gov",'
        ' "target": {"url": "https://w6.nlm.nih.gov/${content}", "http_code": 303}, "date_created": "2026"}]}',
        '{"data": [{"what": "99166/w6", "nmas": [{"target": {"url": "https://w6.nlm.nih.gov/${content}",'
        ' "http_code": 303}, "acronym": "W6"}]}]}',
        "naa:\nwhat: 99166/w6\nwhere: 303 https://w6.nlm.nih.gov/$id\n",
        'ark:/99166/w6:\n  redirect: "303 https://w6.nlm.nih.gov/$id"\n',
    ],
    ids=["json-v1", "json-v2", "nmas", "anvl", "prefixes"],
)
def test_the_redirect_status_of_the_registry_is_the_candidate_s_from_the_table(text: str, tmp_path: Path) -> None:
    table = registry.read(text)
    assert [nma.status for nma in table["99166/w6"].nmas] == [303]
    again = registry.read(registry.write_json(table))
    assert [nma.status for nma in again["99166/w6"].nmas] == [303]
    for one in (table, again):
        found = Cache(one, policy="natab-only", nameservers=["192.0.2.1"]).discover("ark:99166/w6a?info")
        assert [(c.url(found.ark), c.status) for c in found] == [("https://w6.nlm.nih.gov/99166/w6a?info", 303)]
    file = tmp_path / "registry"
    file.write_text(text)
    result = run("discover", "ark:99166/w6a", "--table", str(file), "--policy", "natab-only", "--json")
    assert json.loads(result.stdout)["candidates"][0]["status"] == 303


def test_each_candidate_has_the_status_of_its_own_record_and_none_where_dns_or_an_h_record_says() -> None:
    w6 = Entry("12345", "w6", (Nma("https://w6.nlm.nih.gov/${content}", status=303),))
    whole = entry("12345", "https://main.nlm.nih.gov/p/${content}")
    cache = Cache(Table([whole, w6]), policy="natab-only", nameservers=["192.0.2.1"])
    assert [(c.host, c.status) for c in cache.discover("ark:12345/w6a")] == [
        ("w6.nlm.nih.gov", 303),
        ("main.nlm.nih.gov", 302),
        ("main.nlm.nih.gov", None),
    ]
    assert [c.status for c in Rig({HOME: said(host("d.example."))}, tables(w6)).cache.discover("ark:12345/w6a")] == [
        None
    ]


def test_natab_says_that_it_loses_a_status() -> None:
    _, losses = registry.write_natab(Table([Entry("12345", nmas=(Nma(MAIN, status=303),))]))
    assert "the status 303" in [loss.what for loss in losses]


# --- in the zone


def test_lint_names_what_no_zone_can_hold_and_whose_answer_its_arks_get() -> None:
    table = tables(entry("12345/x7", LONG), entry("12345/x77", PRIVATE), entry("13030", LONG))
    found = [(finding.record, finding.code, finding.value) for finding in lint(table) if finding.severity == "error"]
    assert found == [
        ("12345/x7", "rule-too-long", LONG),
        ("12345/x7", OTHER_ANSWER, "12345"),
        ("12345/x77", "no-public-host", PRIVATE),
        ("12345/x77", OTHER_ANSWER, "12345"),
        ("13030", "rule-too-long", LONG),
    ]


def test_a_longer_shoulder_falls_to_the_shoulder_around_it() -> None:
    table = tables(entry("12345/x7", "https://x7.nlm.nih.gov/${content}"), entry("12345/x77", PRIVATE))
    assert [f.value for f in lint(table) if f.code == OTHER_ANSWER] == ["12345/x7"]


def test_a_shoulder_whose_naan_is_not_published_falls_to_nobody() -> None:
    table = Table([entry("12345", PRIVATE), entry("12345/x7", PRIVATE)])
    assert [(f.record, f.code) for f in lint(table)] == [("12345", "no-public-host"), ("12345/x7", "no-public-host")]


def test_a_shoulder_that_could_not_be_read_falls_to_its_naan_too() -> None:
    unread = [TableError("target is a number", record="12345/x7"), TableError("no NAAN", line=3)]
    _, left_out = publishable(tables(), unread=unread)
    assert left_out.records == ("12345/x7", "-")
    assert left_out.answered_by_others == ("12345/x7",)


def test_of_several_nmas_the_one_that_fits_no_rule_is_a_warning() -> None:
    table = tables(entry("12345/x7", LONG, "https://x7.nlm.nih.gov/${content}"))
    usable, left_out = publishable(table)
    assert [nma.target for nma in usable["12345/x7"].nmas] == ["https://x7.nlm.nih.gov/${content}"]
    assert [(f.severity, f.code) for f in left_out] == [("warning", "rule-too-long")]
    assert left_out.records == ()


def test_zone_build_publishes_the_naan_and_ends_with_an_error(tmp_path: Path) -> None:
    file, target = written(tmp_path / "r.json", tables(entry("12345/x7", LONG))), tmp_path / "zone"
    for _ in range(2):  # unchanged the second time, and an error still
        result = run("zone", "build", file, "-o", str(target))
        assert result.exit_code == 1
        assert "left out: error: 12345/x7: rule-too-long" in result.stderr
        assert f"error: 12345/x7: {OTHER_ANSWER}: " in result.stderr
        assert "12345 IN NAPTR" in target.read_text()
    assert run("table", "check", file).exit_code == 1
    assert OTHER_ANSWER in run("table", "check", file).stdout


def test_what_is_left_out_below_a_delegation_is_not_the_zone_s(tmp_path: Path) -> None:
    table = tables(entry("12345/x7", LONG))
    built = build(table, 1, ZoneSettings(include=(("sub.zone", "12345 IN NS ns.nlm.nih.gov.\n"),)))
    assert (built.delegated, built.left_out) == (("12345",), ())


def test_a_redirect_is_taken_where_it_makes_the_rule_short_enough(tmp_path: Path) -> None:
    table = tables(entry("12345/x8", REDIRECTED), entry("12345/X8", REDIRECTED.replace("x8.", "y8.")))
    assert [finding for finding in lint(table) if finding.severity == "error"] == []
    zone = tmp_path / "zone"
    zone.write_text(build(table, 1).text)
    assert run("zone", "check", "--strict", str(zone)).exit_code == 0
    with Maptr({"ark.arpa.": zone}) as server:
        cache = Cache(table, policy="dns-only", nameservers=[f"127.0.0.1#{server.port}"])
        for ark, made in (
            ("ark:12345/x8a", REDIRECTED.replace("${content}", "12345/x8a")),
            ("ark:12345/X8a", REDIRECTED.replace("x8.", "y8.").replace("${content}", "12345/X8a")),
            ("ark:12345/x9", "https://main.nlm.nih.gov/ark:/12345/x9"),
        ):
            assert cache.discover(ark).url() == natab_only(table, ark) == made
        assert {one.record: one.verdict for one in cache.drift("12345")} == {
            "12345": "same",
            "12345/X8": "same",
            "12345/x8": "same",
        }


def test_a_naan_s_own_rule_need_not_match_the_naan() -> None:
    table = Table([entry("12345", REDIRECTED)])
    assert [finding for finding in lint(table) if finding.severity == "error"] == []
    (rule, _) = [line for line in build(table, 1).text.splitlines() if "NAPTR" in line]
    assert '"!^ark:/?(.*)$!' in rule


# --- drift


def test_drift_has_a_verdict_for_a_shoulder_that_no_zone_can_hold(tmp_path: Path) -> None:
    table = tables(entry("12345/x7", LONG), entry("12345/x77", PRIVATE))
    zone = tmp_path / "zone"
    zone.write_text(build(table, 1).text)
    with Maptr({"ark.arpa.": zone}) as server:
        where = f"127.0.0.1#{server.port}"
        verdicts = {one.record: one for one in Cache(table, nameservers=[where]).drift("12345")}
        assert {key: str(one.verdict) for key, one in verdicts.items()} == {
            "12345": "same",
            "12345/x7": "unpublished",
            "12345/x77": "unpublished",
        }
        assert "main.nlm.nih.gov" in verdicts["12345/x7"].reason
        assert "bytes" in verdicts["12345/x7"].reason
        assert "10.0.0.1 is not a public host" in verdicts["12345/x77"].reason
        nobody = Cache(tables(entry("12345/x7")), nameservers=[where]).drift("12345")
        assert [(one.record, str(one.verdict)) for one in nobody] == [("12345", "same"), ("12345/x7", "unpublished")]
        file = written(tmp_path / "r.json", table)
        page = tmp_path / "drift.html"
        result = run("table", "drift", "--table", file, f"@{where}", "--html", str(page))
        assert result.exit_code == 1
        assert "unpublished 12345/x7: " in result.stdout
        assert "unpublished" in page.read_text()
