"""What the commands that discover share on the command line: options, and ``through`` with click's errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from maptr.ark import PROFILES
from maptr.cache import DNS_FIRST, POLICIES
from maptr.choose import CHOOSERS
from maptr.cli import asking, output, through
from maptr.cli.asking import DEFAULTS, Asked, Options, Way
from maptr.cli.completion import files
from maptr.cli.through import ORIGIN
from maptr.discovery import DiscoveryError
from maptr.errors import ArkSyntaxError, ConfigError

if TYPE_CHECKING:
    from maptr.config import Config

Command = TypeVar("Command", bound="Callable[..., Any] | click.Command")

ORIGIN_OPTION = click.option(
    "--origin", metavar="NAME", help=f"DNS suffix below NAANs.  [default: {ORIGIN}, or as configured]"
)
SCHEME_OPTION = click.option(
    "--scheme",
    type=click.Choice(["https", "http"]),
    help="Of hosts that come without one; port 80 means http.  [default: https, or as configured]",
)
NATAB_SCHEME_OPTION = click.option(
    "--scheme",
    type=click.Choice(["https", "http"]),
    default="https",
    show_default=True,
    help="Of the hosts in a natab; port 80 means http.",
)
PROFILE_OPTION = click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    default=DEFAULTS.profile,
    show_default=True,
    help="The version of the ARK draft that ARKs are read by.",
)
TABLE_OPTION = click.option(
    "--table",
    "file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    shell_complete=files,
    help="The registry, in any format.  [default: the table pulled, or as configured]",
)
CHOOSE_OPTION = click.option(
    "--choose",
    type=click.Choice(CHOOSERS),
    help="Which of several candidates: the first; one of the lowest order at random; the first that can be reached; or "
    "the mapping authority that the ARK itself names, if it can be reached.  [default: first, or as configured]",
)
CONFIG_OPTION = click.option(
    "--config",
    metavar="FILE",
    shell_complete=files,
    help="The configuration, in TOML.  [default: MAPTR_CONFIG, else maptr.toml here, else the user's]",
)


def timeout_option(default: float, help: str) -> Callable[[Command], Command]:
    """``--timeout``: a time that is more than none."""
    return click.option(
        "--timeout",
        default=default,
        show_default=True,
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help=help,
    )


def discovery_options(help: str, *, timeout: float = asking.DEFAULTS.timeout) -> Callable[[Command], Command]:
    """The options of each command that discovers, named as the fields of ``asking.Options``.

    ``help`` says what the time of ``--timeout`` is for.
    """
    options = (
        ORIGIN_OPTION,
        timeout_option(timeout, help),
        click.option("--trust-ad", is_flag=True, help="Trust the server's DNSSEC validation (its AD flag)."),
        click.option(
            "--trust-anchor",
            shell_complete=files,
            metavar="FILE",
            help="Validate DNSSEC from these DS or DNSKEY records: a zone file's, or BIND's trust-anchors.",
        ),
        click.option("--require", type=click.Choice(["secure"]), help="Take only answers that are signed and valid."),
        click.option("--allow-private", is_flag=True, help="Take candidates on hosts that are not public."),
        click.option(
            "--table",
            type=click.Path(exists=True, dir_okay=False),
            shell_complete=files,
            metavar="FILE",
            help="A registry that answers where DNS does not.  [default: the table pulled, or as configured]",
        ),
        click.option(
            "--policy", type=click.Choice(POLICIES), help=f"Who is believed, DNS or the table.  [default: {DNS_FIRST}]"
        ),
        click.option("--no-cache", is_flag=True, help="Ask DNS only, and keep nothing."),
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


def parse_words(words: Sequence[str], options: Options) -> tuple[list[Asked], Way]:
    """The ARKs among the arguments, and how they are discovered, by the ``@SERVER`` ones if there are any.

    UsageError where none is an ARK and for options that make no sense; exits where a server has no address.
    """
    try:
        arks, servers = asking.parse_words(words, options.profile)
        return arks, asking.whom(servers, options)
    except (ArkSyntaxError, ConfigError) as error:
        raise click.UsageError(str(error)) from None
    except DiscoveryError as error:
        output.fail(str(error), output.EXIT_NO_ANSWER)


def parse_naans(words: Sequence[str]) -> list[str]:
    """The NAANs of NAANs and shoulders. UsageError for what is neither."""
    from maptr.registry.table import parse_key

    try:
        return [parse_key(word)[0] for word in words]
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def find_table(file: str | None, config: Config | None) -> str:
    """The table of TABLE_OPTION: the file given, or its default. UsageError where there is none."""
    named = file or through.table(config)
    if named is None:
        raise click.UsageError("no table was pulled and none is configured: give --table FILE")
    return named


def configured(file: str | None, *, running: bool = True) -> Config | None:
    """``through.configured``. UsageError for a bad configuration."""
    try:
        return through.configured(file, running=running)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
