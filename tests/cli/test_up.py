"""``maptr up`` as a process: the registry it serves, the commands that use it, and the files that remain."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import dns.message
import dns.query
import pytest

from maptr import config as configuration
from maptr import paths
from maptr.cli import lookup
from maptr.cli.up import SAMPLE, document_of, find_registry, written
from maptr.config import Config
from maptr.config.model import PullSource, TableConfig
from maptr.protocol.numbers import SERVER_PORT as PORT
from maptr.registry import builtin
from maptr.registry.followed_file import pull_file
from maptr.registry.pull import OFFICIAL
from tests.support.command_line import MAPTR, run, run_process
from tests.support.http_gateway import Reply, get
from tests.support.http_server import http_server, sends
from tests.support.registries import natab
from tests.support.waiting import PATIENCE, until

ARK = "ark:12025/x1"


class User:
    """A user with separate folders, and commands that run with them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.data = home / "data" / "maptr"
        self.running = self.data / "up.toml"
        folders = {f"XDG_{name.upper()}_HOME": str(home / name) for name in ("data", "cache", "config")}
        self.environment = {**os.environ, **folders}
        self.processes: list[Up] = []

    def up(self, *arguments: str) -> Up:
        self.processes.append(Up(self, *arguments))
        return self.processes[-1]

    def run(self, *arguments: str, code: int = 0, said: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command, and check its exit code and a text on stderr."""
        done = run_process(*arguments, cwd=self.home, env=self.environment)
        assert (done.returncode, said in done.stderr) == (code, True), done.stdout + done.stderr
        return done

    def status(self, *arguments: str) -> str:
        """Return what the server says, with an alarm or without."""
        return run_process("status", *arguments, cwd=self.home, env=self.environment).stdout

    def urls(self, *arks: str) -> list[str]:
        return run_process("url", *arks, cwd=self.home, env=self.environment).stdout.splitlines()


class Up:
    """A running ``maptr up``, with its output so far."""

    def __init__(self, user: User, *arguments: str) -> None:
        self._log = user.home / f"up{len(user.processes)}.log"
        with self._log.open("w") as log:
            command = ["env", "--default-signal=HUP", *MAPTR, "up", *arguments]  # these tests may run under nohup
            self.process = subprocess.Popen(command, cwd=user.home, env=user.environment, stdout=log, stderr=log)

    @property
    def said(self) -> str:
        return self._log.read_text()

    def ready(self) -> Up:
        until(lambda: "maptr discover" in self.said or self.process.poll() is not None, "an up that is ready")
        assert self.process.poll() is None, self.said
        return self

    def said_until_end(self) -> str:
        """Wait until it is ready, end it, and return its output."""
        self.ready().end()
        return self.said

    @property
    def port(self) -> int:
        found = re.search(r"serving   127\.0\.0\.1:(\d+) \(udp, tcp\)", self.said)
        assert found is not None, self.said
        return int(found[1])

    @property
    def url(self) -> str:
        """The gateway's URL, without the final slash."""
        found = re.search(r"^  (http://127\.0\.0\.1:\d+)/$", self.said, re.MULTILINE)
        assert found is not None, self.said
        return found[1]

    def ask(self, target: str) -> Reply:
        """Send a request to the gateway and return the response."""
        return get(int(self.url.rpartition(":")[2]), target)

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@pytest.fixture
def user() -> Iterator[User]:
    home = Path(tempfile.mkdtemp(prefix="maptr up-"))  # short enough for a socket, and with a space
    found = User(home)
    yield found
    for one in found.processes:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
    shutil.rmtree(home)


def test_the_sample_answers_every_command_until_it_ends(user: User) -> None:
    up = user.up("--sample").ready()
    assert "THE SAMPLE" in up.said
    assert "checked: no findings" in up.said
    user.run("up", "--sample", said=f"maptr up is already running, on 127.0.0.1#{up.port}")
    done = user.run("url", ARK)
    assert (done.stdout, done.stderr) == ("https://ark.nlm.example.org/ark:/12025/x1\n", "")
    for line in (line for line in up.said.splitlines() if line.startswith("  maptr ")):
        user.run(*shlex.split(line)[1:])
    assert up.end() == 0
    assert up.said.endswith("maptr: stopped\n")
    assert not user.running.exists()
    user.run("url", "ark:00000/x1", "--timeout", "1", code=9)  # asks the system's resolver again
    assert not (user.data / "naans").exists()


def test_the_gateway_serves_the_same_table_and_zone(user: User) -> None:
    up = user.up("--sample").ready()
    assert f"gateway   {up.url}/\n" in up.said
    assert configuration.load(user.running).gateway.rate == 0, "its user may check all links of a site at once"
    user.run("up", "--sample", said=f"on 127.0.0.1#{up.port} and {up.url}/; try")
    found = up.ask(f"/{ARK}")
    assert (found.status, found.headers["location"]) == (302, "https://ark.nlm.example.org/ark:/12025/x1")
    assert up.ask("/ark:12345?info").text.startswith("erc:")
    assert "<html" in up.ask("/").text
    until(lambda: up.ask("/ready").text.startswith("ready\n"), "a gateway that is ready")
    query = dns.message.make_query("12025.ark.arpa.", "NAPTR", id=0)
    question = base64.urlsafe_b64encode(query.to_wire()).rstrip(b"=").decode()
    with urlopen(f"{up.url}/dns-query?dns={question}", timeout=PATIENCE) as response:
        answer = dns.message.from_wire(response.read())
    assert answer.answer == dns.query.udp(query, "127.0.0.1", PATIENCE, up.port).answer
    assert up.end(signal.SIGTERM) == 0


def test_without_the_extra_only_dns_is_served(user: User) -> None:
    (user.home / "sitecustomize.py").write_text("import sys\nsys.modules['aiohttp'] = None\n")
    user.environment["PYTHONPATH"] = os.pathsep.join([str(user.home), *(path for path in sys.path if path)])
    up = user.up("--sample").ready()
    assert "gateway   needs the package aiohttp: pip install 'maptr[gateway]'\n" in up.said
    assert user.urls(ARK) == ["https://ark.nlm.example.org/ark:/12025/x1"]
    user.run("up", "--sample", said=f"maptr up is already running, on 127.0.0.1#{up.port}; try")
    assert up.end() == 0


def test_the_default_is_the_public_registry(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert OFFICIAL == "https://cdluc3.github.io/naan_reg_priv/naan_records.json"
    file = home / "data" / "maptr" / "naans"
    with http_server(sends(natab(10000))) as url:
        monkeypatch.setattr("maptr.cli.up.OFFICIAL", url)
        found = find_registry((), Config(), offline=False, force=False)
        assert (found.file, found.url) == (file, url)
        assert file.read_bytes() == builtin.FILE.read_bytes(), "it starts at once"
        file.unlink()
        other = home / "other"
        other.write_bytes(natab(10000, 10001))
        Path("maptr.toml").write_text(f'[table]\nfile = "configured"\nurl = "{other}"\n')
        config = lookup.read_config(None, running=False) or Config()
        assert find_registry((), config, offline=False, force=False).url == str(other)
        assert Path("configured").read_bytes() == other.read_bytes()
        assert find_registry((str(other),), Config(), offline=False, force=True).url == str(other)
        assert file.read_bytes() == other.read_bytes()
    again = find_registry((), Config(), offline=False, force=False)
    assert (again.file, again.url) == (file, url)


@pytest.mark.parametrize("arguments", [[], ["--offline"]])
def test_without_network_and_table_the_built_in_registry_is_served(user: User, arguments: list[str]) -> None:
    """Every usable record of it answers by DNS and by HTTP."""
    user.environment["HTTPS_PROXY"] = user.environment["https_proxy"] = "http://127.0.0.1:9"
    up = user.up(*arguments).ready()
    assert "registry  built-in table of 2026-07-14" in up.said
    assert user.urls("ark:12148/x1") == ["https://ark.bnf.fr/ark:/12148/x1"]
    by_dns = user.run("url", "--policy", "dns-only", "ark:12148/x1")
    assert by_dns.stdout == "https://ark.bnf.fr/ark:/12148/x1\n"
    assert up.ask("/ark:12148/x1").headers["location"] == "https://ark.bnf.fr/ark:/12148/x1"
    assert up.end() == 0
    rows = user.run("table", "--json").stdout
    assert [one["kind"] for one in json.loads(rows)["tables"] if one["used"]] == ["pulled"]


def test_without_network_a_pull_names_the_tables_that_are_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.cli.pull.OFFICIAL", "http://127.0.0.1:9/naans")
    for arguments in (["table", "pull"], ["table", "pull", "--apply"]):
        assert "maptr table shows the tables" in run(*arguments, code=8, out="").stderr.splitlines()[-1]
    assert not (home / "data" / "maptr" / "naans").exists()


def test_status_and_reload_ask_a_running_maptr_up_without_a_configuration(user: User) -> None:
    user.run("status", code=3)
    up = user.up("--sample").ready()
    assert "zone ark.arpa. serial" in user.run("status").stdout
    user.run("reload", "ark.arpa")
    (user.home / "maptr.toml").write_text('[[zone]]\nname = "b.example"\nfile = "b.zone"\n')
    user.run("status", code=3, said="not running: there is no socket run/maptr.sock, which maptr.toml names")
    assert up.end(signal.SIGHUP) == 0
    assert not user.running.exists()


def test_a_pull_while_the_sample_is_served_writes_the_user_s_table(user: User) -> None:
    up = user.up("--sample").ready()
    (user.home / "mine").write_bytes(natab(10000))
    user.run("table", "pull", "mine", "--apply", "--force")
    assert (user.data / "naans").read_bytes() == natab(10000)
    assert not pull_file(SAMPLE).exists()
    assert up.end(signal.SIGTERM) == 0
    assert not user.running.exists()
    assert "10000" in (user.data / "naans").read_text()


def test_the_registry_is_pulled_and_served_and_the_table_stays(user: User) -> None:
    content = natab(*range(10000, 10010))
    with http_server(lambda request: sends(content)(request)) as url:
        up = user.up(url, "--origin", "ark.example", "--force").ready()  # it lacks most NAANs of the built-in table
        assert f"pulled from {url}" in up.said
        assert user.urls("ark:10003/x1") == ["https://h.example.org/ark:/10003/x1"]
        assert json.loads(user.run("url", "--json", "ark:10003/x1").stdout)["source"] == "dns"
        assert up.ask("/ark:10000/x1").headers["location"] == "https://h.example.org/ark:/10000/x1"
        content = natab(*range(10000, 10011)).replace(b"h.example.org", b"i.example.org", 1)
        user.run("reload", "--config", str(user.running))
        until(lambda: user.urls("ark:10010/x1") == ["https://h.example.org/ark:/10010/x1"], "a pull by the reload")
        until(
            lambda: "//i." in up.ask("/ark:10000/x1").headers["location"],
            "a gateway that forgets the answer of the old zone",
        )
        assert up.end() == 0
    assert "naans remains" in up.said
    user.environment["MAPTR_CLIENT_NAMESERVERS"] = f"127.0.0.1#{up.port}"
    done = user.run("url", "ark:10003/x1")
    assert done.stdout == "https://h.example.org/ark:/10003/x1\n"
    assert "from the table" in done.stderr

    content = natab(10000)
    with http_server(lambda request: sends(content)(request)) as url:
        refused = user.up(url).said_until_end()
        assert re.search(r"registry  not pulled, .*pull --force --apply(?s:.*)pulled table of", refused)
        assert "2 names" in user.up(url, "--force").said_until_end()
    assert re.search(
        r"registry  not pulled, keeping the old one: (?s:.*)pulled table of", user.up(url).said_until_end()
    )
    offline = user.up("--offline").said_until_end()
    assert ("registry  pulled table of" in offline, "pulling from" in offline) == (True, False)


def test_each_pull_applies_the_checks_of_the_configuration(user: User) -> None:
    from tests.support.registries import PUB, signature

    files = {"/naans": natab(10000), "/naans.minisig": signature(natab(10000)).encode()}

    def serve(request: Any) -> None:
        sends(files.get(request.path, b""), 200 if request.path in files else 404)(request)

    (user.home / "registry.pub").write_text(PUB)
    with http_server(serve) as url:
        (user.home / "maptr.toml").write_text(f'[table]\nfile = "naans"\nurl = "{url}"\npublic_key = "registry.pub"\n')
        user.up().ready()
        assert (user.home / "naans").read_bytes() == natab(10000)
        files["/naans"] = natab(10000, 10001)
        config = ("--config", str(user.running))
        user.run("reload", *config)
        until(lambda: "the signature is not valid" in user.status(*config), "the refusal")
        assert (user.home / "naans").read_bytes() == natab(10000)


def test_maptr_up_starts_after_another_was_killed(user: User) -> None:
    up = user.up("--sample").ready()
    assert up.end(signal.SIGKILL) == -signal.SIGKILL
    assert user.running.exists()
    user.run("url", ARK, "--no-cache", "@127.0.0.1#9", code=9)
    user.environment["MAPTR_CLIENT_NAMESERVERS"] = "127.0.0.1#9"
    user.run("url", "ark:00000/x1", code=9)  # the sample does not replace a dead server
    del user.environment["MAPTR_CLIENT_NAMESERVERS"]
    again = user.up("--sample").ready()
    assert "THE SAMPLE" in again.said
    assert "pulled before" not in again.said, "the sample is not a registry that was pulled"
    user.run("discover", "--no-cache", ARK)
    assert again.end() == 0


@pytest.mark.parametrize(("option", "kind"), [("--port", socket.SOCK_DGRAM), ("--http-port", socket.SOCK_STREAM)])
def test_a_port_in_use_is_an_error(option: str, kind: int, user: User) -> None:
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            sock.listen()
        taken = sock.getsockname()[1]
        user.run("up", "--sample", option, str(taken), code=1, said=f"maptr: cannot listen on 127.0.0.1:{taken}: ")
    assert not user.running.exists()


def test_a_free_port_is_used_if_the_default_is_in_use(user: User) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        with suppress(OSError):  # another test may hold the port for a moment
            sock.bind(("127.0.0.1", PORT))
        ours = sock.getsockname()[1] == PORT
        up = user.up("--sample").ready()
    assert not ours or (
        f"on a free port, because cannot listen on 127.0.0.1:{PORT}: Address already in use" in up.said
        and up.port != PORT
    )
    user.run("url", ARK, f"@127.0.0.1#{up.port}")
    other = User(user.home / "other")
    other.home.mkdir()
    user.processes.append(second := other.up("--sample").ready())
    assert (second.port != up.port, second.url != up.url) == (True, True), "the second gateway has a free port, too"
    assert (second.end(), up.end()) == (0, 0)


def test_a_message_names_a_configuration_that_takes_precedence(user: User) -> None:
    (user.home / "maptr.toml").write_text('[client]\nnameservers = ["127.0.0.1#9"]\n')
    up = user.up("--sample").ready()
    assert "but maptr.toml takes precedence" in up.said
    up.end()
    (user.home / "maptr.toml").write_text('[table]\nfile = "naans"\nurl = "http://127.0.0.1:9/"\npublic_key = "none"\n')
    user.run("up", code=1, said="table.public_key: none: No such file")


def test_without_a_home_directory_no_folder_is_named_tilde(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "HOME" and not name.startswith("XDG_")}
    assert paths.data_folder({**environment, "HOME": "/h"}) == "/h/.local/share/maptr"
    code = "import os; os.path.expanduser = lambda path: path; from maptr import paths; print(paths.data_folder({}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "/nonexistent/.local/share/maptr\n"


def test_the_packaged_sample_equals_the_sample_of_the_project() -> None:
    assert SAMPLE.read_bytes() == (Path(__file__).resolve().parents[2] / "zones" / "sample.json").read_bytes()


@pytest.mark.parametrize("table", [SAMPLE, Path("/t/naans\\'\"é\u2028")], ids=["sample", "odd name"])
@pytest.mark.parametrize("http_port", [None, 8080])
def test_other_commands_read_the_configuration_that_is_served(table: Path, http_port: int | None) -> None:
    key = Path("/t/key.pub")
    pulled = TableConfig(table, PullSource(OFFICIAL), (PullSource("https://m.example/"),), 3600, "a" * 64, key)
    document = document_of(pulled, (b"ark", b"example"), Path("/t"), "::1", 5300, http_port)
    served = configuration.from_document(document, filename="up.toml", directory=Path("/t"))
    read = configuration.parse(written(document), filename="up.toml", directory=Path("/t"))
    assert (read, {*read.locations}) == (served, {*served.locations})
    assert served.table == (TableConfig() if table == SAMPLE else pulled)
    assert served.zones[0].table == table
