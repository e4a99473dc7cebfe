"""The commands of README.md and docs/, run by ``tests.support.readme``, and scripts/demo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.peers import processes
from tests.support.readme import REPOSITORY, Command, DocumentedCommandFailed, Session, commands, run_page

PAGES = [page for page in (REPOSITORY / "README.md", *sorted(REPOSITORY.glob("docs/**/*.md"))) if page.exists()]

DEMO_SECONDS = 300.0

needs_own_environment = pytest.mark.skipif(
    Path(sys.prefix).resolve() != (REPOSITORY / ".venv").resolve(),
    reason="the demo would create .venv; run scripts/test",
)

MARKDOWN = """\
# A page

```sh
# a comment
echo one > first   # and another
test "$(cat first)" = one
printf '%s' \\
    two > second
false   # exits 1, as it should
echo '#no comment'
```

```console
$ cat first
one
$ cat \\
> second
two
```

```python
from pathlib import Path

assert Path("first").read_text() == "one\\n"
print("yes")
```

```text
yes
```

```text
false
```

<!-- not run: it would never end -->
```sh
sleep infinity
```

1. An item

   ```sh
   scripts/test
   ```
"""


def test_commands_are_found() -> None:
    assert commands(MARKDOWN) == [
        Command(5, "echo one > first"),
        Command(6, 'test "$(cat first)" = one'),
        Command(7, "printf '%s' two > second"),
        Command(9, "false", code=1),
        Command(10, "echo '#no comment'"),
        Command(14, "cat first", output=("one",)),
        Command(16, "cat second", output=("two",)),
        Command(
            22,
            'from pathlib import Path\n\nassert Path("first").read_text() == "one\\n"\nprint("yes")\n',
            "python",
            output=("yes",),
        ),
        Command(44, "scripts/test"),
    ]


def test_an_open_fence_is_an_error() -> None:
    with pytest.raises(ValueError, match="line 2"):
        commands("text\n```sh\necho\n")


def test_commands_are_run(tmp_path: Path) -> None:
    with Session("page.md", tmp_path) as session:
        outputs = [session.run(command) for command in commands(MARKDOWN)]
    assert outputs == ["", "", "", "", "#no comment\n", "one\n", "two", "yes\n", ""]


def test_a_server_is_started_on_a_free_port_and_stopped(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text(
        "import socket, sys, time\n"
        "time.sleep(0.3)\n"
        "listener = socket.create_server(('127.0.0.1', int(sys.argv[1].partition(':')[2])))\n"
        "print('ready on', sys.argv[1], file=sys.stderr, flush=True)\n"
        "while True:\n"
        "    listener.accept()[0].close()\n"
    )
    page = """\
```sh
python serve.py 127.0.0.1:5300 &
python -c 'import socket; socket.create_connection(("127.0.0.1", 5300)).close()'
echo 127.0.0.1#5300 port=5300 15300 5300.5
```
"""
    serve, connect, echo = commands(page)
    assert serve.in_background
    with Session("page.md", tmp_path) as session:
        ready = session.run(serve)
        session.run(connect)
        port = ready.strip().rpartition(":")[2]
        assert port != "5300"
        assert session.run(echo) == f"127.0.0.1#{port} port={port} 15300 5300.5\n"
        session.stop()
        with pytest.raises(DocumentedCommandFailed, match="ConnectionRefused"):
            session.run(connect)


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ("```sh\nfalse\n```", r"page.md:2: false\nexits 1, not 0"),
        ("```sh\ntrue   # exits 1\n```", "exits 0, not 1"),
        ("```sh\nfalse | cat\n```", "exits 1"),
        ("```sh\ncd zones\n```", "has no effect"),
        ("```sh\nscripts/nothing\n```", "no such script"),
        ("```sh\nsh -c 'echo no >&2; exit 3' &\n```", r"exits 3\nno"),
        ("```console\n$ echo one\ntwo\n```", "does not print what the page shows, but:\none"),
        ("```console\n$ echo one\n```", "does not print what the page shows, but:\none"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```", "does not print what the page shows, but:\n1"),
        ("```python\nimport warnings\nwarnings.warn('old')\n```", "UserWarning: old"),
    ],
)
def test_a_failure_has_line_and_reason(block: str, reason: str, tmp_path: Path) -> None:
    (command,) = commands(block)
    with Session("page.md", tmp_path) as session, pytest.raises(DocumentedCommandFailed, match=reason):
        session.run(command)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_page(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)


@needs_own_environment
def test_the_demo_runs_in_any_folder_and_leaves_no_files(tmp_path: Path) -> None:
    done = subprocess.run(
        [REPOSITORY / "scripts" / "demo"],
        cwd="/",
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEMO_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "DNS gives the URL that the registry means" in done.stdout
    assert "The server is stopped." in done.stdout
    assert not list(tmp_path.glob("maptr-demo-*"))


@needs_own_environment
@pytest.mark.parametrize(
    ("signal_number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGPIPE, 141)]
)
def test_the_demo_stops_its_server_when_interrupted(signal_number: signal.Signals, code: int, tmp_path: Path) -> None:
    """By Ctrl-C, which a shell's background processes ignore, by kill, and by ``scripts/demo | head``."""
    (tmp_path / "naan_records.json").write_bytes((REPOSITORY / "zones" / "sample.json").read_bytes())
    process = subprocess.Popen(
        [REPOSITORY / "scripts" / "demo"],
        env={**os.environ, "TMPDIR": str(tmp_path), "MAPTR_REAL_DATA": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        seen = ""
        for line in process.stdout:
            seen += line
            if "ready" in line:
                break
        if signal_number == signal.SIGPIPE:
            process.stdout.close()
        else:
            os.killpg(process.pid, signal_number)
            seen += process.stdout.read()
            assert "The server is stopped." in seen
        process.wait(DEMO_SECONDS)
    assert process.returncode == code, seen
    assert not processes(process.pid)
    assert not list(tmp_path.glob("maptr-demo-*"))
