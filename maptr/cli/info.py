"""``maptr info``: the description of each ARK by its mapping authority."""

from __future__ import annotations

import sys
from typing import Any

import click

from maptr.ark import INFLECTIONS
from maptr.cli import lookup, options, output
from maptr.cli.lookup import LookupOptions, NotArk
from maptr.discovery import DiscoveryError
from maptr.errors import ArkSyntaxError, NmaError
from maptr.nma.describe import describe


@click.command(
    epilog="""
\b
Exit codes:
  0  every ARK has a description
  1  an ARK has no mapping authority, or its authority has no description
  2  bad usage; also if an argument is not an ARK (the others are looked up)
  9  DNS or the mapping authority did not answer for an ARK
The greatest of these if there are several ARKs.
"""
)
@click.argument("words", nargs=-1, required=True, metavar="ARK... [@SERVER[#PORT]]...")
@click.option("--older", is_flag=True, help="Also try ? and ?? if ?info is not understood.")
@options.discovery_options("Limit for one discovery, and again for the request to the authority.", timeout=10.0)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document for each ARK.")
def info(words: tuple[str, ...], older: bool, **given: Any) -> None:
    """Ask the mapping authority of each ARK to describe it (?info), and print the ERC record.

    The HTTP status, the THUMP status and the source of the record are shown on stderr.

    \b
    Example:
      maptr info ark:12345/x6np1wh8k @127.0.0.1#5300
    """
    asked_for = LookupOptions(**given)
    arks, client = lookup.arks_and_client(words, asked_for)
    inflections = INFLECTIONS if older else INFLECTIONS[:1]
    codes = {output.EXIT_OK}
    for answered, ark in enumerate(arks):
        try:
            if isinstance(ark, NotArk):
                raise ark.error
            described = describe(
                ark,
                discovery=client.ask(ark),
                inflections=(ark.inflection,) if ark.inflection else inflections,
                seconds=asked_for.timeout,
                allow_private=asked_for.allow_private,
            )
        except KeyboardInterrupt:
            output.interrupted(lookup.answers_kept(answered, len(arks)))
        except (ArkSyntaxError, DiscoveryError, NmaError) as error:
            codes.add(lookup.code_of(error))
            output.talk(f"maptr: {error}")
            if asked_for.as_json:
                output.json_data({"ark": str(ark), "spoken": False, "error": str(error)})
            continue
        if not described.spoken:
            codes.add(output.EXIT_NONE)
            output.talk(f"maptr: {described.url} {described.note}")
        if asked_for.as_json:
            output.json_data({**described.to_dict(), "error": None})
        elif described.spoken:
            output.data(described.to_text())
            thump = f", THUMP status {described.thump}" if described.thump else ""
            output.talk(f"maptr: from {described.url}: HTTP status {described.status}{thump}")
    client.close()
    sys.exit(max(codes))
