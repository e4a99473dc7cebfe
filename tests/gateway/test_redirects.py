"""The file of single redirects: its formats, its errors, and what remains in use when it is bad."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import threading
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from maptr.cache.disk import Disk
from maptr.errors import ConfigError
from maptr.files import LOOK_EVERY, TRY_AGAIN, Followed
from maptr.gateway.message import Unreadable
from maptr.gateway.objects import OwnObject, Redirects
from maptr.gateway.redirects import following
from maptr.gateway.redirects.following import KeptStores, check_loss, follow
from maptr.gateway.redirects.importing import Imported, Staged, Terms
from maptr.gateway.redirects.rows import APPLICATION
from maptr.gateway.redirects.store import ObjectStore
from maptr.gateway.site import Site
from maptr.registry.followed_file import TableState
from tests.support.caching import Clock
from tests.support.command_line import run
from tests.support.http_gateway import TABLE, HttpClient, gateway
from tests.support.own_objects import GOOD, csv_file, imported, read, store_of

MANY = "".join(f"ark:12345/y{n},https://h.example/{n}\n" for n in range(10))
ONE = [OwnObject("ark:12345/x5", "https://h.example/5")]


def rows(found: Redirects) -> list[OwnObject]:
    assert isinstance(found.objects, ObjectStore)
    return list(found.objects.every())


def database(path: Path, *rows: tuple[object, ...], columns: str = "ark, url, status") -> Path:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE redirects ({columns})")
        connection.executemany(f"INSERT INTO redirects VALUES ({', '.join('?' * len(columns.split(',')))})", rows)
    return path


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "\ufeffark,url\r\nhttps://n2t.net/ark:/12345/x-5,https://h.example/5\r\n",
        "ark,url,status\nark:12345/x5,https://h.example/5,\n",
        "ark,url,who,what\nark:12345/x5,https://h.example/5\n\n,,,\n",
        "ark,url\nark:12345/x5,https://h.example/5,,\n",
        "\ufeffark;url;what\r\nark:12345/x5;https://h.example/5;\r\n",
        "ark\turl\twhat\nark:12345/x5\thttps://h.example/5\t\n",
        "ARK,URL,What\nark:12345/x5,https://h.example/5,\n",
        "ark, url, suffix \nark:12345/x5, https://h.example/5 , t\n",
    ],
)
def test_redirects_are_read_from_csv(text: str, tmp_path: Path) -> None:
    assert rows(read(csv_file(tmp_path / "redirects", text))) == ONE


def test_any_other_column_is_kept(tmp_path: Path) -> None:
    text = 'note,url,ark,status\n"a\nb","https://h.example/5",ark:12345/x5,302\n'
    assert [one.more for one in rows(read(csv_file(tmp_path / "redirects", text)))] == [{"note": "a\nb"}]


def taken(source: Path) -> tuple[list[OwnObject], list[str]]:
    """The rows that an import takes of a database, and the errors of the others."""
    bad: list[str] = []
    made = source.with_name("taken.sqlite")
    made.unlink(missing_ok=True)
    with Staged(source, made, lambda error: bad.append(str(error))) as staged:
        staged.put(Terms())
    return list(store_of(made).every()), bad


def test_any_database_with_a_table_redirects_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "a file?#%.db"
    assert taken(database(path, ("ark:12345/x5", "https://h.example/5", None))) == (ONE, [])
    assert taken(database(path, ("ark:12345/x5", "https://h.example/5"), columns="ARK, Url")) == (ONE, [])
    (other,), _ = taken(database(path, ("ark:/12345/x-5", "https://h.example/5", 303)))
    assert (other.ark, other.status) == ("ark:12345/x5", 303)


def test_a_gateway_reads_no_other_database_than_a_store(tmp_path: Path) -> None:
    path = database(tmp_path / "old.db", ("ark:12345/x5", "https://h.example/5", None))
    said = "is not a store of this maptr: maptr redirects import old.db -o NEW makes one of it"
    with pytest.raises(ConfigError, match=said):
        read(path)
    made = imported(tmp_path / "own.sqlite")
    with closing(sqlite3.connect(made)) as connection:
        connection.execute("PRAGMA user_version = 3")
    with pytest.raises(ConfigError, match="is a store of a newer maptr: its version is 3, and this maptr knows 2"):
        read(made)


def test_a_store_of_the_version_before_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE redirects (url, who, ark TEXT PRIMARY KEY, status INTEGER, suffix INTEGER, more)"
        )
        connection.execute("CREATE TABLE columns (name)")
        connection.executemany("INSERT INTO columns VALUES (?)", [("ark",), ("url",), ("who",), ("shelf",)])
        row = ("https://h.example/5", "Me", "ark:12345/x5", 303, 0, '{"shelf": "top"}')
        connection.execute("INSERT INTO redirects VALUES (?, ?, ?, ?, ?, ?)", row)
        connection.executescript(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = 1;")
    (one,), bad = taken(path)
    assert one == OwnObject("ark:12345/x5", "https://h.example/5", 303, who="Me", suffix=False, more={"shelf": "top"})
    assert not bad


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ark,target\n", r"redirects:1: the first line has no column url, but 'ark, target'"),
        ("", r"redirects:1: the first line has no column ark, but ''"),
        ("ark,url\rark:12345/x,https://h.example/\r", r"redirects:1: its lines end with CR alone"),
        ("ark,url,who,url\n", r"redirects:1: the first line has two columns url"),
        ('ark,url\nark:12345/x,"https://h.example/\n' + "x,y\n" * 99, r"redirects:2: .* may not be closed"),
        ('ark,url\nark:12345/x,"https://h.example/"y\n', r"redirects:2: ',' expected"),
        ('ark,url\nark:12345/x,"https://h.example/\n', r"redirects:2: .* may not be closed"),
        ("ark,url\nark:12345/x,https://h.example/\n\udcff\n", r"redirects:3: not UTF-8: save it as UTF-8 \(Excel"),
        ("\udcff\udcfea\0r\0k\0,\0", r"redirects:1: not UTF-8: save"),
        ("a\0r\0k\0,\0u\0r\0l\0\n\0", r"redirects:1: not UTF-8: save"),
        ("ark;url;pr\udce9nom\n", r"redirects:1: not UTF-8: save"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_with_its_line(text: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=error):
        read(csv_file(tmp_path / "redirects", text))


BAD = {
    "ark,url\n\nx,https://h.example/\n": "3: no ark: label",
    "ark,url\n,https://h.example/\n": "2: the ark is missing",
    "ark,url\nark:12345,https://h.example/\n": "2: ark:12345 has no name",
    "ark,url\nark:12345/x?info,https://h.example/\n": "2: ark:12345/x has '?info' after it",
    "ark,url\nark:12345/x,http://127.0.0.1/\n": "2: ark:12345/x: 127.0.0.1 is not a public host",
    "ark,url\nark:12345/x,javascript:alert(1)\n": "2: ark:12345/x: not an absolute URL",
    "ark,url\nark:12345/x,https://u@h.example/\n": "2: ark:12345/x: user information",
    "ark,url\nark:12345/x\n": "2: ark:12345/x has no URL, which only an object that is gone (410) lacks",
    'ark,url\nark:12345/x,"https://h.example/\r\nX: y"\n': "3: ark:12345/x: the character U+000D",
    "ark,url\nark:12345/x,https://h.example/é x\n": (
        "2: ark:12345/x: the character U+00E9 is not allowed in a URL, except as %C3%A9"
    ),
    "ark,url,status\nark:12345/x,https://h.example/,301\n": (
        "2: ark:12345/x: the status 301 is not one of 302, 303, 307, 410"
    ),
    "ark,url,status\nark:12345/x,https://h.example/,410\n": "2: ark:12345/x is gone (410), and has the URL",
    "ark,url\nark:12345/x,https://h.example/,a\n": "2: 3 values for 2 columns: put a text with ',' in quotation marks",
    "ark,url,suffix\nark:12345/x,https://h.example/,maybe\n": "2: ark:12345/x: suffix is 'maybe', not yes or no",
    "ark,url\nark:12345/x,https://h.example/\nark:12345/x-,https://h.example/\n": (
        "3: a second redirect of ark:12345/x: the first one, in line 2, leads to https://h.example/"
    ),
    "ark,url,status\nark:12345/x,,410\nark:12345/x,https://h.example/,\n": (
        "3: a second redirect of ark:12345/x: the first one, in line 2, is gone"
    ),
}


@pytest.mark.parametrize(("text", "error"), BAD.items())
def test_a_bad_row_is_left_out_and_named(text: str, error: str, tmp_path: Path) -> None:
    path = csv_file(tmp_path / "redirects", f"{text}{GOOD.partition(chr(10))[2]}")
    found = read(path)
    assert "ark:12345/x5" in [one.ark for one in rows(found)]
    assert found.left_out == 1
    (bad,) = found.bad
    assert str(bad).startswith(f"{path}:{error}")


def test_the_log_names_a_few_of_many_bad_rows_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, path = Clock(), csv_file(tmp_path / "redirects", "ark,url\n" + "x,y\n" * 50)
    file = follow(path, allow_private=False, clock=clock)
    first = [record.getMessage() for record in caplog.records]
    assert first[0] == f"{path}:2: no ark: label in 'x'; this row is left out"
    assert first[10:] == [f"{path}: 50 rows are left out; maptr redirects check names all"]
    for changed, count in (("", 11), (GOOD.partition("\n")[2], 11), ("x,y\n", 22)):
        replaced(path, path.read_text() + changed)
        clock.now += LOOK_EVERY
        file.current()
        assert len([record for record in caplog.records if record.levelname == "ERROR"]) == count


def test_a_bad_row_forges_no_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    evil = 'ark,url,status\nark:12345/x1,https://h.example/,"3\x1b[2J\u202e\nERROR forged"\n'
    found = follow(csv_file(tmp_path / "redirects.csv", evil), allow_private=False, clock=Clock()).value
    assert found.bad
    for text in (*caplog.messages, *map(str, found.bad), *(error.reason for error in found.bad)):
        assert text.isprintable()
    shown = run("redirects", "check", str(tmp_path / "redirects.csv"), code=1)
    assert not [line for line in (shown.stdout + shown.stderr).split("\n") if not line.isprintable()]
    assert "\nERROR" not in shown.stdout + shown.stderr


def test_the_size_of_lines_and_columns_is_limited(tmp_path: Path) -> None:
    many = ",".join(f"c{number}" for number in range(100))
    path = csv_file(tmp_path / "redirects", f"ark,url,{many}\n")
    with pytest.raises(ConfigError, match=r"redirects:1: 102 columns, 100 at most"):
        read(path)
    with pytest.raises(ConfigError, match=r"redirects:2: 101 columns"):
        read(csv_file(path, f"ark,url\nark:12345/x,https://h.example/{',' * 99}\n"))
    with pytest.raises(ConfigError, match=r"redirects:3: a line of more than 65536"):
        read(csv_file(path, f"ark,url\nark:12345/x,https://h.example/\n{'x' * 70_000}"))
    short = ("ark:12345/x5", "https://h.example/5", None)
    found, bad = taken(database(path, short, ("ark:12345/x6", "h" * 70_000, None)))
    assert (found, bad) == (ONE, [f"{path}:2: a value of more than 65536 characters"])
    with pytest.raises(ConfigError, match=r"redirects:2: string or blob too big"):
        taken(database(path, short, ("ark:12345/x6", "h" * 17_000_000, None)))
    with pytest.raises(ConfigError, match=r"redirects: 102 columns"):
        taken(database(path, columns=f"ark, url, {many}"))


def test_a_row_that_a_look_up_could_not_read_is_a_bad_one(tmp_path: Path) -> None:
    """A cell of a CSV may have many lines."""
    long = "x\n" * 40_000
    path = csv_file(tmp_path / "long.csv", f'ark,url,what\nark:12345/x6,https://h.example/,"{long}"\n{GOOD[8:-1]},a\n')
    found, bad = taken(path)
    assert [one.ark for one in found] == ["ark:12345/x5"]
    assert bad == [f"{path}:40002: ark:12345/x6: a row of more than 64512 bytes"]


@pytest.mark.parametrize(
    "made",
    [
        "CREATE VIEW redirects AS SELECT 'ark:12345/x' AS ark, 'https://h.example/' AS url",
        "CREATE VIRTUAL TABLE redirects USING fts5(ark, url)",
    ],
)
def test_only_a_table_of_sqlite_is_read(made: str, tmp_path: Path) -> None:
    path = tmp_path / "redirects"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(made)
    with pytest.raises(ConfigError, match="redirects: redirects is not a table"):
        taken(path)


@pytest.mark.parametrize("page", [0, 2])
def test_the_text_of_a_schema_does_not_hide_a_virtual_table(page: int, tmp_path: Path) -> None:
    """It belongs to the author of the file, as does the page that it names."""
    path = tmp_path / "redirects"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE VIRTUAL TABLE redirects USING fts5(ark, url)")
        connection.execute("PRAGMA writable_schema = ON")
        made = "CREATE  VIRTUAL TABLE redirects USING fts5(ark, url)"
        connection.execute("UPDATE sqlite_master SET sql = ?, rootpage = ? WHERE name = 'redirects'", (made, page))
    with pytest.raises(ConfigError, match="redirects: redirects is not a table"):
        taken(path)


def test_errors_of_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "redirects"
    assert len(taken(database(path, ("ark:12345/x5", "https://h.example/5", None), (1, 2, 3)))[1]) == 1
    with pytest.raises(ConfigError, match="no such column: url: name 'target' url"):
        taken(database(path, columns="ark, target"))
    path.write_bytes(b"SQLite format 3\0" + bytes(5000))
    with pytest.raises(ConfigError, match="redirects"):
        read(path)
    with pytest.raises(ConfigError, match="No such file"):
        follow(tmp_path / "gone", allow_private=False, clock=Clock())


def test_rows_that_another_program_wrote_are_found_by_a_check(tmp_path: Path) -> None:
    """Each look-up of one is a 503, and the others are used."""
    path = imported(tmp_path / "redirects.sqlite", f"{GOOD}ark:12345/x6,https://h.example/6\n")
    with closing(sqlite3.connect(path)) as connection, connection:
        add = "INSERT INTO redirects (ark, url, status, suffix) VALUES (CAST(? AS TEXT), ?, 302, 1)"
        bad = [b"ark:\xff/x", b"ark:/12345/x-7", b"", b"ark:77777/x"]
        connection.executemany(add, [(ark, "https://h.example/") for ark in bad])
        connection.execute("UPDATE redirects SET more = ? WHERE ark = 'ark:12345/x6'", ("[" * 60_000,))
    file = follow(path, allow_private=False, clock=Clock())
    assert file.value.objects.get("ark:12345/x5") == ONE[0]
    with pytest.raises(Unreadable):
        file.value.objects.get("ark:12345/x6")
    assert file.value.objects.broken == {"ark:12345/x6": "its other columns nest too deeply"}
    shown = run("redirects", "check", str(path), code=1).stdout.splitlines()
    assert [line.partition(".sqlite:")[2] for line in shown] == [
        "1: the ark is missing",
        "2: ark:/12345/x-7: is not in the normal form ark:12345/x7, so it is never found",
        "4: its other columns nest too deeply",
        "6: a text is not UTF-8",
    ]


def test_a_check_finds_rows_of_another_naan(tmp_path: Path) -> None:
    path = imported(tmp_path / "redirects.sqlite")
    with closing(sqlite3.connect(path)) as connection, connection:
        add = "INSERT INTO redirects (ark, url, status, suffix) VALUES ('ark:7/x', 'https://h.example/', 302, 1)"
        connection.execute(add)
    run("redirects", "check", str(path), code=1, said="its counts of objects are wrong: another program wrote it")


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match=r"(?i)pipe: is not a regular file"):
        read(tmp_path / "pipe")


def test_a_private_host_is_refused_unless_allowed(tmp_path: Path) -> None:
    path = csv_file(tmp_path / "redirects", "ark,url\nark:12345/x,http://127.0.0.1/\n")
    assert len(read(path, allow_private=True).objects) == 1


def replaced(path: Path, text: str) -> None:
    new = csv_file(path.with_name("new"), text)
    new.replace(path)


def test_a_bad_file_leaves_the_last_good_redirects(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, path = Clock(), csv_file(tmp_path / "redirects", GOOD)
    file = follow(path, allow_private=False, clock=clock)
    assert (rows(file.current()), file.value.trouble) == (ONE, "")
    replaced(path, "ark,target\nx,y\n")
    clock.now += LOOK_EVERY
    assert rows(file.current()) == ONE
    assert file.value.trouble.startswith(f"{path.name}:1: the first line has no column url")
    said = f"{path}:1: the first line has no column url, but 'ark, target': name 'target' url; "
    assert caplog.messages == [f"{said}keeping the last good redirects"]
    path.unlink()
    clock.now += LOOK_EVERY
    assert rows(file.current()) == ONE
    assert "No such file" in file.value.trouble
    clock.now += LOOK_EVERY
    file.current()
    assert len(caplog.records) == 2  # the same trouble is logged once
    replaced(path, f"{GOOD}ark:12345/x6,https://h.example/6\n")
    clock.now += LOOK_EVERY
    assert (len(rows(file.current())), file.value.trouble) == (2, "")


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, path = Clock(), csv_file(tmp_path / "redirects", GOOD)
    file = follow(path, allow_private=False, clock=clock)
    looks = itertools.count()
    with monkeypatch.context() as patched:
        patched.setattr("maptr.files.file_signature", lambda path: (next(looks),))
        clock.now += LOOK_EVERY
        assert (rows(file.current()), file.value.trouble) == (ONE, f"{path.name}: the file changed while it was read")
        with pytest.raises(ConfigError, match=rf"{path}: the file changed while"):  # the reading of a reload
            follow(path, allow_private=False, clock=clock)
    clock.now += LOOK_EVERY
    assert file.current().trouble == ""


def test_what_a_csv_does_not_have_any_more_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also over SIGHUP and a restart, which read it anew, until a person imports it."""

    def text(*numbers: int, where: str = "h") -> str:
        return "ark,url\n" + "".join(f"ark:12345/x{n},https://{where}.example/{n}\n" for n in numbers)

    clock, path, kept = Clock(), csv_file(tmp_path / "own.csv", text(*range(10))), KeptStores(tmp_path)

    def started() -> Followed[Redirects]:
        return follow(path, allow_private=False, clock=clock, kept=kept)

    file = started()
    replaced(path, text(0, *range(2, 9), where="new"))
    clock.now += LOOK_EVERY
    for found in (file.current(), file.refresh(), started().value):
        assert (len(found.objects), found.trouble) == (10, "")
        assert found.alarm == ("own.csv: 2 ARKs missing from it are still served: ark:12345/x1, ark:12345/x9")
        urls = {one.ark: one.url for one in rows(found)}
        assert (urls["ark:12345/x0"], urls["ark:12345/x9"]) == ("https://new.example/0", "https://h.example/9")
    store = kept.path(path)
    command = ["redirects", "import", str(path), "-o", str(store), "--remove"]
    assert f"(maptr {' '.join(command)} removes them)" in caplog.text
    run(*command, code=0)
    assert (len(file.current().objects), file.value.alarm) == (8, ""), "at once"
    for command in (["set", "ark:12345/x1", "https://h.example/"], ["restore", "ark:12345/x0"]):
        run("redirects", *command, "--store", str(store), code=1, said=f"follows {path}")
    other = csv_file(tmp_path / "other.csv", text(0))
    run("redirects", "import", str(other), "-o", str(store), "--remove", "--force", code=1, said=f"follows {path}")


