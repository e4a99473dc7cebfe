"""``maptr serve``: answer DNS queries from zone files, with no configuration file needed."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from maptr.acl import Acl, Key, NotifyTarget, Rule, Secondaries
from maptr.address import Address
from maptr.cli import output
from maptr.context import Identity
from maptr.errors import ConfigError, ZoneError
from maptr.names import fold, parse, to_text
from maptr.serve import zones
from maptr.serve.daemon import Daemon
from maptr.serve.primary import PrimarySettings
from maptr.serve.tls import TlsSettings
from maptr.serve.zoneimage import ImageFolder
from maptr.serve.zones import ZoneSource
from maptr.snapshot import Snapshot


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
    epilog="SIGHUP reads the zone files and the certificate again; a bad file changes nothing, and the log says why. "
    "SIGTERM stops. Exit status: 0 stopped or checked, 1 a zone is bad or an address cannot be had, 2 usage, "
    "8 a file cannot be read."
)
@click.option(
    "--zone",
    "sources",
    multiple=True,
    required=True,
    type=_Parsed(ZoneSource, "ORIGIN=FILE"),
    help="A zone and its file, such as ark.arpa=ark.arpa.zone. Repeatable.",
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
    "--tls-listen",
    "tls_addresses",
    multiple=True,
    type=_Parsed(Address, "HOST:PORT"),
    help="Where to answer DNS over TLS, such as 127.0.0.1:853. Repeatable; needs --tls-cert and --tls-key.",
)
@click.option(
    "--tls-cert",
    "certificate",
    type=click.Path(path_type=Path),
    help="The certificate and the chain above it, as PEM.",
)
@click.option("--tls-key", "key", type=click.Path(path_type=Path), help="The certificate's private key, as PEM.")
@click.option(
    "--nsid",
    default="",
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
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help="Where to keep the journals that IXFR is answered from.  [default: beside each zone's file]",
)
@click.option(
    "--images",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep what was read in this folder (made with mode 0700), so that a restart need not parse it again.",
)
@click.option(
    "--check-config",
    is_flag=True,
    help="Read and check everything, print what would be served, and leave. Nothing is bound.",
)
def serve(
    sources: tuple[ZoneSource, ...],
    addresses: tuple[Address, ...],
    tls_addresses: tuple[Address, ...],
    certificate: Path | None,
    key: Path | None,
    nsid: str,
    keys: tuple[Key, ...],
    rules: tuple[Rule, ...],
    targets: tuple[NotifyTarget, ...],
    catalog: tuple[bytes, ...] | None,
    state: Path | None,
    images: Path | None,
    check_config: bool,
) -> None:
    """Answer DNS queries from zone files.

    Serves any zone, over UDP, TCP and TLS, IPv4 and IPv6, and says on stderr when it is ready:

    \b
        maptr serve --zone ark.arpa=ark.arpa.zone --listen 127.0.0.1:5353
        maptr: ready, serving 1 zone on 127.0.0.1:5353 (udp, tcp)
    """
    addresses = addresses or (Address("127.0.0.1", 5353),)
    tls = _tls(tls_addresses, certificate, key)
    try:
        identity = Identity(nsid=nsid)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if images is not None:
        sources = _with_images(sources, images)
    snapshot = _load(sources)
    who = Secondaries(Acl(rules), targets)
    try:
        primary = PrimarySettings(
            keys,
            {source.origin: who for source in sources},
            None if catalog is None else (catalog, who),
            state,
        )
        daemon = Daemon(sources, addresses, snapshot, identity=identity, tls=tls, primary=primary)
        if check_config:
            _describe(sources, addresses, tls_addresses, snapshot)
            return
        logging.basicConfig(level=logging.INFO, format="maptr: %(message)s")
        asyncio.run(daemon.run(signals=True))
    except ConfigError as error:
        output.fail(str(error), output.EXIT_NONE)


def _tls(addresses: tuple[Address, ...], certificate: Path | None, key: Path | None) -> TlsSettings | None:
    if addresses and certificate is not None and key is not None:
        return TlsSettings(addresses, certificate, key)
    if addresses or certificate is not None or key is not None:
        raise click.UsageError("--tls-listen, --tls-cert and --tls-key go together")
    return None


def _with_images(sources: tuple[ZoneSource, ...], path: Path) -> tuple[ZoneSource, ...]:
    try:
        folder = ImageFolder.open(path)
    except ConfigError as error:
        output.fail(str(error), output.EXIT_NONE)
    return tuple(replace(source, images=folder) for source in sources)


def _load(sources: tuple[ZoneSource, ...]) -> Snapshot:
    try:
        return zones.load(sources)
    except ZoneError as error:
        output.fail(str(error), output.EXIT_NONE)
    except OSError as error:
        output.fail(f"{error.filename}: {error.strerror}", output.EXIT_UNREADABLE)


def _describe(
    sources: tuple[ZoneSource, ...],
    addresses: tuple[Address, ...],
    tls_addresses: tuple[Address, ...],
    snapshot: Snapshot,
) -> None:
    for source in sources:
        zone = snapshot.zones[source.origin]
        names = sum(1 for node in zone.nodes.values() if node)
        output.data(f"zone {to_text(zone.origin)} serial {zone.serial}, {names} names, from {source.path}")
    for address in addresses:
        output.data(f"listen {address} (udp, tcp)")
    for address in tls_addresses:
        output.data(f"listen {address} (tls)")
