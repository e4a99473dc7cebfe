"""All commands: suggestions for mistyped words, help texts, and options with one name everywhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from maptr.cli import COMMANDS as LAZY
from maptr.cli import PAGES, SECTIONS
from maptr.cli.group import main
from maptr.cli.options import SettingOption
from maptr.config.model import ServeConfig, all_keys
from maptr.config.reference import plain
from maptr.protocol.address import Address
from maptr.protocol.numbers import SERVER_PORT
from tests.support.command_line import MAPTR, run

COLUMNS = 80
REPOSITORY = Path(__file__).resolve().parents[2]


def commands(command: click.Command = main, words: tuple[str, ...] = ()) -> dict[tuple[str, ...], click.Command]:
    """Return every command and group by its words."""
    found = {words: command}
    if isinstance(command, click.Group):
        with click.Context(command) as ctx:
            for name in command.list_commands(ctx):
                below = command.get_command(ctx, name)
                assert below is not None
                found |= commands(below, (*words, name))
    return found


COMMANDS = commands()


def options(*words: str) -> dict[str, click.Option]:
    """Return the options of a command by each of their names."""
    return {name: one for one in COMMANDS[words].params if isinstance(one, click.Option) for name in one.opts}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_fits_a_terminal_and_has_sentences_exit_codes_and_its_page(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*words, "--help"], terminal_width=COLUMNS)
    assert result.exit_code == 0
    assert [line for line in result.stdout.splitlines() if len(line) > COLUMNS] == []
    exit_codes = "Exit codes:\n    0  " in result.stdout and "\n    2  bad usage" in result.stdout
    command = COMMANDS[words]
    assert exit_codes or isinstance(command, click.Group)
    texts = [command.get_short_help_str(200)]
    texts += [one.help for one in command.params if isinstance(one, click.Option) and one.help]
    said = [re.sub(r"  \[[^]]*default: .*", "", text) for text in texts]
    assert [text for text in said if not re.match(r"[A-Z].*\.$", text, re.DOTALL)] == []
    *_, empty, last = result.stdout.splitlines()
    assert (empty, last[:6]) == ("", "More: ")
    page = (REPOSITORY / last.removeprefix("More: ")).read_text()
    assert " ".join(("maptr", *words[:1])) in page


def test_the_groups_of_help_have_every_command_once() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(LAZY)
    assert PAGES.keys() == LAZY.keys() | {""}


def test_the_default_port_is_the_same_everywhere_and_not_that_of_mdns() -> None:
    assert ServeConfig().listen == (Address("127.0.0.1", SERVER_PORT),)
    for command in ("serve", "up"):
        shown = " ".join(run(command, "--help").stdout.split())
        assert re.search(rf"\[default: (127\.0\.0\.1:)?{SERVER_PORT}\b", shown), command
    for page in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))):
        assert not re.search(r"\b5353\b", page.read_text()), page.name


# The options of commands that look up ARKs, each with one help text.
LOOKUP_OPTIONS = {
    *("--origin", "--trust-ad", "--trust-anchor", "--require", "--allow-private", "--table", "--policy"),
    *("--no-cache", "--config"),
}


@pytest.mark.parametrize("command", ["discover", "url", "bulk", "info"])
def test_commands_that_look_up_arks_have_the_same_options(command: str) -> None:
    found = options(command)
    assert {key: found[key].help for key in LOOKUP_OPTIONS} == {key: options("url")[key].help for key in LOOKUP_OPTIONS}
    assert {"--timeout", "--json"} <= found.keys()


@pytest.mark.parametrize("command", ["table drift", "table pull", "table probe", "discover"])
@pytest.mark.parametrize("seconds", ["0", "nan", "inf", "1e10"])
def test_a_timeout_without_end_or_of_0_is_refused(command: str, seconds: str) -> None:
    run(*command.split(), "--timeout", seconds, "x", code=2, said="--timeout")


@pytest.mark.parametrize(
    "words",
    [
        *("table check", "table pull", "zone check", "zone sign ZONE", "zone keys list", "redirects check", "bulk"),
        *("url x --config", "url x --table", "url x --trust-anchor", "url x --origin", "serve --config"),
        *("status --control", "stats", "table export ZONE --format csv -o", "zone build ZONE --contact"),
        *("zone keys ds KEYS", "gateway --table", "up", "reload", "control notify"),
    ],
)
def test_an_empty_name_of_a_file_or_domain_is_refused(words: str) -> None:
    """A shell makes one of an empty variable in quotation marks. It must not mean the current folder, or the root."""
    run(*words.split(), "", code=2, said="empty")


@pytest.mark.parametrize("words", ["table pull x --table", "table drift --html", "stats", "zone keys add"])
def test_a_dash_is_refused_where_neither_standard_stream_can_be_meant(words: str) -> None:
    run(*words.split(), "-", code=2, said="- is not a file name")


def test_help_does_not_need_the_current_folder(tmp_path: Path) -> None:
    command = ["sh", "-c", 'mkdir gone; cd gone; rmdir ../gone; "$@" --help', "sh", *MAPTR]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.startswith("Usage: maptr")


@pytest.mark.parametrize(
    ("option", "having"),
    [
        ("--config", ["table drift", "table probe", "table pull", "up", "serve", "reload", "status"]),
        ("--json", ["zone build", "zone sign", "serve"]),
    ],
)
def test_an_option_is_on_every_command_that_needs_it(option: str, having: list[str]) -> None:
    assert [command for command in having if option not in options(*command.split())] == []


# ---- options that override a setting

SETTINGS = [
    (" ".join(words), one)
    for words, command in COMMANDS.items()
    for one in command.params
    if isinstance(one, SettingOption)
]


@pytest.mark.parametrize(("command", "option"), SETTINGS, ids=lambda one: one if isinstance(one, str) else one.key)
def test_an_option_shows_the_help_text_and_the_default_of_its_setting(command: str, option: SettingOption) -> None:
    setting = all_keys()[option.key]
    kind, text = setting.metadata["type"], option.help or ""
    assert text.lower().startswith(plain(setting.metadata["help"]).lower())
    assert re.search(r"  \[.*default: \S.*, or configured\]$", text)
    assert ("The option can be repeated." in text) is option.multiple is kind.is_list
    if kind.words:
        assert isinstance(option.type, click.Choice)
        assert tuple(option.type.choices) == tuple(kind.words)


def test_no_other_option_says_that_it_may_be_configured() -> None:
    others = [one for command in COMMANDS.values() for one in command.params if not isinstance(one, SettingOption)]
    found = {one.opts[0] for one in others if "or configured]" in (getattr(one, "help", None) or "")}
    assert found == {"--table"}, "of table pull, which may be any file"


def test_a_look_up_with_options_does_not_import_the_settings() -> None:
    code = "import maptr.cli.discover, sys; print('maptr.config.model' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


# ---- mistyped words


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("discoverr",), "No such command 'discoverr'. Did you mean 'discover'?"),
        (("help",), "No such command 'help'. Did you mean '--help'?"),
        (("notify",), "No such command 'notify'. Did you mean 'control notify'?"),
        (("pull",), "No such command 'pull'. Did you mean 'table pull' or 'control pull'?"),
        (("keys", "list"), "No such command 'keys'. Did you mean 'zone keys'?"),
        (("zone", "biuld"), "No such command 'biuld'. Did you mean 'build'?"),
        (("zone", "keys", "ad"), "No such command 'ad'. Did you mean 'add'?"),
        (("no such",), "No such command 'no such'."),
        (("bnf",), "No such command 'bnf'. maptr naan bnf finds an organisation."),
        (("12345/x6",), "no ark: label in '12345/x6': is it ark:12345/x6?"),
        (("url", "12345/x6"), "no ark: label in '12345/x6': is it ark:12345/x6?"),
        (("url", "ark:1/x", "127.0.0.1#5300"), "no ark: label in '127.0.0.1#5300': is it '@127.0.0.1#5300'?"),
        (("discover", "ark:1/x", "2001:db8::1"), "no ark: label in '2001:db8::1': is it '@2001:db8::1'?"),
        (("url", "https://example.org/x6"), "no ark: label in 'https://example.org/x6'"),
    ],
)
def test_a_mistyped_word_gets_a_suggestion(words: tuple[str, ...], error: str) -> None:
    result = run(*words, code=2, out="")
    assert result.stderr.splitlines()[-1] == f"Error: {error}"


def test_a_mistyped_option_gets_a_suggestion() -> None:
    result = run("discover", "--shrt", "ark:12345/x1", code=2)
    assert "--short" in result.stderr.splitlines()[-1]
