"""``maptr redirects``: check, import and export."""

from __future__ import annotations

import csv
import json
import os
import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from maptr.gateway.redirects.store import open_store
from tests.support.command_line import MAPTR, home, run
from tests.support.namespaces import environment
from tests.support.waiting import until

__all__ = ["home"]
pytestmark = pytest.mark.usefixtures("home")

GOOD = (
    "ark,url,status,reason,who,what,when,suffix,shelf\n"
    "ark:/12345/x-1,https://o.example.org/1,,,Me,A thing,1999,,top\n"
    "ark:12345/x2,,410,withdrawn,Me,Gone,1998,no,\n"
)
BAD = "ark,url,status\nx,y\nark:12345/x1,https://o.example.org/1\nark:12345/x1,https://o.example.org/2\n"


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_check_names_every_error(tmp_path: Path) -> None:
    file = write(tmp_path / "r.csv", BAD + "ark:12345/x3,https://o.example.org/3,301\n")
    done = run("redirects", "check", file, code=1)
    assert done.stdout.splitlines() == [
        f"{file}:2: no ark: label in 'x'",
        f"{file}:4: a second redirect of ark:12345/x1: the first one, in line 3, leads to https://o.example.org/1",
        f"{file}:5: ark:12345/x3: the status 301 is not one of 302, 303, 307, 410",
    ]
    assert done.stderr == "1 redirect, 3 errors\n"
    document = json.loads(run("redirects", "check", file, "--json", code=1).stdout)
    assert (document["redirects"], [error["line"] for error in document["errors"]]) == (1, [2, 4, 5])


def test_check_and_import_name_the_columns_that_are_only_kept(tmp_path: Path) -> None:
    """A heading may be translated or mistyped."""
    file = write(tmp_path / "r.csv", "ARK;URL;Statut;;Raison\nark:12345/x1;https://o.example.org/1;303;;\n")
    database = str(tmp_path / "r.sqlite")
    named = "extra columns, kept, and not public: Statut, Raison\n"
    assert run("redirects", "check", file, code=0).stderr == f"{named}1 redirect, 0 errors\n"
    assert run("redirects", "import", file, "-o", database, code=0).stderr == f"{named}{database}: 1 redirect\n"
    assert run("redirects", "import", file, "-o", database, "--quiet", code=0).output == ""
    assert run("redirects", "check", database, code=0).stderr == f"{named}1 redirect, 0 errors\n"
    assert json.loads(run("redirects", "check", file, "--json").stdout)["unused_columns"] == ["Statut", "Raison"]
    plain = write(tmp_path / "plain.csv", "ark,url,WHO\nark:12345/x1,https://o.example.org/1,Me\n")
    assert run("redirects", "check", plain, code=0).stderr == "1 redirect, 0 errors\n"


@pytest.mark.parametrize("text", ["ark,target\n", 'ark,url\n"', "\xff"])
def test_a_file_that_cannot_be_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_bytes(text.encode("latin-1"))
    for command in (["check"], ["export"], ["import", "-o", str(tmp_path / "o.sqlite")]):
        done = run("redirects", command[0], str(path), *command[1:], code=8)
        assert re.match(f"maptr: {re.escape(str(path))}:[12]: ", done.stderr)
    assert not (tmp_path / "o.sqlite").exists()
    assert not list(tmp_path.glob(".*")), "nothing is left beside it"
    assert "No such file" in run("redirects", "check", str(tmp_path / "gone"), code=8).stderr


