"""What the commands that discover share on the command line: options, and ``through`` with click's errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from maptr.ark import PROFILES, Ark
from maptr.cache import DNS_FIRST, POLICIES
from maptr.choose import CHOOSERS
from maptr.cli import asking, output, through
from maptr.cli.asking import DEFAULTS, Options, Way
from maptr.cli.through import ORIGIN
from maptr.errors import ArkSyntaxError, ConfigError, DiscoveryError

if TYPE_CHECKING:
    from maptr.config import Config

ORIGIN_OPTION = click.option(
    "--origin", metavar="NAME", help=f"DNS suffix below NAANs.  [default: {ORIGIN}, or as configured]"
)
SCHEME_OPTION = click.option(
    "--scheme",
    type=click.Choice(["https", "http"]),
    help="Of hosts that come without one; port 80 means http.  [default: https, or as configured]",
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
    help="The registry, in any format.  [default: the table pulled, or as configured]",
)
CHOOSE_OPTION = click.option(
    "--choose",
    type=click.Choice(CHOOSERS),
    help="Which of several candidates: the first; one of the lowest order at random; the first that can be reached; or "
    "the mapping authority that the ARK itself names, if it can be reached.  [default: first, or as configured]",
)
OPTIONS = (
    CHOOSE_OPTION,
    click.option(
        "--natab",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="A registry that answers where DNS does not.  [default: the table pulled, or as configured]",
    ),
    click.option(
        "--policy", type=click.Choice(POLICIES), help=f"Who is believed, DNS or the table.  [default: {DNS_FIRST}]"
    ),
    click.option("--no-cache", is_flag=True, help="Ask DNS only, and keep nothing."),
)


def cache_options(command: Any) -> Any:
    """OPTIONS as one decorator."""
    for decorate in reversed(OPTIONS):
        command = decorate(command)
    return command


def parse_words(words: Sequence[str], options: Options) -> tuple[list[Ark], Way]:
    """The ARKs among the arguments, and how they are discovered, by the ``@SERVER`` ones if there are any.

    UsageError for what is neither and for options that make no sense; exits where a server has no address.
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
    from maptr.table import parse_key

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


def configured(*, running: bool = True) -> Config | None:
    """``through.configured``. UsageError for a bad configuration."""
    try:
        return through.configured(running=running)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
