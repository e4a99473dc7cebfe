"""``maptr bulk`` with a cache, a table and the order of its rows; tests/client/test_bulk.py has the rest."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from maptr.ark import Ark
from maptr.cli.bulk import Rows
from maptr.discovery import Discovery, DiscoveryFailed
from tests.cli.test_lookup import ARK, DEAD, ZONES, home, of_minutes, server
from tests.support.command_line import run
from tests.support.peers import Maptr

__all__ = ["home", "server"]


def bulk(text: str, *arguments: str) -> tuple[int, list[dict[str, object]], str]:
    result = run("bulk", "--json", *arguments, text=text)
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()], result.stderr


def test_a_pulled_table_answers_where_dns_does_not(monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    monkeypatch.setenv("MAPTR_CLIENT_NAMESERVERS", DEAD)
    run("table", "pull", str(ZONES / "sample.json"), "--apply")
    text = f"{ARK}\nnonsense\nark:54321/x\n"
    code, rows, said = bulk(text)
    assert [(row["line"], row["status"]) for row in rows] == [(1, "found"), (2, "bad"), (3, "unknown")]
    assert (rows[0]["url"], rows[0]["source"], rows[0]["stale"]) == (run("url", ARK).stdout.strip(), "natab", False)
    assert str(rows[0]["note"]).endswith("old (DNS: silent; the table has it)")
    assert code == 9
    assert "1 from the table" in said
    assert bulk(text, "--no-cache")[1][0]["status"] == "unknown"
    assert bulk(text, f"@{DEAD}")[1][0]["status"] == "unknown", "@SERVER is asked and nothing else"
    code, rows, said = bulk(text, f"@{server}")
    assert ("source" in rows[0], rows[0]["note"], "table" in said) == (False, "", False)


def test_a_stale_answer_replaces_a_silent_server(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    with Maptr({"ark.arpa.": of_minutes(home)}) as dns:
        monkeypatch.setenv("MAPTR_CLIENT_NAMESERVERS", f"127.0.0.1#{dns.port}")
        assert run("url", ARK, "--policy", "dns-first").exit_code == 0
    with sqlite3.connect(home / "cache" / "maptr" / "cache.sqlite") as kept:
        kept.execute("UPDATE answer SET fetched = fetched - 4000, expires = expires - 4000")
    kept.close()
    code, rows, _ = bulk("ark:12025/y\n", "--policy", "dns-first")
    assert (code, rows[0]["source"], rows[0]["stale"]) == (0, "disk", True), rows
    assert "67 min old, stale (DNS does not say" in str(rows[0]["note"])


def test_without_a_resolver_only_the_table_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*arguments: object) -> None:
        raise DiscoveryFailed(None, "no resolver")  # type: ignore[arg-type]

    monkeypatch.setattr("maptr.client.servers.system_servers", none)  # of the command line
    monkeypatch.setattr("maptr.client.stub.system_servers", none)
    assert run("bulk", text=f"{ARK}\n").exit_code == 9
    code, rows, said = bulk(f"{ARK}\nark:54321/x\n", "--table", str(ZONES / "sample.natab"))
    assert (code, [row["status"] for row in rows]) == (9, ["found", "unknown"])
    assert "0 names asked, 1 from the table" in said


@pytest.mark.parametrize(("policy", "asked"), [("dns-first", 2), ("natab-first", 3)])
def test_rows_keep_the_order_of_the_lines(policy: str, asked: int, server: str) -> None:
    """With the table first the lines are read in three parts, each of which asks for the name that it does not have."""
    lines = [("ark:12025/x", "nonsense", "ark:12345/x", "ark:99999/x", "ark:54321/x")[i * i % 5] for i in range(5000)]
    _, rows, said = bulk("\n".join(lines), "--table", str(ZONES / "sample.natab"), "--policy", policy, f"@{server}")
    assert [row["line"] for row in rows] == list(range(1, 5001))
    assert f"; {asked} names asked" in said
    status = {"nonsense": "bad", "ark:54321/x": "none"}
    assert [row["status"] for row in rows] == [status.get(line, "found") for line in lines]


def test_held_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.cli.bulk.MAX_HELD", 3)
    written: list[object] = []
    rows = Rows(lambda row: written.append(row["line"]), ordered=True)
    for number in (2, 3, 4, 5, 6):  # line 1 is an ARK that DNS is asked for
        rows.put(number, {"line": number, "status": "none"})
    assert written == [2, 3]
    rows.found(1, Discovery(Ark.parse("ark:12345/x1"), (), ()))
    assert written == [2, 3, 1]
    rows.write()
    assert written == [2, 3, 1, 4, 5, 6]
