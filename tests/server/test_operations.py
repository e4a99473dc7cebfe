"""The documentation for operators compared with the server: settings, log lines, faults and systemd units."""

from __future__ import annotations

import ast
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dns.message
import dns.query
import pytest
import tomli

from maptr.config import parse
from maptr.config.model import REMOVED
from maptr.dnssec.keys import Algorithm, KeyState, Role, add_key
from tests.support.certificates import write_certificate
from tests.support.http_gateway import ConfiguredGateway, HttpClient
from tests.support.load import Load
from tests.support.peers import Maptr, find
from tests.support.server_process import Site, address_of, zone_text
from tests.support.waiting import PATIENCE, until

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIGURATION = (REPOSITORY / "docs" / "configuration.md").read_text("utf-8")
LOG = (REPOSITORY / "docs" / "log-and-metrics.md").read_text("utf-8")
UNIT = REPOSITORY / "docs" / "maptr.service"
UNITS = (UNIT, REPOSITORY / "docs" / "maptr-gateway.service")


# --- configuration.md


def test_every_removed_setting_is_documented() -> None:
    section = CONFIGURATION.partition("## Settings of earlier versions\n")[2].partition("\n## ")[0]
    assert dict(re.findall(r"^\* `([a-z_.]+)`: (.*)\.$", section, re.MULTILINE)) == {
        key: removed.advice for key, removed in REMOVED.items()
    }


@pytest.mark.parametrize("page", ["docs/configuration.md", "docs/admin.md", "docs/operator.md"])
def test_every_toml_example_is_a_valid_configuration(page: str) -> None:
    text = (REPOSITORY / page).read_text("utf-8")
    blocks = re.findall(r"^```toml\b.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        assert tomli.loads(block)
        parse(block)


# --- the log


def messages() -> list[tuple[str, str]]:
    """Return the place in the code and the format of each log line of the server."""
    found = []
    for path in sorted((REPOSITORY / "maptr").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr="isEnabledFor")):
                    continue
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="log"), attr="log"),
                    args=[_, ast.Constant(value=str(text)), *_],
                ):
                    pass
                case ast.Call(func=ast.Attribute(value=ast.Name(id="log")), args=[ast.Constant(value="%s%s"), *_]):
                    continue  # the format is in another place, where it is found
                case ast.Call(func=ast.Attribute(value=ast.Name(id="log")), args=[ast.Constant(value=str(text)), *_]):
                    pass
                case ast.Assign(targets=[ast.Name(id="log_line")], value=ast.JoinedStr(values=parts)):
                    text = "".join(str(part.value) if isinstance(part, ast.Constant) else "%s" for part in parts)
                case ast.Call(func=ast.Attribute(value=ast.Name(id="log"))):
                    text = "\0 a message that is not a literal"
                case _:
                    continue
            found.append((f"{path.relative_to(REPOSITORY)}:{node.lineno}", text))
    return found


def texts() -> Iterator[str]:
    """Yield a pattern for each text in the code."""
    for path in sorted((REPOSITORY / "maptr").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.JoinedStr(values=parts):
                    yield "".join(re.escape(str(p.value)) if isinstance(p, ast.Constant) else ".*" for p in parts)
                case ast.Constant(value=str(text)):
                    yield re.escape(text)


def lines_of(page: str) -> list[str]:
    """Return the log lines on a page: the lines of its blocks, and the first cell of each table row."""
    blocks = "".join(re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    cells = re.findall(r"^\| `([^|]+)` \| ", page, re.MULTILINE)
    return [*blocks.splitlines(), *(line for cell in cells for line in cell.split("`<br>`"))]


LINES = lines_of(LOG.partition("## Metrics")[0])


def as_pattern(message: str) -> str:
    return "".join(".*" if part.startswith("%") else re.escape(part) for part in re.split(r"(%[^a-z]*[a-z])", message))


def test_the_page_lists_exactly_the_log_lines_of_the_server() -> None:
    patterns = {where: as_pattern(message) for where, message in messages()}
    assert len(patterns) > 10
    missing = {where: p for where, p in patterns.items() if not any(re.fullmatch(p, line) for line in LINES)}
    assert not missing
    assert [line for line in LINES if not any(re.fullmatch(p, line) for p in patterns.values())] == []
    # The format "%s" fits every line: what is behind it are the words of a text, such as that of an alarm.
    worded = [pattern for pattern in patterns.values() if has_words(pattern)]
    rest = [line for line in LINES if has_words(line) and not any(re.fullmatch(p, line) for p in worded)]
    assert len(rest) > 10
    said = [re.compile(pattern) for pattern in texts() if has_words(pattern)]
    assert [line for line in rest if not any(text.search(line) for text in said)] == []


def has_words(pattern: str) -> bool:
    return len(re.findall("[a-z]{2,}", re.sub(r"[.][*]|\\.", " ", pattern))) > 1


# --- the systemd units


@pytest.mark.skipif(
    find("systemd-analyze") is None, reason="systemd-analyze is not installed: the units in docs are NOT checked"
)
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
@pytest.mark.parametrize("check", ["verify", "security --offline=yes --threshold=20 --no-pager"])
def test_systemd_accepts_the_units_and_their_exposure_level_is_low(path: Path, check: str, tmp_path: Path) -> None:
    """The exposure levels of Debian's units are: named 9.6, knot 7.0, nsd 5.0, pdns 2.3."""
    unit = shutil.copy(path, tmp_path)
    done = subprocess.run(
        ["systemd-analyze", *check.split(), unit], capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-200:]
    assert ("Overall exposure level" in done.stdout) is check.startswith("security")


# The system call of systemd's MemoryDenyWriteExecute: PR_SET_MDWE (prctl(2), Linux 6.3).
DENY = """
import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):
    sys.exit("no PR_SET_MDWE in this kernel")
os.execv(sys.argv[1], sys.argv[1:])
"""


class MemoryProtected(Maptr):
    """A server that cannot have memory that is both writable and executable."""

    def configure(self) -> list[str]:
        return [sys.executable, "-c", DENY, *super().configure()]


class MemoryProtectedGateway(ConfiguredGateway):
    """A gateway with the same restriction."""

    def configure(self) -> list[str]:
        return [sys.executable, "-c", DENY, *super().configure()]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="systemd's memory protection is Linux's")
def test_the_servers_run_under_the_memory_protection_of_the_units(sample: Path, tmp_path: Path) -> None:
    assert all("MemoryDenyWriteExecute=yes" in unit.read_text() for unit in UNITS)
    probe = subprocess.run([sys.executable, "-c", DENY, sys.executable, "-c", ""], stderr=subprocess.PIPE, text=True)
    if probe.returncode:
        pytest.skip(probe.stderr.strip())
    with MemoryProtected({"ark.arpa.": sample.with_name("ark.arpa.zone")}) as server:
        query = dns.message.make_query("12345.ark.arpa", "NAPTR")
        for ask in (dns.query.udp, dns.query.tcp):
            assert ask(query, server.host, port=server.port, timeout=20).answer
    write_certificate(tmp_path)
    text = 'listen = ["127.0.0.1:0"]\ncertificate = "tls.crt"\nkey = "tls.key"\n'
    (tmp_path / "maptr.toml").write_text(f'[gateway]\n{text}[cache]\npath = "cache.sqlite"\nnatab = "{sample}"\n')
    gateway = MemoryProtectedGateway("--config", str(tmp_path / "maptr.toml"), "--policy", "natab-only")
    trusts = ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))
    try:
        with HttpClient(gateway.launch().ready(), tls=trusts) as client:
            assert client.get("/ark:12345/x54xz321").status == 302
            assert client.get("/", "Accept: text/html").status == 200
    finally:
        gateway.stop()


