"""``maptr serve``: answer DNS queries from zone files, with a configuration file or without one."""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from maptr import config as configuration
from maptr.acl import Key, NotifyTarget, Rule
from maptr.address import Address
from maptr.cli import output
from maptr.config import Config
from maptr.errors import ConfigError, SigningError, ZoneError
from maptr.names import fold, parse, to_text
from maptr.packed import count_names
from maptr.serve import early as early_answers
from maptr.serve import hangup, publisher, settings, signer, zones
from maptr.serve.zones import ZoneSource

if TYPE_CHECKING:
    from maptr.serve.daemon import Daemon
    from maptr.serve.early import Early

T = TypeVar("T")


class _Parsed(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic from click 8.2 on
    """A value with a ``from_text`` that raises ValueError."""

    def __init__(self, kind: Any, name: str) -> None:
        self.kind = kind
        self.name = name

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        try:
            return self.kind.from_text(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        except OSError as error:
            self.fail(f"{error.filename}: {error.strerror}", param, ctx)


class _KeyText:
    """A key as the command line gives it."""

    @staticmethod
    def from_text(text: str) -> Key:
        """``NAME=ALGORITHM:@FILE``, or the secret itself in place of ``@FILE``. Raises ValueError and OSError."""
        name, equals, rest = text.partition("=")
        algorithm, colon, secret = rest.partition(":")
        if not (name and equals and colon and secret):
            raise ValueError("a key is NAME=ALGORITHM:@FILE, such as xfr=hmac-sha256:@xfr.key")
        if secret.startswith("@"):
            secret = Path(secret[1:]).read_text(encoding="ascii", errors="replace")
        return Key.of(name, algorithm, secret)


class _OriginText:
    """The origin of the catalog zone."""

    @staticmethod
    def from_text(text: str) -> tuple[bytes, ...]:
        try:
            return fold(parse(text))
        except ValueError as error:
            raise ValueError(f"{text!r} is no domain name: {error}") from None


@click.command(
    epilog="SIGHUP, or maptr reload, reads configuration, zone files and certificate again; a bad one leaves what was, "
    "and the log says why. SIGTERM stops. A zone that cannot be loaded at the start answers SERVFAIL while the others "
    "serve. Exit status: 0 stopped or checked, 1 the configuration is bad, an address cannot be had, or (checking) a "
    "zone is bad, 2 usage, 8 a file cannot be read."
)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    help="The configuration, in TOML.  [default: MAPTR_CONFIG; without --zone also maptr.toml, if it is here]",
)
@click.option(
    "--zone",
    "sources",
    multiple=True,
    type=_Parsed(ZoneSource, "ORIGIN=FILE"),
    help="A zone and its file, such as ark.arpa=ark.arpa.zone; goes before one in the configuration. Repeatable.",
)
@click.option(
    "--listen",
    "addresses",
    multiple=True,
    type=_Parsed(Address, "HOST:PORT"),
    help="Where to answer, UDP and TCP: 127.0.0.1:5353 or [::1]:5353; port 0 takes a free one. Repeatable.  "
    "[default: 127.0.0.1:5353]",
)
@click.option(
    "--metrics",
    "told_at",
    metavar="HOST:PORT",
    help="Where metrics for Prometheus (/metrics) and /health are told over HTTP, such as 127.0.0.1:9153; to whoever "
    "can reach it. Needs maptr[metrics].  [default: nowhere]",
)
@click.option("--control", metavar="SOCKET", help="Where maptr reload and maptr status find this server.")
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Processes that answer, one for each core; more than one on Linux only.  [default: 1]",
)
@click.option(
    "--tls-listen",
    "tls_addresses",
    multiple=True,
    type=_Parsed(Address, "HOST:PORT"),
    help="Where to answer DNS over TLS, such as 127.0.0.1:853. Repeatable; needs --tls-cert and --tls-key.",
)
@click.option(
    "--tls-cert",
    "certificate",
    metavar="FILE",
    help="The certificate and the chain above it, as PEM.",
)
@click.option("--tls-key", "key", metavar="FILE", help="The certificate's private key, as PEM.")
@click.option(
    "--nsid",
    help="Which server this is, told to those who ask by the NSID option (dig +nsid).  [default: not told]",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=_Parsed(_KeyText, "NAME=ALGORITHM:@FILE"),
    help="A TSIG key, its secret in base64 in a file: xfr=hmac-sha256:@xfr.key. Without the @, the secret itself, "
    "which other users of the machine then see. Repeatable.",
)
@click.option(
    "--transfer",
    "rules",
    multiple=True,
    type=_Parsed(Rule, "WHO"),
    help="Who may transfer the zones: key:NAME, an address or prefix, or both as 'PREFIX key:NAME'. Repeatable.  "
    "[default: nobody]",
)
@click.option(
    "--notify",
    "targets",
    multiple=True,
    type=_Parsed(NotifyTarget, "HOST[:PORT] [key:NAME]"),
    help="A secondary to tell of each new serial, signed with the key where one is named. Repeatable.",
)
@click.option(
    "--catalog",
    type=_Parsed(_OriginText, "ORIGIN"),
    help="Also serve a catalog of the zones (RFC 9432) to those who may transfer it, such as catalog.invalid.",
)
@click.option(
    "--state",
    type=click.Path(exists=True, file_okay=False, writable=True),
    help="Where to keep the journals that IXFR is answered from.  [default: beside each zone's file]",
)
@click.option(
    "--check-config",
    is_flag=True,
    help="Read and check everything, print what would be served, and leave. Nothing is bound.",
)
@hangup.held()
def serve(
    file: str | None,
    sources: tuple[ZoneSource, ...],
    addresses: tuple[Address, ...],
    control: str | None,
    workers: int | None,
    tls_addresses: tuple[Address, ...],
    certificate: str | None,
    key: str | None,
    nsid: str | None,
    told_at: str | None,
    keys: tuple[Key, ...],
    rules: tuple[Rule, ...],
    targets: tuple[NotifyTarget, ...],
    catalog: tuple[bytes, ...] | None,
    state: str | None,
    check_config: bool,
) -> None:
    """Answer DNS queries from zone files.

    Serves any zone, over UDP, TCP and TLS, IPv4 and IPv6, and says on stderr when it is ready:

    \b
        maptr serve --zone ark.arpa=ark.arpa.zone --listen 127.0.0.1:5353
        maptr: ready, serving 1 zone on 127.0.0.1:5353 (udp, tcp)

    With a configuration, maptr serve --config maptr.toml. Every setting of its [serve] can be given in the
    environment too: MAPTR_SERVE_LISTEN=127.0.0.1:53,[::1]:53 goes before the file, and options go before both.
    """
    path = _file(file, bool(sources))
    given: dict[str, tuple[object, str]] = {
        "serve.listen": ([str(address) for address in addresses] or None, "--listen"),
        "serve.tls.listen": ([str(address) for address in tls_addresses] or None, "--tls-listen"),
        "serve.tls.certificate": (certificate, "--tls-cert"),
        "serve.tls.key": (key, "--tls-key"),
        "serve.control": (control, "--control"),
        "serve.metrics": (told_at, "--metrics"),
        "serve.workers": (workers, "--workers"),
        "serve.nsid": (nsid, "--nsid"),
        "serve.catalog.name": (None if catalog is None else to_text(catalog), "--catalog"),
        "serve.state": (state, "--state"),
    }
    options = settings.Options(sources, keys, rules, targets)
    flags = {name: (value, option) for name, (value, option) in given.items() if value is not None}

    def read() -> Config:
        config = configuration.load(path, environment=os.environ, flags=flags)
        config = options.over(config)
        settings.check(config)
        settings.sources_of(config)
        if config.table.public_key is not None:
            settings.demands_of(config)
        return config

    config = _or_fail(read)
    if not config.zones:
        if path is None:
            raise click.UsageError("there is no zone to serve: give --zone ORIGIN=FILE, or --config FILE")
        output.fail(str(config.error("zone", "there is no zone to serve")), output.EXIT_NONE)
    if check_config:
        _check(config)
        return
    _or_fail(lambda: settings.make_state(config))
    logging.basicConfig(level=logging.INFO, format="maptr: %(message)s")
    gc.disable()  # a start makes many objects, and hardly any garbage
    served = publisher.start(settings.sources_of(config), clock=time.time)
    early = None
    try:
        early = early_answers.start(config, served.snapshot())
        daemon = daemon_of(config, served, read, early)
        gc.freeze()  # and they stay: to look for garbage among them would only take time
        gc.enable()
        _run(daemon)
    except ConfigError as error:
        gc.enable()
        if early is not None:
            early.stop()
        output.fail(str(error), output.EXIT_NONE)


