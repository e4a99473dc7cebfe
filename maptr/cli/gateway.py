"""``maptr gateway``: redirects, pages and the look-up API over HTTP."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from maptr.cli import logstream, lookup, options, output
from maptr.cli.check_config import check_options, mistakes_reported, report, warn_of
from maptr.cli.group import command
from maptr.cli.lookup import LookupOptions
from maptr.cli.options import only_servers, settings_of
from maptr.cli.output import counted
from maptr.cli.redirects import noted
from maptr.config import Config
from maptr.daemon import process
from maptr.errors import ConfigError, MissingExtra
from maptr.protocol.names import to_text
from maptr.registry.followed_file import WatchedTable
from maptr.registry.found import NAMES, FoundTable

if TYPE_CHECKING:
    from maptr.client import Client
    from maptr.gateway.service import Service

PACKAGES = ("aiohttp", "jinja2", "prometheus_client")
NOTHING: Mapping[str, Any] = {  # what a failed start serves
    "dns": [],
    "table": None,
    "redirects": None,
    "zones": [],
    "warnings": [],
    "listen": [],
    "admin_listen": [],
}


@command(
    exits={
        0: "stopped; with --check-config: no errors",
        1: "something on the machine prevents the start, such as an address or a certificate; with --check-config: an "
        "error in the configuration, the table or the redirects",
        2: "bad usage, the extra maptr[gateway] is not installed, or a mistake in the text of the configuration, which "
        "must be edited before another start",
        8: "a file cannot be read",
    }
)
@click.argument("words", nargs=-1, metavar="[@SERVER[#PORT]]...")
@options.setting_option("gateway.listen", "--listen")
@options.cache_table_option()
@options.POLICY_OPTION
@options.ORIGIN_OPTION
@options.CHOOSE_OPTION
@click.option("--allow-private", is_flag=True, help="Also redirect to hosts that are not public.")
@options.CONFIG_OPTION
@check_options
@process.signals_blocked()
def gateway(words: tuple[str, ...], listen: tuple[str, ...], check_config: bool, as_json: bool, **given: Any) -> None:
    """Redirect any ARK to its mapping authority, over HTTP.

    DNS, a table, or both say where an ARK goes. The gateway also has pages to search and browse, an API, and metrics:

    \b
        maptr gateway --listen 127.0.0.1:8080 --table naans.json
        maptr: ready, serving on http://127.0.0.1:8080/
        curl -I http://127.0.0.1:8080/ark:12345/x6np1wh8k

    @SERVER asks this DNS server instead of the system's resolver. @tcp://HOST, @tls://HOST and @https://HOST/PATH are
    asked by TCP, TLS and HTTPS.

    SIGHUP rereads the configuration, the redirects of single ARKs, the certificate, the zones, and the logo and
    languages of the pages; the table and the zones are also reread when their files change. SIGTERM answers the
    requests in progress and stops.
    """
    if lacking := missing_extra():
        raise MissingExtra(lacking)
    from maptr.gateway.service import Service  # late: an extra

    servers = only_servers(words)
    options = LookupOptions.of(given)
    flags = settings_of({"listen": listen})

    def read(file: str | None) -> Config:
        return lookup.read_config(file, flags=flags, warn=str) or Config()

    with mistakes_reported(NOTHING, check=check_config, as_json=as_json):
        found = read(options.config)
        if check_config:
            output.show_log()
        else:
            logstream.configure(found.serve.log_level, found.serve.log_format)
        client = lookup.reconciling_client(servers, options, found, is_service=not check_config)
        service = Service(
            found,
            client,
            reread=lambda: read(found.filename or options.config),
            chooser=lookup.chooser_of(options, found, client),
            allow_private=options.allow_private,
            is_check=check_config,
        )
    warn_of(found, output.warning if check_config else logging.getLogger("maptr.gateway").warning)
    if check_config:
        _check(found, client, service, as_json=as_json)
        return
    try:
        service.bind()
    except ConfigError as error:
        output.fail(str(error), output.EXIT_NONE)

    gc.freeze()  # exempt the table, which lives long, from garbage collection

    async def run() -> None:
        async with client:
            await service.run(signals=True)

    asyncio.run(run())


def missing_extra() -> str:
    """Return the name of the first missing package, with advice; "" if none is missing."""
    lacking = next((package for package in PACKAGES if find_spec(package) is None), None)
    return f"needs the package {lacking}: pip install 'maptr[gateway]'" if lacking else ""


def _check(config: Config, client: Client, service: Service, *, as_json: bool) -> None:
    """Print what would be served. Exits for a mistake in the table, the redirects or a zone, which is also logged."""
    gateway, mistakes = config.gateway, [*_mistakes(config, client, service)]
    with client:
        state, zones = client.table.current(), service.current.zone_files.snapshot
        views = zones.zones.items() if zones is not None else ()
        listed = [{"zone": to_text(name), "serial": view.serial} for name, view in views]
        table = None if state.table is None else {"kind": state.kind, "records": len(state.table)}
        trouble = service.certificate_trouble()
        warnings = [*service.current.site.appearance.remarks, *filter(None, [trouble])]
        served = {**NOTHING, "table": table, "zones": listed, "warnings": warnings}
        if not service.current.asks_no_dns:
            served["dns"] = list(client.resolver.given)
        own = service.current.site.redirects.objects
        others = own.other_columns()
        ends_here = service.current.site.ends_here
        described = sum(ends_here(where, "") for where in own.urls()) if gateway.public_url else 0
        if gateway.redirects is not None:
            counts = {"redirects": len(own), "described": described}
            served["redirects"] = {"file": str(gateway.redirects), **counts, "unused_columns": list(others)}
    if not mistakes:
        served |= {"listen": [*map(str, gateway.listen)], "admin_listen": [*map(str, gateway.admin_listen)]}
    if trouble and not as_json:
        output.warning(trouble)
    if as_json:
        report(mistakes, served, as_json=True)
    elif mistakes:
        sys.exit(output.EXIT_NONE)
    else:
        for address in gateway.listen:
            output.data(f"listen {address} ({'http' if gateway.certificate is None else 'https'})")
        for address in gateway.admin_listen:
            output.data(f"listen {address} (http, for the operator)")
        records = "none" if state.table is None else f"{counted(len(state.table), 'record')} ({NAMES[state.kind]})"
        output.data(f"dns {' '.join(served['dns']) or 'none'}")
        output.data(f"table {records}")
        if gateway.redirects is not None:
            notes = [f"redirects {gateway.redirects}: {counted(len(own), 'redirect')}"]
            if described:
                notes.append(f"{described} below gateway.public_url, whose ARKs are described, not redirected")
            output.data("; ".join([*notes, *noted(others)]))
        for zone in listed:
            output.data(f"zone {zone['zone']} serial {zone['serial']}")


def _mistakes(config: Config, client: Client, service: Service) -> Iterator[ConfigError]:
    table = client.table
    if isinstance(table, FoundTable) and table.missing:
        if not config.table.url:  # else it will be pulled
            yield ConfigError("does not exist", filename=table.missing)
    elif trouble := table.current().trouble:
        yield ConfigError(trouble, filename=str(table.path) if isinstance(table, WatchedTable) else "", key="table")
    for each in service.current.zone_files.troubles:
        yield ConfigError(each, key="zone")
    if bad := service.current.site.redirects.left_out:
        reason = f"{counted(bad, 'bad row')} would be left out: see maptr redirects check {config.gateway.redirects}"
        yield config.error("gateway.redirects", reason)
