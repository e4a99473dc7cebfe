"""The options of ``maptr serve``: one description, for click and for the shortest way, which parses plain lines here.

What is not plain, and what is wrong, is None here and click's to say.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from maptr.protocol.address import Address
from maptr.protocol.names import fold, parse, to_text
from maptr.protocol.numbers import SERVER_PORT

if TYPE_CHECKING:
    from maptr.server.state import ZoneSource
    from maptr.transfer.acl import Key, NotifyTarget, Rule


class Option(NamedTuple):
    """One option. ``read`` makes the value of its text, and raises ValueError or OSError; ``key`` is the setting that
    the value goes before. ``flag``: it has no value."""

    name: str
    help: str
    metavar: str = ""
    read: Callable[[str], object] = str
    key: str = ""
    repeatable: bool = False
    flag: bool = False


class Line(NamedTuple):
    """What a command line says."""

    file: str | None
    zones: tuple[ZoneSource, ...]
    keys: tuple[Key, ...]
    transfer: tuple[Rule, ...]
    notify: tuple[NotifyTarget, ...]
    check: bool
    as_json: bool
    settings: dict[str, tuple[object, str]]  # by key: a value as TOML would have it, and the option

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Line:
        """From the values read of each option, by its name; None, or none, where it is not given."""
        found = {
            option.key: (list(value) if option.repeatable else value, option.name)
            for option in OPTIONS
            if option.key and (value := values[option.name]) not in (None, ())
        }
        return cls(
            file=values["--config"],
            zones=values["--zone"],
            keys=values["--key"],
            transfer=values["--transfer"],
            notify=values["--notify"],
            check=values["--check-config"],
            as_json=values["--json"],
            settings=found,
        )


def plain(words: Sequence[str]) -> Line | None:
    """The line, where all of it is ``--option value`` or ``--option=value`` and every value reads well.

    Not one with ``--key``: its file may be a pipe, and then click could not read it again.
    """
    values: dict[str, Any] = {option.name: () if option.repeatable else None for option in OPTIONS}
    values |= {option.name: False for option in OPTIONS if option.flag}
    known = {option.name: option for option in OPTIONS if not option.flag and option.name != "--key"}
    rest = iter(words)
    for word in rest:
        name, equals, text = word.partition("=")
        option = known.get(name)
        if option is None or (not equals and (text := next(rest, "-")).startswith("-")):
            return None
        try:
            value = option.read(text)
        except (ValueError, OSError):
            return None
        values[name] = (*values[name], value) if option.repeatable else value
    return Line.of(values)


def _zone(text: str) -> ZoneSource:
    from maptr.server.state import ZoneSource

    return ZoneSource.from_text(text)


def _address(text: str) -> str:
    return str(Address.from_text(text))


def _key(text: str) -> Key:
    """``NAME=ALGORITHM:@FILE``, or the secret itself in place of ``@FILE``."""
    from maptr.transfer.acl import Key

    name, equals, rest = text.partition("=")
    algorithm, colon, secret = rest.partition(":")
    if not (name and equals and colon and secret):
        raise ValueError("a key is NAME=ALGORITHM:@FILE, such as xfr=hmac-sha256:@xfr.key")
    if secret.startswith("@"):
        secret = Path(secret[1:]).read_text(encoding="ascii", errors="replace")
    return Key.of(name, algorithm, secret)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is no number")
    return int(text)


def _rule(text: str) -> Rule:
    from maptr.transfer.acl import Rule

    return Rule.from_text(text)


def _target(text: str) -> NotifyTarget:
    from maptr.transfer.acl import NotifyTarget

    return NotifyTarget.from_text(text)


def _origin(text: str) -> str:
    try:
        return to_text(fold(parse(text)))
    except ValueError as error:
        raise ValueError(f"{text!r} is no domain name: {error}") from None


def _folder(text: str) -> str:
    if not Path(text).is_dir():
        raise ValueError(f"{text!r} {'is no directory' if Path(text).exists() else 'does not exist'}")
    if not os.access(text, os.R_OK | os.W_OK):
        raise ValueError(f"{text!r} cannot be written to")
    return text


OPTIONS = (
    Option(
        "--config",
        "The configuration, in TOML.  [default: MAPTR_CONFIG; without --zone also maptr.toml, if it is here]",
        "FILE",
    ),
    Option(
        "--zone",
        "A zone and its file, such as ark.arpa=ark.arpa.zone; goes before one in the configuration. Repeatable.",
        "ORIGIN=FILE",
        _zone,
        repeatable=True,
    ),
    Option(
        "--listen",
        f"Where to answer, UDP and TCP: 127.0.0.1:{SERVER_PORT} or [::1]:{SERVER_PORT}; port 0 takes a free one. "
        f"Repeatable.  [default: 127.0.0.1:{SERVER_PORT}]",
        "HOST:PORT",
        _address,
        "serve.listen",
        repeatable=True,
    ),
    Option(
        "--metrics",
        "Where metrics for Prometheus (/metrics) and /health are told over HTTP, such as 127.0.0.1:9153; to whoever "
        "can reach it. Needs maptr[metrics].  [default: nowhere]",
        "HOST:PORT",
        key="serve.metrics",
    ),
    Option(
        "--user",
        "The user to run as, where root starts the server, such as maptr or maptr:dns: sockets are bound first.  "
        "[default: the user that starts it]",
        "NAME[:GROUP]",
        key="serve.user",
    ),
    Option("--control", "Where maptr reload and maptr status find this server.", "SOCKET", key="serve.control"),
    Option(
        "--tls-listen",
        "Where to answer DNS over TLS, such as 127.0.0.1:853. Repeatable; needs --tls-cert and --tls-key.",
        "HOST:PORT",
        _address,
        "serve.tls.listen",
        repeatable=True,
    ),
    Option("--tls-cert", "The certificate and the chain above it, as PEM.", "FILE", key="serve.tls.certificate"),
    Option("--tls-key", "The certificate's private key, as PEM.", "FILE", key="serve.tls.key"),
    Option(
        "--nsid",
        "Which server this is, told to those who ask by the NSID option (dig +nsid).  [default: not told]",
        "TEXT",
        key="serve.nsid",
    ),
    Option(
        "--key",
        "A TSIG key, its secret in base64 in a file: xfr=hmac-sha256:@xfr.key. Without the @, the secret itself, "
        "which other users of the machine then see. Repeatable.",
        "NAME=ALGORITHM:@FILE",
        _key,
        repeatable=True,
    ),
    Option(
        "--transfer",
        "Who may transfer the zones: key:NAME, an address or prefix, or both as 'PREFIX key:NAME'. Repeatable.  "
        "[default: nobody]",
        "WHO",
        _rule,
        repeatable=True,
    ),
    Option(
        "--notify",
        "A secondary to tell of each new serial, signed with the key where one is named. Repeatable.",
        "HOST[:PORT] [key:NAME]",
        _target,
        repeatable=True,
    ),
    Option(
        "--catalog",
        "Also serve a catalog of the zones (RFC 9432) to those who may transfer it, such as catalog.invalid.",
        "ORIGIN",
        _origin,
        "serve.catalog.name",
    ),
    Option(
        "--state",
        "A folder of this server alone, for the journals that IXFR is answered from, and for what it makes and signs."
        "  [default: journals lie beside each zone's file]",
        "DIRECTORY",
        _folder,
        "serve.state",
    ),
    Option(
        "--log-level",
        "The least of what the log tells: debug, info, warning or error.  [default: info]",
        "LEVEL",
        key="serve.log_level",
    ),
    Option(
        "--log-format",
        "text, or json for one JSON object a line.  [default: text]",
        "FORMAT",
        key="serve.log_format",
    ),
    Option(
        "--query-log",
        "Also log one of so many queries, 1 for each, at most 100 a second.  [default: none]",
        "N",
        _number,
        "serve.query_log.every",
    ),
    Option(
        "--check-config",
        "Read and check everything, print what would be served, and leave. Nothing is bound.",
        flag=True,
    ),
    Option("--json", "What --check-config finds as one JSON document.", flag=True),
)
