"""``maptr serve``: read and check everything, then run the daemon."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from maptr import config as configuration
from maptr.cli import logstream, output, servecheck
from maptr.cli.options import files, folders
from maptr.errors import ConfigError, MissingExtra, raise_all
from maptr.protocol.address import Address
from maptr.protocol.names import fold, parse, to_text
from maptr.protocol.numbers import SERVER_PORT
from maptr.server import privileges, publisher, settings, state_folder, systemd
from maptr.server.daemon import Daemon
from maptr.server.settings import Overrides
from maptr.server.sockets import Sockets, limits_within_descriptors
from maptr.server.state import ZoneSource
from maptr.transfer.acl import AccessRule, NotifyTarget, TsigKey

if TYPE_CHECKING:
    from maptr.config import Config
    from maptr.server.state import Served

log = logging.getLogger("maptr.serve")

T = TypeVar("T")

# Option -> the setting that it overrides.
SETTINGS = {
    "--listen": "serve.listen",
    "--metrics": "serve.metrics",
    "--user": "serve.user",
    "--control": "serve.control",
    "--tls-listen": "serve.tls.listen",
    "--tls-cert": "serve.tls.certificate",
    "--tls-key": "serve.tls.key",
    "--nsid": "serve.nsid",
    "--catalog": "serve.catalog.name",
    "--state": "serve.state",
    "--log-level": "serve.log_level",
    "--log-format": "serve.log_format",
    "--query-log": "serve.query_log.every",
}


class _Parsed(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic from click 8.2 on
    """The value that a function makes of the text; its ValueError and OSError are bad usage."""

    name = "text"

    def __init__(self, parse: Callable[[str], object]) -> None:
        self._parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        try:
            return self._parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        except OSError as error:
            self.fail(f"{error.filename}: {error.strerror}", param, ctx)


def _address(text: str) -> str:
    return str(Address.from_text(text))


def _key(text: str) -> TsigKey:
    name, equals, rest = text.partition("=")
    algorithm, colon, secret = rest.partition(":")
    if not (name and equals and colon and secret):
        raise ValueError("a key is NAME=ALGORITHM:@FILE, such as xfr=hmac-sha256:@xfr.key")
    if secret.startswith("@"):
        secret = Path(secret[1:]).read_text(encoding="ascii", errors="replace")
    return TsigKey.of(name, algorithm, secret)


def _origin(text: str) -> str:
    try:
        return to_text(fold(parse(text)))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a valid domain name: {error}") from None


def _folder(text: str) -> str:
    if not Path(text).is_dir():
        raise ValueError(f"{text!r} {'is not a directory' if Path(text).exists() else 'does not exist'}")
    if not os.access(text, os.R_OK | os.W_OK):
        raise ValueError(f"{text!r} cannot be written to")
    return text


@click.command()
@click.option(
    "--config",
    metavar="FILE",
    shell_complete=files,
    help="Configuration file (TOML).  [default: MAPTR_CONFIG; without --zone also ./maptr.toml]",
)
@click.option(
    "--zone",
    metavar="ORIGIN=FILE",
    type=_Parsed(ZoneSource.from_text),
    multiple=True,
    help="Zone and its file, such as ark.arpa=ark.arpa.zone; overrides the zone in the configuration. Repeatable.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    type=_Parsed(_address),
    multiple=True,
    help=f"Address for UDP and TCP, such as [::1]:{SERVER_PORT}; port 0 takes a free one. Repeatable.  "
    f"[default: 127.0.0.1:{SERVER_PORT}]",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Address of the HTTP server for Prometheus (/metrics) and /health, such as 127.0.0.1:9153. Every client that "
    "can reach it may read them. Needs maptr[metrics].  [default: none]",
)
@click.option(
    "--user",
    metavar="NAME[:GROUP]",
    help="User to run as if root starts the server, such as maptr or maptr:dns; sockets are bound first.  "
    "[default: the user that starts it]",
)
@click.option(
    "--control",
    metavar="SOCKET",
    shell_complete=files,
    help="Control socket, which maptr reload and maptr status use.  [default: as configured, else none]",
)
@click.option(
    "--tls-listen",
    metavar="HOST:PORT",
    type=_Parsed(_address),
    multiple=True,
    help="Address for DNS over TLS, such as 127.0.0.1:853. Repeatable; needs --tls-cert and --tls-key.  "
    "[default: none]",
)
@click.option("--tls-cert", metavar="FILE", shell_complete=files, help="Certificate and its chain, as PEM.")
@click.option("--tls-key", metavar="FILE", shell_complete=files, help="Private key of the certificate, as PEM.")
@click.option(
    "--nsid", metavar="TEXT", help="Identifier of this server for the NSID option (dig +nsid).  [default: none]"
)
@click.option(
    "--key",
    metavar="NAME=ALGORITHM:@FILE",
    type=_Parsed(_key),
    multiple=True,
    help="TSIG key with its secret in base64 in FILE: xfr=hmac-sha256:@xfr.key. Without the @ the secret itself, "
    "which other users of the machine can see. Repeatable.",
)
@click.option(
    "--transfer",
    metavar="WHO",
    type=_Parsed(AccessRule.from_text),
    multiple=True,
    help="Who may transfer the zones: key:NAME, an address or prefix, or both as 'PREFIX key:NAME'. Repeatable.  "
    "[default: none]",
)
@click.option(
    "--notify",
    metavar="HOST[:PORT] [key:NAME]",
    type=_Parsed(NotifyTarget.from_text),
    multiple=True,
    help="Secondary to send NOTIFY to at each new serial, signed with the key. Repeatable.  [default: none]",
)
@click.option(
    "--catalog",
    metavar="ORIGIN",
    type=_Parsed(_origin),
    help="Also serve a catalog of the zones (RFC 9432) to those who may transfer it, such as catalog.invalid.  "
    "[default: none]",
)
@click.option(
    "--state",
    metavar="DIRECTORY",
    type=_Parsed(_folder),
    shell_complete=folders,
    help="Directory of this server alone, for the journals that IXFR is answered from, and for the zones that it "
    "builds and signs.  [default: journals lie beside the zone files]",
)
@click.option(
    "--log-level", metavar="LEVEL", help="Least level to log: debug, info, warning or error.  [default: info]"
)
@click.option("--log-format", metavar="FORMAT", help="text, or json for one JSON object a line.  [default: text]")
@click.option(
    "--query-log",
    metavar="N",
    type=click.IntRange(0),
    help="Log one of N queries (1: all), at most 100 a second.  [default: none]",
)
@click.option("--check-config", is_flag=True, help="Read and check everything, print what would be served, and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print the result of --check-config as one JSON document.")
@systemd.signals_blocked()
def serve(
    config: str | None,
    zone: tuple[ZoneSource, ...],
    key: tuple[TsigKey, ...],
    transfer: tuple[AccessRule, ...],
    notify: tuple[NotifyTarget, ...],
    check_config: bool,
    as_json: bool,
    **values: Any,
) -> None:
    """Answer DNS queries from zone files.

    Serves any zone over UDP, TCP and TLS, IPv4 and IPv6, and reports on stderr when it is ready:

    \b
        maptr serve --zone ark.arpa=ark.arpa.zone --listen 127.0.0.1:5300
        maptr: ready, serving 1 zone on 127.0.0.1:5300 (udp, tcp)

    With a configuration: maptr serve --config maptr.toml. Each setting of its [serve] can also be given in the
    environment, such as MAPTR_SERVE_LISTEN=127.0.0.1:53,[::1]:53. Options override the environment, and the
    environment overrides the file.

    SIGHUP or maptr reload reads the configuration, the zone files and the certificate again. If one is bad, the server
    keeps the old one and logs the reason. SIGTERM stops the server. A zone that cannot be loaded at the start is
    answered with SERVFAIL while the others are served.

    \b
    Exit codes:
      0  stopped; with --check-config: no errors
      1  the configuration is bad or an address cannot be bound; with
         --check-config: also a bad zone
      2  bad usage
      8  a file cannot be read
    """
    if as_json and not check_config:
        raise click.UsageError("--json goes with --check-config")
    path = _config_file(config, has_zones=bool(zone))
    overrides = Overrides(zone, key, transfer, notify)
    flags = {
        setting: (list(value) if isinstance(value, tuple) else value, option)
        for option, setting in SETTINGS.items()
        if (value := values[option.removeprefix("--").replace("-", "_")]) not in (None, ())
    }

    def examine(*, secrets: bool = True) -> tuple[Config, list[ConfigError]]:
        config, errors = configuration.examine(path, environment=os.environ, flags=flags, secrets=secrets)
        try:
            return overrides.over(config), errors
        except ConfigError as error:
            return config, [*errors, *error.all]

    def read() -> Config:
        config, errors = examine()
        reported = {error.key for error in errors} | ({""} if errors else set())  # one without a key may follow them
        errors += [error for error in settings.mistakes(config) if error.key not in reported]
        if errors and check_config:
            errors += servecheck.misplaced(config)
        raise_all(sorted(errors, key=lambda error: error.line))
        return config

    listening = None
    if privileges.is_root():
        first, errors = _or_fail(lambda: examine(secrets=False), as_json=as_json)
        if not errors:
            listening = _or_fail(lambda: _leave_root(first, listening=not check_config), as_json=as_json)
    found = _or_fail(read, as_json=as_json)
    if not found.zones:
        if path is None:
            raise click.UsageError("there is no zone to serve: give --zone ORIGIN=FILE, or --config FILE")
        _fail(found.error("zone", "there is no zone to serve"), as_json=as_json)
    if check_config:
        servecheck.check(found, as_json=as_json)
        return
    _or_fail(lambda: state_folder.make(found))
    try:
        lock = state_folder.lock(found)
    except ConfigError as error:
        output.fail(str(error), output.EXIT_NONE)
    try:
        _run(found, read, listening)
    finally:
        if lock is not None:
            os.close(lock)


def _config_file(named: str | None, *, has_zones: bool) -> Path | None:
    """The configuration file; ``maptr.toml`` in this directory is not used with ``--zone``."""
    if named is not None:
        return Path(named)
    found = configuration.find(os.environ)
    return None if has_zones and configuration.FILE_VARIABLE not in os.environ else found


def _leave_root(config: Config, *, listening: bool) -> Sockets | None:
    """Become the configured user, with sockets bound by root. Raises ConfigError."""
    try:
        user = privileges.user_of(config)
    except ConfigError:
        return None  # ``read`` reports it with all other errors
    if user is None or not user.uid:
        return None
    return privileges.give_up(config, user, control=settings.control_of(config), listening=listening)


def _run(config: Config, read: Callable[[], Config], listening: Sockets | None) -> None:
    level = getattr(logging, config.serve.log_level.upper())
    logstream.configure(level, logstream.formatter(config.serve.log_format))
    if privileges.is_root() and not config.serve.user:
        log.warning("running as root: serve.user, or --user, names a user to run as once the sockets are bound")
    if config.serve.workers != 1:
        log.warning("serve.workers is ignored: one process answers; NSD or Knot as secondaries carry more")
    gc.disable()  # loading zones makes many objects and hardly any garbage
    served = publisher.start(settings.sources_of(config), clock=time.time)
    try:
        daemon = daemon_of(config, served, read, listening)
        gc.freeze()  # the zones stay, so the collector need not look at them
        gc.enable()
        asyncio.run(daemon.run(signals=True))
    except ConfigError as error:
        gc.enable()
        output.fail(str(error), output.EXIT_NONE)


def daemon_of(
    config: Config,
    served: Served,
    reread: Callable[[], Config],
    listening: Sockets | None = None,
) -> Daemon:
    """The daemon for a configuration and its zones. Raises ConfigError."""
    sockets = 2 * len(config.serve.listen) + len(config.serve.tls.listen)
    return Daemon(
        served,
        config.serve.listen,
        responder=settings.responder_of(config),
        tls=settings.tls_of(config),
        tcp_limits=limits_within_descriptors(settings.tcp_of(config), sockets),
        primary=settings.primary_of(config),
        config=config,
        reread=reread,
        control=settings.control_of(config),
        metrics=config.serve.metrics,
        bound=listening,
    )


def _or_fail(read: Callable[[], T], *, as_json: bool = False) -> T:
    try:
        return read()
    except (ConfigError, OSError) as error:
        _fail(error, as_json=as_json)


def _fail(error: ConfigError | OSError, *, as_json: bool) -> NoReturn:
    if as_json:
        report = servecheck.Report(as_json=True)
        report.error(error)
        report.end(None)
    if isinstance(error, OSError):
        output.fail(f"{error.filename}: {error.strerror}", output.EXIT_UNREADABLE)
    if all(each.filename.startswith("--") for each in error.all):
        raise click.UsageError("; ".join(f"{each.filename}: {each.reason}" for each in error.all))
    for each in error.all:
        output.talk(f"maptr: {each}")
    missing = all(isinstance(each, MissingExtra) for each in error.all)
    raise SystemExit(output.EXIT_USAGE if missing else output.EXIT_NONE)
