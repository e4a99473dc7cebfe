"""The shortest way into ``maptr serve`` reads a line as click does, or leaves it to click."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maptr.cli import brief, main, serve, serveoptions, serving
from maptr.cli.serveoptions import OPTIONS, Line

# By option, texts that are values of it and texts that are not, or hardly.
TEXTS = {
    "--config": ("maptr.toml", "", "a=b", "-"),
    "--zone": ("ark.arpa=ark.arpa.zone", "a.=b=c", "=", "a", "a..b=c", "\udcff=x"),
    "--listen": ("127.0.0.1:5300", "[::1]:0", "[0:0::1]:53", "::1:53", "127.0.0.1", "127.0.0.1:99999", "localhost:53"),
    "--metrics": ("127.0.0.1:9153", "x", ""),
    "--log-level": ("info", "loud", ""),
    "--log-format": ("json", "text", "xml"),
    "--query-log": ("1", "0", "-1", "x", ""),
    "--user": ("maptr", "maptr:dns", "", ":"),
    "--control": ("run/maptr.sock", ""),
    "--tls-listen": ("127.0.0.1:853", "853"),
    "--tls-cert": ("cert.pem",),
    "--tls-key": ("key.pem", "--tls-key"),
    "--nsid": ("here", "--help", "ü"),
    "--key": ("xfr=hmac-sha256:MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=", "xfr=hmac-md5:eA==", "x"),
    "--transfer": ("192.0.2.0/24", "192.0.2.1/24", "key:xfr", "2001:db8::/32 key:xfr", "nobody"),
    "--notify": ("192.0.2.1", "[2001:db8::1]:5300 key:xfr", "ns.example"),
    "--catalog": ("catalog.invalid", "Catalog.Invalid.", "a..b", ""),
    "--state": (".", "/", "/nowhere", __file__),
}
ODD: tuple[str, ...] = (
    "",
    "--help",
    "-h",
    "--check-config",
    "--check-config=1",
    "--json",
    "--zon=a=b",
    "--unknown",
    "word",
    "--",
    "-",
)
ODD += ("--zone",)


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    words: list[str] = []
    for name in draw(st.lists(st.sampled_from([*TEXTS, ""]), max_size=6)):
        if not name:
            words += draw(st.lists(st.sampled_from(ODD), max_size=1))
            continue
        text = draw(st.sampled_from(TEXTS[name]))
        words += [f"{name}={text}"] if draw(st.booleans()) else [name, text]
    return words


def by_click(words: list[str]) -> Line | None:
    """The line as click hands it on; None where click says something else."""
    found: list[Line] = []
    patched = pytest.MonkeyPatch()
    patched.setattr(serving, "serve", found.append)
    try:
        serve.serve.main(words, standalone_mode=False)
    except click.ClickException:
        return None
    finally:
        patched.undo()
    return found[0] if found else None


@settings(max_examples=400, deadline=None)
@given(lines())
def test_a_plain_line_says_what_it_says_to_click(words: list[str]) -> None:
    line = serveoptions.plain(words)
    assert line is None or line == by_click(words)


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - {"--key"}))
def test_every_option_but_one_is_plain(name: str) -> None:
    text = TEXTS[name][0]
    for words in ([name, text], [f"{name}={text}"]):
        line = serveoptions.plain(words)
        assert line is not None
        assert line == by_click(words)
        assert line != serveoptions.plain([])


def test_each_option_is_tried_here() -> None:
    assert {option.name for option in OPTIONS} == {*TEXTS, "--check-config", "--json"}


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--check-config", "--zone", "a=b"],
        ["word"],
        ["--zone"],
        ["--zone", "--listen"],
        ["--workers", "2"],
        ["--state", "/nowhere"],
        ["--key", "xfr=hmac-sha256:@/dev/stdin"],  # a pipe can be read once
    ],
)
def test_what_is_odd_is_left_to_click_and_nothing_is_read_twice(words: list[str]) -> None:
    assert serveoptions.plain(words) is None


def complaint(*words: str, **options: Any) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60, check=False, **options)
    return done.returncode, done.stdout, re.sub(r"(?m)^20\S+Z ", "", done.stderr)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 2),
        (["--tls-listen", "127.0.0.1:853"], 2),
        (["--zone", "a.test=zone", "--zone", "a.test=zone"], 1),
        (["--config", "nowhere.toml"], 8),
        (["--config", "bad.toml"], 1),
        (["--zone", "a.test=zone", "--state", "nowhere"], 2),
        (["--zone", "a.test=zone", "--listen", "192.0.2.1:53"], 1),
    ],
)
def test_both_ways_fail_alike(words: list[str], code: int, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[serve]\nlisten = 'many'\n")
    ours = complaint("-m", "maptr", "serve", *words, cwd=tmp_path)
    by_way_of_click = "import sys, maptr.cli; maptr.cli.main(sys.argv[1:], prog_name='maptr')"
    assert ours == complaint("-c", by_way_of_click, "serve", *words, cwd=tmp_path)
    assert (ours[0], ours[1]) == (code, "")
    assert ours[2]


def test_completion_is_click_s() -> None:
    assert brief.answer(["serve", "--zone", "a=b"], {brief.COMPLETION: "bash_complete"}) is None


def test_help_names_every_option() -> None:
    (command,) = (main.get_command(click.Context(main), "serve"),)
    assert command is not None
    assert {name for parameter in command.params for name in parameter.opts} == {option.name for option in OPTIONS}
