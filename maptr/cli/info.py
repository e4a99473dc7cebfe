"""``maptr info``: what the mapping authority of each ARK says of it."""

from __future__ import annotations

import sys
from typing import Any

import click

from maptr.ark import Ark
from maptr.cli import output, shared
from maptr.cli.asking import NotArk, Options, answers_kept, code_of
from maptr.discovery import DiscoveryError
from maptr.errors import ArkSyntaxError, ConfigError, NmaError


@click.command(
    epilog="""
\b
Exit codes:
  0  described, every ARK
  1  nobody serves one of them, or its authority does not describe
  2  bad usage; or an argument is not an ARK, and the others were asked
  9  DNS or the authority did not answer, for one of them
Of several ARKs, the greatest of these.
"""
)
@click.argument("words", nargs=-1, required=True, metavar="ARK... [@SERVER[#PORT]]...")
@click.option("--older", is_flag=True, help="Ask ? and ?? too, where ?info is not understood.")
@shared.discovery_options("For one discovery, and then for asking the ARK's authorities.", timeout=10.0)
@click.option("--json", "as_json", is_flag=True, help="One JSON document for each ARK.")
def info(words: tuple[str, ...], older: bool, **given: Any) -> None:
    """Ask the mapping authority of each ARK to describe it (?info), and print the ERC record.

    The status headers and where the record came from are told on stderr.

    \b
    Example:
      maptr info ark:12345/x6np1wh8k @127.0.0.1#5300
    """
    from maptr.ark import INFLECTIONS
    from maptr.nma.describe import describe

    options = Options(**given)
    arks, way = shared.parse_words(words, options)
    inflections = INFLECTIONS if older else INFLECTIONS[:1]
    codes = {output.EXIT_OK}
    for answered, ark in enumerate(arks):
        try:
            if isinstance(ark, NotArk):
                raise ark.error
            told = describe(
                ark,
                discovery=way.ask(ark),
                inflections=_asked(ark) or inflections,
                seconds=options.timeout,
                allow_private=options.allow_private,
            )
        except KeyboardInterrupt:
            output.interrupted(answers_kept(answered, len(arks)))
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
        except (ArkSyntaxError, DiscoveryError, NmaError) as error:
            codes.add(code_of(error))
            output.talk(f"maptr: {error}")
            if options.as_json:
                output.json_data({"ark": str(ark), "spoken": False, "error": str(error)})
            continue
        if not told.spoken:
            codes.add(output.EXIT_NONE)
            output.talk(f"maptr: {told.url} {told.note}")
        if options.as_json:
            output.json_data({**told.to_dict(), "error": None})
        elif told.spoken:
            output.data(told.to_text())
            thump = f", THUMP status {told.thump}" if told.thump else ""
            output.talk(f"maptr: from {told.url}: HTTP status {told.status}{thump}")
    way.close()
    sys.exit(max(codes))


def _asked(ark: Ark) -> tuple[str, ...]:
    """The inflection that the ARK was written with."""
    return (ark.inflection,) if ark.inflection else ()
