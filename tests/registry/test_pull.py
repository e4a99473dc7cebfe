"""Pulls of a table: choice of source, plan, verification, kept entries, replacement of the file, and the command."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import Mock

import pytest

from maptr import registry
from maptr.errors import PullFailed, TableError, UnsafePlan
from maptr.files import write_atomically
from maptr.registry.followed_file import WatchedTable, pull_file, read_pull_file
from maptr.registry.pull import Requirements, apply_pull
from tests.support import command_line
from tests.support.http_server import http_server, sends
from tests.support.registries import KEY, NEW, OLD, PUB, json_v1, natab, plan_pull, signature

REGISTRIES = ("naan_records_2024-06-21.json.gz", "naan_records_2026-07-14.json.gz")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "natab"
    path.write_bytes(OLD)
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(NEW)
    return path


def run(*arguments: str) -> tuple[int, str, str]:
    done = command_line.run("table", "pull", *arguments)
    return done.exit_code, done.stdout, done.stderr


def good(naan: int, host: str = "h.example.org") -> dict[str, object]:
    url = f"https://{host}/ark:/${{content}}"
    return {"what": str(naan), "where": f"https://{host}", "target": {"url": url, "http_code": 302}}


def goods(*naans: int) -> list[dict[str, object]]:
    return [good(naan) for naan in naans]


TEN = json_v1(*goods(*range(10000, 10010)))


# --- sources


def test_sources_are_tried_in_order_and_reasons_are_kept(target: Path) -> None:
    with (
        http_server(sends(b"", 302, Location="http://h\0.example/")) as invalid,
        http_server(sends(b"<html>")) as page,
        http_server(sends(OLD[:60])) as shrunk,
        http_server(sends(NEW)) as url,
    ):
        pull = plan_pull(target, [invalid, page, shrunk, url, "/nowhere"])
    assert (pull.source, [entry.key for entry in pull.plan.added]) == (url, ["10010"])
    assert [word in reason for word, reason in zip(("URL", "web page", "removes"), pull.skipped, strict=True)]


def test_a_source_file_is_limited_in_size(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.registry.pull.MAX_SOURCE", 5000)
    with pytest.raises(PullFailed, match="/dev/zero: more than 5000 bytes"):
        plan_pull(target, ["/dev/zero"])


def test_unchanged_content_is_only_confirmed(target: Path) -> None:
    asked: list[str | None] = []

    def handle(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.headers["If-None-Match"])
        sends(b"", 304)(request) if asked[-1] else sends(NEW, ETag='"v1"')(request)

    with http_server(handle) as url:
        apply_pull(plan_pull(target, [url]), wall=lambda: 1.0)
        again = plan_pull(target, [url])
        assert (bool(again.plan), again.content) == (False, None)
        apply_pull(again, wall=lambda: 2.0)
        assert read_pull_file(target)["checked"] == 2.0
        target.write_bytes(OLD)  # edited by hand: the ETag belongs to other content
        assert plan_pull(target, [url]).plan
    assert asked == [None, '"v1"', None]
    assert not (target.parent / "natab.2").exists()


# --- checksum and signature


def test_content_is_parsed_only_after_verification(target: Path) -> None:
    files = {"/naans": b"<html>", "/naans.minisig": signature(OLD).encode()}
    with http_server(lambda request: sends(files[request.path])(request)) as url:
        for requirements, reason in (
            (Requirements("0" * 64), "SHA-256"),
            (Requirements(public_key=KEY), "not valid"),
            (Requirements(hashlib.sha256(b"<html>").hexdigest().upper()), "web page"),
        ):
            with pytest.raises(PullFailed, match=reason):
                plan_pull(target, [url], requirements=requirements)
        files |= {"/naans": NEW, "/naans.minisig": signature(NEW).encode()}
        with pytest.raises(PullFailed, match=r"natab\.pull is missing"):
            plan_pull(target, [url], requirements=Requirements(public_key=KEY))
        assert plan_pull(target, [url], requirements=Requirements(public_key=KEY), force=True).plan
        files |= {"/naans?of=all": NEW, "/naans.minisig?of=all": files["/naans.minisig"]}
        for source in (f"{url}#top", f"{url}?of=all"):
            assert plan_pull(target, [source], requirements=Requirements(public_key=KEY), force=True).plan


def test_only_signed_content_that_is_not_older_is_pulled(target: Path, tmp_path: Path) -> None:
    key = tmp_path / "registry.pub"
    key.write_text(PUB)
    files = {"/naans": NEW, "/naans.minisig": signature(NEW).encode()}

    def serve(request: BaseHTTPRequestHandler) -> None:
        sends(files.get(request.path, b""), 200 if request.path in files else 404)(request)

    def pull(source: str, *arguments: str) -> tuple[int, str]:
        code, _, err = run(source, "--public-key", str(key), "--table", str(target), "--apply", *arguments)
        return code, err

    with http_server(serve) as url:
        code, err = pull(url)
        assert (code, target.read_bytes()) == (8, OLD), "when the current table was signed is unknown"
        assert f"{target}.pull is missing, which says when" in err
        assert pull(url, "--force")[0] == 0
        assert target.read_bytes() == NEW
        pull_file(target).unlink()
        assert pull(url)[0] == 0, "the same content is not older"
        assert read_pull_file(target)["signed"] == 1_700_000_000
        files["/naans"] = evil = natab(*range(10000, 10012))
        code, err = pull(url)
        assert code == 8
        assert "the signature is not valid: it is of another content" in err
        other = url.replace("/naans", "/other")
        for comment, reason in (
            ("timestamp:1600000000", "signed earlier than the current table"),
            ("no time", "its signature has no time"),
        ):
            files["/other"] = signature(evil, comment).encode()
            assert reason in pull(url, "--signature", other)[1]
        assert target.read_bytes() == NEW
        del files["/naans.minisig"]
        assert "the server answers 404" in pull(url)[1]
        assert target.read_bytes() == NEW
        assert pull(url, "--signature", other, "--force")[0] == 0
        assert target.read_bytes() == evil
    key.unlink()
    assert pull(str(target))[0] == 8
    key.write_text("no key")
    assert "not a minisign public key" in pull(str(target))[1]


@pytest.mark.parametrize("writes", [1, 2])
def test_a_crash_while_a_signed_table_is_written_does_not_stop_later_pulls(
    writes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, signed = tmp_path / "naans", Requirements(public_key=KEY)
    files = {"/naans": OLD, "/naans.minisig": signature(OLD).encode()}
    with http_server(lambda request: sends(files[request.path])(request)) as url:
        with monkeypatch.context() as patch:
            done = iter([write_atomically] * (writes - 1) + [Mock(side_effect=KeyboardInterrupt)])
            patch.setattr("maptr.registry.pull.write_atomically", lambda *arguments: next(done)(*arguments))
            with pytest.raises(KeyboardInterrupt):
                apply_pull(plan_pull(target, [url], requirements=signed), wall=time.time)
        files |= {"/naans": NEW, "/naans.minisig": signature(NEW, "timestamp:1700000001").encode()}
        apply_pull(plan_pull(target, [url], requirements=signed), wall=time.time)
        assert target.read_bytes() == NEW


# --- the plan and its limits


def test_other_fields_may_change_in_all_records(target: Path, source: Path) -> None:
    target.write_bytes(TEN)
    source.write_bytes(json_v1(*({**good(n), "who": {"name": "A", "location": "X"}} for n in range(10000, 10010))))
    assert len(plan_pull(target, [str(source)]).plan.changed) == 10


def test_unreadable_records_count_towards_the_limit(target: Path, source: Path) -> None:
    target.write_bytes(TEN)
    moved = [good(n, "new.example.org") for n in (10000, 10001)]
    unreadable = [{"what": what, "where": 7} for what in ("10008", "10009")]
    source.write_bytes(json_v1(*moved, *goods(*range(10002, 10008)), *unreadable))
    with pytest.raises(UnsafePlan, match="cannot read 4 of 10 records"):
        plan_pull(target, [str(source)])


@pytest.mark.parametrize("content", [b"", b"<!DOCTYPE html>\n", b'{"data": [', b"\xff\xfe"])
def test_a_broken_file_is_replaced_without_a_backup(content: bytes, target: Path) -> None:
    with http_server(sends(NEW, ETag='"v1"')) as url:
        apply_pull(plan_pull(target, [url]), wall=lambda: 1.0)
        target.write_bytes(content)
        code, _, err = run(url, "--table", str(target))
        assert (code, target.read_bytes()) == (1, content)
        assert "replaced" in err
        with http_server(sends(natab(10000))) as few, pytest.raises(UnsafePlan):
            plan_pull(target, [few])  # the plan starts from the last valid version
        code, _, err = run(url, "--table", str(target), "--apply")
        assert (code, target.read_bytes()) == (0, NEW)
        assert "replaced" in err
    assert (target.parent / "natab.1").read_bytes() == OLD
    assert not (target.parent / "natab.2").exists()


# --- kept entries


def test_a_record_that_becomes_unreadable_keeps_its_last_good_entry(target: Path, source: Path) -> None:
    bad = {"what": "10003", "where": 7, "target": []}
    never = {"what": "10010", "where": 7, "target": []}
    target.write_bytes(TEN)
    before = registry.read(target.read_bytes())
    source.write_bytes(json_v1(*(bad if n == 10003 else good(n) for n in range(10001, 10010)), never, good(10011)))
    into = (str(source), "--table", str(target))
    code, out, err = run(*into)
    lines = [line.split()[:2] for line in out.splitlines()]
    assert (code, lines) == (1, [["-", "10000"], ["!", "10003"], ["+", "10011"]])
    assert re.fullmatch(r"! 10003 unchanged: .*(target|where) is not .*", out.splitlines()[1])
    assert err.splitlines()[0].startswith(f"left out: {source}: record 10010: ")
    assert re.search(r"\n1 to add, 0 to change, 1 to remove of 10, 1 kept\b", err)
    assert json.loads(run(*into, "--json")[1])["plan"]["kept"][0]["record"] == "10003"
    assert "| kept | `10003` |" in run(*into, "--markdown")[1]
    assert run(*into, "--apply")[0] == 0
    after = registry.read(target.read_bytes())
    assert {**after} == {**{key: before[key] for key in before if key != "10000"}, "10011": after["10011"]}
    assert after.metadata == {"version": "2"}
    content = target.read_bytes()
    code, out, _ = run(*into, "--apply")
    assert (code, out[:8], target.read_bytes()) == (0, "! 10003 ", content), "reported until the source is repaired"
    assert not target.with_name("natab.2").exists()
    code, out, _ = run(*into, "--apply", "--force")
    assert (code, out.splitlines()) == (0, ["- 10003 https://h.example.org/ark:/${content}"])
    assert target.read_bytes() == source.read_bytes()


def test_a_source_with_kept_records_is_fetched_in_full(target: Path) -> None:
    asked: list[str | None] = []
    broken = OLD.replace(b"10003:\n    h.", b"10003:\n    h!")

    def handle(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.headers["If-None-Match"])
        sends(broken, ETag='"v1"')(request)

    with http_server(handle) as url:
        for _ in range(2):
            found = plan_pull(target, [url])
            apply_pull(found, wall=time.time)
            assert [key for key, _ in found.plan.kept] == ["10003"]
            assert found.sha256 == hashlib.sha256(broken).hexdigest()
    assert asked == [None, None]
    assert dict(registry.read(target.read_bytes())) == dict(registry.read(OLD))


def test_a_watched_table_follows_the_file_into_another_format(target: Path, source: Path) -> None:
    """If an entry is kept, a natab with an end-of-data line becomes JSON, which has no such line."""
    source.write_bytes(NEW.replace(b"10003:\n    h.", b"10003:\n    h!"))
    watched = WatchedTable(target, clock=time.monotonic)
    assert len(watched.current().table or ()) == 10
    apply_pull(plan_pull(target, [str(source)]), wall=time.time)
    assert target.read_bytes().startswith(b"{")
    state = watched.refresh()
    assert (state.trouble, len(state.table or ())) == ("", 11)


def test_a_source_whose_kept_records_do_not_fit_into_a_file_is_refused(
    target: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept records are written as JSON, which may have fewer records than a natab."""
    source.write_bytes(NEW.replace(b"10003:\n    h.example.org", b"10003:\n    h!"))
    monkeypatch.setattr("maptr.registry.table.MAX_PARSED", 20)
    with pytest.raises(PullFailed, match=f"{source}:1: not a registry: more than 20 records and mapping authorities"):
        plan_pull(target, [str(source)])
    assert target.read_bytes() == OLD


