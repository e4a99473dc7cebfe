"""The exit codes of a start: 2 for mistakes in the text of the configuration, others for errors that may go away, after
which systemd tries again; ``--check-config`` gives 1 for both."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from maptr.cli import output
from tests.support.certificates import write_certificate
from tests.support.command_line import run, run_process
from tests.support.peers import Maptr
from tests.support.server_process import zone_text

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = (ROOT / "docs" / "reference.md").read_text("utf-8")
UNITS = [(ROOT / "docs" / name).read_text("utf-8") for name in ("maptr.service", "maptr-gateway.service")]
ZONE = '[[zone]]\nname = "a.test"\nfile = "a.zone"\n'
KEY = '[[key]]\nname = "xfr"\nsecret_file = "xfr.key"\n'

SERVE_TEXT = {
    "not TOML": "[serve\n",
    "not UTF-8": "# \udce9\n",
    "no such key": f"[serve]\nlisen = []\n{ZONE}",
    "no such table": f"[server]\n{ZONE}",
    "a wrong type": f'[serve]\nlisten = "many"\n{ZONE}',
    "not an address": f'[serve]\nlisten = ["localhost:53"]\n{ZONE}',
    "out of bounds": f"[serve]\nudp_payload = 1\n{ZONE}",
    "a missing key": '[[zone]]\nname = "a.test"\n',
    "a zone twice": f"{ZONE}{ZONE}",
    "no zone": "[serve]\n",
    "a key that is not there": f'{ZONE}transfer = ["key:xfr"]\n',
    "without effect": f'[serve.tls]\ncertificate = "tls.crt"\n{ZONE}',
    "an alarm of another zone": f'[serve]\nsilence = ["drift b.test"]\n{ZONE}',
    "a secondary twice": f'{ZONE}notify = ["192.0.2.1", "192.0.2.1"]\n',
    "the catalog is a zone": f'[serve.catalog]\nname = "a.test"\n{ZONE}',
}
SERVE_MACHINE = {
    "an address in use": ('[serve]\nlisten = ["127.0.0.1:{taken}"]\n{zone}', 1),
    "an address of another machine": ('[serve]\nlisten = ["192.0.2.1:5300"]\n{zone}', 1),
    "metrics in use": ('[serve]\nlisten = ["127.0.0.1:0"]\nmetrics = "127.0.0.1:{taken}"\n{zone}', 1),
    "a missing certificate": ('[serve.tls]\nlisten = ["127.0.0.1:0"]\ncertificate = "no"\nkey = "no"\n{zone}', 1),
    "a damaged certificate": (
        '[serve.tls]\nlisten = ["127.0.0.1:0"]\ncertificate = "other"\nkey = "other"\n{zone}',
        1,
    ),
    "a missing secret": ("{key}{zone}", 1),
    "a damaged secret": ("{key}{zone}", 1),
    "a secret that others read": ("{key}{zone}", 1),
    "a mistake in the text, too": ('[serve]\nuser = "nouser9"\nlisen = []\n{zone}', 1),
    "a user": ('[serve]\nuser = "nouser9"\n{zone}', 1),
    "a control socket": ('[serve]\ncontrol = "other"\n{zone}', 1),
    "a key of the table": ('{zone}[table]\nfile = "naans"\nurl = "https://a.example"\npublic_key = "no"\n', 1),
    "an extension": ('[client]\nchoose = "campus"\n{zone}', 1),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a zone, and a configuration that a test writes; nothing of the machine's configuration."""
    monkeypatch.chdir(tmp_path)
    for name in ("DATA", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "home"))
    (tmp_path / "a.zone").write_text(zone_text(1))
    (tmp_path / "other").write_text("not what it should be")
    return tmp_path


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock.getsockname()[1]


