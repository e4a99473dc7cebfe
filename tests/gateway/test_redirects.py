"""The file of single redirects: its formats, its errors, and what stays in use when it is bad."""

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
from maptr.files import LOOK_EVERY, READ_EVERY
from maptr.gateway import redirects
from maptr.gateway.objects import OwnObject, Redirects, RowError
from maptr.gateway.redirects import ObjectStore, follow, read, stored
from maptr.gateway.site import Site
from maptr.registry.followed_file import TableState
from tests.support.caching import Clock
from tests.support.command_line import run
from tests.support.http_gateway import TABLE, HttpClient, gateway

ONE = [OwnObject("ark:12345/x5", "https://h.example/5")]
GOOD = "ark,url\nark:12345/x5,https://h.example/5\n"


def rows(found: Redirects) -> list[OwnObject]:
    assert isinstance(found.objects, ObjectStore)
    return list(found.objects.every())


def database(path: Path, *rows: tuple[object, ...], columns: str = "ark, url, status") -> Path:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE redirects ({columns})")
        connection.executemany(f"INSERT INTO redirects VALUES ({', '.join('?' * len(columns.split(',')))})", rows)
    return path


def csv_file(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


def imported(path: Path, text: str = GOOD) -> Path:
    """Write the database that ``maptr redirects import`` makes of a CSV."""
    stored(csv_file(path.with_suffix(".csv"), text), lambda error: pytest.fail(str(error)), str(path))
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


def test_redirects_are_read_from_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "a file?#%.db"
    assert rows(read(database(path, ("ark:12345/x5", "https://h.example/5", None)))) == ONE
    assert rows(read(database(path, ("ark:12345/x5", "https://h.example/5"), columns="ARK, Url"))) == ONE
    status = read(database(path, ("ark:12345/x5", "https://h.example/5", 303)))
    assert [rule.status for rule in rows(status)] == [303]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ark,target\n", r"redirects:1: the first line has no column url, but 'ark, target'"),
        ("", r"redirects:1: the first line has no column ark, but ''"),
        ("ark,url\rark:12345/x,https://h.example/\r", r"redirects:1: its lines end with CR alone"),
        ("ark,url,who,url\n", r"redirects:1: the first line has two columns url"),
        ('ark,url\nark:12345/x,"https://h.example/\n' + "x,y\n" * 99, r"redirects:2: .* may have no second one"),
        ('ark,url\nark:12345/x,"https://h.example/"y\n', r"redirects:2: ',' expected"),
        ('ark,url\nark:12345/x,"https://h.example/\n', r"redirects:2: .* may have no second one"),
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
    "ark,url\nark:12345,https://h.example/\n": "2: ark:12345 has no name",
    "ark,url\nark:12345/x?info,https://h.example/\n": "2: ark:12345/x has '?info' after it",
    "ark,url\nark:12345/x,http://127.0.0.1/\n": "2: 127.0.0.1 is not a public host",
    "ark,url\nark:12345/x,javascript:alert(1)\n": "2: not an absolute URL",
    "ark,url\nark:12345/x,https://u@h.example/\n": "2: user information",
    "ark,url\nark:12345/x\n": "2: ark:12345/x has no URL, which only an object that is gone (410) lacks",
    'ark,url\nark:12345/x,"https://h.example/\r\nX: y"\n': "3: the character U+000D",
    "ark,url\nark:12345/x,https://h.example/é x\n": "2: the character U+00E9 is not allowed in a URL, except as %C3%A9",
    "ark,url,status\nark:12345/x,https://h.example/,301\n": "2: the status 301 is not one of 302, 303, 307, 410",
    "ark,url,status\nark:12345/x,https://h.example/,410\n": "2: ark:12345/x is gone (410), and has the URL",
    "ark,url\nark:12345/x,https://h.example/,a\n": "2: 3 values for 2 columns: put a text with ',' in quotation marks",
    "ark,url,suffix\nark:12345/x,https://h.example/,maybe\n": "2: suffix is 'maybe', not yes or no",
    "ark,url\nark:12345/x,https://h.example/\nark:12345/x-,https://h.example/\n": "3: a second redirect",
    "ark,url,status\nark:12345/x,,410\nark:12345/x,https://h.example/,\n": (
        "3: a second redirect of ark:12345/x: the first one is gone"
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
    found = read(database(path, short, ("ark:12345/x6", "h" * 70_000, None)))
    assert rows(found) == ONE
    assert [str(error) for error in found.bad] == [f"{path}:2: a value of more than 65536 characters"]
    with pytest.raises(ConfigError, match=r"redirects:2: string or blob too big"):
        read(database(path, short, ("ark:12345/x6", "h" * 17_000_000, None)))
    with pytest.raises(ConfigError, match=r"redirects: 102 columns"):
        read(database(path, columns=f"ark, url, {many}"))


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
        read(path)


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
        read(path)


def test_errors_of_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "redirects"
    assert read(database(path, ("ark:12345/x5", "https://h.example/5", None), (1, 2, 3))).left_out == 1
    with pytest.raises(ConfigError, match="no such column: url"):
        read(database(path, columns="ark, target"))
    path.write_bytes(b"SQLite format 3\0" + bytes(5000))
    with pytest.raises(ConfigError, match="redirects"):
        read(path)
    with pytest.raises(ConfigError, match="No such file"):
        follow(tmp_path / "gone", allow_private=False, clock=Clock())


def test_rows_of_an_import_that_was_edited(tmp_path: Path) -> None:
    """Each is named, and the others are used and compared with those of the next file."""
    path = imported(tmp_path / "redirects.sqlite", f"{GOOD}ark:12345/x6,https://h.example/6\n")
    with closing(sqlite3.connect(path)) as connection, connection:
        add = "INSERT INTO redirects (ark, url, status, suffix) VALUES (CAST(? AS TEXT), ?, 302, 1)"
        bad = [b"ark:\xff/x", b"ark:12345/\xff", b"ark:1\x1b[31m\n/x", b"", b"ark:1\0/x"]
        connection.executemany(add, [(ark, "https://h.example/") for ark in bad])
        connection.execute("UPDATE redirects SET more = ? WHERE ark = 'ark:12345/x6'", ("[" * 60_000,))
    file = follow(path, allow_private=False, clock=Clock())
    assert (file.value.trouble, dict(file.value.objects.naans)) == ("", {"12345": 3})
    assert file.value.objects.get("ark:12345/x5") == ONE[0]
    file.refresh()
    assert file.value.trouble == ""
    shown = run("redirects", "check", str(path), code=1)
    assert "redirects.sqlite:7: a text is not UTF-8" in shown.stdout
    assert "nest too deeply" in shown.stdout


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
    said = f"{path}:1: the first line has no column url, but 'ark, target'; the last good redirects stay"
    assert caplog.messages == [said]
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


def test_a_file_that_loses_too_many_redirects_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def text(count: int) -> str:
        return "ark,url\n" + "".join(f"ark:12345/x{n},https://h.example/{n}\n" for n in range(count))

    clock, path = Clock(), csv_file(tmp_path / "redirects", text(100))
    file = follow(path, allow_private=False, clock=clock)
    for count, left, is_refused in ((71, 71, False), (49, 71, True), (50, 50, False)):
        replaced(path, text(count))
        clock.now += LOOK_EVERY
        assert len(file.current().objects) == left
        assert bool(file.value.trouble) == is_refused
    assert "more than 30% of 71 redirects would be lost" in caplog.text
    replaced(path, text(1))
    assert len(follow(path, allow_private=False, clock=clock).value.objects) == 1, "a reload takes it"


def test_the_database_that_import_makes_is_asked_and_not_read(tmp_path: Path) -> None:
    made = OwnObject("ark:12345/x1", "https://h.example/1", 303, "", "Me", "It", "1999", False, more={"note": "kept"})
    row = "ark:12345/x1,https://h.example/1,303,Me,It,1999,no,kept"
    path = imported(tmp_path / "own.sqlite", f"ark,url,status,who,what,when,suffix,note\n{row}\n")
    clock = Clock()
    file = follow(path, allow_private=False, clock=clock)
    objects = file.current().objects
    assert isinstance(objects, ObjectStore)
    assert objects.is_file
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
        assert found.get("ark:12345/x5") is None
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{path}: ark:12345/x5: ")


def store_of(path: Path, *arks: str) -> ObjectStore:
    text = "".join(f"{ark},https://own.example.org/1\n" for ark in arks)
    found = read(imported(path, f"ark,url\n{text}")).objects
    assert isinstance(found, ObjectStore)
    return found


def test_objects_are_counted_by_naan_also_where_one_begins_with_another(tmp_path: Path) -> None:
    arks = ["ark:12345/x1", "ark:12345/x2/f0", "ark:123450/x", "ark:1234501/x", "ark:12346/x", "ark:b5072/x"]
    found = store_of(tmp_path / "own.sqlite", *arks)
    assert found.naans == {"12345": 2, "123450": 1, "1234501": 1, "12346": 1, "b5072": 1}
    assert len(found) == len(arks)


@pytest.mark.parametrize(("left", "is_refused"), [(1000, False), (950, False), (400, True), (0, True)])
def test_the_loss_of_a_long_file_is_judged_by_a_sample(
    left: int, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redirects, "SAMPLED", 200)
    arks = [f"ark:12345/x{number}" for number in range(1000)]
    old, new = store_of(tmp_path / "old", *arks), store_of(tmp_path / "new", *arks[:left])
    assert 50 < len(old.sample(200)) < 500
    with pytest.raises(ConfigError, match="would be lost") if is_refused else nullcontext():
        redirects.check_loss(old, new, tmp_path / "new")


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
    assert "the first line has no column ark" in file.current().trouble
    imported(tmp_path / "new.sqlite").replace(path)
    clock.now += LOOK_EVERY
    assert (rows(file.current()), file.value.trouble) == (ONE, "")
    assert f"{path}: the redirects until now cannot be compared with the new ones: " in caplog.text


def test_a_file_that_could_not_be_read_is_read_again(tmp_path: Path) -> None:
    """A database may be locked for a while; its status then does not change."""
    clock, path = Clock(), csv_file(tmp_path / "redirects", GOOD)
    file = follow(path, allow_private=False, clock=clock)
    with closing(sqlite3.connect(database(tmp_path / "db", ("ark:12345/x5", "https://h.example/6", 303)))) as writer:
        writer.execute("PRAGMA locking_mode = EXCLUSIVE")
        writer.execute("BEGIN EXCLUSIVE")
        (tmp_path / "db").replace(path)
        clock.now += LOOK_EVERY
        assert rows(file.current()) == ONE
        assert "locked" in file.value.trouble
    clock.now += LOOK_EVERY
    assert rows(file.current()) == ONE
    clock.now += READ_EVERY
    assert [rule.url for rule in rows(file.current())] == ["https://h.example/6"]
    assert file.value.trouble == ""


def test_a_moment_of_a_writer_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.gateway.redirects.LOCKED", 60.0)
    path = database(tmp_path / "db", ("ark:12345/x5", "https://h.example/6", 303))
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        end = threading.Timer(0.3, writer.execute, ["ROLLBACK"])
        end.start()
        assert [rule.url for rule in rows(read(path))] == ["https://h.example/6"]
        end.join()


def test_rows_that_cannot_be_stored_or_read_are_an_error_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, path, own = sqlite3.connect, tmp_path / "r.csv", imported(tmp_path / "own.sqlite")
    path.write_text("ark,url\n" + "".join(f"ark:12345/x{i},https://h.example/{i}\n" for i in range(2000)))
    with closing(connect(own)) as connection, connection:
        connection.execute("UPDATE redirects SET more = '{'")
    bad: list[RowError] = []
    assert len(stored(own, bad.append)) == 0
    assert [(error.filename, error.line) for error in bad] == [(str(own), 1)]
    own.write_bytes(own.read_bytes().replace(b"CREATE TABLE redirects", b"CREATE TABL\xcc redirects"))
    with pytest.raises(ConfigError, match=r"own\.sqlite: the database is damaged"):
        read(own)

    def full(*arguments: Any, **options: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(*arguments, **options)
        made.execute("PRAGMA max_page_count = 10")
        return made

    monkeypatch.setattr(sqlite3, "connect", full)
    for database, where in (("", "a temporary file .*"), (str(tmp_path / "new.sqlite"), r".*new\.sqlite")):
        with pytest.raises(ConfigError, match=rf"r\.csv: its rows cannot be stored in {where}: database or disk"):
            stored(path, lambda error: None, database)
