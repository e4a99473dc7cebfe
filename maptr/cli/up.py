"""``maptr up``: the registry pulled, its zone built, checked and served on loopback, and maptr pointed at it."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import click

from maptr import config as configuration
from maptr import places
from maptr.cli import logstream, output, shared, through, upregistry
from maptr.cli.completion import files
from maptr.cli.serving import daemon_of
from maptr.cli.source import read_table
from maptr.cli.upregistry import Registry
from maptr.config import Config
from maptr.errors import ConfigError
from maptr.files import name_for, write_atomically
from maptr.protocol.names import Labels, fold, parse, to_text
from maptr.protocol.numbers import SERVER_PORT
from maptr.server import publisher, settings, state_folder
from maptr.server.control import MAX_SOCKET_PATH
from maptr.server.daemon import Daemon
from maptr.server.state import Served, ZoneState
from maptr.zone.lint import publishable

HOST = "127.0.0.1"
FREE_PORTS = 3  # tried one after the other where that is taken
LOCK_TRIES = 5
LOCK_PAUSE = 0.05  # seconds


@click.command(short_help="Pull the registry, serve it on this machine, and point maptr at it.")
@click.argument("sources", nargs=-1, metavar="[URL|FILE]...", shell_complete=files)
@click.option("--origin", metavar="NAME", help=f"The zone's name.  [default: {through.ORIGIN}, or as configured]")
@click.option("--port", type=click.IntRange(1, 65535), help=f"On {HOST}.  [default: {SERVER_PORT}, or a free one]")
@shared.CONFIG_OPTION
@click.option("--offline", is_flag=True, help="Pull nothing: the table that was pulled before.")
@click.option("--sample", is_flag=True, help="Pull nothing: a small sample of example organisations.")
@click.option("--force", is_flag=True, help="Take a registry even if more than 30 % of it went or changed.")
def up(
    sources: tuple[str, ...],
    origin: str | None,
    port: int | None,
    config: str | None,
    offline: bool,
    sample: bool,
    force: bool,
) -> None:
    """Pull the registry from the first source that has it, build and check its zone, serve that on this machine, and
    have every maptr command of this user ask there, until Ctrl-C.

    Without a source it is that of [table] in the configuration, or the public NAAN registry
    (https://cdluc3.github.io/naan_reg_priv/naan_records.json); where none answers, the table pulled before.
    The table stays when this ends, and answers where DNS does not: maptr table pull keeps it up to date.

    \b
    Examples:
      maptr up
      maptr up https://registry.example/naans.json
      maptr up --sample

    \b
    Exit codes:
      0  stopped; or it was running already
      1  the zone is not fit to be served, the port is taken, or the
         configuration is bad
      2  bad usage
      8  there is no registry; or a file cannot be read or written
    """
    if sample and (sources or offline or force):
        raise click.UsageError("--sample pulls nothing: no source, --offline or --force goes with it")
    known = shared.configured(config, running=False)  # not by what one that was killed left
    labels = _labels(through.origin_of(origin, known))
    folder = Path(places.data_folder(os.environ)) / "up"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _only_one(Path(places.lock_file(os.environ))):
            registry = (
                upregistry.sample()
                if sample
                else upregistry.find_registry(sources, known, offline=offline, force=force)
            )
            _serve(registry, labels, folder, [port] if port else [SERVER_PORT, *_free_ports()], force=force)
    except ConfigError as error:
        output.fail(str(error), output.EXIT_NONE)
    except OSError as error:
        output.fail(f"{error.filename}: {error.strerror or error}", output.EXIT_UNREADABLE)


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """For one process of the user at a time; a second one says where the first serves, and ends well."""
    with path.open("a") as lock:
        if not _took(lock):
            running = _running()
            where = f", on {', '.join(running.client.nameservers)}" if running is not None else ""
            output.talk(f"maptr: it is up already{where}; try: maptr url ARK")
            sys.exit(output.EXIT_OK)
        yield


def _took(lock: IO[str]) -> bool:
    """True with the lock taken; a command that looks whether it is free has it for a moment, too."""
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_PAUSE)
        else:
            return True
    return False


def _running() -> Config | None:
    try:
        return configuration.load(Path(places.running_file(os.environ)))
    except (ConfigError, OSError):
        return None


# ---- the zone, the server, the client


def _serve(registry: Registry, origin: Labels, folder: Path, ports: list[int], *, force: bool) -> None:
    file = Path(places.running_file(os.environ))
    for last, port in enumerate(ports, 1):
        text = _configuration(registry, origin, folder, port)
        config = configuration.parse(text, filename=str(file), directory=file.parent)
        served, state = _zone(config, force=force)
        daemon = daemon_of(config, served, lambda: configuration.load(file))
        try:
            daemon.bind()
            break
        except ConfigError as error:
            if last == len(ports):
                output.fail(str(error), output.EXIT_NONE)
            output.talk(f"serving   not on port {port}, which is taken")

    def begin() -> None:
        write_atomically(file, text.encode())
        _tell(daemon, state, registry, file)

    logstream.configure(logging.WARNING)
    try:
        asyncio.run(_run(daemon, begin))
    finally:
        file.unlink(missing_ok=True)
    output.talk(f"maptr: stopped; {registry.file} stays" if registry.kind == "registry" else "maptr: stopped")


def _zone(config: Config, *, force: bool) -> tuple[Served, ZoneState]:
    """The zone as the table makes it now; ends the command where that is none to be served."""
    state_folder.make(config)
    sources = settings.sources_of(config)
    served = publisher.start(sources, clock=time.time)
    served, (outcome,) = publisher.publish(sources, served, clock=time.time, force=force)
    state = served.states[config.zones[0].name]
    if state.view is None:
        output.fail(f"the zone is not fit to be served: {outcome.reason}", output.EXIT_NONE)
    if outcome.result == "refused":
        output.talk(f"zone      not renewed: {outcome.reason} (--force overrides)")
    findings = f"{len(state.warnings)} findings, maptr zone check has them" if state.warnings else "no findings"
    names = f"{state.names:,} names" if state.names else "as before"
    output.talk(f"zone      {to_text(state.source.origin)} serial {state.view.serial}, {names}, checked: {findings}")
    output.talk(f"          {state.source.path}")
    if state.left_out and state.left_out.records:
        output.talk(f"          of its table {state.left_out}")
    return served, state


def _configuration(registry: Registry, origin: Labels, folder: Path, port: int) -> str:
    """What server and client go by, as TOML."""
    import json

    def quoted(value: object) -> str:
        return json.dumps(str(value), ensure_ascii=False)

    name, home = to_text(origin), folder / registry.kind
    lines = [
        "# Written by maptr up, and gone when it ends.",
        "[serve]",
        f'listen = ["{HOST}:{port}"]',
        f"control = {quoted(_socket(folder))}",
        f"state = {quoted(home)}",
        "[[zone]]",
        f"name = {quoted(name)}",
        f"file = {quoted(home / f'{name_for(origin)}.zone')}",
        f"table = {quoted(registry.file)}",
    ]
    if registry.kind == "registry":  # the sample is nothing that a pull may replace
        lines += ["[table]", f"file = {quoted(registry.file)}"]
    lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in registry.pulled.items()]
    lines += [
        "[client]",
        f"origin = {quoted(name)}",
        f'nameservers = ["{HOST}#{port}"]',
        "[cache]",
        f"natab = {quoted(registry.file)}",
        'path = ""  # what is served on this machine needs no keeping',
    ]
    return "\n".join(lines) + "\n"


def _socket(folder: Path) -> str:
    """Where ``maptr status`` finds the server; none where the path would be too long for a socket."""
    path = str(folder / "maptr.sock")
    return path if len(os.fsencode(path)) <= MAX_SOCKET_PATH else ""


def _tell(daemon: Daemon, state: ZoneState, registry: Registry, file: Path) -> None:
    where = f"{daemon.bound[0].host} -p {daemon.bound[0].port}"
    naan = _example(registry.file)
    output.talk(f"serving   {daemon.bound[0]} (udp, tcp)")
    output.talk("client    every maptr command of yours asks there, until this ends")
    now = shared.configured(None)
    if now is not None and now.filename != str(file):
        output.talk(f"          but {now.filename} goes before it, and says whom to ask")
    output.talk("ready; try, in another shell (Ctrl-C here ends it):")
    output.data(f"  maptr url ark:{naan}/x1")
    output.data(f"  maptr discover --trace ark:{naan}/x1")
    output.data(f"  dig +short NAPTR {naan}.{to_text(state.source.origin)} @{where}")
    if daemon.reloader.config is not None and daemon.reloader.config.serve.control is not None:
        output.data(f"  maptr status --config {shlex.quote(str(file))}")
    sys.stdout.flush()


def _example(table: Path) -> str:
    """A NAAN that the zone answers for."""
    usable, _ = publishable(read_table(str(table))[0])
    return next((entry.naan for entry in usable.values() if entry.nmas and not entry.shoulder), "12345")


async def _run(daemon: Daemon, begin: Callable[[], None]) -> None:
    """``begin`` is what has to be undone at the end, and so waits until no signal ends this otherwise."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the terminal is closed: nobody is left to stop it
        loop.add_signal_handler(number, daemon.stop)
    begin()
    await daemon.run()


def _labels(origin: str) -> Labels:
    try:
        return fold(parse(origin))
    except ValueError as error:
        raise click.UsageError(f"--origin: {origin} is no domain name: {error}") from None


def _free_ports() -> list[int]:
    """Ports that are free now, more than one: until the zone is built somebody may take the first."""
    with ExitStack() as stack:
        socks = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(FREE_PORTS)]
        for sock in socks:
            sock.bind((HOST, 0))
        return [sock.getsockname()[1] for sock in socks]
