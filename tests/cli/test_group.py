"""What ``maptr`` and its groups of commands say of a word that they do not know."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from maptr.cli.group import main


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("discoverr",), "No such command 'discoverr'. Did you mean 'discover'?"),
        (("statu",), "No such command 'statu'. Did you mean 'status'?"),
        (("help",), "No such command 'help'. Did you mean '--help'?"),
        (("version",), "No such command 'version'. Did you mean '--version'?"),
        (("zone", "biuld"), "No such command 'biuld'. Did you mean 'build'?"),
        (("table", "help"), "No such command 'help'. Did you mean '--help'?"),
        (("zone", "keys", "ad"), "No such command 'ad'. Did you mean 'add'?"),
        (("nonsense",), "No such command 'nonsense'."),
        (("12345/x6",), "no ark: label in '12345/x6': is it 'ark:12345/x6'?"),
        (("url", "12345/x6"), "no ark: label in '12345/x6': is it 'ark:12345/x6'?"),
        (("url", "ark:1/x", "127.0.0.1#5300"), "no ark: label in '127.0.0.1#5300': is it '@127.0.0.1#5300'?"),
        (("discover", "ark:1/x", "2001:db8::1"), "no ark: label in '2001:db8::1': is it '@2001:db8::1'?"),
        (("url", "https://example.org/x6"), "no ark: label in 'https://example.org/x6'"),
    ],
)
def test_what_is_unknown_is_answered_with_what_was_meant(words: tuple[str, ...], error: str) -> None:
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == f"Error: {error}"


def test_a_mistyped_option_is_answered_with_the_right_one() -> None:
    result = CliRunner().invoke(main, ["discover", "--shrt", "ark:12345/x1"])
    assert result.exit_code == 2
    assert "--short" in result.stderr.splitlines()[-1]