def test_import_and_export_lose_nothing(tmp_path: Path) -> None:
    file, database = write(tmp_path / "r.csv", GOOD), str(tmp_path / "r.sqlite")
    named = "extra columns, kept, and not public: shelf"
    assert run("redirects", "import", file, "-o", database).stderr == f"{named}\n{database}: 2 redirects\n"
    text = run("redirects", "export", database).stdout
    unnumbered = "".join(f"{line.rpartition(',')[0]}\n" for line in text.splitlines())
    assert unnumbered == run("redirects", "export", file).stdout
    first, gone = csv.DictReader(text.splitlines())
    assert first["shelf"] == "top"
    assert (first["ark"], first["status"], first["suffix"]) == ("ark:12345/x1", "302", "yes")
    assert (gone["url"], gone["status"], gone["reason"], gone["suffix"]) == ("", "410", "withdrawn", "no")
    again = write(tmp_path / "again.csv", text)
    run("redirects", "import", again, "-o", str(tmp_path / "again.sqlite"))
    assert run("redirects", "export", str(tmp_path / "again.sqlite")).stdout == text
    (tmp_path / "copy.sqlite").symlink_to("again.sqlite")
    run("redirects", "import", database, "-o", str(tmp_path / "copy.sqlite"))
    assert (tmp_path / "copy.sqlite").is_symlink(), "the file behind a link is replaced, as by other commands"
    assert run("redirects", "export", str(tmp_path / "copy.sqlite")).stdout == text


def test_a_line_of_a_cell_that_ends_as_on_an_old_mac_is_exported_as_it_is(tmp_path: Path) -> None:
    file = write(tmp_path / "r.csv", 'ark,url,what\nark:12345/x1,https://o.example.org/1,"A\rthing"\n')
    again = tmp_path / "again.csv"
    run("redirects", "export", file, "-o", str(again), code=0)
    assert b'"A\rthing"' in again.read_bytes()
    run("redirects", "check", str(again), code=0)


def test_an_imported_database_is_on_disk_before_it_replaces_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, flushed = tmp_path / "r.sqlite", []

    def fsync(handle: int) -> None:
        flushed.append((Path(f"/proc/self/fd/{handle}").readlink().name, database.exists()))

    monkeypatch.setattr("os.fsync", fsync)
    run("redirects", "import", write(tmp_path / "r.csv", GOOD), "-o", str(database))
    assert flushed == [("r.sqlite", False), (tmp_path.name, True)]


def test_a_bad_row_keeps_the_old_database(tmp_path: Path) -> None:
    database = tmp_path / "r.sqlite"
    run("redirects", "import", write(tmp_path / "r.csv", GOOD), "-o", str(database))
    before = database.read_bytes()
    done = run("redirects", "import", write(tmp_path / "b.csv", BAD), "-o", str(database), code=1)
    assert done.stderr.startswith(f"{tmp_path}/b.csv:2: no ark: label in 'x'\n")
    assert done.stderr.endswith("maptr: 2 errors; nothing is written\n")
    assert database.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (GOOD, (0, 0, 0)),
        (GOOD.replace("top", "bottom"), (0, 0, 1)),
        (GOOD.replace("withdrawn", "lost").replace("/1,", "/2,"), (0, 0, 2)),
        (GOOD.replace("x-1", "x3") + "ark:12345/x1,https://o.example.org/1,,,Me,A thing,1999,,top\n", (1, 0, 0)),
        (GOOD + "ark:12345/x2-3,https://o.example.org/3,,,,,,,\n", (1, 0, 0)),
    ],
)
def test_import_counts_what_changed(text: str, changes: tuple[int, int, int], tmp_path: Path) -> None:
    """A job that runs each night has no other way to show that ARKs were lost, which should never be."""
    database = str(tmp_path / "r.sqlite")
    run("redirects", "import", write(tmp_path / "old.csv", GOOD), "-o", database)
    last = run("redirects", "import", write(tmp_path / "new.csv", text), "-o", database, code=0).stderr.splitlines()[-1]
    assert last.endswith("({} added, {} removed, {} changed)".format(*changes))


