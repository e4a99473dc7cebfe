"""The command line of ``maptr serve``: its options, and how each mistake is reported."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from click.testing import Result

from maptr.registry.pull import OFFICIAL
from tests.support.command_line import run, run_process
from tests.support.http_server import pages

SECRET = "c2VjcmV0"


@pytest.fixture
def zone_file(tmp_path: Path) -> Path:
    path = tmp_path / "z"
    path.write_text("$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n")
    return path


def check(zone_file: Path, *options: str) -> Result:
    return run("serve", "--zone", f"example={zone_file}", "--check-config", *options)


def test_the_options_for_secondaries_work_together(zone_file: Path, tmp_path: Path) -> None:
    (tmp_path / "xfr.key").write_text(SECRET + "\n")
    result = check(
        zone_file,
        *("--key", f"xfr=HMAC-SHA512:@{tmp_path}/xfr.key", "--key", f"other=hmac-sha256-128:{SECRET}"),
        *("--transfer", "key:XFR", "--transfer", "192.0.2.0/24 key:other", "--transfer", "::1"),
        *("--notify", "192.0.2.1", "--notify", "[2001:db8::1]:5300 key:xfr"),
        *("--catalog", "catalog.invalid", "--state", str(tmp_path)),
    )
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["xfr.key", "z"], "a check writes nothing"


@pytest.mark.parametrize(
    ("cut", "warned"),
    [("ns NS ns", True), ("a.deep NS ns", False), ("deep NS ns", False), ("x.a.deep NS ns", True)],
    ids=["beside it", "at its apex", "above it", "below it"],
)
def test_a_zone_below_another_needs_a_delegation(zone_file: Path, cut: str, warned: bool) -> None:
    above = zone_file.with_name("above")
    above.write_text(f"{zone_file.read_text()}{cut}\n")
    result = run("serve", "--zone", f"a.deep.test={zone_file}", "--zone", f"test={above}", "--check-config", code=0)
    said = "zone a.deep.test.: test., which is served too, has no NS records for it"
    assert (said in result.stderr) is warned


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        (("--key", "xfr"), 2, "a key is NAME=ALGORITHM:@FILE"),
        (("--key", f"xfr=hmac-md5:{SECRET}"), 2, "is not a known algorithm: hmac-sha1"),
        (("--key", "xfr=hmac-sha256:@/none/xfr.key"), 2, "/none/xfr.key: No such file"),
        (
            ("--transfer", "any"),
            2,
            "'any' is neither an address nor a prefix; a rule has an address, a prefix (0.0.0.0/0",
        ),
        (("--transfer", "key:xfr"), 1, "there is no key xfr;"),
        (("--notify", "::1 key:xfr"), 1, "there is no key xfr;"),
        (("--notify", "example.org"), 2, "is not HOST:PORT"),
        (("--catalog", "example"), 1, "the catalog example. is one of the zones"),
        (("--catalog", "a..b"), 2, "is not a valid domain name: empty label"),
        (("--catalog", ".".join(["x" * 40] * 6)), 1, "name of"),
        (("--state", "/none"), 2, "does not exist"),
        (("--query-log", "-1"), 2, "--query-log"),
        (("--query-log", "x"), 2, "--query-log"),
        (("--zone", "ark.example"), 2, "is not ORIGIN=FILE, and there is no table of ark.example."),
        (("--zone", "=x"), 2, "is not ORIGIN=FILE"),
        (("--zone", "a..b=x"), 2, "is not a valid domain name: empty label"),
        (("--listen", "127.0.0.1"), 2, "is not HOST:PORT"),
        (("--listen", "localhost:53"), 2, "must be an IP address"),
        (("--tls-listen", "127.0.0.1:853"), 2, "--tls-listen: also needs serve.tls.certificate"),
        (("--tls-cert", "c", "--tls-key", "k"), 2, "--tls-cert: also needs serve.tls.listen"),
        (("--nsid", "x" * 256), 2, "--nsid: is longer than 255 bytes"),
        (("--log-level", "loud"), 2, "--log-level"),
        (("--log-format", "xml"), 2, "--log-format"),
        (("--key", f"a=hmac-sha256:{SECRET}", "--key", f"A=hmac-sha1:{SECRET}"), 1, "--key: a. is given twice"),
    ],
)
def test_each_mistake_is_reported(zone_file: Path, options: tuple[str, ...], code: int, why: str) -> None:
    result = check(zone_file, *options)
    assert result.exit_code == code, result.output
    assert why in " ".join(result.output.replace("│", " ").split())
    assert SECRET not in result.output


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ([], 2, "there is no zone to serve: --zone ark.arpa serves the public registry's"),
        (["--zone", "a.test=zone", "--json"], 2, "--json needs --check-config"),
        (["--config", "nowhere.toml"], 8, "nowhere.toml: No such file or directory"),
        (["--config", "bad.toml"], 2, "maptr: bad.toml:2: serve.listen"),
        (["--zone", "a.test=zone", "--listen", "192.0.2.1:53"], 1, "192.0.2.1:53"),
    ],
)
def test_a_failed_start_is_reported(words: list[str], code: int, why: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[serve]\nlisten = 'many'\n")
    done = run_process("serve", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert why in done.stderr


@pytest.mark.parametrize(
    ("mistake", "code", "said"),
    [
        ("listen = ['127.0.0.1:{taken}']", 1, ":3: serve.listen: cannot listen on 127.0.0.1:"),
        ("metrics = '127.0.0.1:{taken}'", 1, ":3: serve.metrics: cannot listen on 127.0.0.1:"),
        ("control = 'file'", 1, ":3: serve.control: {folder}/file exists and is not a socket"),
        ("lisen = []", 2, ":3: serve.lisen: no such key"),
        ("tls = {{listen = ['127.0.0.1:0'], certificate = 'none', key = 'none'}}", 1, ":3: serve.tls.certificate: "),
    ],
)
def test_a_start_fails_before_it_pulls_in_the_format_of_the_log(
    tmp_path: Path, mistake: str, code: int, said: str
) -> None:
    (tmp_path / "file").touch()
    config = tmp_path / "maptr.toml"
    with pages(lambda target: (404, {}, b"")) as registry, socket.create_server(("127.0.0.1", 0)) as taken:
        mistake = mistake.format(taken=taken.getsockname()[1])
        listen = "" if mistake.startswith("listen") else "listen = ['127.0.0.1:0']"
        config.write_text(
            f"[serve]\nlog_format = 'json'\n{mistake}\n{listen}\n[table]\nfile = 'naans'\nurl = '{registry.url}'\n"
            "[[zone]]\nname = 'ark.arpa'\nfile = 'zone'\ntable = 'naans'\n"
        )
        done = run_process("serve", "--config", config)
        config.write_text(config.read_text().replace("'json'", "'text'"))
        with (tmp_path / "journal").open("w") as journal:
            status = os.fstat(journal.fileno())
            environment = os.environ | {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
            run_process("serve", "--config", config, stderr=journal, env=environment)
    error = (tmp_path / "journal").read_text().splitlines()[-1]
    assert error.startswith(f"<3>maptr: {config}{said.format(folder=tmp_path)}")
    last = [json.loads(line) for line in done.stderr.splitlines()][-1]
    assert (done.returncode, last["level"], registry.asked) == (code, "error", [])
    assert last["message"].startswith(f"{config}{said.format(folder=tmp_path)}")


def test_a_start_that_cannot_make_its_table_names_it_and_leaves_no_socket(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = tmp_path / "maptr.toml"
    config.write_text(
        f"[serve]\nlisten = ['127.0.0.1:0']\n[table]\nfile = 'file/naans'\nurl = '{OFFICIAL}'\n"
        "[[zone]]\nname = 'ark.arpa'\nfile = 'zone'\ntable = 'file/naans'\n"
    )
    done = run_process("serve", "--config", config)
    assert done.returncode == 8
    assert f"maptr: {config}:4: table.file: {tmp_path}/file: File exists" in done.stderr.splitlines()
    assert not [*(tmp_path / "run").iterdir()]
