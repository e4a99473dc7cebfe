"""The shortest way of ``maptr url``: what it takes it answers as the long way does, and it imports next to nothing."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import dns.flags
import dns.message
import dns.name
import dns.rcode
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from maptr import names, natabfile, plainurl, plainwire, registry, resolvconf, rules, url, wire
from maptr.ark import Ark
from maptr.cli import brief, main, oneshot
from maptr.naptr import Naptr
from maptr.question import Answer
from maptr.trace import Outcome
from maptr.walk import Walk
from tests.test_client import Script, serving, zone
from tests.test_shortcuts import ark_texts, hosts, likely_texts, odd_records, plain_records, rrsets

ZONES = Path(__file__).resolve().parent.parent / "zones"
NATAB = ZONES / "sample.natab"

# ---- ARKs, questions and records, without I/O


@given(ark_texts | likely_texts)
@example("ark:/12345/x5/c2.fr.odf?info")
@example("ark:12345/x.a/b")
@example("ark:12345/x?a-b")
@example("ark:12345/x/")
@example("ark:12345/x//y")
@example("ark:12345/x..y")
@example("ark:12345/x./y")
@example("ark:12345//x")
@example("ark:12345/")
@example("ark://12345/x")
@example("ark:12345/x?a b")
@example("ark:" + "1" * 64 + "/x")
def test_an_ark_is_read_as_ever(text: str) -> None:
    short = plainurl.read_ark(text)
    if short is not None:
        naan, rest, tail = short
        ark = Ark.parse(text)
        assert (ark.naan, ark.resolution, ark.tail, ark.nma) == (naan, f"ark:{naan}/{rest}", tail, "")
        assert str(ark) == ark.resolution


@pytest.mark.parametrize("text", ["ark:12345/x6np1wh8k", "ark:/b2/x5/c2.fr.odf?info", "ark:12345/x?a=1&b=%20#x"])
def test_plain_arks_are_taken(text: str) -> None:
    assert plainurl.read_ark(text) is not None


@given(st.binary(min_size=30, max_size=30), st.integers(1, 16))
def test_a_question_is_written_as_ever(randomness: bytes, size: int) -> None:
    name = (b"b" * size, b"ark", b"arpa")
    query = wire.make_query(name, randomness[: 2 + size + 11])
    assert plainwire.make_question(name, randomness[: 2 + size + 11]) == (query.packet, query.question)


REWRITES = (
    *(rf"!^ark:/?12345/(.*)$!{to}!" for to in (
        r"https://u.example/\1", r"http://U-x.example/p?id=\1", r"https://u.example/ark:/12345/\1.html",
        r"https://u.example/\1/\1", r"https://u.example/a\\1", r"https://u.example/\2", r"https://u.example/",
        r"https:///\1", r"https://u..example/\1", r"https://u.example./\1", r"https://localhost/\1", r"ftp://u.example/\1",
        r"https://10.0.0.1/\1", r"https://0x7f/\1", r"https://u.example:80/\1", r"https://a@u.example/\1",
        r"https://u.example\1", r"https://u.example/<\1", r"https://-u.example/\1", r"https://[::1]/\1",
        r"https://a.localhost/\1", rf"https://{'a' * 64}.example/\1", r"HTTPS://u.example/\1", r"https://u.example/\11",
    )),
    *(rf"!^ark:/?12345/{shape}!https://u.example/\1!" for shape in (
        "(x.*)$", "x(.*)$", "x(1.*)$", "(y.*)$", "y(.*)$", "(.*)x$", "(x*.*)$", "x.(.*)$", "(.*)(.*)$", "(.*)$$", ".*$",
    )),
    r"!^ark:/?12345/(y.*)$!\7!", r"!^ark:/?12345/(.*)$!https://u.example:080/\1!", r"!^ark:/?12345/(.*)$!https://u.example:/\1!",
    r"#^ark:/?12345/(.*)$#https://u.example/\1#", r"1^ark:/?12345/(.*)$1https://u.example/\11", r"!!!", r"", r"!",
    r"!^ark:/?12345/(.*)$!https://u.example/\1!i", r"!^ark:/?2/(.*)$!https://u.example/\1!", r"!^ark:/?12345/(.*)!https://u.example/\1!",
)  # fmt: skip
rewriting = st.builds(
    lambda order, regexp: Naptr(order, 0, b"u", b"ark", regexp.encode(), ()),
    st.integers(0, 2),
    st.sampled_from(REWRITES),
)
some = st.lists(plain_records | rewriting | hosts | odd_records, min_size=1, max_size=4)


def walked(text: str, records: list[Naptr]) -> str | None:
    """The URL that the walk in full finds; None where it finds none, or asks further."""
    walk = Walk(Ark.parse(text), shortcut=False)
    walk.tell(walk.next()[0], Answer(Outcome.ANSWER, records, 60))
    found = walk.result()
    return found.candidates[0].url(found.ark) if found.candidates else None


def check_url(text: str, records: list[Naptr]) -> None:
    short = plainurl.read_ark(text)
    assert short is not None
    naan, rest, tail = short
    made = plainurl.url_of(records, naan, rest)
    if made is not None:
        assert made + tail == walked(text, records)


@given(rrsets.filter(bool) | some, st.sampled_from(["x1", "x1/c2.pdf?info", "x1?"]))
def test_the_best_record_makes_the_url_of_the_walk(records: list[Naptr], name: str) -> None:
    check_url(f"ark:12345/{name}", records)


@pytest.mark.parametrize("regexp", REWRITES)
def test_a_rule_makes_the_url_of_the_walk(regexp: str) -> None:
    check_url("ark:/12345/x1?info", [Naptr(10, 10, b"u", b"ark", regexp.encode(), ())])


def test_what_our_own_zones_have_is_taken() -> None:
    table = registry.read((ZONES / "sample.json").read_bytes())
    taken = 0
    for naan in table.naans():
        records = rules.records(table[naan], table.shoulders(naan))
        if records:
            check_url(f"ark:{naan}/x6np1wh8k", records)
            taken += plainurl.url_of(records, naan, "x6np1wh8k") is not None
    assert taken > len(table.naans()) / 2


# ---- command lines


@pytest.fixture(autouse=True)
def folders_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("data", "cache", "config"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    monkeypatch.chdir(ZONES.parent)


@pytest.fixture(scope="module")
def natab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample, written a while ago, so that its age in words does not change while it is compared."""
    path = tmp_path_factory.mktemp("natab") / "natab"
    path.write_bytes(NATAB.read_bytes())
    os.utime(path, (time.time() - 10_000, time.time() - 10_000))
    return path


