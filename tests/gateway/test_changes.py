"""Changes to a store of own objects: single ones, concurrent imports, their trace, and interrupted writers."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maptr.errors import ConfigError
from maptr.gateway.message import Unreadable
from maptr.gateway.objects import OwnObjects
from maptr.gateway.redirects import changes
from maptr.gateway.redirects import store as stores
from maptr.gateway.redirects.changes import (
    Changed,
    RefusedError,
    forget,
    history,
    restore,
    set_object,
    shown,
    withdraw,
)
from maptr.gateway.redirects.importing import Imported, Missing, Terms
from maptr.gateway.redirects.rows import INTERRUPTED
from maptr.gateway.redirects.store import locked_store
from tests.support.own_objects import csv_file, imported, put, read, store_of
from tests.support.waiting import PATIENCE

HEAD = "ark,url,what,note\n"
ROWS = [f"ark:12345/x{n},https://h.example/{n},Thing {n},\n" for n in range(5)]
DAY = 86400.0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return imported(tmp_path / "own.sqlite", HEAD + "".join(ROWS))


def again(store: Path, *rows: str, terms: Terms | None = None, head: str = HEAD) -> Imported:
    """Import other rows."""
    return put(csv_file(store.with_name("again.csv"), head + "".join(rows)), store, terms)


def row(store: Path, ark: str) -> tuple[str, int, str]:
    found = store_of(store).get(ark)
    assert found is not None
    return found.url, found.status, found.what


# ---- single changes


def test_an_ark_is_registered_and_changed(store: Path) -> None:
    made = set_object(store, "ark:/54321/y-1", {"url": "https://h.example", "who": "Me"}, by="alice", now=5.0)
    assert (made.number, made.old, made.new.ark, made.new.url) == (2, None, "ark:54321/y1", "https://h.example/")
    assert store_of(store).naans == {"12345": 5, "54321": 1}
    changed = set_object(store, "ark:54321/y1", {"what": "A thing", "note": "for us"}, by="bob", now=6.0)
    assert (changed.number, changed.new.who, changed.new.what) == (3, "Me", "A thing")
    assert set_object(store, "ark:54321/y1", {"what": "A thing"}).number == 3, "nothing changed"
    assert shown(store, "ark:54321/y-1") == (changed.new, 3)
    assert shown(store, "ark:54321/other") is None
    assert store_of(store).naans == {"12345": 5, "54321": 1}
    first, *entries = history(store)
    assert (first.action, first.note) == ("import", ": 5 objects")
    assert [(each.change, each.at, each.who, each.action, each.ark) for each in entries] == [
        (2, 5, "alice", "set", "ark:54321/y1"),
        (3, 6, "bob", "set", "ark:54321/y1"),
    ]
    assert (entries[0].old, entries[1].old["who"], entries[1].new["note"]) == ({}, "Me", "for us")
    assert list(history(store, "ark:12345/x1")) == []


@pytest.mark.parametrize(
    ("ark", "given", "said"),
    [
        ("x", {"url": "https://h.example/"}, "no ark: label"),
        ("ark:12345/x?info", {"url": "https://h.example/"}, "is not the ARK of one object"),
        ("ark:12345", {"url": "https://h.example/"}, "has no name"),
        ("ark:12345/new", {"url": "http://10.0.0.1/"}, "is not a public host"),
        ("ark:12345/new", {"what": "A thing"}, "has no URL"),
        ("ark:12345/x1", {"url": ""}, "has no URL"),
        ("ark:12345/x1", {"status": "301"}, "the status 301"),
        ("ark:12345/x1", {"shelf": "top"}, "has no column shelf"),
        ("ark:12345/x1", {"what": "x" * 70_000}, "a row of more than 64512 bytes"),
    ],
)
def test_a_change_is_checked_as_an_import_is(store: Path, ark: str, given: dict[str, str], said: str) -> None:
    before = store.read_bytes()
    with pytest.raises((ValueError, RefusedError), match=said):
        set_object(store, ark, given)
    assert store.read_bytes() == before


def test_an_object_is_withdrawn_and_restored(store: Path) -> None:
    gone = withdraw(
        store, "ark:12345/x1", reason="a duplicate", replaced_by="ark:/12345/x-2", authority="The Library", now=DAY
    ).new
    assert (gone.status, gone.url, gone.reason, gone.what) == (410, "", "a duplicate", "Thing 1")
    assert (gone.replaced_by, gone.authority, gone.withdrawn) == ("ark:12345/x2", "The Library", "1970-01-02")
    assert store_of(store).get("ark:12345/x1") == gone
    with pytest.raises(RefusedError, match="maptr redirects restore"):
        set_object(store, "ark:12345/x1", {"url": "https://h.example/"})
    other = withdraw(store, "ark:12345/x1", reason="another reason", now=9 * DAY).new
    assert (other.reason, other.withdrawn) == ("another reason", "1970-01-02")
    back = restore(store, "ark:12345/x1").new
    assert back == back._replace(url="https://h.example/1", status=302, reason="", withdrawn="", replaced_by="")
    with pytest.raises(RefusedError, match="is not withdrawn"):
        restore(store, "ark:12345/x1")
    with pytest.raises(RefusedError, match="is not in"):
        withdraw(store, "ark:12345/other", reason="a test")
    for reason, by in ((" ", ""), ("x", "ark:12345/x1"), ("x", "y")):
        with pytest.raises(ValueError, match=r"missing|itself|label"):
            withdraw(store, "ark:12345/x1", reason=reason, replaced_by=by)


def test_without_its_trace_an_object_is_restored_to_a_given_url(store: Path) -> None:
    withdraw(store, "ark:12345/x1", reason="a test", now=DAY)
    withdraw(store, "ark:12345/x2", reason="a test", now=3 * DAY)
    assert forget(store, 2 * DAY) == 1
    assert b"Thing 1" in store.read_bytes()
    assert [entry.ark for entry in history(store)][-1] == "ark:12345/x2"
    with pytest.raises(RefusedError, match="--url"):
        restore(store, "ark:12345/x1")
    assert restore(store, "ark:12345/x1", where="https://h.example/new").new.url == "https://h.example/new"


def test_what_is_forgotten_of_people_is_not_left_in_the_file(store: Path) -> None:
    set_object(store, "ark:12345/x1", {"what": "Other"}, by="Nemo Editor", now=1.0)
    assert b"Nemo Editor" in store.read_bytes()
    forget(store, 2.0)
    assert b"Nemo Editor" not in store.read_bytes()


# ---- imports beside them


def test_an_import_keeps_what_a_command_changed_since_the_last_one(store: Path) -> None:
    set_object(store, "ark:12345/x1", {"url": "https://new.example/1"})
    set_object(store, "ark:12345/y", {"url": "https://new.example/y"})
    for _ in "it is not forgotten by the next":
        done = again(store, *ROWS[:4], "ark:12345/x4,https://moved.example/4,,\n")
        assert done.kept == ("ark:12345/x1", "ark:12345/y")
        assert row(store, "ark:12345/x1")[0] == "https://new.example/1"
        assert row(store, "ark:12345/x4")[0] == "https://moved.example/4", "the rest is imported"
    agreed = [
        ROWS[0],
        "ark:12345/x1,https://new.example/1,Thing 1,\n",
        *ROWS[2:],
        "ark:12345/y,https://new.example/y,,\n",
    ]
    assert again(store, *agreed).kept == ()
    assert again(store, *ROWS, agreed[-1]).kept == (), "the last import had the change"
    assert row(store, "ark:12345/x1")[0] == "https://h.example/1"


def test_an_import_overwrites_what_a_command_changed_if_it_is_told_to(store: Path) -> None:
    set_object(store, "ark:12345/x1", {"url": "https://new.example/1"})
    set_object(store, "ark:12345/y", {"url": "https://new.example/y"})
    with pytest.raises(RefusedError, match="1 of 6 registered ARKs are missing: ark:12345/y"):
        again(store, *ROWS, terms=Terms(overwrite=True))
    done = again(store, *ROWS, terms=Terms(overwrite=True, missing=Missing.REMOVE))
    assert (done.kept, done.changed, done.removed, done.total) == ((), 1, 1, 5)
    assert row(store, "ark:12345/x1")[0] == "https://h.example/1"


def test_the_number_of_a_change_says_what_a_file_is_based_on(store: Path) -> None:
    changed = set_object(store, "ark:12345/x1", {"url": "https://new.example/1"})
    assert again(store, *ROWS, terms=Terms(base=changed.number)).kept == (), "it knew of the change"
    again(store, *ROWS)
    number = set_object(store, "ark:12345/x1", {"url": "https://newer.example/1"}).number
    assert again(store, *ROWS, terms=Terms(base=number - 1)).kept == ("ark:12345/x1",)
    column = [f"{each.rstrip()},{number}\n" for each in ROWS]
    head = HEAD.replace("note", "note,change")
    older = [column[0], column[1].replace(f",{number}\n", ",1\n"), *column[2:]]
    assert again(store, *older, head=head).kept == ("ark:12345/x1",), "each row may have its own"
    assert again(store, *column, head=head).kept == ()
    assert row(store, "ark:12345/x1")[0] == "https://h.example/1"
    with pytest.raises(pytest.fail.Exception, match="change is 'x', not a number"):
        again(store, "ark:12345/x1,https://h.example/,,,x\n", head=head)


def test_each_row_has_the_number_of_its_last_change(store: Path) -> None:
    set_object(store, "ark:12345/x1", {"what": "Other"})
    again(
        store,
        *ROWS[:1],
        ROWS[1].replace("Thing 1", "Other"),
        *ROWS[2:4],
        "ark:12345/x4,https://m.example/,,\n",
        "ark:12345/y,https://y.example/,,\n",
    )
    found = {one.ark[-2:]: number for one, number in store_of(store).every_change()}
    assert found == {"x0": 1, "x1": 2, "x2": 1, "x3": 1, "x4": 3, "/y": 3}


def test_an_import_without_these_columns_keeps_why_an_object_is_gone(store: Path) -> None:
    gone = withdraw(store, "ark:12345/x1", reason="a test", authority="The Library", replaced_by="ark:12345/x2").new
    head = "ark,url,status,reason,what,note\n"
    rows = [each.replace(",Thing", ",,,Thing") for each in ROWS]
    rows[1] = "ark:12345/x1,,410,a test,Thing 1,\n"
    assert again(store, *rows, head=head).kept == ()
    assert store_of(store).get("ark:12345/x1") == gone


def test_an_import_traces_what_it_changes(store: Path) -> None:
    terms = Terms(by="alice", note="dump.csv", missing=Missing.REMOVE)
    again(store, *ROWS[1:4], "ark:12345/x4,https://moved.example/4,,\n", terms=terms)
    entries = list(history(store))[1:]
    assert [(each.who, each.action, each.ark, each.note) for each in entries] == [
        ("alice", "import", "ark:12345/x4", ""),
        ("alice", "remove", "ark:12345/x0", ""),
        ("alice", "import", "", "dump.csv: 0 added, 1 removed, 0 withdrawn, 1 changed"),
    ]
    assert entries[1].old["url"] == "https://h.example/0"
    assert store_of(store).naans == {"12345": 4}


# ---- the file


def test_the_file_keeps_its_owner_mode_and_place(store: Path) -> None:
    store.chmod(0o640)
    before = store.stat()
    set_object(store, "ark:12345/x1", {"what": "Other"})
    after = store.stat()
    assert (after.st_ino, after.st_uid, stat.S_IMODE(after.st_mode)) == (before.st_ino, before.st_uid, 0o640)
    if os.getuid() == 0:
        os.chown(store, 12345, 12345)
    owner = store.stat().st_uid
    again(store, *ROWS)
    assert (store.stat().st_uid, stat.S_IMODE(store.stat().st_mode)) == (owner, 0o640)
    assert sorted(each.name for each in store.parent.iterdir()) == ["again.csv", "own.sqlite", "own.sqlite.csv"]


def test_a_csv_and_another_database_are_read_only(store: Path, tmp_path: Path) -> None:
    plain = csv_file(tmp_path / "plain.csv", HEAD)
    for command in (lambda: set_object(plain, "ark:12345/x1", {}), lambda: shown(plain, "ark:12345/x1")):
        with pytest.raises(ConfigError, match=r"maptr redirects import plain\.csv -o NEW"):
            command()
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA user_version = 1")
    with pytest.raises(ConfigError, match="is not a store of this maptr"):
        set_object(store, "ark:12345/x1", {"what": "Other"})
    with pytest.raises(ConfigError, match="No such file"):
        set_object(tmp_path / "gone.sqlite", "ark:12345/x1", {})


def test_a_full_disk_changes_nothing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect, before = sqlite3.connect, [*store_of(store).every()]

    def full(*arguments: Any, **options: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(*arguments, **options)
        made.execute("PRAGMA max_page_count = 1")  # SQLite takes what the file has
        return made

    monkeypatch.setattr(sqlite3, "connect", full)

    def fill() -> None:
        for number in range(1000):
            set_object(store, f"ark:12345/y{number}", {"url": "https://h.example/", "what": "x" * 10_000})

    with pytest.raises(ConfigError, match="full"):
        fill()
    monkeypatch.undo()
    assert [*store_of(store).every()][: len(before)] == before
    assert set_object(store, "ark:12345/x1", {"what": "Other"}).new.what == "Other"


def test_a_store_that_another_writer_has_is_waited_for_and_named(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(sqlite3.connect(store, isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        end = threading.Timer(0.3, writer.execute, ["ROLLBACK"])
        end.start()
        assert set_object(store, "ark:12345/x1", {"what": "Other"}).new.what == "Other"
        end.join()
        writer.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(changes, "PATIENCE", 0.0)
        with pytest.raises(ConfigError, match="another program writes it"):
            set_object(store, "ark:12345/x1", {"what": "Third"})
        assert row(store, "ark:12345/x1")[2] == "Other", "it is read meanwhile"
    with locked_store(store, 0.0), pytest.raises(ConfigError, match="another command writes it"):
        set_object(store, "ark:12345/x1", {"what": "Third"})


def test_no_change_is_lost_beside_imports_and_others(store: Path) -> None:
    """Each import replaces the file while the others wait for it."""
    done: list[Changed] = []

    def change(name: str) -> None:
        done.extend(set_object(store, f"ark:12345/{name}{n}", {"url": "https://h.example/"}) for n in range(25))

    threads = [threading.Thread(target=change, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    source = csv_file(store.with_name("again.csv"), HEAD + "".join(ROWS))
    for _ in range(5):
        put(source, store)
    for thread in threads:
        thread.join(PATIENCE)
    assert len({each.number for each in done}) == 75, "each has a number of its own"
    assert store_of(store).naans == {"12345": 80}
    assert len([*store_of(store).every()]) == 80
    assert not [*store_of(store).faults()]


KILLED = """
import os, sqlite3, sys
from pathlib import Path
path = Path(sys.argv[1])
connection = sqlite3.connect(path, isolation_level=None)
connection.execute("PRAGMA cache_spill = 1")
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE redirects SET url = 'https://half.example/' || hex(randomblob(500))")
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def interrupted(tmp_path: Path) -> tuple[Path, OwnObjects]:
    """A store whose writer was killed while it wrote, and the objects of a gateway that reads it."""
    many = "".join(f"ark:12345/x{n},https://h.example/{n},Thing {n},{'x' * 900}\n" for n in range(500))
    store = imported(tmp_path / "own.sqlite", HEAD + many)
    serving = read(store).objects
    subprocess.run([sys.executable, "-c", KILLED, str(store)], check=False, timeout=PATIENCE)
    assert store.with_name("own.sqlite-journal").exists()
    return store, serving