def test_an_import_that_is_ended_leaves_nothing(tmp_path: Path) -> None:
    """Perhaps by ``timeout`` in a cron job: the store that is begun may be large."""
    file, store = write(tmp_path / "r.csv", GOOD), tmp_path / "r.sqlite"
    run("redirects", "import", file, "-o", str(store), code=0)
    before, command = store.read_bytes(), [*MAPTR, "redirects", "import", file, "-o", str(store)]
    with closing(sqlite3.connect(store, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as made:
            until(lambda: list(tmp_path.glob(".r.sqlite.*")), "an import that has begun")
            made.terminate()
            assert made.communicate()[1] == "maptr: interrupted: nothing was changed; run it again\n"
    assert (made.returncode, list(tmp_path.glob("*r.sqlite*")), store.read_bytes()) == (130, [store], before)


def many(*numbers: int) -> str:
    return "ark,url\n" + "".join(f"ark:12345/x{n},https://o.example.org/{n}\n" for n in numbers)


def test_an_import_removes_nothing_unless_it_is_told_to(tmp_path: Path) -> None:
    database = str(tmp_path / "r.sqlite")
    run("redirects", "import", write(tmp_path / "many.csv", many(*range(10))), "-o", database)
    few = write(tmp_path / "few.csv", many(*range(8)))
    before = Path(database).read_bytes()
    said = "2 of 10 registered ARKs are missing: ark:12345/x8, ark:12345/x9 (--remove removes them, "
    for force in ((), ("--force",)):
        refused = run("redirects", "import", few, "-o", database, *force, code=1).stderr
        assert refused == f"maptr: {database}: {said}--withdraw-missing makes them 410)\n"
    assert Path(database).read_bytes() == before
    removed = run("redirects", "import", few, "-o", database, "--remove", code=0).stderr
    assert removed == f"{database}: 8 redirects (0 added, 2 removed, 0 changed)\n"
    fewer = write(tmp_path / "fewer.csv", many(*range(6)))
    done = run("redirects", "import", fewer, "-o", database, "--withdraw-missing", code=0).stderr
    assert done == f"{database}: 8 redirects (0 added, 0 removed, 2 withdrawn, 0 changed)\n"
    gone = open_store(Path(database)).get("ark:12345/x7")
    assert gone is not None
    assert (gone.is_gone, bool(gone.withdrawn)) == (True, True)
    run("redirects", "restore", "ark:12345/x7", "--store", database, code=0, said="https://o.example.org/7")
    run("redirects", "import", few, "-o", database, "--remove", "--withdraw-missing", code=2)


@pytest.mark.parametrize("option", ["--remove", "--withdraw-missing"])
def test_too_great_a_loss_is_refused_unless_forced(option: str, tmp_path: Path) -> None:
    database = str(tmp_path / "r.sqlite")
    run("redirects", "import", write(tmp_path / "many.csv", many(*range(10))), "-o", database)
    few = write(tmp_path / "few.csv", many(*range(6)))
    refused = run("redirects", "import", few, "-o", database, option, code=1).stderr
    assert refused.startswith(f"maptr: {database}: more than 30% would be lost: 4 of 10 registered ARKs are missing")
    assert "(--force overrides)" in refused
    run("redirects", "import", few, "-o", database, option, "--force", code=0)


@pytest.mark.parametrize("last", ["ark:12345/x2,https://o.example.org/2,a", "ark:12345/x2,https://o.exa"])
def test_a_last_line_without_an_end_is_an_error(last: str, tmp_path: Path) -> None:
    """The file may have been cut. One that is also too short was cut."""
    file = write(tmp_path / "r.csv", f"ark,url,what\nark:12345/x1,https://o.example.org/1\n{last}")
    database = str(tmp_path / "r.sqlite")
    for command in (["check", file], ["export", file], ["import", file, "-o", database]):
        run("redirects", *command, code=8, said=f"{file}:3: the last line has no end")
    is_whole = last.endswith(",a")
    for command in (["check", file], ["export", file], ["import", file, "-o", database]):
        run("redirects", *command, "--unended", code=0 if is_whole else 8)


def test_columns_are_public_only_if_they_are_named(tmp_path: Path) -> None:
    file, database = write(tmp_path / "r.csv", GOOD.replace("shelf", "=shelf")), str(tmp_path / "r.sqlite")

    def shown(*words: str, code: int = 0) -> tuple[str, object]:
        said = run("redirects", "import", file, "-o", database, *words, code=code).stderr
        one = open_store(Path(database)).get("ark:12345/x1")
        return said, one and dict(one.more)

    kept = f"extra columns, kept, and not public: =shelf\n{database}: 2 redirects"
    assert shown() == (f"{kept}\n", {})
    public = shown("--public", "=shelf")
    assert public[0].startswith("extra columns, public in descriptions as JSON: =shelf\n")
    assert public[1] == {"=shelf": "top"}
    assert shown()[1] == {"=shelf": "top"}, "it is kept in the store"
    assert shown("--private", "=shelf")[1] == {}
    for wrong in ("shelf", "who"):
        assert f"{wrong} is not an extra column: there are =shelf" in shown("--public", wrong, code=1)[0]
    assert ",'=shelf,change\n" in run("redirects", "export", database).stdout, "no formula"


def test_what_a_killed_import_left_is_removed_by_the_next(tmp_path: Path) -> None:
    file, database = write(tmp_path / "r.csv", GOOD), tmp_path / "r.sqlite"
    left, other = tmp_path / ".r.sqlite.0123abcd", tmp_path / ".r.sqlite.backup"
    for folder in (left, other):
        folder.mkdir()
        (folder / "r.sqlite").write_bytes(b"x")
    run("redirects", "import", file, "-o", str(database), code=0)
    assert sorted(each.name for each in tmp_path.glob(".*")) == [".r.sqlite.backup"]


def test_a_column_that_others_name_otherwise_is_suggested(tmp_path: Path) -> None:
    for header, said in (
        ("ARK ID,New URL", "name 'ARK ID' ark"),
        ("ark,New URL", "name 'New URL' url"),
        ("_id,_target", "name '_id' ark"),
        ("ark,_target", "name '_target' url"),
    ):
        run("redirects", "check", write(tmp_path / "r.csv", f"{header}\nx,y\n"), code=8, said=said)


def test_an_input_or_a_foreign_file_is_never_lost(tmp_path: Path) -> None:
    file, database, other = write(tmp_path / "r.csv", GOOD), str(tmp_path / "r.sqlite"), tmp_path / "other.sqlite"
    run("redirects", "import", file, "-o", database)
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE redirects (ark, url)")
    before, same = other.read_bytes(), "input and output are the same file"
    run("redirects", "import", file, "-o", other, code=2, said="is not a store of this maptr")
    for words, said in (
        (["import", database, "-o", database], same),
        (["import", file, "-o", file, "--overwrite"], same),
        (["export", file, "-o", file, "--overwrite"], same),
        (["export", database, "-o", file], "maptr may not have written it"),
        (["import", file, "-o", "-"], "the store cannot be standard output"),
    ):
        run("redirects", *words, code=2, said=said)
    assert other.read_bytes() == before
    run("redirects", "import", file, "-o", other, "--overwrite")
    assert len(open_store(other)) == 2
    table = write(tmp_path / "natab", "12345:\n    ark.example.org\n")
    run("table", "export", table, "--format", "nginx", "--redirects", file, "-o", file, "--overwrite", code=2)
    assert Path(file).read_text() == GOOD
    run("redirects", "export", database, "-o", file, "--overwrite", code=0)
    assert Path(file).read_text() == run("redirects", "export", database).stdout


def test_a_pipe_is_no_store(tmp_path: Path) -> None:
    file, pipe = write(tmp_path / "r.csv", GOOD), tmp_path / "pipe"
    os.mkfifo(pipe)
    for overwrite in ((), ("--overwrite",)):
        run("redirects", "import", file, "-o", str(pipe), *overwrite, code=2, said="is not a regular file")
    words = ("set", "ark:12345/x1", "https://o.example.org/", "--store", str(pipe))
    run("redirects", *words, code=8, said="Is not a regular file")
    assert pipe.is_fifo()


def test_a_text_that_a_spreadsheet_would_take_for_a_formula_comes_back(tmp_path: Path) -> None:
    texts = ["-0044", "=1+1", "'=1+1", "''-x", "'tis", "@home", "+1", "'"]
    rows = "".join(f"ark:12345/x{n},https://o.example.org/{n},{text}\n" for n, text in enumerate(texts))
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as made, made:
        made.execute('CREATE TABLE redirects (ark, url, "when")')
        made.executemany("INSERT INTO redirects VALUES (?, ?, ?)", (row.split(",") for row in rows.splitlines()))
    written = write(
        tmp_path / "out.csv", run("redirects", "export", str(tmp_path / "other.sqlite"), said=",'=1+1,").stdout
    )
    again = tmp_path / "again.sqlite"
    run("redirects", "import", written, "-o", str(again))
    assert [one.when for one in open_store(again).every()] == texts
