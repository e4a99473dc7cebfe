"""The click group of all commands, with suggestions for mistyped words, and the base class of commands."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from inspect import cleandoc
from io import StringIO
from pathlib import Path
from textwrap import fill
from types import MappingProxyType
from typing import Any, NoReturn

import click

from maptr import __version__
from maptr.cli import COMMANDS, PAGES, SECTIONS, Lazy, is_discover, output
from maptr.errors import ArkSyntaxError, ConfigError, MissingExtra, nearest

ROOT = Path(__file__).resolve().parents[2]
COLUMN = 12  # the column at which the help texts of commands begin
WITH_VERBS = ("table", "zone", "control")  # commands whose verbs users type alone, as for rndc and knotc
POSIX_MODULES = ("fcntl", "grp", "pwd", "resource")  # which the servers need, and Windows lacks
MIN_LIKENESS = 0.6  # difflib's ratio between a mistyped word and the suggestion


def _set_color(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Set click's ``color`` for this command and for those above it, which report its errors."""
    above: click.Context | None = ctx
    while value is not None and above is not None:
        above.color = {"always": True, "never": False}.get(value)
        above = above.parent


class Command(click.Command):
    """A command with ``--color``. Its help lists ``exits``, code -> meaning, and ends with its documentation page."""

    def __init__(self, *args: Any, exits: Mapping[int, str] = MappingProxyType({}), **options: Any) -> None:
        super().__init__(*args, **options)
        if exits:
            codes = sorted({output.EXIT_USAGE: "bad usage", **exits}.items())
            rows = (
                fill(f"  {code}  {why}", 76, subsequent_indent="     ", break_on_hyphens=False) for code, why in codes
            )
            self.help = "\n".join((cleandoc(self.help or ""), "", "\b", "Exit codes:", *rows))
        color = click.Option(
            ["--color"],
            type=click.Choice(output.COLORS),
            is_eager=True,
            expose_value=False,
            callback=_set_color,
            hidden=not isinstance(self, MainGroup),
            help="When to use colours: auto is on a terminal. For auto, NO_COLOR in the environment means never, and "
            "FORCE_COLOR or CLICOLOR_FORCE means always. JSON has no colours. The option may also follow the command.  "
            "[default: auto]",
        )
        self.params.append(color)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        words = ctx.command_path.split()
        formatter.write(f"\nMore: {page(PAGES[words[1] if len(words) > 1 else ''])}\n")


command = partial(click.command, cls=Command)


def page(name: str) -> str:
    """Return the path of a page of ``docs/``, in the source or the installed package, or else its URL."""
    for folder in (ROOT / "docs", Path(sys.prefix) / "share" / "doc" / "maptr" / "docs"):
        if (folder / name).is_file():
            return str(folder / name)
    from importlib.metadata import metadata  # late: only a --help needs it

    urls = dict(line.split(", ", 1) for line in metadata("maptr").get_all("Project-URL", []))
    return f"{urls['Documentation']}/{name}"


class Group(Command, click.Group):
    """A group that suggests the nearest name for an unknown command, and reports the errors of its commands.

    Its ``lazy`` commands, name -> (module, attribute, short help), are imported when they are used. Its help shows its
    commands in ``sections``, title -> names.
    """

    command_class = Command

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, Lazy] = MappingProxyType({}),
        sections: Mapping[str, Sequence[str]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._lazy = lazy
        self._sections = sections

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands, *self._lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, attribute, _ = self._lazy[cmd_name]
        try:
            command: click.Command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name not in POSIX_MODULES:
                raise
            return _without_posix(cmd_name, error.name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = {name: command.get_short_help_str(80) for name, command in self.commands.items()}
        rows |= {name: help_text for name, (_, _, help_text) in self._lazy.items()}
        for title, names in (self._sections or {"Commands": self.list_commands(ctx)}).items():
            with formatter.section(title):
                formatter.write_dl([(name, rows[name]) for name in names], col_spacing=COLUMN - max(map(len, names)))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if not ctx.resilient_parsing and not word.startswith("-") and self.get_command(ctx, word) is None:
            options = [name for param in self.get_params(ctx) for name in param.opts if name.startswith("--")]
            near = nearest(word, [*self.list_commands(ctx), *options], likeness=MIN_LIKENESS)
            search = f" maptr naan {word} finds an organisation." if ctx.parent is None and word.isalnum() else ""
            deeper = (f"{name} {word}" for name in WITH_VERBS if name in self._lazy and word in self._verbs(ctx, name))
            advised = " or ".join(map(repr, deeper)) or (near and repr(near))
            advice = f" Did you mean {advised}?" if advised else search
            raise click.UsageError(f"No such command {word!r}.{advice}", ctx)
        return super().resolve_command(ctx, args)

    def _verbs(self, ctx: click.Context, name: str) -> Sequence[str]:
        """Return what may follow the command of that name: its own commands, or the choices of its first argument."""
        command = self.get_command(ctx, name)
        if isinstance(command, click.Group):
            return command.list_commands(ctx)
        kind = command.params[0].type if command is not None and command.params else None
        return kind.choices if isinstance(kind, click.Choice) else ()

    def invoke(self, ctx: click.Context) -> Any:
        with output.errors_end_the_command(click.exceptions.Exit, click.Abort, click.ClickException):
            try:
                return super().invoke(ctx)
            except MissingExtra:
                raise
            except click.UsageError as error:
                _end(error)
            except (ArkSyntaxError, ConfigError) as error:
                _end(click.UsageError(str(error)))


def _without_posix(name: str, module: str) -> click.Command:
    """Return a command that only says that this system, such as Windows, cannot run it."""

    def say() -> NoReturn:
        raise MissingExtra(f"maptr {name} runs on Linux, macOS and BSD only: Python has no module {module} here")

    accepting = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, context_settings=accepting, callback=say, add_help_option=False)


def _end(error: click.UsageError) -> NoReturn:
    """Print click's message for an error, in colour, and end the command."""
    text = StringIO()
    error.show(text)
    output.inform(*output.painted(text.getvalue().rstrip("\n"), "Error:", output.BAD))
    raise click.exceptions.Exit(output.EXIT_USAGE) from None


class MainGroup(Group):
    """The group of ``maptr`` itself, which reads ``maptr ARK`` as ``maptr discover ARK``."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*args, **options)
        except click.UsageError as error:
            _end(error)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, ["discover", *args] if args and is_discover(args[0]) else args)


@click.group(
    cls=MainGroup,
    lazy=COMMANDS,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="maptr ARK is short for maptr discover ARK. Each command has its own --help.",
)
@click.version_option(__version__, "-V", "--version", prog_name="maptr")
def main() -> None:
    """Find, by DNS, the server that answers for an ARK, and serve the DNS that makes it findable."""