def test_a_file_that_cannot_hold_a_table_is_not_read(tmp_path: Path, source: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="Is not a regular file"):
        plan_pull(tmp_path / "pipe", [str(source)])


def test_a_bad_record_without_a_key_may_be_any_missing_one(target: Path, source: Path) -> None:
    target.write_bytes(TEN)
    source.write_bytes(json_v1(*goods(*range(10001, 10010)), {"wot": "10000"}))
    found = plan_pull(target, [str(source)])
    assert ([key for key, _ in found.plan.kept], found.plan.removed) == (["10000"], ())
    assert "a record without a key cannot be read: " in found.plan.kept[0][1]


# --- replacing the file


def test_the_last_three_versions_are_kept(target: Path) -> None:
    states = [natab(*range(10000, 10010 + extra)) for extra in range(1, 6)]
    for number, content in enumerate(states):
        with http_server(sends(content, ETag='"1"')) as url:
            pull = plan_pull(target, [url])
            assert target.read_bytes() == (states[number - 1] if number else OLD)
            apply_pull(pull, wall=lambda: 1234.5)
    assert target.read_bytes() == states[4]
    assert [(target.parent / f"natab.{n}").read_bytes() for n in (1, 2, 3)] == [states[3], states[2], states[1]]
    assert not (target.parent / "natab.4").exists()
    note = read_pull_file(target)
    assert (note["checked"], note["etag"], note["sha256"]) == (1234.5, '"1"', hashlib.sha256(states[4]).hexdigest())


