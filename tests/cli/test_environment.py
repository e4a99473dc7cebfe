"""Odd environments: limits on memory and threads, closed descriptors, an ignored SIGHUP, a machine without IPv4."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from maptr.cli.lookup import LookupOptions, client_options
from maptr.config import parse
from tests.support.command_line import MAPTR, run_process
from tests.support.peers import require
from tests.support.waiting import PATIENCE, until

ZONES = Path(__file__).resolve().parents[2] / "zones"
TABLE, ZONE = ZONES / "sample.natab", ZONES / "ark.arpa.zone"
ARK, URL = "ark:12345/x1", "https://ark.example.org/ark:/12345/x1"


def ended(command: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(home)}
    return subprocess.run(
        command, env=environment, cwd=home, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@pytest.mark.parametrize(
    "words",
    [
        ["zone", "build", str(TABLE)],
        ["zone", "check", str(ZONE)],
        ["table", "check", str(TABLE)],
        ["serve", "--zone", f"ark.arpa={ZONE}", "--check-config"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_no_command_takes_more_memory_than_its_input_needs(words: list[str], tmp_path: Path) -> None:
    """With ``ulimit -v 300000``; a read of a file must not take the memory for the longest one."""
    limit = 300_000 * 1024
    done = run_process(*words, cwd=tmp_path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert done.returncode == 0, done.stderr


EXHAUSTED = """
import sys, threading
def refuse(*arguments, **options):
    raise {error}
{name} = refuse
from maptr.cli.start import run
run()
"""


@pytest.mark.parametrize(
    "words",
    [
        ["serve", "--zone", f"ark.arpa={ZONE}", "--listen", "127.0.0.1:0"],
        ["gateway", "--table", str(TABLE), "--listen", "127.0.0.1:0", "@127.0.0.1#9"],
        ["up", "--sample"],
        ["table", "probe", "--table", str(TABLE)],
        ["discover", "--choose", "reachable", ARK, "--table", str(TABLE), "--policy", "natab-only"],
    ],
    ids=lambda words: words[0],
)
def test_without_a_thread_a_command_ends_with_a_message(words: list[str], tmp_path: Path) -> None:
    """The limit of ``ulimit -u`` does not hold for root, so the fault is injected."""
    program = EXHAUSTED.format(name="threading.Thread.start", error='RuntimeError("can\'t start new thread")')
    done = ended([sys.executable, "-c", program, *words], tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (8, False), done.stderr
    assert done.stderr.splitlines()[-1].startswith("maptr: no thread can be started")


def test_without_memory_a_command_ends_with_a_message(tmp_path: Path) -> None:
    program = EXHAUSTED.format(name="import maptr.zone.build; maptr.zone.build.build", error="MemoryError").replace(
        "import maptr.zone.build; maptr", "import maptr.zone.build\nmaptr", 1
    )
    done = ended([sys.executable, "-c", program, "zone", "build", str(TABLE)], tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (8, False), done.stderr
    assert done.stderr.splitlines()[-1].startswith("maptr: not enough memory")


def test_closed_standard_streams_do_not_become_sockets(tmp_path: Path) -> None:
    control = tmp_path / "control"
    words = ["serve", "--zone", f"ark.arpa={ZONE}", "--listen", "127.0.0.1:0", "--control", str(control)]
    script = 'exec "$@" 0<&- 1>&- 2>&-'
    with subprocess.Popen(["/bin/sh", "-c", script, "sh", *MAPTR, *words], cwd=tmp_path) as server:
        try:
            until(lambda: control.exists() or server.poll() is not None, "the control socket")
            for number in range(3):
                assert Path(f"/proc/{server.pid}/fd/{number}").readlink() == Path("/dev/null")
            assert run_process("status", "--control", control, cwd=tmp_path).returncode == 0
        finally:
            server.terminate()
    assert server.returncode == 0


def test_a_full_disk_behind_standard_output_stops_no_later_pull(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "naans"
    source.write_text("12345:\n    h.example.org  ACR\n")
    words = ["table", "pull", str(source), "--table", str(target), "--apply", "--every", "1"]
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen([*MAPTR, *words], stdout=full, stderr=subprocess.DEVNULL)
    with process:
        try:
            until(target.exists, "the first pull")
            source.write_text("12345:\n    i.example.org  ACR\n")
            until(lambda: "i.example.org" in target.read_text(), "a later pull")
        finally:
            process.terminate()


def test_nohup_keeps_maptr_up(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    log = tmp_path / "log"
    with log.open("w") as file:
        up = subprocess.Popen(
            [*MAPTR, "up", "--sample"],
            env=environment,
            cwd=tmp_path,
            stdout=file,
            stderr=file,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        )
    with up:
        try:
            until(lambda: "ready;" in log.read_text() or up.poll() is not None, log.read_text)
            up.send_signal(signal.SIGHUP)
            done = run_process("url", ARK, cwd=tmp_path, env=environment)
            assert (done.stdout, up.poll()) == (f"{URL}\n", None)
        finally:
            up.terminate()


IN_A_NETWORK_OF_ITS_OWN = """
ip link set lo up && ip address del 127.0.0.1/8 dev lo || exit 99
"$@" up --sample > log 2>&1 &
for i in $(seq 1800); do grep -q ready log && break; sleep 0.1; done
"$@" url ark:12345/x1
curl --silent --globoff --output /dev/null --write-out '%{redirect_url}\\n' 'http://[::1]:8080/ark:12345/x1'
kill $!
wait
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a network namespace")
def test_up_takes_the_ipv6_loopback_where_there_is_no_other(tmp_path: Path) -> None:
    require("unshare", "ip", "curl")
    done = ended(["unshare", "--net", "sh", "-c", IN_A_NETWORK_OF_ITS_OWN, "sh", *MAPTR], tmp_path)
    assert done.stdout.splitlines() == [URL, URL], (tmp_path / "log").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a network namespace")
def test_up_says_that_there_is_no_loopback(tmp_path: Path) -> None:
    require("unshare")
    done = ended(["unshare", "--net", *MAPTR, "up", "--sample"], tmp_path)
    assert done.returncode == 1
    assert "neither 127.0.0.1 nor ::1 can be reached here: bring the loopback up" in done.stderr


@pytest.mark.parametrize(("option", "lifetime"), [(None, 2.0), (1.0, 1.0)])
def test_the_time_of_a_discovery_is_configured_and_an_option_overrides_it(
    option: float | None, lifetime: float
) -> None:
    given = LookupOptions.of({"lifetime": option})
    assert client_options(given, parse("[client]\nlifetime = '2s'"))["lifetime"] == lifetime
    assert client_options(given, None).get("lifetime") == option