# --- faults


def increments(site: Site) -> None:
    site.configure('serial = "increment"\n', zones=("b.test", "a.test"), serve='state = "state"')


def test_a_full_disk(site: Site) -> None:
    """A limit on file size simulates a full disk. Files are still read, and queries are answered."""
    increments(site)
    port = site.start()
    limit = resource.prlimit(site.server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(site.server.process.pid, resource.RLIMIT_FSIZE, (0, limit[1]))
    for name in ("a.test", "b.test"):
        site.write_zone(name, zone_text(1 if name == "a.test" else 2, "192.0.2.2"))
    result = site.run("reload")
    assert result.exit_code == 1
    assert "zone a.test. refused, still serving serial 1: " in result.stderr
    assert (address_of("ns.a.test.", port), address_of("ns.b.test.", port)) == ("192.0.2.1", "192.0.2.2")
    resource.prlimit(site.server.process.pid, resource.RLIMIT_FSIZE, limit)
    assert site.run("reload").exit_code == 0
    assert address_of("ns.a.test.", port) == "192.0.2.2"
    assert site.zone("a.test.")["serial"] == 2
    names = sorted(file.name for file in (site.directory / "state").glob("[!.]*"))
    assert names == ["a.test.kept", "a.test.serial", "b.test.kept"]


def test_sigterm_under_load(site: Site) -> None:
    port = site.start()
    with Load(port, patience=2.0) as load, socket.create_connection(("127.0.0.1", port), PATIENCE) as half:
        half.sendall(b"\0")
        until(lambda: load.asked >= 50, lambda: str(load.faults))
        assert not [fault for fault in load.faults if not fault.startswith("Timeout")]  # which a slow machine may reach
        assert site.server.stop(signal.SIGTERM) == 0
    assert site.server.lines[-1] == "maptr: stopped"
    assert not [line for line in site.server.lines if "rror" in line or "Traceback" in line]
    assert not site.socket.exists()


def test_kill_9_under_load_and_during_reloads(site: Site) -> None:
    """After a restart, the serial is never older than the published one."""
    increments(site)
    published = 1
    for number in range(2, 6):
        port = site.start()
        serial = site.zone("a.test.")["serial"]
        assert isinstance(serial, int)
        assert serial >= published
        published = serial
        with Load(port, patience=0.2):
            site.write_zone("a.test", zone_text(1, f"192.0.2.{number}"))
            if number % 2:
                site.run("reload", "a.test")
                published += 1
            else:
                site.server.hang_up()
                time.sleep(0.002 * number)
            site.server.stop(signal.SIGKILL)
        assert site.socket.exists()
    port = site.start()
    site.server.wait_for("left by an earlier process, is replaced")
    assert address_of("ns.a.test.", port) == "192.0.2.5"
    assert site.zone("a.test.")["serial"] == 5


def test_a_zone_is_signed_while_queries_are_answered(site: Site) -> None:
    """A reload makes thousands of signatures."""
    pytest.importorskip("cryptography", reason="signing needs maptr[dnssec]")
    (site.directory / "run").mkdir()
    keys = site.directory / "keys"
    add_key(keys, Role.CSK, Algorithm.ECDSAP256SHA256, KeyState.ACTIVE)
    site.configure('keys = "keys"\n', zones=("a.test", "b.test"), serve='state = "state"')
    port = site.start()
    with Load(port) as load:
        site.write_zone("b.test", zone_text(2) + "".join(f"n{number} A 192.0.2.1\n" for number in range(1500)))
        before = load.asked
        assert site.run("reload", "b.test", "--force").exit_code == 0
        assert load.asked > before
        assert load.faults == []
