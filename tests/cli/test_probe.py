"""``maptr redirects probe``, with servers on loopback."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from maptr.cli import probe as command
from maptr.gateway.links import check, checker
from maptr.gateway.links.store import alone
from tests.support.command_line import home, interrupted, run
from tests.support.http_server import Pages, pages
from tests.support.own_objects import csv_file

__all__ = ["home"]
pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    """A server that answers with the status in the path, and hosts without a pause."""
    monkeypatch.setattr(check, "PAUSE", 0.0)
    headers = {"429": {"Retry-After": "3600"}}
    with pages(lambda target: (int(target[1:4]), headers.get(target[1:4], {}), b"")) as made:
        yield made


def own(folder: Path, *targets: str) -> Path:
    rows = "".join(f"ark:12345/x{n},{where},{'' if where else 410}\n" for n, where in enumerate(targets, 1))
    return csv_file(folder / "own.csv", f"ark,url,status\n{rows}")


def store(folder: Path, *targets: str) -> Path:
    path = folder / "own.sqlite"
    run("redirects", "import", own(folder, *targets), "-o", path, "--allow-private", "--remove", "--force", code=0)
    return path


def probe(*words: object, code: int, **more: str) -> str:
    return run("redirects", "probe", *words, "--allow-private", code=code, **more).stdout


def test_a_round_says_which_links_have_failed(server: Pages, home: Path) -> None:
    path = store(home, f"{server.url}/200", f"{server.url}/404?a", "", f"{server.url}/404?a#p", f"{server.url}/500")
    shown = [line.split() for line in probe(path, code=1).splitlines()]
    assert [(state, status, ark, where) for state, status, _, ark, where in shown] == [
        ("failing", "404", "ark:12345/x2", f"{server.url}/404?a"),
        ("failing", "404", "ark:12345/x4", f"{server.url}/404?a"),
        ("failing", "500", "ark:12345/x5", f"{server.url}/500"),
    ]
    assert sorted(server.asked) == ["/200", "/404?a", "/500"]
    probe(path, code=1, said="4 objects: 0 not known, 1 answer, 3 failed, not dead yet, 0 dead")
    assert len(server.asked) == 6, "another round"
    store(home, f"{server.url}/200")
    assert probe(path, code=0) == ""


def test_the_results_as_json_and_csv(server: Pages, home: Path) -> None:
    path = store(home, f"{server.url}/200", f"{server.url}/404", "http://127.0.0.1:9/")
    document = json.loads(probe(path, "--json", code=1))
    assert document["objects"] == {"unknown": 0, "answers": 1, "failing": 2, "dead": 0}
    first, second = document["links"]
    assert (first["ark"], first["status"], first["fault"], first["failures"]) == ("ark:12345/x2", 404, None, 1)
    assert (second["ark"], second["status"], second["fault"]) == ("ark:12345/x3", None, "unreachable")
    rows = [*csv.DictReader(StringIO(probe(path, "--csv", code=1)))]
    assert [(row["ark"], row["url"], row["status"], row["state"]) for row in rows] == [
        ("ark:12345/x2", f"{server.url}/404", "404", "failing"),
        ("ark:12345/x3", "http://127.0.0.1:9/", "unreachable", "failing"),
    ]
    assert rows[0]["since"] == first["since"]
    probe(path, "--json", "--csv", code=2)


def test_the_configuration_names_the_objects(server: Pages, home: Path) -> None:
    own(home, f"{server.url}/410")
    (home / "maptr.toml").write_text('[gateway]\nredirects = "own.csv"\ncontact = "a@b.example"\n')
    assert "ark:12345/x1" in probe("--config", home / "maptr.toml", code=1)
    assert [*(home / "cache" / "maptr").glob("own-*.links.sqlite")]
    probe(code=2, said="give STORE")


def test_a_round_that_was_ended_goes_on(server: Pages, home: Path) -> None:
    path = store(home, *(f"{server.url}/200?{n}" for n in range(30)))
    words = ["redirects", "probe", str(path), "--allow-private"]
    done = interrupted(words, lambda: len(server.asked) >= 2, cwd=home)  # which has the pause of a host
    assert done.returncode == 130
    assert "kept the results; run it again for the others" in done.stderr
    asked = len(server.asked)
    assert 2 <= asked < 30
    probe(path, code=0, said="continuing the round of ")
    assert sorted({*server.asked}) == sorted(f"/200?{n}" for n in range(30))
    assert len(server.asked) <= asked + 30 - (asked - 1), "the request under way is sent again"
    probe(path, code=0, said="30 objects: 0 not known, 30 answer")
    words = ["redirects", "probe", str(path), "--allow-private"]
    interrupted(words, lambda: len(server.asked) > 65, cwd=home)
    before = len(server.asked)
    probe(path, "--again", code=0)
    assert len(server.asked) == before + 30


def test_a_host_that_asks_to_be_left_alone_is(server: Pages, home: Path) -> None:
    path = store(home, f"{server.url}/429?1", f"{server.url}/429?2", "http://127.1:9/")
    probe(path, code=9, said="1 link not checked: their hosts asked to be left alone until ")
    assert len(server.asked) == 1
    probe(path, code=9, said="continuing the round")
    assert len(server.asked) == 1


def test_hosts_that_are_all_silent_may_be_the_network(home: Path) -> None:
    path = store(home, "http://127.0.0.1:9/", "http://127.1:9/", "http://localhost:9/")
    probe(path, code=9, said="no server answers, perhaps because of this machine's network")


def test_files_that_cannot_be_used(home: Path, server: Pages) -> None:
    probe(home / "none.sqlite", code=8)
    (home / "text").write_text("nothing\n")
    assert probe(home / "text", code=8) == ""
    own(home, "http://127.0.0.1:9/ x")
    probe(home / "own.csv", code=1, said="own.csv:2")
    path = store(home, f"{server.url}/404")
    probe(path, code=1)
    (results,) = (home / "cache" / "maptr").glob("own-*.links.sqlite")
    with alone(results) as is_alone:
        assert is_alone
        assert "404" in probe(path, code=1, said="another process is checking these links")
    assert len(server.asked) == 1
    results.write_bytes(b"SQLite format 3\0" + b"x" * 9000)
    probe(path, code=1)
    results.unlink()
    results.mkdir()
    probe(path, code=8)


def test_without_a_cache_the_results_end_with_the_command(server: Pages, home: Path) -> None:
    store(home, f"{server.url}/404")
    (home / "maptr.toml").write_text('[gateway]\nredirects = "own.sqlite"\n[cache]\npath = ""\n')
    for _ in range(2):
        shown = probe("--config", home / "maptr.toml", code=1, said="there is no cache")
        assert "404" in shown
    assert not [*home.rglob("*.links.sqlite")]


def test_private_hosts_need_an_option(server: Pages, home: Path) -> None:
    path = store(home, f"{server.url}/404")
    run("redirects", "probe", path, code=0, said="0 objects")
    assert server.asked == []


def test_a_page_longer_than_one_is_followed(server: Pages, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "PAGE", 2)
    path = store(home, *(f"{server.url}/404?{n}" for n in range(7)))
    assert len(probe(path, code=1).splitlines()) == 7
    assert command.FAILED
