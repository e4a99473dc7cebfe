"""The click group of all commands."""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Any

import click

from maptr import __version__
from maptr.cli import COMMANDS, output
from maptr.cli.brief import means_discover

FORMERLY = {"natab": "table", "into": "table", "socket": "control", "jsonl": "json"}  # options' names of old
LIKE_ENOUGH = 0.6  # difflib's own measure of a word that was meant


class Group(click.Group):
    """A click group that names what is nearest to a command it has not, whatever release of click is there."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if not ctx.resilient_parsing and not word.startswith("-") and self.get_command(ctx, word) is None:
            from maptr.text import nearest

            options = [name for param in self.get_params(ctx) for name in param.opts if name.startswith("--")]
            near = nearest(word, [*self.list_commands(ctx), *options], likeness=LIKE_ENOUGH)
            raise click.UsageError(f"No such command {word!r}." + (f" Did you mean {near!r}?" if near else ""), ctx)
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """One whose commands are imported on first use; a first word that is an ARK means ``discover``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        collecting = gc.isenabled()
        gc.disable()  # imports leave no garbage, and looking for it takes a twentieth of their time
        try:
            command: click.Command = getattr(import_module(module), attribute)
        finally:
            if collecting:
                gc.enable()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and means_discover(args[0]):
            args = ["discover", *args]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what no command foresaw leaves with an exit code of its own, never as "none found"."""
        with output.LastResort(passing=(click.exceptions.Exit, click.Abort, click.ClickException)):
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, _, help_text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda word: FORMERLY.get(word, word),
    },
    epilog="maptr ARK is short for maptr discover ARK. Each command has its own --help.",
)
@click.version_option(__version__, "-V", "--version", prog_name="maptr")
def main() -> None:
    """Find, by DNS, the server that answers for an ARK, and serve the DNS that makes it findable."""
