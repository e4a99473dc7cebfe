"""``maptr serve``: the DNS server, which checks its configuration and zones before it starts."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from maptr import config as configuration
from maptr import paths
from maptr.cli import logstream, lookup, output
from maptr.cli.check_config import Mistake, check_options, mistakes_reported, report, start_code, warn_of
from maptr.cli.group import command
from maptr.cli.options import PATH, Parsed, setting_option, settings_of
from maptr.config import Config, KeyConfig, ZoneConfig
from maptr.config.model import read_algorithm, read_name, read_tsig_secret
from maptr.daemon import process, pulling
from maptr.daemon.kept import Kept
from maptr.daemon.sockets import Sockets
from maptr.dnssec.expiry import signature_state
from maptr.dnssec.keys import require_cryptography
from maptr.errors import ConfigError, SigningError, ZoneError, raise_all, reason_of, time_text
from maptr.files import name_for, read_whole
from maptr.protocol.names import Folded, to_text
from maptr.protocol.numbers import NS
from maptr.server import freeze, publisher, settings, signer, state_folder, table_zone
from maptr.server.control import check_path
from maptr.server.daemon import Daemon, certificate_of
from maptr.transfer.acl import AccessRule, NotifyTarget, read_key_name
from maptr.zone.check import Checked, read_checked
from maptr.zone.snapshot import Snapshot, ZoneView

log = logging.getLogger("maptr.serve")

NOTHING: Mapping[str, Any] = {  # what a failed start serves
    "zones": [],
    "warnings": [],
    "listen": [],
    "listen_tls": [],
    "metrics": None,
}
# Seconds until a waiting thread may run (5 ms by default in Python). During a reload, each response waits two or three
# times, as ``scripts/bench reload`` shows.
SWITCH_INTERVAL = 0.0005
_OF_ALL = "It applies to all zones and the catalog."


class OfFile(Parsed):
    """Like ``Parsed``, but an OSError is not bad usage, because the file may exist at the next start."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if _is_check(ctx):
            return super().convert(value, param, ctx)
        try:
            return self._parse(str(value))
        except ValueError as error:
            self.fail(reason_of(error), param, ctx)
        except OSError as error:
            output.fail(reason_of(error), output.EXIT_UNREADABLE)


