"""``maptr discover``, ``url`` and ``info``: the mapping authorities of ARKs, one URL for each, and descriptions."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

import click

from maptr.ark import INFLECTIONS
from maptr.cli import lookup, options, output
from maptr.cli.group import command
from maptr.cli.lookup import Argument, LookupOptions
from maptr.discovery import Discovery
from maptr.errors import ConfigError, MaptrError, error_fields

_EXITS = {
    0: "every ARK has a mapping authority",
    1: "an ARK has none, by DNS or by the table",
    2: "bad usage, or an argument is not an ARK (the others are looked up)",
    8: "a file cannot be read",
    9: "neither DNS nor a table answered for an ARK. With several ARKs, the greatest code counts",
}


def _common(command: Any, timeout: str = "") -> Any:
    for decorate in (
        options.JSON_EACH_OPTION,
        options.VERBOSE_OPTION,
        options.discovery_options(timeout),
        click.argument("arks", nargs=-1, required=True, metavar="ARK... [@SERVER[#PORT]]..."),
    ):
        command = decorate(command)
    return command


@command(exits=_EXITS)
@_common
@click.option("--short", is_flag=True, help="Print URLs only, best first.")
def discover(arks: tuple[str, ...], short: bool, **given: Any) -> None:
    """Find the mapping authorities of each ARK.

    Prints the candidates, best first, one per line: URL, order, preference, and the owner name of the record.

    @SERVER asks this resolver or authoritative server instead of the system's resolver. Several are tried in turn.
    @tcp://HOST, @tls://HOST and @https://HOST/PATH are asked by TCP, TLS and HTTPS.

    Without @SERVER, a table answers where DNS does not: the one that maptr table shows, which may be the built-in
    registry. The answer's source and age and the reason are shown on stderr.

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
    """Print the URL of each ARK, one per line, and nothing else.

    The line of an ARK without a URL is empty, so that the lines match the arguments.

    \b
    Example:
      curl -L "$(maptr url ark:12345/x6np1wh8k)"
    """
    sys.exit(lookup.show_urls(lookup.prepare(arks, LookupOptions.of(given))))


@command(
    "open",
    exits={
        0: "opened, registered or unregistered",
        1: "the ARK has no mapping authority, by DNS or by the table",
        2: "bad usage, or not an ARK",
        8: "the configuration cannot be read, there is no browser, or the desktop entry cannot be written",
        9: "neither DNS nor a table answered",
    },
)
@click.argument("ark", metavar="ARK", required=False)
@click.option("--register", is_flag=True, help="Let your desktop run it when you click a link that starts with ark:.")
@click.option("--unregister", is_flag=True, help="Undo --register.")
def open_(ark: str | None, register: bool, unregister: bool) -> None:
    """Open the URL of an ARK in the browser.

    On Linux and BSD, maptr open --register writes a desktop entry, for you alone, to
    $XDG_DATA_HOME/applications/maptr.desktop, and makes it the default for links that start with ark:.

    \b
    Examples:
      maptr open ark:12148/btv1b8449691v
      maptr open --register
    """
    import webbrowser  # late: only this command needs it

    if register or unregister:
        if ark is not None or register == unregister:
            raise click.UsageError("--register and --unregister take no ARK, and exclude each other")
        _register() if register else _unregister()
        return
    if ark is None:
        raise click.UsageError("Missing argument 'ARK'.")
    prepared = lookup.prepare([ark], lookup.DEFAULTS)

    def show(ark: Argument, found: Discovery | None, error: MaptrError | None) -> int:
        if error is None and found is not None:
            output.inform(f"maptr: opening {found.url()}")
            if not webbrowser.open(found.url()):
                output.fail("there is no browser: set BROWSER in the environment to one", output.EXIT_UNREADABLE)
        return output.EXIT_OK

    sys.exit(lookup.answer(prepared, show))


def _register() -> None:
    from maptr.cli import desktop  # late: only this option needs it

    try:
        output.inform(f"maptr: {desktop.register(os.environ, sys.argv[0])} opens links that start with ark:")
    except ConfigError as error:
        output.fail(str(error), output.EXIT_UNREADABLE)


def _unregister() -> None:
    from maptr.cli import desktop  # late: only this option needs it

    try:
        removed = desktop.unregister(os.environ)
    except ConfigError as error:
        output.fail(str(error), output.EXIT_UNREADABLE)
    output.inform("maptr: it was not registered" if removed is None else f"maptr: removed {removed}")


@command(
    exits={
        **_EXITS,
        0: "every ARK has a description",
        1: "an ARK has no mapping authority, or its authority has no description",
        9: "DNS or the mapping authority did not answer for an ARK. With several ARKs, the greatest code counts",
    }
)
@partial(_common, timeout="It also applies to the HTTP requests, whose default is 10.0.")
def info(arks: tuple[str, ...], **given: Any) -> None:
    """Ask the mapping authority of each ARK to describe it (?info), and print the ERC record.

    The HTTP status, the THUMP status and the source of the record are shown on stderr.

    \b
    Example:
      maptr info ark:12345/x6np1wh8k @127.0.0.1#5300
    """
    from maptr.nma.describe import SECONDS, describe  # late: it imports HTTP, which other commands do not need

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
            seconds=options.client.get("lifetime", SECONDS),
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
