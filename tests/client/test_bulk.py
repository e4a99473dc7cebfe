"""Scheduler at once: one question a name, order, limits, and the command over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from pathlib import Path

import dns.asyncresolver
import dns.resolver
import pytest
from click.testing import CliRunner, Result

from maptr import Discovery, Stub, Validator, discover, discover_async, discover_many, discover_many_async
from maptr.answer.context import Transport
from maptr.answer.respond import respond
from maptr.ark import Ark
from maptr.cli.group import main
from maptr.client import multiplexer
from maptr.client.bulk import Bulk
from maptr.client.message import Query, Response, read_response
from maptr.client.scheduler import Scheduler
from maptr.discovery import Outcome
from maptr.errors import ArkSyntaxError, ConfigError
from maptr.naptr.record import Naptr
from maptr.walk import Answer, Settings
from maptr.zone.snapshot import Snapshot
from tests.support.hostile import Hostile, hostile, hosts, naptr, question
from tests.support.interrupting import interrupted
from tests.support.ports import free_port

REGEXP = rb"!^ark:/?1/(.*)$!https://u.example/\1!"
ZONE = {
    "1.ark.arpa.": [naptr(flags=b"u", regexp=REGEXP), naptr("h.example.", order=9)],
    "2.ark.arpa.": [naptr("a.example.", flags=b""), naptr("b.example.", flags=b"", order=1)],
    "a.example.": [naptr("ha.example.")],
    "b.example.": [naptr("hb.example."), naptr("2.ark.arpa.", flags=b"")],
    "3.ark.arpa.": [naptr(f"h{i:03}.example.", order=i) for i in range(80)],  # by TCP
}
ARKS = ["ark:1/x1", "ark:2/x2?info", "ark:3/x", "ark:4/none", "ark:1/x1/c.pdf"]


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with hostile(hosts(ZONE)) as running:
        yield running


async def collect(stream: AsyncIterator[Discovery]) -> list[Discovery]:
    return [discovery async for discovery in stream]


def test_every_driver_finds_the_same(server: Hostile) -> None:
    sync_resolver = dns.resolver.Resolver(configure=False)
    sync_resolver.nameservers, sync_resolver.port = [server.host], server.port
    async_resolver = dns.asyncresolver.Resolver(configure=False)
    async_resolver.nameservers, async_resolver.port = [server.host], server.port
    servers = [server.name]
    bulk = list(discover_many(ARKS, nameservers=servers))
    assert [bool(found) for found in bulk] == [True, True, True, False, True]
    assert bulk[0].urls() == ["https://u.example/x1", "https://h.example/ark:1/x1"]
    assert asyncio.run(collect(discover_many_async(ARKS, nameservers=servers))) == bulk
    assert list(discover_many(ARKS, resolver=sync_resolver)) == bulk
    for ark, found in zip(ARKS, bulk, strict=True):
        assert discover(ark, nameservers=servers, raise_on_none=False) == found
        assert discover(ark, resolver=sync_resolver, raise_on_none=False) == found
        assert asyncio.run(discover_async(ark, nameservers=servers, raise_on_none=False)) == found
        assert asyncio.run(discover_async(ark, resolver=async_resolver, raise_on_none=False)) == found


def test_each_name_is_asked_once() -> None:
    with hostile(hosts({f"{i}.ark.arpa.": [naptr("h.example.")] for i in range(20)})) as server:
        found = list(discover_many((f"ark:{i % 20}/x{i}" for i in range(3000)), nameservers=[server.name]))
        assert len(server.queries) == 20
    assert [str(d.ark) for d in found] == [f"ark:{i % 20}/x{i}" for i in range(3000)]
    assert all(found)


def test_lost_packets_are_sent_again() -> None:
    honest = hosts({f"{i}.ark.arpa.": [naptr("h.example.")] for i in range(100)})
    lost: set[bytes] = set()

    def lossy(query: bytes, transport: str) -> list[bytes]:
        name = question(query)[0][0]
        if int(name) % 10 or name in lost:
            return honest(query, transport)
        lost.add(name)
        return []

    with hostile(lossy) as server:
        found = list(discover_many((f"ark:{i}/x" for i in range(100)), nameservers=[server.name]))
    assert all(found)
    assert len(lost) == 10


def test_a_server_that_is_not_there_gives_way_to_the_next(server: Hostile) -> None:
    gone = f"127.0.0.1#{free_port()}"
    arks = [f"ark:{i % 3 + 1}/x{i}" for i in range(30)]
    expected = list(discover_many(arks, nameservers=[server.name]))
    found = list(discover_many(arks, nameservers=[gone, server.name]))
    assert found == expected


def test_ids_letters_and_ports_are_random(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiplexer, "REUSES", 10)
    honest = hosts({f"{i}.ark.arpa.": [naptr("h.example.")] for i in range(400)})
    with hostile(honest) as server:
        found = list(discover_many((f"ark:{i}/x" for i in range(400)), nameservers=[server.name], concurrency=16))
        packets = [query for query, _ in server.queries]
        clients = len(server.clients)
    assert all(found)
    assert len(packets) == 400
    assert len({packet[:2] for packet in packets}) > 350  # IDs: 400 of 65,536 rarely meet
    assert len({question(packet)[1][-16:-4] for packet in packets}) > 100  # letters of arpa and ark: 7 bits
    assert clients > 400 / 32  # a socket is left after 10 questions and the batch that was under way


def test_forged_replies_are_as_if_they_had_not_come() -> None:
    honest = hosts({f"{i}.ark.arpa.": [naptr("h.example.")] for i in range(50)})
    evil = hosts({f"{i}.ark.arpa.": [naptr("evil.example.")] for i in range(50)})

    def forging(query: bytes, transport: str) -> list[bytes]:
        (packet,) = evil(query, transport)
        ident = bytes((query[0] ^ 1, query[1]))
        swapped = packet[:12] + packet[12:].swapcase()
        return [ident + packet[2:], swapped, query, packet[:11], *honest(query, transport), packet]

    with hostile(forging) as server:
        found = list(discover_many((f"ark:{i}/x" for i in range(50)), nameservers=[server.name]))
    assert {d[0].host for d in found} == {"h.example"}


def test_order_is_kept_only_on_request() -> None:
    honest = hosts({f"{i}.ark.arpa.": [naptr("h.example.")] for i in range(9)})

    def slow_first(query: bytes, transport: str) -> list[bytes]:
        return [] if question(query)[0][0] == b"0" else honest(query, transport)

    arks = [f"ark:{i}/x" for i in range(9)]
    with hostile(slow_first) as server:
        kept = list(discover_many(arks, nameservers=[server.name], lifetime=1.0))
        loose = list(discover_many(arks, nameservers=[server.name], lifetime=1.0, ordered=False))
    assert [str(d.ark) for d in kept] == arks
    assert str(loose[-1].ark) == "ark:0/x"
    assert [d.complete for d in kept] == [False] + [True] * 8


def test_a_rate_holds_back(server: Hostile) -> None:
    started = time.monotonic()
    found = list(discover_many((f"ark:{i}/x" for i in range(10, 40)), nameservers=[server.name], rate=100.0))
    assert len(found) == 30
    assert all(d.complete for d in found)
    assert time.monotonic() - started >= 0.25  # thirty packets at a hundred a second


def test_what_is_taken_in_is_bounded(server: Hostile) -> None:
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield f"ark:{taken}/x"

    stream = discover_many(endless(), nameservers=[server.name], concurrency=8)
    for _ in range(100):
        next(stream)
    assert isinstance(stream, Generator)
    stream.close()
    assert taken < 100 + 200


def sockets() -> int:
    """How many this process has open."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the folder itself is gone by now
            found += str(link.readlink()).startswith("socket:")
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc")
def test_who_stops_in_the_middle_leaves_no_socket_behind() -> None:
    honest = hosts({"1.ark.arpa.": [naptr("h.example.")]})

    def half(query: bytes, transport: str) -> list[bytes]:
        return honest(query, transport) if question(query)[0][0] == b"1" else []

    async def cancelled(work: Awaitable[object]) -> None:
        heard = len(partly.queries)
        task = asyncio.ensure_future(work)
        while len(partly.queries) == heard:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with hostile(half) as partly:
        arks = [f"ark:{number}/x" for number in range(1, 100)]
        before = sockets()
        stream = discover_many(arks, nameservers=[partly.name], lifetime=60)
        assert next(iter(stream))
        assert sockets() > before
        assert isinstance(stream, Generator)
        stream.close()
        assert sockets() == before
        asyncio.run(cancelled(collect(discover_many_async(arks, nameservers=[partly.name], lifetime=60))))
        assert sockets() == before
        asyncio.run(cancelled(discover_async("ark:2/x", nameservers=[partly.name], lifetime=60)))
        assert sockets() == before


