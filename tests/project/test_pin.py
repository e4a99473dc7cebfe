"""``scripts/pin`` with test repositories and a test registry, and the workflows."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json"}).encode()
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"
WORKFLOW = """\
jobs:
  run:
    container: debian:12 # for apt-get
    steps:
      - uses: actions/checkout@v4
        with:
          fetch-depth: 0
      - uses: "actions/checkout/sub@v4" # a note
      - uses: actions/checkout@release/v1
      - uses: ./.github/workflows/other.yml
"""


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    done = subprocess.run(
        ["git", "-C", folder, *identity, *words], capture_output=True, text=True, check=True, timeout=600
    )
    return done.stdout.strip()


@pytest.fixture
def actions(tmp_path: Path) -> Path:
    """A folder of repositories: actions/checkout with an annotated tag and a branch."""
    folder = tmp_path / "github"
    repository = folder / "actions" / "checkout"
    repository.mkdir(parents=True)
    git(repository, "init", "--quiet", "--initial-branch", "release/v1")
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "one")
    git(repository, "tag", "--annotate", "--message", "four", "v4")
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "two")
    return folder


class Registry(BaseHTTPRequestHandler):
    """An OCI registry with one image, library/debian:12, and a token that everybody gets."""

    def do_GET(self) -> None:
        where = f"http://{self.headers['Host']}"
        if self.path.startswith("/token?service=here&scope=pull"):
            return self.reply(200, b'{"token": "t"}')
        if self.headers.get("Authorization") != "Bearer t":
            return self.reply(401, b"", f'Bearer realm="{where}/token",service="here",scope="pull"')
        is_known = self.path == "/v2/library/debian/manifests/12"
        return self.reply(200 if is_known else 404, MANIFEST)

    def reply(self, code: int, content: bytes, challenge: str = "") -> None:
        self.send_response(code)
        self.send_header("WWW-Authenticate", challenge)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def pin(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "pin"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def test_actions_get_commits_and_images_digests(actions: Path, registry: str, tmp_path: Path) -> None:
    workflow, image = tmp_path / "ci.yml", tmp_path / "Containerfile"
    workflow.write_text(WORKFLOW)
    image.write_text("FROM --platform=linux/amd64 docker.io/library/debian:12 AS build\nRUN true\nFROM build\n")
    done = pin("--check", workflow, image)
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 5)

    given = ("--github", actions.as_uri(), "--registry", f"docker.io={registry}", workflow, image)
    done = pin(*given)
    assert (done.returncode, done.stderr) == (0, "")
    four, branch = (git(actions / "actions" / "checkout", "rev-parse", ref) for ref in ("v4^{commit}", "release/v1"))
    assert four != branch
    assert workflow.read_text() == (
        WORKFLOW.replace("debian:12 #", f"debian:12@{DIGEST} #")
        .replace("actions/checkout@v4\n", f"actions/checkout@{four} # v4\n")
        .replace('sub@v4" # a note', f'sub@{four}" # v4 a note')
        .replace("@release/v1", f"@{branch} # release/v1")
    )
    assert yaml.safe_load(workflow.read_text())["jobs"]["run"]["container"] == f"debian:12@{DIGEST}"
    assert image.read_text().splitlines()[0].endswith(f"library/debian:12@{DIGEST} AS build")
    assert pin("--check", workflow, image).stdout == ""

    git(actions / "actions" / "checkout", "tag", "--force", "v4")  # the tag moves to a newer commit
    before = workflow.read_text()
    assert pin(*given).stdout == f"{workflow}: pinned\n"
    assert workflow.read_text() == before.replace(four, branch)
    assert pin(*given).stdout == ""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("      - uses: actions/checkout@v5\n", "actions/checkout has no tag or branch v5"),
        ("      - uses: actions/none@v4\n", "actions/none"),
        ("    image: debian:13\n", "manifests/13: HTTP Error 404"),
        (f"      - uses: actions/checkout@{'0' * 40}\n", "has no comment with its tag or branch"),
    ],
)
def test_nothing_is_written_if_a_name_is_not_found(
    line: str, reason: str, actions: Path, registry: str, tmp_path: Path
) -> None:
    files = tmp_path / "a.yml", tmp_path / "b.yml"
    for path, text in zip(files, (WORKFLOW, line), strict=True):
        path.write_text(text)
    done = pin("--github", actions.as_uri(), "--registry", f"docker.io={registry}", *files)
    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr
    assert [path.read_text() for path in files] == [WORKFLOW, line]


def test_the_release_workflow_publishes_without_a_token_only_what_was_tested_and_pinned() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))["jobs"]
    assert {name: job.get("needs") for name, job in jobs.items()} == {
        "test": None,
        "build": "test",
        "publish": "build",
        "release": "publish",
    }
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    steps = "\n".join(str(step.get("run")) for step in jobs["build"]["steps"])
    assert "scripts/pin --check" in steps
    assert "scripts/package dist" in steps
    secrets = [path for path in (ROOT / ".github" / "workflows").iterdir() if "secrets." in path.read_text("utf-8")]
    assert secrets == []
