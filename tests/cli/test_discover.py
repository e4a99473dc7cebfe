"""``maptr discover`` and ``maptr url`` as a shell sees them: streams, exit codes, JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import run
from tests.support.hostile import hostile, hosts, naptr, question, reply
from tests.support.peers import Maptr
from tests.support.scripted import serving

ZONES = Path(__file__).resolve().parents[2] / "zones"
GONE = "ark:00000/x1"


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """@server#port of a server that never answers."""
    with serving(lambda query: None) as port:
        yield f"@127.0.0.1#{port}"


def test_discover_prints_candidates_best_first(at: str) -> None:
    result = run("discover", "https://n2t.net/ark:/12345/x5-4?info", at, code=0)
    assert result.stdout.splitlines() == ["https://ark.example.org/ark:/12345/x54?info\t10\t10\t12345.ark.arpa."]
    assert result.stderr == ""


def test_an_ark_alone_means_discover_and_the_server_may_come_first(at: str) -> None:
    expected = run("discover", "ark:12345/x54", at).stdout
    assert run("ark:12345/x54", at).stdout == expected
    assert run(at, "ark:12345/x54").stdout == expected


def test_short_and_url(at: str) -> None:
    assert run("discover", "--short", "ark:12027/x1", at).stdout.splitlines() == [
        "http://ark.nal.example.org/ark:/12027/x1"
    ]
    assert run("url", "ark:12027/x1", at).stdout == "http://ark.nal.example.org/ark:/12027/x1\n"


