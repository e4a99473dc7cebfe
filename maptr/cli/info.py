"""``maptr info``: what the mapping authority of each ARK says of it."""

from __future__ import annotations

import sys
from typing import Any

import click

from maptr.ark import Ark
from maptr.cli import output
from maptr.cli.discover import parse_words
from maptr.errors import ConfigError, DiscoveryError, NmaError, NoMappingAuthority


@click.command(
    epilog="""
\b
Exit codes:
  0  described, every ARK
  1  nobody serves one of them, or its authority does not describe
  2  bad usage
  9  DNS or the authority did not answer, for one of them
"""
)
@click.argument("words", nargs=-1, required=True, metavar="ARK... [@SERVER[#PORT]]...")
@click.option("--older", is_flag=True, help="Ask ? and ?? too, where ?info is not understood.")
@click.option("--origin", default="ark.arpa.", show_default=True, metavar="NAME", help="DNS suffix below NAANs.")
@click.option("--timeout", default=10.0, show_default=True, metavar="SECONDS", help="For asking one ARK's authorities.")
@click.option("--trust-anchor", metavar="FILE", help="Validate DNSSEC from these DS or DNSKEY records.")
@click.option("--require", type=click.Choice(["secure"]), help="Take nothing less: an answer not signed is none.")
@click.option("--allow-private", is_flag=True, help="Ask servers that are not public, too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document for each ARK.")
def info(
    words: tuple[str, ...],
    older: bool,
    origin: str,
    timeout: float,
    trust_anchor: str | None,
    require: str | None,
    allow_private: bool,
    as_json: bool,
) -> None:
    """Ask the mapping authority of each ARK to describe it (?info), and print the ERC record.

    The status headers and where the record came from are told on stderr.

    \b
    Example:
      maptr info ark:12345/x6np1wh8k @127.0.0.1#5353
    """
    from maptr.ark import INFLECTIONS
    from maptr.describe import describe
    from maptr.stub import Stub
    from maptr.walk import Settings

    arks, resolver = parse_words(words, trust_anchor=trust_anchor)
    trusted: dict[str, Any] = {"require": require}
    if not isinstance(resolver, Stub) and trust_anchor is not None:
        trusted["trust_anchors"] = trust_anchor
    inflections = INFLECTIONS if older else INFLECTIONS[:1]
    codes = {output.EXIT_OK}
    for ark in arks:
        try:
            told = describe(
                ark,
                resolver=resolver,
                origin=origin,
                settings=Settings(allow_private=allow_private),
                inflections=_asked(ark) or inflections,
                seconds=timeout,
                allow_private=allow_private,
                **trusted,
            )
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
        except (DiscoveryError, NmaError) as error:
            codes.add(output.EXIT_NONE if isinstance(error, NoMappingAuthority) else output.EXIT_NO_ANSWER)
            output.talk(f"maptr: {error}")
            if as_json:
                output.json_data({"ark": str(ark), "spoken": False, "error": str(error)})
            continue
        if not told.spoken:
            codes.add(output.EXIT_NONE)
            output.talk(f"maptr: {told.url} {told.note}")
        if as_json:
            output.json_data({**told.to_dict(), "error": None})
        elif told.spoken:
            output.data(told.to_text())
            thump = f", THUMP status {told.thump}" if told.thump else ""
            output.talk(f"maptr: from {told.url}: HTTP status {told.status}{thump}")
    sys.exit(max(codes))


def _asked(ark: Ark) -> tuple[str, ...]:
    """The inflection that the ARK was written with."""
    return (ark.inflection,) if ark.inflection else ()