def test_a_csv_that_loses_too_much_is_refused(tmp_path: Path) -> None:
    clock, path, kept = Clock(), tmp_path / "own.csv", KeptStores(tmp_path)
    rows = [f"ark:12345/x{n},https://h.example/{n}\n" for n in range(10)]
    csv_file(path, "ark,url\n" + "".join(rows))
    file = follow(path, allow_private=False, clock=clock, kept=kept)
    for damage in ("ark,url\n" + "".join(rows[:6]), "", "ark,url\n" + "".join(rows)[:-1], "ark,target\n", "\0"):
        replaced(path, damage)
        clock.now += LOOK_EVERY
        again = follow(path, allow_private=False, clock=clock, kept=kept, is_required=False)
        for found in (file.current(), again.value):
            assert len(found.objects) == 10
            assert found.trouble.startswith("own.csv:")
        with pytest.raises(ConfigError):
            follow(path, allow_private=False, clock=clock, kept=kept)
    path.unlink()
    again = follow(path, allow_private=False, clock=clock, kept=kept, is_required=False)
    assert len(again.value.objects) == 10


def test_a_row_that_is_bad_now_stays_as_it_was(tmp_path: Path) -> None:
    clock, path = Clock(), csv_file(tmp_path / "own.csv", f"{GOOD}ark:12345/x6,https://h.example/6\n" + MANY)
    file = follow(path, allow_private=False, clock=clock)
    replaced(path, f"{GOOD}ark:12345/x6,h.example/7\n" + MANY)
    clock.now += LOOK_EVERY
    found = file.current()
    assert (found.left_out, found.trouble, len(found.objects)) == (1, "", 12)
    one = found.objects.get("ark:12345/x6")
    assert one is not None
    assert one.url == "https://h.example/6"


