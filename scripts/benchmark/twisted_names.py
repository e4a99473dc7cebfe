"""Twisted Names as a server of one zone, run by an environment that has Twisted: ``twisted_names.py PORT ZONE``.

Its own reader of zone files knows no NAPTR, so the records that ``loads.ark_zone`` writes are read here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from twisted.internet import reactor
from twisted.names import authority, dns, server

ORIGIN = "ark.arpa"


class Zone(authority.FileAuthority):  # type: ignore[misc]
    """The records of a file."""

    def loadFile(self, filename: str) -> None:  # noqa: N802 - Twisted's name
        self.records: dict[bytes, list[object]] = {}
        for line in Path(filename).read_text().splitlines():
            if line.startswith("$"):
                continue
            owner, _, rdtype, rdata = line.split(" ", 3)
            name = ORIGIN if owner == "@" else f"{owner}.{ORIGIN}"
            self.records.setdefault(name.encode(), []).append(record(rdtype, rdata))
        self.soa = (ORIGIN.encode(), self.records[ORIGIN.encode()][0])


def record(rdtype: str, rdata: str) -> object:
    words = rdata.split()
    if rdtype == "NAPTR":
        order, preference, flags, service, regexp, replacement = words
        strings = [word.strip('"').encode() for word in (flags, service, regexp)]
        return dns.Record_NAPTR(int(order), int(preference), *strings, replacement.rstrip(".").encode(), ttl=3600)
    if rdtype == "SOA":
        mname, rname, *numbers = words
        return dns.Record_SOA(f"{mname}.{ORIGIN}".encode(), f"{rname}.{ORIGIN}".encode(), *map(int, numbers), ttl=3600)
    if rdtype == "NS":
        return dns.Record_NS(f"{words[0]}.{ORIGIN}".encode(), ttl=3600)
    return dns.Record_A(words[0], ttl=3600)


def main(port: str, path: str) -> None:
    factory = server.DNSServerFactory(authorities=[Zone(path)])
    reactor.listenUDP(int(port), dns.DNSDatagramProtocol(factory), interface="127.0.0.1")
    reactor.listenTCP(int(port), factory, interface="127.0.0.1")
    reactor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
