"""``maptr serve --check-config``: read and check everything, and report it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from maptr.cli import output
from maptr.dnssec.expiry import signature_state
from maptr.errors import ConfigError, MaptrError, MissingExtra, SigningError, ZoneError
from maptr.protocol.address import Address
from maptr.protocol.names import to_text
from maptr.server import settings, signer, status, zone_file
from maptr.server.connections import make_context
from maptr.server.control import check_path
from maptr.server.state import ZoneSource
from maptr.zone.finding import text_of

if TYPE_CHECKING:
    from maptr.config import Config


class Report:
    """The findings of a check: printed as they come, or as one JSON document at the end."""

    def __init__(self, *, as_json: bool) -> None:
        self.code = output.EXIT_OK
        self._as_json = as_json
        self._errors: list[dict[str, object]] = []
        self._zones: list[dict[str, object]] = []

    def error(self, error: MaptrError | OSError) -> None:
        """Add an error; the exit code is the greatest of all."""
        code = output.EXIT_UNREADABLE if isinstance(error, OSError) else output.EXIT_NONE
        self.code = max(self.code, output.EXIT_USAGE if isinstance(error, MissingExtra) else code)
        for each in error.all if isinstance(error, ConfigError) else [error]:
            self._one(each)

    def _one(self, error: MaptrError | OSError) -> None:
        if not self._as_json:
            output.talk(f"maptr: {text_of(error)}")
        place = {name: getattr(error, name, None) for name in ("filename", "line", "key")}
        self._errors.append(
            {
                "file": place["filename"] or "",
                "line": place["line"] or 0,
                "key": place["key"] or "",
                "reason": getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error),
            }
        )

    def zone(self, source: ZoneSource, checked: zone_file.Checked, warnings: list[str]) -> None:
        """Add a zone that can be served."""
        name, names = to_text(source.origin), checked.view.nodes.count()
        file = source.path if source.table is None else source.table.table
        keys = None if source.signing is None else str(source.signing.keys)
        if not self._as_json:
            signed = "" if keys is None else f", signed with {keys}"
            output.data(f"zone {name} serial {checked.view.serial}, {names} names, from {file}{signed}")
            for warning in warnings:
                output.talk(f"maptr: zone {name}: {warning}")
        self._zones.append(
            {
                "zone": name,
                "serial": checked.view.serial,
                "names": names,
                "file": str(file),
                "keys": keys,
                "warnings": warnings,
            }
        )

    def end(self, config: Config | None) -> None:
        """Print where the server would listen; exit if there are errors."""
        serve = None if config is None or self.code else config.serve
        listen = {
            "listen": [str(address) for address in serve.listen] if serve else [],
            "listen_tls": [str(address) for address in serve.tls.listen] if serve else [],
            "metrics": str(serve.metrics) if serve and serve.metrics else None,
        }
        if self._as_json:
            output.json_data({"errors": self._errors, "zones": self._zones, **listen})
        elif serve is not None:
            for address in serve.listen:
                output.data(f"listen {address} (udp, tcp)")
            for address in serve.tls.listen:
                output.data(f"listen {address} (tls)")
            if serve.metrics is not None:
                output.data(f"metrics {serve.metrics} (http)")
        if self.code:
            raise SystemExit(self.code)


def check(config: Config, *, as_json: bool = False) -> None:
    """Print what would be served and every error."""
    report = Report(as_json=as_json)
    for error in misplaced(config):
        report.error(error)
    if tls := settings.tls_of(config):
        try:
            make_context(tls)
        except ConfigError as error:
            report.error(error)
    for source in settings.sources_of(config):
        try:
            if source.signing is not None:
                signer.check(source.signing)
            checked = _read(source)
        except (ZoneError, SigningError) as error:
            report.error(error)
        except OSError as error:
            table = None if source.table is None else source.table.table
            if table is not None and config.table.url and config.table.file == table and error.filename == str(table):
                output.talk(f"maptr: zone {to_text(source.origin)}: {table} is not pulled yet")
                continue
            report.error(error)
        else:
            warnings = list(checked.warnings)
            now = time.time()
            if source.signing is None and (found := signature_state(checked.view, now)).is_alarm:
                warnings.append(status.signature_alarm(found, now))
            report.zone(source, checked, warnings)
    report.end(config)


def misplaced(config: Config) -> Iterator[ConfigError]:
    """Addresses and paths that a start could not bind or make, as far as that is known without trying."""
    serve = config.serve
    metrics = () if serve.metrics is None else (serve.metrics,)
    taken: set[Address] = set()
    for key, addresses in ("listen", serve.listen), ("tls.listen", serve.tls.listen), ("metrics", metrics):
        for address in addresses:
            if address.port and address in taken:
                yield config.error(f"serve.{key}", f"{address} is given twice")
            taken.add(address)
    control = settings.control_of(config)
    if control is not None:
        try:
            check_path(control)
        except ConfigError as error:
            yield config.error("serve.control", error.reason)
    if serve.state is not None:
        there = next(folder for folder in (serve.state, *serve.state.absolute().parents) if os.path.lexists(folder))
        if not there.is_dir():
            yield config.error("serve.state", f"{there} is not a directory")
        elif not os.access(there, os.W_OK | os.X_OK):
            yield config.error("serve.state", f"{there} cannot be written to by this user")


def _read(source: ZoneSource) -> zone_file.Checked:
    """A zone as it would be published; a table is built in a temporary folder. Raises ZoneError and OSError."""
    if source.table is None:
        return zone_file.read_checked(source)
    with tempfile.TemporaryDirectory() as aside:
        path = Path(aside) / source.path.name
        if source.path.exists():
            path.write_bytes(source.path.read_bytes())
        copy = source._replace(path=path, state=None)
        with zone_file.candidate(copy, time.time()) as (reading, left_out):
            checked = zone_file.read_checked(reading)
    lacking = (f"of its table {left_out}",) if left_out and left_out.records else ()
    return checked._replace(warnings=(*checked.warnings, *lacking))