def test_a_gateway_that_may_write_rolls_back_what_a_killed_writer_left(interrupted: tuple[Path, OwnObjects]) -> None:
    store, serving = interrupted
    with pytest.raises(Unreadable):
        serving.get("ark:12345/x1")
    assert serving.trouble() == ""
    assert serving.get("ark:12345/x1") == store_of(store).get("ark:12345/x1")
    assert row(store, "ark:12345/x1")[0] == "https://h.example/1"
    assert not store.with_name("own.sqlite-journal").exists()


def test_the_next_command_rolls_back_what_a_killed_writer_left(
    interrupted: tuple[Path, OwnObjects], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway may not write the file."""
    store, serving = interrupted

    def forbidden(path: Path) -> None:
        raise sqlite3.OperationalError

    with monkeypatch.context() as patched:
        patched.setattr(stores, "roll_back", forbidden)
        patched.setattr(stores, "LOCKED_LONG", 0.0)
        assert serving.trouble() == INTERRUPTED
    assert shown(store, "ark:12345/x1") is not None
    assert serving.trouble() == ""
    assert serving.get("ark:12345/x1") is not None


def test_numbers_grow_and_are_never_given_twice(store: Path) -> None:
    numbers = [set_object(store, "ark:12345/x1", {"what": text}).number for text in "abc"]
    again(store, *ROWS, terms=replace(Terms(), overwrite=True))
    numbers.append(set_object(store, "ark:12345/x1", {"what": "d"}).number)
    assert numbers == [2, 3, 4, 6]
