"""The file of single redirects: its formats, its errors, and what stays in use when it is bad."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from maptr.ark import Ark
from maptr.errors import ConfigError
from maptr.files import LOOK_EVERY, MAX_WHOLE, READ_EVERY
from maptr.gateway.redirects import follow, read
from maptr.gateway.site import Redirect
from tests.support.caching import Clock

ONE = {Ark.parse("ark:12345/x5"): Redirect("https://h.example/5")}


def database(path: Path, *rows: tuple[object, ...], columns: str = "ark, url, status") -> Path:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE redirects ({columns})")
        connection.executemany(f"INSERT INTO redirects VALUES ({', '.join('?' * len(columns.split(',')))})", rows)
    return path


def csv_file(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


@pytest.mark.parametrize(
    "text",
    [
        "ark,url\nark:12345/x5,https://h.example/5\n",
        "\ufeffark,url\r\nhttps://n2t.net/ark:/12345/x-5,https://h.example/5\r\n",
        'note,url,ark,status\n"a\nb","https://h.example/5",ark:12345/x5,302\n',
        "ark,url,status\nark:12345/x5,https://h.example/5,\n",
    ],
)
def test_redirects_are_read_from_csv(text: str, tmp_path: Path) -> None:
    assert read(csv_file(tmp_path / "redirects", text)) == ONE


def test_redirects_are_read_from_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "a file?#%.db"
    assert read(database(path, ("ark:12345/x5", "https://h.example/5", None))) == ONE
    assert read(database(path, ("ark:12345/x5", "https://h.example/5"), columns="ark, url")) == ONE
    status = read(database(path, ("ark:12345/x5", "https://h.example/5", 303)))
    assert [rule.status for rule in status.values()] == [303]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ark,target\n", r"redirects:1: the first line has no column url"),
        ("", r"redirects:1: the first line has no column ark"),
        ("ark,url\n\nx,https://h.example/\n", r"redirects:3: no ark: label"),
        ("ark,url\nark:12345,https://h.example/\n", r"redirects:2: ark:12345 has no name"),
        ("ark,url\nark:12345/x,http://127.0.0.1/\n", r"redirects:2: 127.0.0.1 is not a public host"),
        ("ark,url\nark:12345/x,javascript:alert(1)\n", r"redirects:2: not an absolute URL"),
        ("ark,url\nark:12345/x,https://u@h.example/\n", r"redirects:2: user information"),
        ('ark,url\nark:12345/x,"https://h.example/\r\nX: y"\n', r"redirects:3: the character U\+000D"),
        ("ark,url,status\nark:12345/x,https://h.example/,301\n", r"redirects:2: the status 301 is not one of 302, 303"),
        (
            "ark,url\nark:12345/x,https://h.example/\nark:12345/x-,https://h.example/\n",
            r"redirects:3: a second redirect",
        ),
        ('ark,url\nark:12345/x,"https://h.example/"y\n', r"redirects:2: ',' expected"),
        ("ark,url\nark:12345/x,https://h.example/\n\udcff\n", r"redirects:3: not UTF-8"),
    ],
)
def test_an_error_names_file_and_line(text: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=error):
        read(csv_file(tmp_path / "redirects", text))


def test_the_size_of_lines_and_columns_is_limited(tmp_path: Path) -> None:
    many = ",".join(f"c{number}" for number in range(100))
    path = csv_file(tmp_path / "redirects", f"ark,url,{many}\n")
    with pytest.raises(ConfigError, match=r"redirects:1: 102 columns, 100 at most"):
        read(path)
    with pytest.raises(ConfigError, match=r"redirects:2: 101 columns"):
        read(csv_file(path, f"ark,url\nark:12345/x,https://h.example/{',' * 99}\n"))
    with pytest.raises(ConfigError, match=r"redirects:3: a line of more than 65536"):
        read(csv_file(path, f"ark,url\nark:12345/x,https://h.example/\n{'x' * 70_000}"))
    with pytest.raises(ConfigError, match=r"redirects:2: string or blob too big"):
        read(database(path, ("ark:12345/x5", "https://h.example/5", None), ("ark:12345/x6", "h" * 70_000, None)))
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
    with pytest.raises(ConfigError, match=r"redirects:2: no ark: label"):
        read(database(path, ("ark:12345/x5", "https://h.example/5", None), (1, 2, 3)))
    with pytest.raises(ConfigError, match="no such column: url"):
        read(database(path, columns="ark, target"))
    path.write_bytes(b"SQLite format 3\0" + bytes(5000))
    with pytest.raises(ConfigError, match="redirects"):
        read(path)
    with pytest.raises(ConfigError, match="No such file"):
        follow(tmp_path / "gone", allow_private=False, clock=Clock())


def test_a_pipe_and_a_file_that_is_too_large_are_refused(tmp_path: Path) -> None:
    path = csv_file(tmp_path / "large", "ark,url\n")
    os.truncate(path, MAX_WHOLE + 1)
    with pytest.raises(ConfigError, match="large: Has more than"):
        read(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="pipe: Is not a regular file"):
        read(tmp_path / "pipe")


def test_a_private_host_is_refused_unless_allowed(tmp_path: Path) -> None:
    path = csv_file(tmp_path / "redirects", "ark,url\nark:12345/x,http://127.0.0.1/\n")
    assert len(read(path, allow_private=True)) == 1


def replaced(path: Path, text: str) -> None:
    new = csv_file(path.with_name("new"), text)
    new.replace(path)


GOOD = "ark,url\nark:12345/x5,https://h.example/5\n"


def test_a_bad_file_leaves_the_last_good_redirects(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, path = Clock(), csv_file(tmp_path / "redirects", GOOD)
    file = follow(path, allow_private=False, clock=clock)
    assert (file.current().rules, file.value.trouble) == (ONE, "")
    replaced(path, "ark,url\nx,y\n")
    clock.now += LOOK_EVERY
    assert file.current().rules == ONE
    assert file.value.trouble.startswith(f"{path}:2: no ark: label")
    assert [record.getMessage() for record in caplog.records] == [f"{file.value.trouble}; the last good redirects stay"]
    path.unlink()
    clock.now += LOOK_EVERY
    assert file.current().rules == ONE
    assert "No such file" in file.value.trouble
    clock.now += LOOK_EVERY
    file.current()
    assert len(caplog.records) == 2  # the same trouble is logged once
    replaced(path, "ark,url\n")
    clock.now += LOOK_EVERY
    assert (file.current().rules, file.value.trouble) == ({}, "")


def test_a_file_that_could_not_be_read_is_read_again(tmp_path: Path) -> None:
    """A database may be locked for a while; its status then does not change."""
    clock, path = Clock(), csv_file(tmp_path / "redirects", GOOD)
    file = follow(path, allow_private=False, clock=clock)
    with closing(sqlite3.connect(database(tmp_path / "db", ("ark:12345/x6", "https://h.example/6", 303)))) as writer:
        writer.execute("PRAGMA locking_mode = EXCLUSIVE")
        writer.execute("BEGIN EXCLUSIVE")
        (tmp_path / "db").replace(path)
        clock.now += LOOK_EVERY
        assert file.current().rules == ONE
        assert "locked" in file.value.trouble
    clock.now += LOOK_EVERY
    assert file.current().rules == ONE
    clock.now += READ_EVERY
    assert [rule.url for rule in file.current().rules.values()] == ["https://h.example/6"]
    assert file.value.trouble == ""