TAKEN = (
    ("ark:12345/x54", "AT"),
    ("AT", "ark:/12345/x54.pdf?info"),
    ("ark:12025/x6np1wh8k", "--natab", "NATAB", "--policy", "natab-only"),
    ("ark:/54321/x54?info", "--natab", "NATAB", "--policy", "natab-only"),
    ("--policy=natab-first", "--natab=NATAB", "ark:/12026/x6/c3.pdf?info"),
    ("--policy", "dns-only", "ark:20775/x", "--natab", "gone", "--natab", "NATAB", "--policy", "natab-only"),
)
LEFT = (
    (),
    ("ark:12345/x54", "ark:12026/x1", "AT"),
    ("ark:12345/x5-4", "AT"),
    ("https://n2t.net/ark:/12345/x54", "AT"),
    ("ark:00000/x1", "AT"),
    ("nonsense", "AT"),
    ("ark:12345/x54", "AT", "AT"),
    ("ark:12345/x54", "AT", "--no-cache"),
    ("ark:12345/x54", "AT", "--json"),
    ("ark:12345/x54", "AT", "--"),
    ("ark:12345/x54", "-h"),
    ("ark:12345/x54", "@"),
    ("ark:12345/x54", "@127.0.0.1#"),
    ("ark:12345/x54", "@127.0.0.1#0"),
    ("ark:12345/x54", "@127.0.0.1#70000"),
    ("ark:12345/x54", "@127.0.0.1#x"),
    ("ark:12345/x54", "@127.0.0.1#9"),
    ("ark:12345/x54", "@::1#9"),
    ("ark:12345/x54", "@no-such-host.invalid"),
    ("ark:12345/x54", "--policy", "natab-only"),
    ("ark:12345/x54", "--natab="),
    ("ark:12345/x54", "--natab"),
    ("ark:12345/x54", "--natab", "NATAB", "--policy", "nonsense"),
    ("ark:12345/x54", "--natab", "gone", "--policy", "natab-only"),
    ("ark:12345/x54", "--natab", "zones", "--policy", "natab-only"),
    ("ark:54321/x54", "--natab", "NATAB", "--policy", "natab-first"),
    ("ark:b2/x54", "--natab", "NATAB", "--policy", "natab-only"),
    ("ark:12025/x5-4", "--natab", "NATAB", "--policy", "natab-only"),
    ("ark:12025/x54", "--natab", "zones/sample.json", "--policy", "natab-only"),
    ("ark:12025/x54", "--natab", "NATAB", "--policy", "natab-only", "--origin", "ark.example"),
    ("ark:12025/x54", "--natab", "NATAB", "--policy", "natab-only", "AT"),
    ("ark:12025/x54", "--natab", "NATAB", "--policy", "natab-first", "ark:12026/x1"),
    ("ark:12025/x54", "--natab", "NATAB", "AT"),
)


