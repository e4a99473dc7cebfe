"""``maptr discover`` and ``maptr url``: ARKs in, mapping authorities or one URL each out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from maptr.cli import asking, shared
from maptr.errors import ConfigError

_COMMON = (
    click.argument("arks", nargs=-1, required=True, metavar="ARK... [@SERVER[#PORT]]..."),
    shared.discovery_options("For one whole discovery."),
    click.option("--json", "as_json", is_flag=True, help="One JSON document for each ARK, trace included."),
)

_EXIT = """
\b
Exit codes:
  0  found, for every ARK
  1  nobody serves one of them, as DNS says, or a table that may
  2  bad usage; or an argument is not an ARK, and the others were asked
  9  DNS did not say, and no table, for one of them
Of several ARKs, the greatest of these.
"""


def _common(command: Any) -> Any:
    for decorate in reversed(_COMMON):
        command = decorate(command)
    return command


@click.command(epilog=_EXIT)
@_common
@click.option("--short", is_flag=True, help="URLs only, best first.")
@click.option("--trace", is_flag=True, help="Every question, record and reason, on stderr.")
def discover(arks: tuple[str, ...], short: bool, trace: bool, **options: Any) -> None:
    """Find the mapping authorities of each ARK.

    Candidates are printed best first, one a line: URL, order, preference, and the name its record was found at.
    @SERVER asks that resolver, or that authoritative server, directly, instead of the system's resolver; of several,
    the next where one does not answer. @tls://HOST and @https://HOST/PATH are asked by DNS over TLS and HTTPS.

    Without it, where a table was pulled or a cache is configured, that answers while DNS does not, and it is told on
    stderr from where the answer is, how old, and why.

    \b
    Examples:
      maptr discover ark:12345/x6np1wh8k @127.0.0.1#5300
      maptr discover --trace https://n2t.net/ark:/12345/x6np1wh8k?info
      maptr discover ark:12345/x6np1wh8k --table naans.json --policy natab-first
    """
    given = asking.Options(**options)
    sys.exit(_usage(asking.show_discoveries, *shared.parse_words(arks, given), given, short=short, trace=trace))


@click.command(epilog=_EXIT)
@_common
def url(arks: tuple[str, ...], **options: Any) -> None:
    """Print the URL that answers for each ARK, one a line, and nothing else.

    An ARK without one gives an empty line, so that lines of output and arguments stay side by side.

    \b
    Example:
      curl -L "$(maptr url ark:12345/x6np1wh8k)"
    """
    given = asking.Options(**options)
    sys.exit(_usage(asking.show_urls, *shared.parse_words(arks, given), given))


def _usage(show: Callable[..., int], *arguments: Any, **options: Any) -> int:
    """The exit code; UsageError where an option makes no sense."""
    try:
        return show(*arguments, **options)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