def test_a_csv_that_was_read_before_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start with a million rows takes as long as reading their hash. Bad rows are still told."""
    path, kept = csv_file(tmp_path / "own.csv", f"{GOOD}x,y\n"), KeptStores(tmp_path)
    first = follow(path, allow_private=False, clock=Clock(), kept=kept).value
    monkeypatch.setattr(following, "Staged", None)
    found = follow(path, allow_private=False, clock=Clock(), kept=kept).value
    assert (rows(found), found.left_out) == (ONE, 1)
    assert list(map(str, found.bad)) == list(map(str, first.bad))


def test_a_reload_waits_for_the_csv_that_is_being_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, kept = csv_file(tmp_path / "redirects", GOOD), KeptStores(tmp_path)
    options: dict[str, Any] = {"allow_private": False, "clock": Clock(), "kept": kept}
    first = follow(path, **options)
    csv_file(path, GOOD + MANY)
    begun, made = threading.Event(), list[Path]()

    class Slow(Staged):
        def put(self, *given: Any, **terms: Any) -> Imported:
            made.append(self.path)
            begun.set()
            return super().put(*given, **terms)

    monkeypatch.setattr(following, "Staged", Slow)
    found: list[Redirects] = []

    def follow_anew() -> None:
        begun.wait()
        found.append(follow(path, **options).value)

    reload = threading.Thread(target=follow_anew)
    reload.start()
    assert len(rows(first.refresh())) == 11
    reload.join()
    assert (len(rows(found[0])), found[0].trouble, len(made)) == (11, "", 1)


def test_imports_at_one_time_leave_each_other_alone(tmp_path: Path) -> None:
    path, errors = csv_file(tmp_path / "redirects", GOOD), list[Exception]()

    def stage() -> None:
        for _ in range(200):
            try:
                with Staged(path, tmp_path / "own.sqlite", errors.append) as staged:
                    assert staged.count == 1
            except (OSError, ConfigError) as error:
                errors.append(error)

    threads = [threading.Thread(target=stage) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_the_database_that_import_makes_is_asked_and_not_read(tmp_path: Path) -> None:
    made = OwnObject("ark:12345/x1", "https://h.example/1", 303, "", "Me", "It", "1999", False)
    row = "ark:12345/x1,https://h.example/1,303,Me,It,1999,no,kept"
    path = imported(tmp_path / "own.sqlite", f"ark,url,status,who,what,when,suffix,note\n{row}\n")
    clock = Clock()
    file = follow(path, allow_private=False, clock=clock)
    objects = file.current().objects
    assert isinstance(objects, ObjectStore)
    assert (objects.get("ark:12345/x1"), objects.get("ark:12345/x2"), objects.naans) == (made, None, {"12345": 1})
    with pytest.raises(ConfigError, match="something other than a maptr cache"):
        Disk(path, wall=clock)  # which would set it aside as a damaged cache
    with closing(sqlite3.connect(path)) as writer, writer:
        writer.execute("UPDATE redirects SET url = 'https://changed.example/'")
    found = objects.get("ark:12345/x1")
    assert found is not None
    assert found.url == "https://changed.example/", "at once, without reading the file again"


@pytest.mark.parametrize(
    "change", ["url = 'javascript:alert(1)'", "status = 200", "more = '{'", "more = '[1]'", "url = 'http://10.0.0.1/'"]
)
def test_a_row_that_was_spoiled_leads_nowhere(change: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = imported(tmp_path / "own.sqlite")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE redirects SET {change}")
    found = read(path).objects
    for _ in "again":
        with pytest.raises(Unreadable):
            found.get("ark:12345/x5")
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{path}: ark:12345/x5: ")


def with_arks(path: Path, *arks: str) -> ObjectStore:
    return store_of(imported(path, "ark,url\n" + "".join(f"{ark},https://own.example.org/1\n" for ark in arks)))


def test_objects_are_counted_by_naan_also_where_one_begins_with_another(tmp_path: Path) -> None:
    arks = ["ark:12345/x1", "ark:12345/x2/f0", "ark:123450/x", "ark:1234501/x", "ark:12346/x", "ark:b5072/x"]
    found = with_arks(tmp_path / "own.sqlite", *arks)
    assert found.naans == {"12345": 2, "123450": 1, "1234501": 1, "12346": 1, "b5072": 1}
    assert len(found) == len(arks)


@pytest.mark.parametrize(("left", "is_refused"), [(1000, False), (950, False), (400, True), (0, True)])
def test_the_loss_of_a_long_file_is_judged_by_a_sample(
    left: int, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "SAMPLED", 200)
    arks = [f"ark:12345/x{number}" for number in range(1000)]
    old, new = with_arks(tmp_path / "old", *arks), with_arks(tmp_path / "new", *arks[:left])
    assert 50 < len(old.sample(200)) < 500
    with pytest.raises(ConfigError, match="would be lost") if is_refused else nullcontext():
        check_loss(old, new, tmp_path / "new")


def test_a_database_that_cannot_be_read_is_no_reason_to_redirect_elsewhere(tmp_path: Path) -> None:
    path = imported(tmp_path / "own.sqlite")
    own = read(path).objects
    path.write_text("a text in the place of the database\n")
    with (
        gateway(site=Site(table_state=TableState(TABLE), redirects=Redirects(objects=own))) as found,
        HttpClient(found.port) as client,
    ):
        said = "the own objects of this gateway cannot be read now"
        reply = client.get("/ark:12345/x5")
        assert (reply.status, reply.headers["retry-after"]) == (503, "10")
        assert reply.text == f"503 Service Unavailable\n{said}\n"
        assert reply.headers["access-control-allow-origin"] == "*"
        assert json.loads(client.get("/api/v1/discover?ark=ark:12345/x5").body)["detail"] == said
        assert client.get("/ark:99166/x5").status != 503, "a NAAN without own objects"


def test_a_good_file_replaces_a_database_that_was_damaged_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, path = Clock(), imported(tmp_path / "own.sqlite")
    file = follow(path, allow_private=False, clock=clock)
    path.write_text("a text in the place of the database\n")
    clock.now += LOOK_EVERY
    assert "file is not a database" in file.current().trouble
    imported(tmp_path / "new.sqlite").replace(path)
    clock.now += LOOK_EVERY
    assert (rows(file.current()), file.value.trouble) == (ONE, "")
    assert f"{path}: the current redirects cannot be compared with the new ones: " in caplog.text


def test_a_store_that_is_locked_is_read_soon_after(tmp_path: Path) -> None:
    """Its status then does not change."""
    clock, path = Clock(), csv_file(tmp_path / "redirects", GOOD)
    file = follow(path, allow_private=False, clock=clock)
    made = imported(tmp_path / "db", "ark,url\nark:12345/x5,https://h.example/6\n")
    with closing(sqlite3.connect(made)) as writer:
        writer.execute("PRAGMA locking_mode = EXCLUSIVE")
        writer.execute("BEGIN EXCLUSIVE")
        made.replace(path)
        clock.now += LOOK_EVERY
        assert rows(file.current()) == ONE
        assert "locked" in file.value.trouble
    clock.now += LOOK_EVERY
    assert rows(file.current()) == ONE
    clock.now += TRY_AGAIN
    assert [rule.url for rule in rows(file.current())] == ["https://h.example/6"]
    assert file.value.trouble == ""


def test_a_moment_of_a_writer_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.gateway.redirects.rows.WAIT", 60.0)
    path = imported(tmp_path / "db")
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        end = threading.Timer(0.3, writer.execute, ["ROLLBACK"])
        end.start()
        assert rows(read(path)) == ONE
        end.join()


def test_rows_that_cannot_be_stored_or_read_are_an_error_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, path, own = sqlite3.connect, tmp_path / "r.csv", imported(tmp_path / "own.sqlite")
    path.write_text("ark,url\n" + "".join(f"ark:12345/x{i},https://h.example/{i}\n" for i in range(2000)))
    own.write_bytes(own.read_bytes().replace(b"CREATE TABLE redirects", b"CREATE TABL\xcc redirects"))
    with pytest.raises(ConfigError, match=r"own\.sqlite: the database is damaged"):
        read(own)

    def full(*arguments: Any, **options: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(*arguments, **options)
        made.execute("PRAGMA max_page_count = 10")
        return made

    monkeypatch.setattr(sqlite3, "connect", full)
    with pytest.raises(ConfigError, match=r"r\.csv: its rows cannot be stored in .*: database or disk is full"):
        read(path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["own.sqlite", "own.sqlite.csv", "r.csv"]
