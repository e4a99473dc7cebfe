"""``maptr discover``, ``url`` and ``info``: the mapping authorities of ARKs, one URL for each, and descriptions."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import click

from maptr.ark import INFLECTIONS
from maptr.cli import lookup, options, output
from maptr.cli.group import command
from maptr.cli.lookup import Argument, LookupOptions
from maptr.discovery import Discovery
from maptr.errors import MaptrError, error_fields

_EXITS = {
    0: "every ARK has a mapping authority",
    1: "an ARK has none, by DNS or by the table",
    2: "bad usage; also if an argument is not an ARK (the others are looked up)",
    8: "a file cannot be read",
    9: "DNS did not answer for an ARK, nor did a table. The greatest code counts if there are several ARKs",
}


def _common(command: Any, help: str = "Give up a discovery after this time.", **timeout: float) -> Any:
    for decorate in (
        options.JSON_EACH_OPTION,
        options.VERBOSE_OPTION,
        options.discovery_options(help, **timeout),
        click.argument("arks", nargs=-1, required=True, metavar="ARK... [@SERVER[#PORT]]..."),
    ):
        command = decorate(command)
    return command


@command(exits=_EXITS)
@_common
@click.option("--short", is_flag=True, help="Print URLs only, best first.")
def discover(arks: tuple[str, ...], short: bool, **given: Any) -> None:
    """Find the mapping authorities of each ARK.

    Prints the candidates, best first, one a line: URL, order, preference, and the owner name of the record.

    @SERVER asks this resolver or authoritative server instead of the system's resolver. Several are tried in turn.
    @tcp://HOST, @tls://HOST and @https://HOST/PATH are asked by TCP, TLS and HTTPS.

    Without @SERVER, a table answers where DNS does not: that of maptr table, which may be the built-in registry. The
    source of the answer, its age and the reason are shown on stderr.

    \b
    Examples:
      maptr discover ark:12345/x6np1wh8k @127.0.0.1#5300
      maptr discover --trace https://n2t.net/ark:/12345/x6np1wh8k?info
      maptr discover ark:12345/x6np1wh8k --table naans.json --policy natab-first
    """
    sys.exit(lookup.show_discoveries(lookup.prepare(arks, LookupOptions.of(given)), short=short))


@command(exits=_EXITS)
@_common
def url(arks: tuple[str, ...], **given: Any) -> None:
    """Print the URL of each ARK, one a line, and nothing else.

    The line of an ARK without a URL is empty, so that the lines match the arguments.

    \b
    Example:
      curl -L "$(maptr url ark:12345/x6np1wh8k)"
    """
    sys.exit(lookup.show_urls(lookup.prepare(arks, LookupOptions.of(given))))


@command(
    "open",
    exits={
        0: "opened",
        1: "the ARK has no mapping authority, by DNS or by the table",
        2: "bad usage, or not an ARK",
        8: "the configuration cannot be read, or there is no browser",
        9: "DNS did not answer, nor did a table",
    },
)
@click.argument("ark", metavar="ARK")
def open_(ark: str) -> None:
    """Open the URL of an ARK in the browser.

    The desktop entry of maptr runs it when a link that starts with ark: is clicked.

    \b
    Example:
      maptr open ark:12148/btv1b8449691v
    """
    import webbrowser  # late: only this command needs it

    prepared = lookup.prepare([ark], lookup.DEFAULTS)

    def show(ark: Argument, found: Discovery | None, error: MaptrError | None) -> int:
        if error is None and found is not None:
            output.inform(f"maptr: opening {found.url()}")
            if not webbrowser.open(found.url()):
                output.fail("there is no browser: BROWSER in the environment names one", output.EXIT_UNREADABLE)
        return output.EXIT_OK

    sys.exit(lookup.answer(prepared, show))


@command(
    exits={
        **_EXITS,
        0: "every ARK has a description",
        1: "an ARK has no mapping authority, or its authority has no description",
        9: "DNS or the mapping authority did not answer for an ARK. The greatest code counts if there are several ARKs",
    }
)
@partial(_common, help="Give up a discovery, and the request to the authority, after this time each.", timeout=10.0)
def info(arks: tuple[str, ...], **given: Any) -> None:
    """Ask the mapping authority of each ARK to describe it (?info), and print the ERC record.

    The HTTP status, the THUMP status and the source of the record are shown on stderr.

    \b
    Example:
      maptr info ark:12345/x6np1wh8k @127.0.0.1#5300
    """
    from maptr.nma.describe import describe  # late: it imports HTTP, which other commands do not need

    options = LookupOptions.of(given)
    prepared = lookup.prepare(arks, options)

    def show(ark: Argument, found: Discovery | None, error: MaptrError | None) -> int:
        if error is not None or found is None or isinstance(ark, str):
            if options.as_json:
                output.json_data({"ark": str(ark), "spoken": False, **error_fields(error)})
            return output.EXIT_OK
        described = describe(
            found,
            inflections=(ark.inflection or INFLECTIONS[0],),
            seconds=options.client["lifetime"],
            allow_private=options.allow_private,
        )
        if not described.spoken:
            output.warning(f"{described.url} {described.note}")
        if options.as_json:
            output.json_data({**described.to_dict(), **error_fields(None)})
        elif described.spoken:
            output.data(described.to_text())
            thump = f", THUMP status {described.thump}" if described.thump else ""
            options.inform(f"from {described.url}: HTTP status {described.status}{thump}")
        return output.EXIT_OK if described.spoken else output.EXIT_NONE

    sys.exit(lookup.answer(prepared, show))