def test_the_scheme_of_hosts_from_the_configuration(at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    natab = tmp_path / "natab"
    natab.write_text("12345:\n  a.example.org\n  b.example.org:80\n")
    monkeypatch.setenv("MAPTR_CLIENT_SCHEME", "http")
    table = ["--table", str(natab), "--policy", "natab-only"]
    for scheme, options in (("http", []), ("https", ["--scheme", "https"])):
        assert run("discover", "--short", "ark:12345/x54", at, *options).stdout.splitlines() == [
            "https://ark.example.org/ark:/12345/x54",
            *([f"{scheme}://ark.example.org/ark:12345/x54"] if scheme == "http" else []),
        ]
        assert run("discover", "--short", "ark:12345/x54", *table, *options).stdout.splitlines() == [
            f"{scheme}://a.example.org/ark:/12345/x54",
            "http://b.example.org/ark:/12345/x54",
        ]


def test_trace_goes_to_stderr_with_a_reason_for_every_record(at: str) -> None:
    result = run("discover", "--trace", "ark:12345/x54", at)
    assert result.stdout == run("discover", "ark:12345/x54", at).stdout
    assert result.stderr.startswith("? 12345.ark.arpa. NAPTR: answer, 4 records from 127.0.0.1#")
    assert "its regexp does not match this ARK" in result.stderr
    assert "candidate https://ark.example.org/ark:/12345/x54" in result.stderr


def test_quiet_prints_errors_only(at: str) -> None:
    table = ("--table", str(ZONES / "sample.json"), "--policy", "natab-only")
    assert "from the table" in run("url", "ark:12345/x1", *table).stderr
    assert run("url", "-q", "ark:12345/x1", *table).stderr == ""
    assert "no mapping authority" in run("url", "-q", GONE, at, code=1).stderr
    assert run("url", "-v", "ark:12345/x54", at).stderr.startswith("? 12345.ark.arpa. NAPTR: answer, 4 records")


def test_verbose_shows_the_notes_of_an_ark_and_where_the_answer_is_from() -> None:
    done = run("url", "-v", "ark:12148/x#top", "--policy", "natab-only", code=0)
    assert done.stderr.startswith("maptr: ark:12148/x: the fragment '#top' is not part of the ARK\n")
    assert done.stderr.count("fragment") == 1
    assert "maptr: from the built-in registry of " in done.stderr


def test_json_is_one_document_for_each_ark(at: str) -> None:
    result = run("discover", "--json", "ark:12345/x54", GONE, at)
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert first["schema"] == second["schema"] == "maptr/1"
    assert first["candidates"][0]["url"] == "https://ark.example.org/ark:/12345/x54"
    assert first["error"] is None
    assert first["trace"][0]["outcome"] == "answer"
    assert second["candidates"] == []
    assert "no such name" in second["error"]
    assert second["trace"][0]["outcome"] == "nxdomain"
    url = json.loads(run("url", "--json", "ark:12345/x54", at).stdout)
    assert url == {
        "schema": "maptr/1",
        "ark": "ark:12345/x54",
        "url": "https://ark.example.org/ark:/12345/x54",
        "source": "dns",
        "table": None,
        "table_date": None,
        "stale": False,
        "reason": "",
        "age": None,
        "error": None,
        "suggestion": None,
    }


def test_the_exit_code_is_the_greatest_of_several(at: str, silent: str) -> None:
    assert run("discover", GONE, at).exit_code == 1
    assert run("discover", "ark:12345/x54", GONE, at).exit_code == 1
    assert run("discover", "--timeout", "0.2", GONE, silent).exit_code == 9
    assert run("url", "--timeout", "0.2", "ark:12345/x54", GONE, silent).exit_code == 9


@pytest.mark.parametrize("command", ["discover", "url", "info"])
def test_an_argument_that_is_not_an_ark_does_not_stop_the_others(command: str, at: str) -> None:
    result = run(command, "--json", "nonsense", "ark:12345/x54", at)
    bad, good = (json.loads(line) for line in result.stdout.splitlines())
    assert (bad["ark"], bad["error"]) == ("nonsense", "no ark: label in 'nonsense'")
    assert good["ark"] == "ark:12345/x54"
    assert "maptr: no ark: label in 'nonsense'\n" in result.stderr


def test_the_exit_code_with_an_argument_that_is_not_an_ark(at: str, silent: str) -> None:
    result = run("url", "nonsense", "ark:12345/x54", GONE, at)
    assert (result.exit_code, result.stdout.splitlines()) == (2, ["", "https://ark.example.org/ark:/12345/x54", ""])
    assert run("url", "--timeout", "0.2", GONE, "nonsense", silent).exit_code == 9


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """@server#port of a server with the sample, signed by maptr, and the file of its trust anchor."""
    pytest.importorskip("cryptography", reason="validation needs maptr[dnssec]")
    folder = tmp_path_factory.mktemp("signed")
    for command in (
        ["keys", "add", f"{folder}/keys"],
        ["sign", f"{ZONES}/ark.arpa.zone", f"{folder}/keys", "-o", f"{folder}/signed"],
        ["keys", "ds", f"{folder}/keys", "ark.arpa."],
    ):
        done = run("zone", *command, code=0)
    (folder / "anchor").write_text(done.stdout)
    with Maptr({"ark.arpa.": folder / "signed"}) as server:
        yield f"@{server.host}#{server.port}", folder / "anchor"


def test_validation_from_a_trust_anchor(signed: tuple[str, Path], at: str) -> None:
    server, anchor = signed
    secure = ("--trust-anchor", str(anchor), "--require", "secure")
    done = run("discover", "--json", "ark:12345/x54", server, *secure, code=0)
    document = json.loads(done.stdout)
    assert document["security"] == document["trace"][0]["security"] == "secure"
    assert [(link["name"], link["type"], link["security"]) for link in document["trace"][0]["chain"]] == [
        ("ark.arpa.", "DNSKEY", "secure"),
        ("12345.ark.arpa.", "NAPTR", "secure"),
    ]
    traced = run("discover", "--trace", "ark:12345/x54", server, *secure)
    assert "? 12345.ark.arpa. NAPTR: answer, 4 records, secure from" in traced.stderr
    assert re.search(r"^  = ark[.]arpa[.] DNSKEY: secure from 127.+ in [0-9.]+ ms \(keys ", traced.stderr, re.MULTILINE)
    assert run("url", GONE, server, *secure).exit_code == 1
    unsigned = run("url", "ark:12345/x54", at, *secure)  # the same zone, its signatures stripped
    assert (unsigned.exit_code, unsigned.stdout) == (9, "\n")
    assert "the answers are bogus, not secure: 12345.ark.arpa. NAPTR:" in unsigned.stderr
    require = ("ark:12345/x54", server, "--require", "secure")  # and no anchor
    for command, shown in ((("url",), "\n"), (("discover",), ""), (("discover", "--short"), "")):
        refused = run(*command, *require)
        assert (refused.exit_code, refused.stdout) == (9, shown)  # no URL to follow
        assert "the answers are indeterminate, not secure" in refused.stderr
        assert "they were not validated: configure trust anchors" in refused.stderr
    assert json.loads(run("url", "--json", *require).stdout)["url"] is None
    document = json.loads(run("discover", "--json", *require).stdout)
    assert document["candidates"] == []
    assert [record["counted"] for record in document["trace"][0]["records"]].count(True) > 0


def test_info_asks_no_authority_from_an_unsigned_answer(signed: tuple[str, Path], at: str) -> None:
    secure = ("--trust-anchor", str(signed[1]), "--require", "secure")
    run("info", "ark:12345/x54", at, *secure, code=9, said="the answers are bogus, not secure")
    word = run("info", "ark:12345/x54", at, "--trust-ad", "--require", "secure")
    assert (word.exit_code, "the answers are insecure, not secure" in word.stderr) == (9, True)
    run("info", GONE, signed[0], *secure, code=1, said="no mapping authority for")


def test_bulk_validates_too(signed: tuple[str, Path], at: str, tmp_path: Path) -> None:
    (tmp_path / "arks").write_text(f"ark:12345/x54\n{GONE}\n")
    for server, statuses in ((signed[0], ["found", "none"]), (at, ["unknown", "unknown"])):
        secure = ("--trust-anchor", str(signed[1]), "--require", "secure")
        done = run("bulk", str(tmp_path / "arks"), "--json", server, *secure)
        assert [json.loads(line)["status"] for line in done.stdout.splitlines()] == statuses, done.stderr


@pytest.mark.parametrize("command", ["discover", "url"])
def test_bad_trust_anchors(command: str, at: str, tmp_path: Path) -> None:
    run(command, "ark:12345/x54", at, "--trust-anchor", str(tmp_path / "nothing"), code=8, said="No such file")
    (tmp_path / "empty").write_text("; no anchor\n")
    assert "no trust anchor" in run(command, "ark:12345/x54", at, "--trust-anchor", str(tmp_path / "empty")).stderr
    both = run(command, "ark:12345/x54", at, "--trust-ad", "--trust-anchor", str(tmp_path / "empty"))
    assert "not both" in both.stderr


@pytest.mark.parametrize("command", ["discover", "url"])
def test_an_incomplete_answer_is_reported(command: str) -> None:
    rules = hosts({"12345.ark.arpa.": [naptr("h.example."), naptr("down.example.", flags=b"")]})

    def answer(query: bytes, transport: str) -> list[bytes]:
        return [reply(query, rcode=2)] if question(query)[0][0] == b"down" else rules(query, transport)

    with hostile(answer) as server:
        done = run(command, "ark:12345/x1", f"@{server.name}")
    assert done.exit_code == 0
    assert done.stdout.startswith("https://h.example/ark:12345/x1")
    why = f"down.example. NAPTR: server failure ({server.name}: rcode 2)"
    assert done.stderr == f"maptr: ark:12345/x1: there may be more: {why}\n"
    many = [naptr(f"h{i}.example.") for i in range(65)]
    with hostile(hosts({"12345.ark.arpa.": many})) as server:
        assert "65 candidates found, the best 64 kept" in run(command, "ark:12345/x1", f"@{server.name}").stderr
