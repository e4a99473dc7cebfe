"""``maptr config``: resolver settings that forward queries for the origin to the operator's own server."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import click

from maptr.cli import lookup, options, output
from maptr.cli.group import command
from maptr.cli.options import read_text
from maptr.config import Config
from maptr.protocol.numbers import PORT
from maptr.resolver.servers import Server, is_address, read_server

_PLAIN = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\Z")  # no character is special in a configuration
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class StubZone(NamedTuple):
    """An origin without its final dot, its servers, and its trust anchors as records, if the zone is signed."""

    origin: str
    servers: Sequence[Server]
    anchors: Sequence[str]


def _unbound(stub: StubZone) -> Iterator[str]:
    yield from ("# Unbound: a file in /etc/unbound/unbound.conf.d; then restart it.", "server:")
    if any(ipaddress.ip_address(server.address).is_loopback for server in stub.servers):
        yield "    do-not-query-localhost: no"
    yield f'    local-zone: "{stub.origin}." transparent'
    yield from (f'    trust-anchor: "{anchor}"' for anchor in stub.anchors)
    if not stub.anchors:
        yield f'    domain-insecure: "{stub.origin}."'
    yield from ("stub-zone:", f'    name: "{stub.origin}."')
    yield from (f"    stub-addr: {server.address}@{server.port}" for server in stub.servers)


def _bind(stub: StubZone) -> Iterator[str]:
    """Yield the settings of BIND. A static-stub zone cannot name ports, so servers on other ports are forwarders."""
    yield "# BIND: a file that named.conf includes; then rndc reconfig."
    if not stub.anchors:
        yield from ("# The zone is not signed. Write in the block options of named.conf:", "#")
        yield from (f'#     validate-except {{ "{stub.origin}"; }};', "#")
    for anchor in stub.anchors:
        _, _, kind, *numbers, data = anchor.split(maxsplit=6)
        word = "static-ds" if kind == "DS" else "static-key"
        data = "".join(data.split())
        yield f'trust-anchors {{ "{anchor.split()[0]}" {word} {" ".join(numbers)} "{data}"; }};'
    yield f'zone "{stub.origin}" {{'
    if all(server.port == PORT for server in stub.servers):
        addresses = " ".join(f"{server.address};" for server in stub.servers)
        yield from ("    type static-stub;", f"    server-addresses {{ {addresses} }};")
    else:
        addresses = " ".join(f"{server.address} port {server.port};" for server in stub.servers)
        yield from ("    type forward;", "    forward only;", f"    forwarders {{ {addresses} }};")
    yield "};"


def _systemd_resolved(stub: StubZone) -> Iterator[str]:
    yield "# systemd-resolved: a file *.conf in /etc/systemd/resolved.conf.d; then restart it."
    kind = "positive" if stub.anchors else "negative"
    yield from (f"# If it validates (DNSSEC=), write in a file *.{kind} in /etc/dnssec-trust-anchors.d:", "#")
    yield from (f"#     {line}" for line in stub.anchors or (stub.origin,))
    shown = (f"[{server.address}]" if ":" in server.address else server.address for server in stub.servers)
    addresses = (f"{host}:{server.port}" for host, server in zip(shown, stub.servers, strict=True))
    yield from ("#", "[Resolve]", f"DNS={' '.join(addresses)}", f"Domains=~{stub.origin}")


RESOLVERS: Mapping[str, Callable[[StubZone], Iterator[str]]] = {
    "unbound": _unbound,
    "bind": _bind,
    "systemd-resolved": _systemd_resolved,
}


@command(
    exits={0: "printed", 2: "bad usage, or the configuration or the trust anchors are bad", 8: "a file cannot be read"}
)
@click.argument("resolver", type=click.Choice(list(RESOLVERS)))
@click.argument("words", nargs=-1, metavar="[@SERVER[#PORT]]...")
@options.ORIGIN_OPTION
@click.option(
    "--trust-anchor",
    type=options.PATH,
    help="The zone is signed: validate it from the DS or DNSKEY records in FILE.  [default: it is not signed]",
)
@click.option(
    "--config",
    "file",
    type=options.PATH,
    help="Read this configuration of the server.  [default: MAPTR_CONFIG, else ./maptr.toml, else none]",
)
def config(
    resolver: str, words: tuple[str, ...], origin: str | None, trust_anchor: str | None, file: str | None
) -> None:
    """Print the settings that make a DNS resolver ask your server for ark.arpa.

    The resolver is Unbound, BIND or systemd-resolved. SERVER is an IP address; by default, the addresses that maptr
    serve listens on are used: those in the configuration, else 127.0.0.1, port 5300.

    \b
    Example:
      maptr config unbound @192.0.2.7 > /etc/unbound/unbound.conf.d/maptr.conf
    """
    found = options.server_config(file)
    name = lookup.origin_of(origin, found).rstrip(".")
    if not _PLAIN.match(name):
        raise click.UsageError(f"--origin: {name or '.'} is not a name of letters, digits, hyphens and underscores")
    servers = _servers(words, found)
    stub = StubZone(name, servers, () if trust_anchor is None else _anchors(trust_anchor, name))
    output.data("\n".join(RESOLVERS[resolver](stub)))


def _servers(words: Sequence[str], found: Config) -> list[Server]:
    """Return the servers from the command line, else the configuration. Raises UsageError."""
    servers = [Server(*read_server(text)) for text in options.plain_servers(words, "a resolver asks servers")]
    servers = servers or [Server(_ANY.get(each.host, each.host), each.port) for each in found.serve.listen]
    for server in servers:
        if not is_address(server.address) or "%" in server.address:
            raise click.UsageError(f"@{server.address}: a resolver needs the IP address of the server")
        if not server.port:
            raise click.UsageError(f"the server listens on any free port of {server.address}: give @SERVER#PORT")
    return servers


def _anchors(file: str, origin: str) -> list[str]:
    """Read the trust anchors in a file as records of the origin or of a zone above it. Raises UsageError."""
    import dns.name  # late: only for signed zones
    import dns.rdatatype

    from maptr.resolver.validation.validator import read_anchors

    found = [
        f"{zone} IN {dns.rdatatype.to_text(rdata.rdtype)} {rdata}"
        for zone, rdatas in read_anchors(read_text(file), file).items()
        if dns.name.from_text(origin).is_subdomain(zone)
        for rdata in rdatas
    ]
    if not found:
        raise click.UsageError(f"--trust-anchor: {file} has no trust anchor of {origin}")
    return found
