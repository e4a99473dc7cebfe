"""``maptr reload``, ``maptr status`` and ``maptr control``: requests to the running server by its control socket."""

from __future__ import annotations

import fcntl  # noqa: F401 - Windows has neither this nor a control socket, and the command then says so
import json
import os
import socket
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from maptr import config as configuration
from maptr import paths
from maptr.cli import output
from maptr.cli.group import command
from maptr.cli.lookup import day_text, duration_text
from maptr.cli.options import JSON_OPTION, NAME_TEXT, PATH
from maptr.cli.output import Painted
from maptr.errors import ConfigError, json_text
from maptr.paths import LOCAL_CONFIG
from maptr.server.alarm import not_served


class Document(dict[str, Any]):
    """A server's reply, or a part of it. A field that an older server does not send is None."""

    def __missing__(self, name: str) -> None:
        return None


STATUS_SECONDS = 10.0
RELOAD_SECONDS = 600.0  # a zone of 100,000 names takes tens of seconds to read
# Values of ``Progress`` in ``server/status.py``, which this command need not import: for a secondary that may still get
# the zone in time, and for a secondary of the catalog.
_UNDER_WAY = {"notifying": "NOTIFY not acknowledged yet", "told": "notified of the new one"}
UNTOLD = "does not tell"
REFUSED = "refused"  # the result of a zone
MAX_REPLY = 64 * 1024 * 1024  # bytes; a status takes about 300 per zone

_FILE = click.option(
    "--config",
    "file",
    type=PATH,
    help="Use the control socket that this configuration names.  [default: MAPTR_CONFIG, else ./maptr.toml, else that "
    "of a running maptr up, else /etc/maptr/maptr.toml]",
)
_SOCKET = click.option(
    "--control",
    "path",
    metavar="SOCKET",
    type=PATH,
    help="Ask the server at this control socket.  [default: as configured]",
)


@command(
    exits={
        0: "the zones are served as in their files",
        1: "a zone or the configuration was refused",
        3: "the server is not running",
        8: "the configuration cannot be read",
    }
)
@click.argument("zone", required=False, type=NAME_TEXT)
@click.option(
    "--force",
    is_flag=True,
    help="Accept a zone even if it lost many of its names or its serial did not increase, and pass a secondary that is "
    "ahead. Without ZONE, also remove zones from the catalog that are no longer configured.",
)
@_FILE
@_SOCKET
@JSON_OPTION
def reload(zone: str | None, force: bool, file: str | None, path: str | None, as_json: bool) -> None:
    """Make the server reread ZONE, or its configuration and every zone.

    Waits until the server has finished and prints the result for each zone. The server refuses a new file, and keeps
    serving the old zone, if the file cannot be read, has DNS errors, lost more of its names than max_shrink, changed
    without a higher serial, or does not match its ZONEMD.

    \b
    Examples:
      maptr reload
      maptr reload ark.arpa
    """
    request = {"command": "reload", "zone": zone, "force": force}
    try:
        found = _ask(_socket(file, path), request, RELOAD_SECONDS)
    except KeyboardInterrupt:
        output.interrupted("the server finishes the reload; maptr status shows the result")
    if as_json:
        output.json_data({name: value for name, value in found.items() if value not in (None, "")})
    else:
        for zone_result in found["zones"] or ():
            _show_result(zone_result)
    _exit_if_refused(found)


def _show_result(found: Document) -> None:
    name, serial, was = found["zone"], found["serial"], found["was"]
    if found["result"] == REFUSED:
        kept = "queries get SERVFAIL" if serial is None else f"still serving serial {serial}"
        output.inform(f"zone {name} ", Painted(REFUSED, output.BAD), f", {kept}: {found['reason']}")
        return
    before = f" (was {was})" if was not in (None, serial) else ""
    numbers = "" if serial is None else f", serial {serial}{before}"
    output.data(f"zone {name} ", Painted(found["result"], output.GOOD), numbers)
    for warning in found["warnings"]:
        output.inform(f"zone {name}: ", Painted(warning, output.DOUBTFUL))


