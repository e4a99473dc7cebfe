"""``maptr info``: what the mapping authority of each ARK says of it."""

from __future__ import annotations

import sys
from typing import Literal

import click

from maptr.ark import Ark, Profile
from maptr.cli import output, shared
from maptr.cli.asking import Options
from maptr.cli.completion import files
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
@shared.ORIGIN_OPTION
@click.option(
    "--timeout",
    default=10.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="For asking one ARK's authorities.",
)
@click.option("--trust-ad", is_flag=True, help="Take the server's word on DNSSEC: only a validating one of yours.")
@click.option(
    "--trust-anchor", metavar="FILE", shell_complete=files, help="Validate DNSSEC from these DS or DNSKEY records."
)
@click.option("--require", type=click.Choice(["secure"]), help="Take nothing less: an answer not signed is none.")
@shared.PROFILE_OPTION
@click.option("--allow-private", is_flag=True, help="Ask servers that are not public, too.")
@shared.CHOOSE_OPTION
@shared.SCHEME_OPTION
@click.option("--json", "as_json", is_flag=True, help="One JSON document for each ARK.")
def info(
    words: tuple[str, ...],
    older: bool,
    origin: str | None,
    timeout: float,
    trust_ad: bool,
    trust_anchor: str | None,
    require: Literal["secure"] | None,
    allow_private: bool,
    scheme: str | None,
    profile: Profile,
    choose: str | None,
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

    options = Options(
        origin,
        trust_ad=trust_ad,
        trust_anchor=trust_anchor,
        require=require,
        allow_private=allow_private,
        scheme=scheme,
        profile=profile,
        choose=choose,
    )
    arks, way = shared.parse_words(words, options)
    inflections = INFLECTIONS if older else INFLECTIONS[:1]
    codes = {output.EXIT_OK}
    for ark in arks:
        try:
            told = describe(
                ark,
                discovery=way.ask(ark),
                inflections=_asked(ark) or inflections,
                seconds=timeout,
                allow_private=allow_private,
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
    way.close()
    sys.exit(max(codes))


def _asked(ark: Ark) -> tuple[str, ...]:
    """The inflection that the ARK was written with."""
    return (ark.inflection,) if ark.inflection else ()