def daemon_of(
    config: Config, served: publisher.Served, reread: Callable[[], Config], early: Early | None = None
) -> Daemon:
    """The daemon of a configuration and its zones. Raises ConfigError."""
    from maptr.serve.daemon import Daemon  # here, for queries are answered early while this is imported

    return Daemon(
        settings.sources_of(config),
        config.serve.listen,
        served.snapshot(),
        identity=settings.identity_of(config),
        cookies=settings.cookies_of(config),
        rrl=settings.rrl_of(config),
        tls=settings.tls_of(config),
        tcp_limits=settings.tcp_of(config),
        udp_payload=config.serve.udp_payload,
        primary=settings.primary_of(config),
        served=served,
        config=config,
        reread=reread,
        control=settings.control_of(config),
        metrics=config.serve.metrics,
        workers=config.serve.workers,
        early=early,
    )


def _run(daemon: Daemon) -> None:
    import asyncio

    asyncio.run(daemon.run(signals=True))


def _file(named: str | None, has_zones: bool) -> Path | None:
    """The configuration's file; the one that only happens to lie here is not for who names zones."""
    if named is not None:
        return Path(named)
    found = configuration.find(os.environ)
    return None if has_zones and configuration.FILE_VARIABLE not in os.environ else found


def _or_fail(read: Callable[[], T]) -> T:
    try:
        return read()
    except ConfigError as error:
        if error.filename.startswith("--"):
            raise click.UsageError(f"{error.filename}: {error.reason}") from None
        output.fail(str(error), output.EXIT_NONE)
    except OSError as error:
        output.fail(f"{error.filename}: {error.strerror}", output.EXIT_UNREADABLE)