@command(
    exits={
        0: "the server is running, without an alarm",
        1: "there is an alarm, or the configuration that names the socket is bad",
        3: "the server is not running",
        8: "the configuration cannot be read",
    }
)
@_FILE
@_SOCKET
@JSON_OPTION
def status(file: str | None, path: str | None, as_json: bool) -> None:
    """Show the state of the running server: its addresses, zones, serials, queries and alarms.

    \b
    Example:
      maptr status --config /etc/maptr/maptr.toml
    """
    found = _status(_socket(file, path))
    if as_json:
        output.json_data(found)
    else:
        _show_status(found)
    sys.exit(output.EXIT_NONE if found["alarms"] else output.EXIT_OK)


def _status(where: tuple[Path, str]) -> Document:
    reply = _ask(where, {"command": "status"}, STATUS_SECONDS)
    if "error" in reply:
        output.fail(str(reply["error"]), output.EXIT_INTERNAL)
    return reply


def _show_status(found: Document) -> None:
    output.data(f"maptr {found['version']}, process {found['pid']}, up {duration_text(found['uptime'])}")
    tls = f"; by TLS on {', '.join(found['listen_tls'])}" if found["listen_tls"] else ""
    output.data(f"listening on {', '.join(found['listen'])}{tls}")
    _show_zones(found["zones"], found["catalog"])
    if table := found["table"]:
        source = f", from {table['source']}" if table["source"] else ""
        pulled = f"pulled {table['checked']}" if table["checked"] else "not pulled since the start"
        data = f", data of {day_text(_seconds(table['date']))}" if table["date"] else ""
        output.data(f"table {table['file']}, {pulled}{source}{data}")
        for report in table["drift"]:
            drift = report["error"] or f"{len(report['deviating'])} of {report['records']} records deviate"
            output.data(f"  {report['server']} at {report['at']}: {drift}")
    for transport, counts in found["queries"].items():
        output.data(f"queries by {transport}: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
    limited, connections = found["rate_limit"], found["connections"]
    if any(limited.values()):
        output.data(f"rate limit: {limited['dropped']} replies dropped, {limited['truncated']} truncated")
    if connections["accepted"] or connections["refused"]:
        output.data(
            f"connections: {connections['open']} open, {connections['accepted']} accepted, "
            f"{connections['refused']} refused, {connections['shed']} closed to make room"
        )
    _show_alarms(found, found["alarms"], found["silenced"])


def _show_alarms(found: Document, alarms: Iterable[Document], silenced: Iterable[Document]) -> None:
    now = _seconds(found["started"]) + found["uptime"]
    for word, color, some in (("ALARM", output.BAD, alarms), ("silenced", output.MINOR, silenced)):
        for alarm in some:
            since = alarm["since"]
            age = f" (for {duration_text(max(0.0, now - _seconds(since)))})" if since else ""
            output.data(Painted(word, color), f" {alarm['text']}{age}")


def _seconds(time: str) -> float:
    """Return one of the document's times as a Unix time."""
    return datetime.fromisoformat(time).timestamp()


@command(
    exits={
        0: "done, or there was nothing to do",
        1: "it failed, or a zone was refused: the old state is kept; or, for zone-status: a zone has an alarm",
        3: "the server is not running",
        8: "the configuration cannot be read",
    }
)
@click.argument("verb", type=click.Choice(["zone-status", "pull", "notify", "sign", "freeze", "thaw"]))
@click.argument("zone", required=False, type=NAME_TEXT)
@_FILE
@_SOCKET
@JSON_OPTION
def control(verb: str, zone: str | None, file: str | None, path: str | None, as_json: bool) -> None:
    """Make the running server do now what it otherwise does at intervals, or stop it from doing that. A VERB can be
    repeated safely.

    zone-status shows ZONE, or all zones, and their alarms. pull gets the table from its sources, and publishes the
    zones that it changes. notify sends NOTIFY to the secondaries of ZONE, or of all zones. sign renews the signatures
    that are due, and retries where signing failed. Each version is on disk before it is served: there is no flush.

    freeze stops the server from changing ZONE, or all zones, by itself, until thaw, even across restarts: it pulls and
    builds no table for a frozen zone, reads no changed file at a reload of everything, and renews only signatures that
    end within two days. maptr reload ZONE and changed keys still publish. It needs serve.state.

    \b
    Examples:
      maptr control pull
      maptr control zone-status ark.arpa
    """
    if zone is not None and verb in ("pull", "sign"):
        raise click.UsageError(f"{verb} is for all zones")
    where = _socket(file, path)
    if verb == "zone-status":
        _zone_status(where, zone, as_json=as_json)
        return
    request = {"command": verb} | ({"zone": zone} if zone is not None else {})
    reply = _ask(where, request, RELOAD_SECONDS)
    zones = reply["zones"] or ()
    if as_json:
        output.json_data({"verb": verb, **reply})
    elif not reply["error"]:
        if verb == "pull":
            changed = reply["changed"] is not None and reply["changed"] == reply["checked"]
            output.data(f"table {reply['file']} {'changed' if changed else 'up to date'}, from {reply['source']}")
        elif verb == "notify":
            output.data("\n".join(f"NOTIFY {one}" for one in reply["notified"]) or "there is no secondary to notify")
        elif verb == "sign" and not zones:
            output.data("no signature is due")
        elif verb in ("freeze", "thaw"):
            output.data(reply["done"])
            if warning := reply["warning"]:
                output.warning(warning)
        for each in zones:
            _show_result(each)
    _exit_if_refused(reply)


def _exit_if_refused(found: Document) -> None:
    if found["error"]:
        output.fail(str(found["error"]), output.EXIT_NONE)
    if any(zone["result"] == REFUSED for zone in found["zones"] or ()):
        sys.exit(output.EXIT_NONE)


def _zone_status(where: tuple[Path, str], zone: str | None, *, as_json: bool) -> None:
    """Show one zone, or all. Exits with 1 if one has an alarm, as does every zone that is not served."""
    found = _status(where)
    wanted, catalog = None if zone is None else zone.lower(), found["catalog"]
    zones = [each for each in found["zones"] or () if wanted in (None, each["zone"].lower())]
    if catalog and wanted not in (None, catalog["zone"].lower()):
        catalog = None
    names = {each["zone"].lower() for each in (*zones, catalog) if each}
    if not names:
        output.fail(not_served(zone or "", [each["zone"] for each in found["zones"] or ()]), output.EXIT_NONE)
    alarms, silenced = (
        [each for each in found[kind] or () if each["zone"].lower() in names] for kind in ("alarms", "silenced")
    )
    if as_json:
        output.json_data({"zones": zones, "catalog": catalog, "alarms": alarms})
    else:
        _show_zones(zones, catalog)
        _show_alarms(found, alarms, silenced)
    sys.exit(output.EXIT_NONE if alarms else output.EXIT_OK)


def _show_zones(zones: Iterable[Document], catalog: Document | None) -> None:
    for zone in zones:
        _show_zone(zone)
    if catalog:
        output.data(f"catalog {catalog['zone']} serial {catalog['serial']}")
        for secondary in catalog["secondaries"]:
            _show_secondary(secondary)


def _show_zone(zone: Document) -> None:
    signing = zone["signing"] or Document()
    if zone["serial"] is None:
        output.data("zone ", Painted(zone["zone"], output.STRONG), " ", Painted("NOT LOADED", output.BAD))
    else:
        loaded = f", loaded {zone['loaded']}" if zone["loaded"] else ""
        signed = f", signed until {zone['signatures_expire']}" if zone["signatures_expire"] else ""
        due = f", to be signed again {signing['due']}" if signing["due"] else ""
        state = f" serial {zone['serial']}, {zone['names']} names{loaded}{signed}{due}"
        output.data("zone ", Painted(zone["zone"], output.STRONG), state)
    if zone["frozen"]:
        output.data("  ", Painted(f"FROZEN since {zone['frozen']}", output.DOUBTFUL))
    for key in signing["key_states"] or ():
        step = f"; {key['advice']}" if key["advice"] else ""
        name = f"{key['tag']:05d} {key['role']} {key['algorithm']}"
        output.data(f"  key {name} {key['state']} since {key['since']}{step}")
    for secondary in zone["secondaries"]:
        _show_secondary(secondary)
    for warning in zone["warnings"]:
        output.data("  ", Painted(warning, output.DOUBTFUL))
    if zone["left_out"] and zone["left_out"]["findings"]:
        output.data(f"  {zone['left_out']['text']}")


def _show_secondary(known: Document) -> None:
    """Print the last serial that a secondary acknowledged, and the last that it served."""
    serial = "no serial acknowledged" if known["serial"] is None else f"serial {known['serial']}"
    age = "" if known["age"] is None else f", {duration_text(known['age'])} ago"
    state = f"NOTIFY {known['notify']}" if known["notify"] else "no NOTIFY sent yet"
    output.data(f"  secondary {known['secondary']} {serial}, {state}{age}")
    if known["observed_serial"] is not None:
        seen = f"has serial {known['observed_serial']}, seen {duration_text(known['observed_age'] or 0)} ago"
        doing = _UNDER_WAY.get(known["progress"])
        if not known["lags"]:
            output.data(f"    {seen}")
        elif doing and not known["is_ahead"]:
            output.data(f"    {seen}, {doing}")
        else:
            other = "IS AHEAD" if known["is_ahead"] else "LAGS BEHIND"
            output.data("    ", Painted(f"{seen}, {other}", output.DOUBTFUL))
    if known["progress"] == UNTOLD:
        output.data("    does not tell its serial, as a secondary of a catalog may")
    if known["observed_error"]:
        output.data("    ", Painted(f"SERIAL UNKNOWN: {known['observed_error']}", output.DOUBTFUL))


def _socket(file: str | None, path: str | None) -> tuple[Path, str]:
    """Return the control socket, and the file and line that name it. Exits if none is configured."""
    if path is not None:
        return Path(path), ""
    named = file or configuration.find(os.environ) or paths.running(os.environ)
    if named is None and paths.exists(paths.SYSTEM_CONFIG):
        named = paths.SYSTEM_CONFIG
    if named is None and (found := next(filter(paths.exists, paths.control_sockets(os.environ)), None)):
        return Path(found), ""
    try:
        config = configuration.load(None if named is None else Path(named), environment=os.environ, secrets=False)
    except ConfigError as error:
        output.fail(str(error), output.EXIT_NONE)
    if config.serve.control is None:
        reason = "serve.control: is empty, so the server has no control socket"
        output.fail(f"{config.filename}: {reason}", output.EXIT_NONE)
    if config.filename or "serve.control" in config.locations:
        filename, line = config.locations.get("serve.control", (config.filename, 0))
        return config.serve.control, f"{filename}:{line}" if line else filename
    looked = (LOCAL_CONFIG, paths.SYSTEM_CONFIG, str(config.serve.control), *paths.control_sockets(os.environ))
    if not config.serve.control.exists():
        output.fail(
            f"not running: none of {', '.join(looked)} exists; a server without a configuration has a control socket "
            "only with --control",
            output.EXIT_NOT_RUNNING,
        )
    return config.serve.control, ""


def _ask(where: tuple[Path, str], request: dict[str, Any], seconds: float) -> Document:
    """Send a request and return the reply. Exits without a reply. ``where`` is the result of ``_socket``."""
    path, source = where
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(seconds)
            sock.connect(str(path))
            sock.sendall(json_text(request).encode() + b"\n")
            with sock.makefile("rb") as stream:
                line = stream.readline(MAX_REPLY)
        reply = json.loads(line, object_hook=Document)
    except TimeoutError:
        output.fail(f"{path}: no answer within {seconds:.0f} seconds", output.EXIT_NOT_RUNNING)
    except PermissionError as error:
        output.fail(
            f"{path}: {error.strerror}: run this as the server's user, or see serve.control_group",
            output.EXIT_UNREADABLE,
        )
    except FileNotFoundError:
        named = f", which {source} names: no server runs with it" if source else ""
        output.fail(f"not running: there is no socket {path}{named}", output.EXIT_NOT_RUNNING)
    except ConnectionRefusedError:
        reason = "the server was killed" if path.is_socket() else "it is not a socket"
        output.fail(f"not running: no server listens on {path}: {reason}", output.EXIT_NOT_RUNNING)
    except OSError as error:
        output.fail(f"not running: {path}: {error.strerror or error}", output.EXIT_NOT_RUNNING)
    except ValueError:
        output.fail(f"{path}: the server closed the connection; its log may have the reason", output.EXIT_NOT_RUNNING)
    return Document(reply)
