"""``maptr up``: a DNS server and a gateway on loopback for the registry; the user's other maptr commands use them."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from maptr import config as configuration
from maptr import paths
from maptr.cli import gateway, logstream, lookup, options, output
from maptr.cli.group import command
from maptr.cli.options import read_table
from maptr.cli.output import counted
from maptr.config import Config
from maptr.config.model import TableConfig
from maptr.daemon.pulling import sources_of
from maptr.discovery import PULLED
from maptr.errors import ConfigError
from maptr.files import name_for, write_atomically
from maptr.protocol import names
from maptr.protocol.address import Address
from maptr.protocol.names import Labels, fold, to_text
from maptr.protocol.numbers import HTTP_PORT, SERVER_PORT
from maptr.registry.followed_file import WatchedTable
from maptr.registry.found import NAMES
from maptr.registry.pull import OFFICIAL, PullSources, begin_with_built_in, pull_table
from maptr.server import freeze, publisher, state_folder
from maptr.server.control import MAX_SOCKET_PATH
from maptr.server.daemon import Daemon
from maptr.server.state import Served
from maptr.zone.lint import publishable
from maptr.zone.snapshot import Snapshot

T = TypeVar("T")

HOSTS = ("127.0.0.1", "::1")  # the first that this machine has
LOCK_TRIES = 5
LOCK_PAUSE = 0.05  # seconds
PULL_SECONDS = 30.0  # for one source
EVERY = 3600  # seconds between pulls while it runs
SAMPLE = Path(__file__).resolve().parent.parent / "sample.json"


@command(
    exits={
        0: "stopped, or maptr up was running already",
        1: "the zone cannot be served, a port is taken, or the configuration is bad",
        8: "there is no registry, or a file cannot be read or written",
    }
)
@click.argument("sources", nargs=-1, metavar="[URL|FILE]...", type=options.PATH)
@options.configured_origin_option("The zone has this name.")
@options.port_option("--port", help=f"Serve DNS on this port of {HOSTS[0]}.  [default: {SERVER_PORT}, or a free one]")
@options.port_option(
    "--http-port", help=f"Serve the gateway on this port of {HOSTS[0]}.  [default: {HTTP_PORT}, or a free one]"
)
@options.CONFIG_OPTION
@click.option("--offline", is_flag=True, help="Pull nothing; serve the last table pulled, or the built-in one.")
@click.option("--sample", is_flag=True, help="Pull nothing; serve a small sample of example organisations.")
@click.option("--force", is_flag=True, help="Accept a registry even if more than 30 % of it was removed or changed.")
def up(
    sources: tuple[str, ...],
    origin: str | None,
    port: int | None,
    http_port: int | None,
    config: str | None,
    offline: bool,
    sample: bool,
    force: bool,
) -> None:
    """Serve the zone of the registry on this machine, and point this user's other maptr commands at it.

    It starts at once, with the last table pulled or the built-in registry, and meanwhile pulls today's: from [table] in
    the configuration, else the public NAAN registry (https://cdluc3.github.io/naan_reg_priv/naan_records.json).
    A given source is pulled first.

    The gateway, with the same table and zone, is for a browser: open the URL that is printed. It needs the extra
    maptr[gateway]; without it, DNS alone is served.

    Ctrl-C stops both. The table remains and answers where DNS does not; maptr table pull keeps it up to date.

    \b
    Examples:
      maptr up
      maptr up https://registry.example/naans.json
      maptr up --sample
    """
    if "-" in sources:
        raise click.UsageError("the registry is pulled again, so it cannot be standard input: use maptr table pull -")
    if sample and (sources or offline or force):
        raise click.UsageError("--sample pulls nothing: it excludes sources, --offline and --force")
    known = lookup.read_config(config, running=False)  # without the file of a running maptr up
    labels = fold(names.parse(lookup.origin_of(origin, known)))
    folder = Path(paths.data_folder(os.environ)) / "up"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _only_one(Path(paths.lock_file(os.environ))):
            if sample:
                output.inform("registry  THE SAMPLE, a few example organisations; it has no real ARK")
                table = TableConfig(SAMPLE)
            else:
                table = find_registry(sources, known or Config(), offline=offline, force=force)
            _serve(table, labels, folder, port, http_port, force=force)
    except ConfigError as error:
        output.fail(str(error), output.EXIT_NONE)


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Hold the user's lock. If another process holds it, print the address that it serves at, and exit with 0."""
    with path.open("a") as lock:
        for _ in range(LOCK_TRIES):  # other commands hold the lock for a moment to test it
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(LOCK_PAUSE)
        else:
            where = ""
            with suppress(ConfigError, OSError):
                running = configuration.load(Path(paths.running_file(os.environ)))
                where = f", on {', '.join(running.client.nameservers)}"
                if "gateway.listen" in running.locations:
                    where += f" and http://{running.gateway.listen[0]}/"
            output.inform(f"maptr up is already running{where}; try: maptr url ARK")
            sys.exit(output.EXIT_OK)
        yield


# ---- the registry


def find_registry(sources: tuple[str, ...], config: Config, *, offline: bool, force: bool) -> TableConfig:
    """Return the table to serve, from the first given source that has one, and how to pull it again.

    Without sources, or if none has one, it is the last table pulled; the server then pulls from the configured sources,
    else from the public one, and serves the built-in registry until the first pull.

    Raises ConfigError for a key that cannot be read, and OSError for the table.
    """
    known = config.table if config.table.file else TableConfig()
    file = (known.file or Path(paths.table_file(os.environ))).absolute()
    if sources or not known.sources:
        known = TableConfig()
    # The built-in registry cannot replace another organisation's table.
    must_pull = bool(sources) or force or (bool(known.sources) and not file.exists())
    places = [
        source if "://" in source else str(Path(source).resolve()) for source in sources or known.sources or (OFFICIAL,)
    ]
    key, cafile = (path.absolute() if path else None for path in (known.public_key, known.cafile))
    table = TableConfig(file, places[0], tuple(places[1:]), EVERY, known.sha256, key, cafile)
    origin = sources_of(config, PULL_SECONDS) if known.sources else PullSources(table.sources, seconds=PULL_SECONDS)
    if offline or not must_pull or not _pull(file, origin, force=force):
        if not file.exists() and places != [OFFICIAL]:
            output.fail(f"no registry was pulled to {file}", output.EXIT_UNREADABLE)
        if not file.exists():
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            begin_with_built_in(file)
        state = WatchedTable(file, clock=time.monotonic, kind=PULLED).current()
        later = "" if offline else f"; today's is pulled from {table.url} meanwhile"
        output.inform(f"registry  {NAMES[state.kind]} table of {lookup.day_text(state.fetched or 0)}, {file}{later}")
    return TableConfig(file) if offline else table


def _pull(file: Path, sources: PullSources, *, force: bool) -> bool:
    """Pull the registry. Returns whether the file now has a source's content. Raises OSError for the file."""
    output.inform(f"registry  pulling from {sources.places[0]} ...")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with output.progress("pulling the registry"):
        result = pull_table(file, sources, force=force, in_use=lookup.found_table(None))
    if isinstance(result.error, OSError):
        raise result.error
    for line in result.lines:
        output.inform(f"registry  {line.text}")
    return result.pull is not None


# ---- the zone, the server, the gateway, the client


def _serve(
    table: TableConfig, origin: Labels, folder: Path, port: int | None, http_port: int | None, *, force: bool
) -> None:
    file, host = Path(paths.running_file(os.environ)), _host()

    def document(port: int, http_port: int | None = None) -> dict[str, Any]:
        return document_of(table, origin, folder, host, port, http_port)

    def configured(port: int, http_port: int | None = None) -> Config:
        return configuration.from_document(document(port, http_port), filename=str(file), directory=file.parent)

    def daemon_at(port: int) -> Daemon:
        config = configured(port)
        daemon = Daemon(config, served, reread=lambda: config)
        daemon.bind()
        return daemon

    def gateway_at(port: int) -> Gateway:
        made = Gateway(configured(daemon.bound[0].port, port), daemon)
        made.service.bind()
        return made

    logstream.configure("warning")
    served = _zone(configured(port or SERVER_PORT), force=force)
    daemon = _bound(daemon_at, port, SERVER_PORT)
    http = None if gateway.missing_extra() else _bound(gateway_at, http_port, HTTP_PORT)

    def begin() -> None:
        bound = None if http is None else http.service.bound[0].port
        write_atomically(file, written(document(daemon.bound[0].port, bound)).encode())
        _tell(daemon, http, table, file)

    try:
        asyncio.run(_run(daemon, http, begin))
    finally:
        file.unlink(missing_ok=True)
    output.inform("maptr: stopped" if table.file == SAMPLE else f"maptr: stopped; {table.file} remains")


def _host() -> str:
    """Return the loopback address of this machine. Raises ConfigError if it has none."""
    for host in HOSTS:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((host, 0))
            sock.connect(sock.getsockname())  # an address of an interface that is down can be bound
            return host
    neither = " nor ".join(HOSTS)
    raise ConfigError(f"neither {neither} can be reached here: bring the loopback up (ip link set lo up)")


def _bound(make: Callable[[int], T], port: int | None, default: int) -> T:
    """Call ``make`` with the port, or else with the default port or 0, a free one. Exits if it cannot be bound."""
    try:
        return make(port or default)
    except ConfigError as error:
        if port:
            output.fail(error.reason, output.EXIT_NONE)
        output.inform(f"serving   on a free port, because {error.reason}")
        return make(0)


class Gateway:
    """A gateway for the table and the zone of a server in this process."""

    def __init__(self, config: Config, daemon: Daemon) -> None:
        from maptr.gateway.service import Service  # late: an extra

        given = lookup.DEFAULTS
        self.client = lookup.reconciling_client([], given, config)
        chooser = lookup.chooser_of(given, config, self.client)
        self.service = Service(config, self.client, zones=self._zones, chooser=chooser, is_local=True)
        self._daemon = daemon
        self._known: Snapshot | None = None

    def _zones(self) -> Snapshot:
        """Return the current zones. If they are new, the client drops the answers of the old ones."""
        zones = self._daemon.responder.state.snapshot
        if zones is not self._known:
            self._known = zones
            self.client.forget()
        return zones


def _zone(config: Config, *, force: bool) -> Served:
    """Build the zone of the table. Exits if the zone cannot be served."""
    state_folder.make(config)
    with output.progress("building the zone"):
        frozen = freeze.read(config.serve.state, time.time())
        served = publisher.start(config.zones, clock=time.time, frozen=frozen)
        served, (outcome,) = publisher.publish(config.zones, served, clock=time.time, force=force, frozen=frozen)
    state = served[config.zones[0].name]
    if state.view is None:
        output.fail(f"the zone cannot be served: {outcome.reason}", output.EXIT_NONE)
    if outcome.result == "refused":
        output.inform(f"zone      not renewed: {outcome.reason} (--force overrides)")
    shown = f"{counted(len(state.warnings), 'finding')}, shown by maptr zone check"
    findings = shown if state.warnings else "no findings"
    names = counted(state.names, "name") if state.names else "unchanged"
    output.inform(f"zone      {to_text(state.zone.name)} serial {state.view.serial}, {names}, checked: {findings}")
    output.inform(f"          {state.zone.file}")
    if state.left_out and state.left_out.records:
        output.inform(f"          {state.left_out}")
    return served


def document_of(
    table: TableConfig, origin: Labels, folder: Path, host: str, port: int, http_port: int | None
) -> dict[str, Any]:
    """Return the configuration of server, client and gateway as TOML values."""
    is_sample = table.file == SAMPLE  # no pull may replace it
    home, socket_path = folder / ("sample" if is_sample else "registry"), str(folder / "maptr.sock")
    if len(os.fsencode(socket_path)) > MAX_SOCKET_PATH:
        socket_path = ""
    name, file = to_text(origin), str(table.file)
    return {
        "serve": {"listen": [str(Address(host, port))], "control": socket_path, "state": str(home)},
        "zone": [{"name": name, "file": str(home / f"{name_for(origin)}.zone"), "table": file}],
        "table": {} if is_sample else {key: _plain(value) for key, value in vars(table).items() if value is not None},
        "client": {"origin": name, "nameservers": [f"{host}#{port}"] if port else []},
        "cache": {"natab": file, "path": ""},  # the server is on this machine
        # Only this machine reaches it, and a link checker sends many requests at once.
        "gateway": {} if http_port is None else {"listen": [str(Address(host, http_port))], "rate": 0},
    }


def _plain(value: object) -> object:
    """Return the value of a setting of the table as a TOML value."""
    return value if isinstance(value, int) else [*map(str, value)] if isinstance(value, tuple) else str(value)


def written(document: Mapping[str, Any]) -> str:
    """Write a configuration for the user's other commands."""
    lines = ["# Written by maptr up, which removes it when it ends."]
    for title, tables in document.items():
        is_array = isinstance(tables, list)
        for table in tables if is_array else [tables]:
            lines.append(f"[[{title}]]" if is_array else f"[{title}]")
            # JSON writes texts, numbers and arrays as TOML does.
            lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items()]
    return "\n".join(lines)


