"""``maptr serve`` as click has it: help, and errors. What it does is ``serving``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from maptr.cli import serving
from maptr.cli.completion import files, folders
from maptr.cli.serveoptions import OPTIONS, Line, Option

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class _Read(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic from click 8.2 on
    """The value of an option."""

    name = "text"

    def __init__(self, option: Option) -> None:
        self.option = option

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        complete = {"FILE": files, "SOCKET": files, "DIRECTORY": folders}.get(self.option.metavar)
        return [] if complete is None else complete(ctx, param, incomplete)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        try:
            return self.option.read(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        except OSError as error:
            self.fail(f"{error.filename}: {error.strerror}", param, ctx)


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with all options, each value named as the option is."""
    for option in reversed(OPTIONS):
        how: dict[str, Any] = {"is_flag": True} if option.flag else {"type": _Read(option), "metavar": option.metavar}
        parameter = _parameter(option)
        command = click.option(option.name, parameter, multiple=option.repeatable, help=option.help, **how)(command)
    return command


def _parameter(option: Option) -> str:
    return option.name.removeprefix("--").replace("-", "_")


@click.command()
@_with_options
def serve(**values: Any) -> None:
    """Answer DNS queries from zone files.

    Serves any zone, over UDP, TCP and TLS, IPv4 and IPv6, and says on stderr when it is ready:

    \b
        maptr serve --zone ark.arpa=ark.arpa.zone --listen 127.0.0.1:5300
        maptr: ready, serving 1 zone on 127.0.0.1:5300 (udp, tcp)

    With a configuration, maptr serve --config maptr.toml. Every setting of its [serve] can be given in the
    environment too: MAPTR_SERVE_LISTEN=127.0.0.1:53,[::1]:53 goes before the file, and options go before both.

    SIGHUP, or maptr reload, reads configuration, zone files and certificate again; a bad one leaves what was, and
    the log says why. SIGTERM stops. A zone that cannot be loaded at the start answers SERVFAIL while the others
    serve.

    \b
    Exit codes:
      0  stopped, or checked
      1  the configuration is bad, an address cannot be had, or (checking) a zone
         is bad
      2  bad usage
      8  a file cannot be read
    """
    try:
        serving.serve(Line.of({option.name: values[_parameter(option)] for option in OPTIONS}))
    except serving.Misuse as error:
        raise click.UsageError(str(error)) from None


def complain(error: serving.Misuse, main: click.Command) -> int:
    """Say it as click would have, below the command ``maptr``; the exit code."""
    above = click.Context(main, info_name="maptr", **main.context_settings)
    usage = click.UsageError(str(error), click.Context(serve, info_name="serve", parent=above))
    usage.show()
    return usage.exit_code