class StateFolder(click.Path):
    """A folder that a start makes or does without, as it does with the configured one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(value, param, ctx) if _is_check(ctx) else value


def _is_check(ctx: click.Context | None) -> bool:
    return ctx is not None and bool(ctx.params.get("check_config"))


def _key(text: str) -> KeyConfig:
    name, equals, rest = text.partition("=")
    algorithm, colon, secret = rest.partition(":")
    if not (name and equals and colon and secret):
        raise ValueError("a key is NAME=ALGORITHM:@FILE, such as xfr=hmac-sha256:@xfr.key")
    if secret.startswith("@"):
        secret = Path(secret[1:]).read_text(encoding="ascii", errors="replace")
    return KeyConfig(read_key_name(name), read_algorithm(algorithm), read_tsig_secret(secret))


def _zone(text: str) -> ZoneConfig:
    """Read ``ORIGIN=FILE``, or ``ORIGIN`` for the zone of the table in use. Raises ValueError and OSError."""
    origin, equals, path = text.partition("=")
    if equals and not (origin and path):
        raise ValueError(f"{text!r} is not ORIGIN=FILE, such as ark.arpa=ark.arpa.zone")
    name = read_name(origin)
    if path:
        return ZoneConfig(name, Path(path))
    found = lookup.found_table(lookup.read_config(None, warn=str), to_text(name)).location
    if not found.kind:
        raise OSError(f"{text!r} is not ORIGIN=FILE, and there is no table of {to_text(name)}")
    folder = Path(paths.data_folder(os.environ)) / "serve"
    return ZoneConfig(name, folder / f"{name_for(name)}.zone", table=Path(found.path))


@command(
    exits={
        0: "stopped; with --check-config: no errors",
        1: "something on the machine prevents the start, such as an address or a certificate; with --check-config: an "
        "error in the configuration or a zone",
        2: "bad usage, or a mistake in the text of the configuration, which must be edited before another start",
        8: "a file cannot be read",
    }
)
@click.option(
    "--config",
    type=PATH,
    help="Read this configuration file (TOML).  [default: MAPTR_CONFIG; without --zone also ./maptr.toml]",
)
@click.option(
    "--zone",
    type=OfFile("origin[=file]", _zone),
    multiple=True,
    help="Serve this zone from this file, such as ark.arpa=ark.arpa.zone, instead of the one in the configuration. "
    "Without a file, it is the zone of the table in use, which maptr table shows. The option can be repeated.",
)
@setting_option("serve.listen", "--listen")
@setting_option("serve.metrics", "--metrics")
@setting_option("serve.user", "--user")
@setting_option("serve.control", "--control")
@setting_option("serve.tls.listen", "--tls-listen", also="It needs --tls-cert and --tls-key.")
@setting_option("serve.tls.certificate", "--tls-cert")
@setting_option("serve.tls.key", "--tls-key")
@setting_option("serve.nsid", "--nsid")
@click.option(
    "--key",
    type=OfFile("name=algorithm:@file", _key),
    multiple=True,
    help="Accept this TSIG key, whose secret is in FILE in base64, such as xfr=hmac-sha256:@xfr.key. Without the @, "
    "write the secret itself, which other users of the machine can then see. The option can be repeated.",
)
@setting_option(
    "zone.transfer",
    "--transfer",
    type=Parsed("who", AccessRule.from_text),
    multiple=True,
    also=_OF_ALL,
)
@setting_option(
    "zone.notify",
    "--notify",
    metavar="HOST[:PORT] [key:NAME]",
    type=Parsed("target", NotifyTarget.from_text),
    multiple=True,
    also=_OF_ALL,
)
@setting_option("serve.catalog.name", "--catalog")
@setting_option("serve.state", "--state", type=StateFolder(exists=True, file_okay=False, writable=True))
@setting_option("serve.log_level", "--log-level")
@setting_option("serve.log_format", "--log-format")
@setting_option("serve.query_log.every", "--query-log")
@check_options
@process.signals_blocked()
def serve(
    config: str | None,
    zone: tuple[ZoneConfig, ...],
    key: tuple[KeyConfig, ...],
    transfer: tuple[AccessRule, ...],
    notify: tuple[NotifyTarget, ...],
    check_config: bool,
    as_json: bool,
    **values: Any,
) -> None:
    """Answer DNS queries from zone files.

    Serves any zone over UDP, TCP and TLS, IPv4 and IPv6, and prints a line on stderr when it is ready:

    \b
        maptr serve --zone ark.arpa=ark.arpa.zone --listen 127.0.0.1:5300
        maptr: ready, serving 1 zone on 127.0.0.1:5300 (udp, tcp)

    maptr serve --zone ark.arpa serves the zone of the table in use, which may be the built-in registry.

    With a configuration: maptr serve --config maptr.toml. Each setting of its [serve] can also be given in the
    environment, such as MAPTR_SERVE_LISTEN=127.0.0.1:53,[::1]:53. Options override the environment, and the
    environment overrides the file.

    On SIGHUP or maptr reload, the server rereads the configuration, the zone files and the certificate. If one is bad,
    it keeps the old one and logs the reason. SIGTERM stops the server. If a zone cannot be loaded at the start, its
    queries get SERVFAIL, and the other zones are served.
    """
    path = Path(config) if config is not None else configuration.find(os.environ)
    if config is None and zone and configuration.FILE_VARIABLE not in os.environ:
        path = None
    flags = settings_of(values)

    def examine(*, secrets: bool = True) -> tuple[Config, list[ConfigError]]:
        config, errors = configuration.examine(
            path, environment=os.environ, flags=flags, secrets=secrets, for_other=check_config
        )
        try:
            given = settings.overridden(config, zones=zone, keys=key, transfer=transfer, notify=notify)
            return given, errors
        except ConfigError as error:
            return config, [*errors, *error.all]

    def read(examined: tuple[Config, list[ConfigError]] | None = None) -> Config:
        config, errors = examined or examine()
        reported = {error.key for error in errors} | ({""} if errors else set())  # "": without a key
        errors += [error for error in settings.mistakes(config) if error.key not in reported]
        if errors and check_config:
            errors += _misplaced(config)
        raise_all(sorted(errors, key=lambda error: error.line))
        return config

    bound = None
    with mistakes_reported(NOTHING, check=check_config, as_json=as_json):
        is_root = os.geteuid() == 0  # root does not read secrets: the user that the server becomes does
        first, errors = examine(secrets=not is_root)
        if not check_config:
            logstream.configure(first.serve.log_level, first.serve.log_format)
        if is_root:
            user = None
            with suppress(ConfigError):  # ``read`` reports it with all other errors
                user = None if errors else process.user_of(first)
            if user is not None and user.uid:
                bound = process.drop_privileges(first, user, listening=not check_config)
                if path is not None:  # a reload will read it as this user
                    os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
            first = configuration.with_secrets(first, errors, for_other=check_config)
        found = read((first, errors))
        if not found.zones and path is not None:
            raise found.error("zone", "there is no zone to serve", of_text=True)
        if not found.zones:
            raise click.UsageError("there is no zone to serve: --zone ark.arpa serves the public registry's")
        if not check_config:
            if any(zone.keys is not None for zone in found.zones):
                require_cryptography()
            state_folder.make(found)
    warn_of(found, output.warning if check_config else log.warning)
    if check_config:
        _check(found, as_json=as_json)
        return
    try:
        lock = state_folder.lock(found)
        try:
            _run(found, read, bound)
        finally:
            if lock is not None:
                os.close(lock)
    except ConfigError as error:  # an address or the state folder is in use
        output.fail(str(error), start_code([error]))


def _run(config: Config, read: Callable[[], Config], bound: Sockets | None) -> None:
    if os.geteuid() == 0 and not config.serve.user:
        log.warning("running as root: set serve.user, or --user, to a user to run as once the sockets are bound")
    with closing(Daemon(config, reread=read, bound=bound)) as daemon:
        daemon.bind()  # before the slow steps, so that an address in use is known at once
        gc.disable()  # loading zones creates many objects and little garbage
        try:
            with daemon.progress as progress:
                progress.doing = "pulling the table"
                pulling.begin(config, clock=time.time)
                frozen, tell = daemon.reloader.frozen, partial(setattr, progress, "doing")
                others = daemon.reloader.others(config)
                daemon.reloader.served = publisher.start(
                    config.zones, clock=time.time, frozen=frozen, tell=tell, others=others
                )
            gc.freeze()  # exempt the zones, which live long, from garbage collection
        finally:
            gc.enable()
        sys.setswitchinterval(SWITCH_INTERVAL)  # not before: "not ready" responses would slow down a long start
        asyncio.run(daemon.run(signals=True))


# ---- maptr serve --check-config


def _check(config: Config, *, as_json: bool) -> None:
    errors: list[Mistake] = [*_misplaced(config)]
    found: list[tuple[dict[str, Any], ZoneView]] = []
    warnings = [reason for reason in (settings.missing_cookies(config),) if reason]
    try:
        certificate = certificate_of(config)
        warnings += filter(None, [certificate.trouble(time.time()) if certificate else ""])
    except ConfigError as error:
        errors.append(error)
    frozen = freeze.read(config.serve.state, time.time())
    for index, zone in enumerate(config.zones):
        last = state_folder.last_version(zone)
        try:
            found.append(_checked(zone, last))
            if last is not None and (since := frozen.since(zone.name)) is not None:
                what = f"a start would serve serial {last.view.serial}"
                output.warning(f"zone {to_text(zone.name)} has been frozen since {time_text(since)}: {what}")
        except (ZoneError, SigningError, OSError) as error:
            if last is not None:
                version = f"serial {last.view.serial}, published {time_text(last.published)}"
                output.warning(f"zone {to_text(zone.name)}: a start would serve the last good version, {version}")
            if isinstance(error, ZoneError):
                errors.append(error)
                continue
            table = zone.table
            if table is not None and config.table.url and config.table.file == table and error.filename == str(table):
                output.warning(f"zone {to_text(zone.name)}: {table} has not been pulled yet")
            else:
                errors.append(_located(config, index, error))
    snapshot, zones = Snapshot.of(view for _, view in found), [each for each, _ in found]
    for each, view in found:
        origin, above = view.origin, snapshot.closest(Folded(view.origin[1:]))
        if above is None:
            continue
        names = [Folded(origin[at:]) for at in range(len(origin) - len(above.origin))]
        if not any(NS in (above.find(name) or ()) for name in names):
            said = f"{to_text(above.origin)}, which is served too, has no NS records for it"
            each["warnings"].append(f"{said}: if that zone is signed, validating resolvers refuse this one")
    serve, served = config.serve, {**NOTHING, "zones": zones, "warnings": warnings}
    if not errors:
        served |= {"listen": [*map(str, serve.listen)], "listen_tls": [*map(str, serve.tls.listen)]}
        served["metrics"] = str(serve.metrics) if serve.metrics else None
    if not as_json:
        for each in zones:
            signed = f", to be signed with {each['keys']}" if each["keys"] else ""
            content = f"serial {each['serial']}, {each['names']} names, from {each['file']}"
            output.data(f"zone {each['zone']} {content}{signed}")
            for warning in each["warnings"]:
                output.warning(f"zone {each['zone']}: {warning}")
        for warning in warnings:
            output.warning(warning)
    report(errors, served, as_json=as_json)
    if not as_json:
        for address in serve.listen:
            output.data(f"listen {address} (udp, tcp)")
        for address in serve.tls.listen:
            output.data(f"listen {address} (tls)")
        if serve.metrics:
            output.data(f"metrics {serve.metrics} (http)")


def _checked(zone: ZoneConfig, last: Kept | None) -> tuple[dict[str, Any], ZoneView]:
    """Return a zone as it would be served after its last good version, and describe it for JSON.

    Raises ZoneError, SigningError and OSError.
    """
    if zone.keys is not None:
        signer.check(zone.keys)
    checked, now = _read(zone), time.time()
    if last is not None:
        publisher.check_after(last, checked.view, zone, now)
    warnings = list(checked.warnings)
    if zone.keys is None and (found := signature_state(checked.view, now)).is_alarm:
        warnings.append(found.text(now))
    described = {
        "zone": to_text(zone.name),
        "serial": checked.view.serial,
        "names": checked.view.nodes.count(),
        "file": str(zone.table or zone.file),
        "keys": None if zone.keys is None else str(zone.keys),
        "warnings": warnings,
    }
    return described, checked.view


def _located(config: Config, index: int, error: SigningError | OSError) -> Mistake:
    """Return the error with the line of the configuration that names its file, if there is one."""
    zone = config.zones[index]
    named = {str(zone.file): "file", str(zone.table): "table", str(zone.keys): "keys"}
    key = f"zone[{index}].{named.get(error.filename)}"
    if key not in config.locations:
        return error
    located = config.error(key, reason_of(error))
    located.__cause__ = error
    return located


def _misplaced(config: Config) -> Iterator[ConfigError]:
    """Yield errors for paths that a start could not create."""
    serve = config.serve
    if config.control is not None:
        try:
            check_path(config.control)
        except ConfigError as error:
            yield config.error("serve.control", error.reason)
    if serve.state is not None:
        there = next(folder for folder in (serve.state, *serve.state.absolute().parents) if os.path.lexists(folder))
        if not there.is_dir():
            yield config.error("serve.state", f"{there} is not a directory")
        elif not os.access(there, os.W_OK | os.X_OK):
            yield config.error("serve.state", f"{there} cannot be written to by this user")


def _read(zone: ZoneConfig) -> Checked:
    """Read a zone as it would be published; build one that has a table temporarily. Raises ZoneError and OSError."""
    to_sign = zone.keys is not None
    if zone.table is None:
        return read_checked(zone.file, zone.name, lint=zone.lint, to_sign=to_sign)
    import tempfile  # a server starts without it

    with tempfile.TemporaryDirectory() as aside:
        path = Path(aside) / zone.file.name
        if zone.file.exists():
            path.write_bytes(read_whole(zone.file))
        copy = replace(zone, file=path, state=None)
        with table_zone.candidate(copy, time.time()) as (reading, left_out):
            checked = read_checked(reading.file, zone.name, lint=zone.lint, to_sign=to_sign)
    warnings = (str(left_out),) if left_out and left_out.records else ()
    return checked._replace(warnings=(*checked.warnings, *warnings))
