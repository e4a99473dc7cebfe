"""What ``maptr serve`` does: read and check everything, then run the daemon.

Without click, which takes as long to import as half of this.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from maptr import config as configuration
from maptr.cli import logstream, output
from maptr.errors import ConfigError, MaptrError, MissingExtra, raise_all
from maptr.server import privileges, publisher, settings, signals, state_folder
from maptr.server.daemon import Daemon
from maptr.server.descriptors import fitting
from maptr.server.overrides import Overrides

if TYPE_CHECKING:
    from maptr.cli.serveoptions import Line
    from maptr.config import Config
    from maptr.server.listening import Listening
    from maptr.server.state import Served

log = logging.getLogger("maptr.serve")

T = TypeVar("T")


class Misuse(MaptrError):
    """The options make no sense together."""


@signals.held()
def serve(line: Line) -> None:
    """Serve until told to stop. Raises Misuse before anything is said or done; exits for what else is wrong."""
    path = _file(line.file, bool(line.zones))
    overrides = Overrides(line.zones, line.keys, line.transfer, line.notify)

    def examine(*, secrets: bool = True) -> tuple[Config, list[ConfigError]]:
        config, errors = configuration.examine(path, environment=os.environ, flags=line.settings, secrets=secrets)
        try:
            return overrides.over(config), errors
        except ConfigError as error:
            return config, [*errors, *error.all]

    def read() -> Config:
        config, errors = examine()
        told = {error.key for error in errors} | ({""} if errors else set())  # without a key: it may follow from those
        errors += [error for error in settings.mistakes(config) if error.key not in told]
        if errors and line.check:
            from maptr.cli import servecheck

            errors += servecheck.misplaced(config)
        raise_all(sorted(errors, key=lambda error: error.line))
        return config

    if line.as_json and not line.check:
        raise Misuse("--json goes with --check-config")
    listening = None
    if privileges.is_root():
        first, errors = _or_fail(lambda: examine(secrets=False), as_json=line.as_json)
        if not errors:
            listening = _or_fail(lambda: _leave_root(first, check=line.check), as_json=line.as_json)
    config = _or_fail(read, as_json=line.as_json)
    if not config.zones:
        if path is None:
            raise Misuse("there is no zone to serve: give --zone ORIGIN=FILE, or --config FILE")
        _fail(config.error("zone", "there is no zone to serve"), as_json=line.as_json)
    if line.check:
        from maptr.cli import servecheck

        servecheck.check(config, as_json=line.as_json)
        return
    _or_fail(lambda: state_folder.make(config))
    try:
        lock = state_folder.lock(config)
    except ConfigError as error:
        output.fail(str(error), output.EXIT_NONE)
    try:
        _serve(config, read, listening)
    finally:
        if lock is not None:
            os.close(lock)


def _leave_root(config: Config, *, check: bool) -> Listening | None:
    """Go on as the user that the configuration names, with sockets that root has bound. Raises ConfigError."""
    try:
        user = privileges.user_of(config)
    except ConfigError:
        return None  # which is told with all else that is wrong
    if user is None or not user.uid:
        return None
    return privileges.give_up(config, user, control=settings.control_of(config), listening=not check)


def _serve(config: Config, read: Callable[[], Config], listening: Listening | None) -> None:
    level = getattr(logging, config.serve.log_level.upper())
    logstream.configure(level, logstream.formatter(config.serve.log_format))
    if privileges.is_root() and not config.serve.user:
        log.warning("running as root: serve.user, or --user, names a user to run as once the sockets are bound")
    if config.serve.workers != 1:
        log.warning("serve.workers is ignored: one process answers; NSD or Knot as secondaries carry more")
    gc.disable()  # a start makes many objects, and hardly any garbage
    served = publisher.start(settings.sources_of(config), clock=time.time)
    try:
        daemon = daemon_of(config, served, read, listening)
        gc.freeze()  # and they stay: to look for garbage among them would only take time
        gc.enable()
        asyncio.run(daemon.run(signals=True))
    except ConfigError as error:
        gc.enable()
        output.fail(str(error), output.EXIT_NONE)


def daemon_of(
    config: Config,
    served: Served,
    reread: Callable[[], Config],
    listening: Listening | None = None,
) -> Daemon:
    """The daemon of a configuration and its zones. Raises ConfigError."""
    sockets = 2 * len(config.serve.listen) + len(config.serve.tls.listen)
    return Daemon(
        served,
        config.serve.listen,
        responder=settings.responder_of(config),
        tls=settings.tls_of(config),
        tcp_limits=fitting(settings.tcp_of(config), sockets),
        primary=settings.primary_of(config),
        config=config,
        reread=reread,
        control=settings.control_of(config),
        metrics=config.serve.metrics,
        listening=listening,
    )


def _file(named: str | None, has_zones: bool) -> Path | None:
    """The configuration's file; the one that only happens to lie here is not for who names zones."""
    if named is not None:
        return Path(named)
    found = configuration.find(os.environ)
    return None if has_zones and configuration.FILE_VARIABLE not in os.environ else found


def _or_fail(read: Callable[[], T], *, as_json: bool = False) -> T:
    try:
        return read()
    except (ConfigError, OSError) as error:
        _fail(error, as_json=as_json)


def _fail(error: ConfigError | OSError, *, as_json: bool) -> NoReturn:
    if as_json:
        from maptr.cli.servecheck import Report

        report = Report(as_json=True)
        report.error(error)
        report.end(None)
    if isinstance(error, OSError):
        output.fail(f"{error.filename}: {error.strerror}", output.EXIT_UNREADABLE)
    if all(each.filename.startswith("--") for each in error.all):
        raise Misuse("; ".join(f"{each.filename}: {each.reason}" for each in error.all)) from None
    for each in error.all:
        output.talk(f"maptr: {each}")
    missing = all(isinstance(each, MissingExtra) for each in error.all)
    raise SystemExit(output.EXIT_USAGE if missing else output.EXIT_NONE) from None
