"""``maptr discover`` and ``maptr url``: the mapping authorities of ARKs, or one URL for each."""

from __future__ import annotations

import sys
from typing import Any

import click

from maptr.cli import lookup, options
from maptr.cli.lookup import LookupOptions

_EXIT_CODES = """
\b
Exit codes:
  0  every ARK has a mapping authority
  1  an ARK has none, by DNS or by the table
  2  bad usage; also if an argument is not an ARK (the others are looked up)
  9  DNS did not answer for an ARK, nor did a table
The greatest of these if there are several ARKs.
"""


def _common(command: Any) -> Any:
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document for each ARK, with its trace."),
        options.discovery_options("Limit for one whole discovery."),
        click.argument("arks", nargs=-1, required=True, metavar="ARK... [@SERVER[#PORT]]..."),
    ):
        command = decorate(command)
    return command


@click.command(epilog=_EXIT_CODES)
@_common
@click.option("--short", is_flag=True, help="Print URLs only, best first.")
@click.option("--trace", is_flag=True, help="Show every query, record and reason on stderr.")
def discover(arks: tuple[str, ...], short: bool, trace: bool, **given: Any) -> None:
    """Find the mapping authorities of each ARK.

    Prints the candidates, best first, one a line: URL, order, preference, and the owner name of the record.

    @SERVER asks this resolver or authoritative server instead of the system's resolver. Several are tried in turn.
    @tls://HOST and @https://HOST/PATH use DNS over TLS and HTTPS.

    Without @SERVER, a pulled table or a configured cache answers where DNS does not. The source of the answer, its
    age and the reason are shown on stderr.

    \b
    Examples:
      maptr discover ark:12345/x6np1wh8k @127.0.0.1#5300
      maptr discover --trace https://n2t.net/ark:/12345/x6np1wh8k?info
      maptr discover ark:12345/x6np1wh8k --table naans.json --policy natab-first
    """
    asked_for = LookupOptions(**given)
    found, client = lookup.arks_and_client(arks, asked_for)
    sys.exit(lookup.show_discoveries(found, client, asked_for, short=short, trace=trace))


@click.command(epilog=_EXIT_CODES)
@_common
def url(arks: tuple[str, ...], **given: Any) -> None:
    """Print the URL of each ARK, one a line, and nothing else.

    The line of an ARK without a URL is empty, so that the lines match the arguments.

    \b
    Example:
      curl -L "$(maptr url ark:12345/x6np1wh8k)"
    """
    asked_for = LookupOptions(**given)
    found, client = lookup.arks_and_client(arks, asked_for)
    sys.exit(lookup.show_urls(found, client, asked_for))
