"""Options and arguments that several commands share, as click takes them; mistakes in them are click's UsageError."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from maptr.ark import PROFILES
from maptr.cache import DNS_FIRST, POLICIES
from maptr.choose import CHOOSERS
from maptr.cli import lookup
from maptr.cli.lookup import DEFAULTS, ORIGIN
from maptr.errors import reason_of
from maptr.protocol import names

if TYPE_CHECKING:
    from maptr.config import Config
    from maptr.protocol.names import Labels

Command = TypeVar("Command", bound="Callable[..., Any] | click.Command")


# ---- options


PATH = click.Path(readable=False)  # a file that the shell completes; its errors are those of opening it


class Parsed(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic from click 8.2 on
    """The value that a function makes of the text; its ValueError and OSError are bad usage."""

    name = "text"

    def __init__(self, parse: Callable[[str], object]) -> None:
        self._parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        try:
            return self._parse(str(value))
        except (ValueError, OSError) as error:
            self.fail(reason_of(error), param, ctx)


def duration(least: int = 0) -> Parsed:
    """``14d``, ``36h`` or ``3600`` as seconds, at least ``least``."""

    def parse(text: str) -> int:
        from maptr.config.values import read_duration

        if (seconds := read_duration(text)) < least:
            raise ValueError(f"must be at least {least} s")
        return seconds

    return Parsed(parse)


ORIGIN_OPTION = click.option(
    "--origin", metavar="NAME", help=f"DNS suffix below which NAANs are looked up.  [default: {ORIGIN}, or configured]"
)
_SCHEMES = click.Choice(["https", "http"])
SCHEME_OPTION = click.option(
    "--scheme",
    type=_SCHEMES,
    help="Scheme of hosts found without one; port 80 means http.  [default: https, or configured]",
)
NATAB_SCHEME_OPTION = click.option(
    "--scheme",
    type=_SCHEMES,
    default="https",
    show_default=True,
    help="Scheme of the hosts in a natab; port 80 means http.",
)
PROFILE_OPTION = click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    default=DEFAULTS.profile,
    show_default=True,
    help="Version of the ARK specification by which ARKs are read.",
)
TABLE_OPTION = click.option(
    "--table",
    "file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Registry in any format.  [default: the pulled table, or configured]",
)
CHOOSE_OPTION = click.option(
    "--choose",
    type=click.Choice(CHOOSERS),
    help="Which candidate to prefer: the first, a random one of the lowest order, the first reachable one, or the "
    "authority named in the ARK itself if it is reachable.  [default: first, or configured]",
)
CONFIG_OPTION = click.option(
    "--config",
    metavar="FILE",
    type=PATH,
    help="Configuration file (TOML).  [default: MAPTR_CONFIG, else ./maptr.toml, else the user's]",
)
JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def timeout_option(default: float, help: str) -> Callable[[Command], Command]:
    """``--timeout``: seconds, more than 0."""
    return click.option(
        "--timeout",
        default=default,
        show_default=True,
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help=help,
    )


def discovery_options(help: str, *, timeout: float = DEFAULTS.timeout) -> Callable[[Command], Command]:
    """The options of each command that looks up ARKs, named as the fields of ``lookup.LookupOptions``.

    ``help`` is the help text of ``--timeout``.
    """
    options = (
        ORIGIN_OPTION,
        timeout_option(timeout, help),
        click.option("--trust-ad", is_flag=True, help="Trust the DNSSEC validation of the server (its AD flag)."),
        click.option(
            "--trust-anchor",
            type=PATH,
            metavar="FILE",
            help="Validate DNSSEC from the DS or DNSKEY records in FILE: a zone file or BIND's trust-anchors.",
        ),
        click.option("--require", type=click.Choice(["secure"]), help="Accept only answers validated by DNSSEC."),
        click.option("--allow-private", is_flag=True, help="Accept candidates on hosts that are not public."),
        click.option(
            "--table",
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            help="Registry to use where DNS does not answer.  [default: the pulled table, or configured]",
        ),
        click.option(
            "--policy",
            type=click.Choice(POLICIES),
            help=f"Which source goes first, DNS or the table.  [default: {DNS_FIRST}, or configured]",
        ),
        click.option("--no-cache", is_flag=True, help="Use DNS only: no table, no cache."),
        CHOOSE_OPTION,
        SCHEME_OPTION,
        PROFILE_OPTION,
        CONFIG_OPTION,
    )

    def decorated(command: Command) -> Command:
        for decorate in reversed(options):
            command = decorate(command)
        return command

    return decorated


# ---- values


def parse_naans(words: Iterable[str]) -> list[str]:
    """The NAANs of NAANs and shoulders. Raises UsageError for anything else."""
    from maptr.registry.table import parse_key

    try:
        return [parse_key(word)[0] for word in words]
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def parse_name(option: str, text: str) -> Labels:
    """A domain name. Raises UsageError."""
    try:
        return names.parse(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: {text} is not a valid domain name: {error}") from None


def find_table(file: str | None, config: Config | None) -> str:
    """The file of TABLE_OPTION or its default. Raises UsageError if there is none."""
    named = file or lookup.table_of(config)
    if named is None:
        raise click.UsageError("no table was pulled and none is configured: give --table FILE")
    return named