def _read(source: ZoneSource) -> zones.Checked:
    """A zone as it would be published, nothing being written but aside. Raises ZoneError and OSError."""
    if source.table is None:
        return zones.read_checked(source)
    import tempfile

    from maptr.serve import tables

    with tempfile.TemporaryDirectory() as aside:
        path = Path(aside) / source.path.name
        if source.path.exists():
            path.write_bytes(source.path.read_bytes())
        copy = replace(source, path=path, state=None)
        return zones.read_checked(tables.prepared(copy, time.time()))


def _check(config: Config) -> None:
    """Print what would be served, or what is wrong, every bad zone of it."""
    code = output.EXIT_OK
    if tls := settings.tls_of(config):
        from maptr.serve.tls import make_context

        try:
            make_context(tls)
        except ConfigError as error:
            output.talk(f"maptr: {error}")
            code = output.EXIT_NONE
    for source in settings.sources_of(config):
        try:
            checked = _read(source)
            if source.signing is not None:
                signer.check(source.signing)
        except (ZoneError, SigningError) as error:
            output.talk(f"maptr: {error}")
            code = max(code, output.EXIT_NONE)
        except OSError as error:
            if source.table is not None and config.table.url and config.table.file == source.table.table:
                output.talk(f"maptr: zone {to_text(source.origin)}: {source.table.table} is not pulled yet")
                continue
            output.talk(f"maptr: {error.filename}: {error.strerror}")
            code = output.EXIT_UNREADABLE
        else:
            names = count_names(checked.view)
            zone = to_text(source.origin)
            origin = source.path if source.table is None else source.table.table
            signed = "" if source.signing is None else f", signed with {source.signing.keys}"
            output.data(f"zone {zone} serial {checked.view.serial}, {names} names, from {origin}{signed}")
            for warning in checked.warnings:
                output.talk(f"maptr: zone {zone}: {warning}")
    if code:
        raise SystemExit(code)
    if config.serve.workers > 1:
        output.data(f"workers {config.serve.workers}")
    for address in config.serve.listen:
        output.data(f"listen {address} (udp, tcp)")
    for address in config.serve.tls.listen:
        output.data(f"listen {address} (tls)")
    if config.serve.metrics is not None:
        output.data(f"metrics {config.serve.metrics} (http)")