def filled(words: tuple[str, ...], at: str, natab: Path) -> list[str]:
    return [word.replace("AT", at) if word == "AT" else word.replace("NATAB", str(natab)) for word in words]


def shown(words: list[str]) -> tuple[int, str, str]:
    """Code, stdout and stderr of the long way."""
    done = CliRunner().invoke(main, ["url", *words])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("words", TAKEN, ids=" ".join)
def test_both_ways_say_the_same(
    words: tuple[str, ...], at: str, natab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = filled(words, at, natab)
    code = oneshot.answer(line)
    ours = capsys.readouterr()
    assert (code, ours.out, ours.err) == shown(line)
    assert code == ("ark:/54321/x54?info" in words)


@pytest.mark.parametrize("words", LEFT, ids=" ".join)
def test_what_is_odd_is_left_before_anything_is_said(
    words: tuple[str, ...], at: str, natab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert oneshot.answer(filled(words, at, natab)) is None
    assert capsys.readouterr() == ("", "")


def test_whatever_is_set_up_is_minded(at: str, natab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["ark:12345/x54", at]
    looked = ["ark:12025/x1", "--natab", str(natab), "--policy", "natab-only"]
    config = tmp_path / "config" / "maptr" / "maptr.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[serve]\n")
    assert (oneshot.answer(asked), oneshot.answer(looked)) == (0, 0)
    config.write_text('[client]\norigin = "ark.example"\n')
    assert (oneshot.answer(asked), oneshot.answer(looked)) == (None, None)
    config.unlink()
    with monkeypatch.context() as patch:
        patch.setenv("MAPTR_CACHE_TABLE_LIMIT", "1s")
        assert (oneshot.answer(asked), oneshot.answer(looked)) == (None, None)
    note = natab.with_name("natab.pull")
    note.write_text("{}")
    assert (oneshot.answer(asked), oneshot.answer(looked)) == (0, None)
    note.unlink()


def test_the_system_s_resolver_unless_a_table_was_pulled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def ask(naan: str, rest: str, host: str, port: int) -> str:
        asked.append(f"{host}#{port}")
        return f"https://h.example/ark:{naan}/{rest}"

    monkeypatch.setattr(oneshot, "_ask", ask)
    for text in ("", "nameserver\nsearch example\n", "# x\nnameserver 192.0.2.1\nnameserver 192.0.2.2\n"):
        monkeypatch.setattr(resolvconf, "nameservers", lambda text=text: [
            words[1] for words in map(str.split, text.splitlines()) if len(words) > 1 and words[0] == "nameserver"
        ])  # fmt: skip
        assert oneshot.answer(["ark:12345/x1"]) == (0 if "192" in text else None)
        assert oneshot.answer(["ark:12345/x1", "@"]) is None
    assert asked == ["192.0.2.1#53"]
    assert capsys.readouterr().out == "https://h.example/ark:12345/x1\n"
    table = tmp_path / "data" / "maptr" / "naans"
    table.parent.mkdir(parents=True)
    table.write_bytes(NATAB.read_bytes())
    assert oneshot.answer(["ark:12345/x1"]) is None


# ---- servers

RECORDS = {"12345.ark.arpa.": ['0 0 "h" "ark" "" h.example.']}
HONEST = zone(RECORDS)


def altered(change: Callable[[dns.message.Message], object]) -> Script:
    """The honest server, whose replies are altered before they go."""

    def answer(query: dns.message.Message) -> dns.message.Message | None:
        reply = HONEST(query)
        assert reply is not None
        change(reply)
        return reply

    return answer


def other_letters(reply: dns.message.Message) -> None:
    question = reply.question[0]
    question.name = dns.name.Name(label.swapcase() for label in question.name.labels)


ODD: dict[str, Script] = {
    "silent": lambda query: None,
    "another ID": altered(lambda reply: setattr(reply, "id", reply.id ^ 1)),
    "letters not echoed": altered(other_letters),
    "truncated": altered(lambda reply: setattr(reply, "flags", reply.flags | dns.flags.TC)),
    "no reply but a question": altered(lambda reply: setattr(reply, "flags", reply.flags & ~dns.flags.QR)),
    "refused": altered(lambda reply: reply.set_rcode(dns.rcode.REFUSED)),
    "nothing": altered(lambda reply: reply.answer.clear()),
    "a redirect": zone({"12345.ark.arpa.": ['0 0 "" "ark" "" x.example.', '1 0 "h" "ark" "" h.example.']}),
    "a redirect behind": zone({"12345.ark.arpa.": ['0 0 "h" "ark" "" h.example.', '1 0 "" "ark" "" x.example.']}),
    "two of equal rank": zone({"12345.ark.arpa.": ['0 0 "h" "ark" "" h.example.', '0 0 "h" "ark" "" i.example.']}),
    "not a public host": zone({"12345.ark.arpa.": ['0 0 "h" "ark" "" 127.0.0.1.']}),
}


def test_an_honest_server_is_asked_once(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[dns.message.Message] = []

    def answer(query: dns.message.Message) -> dns.message.Message | None:
        asked.append(query)
        return HONEST(query)

    with serving(answer) as port:
        assert oneshot.answer(["ark:12345/x1", f"@127.0.0.1#{port}"]) == 0
    assert capsys.readouterr() == ("https://h.example/ark:12345/x1\n", "")
    assert len(asked) == 1


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_reply_is_left(odd: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oneshot, "PATIENCE", 0.05 if odd == "silent" else 5.0)
    with serving(ODD[odd]) as port:
        assert oneshot.answer(["ark:12345/x1", f"@127.0.0.1#{port}"]) is None
    assert capsys.readouterr() == ("", "")


# ---- tables


@pytest.mark.parametrize(
    "line", ["", "# \xe9", "    i.example", "13030:", "# of data", "#--- end of data ---", "\x00", "a: b", "x" * 70_000]
)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_table_that_is_odd_anywhere_is_left(line: str, encoding: str, tmp_path: Path) -> None:
    lines = [f"{naan}:\n    h{naan}.example A" for naan in range(20_000, 26_000)]
    for at in (0, 1, 3000, 6000):
        path = tmp_path / "natab"
        path.write_text("\n".join([*lines[:at], line, *lines[at:]]) + "\n", encoding=encoding)
        for naan in ("20000", "23000", "25999", "99999"):
            whole = path.read_bytes()
            try:
                found = natabfile.search(whole, naan) if natabfile.is_plain(whole) else "left"
            except natabfile.NotPlainError:
                found = "left"
            try:
                hosts, written = natabfile.look_up(str(path), naan)
            except natabfile.NotPlainError:
                assert found == "left"
            else:
                assert (hosts, written) == (found, path.stat().st_mtime)


def test_a_table_whose_head_is_longer_than_what_is_read_at_once_is_left(tmp_path: Path) -> None:
    path = tmp_path / "natab"
    path.write_text("# a\n" * 20_000 + "12025:\n    h.example\n")
    with pytest.raises(natabfile.NotPlainError):
        natabfile.look_up(str(path), "12025")
    path.write_text("12025:" + "\n" * 70_000 + "  type: naan\n12026:\n    h.example\n")  # YAML
    with pytest.raises(natabfile.NotPlainError):
        natabfile.look_up(str(path), "12026")


def test_a_table_that_changes_meanwhile_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "natab"
    path.write_bytes(NATAB.read_bytes())
    search = natabfile.search

    def slow(octets: natabfile._File, naan: str, *, to_the_end: bool) -> list[str] | None:
        path.write_bytes(NATAB.read_bytes() + b"\n")
        return search(octets, naan, to_the_end=to_the_end)

    monkeypatch.setattr(natabfile, "search", slow)
    with pytest.raises(natabfile.NotPlainError):
        natabfile.look_up(str(path), "12025")


def test_a_pipe_without_a_writer_hangs_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(natabfile.NotPlainError):
        natabfile.look_up(str(tmp_path / "pipe"), "12025")


def test_what_is_said_twice_is_the_same() -> None:
    """Not to import what else says it."""
    assert plainurl.MAX_LABEL == names.MAX_LABEL
    assert names.parse("ark.arpa.") == plainurl.ARK_ARPA
    for length in (plainurl.MAX_HOST, plainurl.MAX_HOST + 1):
        labels = [b"a" * 49] * 5
        labels[0] = b"a" * (49 + length - len(b".".join(labels)))
        taken = plainurl.host_of(tuple(labels), undotted=None)
        assert (taken is not None) is (length == plainurl.MAX_HOST)
        with contextlib.nullcontext() if taken else pytest.raises(ValueError, match="not a host name"):
            url.parse_host(b".".join(labels).decode())


# ---- the process

START = "import sys\nfrom maptr.cli.brief import run\nsys.exit(run())"  # as pip 26 and uv write it


def started(words: list[str], before: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"{before}\n{START}", "url", *words],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_nothing_is_imported_but_this(at: str, natab: Path) -> None:
    tell = (
        "import os, sys\nleave, before = os._exit, set(sys.modules)\n"
        "def told(code):\n    print(*sorted(set(sys.modules) - before))\n    sys.stdout.flush()\n    leave(code)\n"
        "os._exit = told"
    )
    common = "__future__ errno maptr maptr.cli maptr.cli.brief maptr.cli.oneshot maptr.cli.output maptr.cli.through"
    common += " maptr.places maptr.plainurl maptr.printable maptr.resolvconf"
    by_way = {
        "_socket _struct maptr.names maptr.plainwire maptr.protocol struct": ["ark:12345/x54", at],
        "maptr.natabfile": ["ark:12025/x1", "--natab", str(natab), "--policy", "natab-only"],
    }
    for further, words in by_way.items():
        done = started(words, tell)
        url, modules = done.stdout.splitlines()
        assert url.startswith("https://")
        builtin = {"errno", "_struct", "_socket", "time"}  # whether these stand in a file is the interpreter's business
        assert set(modules.split()) - builtin <= set(f"{common} {further}".split()) - builtin
        assert done.returncode == 0


def test_a_line_that_is_left_goes_the_long_way(at: str) -> None:
    done = started(["ark:00000/x1", at])
    assert (done.returncode, done.stdout) == (1, "\n")
    assert "no such name" in done.stderr


def test_what_nobody_foresaw_is_10(at: str) -> None:
    done = started(["ark:12345/x54", at], "import maptr.plainurl\nmaptr.plainurl.read_ark = lambda text: 1 / 0")
    assert (done.returncode, done.stdout) == (10, "")
    assert "ZeroDivisionError" in done.stderr


def test_a_full_disk_is_8(at: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-c", START, "url", "ark:12345/x54", at], stdout=full, stderr=subprocess.PIPE, timeout=60
        )
    assert b"No space left" in done.stderr


def test_the_time_spent_is_part_of_the_time_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[float] = []
    monkeypatch.setattr(oneshot, "answer", lambda words: time.sleep(0.05))
    monkeypatch.setattr(brief, "answer", lambda words, environment, spent: heard.append(spent))
    brief.at_once(["url", "ark:12345/x1"])
    brief.at_once(["discover", "ark:12345/x1"])
    assert heard[0] >= 0.05 > heard[1]


def test_completion_is_left_to_click(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(brief.COMPLETION, "bash_complete")
    monkeypatch.setattr(oneshot, "answer", lambda words: 1 / 0)
    assert brief.at_once(["url", "ark:12345/x1"]) is None