def codes(folder: Path, text: str, command: str = "serve", *options: str) -> tuple[int, int]:
    """Return the exit codes of a start and of a check."""
    (folder / "maptr.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    words = (command, "--config", "maptr.toml", *options)
    return run_process(*words, timeout=60).returncode, run(*words, "--check-config").exit_code


@pytest.mark.parametrize("text", SERVE_TEXT.values(), ids=SERVE_TEXT)
def test_a_start_gives_2_for_what_the_text_shows(folder: Path, text: str) -> None:
    assert codes(folder, text) == (2, 1)


@pytest.mark.parametrize(("text", "code"), SERVE_MACHINE.values(), ids=SERVE_MACHINE)
def test_a_start_gives_another_code_for_what_the_machine_may_change(
    folder: Path, taken: int, text: str, code: int, request: pytest.FixtureRequest
) -> None:
    secret = folder / "xfr.key"
    if "a missing secret" not in request.node.name:
        secret.write_text("c2VjcmV0" if "others" in request.node.name else "?")
        secret.chmod(0o644 if "others" in request.node.name else 0o600)
    filled = text.replace("{zone}", ZONE).replace("{key}", KEY).replace("{taken}", str(taken))
    start, check = codes(folder, filled)
    assert start == code
    assert check in (0, 1)  # a check binds no address


def test_the_lock_of_another_server_is_tried_again(folder: Path) -> None:
    text = f'[serve]\nlisten = ["127.0.0.1:0"]\nstate = "state"\ncontrol = ""\n{ZONE}'
    (folder / "first.toml").write_text(text)
    first = Maptr({}, "--config", str(folder / "first.toml"))
    try:
        first.launch().ready()
        assert codes(folder, text) == (1, 0)
    finally:
        first.stop()


def test_a_configuration_that_cannot_be_read_is_8(folder: Path) -> None:
    assert run_process("serve", "--config", "maptr.toml").returncode == 8
    assert run_process("serve", env={**os.environ, "MAPTR_CONFIG": str(folder / "maptr.toml")}).returncode == 8
    assert run_process("gateway", "--config", "maptr.toml").returncode == 8
    (folder / "maptr.toml").mkdir()
    assert run_process("serve", "--config", "maptr.toml").returncode == 8


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--nsid", "x" * 256), 2),
        (("--transfer", "key:xfr"), 2),
        (("--listen", "nowhere"), 2),
        (("--key", "xfr=hmac-sha256:@/none/xfr.key"), 8),
        (("--zone", "ark.example"), 8),
        (("--listen", "127.0.0.1:{taken}"), 1),
        (("--listen", "127.0.0.1:{taken}", "--user", "nobody"), 1),
        (("--user", "nouser9"), 1),
        (("--tls-listen", "127.0.0.1:0", "--tls-cert", "no", "--tls-key", "no"), 1),
    ],
)
def test_options_of_a_start(folder: Path, taken: int, options: tuple[str, ...], code: int) -> None:
    words = [option.replace("{taken}", str(taken)) for option in options]
    done = run_process("serve", "--zone", "a.test=a.zone", *words, timeout=60)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr


def test_a_variable_is_a_part_of_the_configuration(folder: Path) -> None:
    words = ("serve", "--zone", "a.test=a.zone", "--listen", "127.0.0.1:0")
    for name, value in (("MAPTR_SERVE_UDP_PAYLOAD", "1"), ("MAPTR_SERVE_LISEN", "x")):
        assert run_process(*words, env={**os.environ, name: value}, timeout=60).returncode == 2
    assert run_process(*words, env={**os.environ, "MAPTR_SERVE_USER": "nouser9"}, timeout=60).returncode == 1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[gateway\n", 2),
        ("[gateway]\nlisen = []\n", 2),
        ("[gateway]\nrate = -1\n", 2),
        ('[gateway]\nlisten = ["127.0.0.1:{taken}"]\n', 1),
        ('[gateway]\nlisten = ["127.0.0.1:0"]\ncertificate = "no"\nkey = "no"\n', 1),
        ('[client]\nchoose = "campus"\n', 1),
    ],
)
def test_a_start_of_the_gateway(folder: Path, taken: int, text: str, code: int) -> None:
    pytest.importorskip("aiohttp", reason="the gateway needs maptr[gateway]")
    start, check = codes(folder, text.replace("{taken}", str(taken)), "gateway", "--policy", "natab-only")
    assert start == code
    assert check in (0, 1)


def test_the_units_try_again_whatever_an_edit_need_not_mend() -> None:
    """The restarts after a failure never reach the limit of starts."""
    for unit in UNITS:
        found = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))
        assert (found["Restart"], found["RestartPreventExitStatus"]) == ("on-failure", str(output.EXIT_USAGE))
        assert 0 < float(found["StartLimitIntervalSec"]) < float(found["RestartSec"]) * int(found["StartLimitBurst"])


def test_the_page_has_every_exit_code() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d+) \| ", REFERENCE.partition("## Limits")[0], re.MULTILINE)}
    assert listed == {value for name, value in vars(output).items() if name.startswith("EXIT_")}


@pytest.mark.skipif(os.geteuid() != 0, reason="root checks a configuration for the user of the server")
def test_root_checks_a_secret_that_the_group_of_the_server_reads(folder: Path) -> None:
    """As the credentials of systemd and the keys of Debian's daemons are; a server that runs as root refuses it."""
    write_certificate(folder)
    (folder / "xfr.key").write_text("c2VjcmV0")
    (folder / "xfr.key").chmod(0o440)
    assert codes(folder, f'[serve]\nlisten = ["192.0.2.1:1"]\n{KEY}{ZONE}') == (1, 0)
    said = run_process("serve", "--config", "maptr.toml", timeout=60).stderr
    assert "xfr.key: has mode 0440: others can read or change the secret" in said
