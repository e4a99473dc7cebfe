"""The ``maptr`` command: one file per noun, loaded only when it is asked for, so that ``--help`` is instant."""

from __future__ import annotations

import errno
import gc
from importlib import import_module
from typing import Any

import click

from maptr import __version__

# Command -> (module, attribute, short help). The help stands here so that listing commands imports none of them.
_COMMANDS = {
    "discover": ("maptr.cli.discover", "discover", "Find the mapping authorities of ARKs, with the reasons."),
    "url": ("maptr.cli.discover", "url", "Print the URL that answers for each ARK, and nothing else."),
    "bulk": ("maptr.cli.bulk", "bulk", "Discover a file of ARKs, hundreds at a time."),
    "info": ("maptr.cli.info", "info", "Ask the mapping authority of each ARK to describe it."),
    "table": ("maptr.cli.table", "table", "Read, check and convert the NAAN registry."),
    "zone": ("maptr.cli.zone", "zone", "Build the zone from the registry; check, compare and sign any zone."),
    "serve": ("maptr.cli.serve", "serve", "Answer DNS queries from zone files."),
    "reload": ("maptr.cli.control", "reload", "Have the running server read its zones again."),
    "status": ("maptr.cli.control", "status", "Say how the running server is."),
}


class _LazyGroup(click.Group):
    """A click group whose commands are imported on first use; a first word that is an ARK means ``discover``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
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
        if args and args[0] not in _COMMANDS and ("ark:" in args[0].lower() or args[0].startswith("@")):
            args = ["discover", *args]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what no command foresaw leaves with an exit code of its own, never as "none found"."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # click's own: whoever read stdout has read enough
            from maptr.cli import output

            output.fail(str(error), output.EXIT_UNREADABLE)
        except Exception:
            import traceback

            from maptr.cli import output

            traceback.print_exc()
            output.fail("internal error, please report the lines above", output.EXIT_INTERNAL)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, _, help_text) in _COMMANDS.items()])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="maptr ARK is short for maptr discover ARK. Each command has its own --help.",
)
@click.version_option(__version__, "-V", "--version", prog_name="maptr")
def main() -> None:
    """Find, by DNS, the server that answers for an ARK, and serve the DNS that makes it findable."""