def _tell(daemon: Daemon, http: Gateway | None, table: TableConfig, file: Path) -> None:
    (zone,) = daemon.reloader.config.zones
    where = f"{daemon.bound[0].host} -p {daemon.bound[0].port}"
    usable, _ = publishable(read_table(str(table.file))[0])
    naan = next((entry.naan for entry in usable.values() if entry.nmas and not entry.shoulder), "12345")
    output.inform(f"serving   {daemon.bound[0]} (udp, tcp)")
    output.inform(f"gateway   {gateway.missing_extra()}" if http is None else f"gateway   {http.service.urls[0]}")
    output.inform("client    your other maptr commands use this server until it stops")
    now = lookup.read_config(None, warn=str)
    if now is not None and now.filename != str(file):
        output.inform(f"          but {now.filename} takes precedence and names other servers")
    if http is not None:
        output.inform("ready; open in a browser (Ctrl-C here ends it):")
        output.data(f"  {http.service.urls[0]}")
        output.inform("or try, in another shell:")
    else:
        output.inform("ready; try, in another shell (Ctrl-C here ends it):")
    output.data(f"  maptr url ark:{naan}/x1")
    output.data(f"  maptr discover --trace ark:{naan}/x1")
    output.data(f"  dig +short NAPTR {naan}.{to_text(zone.name)} @{where}")
    if daemon.reloader.config.serve.control is not None:
        output.data(f"  maptr status --config {shlex.quote(str(file))}")
    sys.stdout.flush()


async def _run(daemon: Daemon, http: Gateway | None, begin: Callable[[], None]) -> None:
    """Run server and gateway until a signal. Calls ``begin`` once the signal handlers are installed.

    The gateway ends first, because its last responses need the server.
    """
    loop = asyncio.get_running_loop()
    stop = daemon.stop if http is None else http.service.stop
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # SIGHUP: the terminal was closed
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # which nohup sets
            loop.add_signal_handler(number, stop)
    begin()
    serving = asyncio.create_task(daemon.run())
    serving.add_done_callback(lambda _: stop())
    if http is not None:
        async with http.client:
            await http.service.run()
        daemon.stop()
    await serving
