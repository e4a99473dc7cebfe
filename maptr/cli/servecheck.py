"""``maptr serve --check-config``: everything read and checked, and said."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from maptr.address import Address
from maptr.cli import output
from maptr.errors import ConfigError, SigningError, ZoneError
from maptr.names import to_text
from maptr.packed import count_names
from maptr.serve import alarm, settings, signer, zones
from maptr.serve.zones import ZoneSource
from maptr.signatures import signature_state

if TYPE_CHECKING:
    from maptr.config import Config


def check(config: Config) -> None:
    """Print what would be served, or what is wrong, every bad zone of it."""
    code = output.EXIT_OK
    for error in misplaced(config):
        output.talk(f"maptr: {error}")
        code = output.EXIT_NONE
    if tls := settings.tls_of(config):
        from maptr.serve.tls import make_context

        try:
            make_context(tls)
        except ConfigError as error:
            output.talk(f"maptr: {error}")
            code = output.EXIT_NONE
    for source in settings.sources_of(config):
        try:
            if source.signing is not None:
                signer.check(source.signing)
            checked = _read(source)
        except (ZoneError, SigningError) as error:
            output.talk(f"maptr: {error}")
            code = max(code, output.EXIT_NONE)
        except OSError as error:
            table = None if source.table is None else source.table.table
            if table is not None and config.table.url and config.table.file == table and error.filename == str(table):
                output.talk(f"maptr: zone {to_text(source.origin)}: {table} is not pulled yet")
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
            now = time.time()
            if source.signing is None and (found := signature_state(checked.view, now)).is_alarm:
                output.talk(f"maptr: zone {zone}: {alarm.words(found, now)}")
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


def misplaced(config: Config) -> Iterator[ConfigError]:
    """What a start could not bind or make, as far as that can be known without doing it."""
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
        from maptr.serve.control import check_path

        try:
            check_path(control)
        except ConfigError as error:
            yield config.error("serve.control", error.reason)
    if serve.state is not None:
        there = next(folder for folder in (serve.state, *serve.state.absolute().parents) if os.path.lexists(folder))
        if not there.is_dir():
            yield config.error("serve.state", f"{there} is no directory")
        elif not os.access(there, os.W_OK | os.X_OK):
            yield config.error("serve.state", f"{there} cannot be written to by this user")


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
        copy = source._replace(path=path, state=None)
        reading, left_out = tables.prepared(copy, time.time())
        checked = zones.read_checked(reading)
    lacking = (f"of its table {left_out}",) if left_out and left_out.records else ()
    return checked._replace(warnings=(*checked.warnings, *lacking))