def test_answers_are_kept_within_bounds() -> None:
    many: Scheduler[int] = Scheduler(Settings(), lifetime=5.0, clock=lambda: 0.0, max_kept=10)
    for i in range(50):
        many.start(i, Ark.parse(f"ark:{i}/x"))
        (name,) = many.take()
        records = [Naptr(0, n, b"h", b"ark", b"", (b"h", b"example")) for n in range(3)]
        many.tell(name, Answer(Outcome.ANSWER, records, 60))
    assert len(many.done) == 50
    many.start(99, Ark.parse("ark:49/y"))
    assert many.take() == []
    many.start(100, Ark.parse("ark:0/y"))  # the oldest made room
    assert len(many.take()) == 1
    assert many.open == 1


def test_bad_options_and_arks(server: Hostile) -> None:
    with pytest.raises(ArkSyntaxError):
        list(discover_many(["nonsense"], nameservers=[server.name]))
    for options in ({"concurrency": 0}, {"rate": 0.0}, {"stub": Stub(["127.0.0.1"])}):
        with pytest.raises(ConfigError):
            Bulk(nameservers=[server.name], **options)
    with pytest.raises(ConfigError):
        discover("ark:1/x", nameservers=["127.0.0.1"], resolver=Stub(["127.0.0.1"]))
    with pytest.raises(ConfigError):
        discover("ark:1/x", nameservers=["127.0.0.1#0"])


