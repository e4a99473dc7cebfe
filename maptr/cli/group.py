"""The click group of all commands, suggestions for mistyped ones, and ``maptr completion``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from maptr import __version__
from maptr.cli import COMMANDS, is_discover, output
from maptr.errors import ArkSyntaxError, ConfigError, MissingExtra, nearest

OLD_NAMES = {"natab": "table", "into": "table", "socket": "control", "jsonl": "json"}  # earlier names of options
SHELLS = ("bash", "zsh", "fish")
MIN_LIKENESS = 0.6  # difflib's ratio between a mistyped word and the suggestion


class Group(click.Group):
    """A click group that suggests the nearest name for an unknown command, and reports the errors of its commands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if not ctx.resilient_parsing and not word.startswith("-") and self.get_command(ctx, word) is None:
            options = [name for param in self.get_params(ctx) for name in param.opts if name.startswith("--")]
            near = nearest(word, [*self.list_commands(ctx), *options], likeness=MIN_LIKENESS)
            raise click.UsageError(f"No such command {word!r}." + (f" Did you mean {near!r}?" if near else ""), ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with output.errors_end_the_command(click.exceptions.Exit, click.Abort, click.ClickException):
            try:
                return super().invoke(ctx)
            except MissingExtra:
                raise
            except (ArkSyntaxError, ConfigError) as error:
                raise click.UsageError(str(error)) from None


class LazyGroup(Group):
    """A group whose ``lazy`` commands, name -> (module, attribute, short help), are imported when they are used."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands, *self._lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, attribute, _ = self._lazy[cmd_name]
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, command.get_short_help_str(80)) for name, command in self.commands.items()]
        rows += [(name, help_text) for name, (_, _, help_text) in self._lazy.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class MainGroup(LazyGroup):
    """The group of ``maptr`` itself, which takes ``maptr ARK`` for ``maptr discover ARK``."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and is_discover(args[0]):
            args = ["discover", *args]
        return super().resolve_command(ctx, args)


@click.group(
    cls=MainGroup,
    lazy=COMMANDS,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "token_normalize_func": lambda word: OLD_NAMES.get(word, word),
    },
    epilog="maptr ARK is short for maptr discover ARK. Each command has its own --help.",
)
@click.version_option(__version__, "-V", "--version", prog_name="maptr")
def main() -> None:
    """Find, by DNS, the server that answers for an ARK, and serve the DNS that makes it findable."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that makes SHELL complete the commands, options and files of maptr.

    \b
    bash, in ~/.bashrc:  eval "$(maptr completion bash)"
    zsh, in ~/.zshrc:    eval "$(maptr completion zsh)"
    fish, once:
        maptr completion fish > ~/.config/fish/completions/maptr.fish

    \b
    Exit codes:
      0  printed
      2  bad usage, such as an unknown shell
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - the choice has click's own three
    script = kind(ctx.find_root().command, {}, "maptr", "_MAPTR_COMPLETE")
    # Not script.source(), which runs bash to check its version and prints a warning.
    output.data((script.source_template % script.source_vars()).strip())
