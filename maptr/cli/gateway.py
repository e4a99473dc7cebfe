"""``maptr gateway``: serve redirects, pages and the look-up API over HTTP."""

from __future__ import annotations

import asyncio
import logging
from importlib.util import find_spec

import click

from maptr.cli import logstream, lookup, options, output
from maptr.cli.lookup import LookupOptions
from maptr.cli.options import Parsed
from maptr.config import Config
from maptr.errors import ConfigError, MissingExtra
from maptr.protocol.address import Address
from maptr.protocol.numbers import HTTP_PORT
from maptr.server import process

PACKAGES = ("aiohttp", "jinja2", "prometheus_client")


@click.command()
@click.argument("words", nargs=-1, metavar="[@SERVER[#PORT]]...")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    type=Parsed(lambda text: str(Address.from_text(text))),
    multiple=True,
    help=f"Address for HTTP, such as [::1]:{HTTP_PORT}; port 0 takes a free one. Repeatable.  "
    f"[default: 127.0.0.1:{HTTP_PORT}, or configured]",
)
@options.CACHE_TABLE_OPTION
@options.POLICY_OPTION
@options.ORIGIN_OPTION
@options.CHOOSE_OPTION
@click.option("--allow-private", is_flag=True, help="Redirect to hosts that are not public, too.")
@options.CONFIG_OPTION
@process.signals_blocked()
def gateway(
    words: tuple[str, ...],
    listen: tuple[str, ...],
    table: str | None,
    policy: str | None,
    origin: str | None,
    choose: str | None,
    allow_private: bool,
    config: str | None,
) -> None:
    """Redirect any ARK to its mapping authority, over HTTP.

    DNS, a table, or both say where an ARK goes. The gateway also has a page to search and look at, an API, and metrics:

    \b
        maptr gateway --listen 127.0.0.1:8080 --table naans.json
        maptr: ready, serving on http://127.0.0.1:8080/
        curl -I http://127.0.0.1:8080/ark:12345/x6np1wh8k

    @SERVER asks this DNS server instead of the system's resolver.

    SIGHUP reads the configuration, the redirects of single ARKs and the certificate again; the table is read again
    when it changes. SIGTERM answers the requests under way and stops.

    \b
    Exit codes:
      0  stopped
      1  the configuration is bad or an address cannot be bound
      2  bad usage, or the extra maptr[gateway] is not installed
      8  a file cannot be read
    """
    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        raise MissingExtra(f"needs the package {missing[0]}: pip install 'maptr[gateway]'")
    from maptr.gateway.service import Service  # late: an extra

    others, servers = lookup.split_servers(words)
    if others:
        raise click.UsageError(f"{others[0]!r} is not @SERVER")
    flags = {"gateway.listen": (list(listen), "--listen")} if listen else {}
    given = LookupOptions(
        origin=origin, table=table, policy=policy, choose=choose, allow_private=allow_private, config=config
    )

    def read() -> Config:
        return lookup.read_config(config, flags=flags) or Config()

    try:
        found = read()
        logstream.configure(logging.INFO, logstream.formatter(found.serve.log_format))
        cache = lookup.make_cache(servers, given, found)
        chooser = lookup.chooser_of(given, found)
        service = Service(found, cache, reread=read, chooser=chooser, allow_private=allow_private)
        service.bind()
    except ConfigError as error:
        for each in error.all:
            output.talk(f"maptr: {each}")
        raise click.exceptions.Exit(output.EXIT_NONE) from None

    async def run() -> None:
        async with cache:
            await service.run(signals=True)

    asyncio.run(run())
