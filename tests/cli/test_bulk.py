"""``maptr bulk``: formats, resuming, interrupting, a cache and a table."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event, Timer

import pytest

from maptr.cli.bulk import Line, chosen
from maptr.client import Client
from maptr.discovery import Candidate, Discovery, NoServer
from tests.cli.test_lookup import ARK, ZONES, of_minutes
from tests.support import command_line
from tests.support.bulk import ZONE
from tests.support.bulk import server as server
from tests.support.command_line import interrupted
from tests.support.hostile import Hostile, hostile, hosts, question
from tests.support.peers import Maptr

run = partial(command_line.run, "bulk")


def test_csv_of_a_file(server: Hostile, tmp_path: Path) -> None:
    source = tmp_path / "arks.txt"
    source.write_text("ark:1/x1\n\nnonsense\nhttps://n2t.net/ark:/2/x2?info\nark:4/x\n")
    result = run(str(source), f"@{server.name}")
    rows = {int(row["line"]): row for row in csv.DictReader(result.stdout.splitlines())}
    assert result.exit_code == 1
    assert {line: row["status"] for line, row in rows.items()} == {1: "found", 3: "bad", 4: "found", 5: "none"}
    assert rows[4]["url"] == "https://ha.example/ark:2/x2?info"
    assert "line 3: no ark: label" in result.stderr
    assert "2 found, 1 none, 0 unknown, 1 bad" in result.stderr


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("ark:1/x1 ark:1/x2", "bad"),
        ("ark:1/x1\tSome title", "bad"),
        ("ark:1/x1 title", "bad"),
        ("1,ark:1/x1,title", "bad"),
        ("https://h.example/?id=uiuo.ark:1/x1&view=1up", "found"),
        ("ark%3A1%2Fx1", "found"),
    ],
)
def test_a_line_is_one_ark_or_bad(line: str, status: str, server: Hostile) -> None:
    result = run("--json", f"@{server.name}", text=f"{line}\n")
    row = json.loads(result.stdout)
    assert row["status"] == status
    assert row["url"] == ("https://u.example/x1" if status == "found" else "")
    assert ("--column" in result.stderr) == ("\t" in line or "," in line)


COLLECTION = (
    "\ufeff# exported in November\n"
    "id,title,ark\n"
    "\n"
    '1,"A, b",ark:1/x1\n'
    "# a note\n"
    "2,no ARK,\n"
    '3,"""three""",nonsense\n'
    '4,four,"https://n2t.net/ark:/2/x2?info"\n'
    "5,five\n"
    "6,six\x00,ark:1/x6\n"
)


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        (COLLECTION, "ark", {4: "found", 7: "bad", 8: "found", 10: "found"}),
        (COLLECTION.replace(",", "\t"), "ark", {4: "found", 7: "bad", 8: "found", 10: "found"}),
        ("ark:1/x1,one\nark:2/x,two\n", "1", {1: "found", 2: "found"}),
        ("one\tark:1/x1\ntwo\tark:4/x\n", "2", {1: "found", 2: "none"}),
        ("id; ark\r\n1;ark:1/x1\r\n", "ark", {2: "found"}),
        ('"a\tb",ark\n1,ark:1/x1\n', "ark", {2: "found"}),
        ("id,ark\n#1,ark:1/x1\n2,#N/A\n# a note, too\n3,ark:2/x\n", "ark", {2: "found", 5: "found"}),
        ('n;t;ark\r\n1;"a\r\nb ""c""\r\n";ark:1/x1\r\n2;;ark:2/x\r\n', "ark", {2: "found", 5: "found"}),
        (
            '1,"a\n\n",ark:1/x1\n2,"never closed,ark:2/x\n3,"d",ark:1/x1\n4,", e\n',
            "3",
            {1: "found", 4: "bad", 5: "found", 6: "bad"},
        ),
        ('t,ark\n"a\nb","ark:/\n1/x1"\n', "ark", {2: "found"}),
        ('t\tark\n"a\nb"\tark:1/x1\n', "ark", {2: "found"}),
        ('"n\n(new)";"ark"\n1;ark:1/x1\n', "ark", {3: "found"}),
        ('size\tark\n5" disk\tark:1/x1\n"6\tark:2/x\n', "ark", {2: "found", 3: "found"}),
        ('\ufeff"ark",id\r\n"ark:1/x1","a, ""b"""\r\n', "ark", {2: "found"}),
        (f"id,ark\n{'z' * 70000},ark:1/x1\n2,ark:1/x1\n", "ark", {2: "bad", 3: "found"}),
        (f"ark,id\nark:1/x1,{'z' * 70000}\n", "ark", {2: "found"}),
        (f"id,ark\n{'z' * 65_526},ark:1/x123456\n", "ark", {2: "bad"}),
    ],
)
def test_a_column_of_csv_or_tsv(
    text: str, column: str, expected: dict[int, str], server: Hostile, tmp_path: Path
) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text(text, newline="")
    result = run(str(source), "--column", column, f"@{server.name}", "-o", str(out))
    rows = {int(row["line"]): row["status"] for row in csv.DictReader(out.read_text().splitlines())}
    assert rows == expected
    if text is COLLECTION:
        assert "4 lines skipped as blank or a comment" in result.stderr
    whole = out.read_text()
    out.write_text(whole[: len(whole) // 2])
    run("--column", column, f"@{server.name}", "-o", str(out), "--resume", text=text)
    assert out.read_text() == whole


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("id,ark\n", "arks", "there is no 'arks' in the first line: id,ark"),
        ("id,ark\n", "", "there is no '' in the first line: id,ark"),
        ("id,ark\n", "²", "there is no '²' in the first line"),
        ("id,ark\n", "0", "columns are numbered from 1"),
        ("id,ark\n", "9" * 5000, "in the first line: id,ark"),
        ("", "ark", "in the first line"),
        ("id,ark\rark:1/x1\r", "ark", "in the first line: id,ark?ark:1/x1"),  # lines that end with CR
        ("tïtle\n".encode("latin-1"), "tïtle", "there is no 'tïtle' in the first line: t\ufffdtle"),
    ],
)
def test_a_missing_column_is_an_error(text: str | bytes, column: str, said: str, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    run("--column", column, "@127.0.0.1", "-o", str(out), text=text, code=2, said=said)
    assert not out.exists()


@pytest.mark.parametrize("column", [(), ("--column", "ark"), ("--column", "1")])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
def test_utf_16_is_refused_before_anything_is_written(encoding: str, column: tuple[str, ...], tmp_path: Path) -> None:
    source, out = tmp_path / "in.txt", tmp_path / "out.csv"
    source.write_bytes("ark\r\nark:1/x1\r\n".encode(encoding))
    done = run(str(source), *column, "@127.0.0.1", "-o", str(out), code=8)
    assert done.stderr == f'maptr: {source}:1: not UTF-8: save it as UTF-8 (Excel: "CSV UTF-8")\n'
    assert not out.exists()


def test_a_number_beyond_all_columns_is_reported() -> None:
    run("--column", "9", "@127.0.0.1", text="ark:1/x1,2\n", said="--column: the column 9 is empty in every line")


def test_a_run_resumes_after_its_last_complete_row(server: Hostile, tmp_path: Path) -> None:
    text = "".join(f"ark:{1 + i % 3}/x{i}\n" for i in range(50)) + "ark:1/x" + "y" * 9000 + "\nark:1/last\n"
    for flag, out in (("--json", tmp_path / "o.jsonl"), ("--concurrency=9", tmp_path / "o.csv")):
        assert run(f"@{server.name}", flag, "-o", str(out), text=text).exit_code == 1
        whole = out.read_bytes()
        for cut in (0, 5, len(whole) // 2, len(whole) - 1):
            out.write_bytes(whole[:cut])
            run(f"@{server.name}", flag, "-o", str(out), "--resume", text=text, code=1, said="52 lines")
            assert sorted(out.read_bytes().splitlines()) == sorted(whole.splitlines())
    documents = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert {document["schema"] for document in documents} == {"maptr/1"}
    assert "longer than" in next(d["note"] for d in documents if d["line"] == 51)


@pytest.fixture
def all_but_two() -> Iterator[Hostile]:
    """Run a server that answers for every NAAN except 2."""
    script = hosts(ZONE)
    with hostile(lambda query, how: [] if question(query)[0][0] == b"2" else script(query, how)) as server:
        yield server


def has(path: Path, text: str) -> Callable[[], bool]:
    return lambda: path.exists() and text in path.read_text()


def test_an_interrupted_run_can_be_resumed(all_but_two: Hostile, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("ark:1/x\n" * 9000 + "ark:2/x\n")
    line = ["bulk", "in", f"@{all_but_two.name}", "--timeout", "60", "--concurrency", "1"]
    done = interrupted([*line, "-o", "out"], has(tmp_path / "out", "\n1000,"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        130,
        "maptr: interrupted: out has the rows so far; continue with: -o out --resume\n",
    )
    (tmp_path / "in").write_text("ark:1/x\n" * 9000)
    assert run(str(tmp_path / "in"), f"@{all_but_two.name}", "-o", str(tmp_path / "out"), "--resume").exit_code == 0
    assert len((tmp_path / "out").read_text().splitlines()) == 9001


def test_an_interrupted_overwrite_keeps_the_old_file(all_but_two: Hostile, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("ark:1/x\n" * 9000 + "ark:2/x\n")
    (tmp_path / "out").write_text("earlier")
    line = ["bulk", "in", f"@{all_but_two.name}", "--timeout", "60", "-o", "out", "--overwrite"]
    done = interrupted(line, has(tmp_path / "out.partial", "\n1000,"), cwd=tmp_path)
    assert (done.returncode, (tmp_path / "out").read_text()) == (130, "earlier")
    assert "out is unchanged; " in done.stderr
    assert "continue with: -o " in done.stderr
    again = run(str(tmp_path / "in"), f"@{all_but_two.name}", "-o", str(tmp_path / "out"), "--overwrite")
    assert (again.exit_code, (tmp_path / "out").read_text()) == (2, "earlier")
    assert "an interrupted run left it" in again.stderr


def test_an_existing_output_needs_resume_or_overwrite(server: Hostile, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("my notes\n")
    to_out = partial(run, f"@{server.name}", "-o", str(out), text="ark:1/x\n")
    to_out(code=2, said="--resume continues it, --overwrite replaces it")
    assert out.read_text() == "my notes\n"
    to_out("--overwrite", "--resume", code=2)
    to_out("--overwrite", code=0)
    assert out.read_text().startswith("line,status,ark,url,note,suggestion\n1,found,ark:1/x,")
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.parametrize(
    ("how", "flag"), [("itself", ()), ("hard link", ("--overwrite",)), ("symbolic link", ("--resume",))]
)
def test_the_input_is_never_the_output(how: str, flag: tuple[str, ...], tmp_path: Path) -> None:
    source = out = tmp_path / "arks.txt"
    source.write_text("ark:1/x\n")
    if how != "itself":
        out = tmp_path / "out"
        out.hardlink_to(source) if how == "hard link" else out.symlink_to(source)
    run(str(source), "@127.0.0.1#9", "-o", str(out), *flag, code=2, said="input and output are the same file")
    assert source.read_text() == "ark:1/x\n"


GOOD = "1,found,ark:1/x1,https://ha.example/ark:1/x1,,\n"
HEAD = "line,status,ark,url,note,suggestion\n"


@pytest.mark.parametrize(
    ("content", "because"),
    [
        ("my notes\nall of them\n", "it does not begin with line,status,ark,url,note"),
        ("my notes without an end of line", "it does not begin with"),
        (f"{HEAD}1,found,ark:1/other,https://x.example/,,\n", "its row of line 1 has a different ARK"),
        (f"{HEAD}{GOOD}4,found,ark:1/x4,https://x.example/,,\n", "has a row for line 4, but the input has 2 lines"),
        (f"{HEAD}1,found,ark:1/x1\n", "record 2 was not written by maptr bulk"),
        (f"{HEAD}{GOOD}1,found,ark:1/x2,,,\n", "line 1 already has a different"),
        (f"{HEAD}x,found,ark:1/x1,,,\n", "record 2"),
        (f"{HEAD}0,found,ark:1/x1,,,\n", "record 2"),
        (f"{HEAD}1,lost,ark:1/x1,,,\n", "record 2"),
        ('{"schema": "maptr/1", "line": 1, "status": "found", "ark": "ark:1/x1", "url": "", "note": ""}\n', "begin"),
        ("\udcff\udcfe\n", "it does not begin with"),
        (f"{HEAD}1,found,\udcff,,,\n", "record 2"),
        ("[1]\n", "it does not begin with {"),
        ('{"schema": "maptr/1", "line": 1}\n', "record 1 was not written by maptr bulk in this format: not a row"),
    ],
)
def test_an_output_that_cannot_be_resumed_is_unchanged(content: str, because: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    octets = content.encode("utf-8", "surrogateescape")
    out.write_bytes(octets)
    form = ["--json"] if because.endswith(("{", "row")) else []
    run("@127.0.0.1#9", "-o", str(out), "--resume", *form, text="ark:1/x1\nark:2/x2\n", code=2, said=because)
    assert out.read_bytes() == octets


def test_a_silent_server_gives_exit_code_9() -> None:
    with hostile(lambda query, transport: []) as server:
        run(f"@{server.name}", "--timeout", "0.2", text="ark:1/x\n", code=9, said="1,unknown,ark:1/x")


# ---- a suggestion


def test_a_bad_line_has_its_suggestion_as_a_field(server: Hostile) -> None:
    text = "ark:/1/x-1?info (Gallica)\nark:1/x1|https://n2t.net/ark:/1/x1\nark:1/x1 ark:1/x2\nark:1/x1\n"
    expected = ["ark:1/x-1?info", "ark:1/x1", "", ""]
    rows = list(csv.DictReader(run(f"@{server.name}", text=text).stdout.splitlines()))
    assert [(row["status"], row["suggestion"]) for row in rows] == [
        *(("bad", each) for each in expected[:3]),
        ("found", ""),
    ]
    documents = [json.loads(line) for line in run("--json", f"@{server.name}", text=text).stdout.splitlines()]
    assert [document["suggestion"] for document in documents] == expected


# ---- ARKs in other text

DIRTY = (
    "id,row,title,link,link,\r\n"
    '1,a,"A, b",ark:/1/x-1 (Gallica),z,\r\n'
    "2,b,two,ark:/1/x2|ark:/2/x|https://n2t.net/ark:1/x2,,\r\n"
    '3,c,"multi\r\nline","=HYPERLINK(""https://n2t.net/ark:/1/x3?a=1"";""ark:1/x3"")"\r\n'
    "4,d,=1+1,#N/A,,,more\r\n"
    "\r\n"
    ",,,,,\r\n"
    "# 5,e,,ark:4/x,,\r\n"
)
FOUND = [
    (2, "1", "ark:/1/x-1 (Gallica)", "found", "ark:1/x1"),
    (3, "2", "ark:/1/x2|ark:/2/x|https://n2t.net/ark:1/x2", "found", "ark:1/x2"),
    (3, "2", "ark:/1/x2|ark:/2/x|https://n2t.net/ark:1/x2", "found", "ark:2/x"),
    (4, "3", '=HYPERLINK("https://n2t.net/ark:/1/x3?a=1";"ark:1/x3")', "found", "ark:1/x3"),
    (5, "4", "#N/A", "none", ""),
    (8, "# 5", "ark:4/x", "none", "ark:4/x"),
]
FIND_HEADER = [
    "row",
    "id",
    "row_2",
    "title",
    "link",
    "link_2",
    "6",
    "maptr_status",
    "maptr_ark",
    "maptr_url",
    "maptr_note",
]


def test_find_writes_a_row_for_each_ark_with_the_columns_of_the_input(server: Hostile, tmp_path: Path) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text(DIRTY, newline="")
    done = run(str(source), "--find", "--column", "link", f"@{server.name}", "-o", str(out), code=1)
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == FIND_HEADER
    shown = [(int(row["row"]), *(row[name] for name in ("id", "link", "maptr_status", "maptr_ark"))) for row in rows]
    assert shown == FOUND
    assert (rows[0]["title"], rows[0]["row_2"], rows[0]["link_2"]) == ("A, b", "a", "z")
    assert (rows[3]["title"], rows[3]["maptr_url"]) == ("multi\r\nline", "https://u.example/x3?a=1")
    assert (rows[4]["title"], rows[4]["maptr_note"]) == ("=1+1", "no ARK in the row")  # as it came: rows can be joined
    assert "6 rows: 4 found, 2 none, 0 unknown, 0 bad" in done.stderr
    assert "1 row with more cells than the first one" in done.stderr
    documents = run("--json", str(source), "--find", "--column", "link", f"@{server.name}", code=1).stdout.splitlines()
    assert [list(json.loads(line))[:12] for line in documents] == [["schema", *FIND_HEADER]] * 6
    assert [json.loads(line)["maptr_ark"] for line in documents] == [row["maptr_ark"] for row in rows]


@pytest.mark.parametrize("form", [(), ("--json",), ("--unordered",)])
def test_a_run_with_find_resumes_within_a_row(form: tuple[str, ...], server: Hostile, tmp_path: Path) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out"
    source.write_text(DIRTY, newline="")
    line = (str(source), "--find", "--column", "link", f"@{server.name}", "-o", str(out), *form)
    run(*line, code=1)
    whole = out.read_bytes()
    for cut in range(0, len(whole) + 1, 23):
        out.write_bytes(whole[:cut])
        done = run(*line, "--resume", code=1)
        assert sorted(out.read_bytes().splitlines()) == sorted(whole.splitlines())
        assert "6 rows" in done.stderr
    source.write_text(DIRTY.replace("ark:/2/x", "ark:/2/other"), newline="")
    run(*line, "--resume", code=2, said="it was written from another input")
    source.write_text(DIRTY.replace("title", "Title"), newline="")
    out.write_bytes(whole)
    if form != ("--json",):
        run(*line, "--resume", code=2, said="it does not begin with row,id,")
    assert out.read_bytes() == whole


@pytest.mark.parametrize(
    ("text", "column", "columns", "expected"),
    [
        ("See ark:1/x1 and ark:1/x2.\n\n# ark:1/x3\nnone\n", (), ["text"], ["ark:1/x1", "ark:1/x2", "ark:1/x3", ""]),
        ("a;ark:1/x1 (b)\nc;ark:1/x2\n", ("--column", "2"), ["1", "2"], ["ark:1/x1", "ark:1/x2"]),
        ("\ufeff# of May\nid\tark\n1\tark:1/x1 (b)\n", ("--column", "ark"), ["id", "ark"], ["ark:1/x1"]),
        ("ark,maptr_url,schema\nark:1/x1,b,c\n", ("--column", "ark"), ["ark", "maptr_url_2", "schema_2"], ["ark:1/x1"]),
        ("ark:1/x1\n", ("--column", "3"), ["1", "2", "3"], [""]),
        ("\n \nark:1/x1,b\n", ("--column", "1"), ["1", "2"], ["ark:1/x1"]),
    ],
)
def test_find_in_lines_and_columns(
    text: str, column: tuple[str, ...], columns: list[str], expected: list[str], server: Hostile
) -> None:
    rows = list(csv.DictReader(run("--find", *column, f"@{server.name}", text=text).stdout.splitlines()))
    assert list(rows[0])[1:-4] == columns
    assert [row["maptr_ark"] for row in rows] == expected


def test_find_says_what_it_cannot_read_and_where_an_ark_was_cut(server: Hostile) -> None:
    text = f"ark,b\nark:1/x1,{'z' * 70000}\nark:1/th\u00e9\u00e2tre,\nark:1/x2,\n".encode() + b"\xe9 ark:1/x3,\n"
    done = run("--json", "--find", "--column", "ark", f"@{server.name}", text=text)
    long, cut, good, latin = map(json.loads, done.stdout.splitlines())
    assert (long["maptr_status"], long["maptr_note"]) == ("bad", "longer than 65536 bytes")
    assert (cut["maptr_ark"], cut["maptr_note"]) == ("ark:1/th", "cut before '\\xe9', which is not allowed in an ARK")
    assert (good["maptr_note"], latin["ark"], latin["maptr_ark"]) == ("", "\\xe9 ark:1/x3", "ark:1/x3")
    assert "line 2: longer than 65536 bytes" in done.stderr


# ---- a cache, a table, and the order of rows


def bulk(text: str, *arguments: str) -> tuple[int, list[dict[str, object]], str]:
    result = run("--json", *arguments, text=text)
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()], result.stderr


def test_a_stale_answer_replaces_a_silent_server(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    with Maptr({"ark.arpa.": of_minutes(home)}) as dns:
        monkeypatch.setenv("MAPTR_CLIENT_NAMESERVERS", f"127.0.0.1#{dns.port}")
        assert command_line.run("url", ARK, "--policy", "dns-first").exit_code == 0
    with sqlite3.connect(home / "cache" / "maptr" / "cache.sqlite") as kept:
        kept.execute("UPDATE answer SET fetched = fetched - 4000, expires = expires - 4000")
    kept.close()
    code, rows, _ = bulk("ark:12025/y\n", "--policy", "dns-first")
    assert (code, rows[0]["source"], rows[0]["stale"]) == (0, "disk", True), rows
    assert "67 min old, stale (DNS does not say" in str(rows[0]["note"])


@pytest.mark.usefixtures("home")
def test_without_a_resolver_only_the_table_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*arguments: object) -> None:
        raise NoServer("no resolver")

    monkeypatch.setattr("maptr.cli.lookup.system_servers", none)
    monkeypatch.setattr("maptr.resolver.stub.system_servers", none)
    assert run(text="ark:99998/x\n").exit_code == 9
    code, rows, said = bulk(f"{ARK}\nark:54321/x\n", "--table", str(ZONES / "sample.natab"))
    assert (code, [row["status"] for row in rows]) == (9, ["found", "unknown"])
    assert "1 from the table" in said
    assert "no resolver" in said


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("policy", "asked"), [("dns-first", 2), ("natab-first", 1)])
def test_rows_keep_the_order_of_the_lines(policy: str, asked: int, at: str) -> None:
    """With the table first, only the name that it lacks is asked."""
    lines = [("ark:12025/x", "nonsense", "ark:12345/x", "ark:99999/x", "ark:54321/x")[i * i % 5] for i in range(5000)]
    _, rows, said = bulk("\n".join(lines), "--table", str(ZONES / "sample.natab"), "--policy", policy, at)
    assert [row["line"] for row in rows] == list(range(1, 5001))
    assert f"; {asked} name" in said
    status = {"nonsense": "bad", "ark:54321/x": "none"}
    assert [row["status"] for row in rows] == [status.get(line, "found") for line in lines]


def test_rows_wait_for_a_slow_chooser_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.cli.bulk.MAX_HELD", 3)
    found = Client(table=ZONES / "sample.natab", policy="natab-only").discover(ARK)
    go_on = Event()

    class Slow:
        waits = True

        def __call__(self, discovery: Discovery) -> Candidate:
            assert go_on.wait(30)
            return discovery[0]

    def pairs() -> Iterator[tuple[Line, Discovery]]:
        for number in range(1, 7):
            assert number < 5 or go_on.is_set()
            if number == 4:
                Timer(0.1, go_on.set).start()
            yield (number, b""), found

    assert [number for (number, _), _ in chosen(pairs(), Slow())] == [1, 2, 3, 4, 5, 6]