def test_a_backup_is_copied_if_it_cannot_be_linked(target: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.link", Mock(side_effect=PermissionError(errno.EPERM, "Operation not permitted")))
    apply_pull(plan_pull(target, [str(source)]), wall=time.time)
    assert target.read_bytes() == NEW
    assert target.with_name("natab.1").read_bytes() == OLD


def test_a_backup_of_a_symbolic_link_has_the_old_content(target: Path, source: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(target)
    apply_pull(plan_pull(link, [str(source)]), wall=time.time)
    assert (link.is_symlink(), target.read_bytes()) == (True, NEW)
    assert link.with_name("link.1").read_bytes() == OLD


def test_a_file_that_has_changed_since_the_plan_is_not_replaced(target: Path, source: Path) -> None:
    planned = plan_pull(target, [str(source)])
    target.write_bytes(OLD + b"\n# edited\n")
    with pytest.raises(TableError, match="changed since the plan was made"):
        apply_pull(planned, wall=time.time)
    assert target.read_bytes() == OLD + b"\n# edited\n"
    target.unlink()
    with pytest.raises(TableError):
        apply_pull(planned, wall=time.time)
    assert not target.exists()
    target.write_bytes(NEW)
    apply_pull(planned, wall=time.time)
    assert not target.with_name("natab.1").exists(), "the file already has the new content"


def test_concurrent_pulls_leave_whole_files(target: Path, tmp_path: Path) -> None:
    sources = [tmp_path / f"source-{number}" for number in range(4)]
    for number, source in enumerate(sources):
        source.write_bytes(OLD + b"# %d\n" % number)

    def pull(number: int) -> str:
        try:
            apply_pull(plan_pull(target, [str(sources[number % 4])]), wall=time.time)
        except TableError as error:
            return error.reason
        return ""

    with ThreadPoolExecutor(4) as pool:
        ends = set(pool.map(pull, range(40)))
    assert ends <= {"", "has changed since the plan was made; pull again"}
    assert "" in ends
    whole = {source.read_bytes() for source in sources} | {OLD}
    assert {(tmp_path / f"natab{suffix}").read_bytes() for suffix in ("", ".1", ".2", ".3")} <= whole
    assert read_pull_file(target)["sha256"] == hashlib.sha256(target.read_bytes()).hexdigest()


# --- the command


def test_the_real_registry_of_2024_becomes_that_of_2026_and_back(real_data: Path, tmp_path: Path) -> None:
    contents = [gzip.decompress((real_data / name).read_bytes()) for name in REGISTRIES]
    sources = [tmp_path / name.removesuffix(".gz") for name in REGISTRIES]
    tables = [registry.read(content, on_bad=lambda error: None) for content in contents]
    keys = [{record["what"] for record in json.loads(content)["data"]} for content in contents]
    for source, content in zip(sources, contents, strict=True):
        source.write_bytes(content)
    target = tmp_path / "naans"
    target.write_bytes(contents[0])
    assert (len(keys[0]), len(keys[1])) == (1704, 2232)
    code, out, err = run(str(sources[1]), "--table", str(target), "--apply", "--json")
    plan = json.loads(out)["plan"]
    assert (code, "left out" in err) == (0, False)
    assert (set(plan["added"]), set(plan["removed"]), plan["kept"]) == (keys[1] - keys[0], keys[0] - keys[1], [])
    assert (len(plan["added"]), len(plan["removed"]), plan["size"]) == (529, 1, 1704)
    assert err.startswith("529 to add, 1703 to change, 1 to remove of 1704; the data are of 2026-07-14\n")
    assert target.read_bytes() == contents[1]
    assert dict(registry.read(target.read_bytes())) == dict(tables[1])
    assert target.with_name("naans.1").read_bytes() == contents[0]
    back = (str(sources[0]), "--table", str(target), "--apply")
    code, _, err = run(*back)  # the way back retargets too many records
    assert (code, target.read_bytes()) == (1, contents[1])
    assert "--force" in err
    code, _, err = run(*back, "--force")
    assert code == 0
    assert "1 to add, 1703 to change, 529 to remove of 2232" in err
    assert dict(registry.read(target.read_bytes())) == dict(tables[0])


def test_a_foreign_file_is_replaced_only_with_overwrite(tmp_path: Path, source: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("my notes\n")
    code, _, err = run(str(source), "--table", str(notes), "--apply")
    assert (code, notes.read_text()) == (2, "my notes\n")
    assert "maptr may not have written it" in err
    assert run(str(source), "--table", str(notes), "--apply", "--overwrite")[0] == 0
    notes.write_text("damaged")  # a file that was pulled before may be replaced
    assert run(str(source), "--table", str(notes), "--apply")[0] == 0
    assert notes.read_bytes() == source.read_bytes()


def test_the_command_plans_applies_and_refuses(target: Path) -> None:
    into = ("--table", str(target))
    with (
        http_server(sends(NEW)) as url,
        http_server(sends(natab(10000))) as shrunk,
        http_server(sends(b"<html>")) as page,
    ):
        code, out, _ = run(url, *into)
        assert (code, out) == (1, "+ 10010 https://h.example.org/ark:/${content}\n")
        assert json.loads(run(url, *into, "--json")[1])["plan"]["added"] == ["10010"]
        assert "| added | `10010` |" in run(url, *into, "--markdown")[1]
        assert run(shrunk, *into, "--apply")[0] == 1
        assert run(page, *into, "--apply")[0] == 8
        assert target.read_bytes() == OLD
        assert run(url, *into, "--apply")[0] == 0
        assert target.read_bytes() == NEW
        assert run(url, *into)[:2] == (0, "")
        assert run(shrunk, *into, "--apply", "--force")[0] == 0
    for options in (("--every", "1h"), ("--every", "soon", "--apply"), ("--sha256", "12")):
        assert run("x", *into, *options)[0] == 2


def test_cafile_needs_a_source_that_is_a_url(target: Path, tmp_path: Path) -> None:
    arguments = ("--table", str(target), "--cafile", "tls.crt")
    code, _, err = run("a", "b", *arguments)
    assert (code, "--cafile" in err) == (2, True)
    key = tmp_path / "key"
    key.write_text("no key")
    signed = ("--public-key", str(key), "--signature", "https://r.example/a.minisig")
    assert run("a", *arguments, *signed)[0] == 8, "the URL of the signature uses it"


def test_a_plan_creates_no_folder(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    assert run(str(source))[0] == 1
    assert not home.exists()
    assert run(str(source), "--apply", "--force")[0] == 0
    assert (home / "maptr" / "naans").read_bytes() == NEW


def test_every_continues_after_failures(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = chain([sends(b"no", 500)], repeat(sends(NEW)))
    pauses = Mock(side_effect=[None, None, KeyboardInterrupt])
    monkeypatch.setattr("maptr.cli.pull.time", Mock(sleep=pauses, time=time.time))
    with http_server(lambda request: next(answers)(request)) as url:
        code, _, err = run(url, "--table", str(target), "--apply", "--every", "1h")
    assert (code, target.read_bytes(), pauses.call_count) == (130, NEW, 3)
    assert "the server answers 500" in err
    assert all(3200 < call.args[0] < 4000 for call in pauses.call_args_list)