@pytest.mark.parametrize("one", ["ark:1/x", b"ark:1/x", Ark.parse("ark:1/x")])
def test_one_ark_is_not_several(one: Ark | str | bytes, server: Hostile) -> None:
    """Text is an iterable of text to Python and to type checkers, and its letters are no ARKs."""
    with pytest.raises(TypeError, match=r"expected several ARKs"):
        list(discover_many(one, nameservers=[server.name]))  # type: ignore[arg-type,unused-ignore]

    async def first() -> None:
        await anext(discover_many_async(one, nameservers=[server.name]))  # type: ignore[arg-type,unused-ignore]

    with pytest.raises(TypeError, match=r"expected several ARKs"):
        asyncio.run(first())


# ---- the command


def run(*arguments: str, text: str | bytes = "") -> Result:
    return CliRunner().invoke(main, ["bulk", *arguments], input=text)


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


def test_it_resumes_where_it_was_cut(server: Hostile, tmp_path: Path) -> None:
    text = "".join(f"ark:{1 + i % 3}/x{i}\n" for i in range(50)) + "ark:1/x" + "y" * 9000 + "\nark:1/last\n"
    for flag, out in (("--json", tmp_path / "o.jsonl"), ("--concurrency=9", tmp_path / "o.csv")):
        assert run(f"@{server.name}", flag, "-o", str(out), text=text).exit_code == 1
        whole = out.read_bytes()
        for cut in (0, 5, len(whole) // 2, len(whole) - 1):
            out.write_bytes(whole[:cut])
            assert run(f"@{server.name}", flag, "-o", str(out), "--resume", text=text).exit_code in (0, 1)
            assert sorted(out.read_bytes().splitlines()) == sorted(whole.splitlines())
    documents = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert {document["schema"] for document in documents} == {"maptr/1"}
    assert "longer than" in next(d["note"] for d in documents if d["line"] == 51)


def test_bad_usage(tmp_path: Path) -> None:
    assert run("a", "b").exit_code == 2
    assert run("--resume", "@127.0.0.1").exit_code == 2
    assert run("@127.0.0.1#x").exit_code == 2
    assert run(str(tmp_path / "none"), "@127.0.0.1").exit_code == 8
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    result = run("@127.0.0.1", "-o", str(other), "--resume")
    assert result.exit_code == 2
    assert "record 1" in result.stderr
    assert other.read_text() == "a,b\n1,2\n"


@pytest.fixture
def all_but_two() -> Iterator[Hostile]:
    """A server that answers for all NAANs but 2."""
    script = hosts(ZONE)
    with hostile(lambda query, how: [] if question(query)[0][0] == b"2" else script(query, how)) as server:
        yield server


def has(path: Path, text: str) -> Callable[[], bool]:
    return lambda: path.exists() and text in path.read_text()


def test_ctrl_c_says_what_was_kept_and_it_goes_on_from_there(all_but_two: Hostile, tmp_path: Path) -> None:
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


def test_ctrl_c_leaves_what_was_to_be_replaced(all_but_two: Hostile, tmp_path: Path) -> None:
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


def test_an_output_that_exists_needs_a_word(server: Hostile, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("my notes\n")
    result = run(f"@{server.name}", "-o", str(out), text="ark:1/x\n")
    assert (result.exit_code, out.read_text()) == (2, "my notes\n")
    assert "--resume continues it, --overwrite replaces it" in result.stderr
    assert run(f"@{server.name}", "-o", str(out), "--overwrite", "--resume", text="ark:1/x\n").exit_code == 2
    assert run(f"@{server.name}", "-o", str(out), "--overwrite", text="ark:1/x\n").exit_code == 0
    assert out.read_text().startswith("line,status,ark,url,note\n1,found,ark:1/x,")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv"]


@pytest.mark.parametrize("how", ["itself", "hard link", "symbolic link"])
@pytest.mark.parametrize("flag", [(), ("--overwrite",), ("--resume",)])
def test_the_input_is_never_the_output(how: str, flag: tuple[str, ...], tmp_path: Path) -> None:
    source = out = tmp_path / "arks.txt"
    source.write_text("ark:1/x\n")
    if how != "itself":
        out = tmp_path / "out"
        out.hardlink_to(source) if how == "hard link" else out.symlink_to(source)
    result = run(str(source), "@127.0.0.1#9", "-o", str(out), *flag)
    assert (result.exit_code, source.read_text()) == (2, "ark:1/x\n")
    assert "input and output are the same file" in result.stderr


GOOD = "1,found,ark:1/x1,https://ha.example/ark:1/x1,\n"
HEAD = "line,status,ark,url,note\n"


@pytest.mark.parametrize(
    ("content", "because"),
    [
        ("my notes\nall of them\n", "it does not begin with line,status,ark,url,note"),
        ("my notes without an end of line", "it does not begin with"),
        ("a,b\n1,2\n", "it does not begin with"),
        ("line,status,ark,url\n1,found,ark:1/x1,u\n", "it does not begin with"),
        (f"{HEAD}1,found,ark:1/other,https://x.example/,\n", "its row of line 1 has another ARK"),
        (f"{HEAD}{GOOD}4,found,ark:1/x4,https://x.example/,\n", "has a row of line 4, but the input has 2 lines"),
        (f"{HEAD}1,found,ark:1/x1\n", "record 2 was not written by maptr bulk"),
        (f"{HEAD}{GOOD}1,found,ark:1/x2,,\n", "line 1 has another row already"),
        (f"{HEAD}x,found,ark:1/x1,,\n", "record 2"),
        (f"{HEAD}1,lost,ark:1/x1,,\n", "record 2"),
        ('{"schema": "maptr/1", "line": 1, "status": "found", "ark": "ark:1/x1", "url": "", "note": ""}\n', "begin"),
        ("\udcff\udcfe\n", "it does not begin with"),
        (f"{HEAD}1,found,\udcff,,\n", "record 2"),
    ],
)
def test_what_cannot_be_gone_on_with_is_left_as_it_is(content: str, because: str, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    octets = content.encode("utf-8", "surrogateescape")
    out.write_bytes(octets)
    result = run("@127.0.0.1#9", "-o", str(out), "--resume", text="ark:1/x1\nark:2/x2\n")
    assert (result.exit_code, out.read_bytes()) == (2, octets)
    assert because in result.stderr


@pytest.mark.parametrize(
    "content", [f"{HEAD}{GOOD}", "[1]\n", '{"line": 1}\n', '{"schema": "maptr/1", "line": 1}\n', "[" * 9999]
)
def test_nor_what_has_another_format(content: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_text(content)
    result = run("@127.0.0.1#9", "-o", str(out), "--resume", "--json", text="ark:1/x1\n")
    assert (result.exit_code, out.read_text()) == (2, content)


def test_a_silent_server_is_9() -> None:
    with hostile(lambda query, transport: []) as server:
        result = run(f"@{server.name}", "--timeout", "0.2", text="ark:1/x\n")
    assert result.exit_code == 9
    assert "unknown" in result.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="add_reader")
def test_an_async_stream_is_taken_too(server: Hostile) -> None:
    async def arks() -> AsyncIterator[str]:
        for ark in ARKS:
            await asyncio.sleep(0)
            yield ark

    found = asyncio.run(collect(discover_many_async(arks(), nameservers=[server.name])))
    assert found == list(discover_many(ARKS, nameservers=[server.name]))


def test_keys_are_asked_for_once_however_many_questions_start_at_once() -> None:
    pytest.importorskip("cryptography", reason="validation needs maptr[dnssec]")
    from tests.support.tampered import signed_zone

    text = "".join(f'{naan} NAPTR 0 0 "h" "ark" "" h{naan}.example.\n' for naan in range(300))
    zone, key = signed_zone("ark.arpa.", text)
    snapshot = Snapshot.from_zones([zone])
    validator = Validator({"ark.arpa.": [key]})
    arks = [f"ark:{naan}/x" for naan in range(300)]

    def answer(query: bytes, transport: str) -> list[bytes]:
        reply = respond(query, snapshot, transport=Transport.UDP if transport == "udp" else Transport.TCP)
        return [reply] if reply is not None else []

    async def collect(server: str) -> list[Discovery]:
        found = discover_many_async(arks, nameservers=[server], trust_anchors={"ark.arpa.": [key]})
        return [discovery async for discovery in found]

    with hostile(answer) as server:
        for _ in range(2):  # the second run finds the keys
            found = list(discover_many(arks, nameservers=[server.name], trust_anchors=validator))
            assert all(discovery.security == "secure" for discovery in found)
            assert [discovery[0].host for discovery in found] == [f"h{naan}.example" for naan in range(300)]
            keys = [query for query, _ in server.queries if question(query)[1][-4:-2] == b"\0\x30"]
            assert 0 < len(keys) < 10  # one, and again where a slow machine loses time; not one for each of 256
        assert len({question(query)[0] for query, _ in server.queries}) == 301  # at the origin, too
        assert asyncio.run(collect(server.name)) == found


# ---- the bar


def on_terminal(*arguments: str, text: str, bar: bool) -> tuple[int, str, str]:
    """Exit code, stdout (a pipe), and stderr, which is a terminal where there is to be a ``bar``, and else a pipe."""
    ours, theirs = os.openpty() if bar else os.pipe()
    command = [sys.executable, "-m", "maptr", "bulk", *arguments]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs, env=environment, text=True
    ) as process:
        os.close(theirs)
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin as stdin:  # few enough for the pipe to take them at once
            stdin.write(text)
        told = bytearray()
        with contextlib.suppress(OSError):  # EIO where the other end of a terminal is gone
            while part := os.read(ours, 65536):
                told += part
        os.close(ours)
        out = process.stdout.read()
        return process.wait(), out, told.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="no pty")
def test_a_bar_on_a_terminal_and_none_in_a_pipe(server: Hostile, tmp_path: Path) -> None:
    source = tmp_path / "arks.txt"
    source.write_text("".join(f"ark:{1 + i % 3}/x{i}\n" for i in range(20)))
    rows = []
    for bar in (True, False):
        code, out, told = on_terminal(str(source), f"@{server.name}", text="", bar=bar)
        assert code == 0
        assert ("ARKs" in told) == bar
        assert ("100%" in told) == bar  # of the octets of the file
        assert ("\x1b" in told) == bar
        assert "20 lines: 20 found" in told
        rows.append(out)
        assert "\x1b" not in out
    assert rows[0] == rows[1]
    code, _, told = on_terminal(f"@{server.name}", text=source.read_text(), bar=True)
    assert code == 0
    assert "ARKs" in told
    assert "100%" not in told  # nobody knows how much stdin will have


# ---- one hostile NAAN among others

HOSTILE = b"!" + b"(" * 12 + b"x?" + b")*" * 12 + b"y$!https://u.example/!"  # read in linear time, but not in little


def hostile_records() -> list[bytes]:
    return [naptr(flags=b"u", regexp=HOSTILE, order=order) for order in range(200)]


def test_a_hostile_naan_does_not_starve_the_others() -> None:
    """200 ARKs of it, and 7 healthy NAANs whose answers lie in the socket meanwhile."""
    zone = {"666.ark.arpa.": hostile_records()} | {f"{i}.ark.arpa.": [naptr("h.example.")] for i in range(7)}
    arks = [f"ark:666/{'x' * 200}{i}" for i in range(200)] + [f"ark:{i}/x" for i in range(7)]
    with hostile(hosts(zone)) as server:
        found = list(discover_many(arks, nameservers=[server.name], lifetime=1.0))
    assert [bool(one) for one in found] == [False] * 200 + [True] * 7
    assert not any(one.complete for one in found[:200])
    assert all(one.complete for one in found[200:])


def test_the_walks_of_a_naan_share_one_budget_for_regexps() -> None:
    root = Naptr(0, 0, b"u", b"ark", HOSTILE, ())
    many: Scheduler[int] = Scheduler(Settings(), lifetime=5.0, clock=lambda: 0.0)
    spent = 0
    for i in range(50):
        many.start(i, Ark.parse(f"ark:666/{'x' * 200}{i}"))
    (name,) = many.take()
    many.tell(name, Answer(Outcome.ANSWER, [root._replace(order=order) for order in range(30)], 60))
    reasons = [reading.reasons for _, found in many.done for reading in found.trace[0].readings]
    spent = sum("steps of this walk are spent" in " ".join(reason) for reason in reasons)
    assert len(many.done) == 50
    assert spent > 0.9 * len(reasons)


def test_walks_of_one_answer_give_way_to_the_sockets() -> None:
    """On a clock that each walk moves on: a slice, and then it is the driver's turn."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.003
        return now

    many: Scheduler[int] = Scheduler(Settings(), lifetime=500.0, clock=clock)
    many.tick()
    for i in range(100):
        many.start(i, Ark.parse(f"ark:1/x{i}"))
    (name,) = many.take()
    many.tell(name, Answer(Outcome.ANSWER, [Naptr(0, 0, b"u", b"ark", REGEXP, ())], 60))
    assert len(many.done) < 20
    turns = 0
    while many.has_new:
        many.tick()
        turns += 1
    assert turns > 5
    assert [token for token, _ in many.done] == list(range(100))
    assert all(found for _, found in many.done)


def test_a_reply_that_comes_after_the_deadline_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each large reply takes its time: those that come when the walk's time is over are not read any more."""
    read = 0
    clock = time.monotonic
    passed = 0.0
    real = read_response

    def slow(query: Query, packet: bytes) -> Response:
        nonlocal read, passed
        read += len(packet) > 1232
        passed += 0.4 * (len(packet) > 1232)  # on the walk's clock
        return real(query, packet)

    monkeypatch.setattr("maptr.client.exchange.read_response", slow)
    zone = {"1.ark.arpa.": [naptr(f"r{i}.example.", flags=b"") for i in range(31)]}
    zone |= {f"r{i}.example.": [naptr(f"h{k}.example.") for k in range(80)] for i in range(31)}
    with hostile(hosts(zone)) as server:
        found = asyncio.run(
            discover_async("ark:1/x", nameservers=[server.name], lifetime=1.5, clock=lambda: clock() + passed)
        )
    assert read <= 4  # of 31
    assert not found.complete
