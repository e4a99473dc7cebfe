"""``maptr redirects compare``, with a resolver that answers differently."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.command_line import home, run
from tests.support.own_objects import csv_file

__all__ = ["home"]
pytestmark = pytest.mark.usefixtures("home")

OWN = (
    "ark,url,status,suffix\n"
    "ark:12345/x1,https://h.example/1,,\n"
    "ark:12345/x2,https://h.example/2?id=2,303,\n"
    "ark:12345/x3,https://h.example/3,,no\n"
    "ark:12345/x4,,410,\n"
)
ANSWERS = {
    "/ark:12345/x1": (302, "https://h.example/1"),
    "/ark:12345/x1/part.1": (301, "https://H.example:443/1/part.1"),
    "/ark:12345/x1?part=1": (302, "https://h.example/1"),
    "/ark:12345/x2": (302, "https://h.example/2?id=2"),
    "/ark:12345/x2/part.1": (404, ""),
    "/ark:12345/x2?part=1": (302, "https://h.example/2?id=2&part=1"),
    "/ark:12345/x3": (302, "https://other.example/3"),
    "/ark:12345/x3?part=1": (302, "https://h.example/3?part=1"),
    "/ark:12345/x4": (404, ""),
    "/ark:12345/x4/part.1": (410, ""),
    "/ark:12345/x4?part=1": (410, ""),
}


class Resolver(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        status, location = ANSWERS[self.path]
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def resolver() -> Iterator[str]:
    """A private host, which the operator names."""
    Resolver.asked.clear()
    with HTTPServer(("127.0.0.1", 0), Resolver) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def compare(file: Path, *words: str, code: int) -> str:
    return run("redirects", "compare", str(file), *words, "--rate", "10000", code=code).output


def test_each_ark_is_compared_as_it_is_with_a_suffix_and_with_a_query(resolver: str, tmp_path: Path) -> None:
    file, out = csv_file(tmp_path / "own.csv", OWN), tmp_path / "differences.csv"
    assert compare(file, f"{resolver}/", "-o", str(out), code=1) == "11 requests, 4 differences\n"
    assert sorted(Resolver.asked) == sorted(ANSWERS)
    with out.open() as opened:
        assert [(row["asked"], row["expected"], row["answered"]) for row in csv.DictReader(opened)] == [
            ("ark:12345/x1?part=1", "302 https://h.example/1?part=1", "302 https://h.example/1"),
            ("ark:12345/x2/part.1", "303 https://h.example/2?id=2/part.1", "404"),
            ("ark:12345/x3", "302 https://h.example/3", "302 https://other.example/3"),
            ("ark:12345/x4", "410", "404"),
        ]
    assert not list(tmp_path.glob("*.state"))
    run("redirects", "compare", str(file), resolver, "-o", str(out), code=2, said="--overwrite")


def test_a_run_is_resumed_after_the_last_ark(resolver: str, tmp_path: Path) -> None:
    file, out, state = csv_file(tmp_path / "own.csv", OWN), tmp_path / "d.csv", tmp_path / "d.csv.state"
    words = (resolver, "-o", str(out))
    assert "nothing to resume" in compare(file, *words, "--resume", code=2)
    out.write_text("asked,expected,answered,reason\n")
    done = {"resolver": resolver, "sample": 0, "after": "ark:12345/x2", "asked": 6, "different": 2}
    state.write_text(json.dumps(done))
    assert compare(file, *words, "--resume", code=1) == "11 requests, 4 differences\n"
    assert len(Resolver.asked) == 5
    assert len(out.read_text().splitlines()) == 3
    state.write_text(json.dumps(done | {"sample": 3}))
    assert "belongs to a run with" in compare(file, *words, "--resume", code=2)


def test_a_sample_is_the_same_in_each_run(resolver: str, tmp_path: Path) -> None:
    file = csv_file(tmp_path / "own.csv", OWN)
    first = compare(file, resolver, "--sample", "2", code=1)
    asked = [*Resolver.asked]
    assert 4 < len(asked) < 7
    assert compare(file, resolver, "--sample", "2", code=1) == first
    assert Resolver.asked == 2 * asked


def test_a_resolver_that_is_gone_ends_the_run(tmp_path: Path) -> None:
    text = "ark,url\n" + "".join(f"ark:12345/x{n},https://h.example/{n}\n" for n in range(9))
    file, out = csv_file(tmp_path / "own.csv", text), tmp_path / "d.csv"
    shown = compare(file, "http://127.0.0.1:9", "-o", str(out), code=9)
    assert "http://127.0.0.1:9 does not answer" in shown
    assert json.loads((tmp_path / "d.csv.state").read_text())["after"] == "ark:12345/x2"
    assert "ftp://h.example: neither http nor https" in compare(file, "ftp://h.example", code=2)
