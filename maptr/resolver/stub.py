"""A stub resolver: plain DNS servers, and the trust in their answers. ``multiplexer`` sends its questions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from maptr.protocol.names import Labels
from maptr.protocol.numbers import NAPTR
from maptr.resolver.exchange import Exchange, StubOptions
from maptr.resolver.servers import CaseBlind, Server, find_servers, options_for, system_servers

if TYPE_CHECKING:
    import ssl

    from maptr.resolver.validation.validator import ValidatedExchange, Validator

AnyExchange: TypeAlias = "Exchange | ValidatedExchange"


class Stub:
    """Queries the given servers, by default the system's, in order; one that does not respond becomes the last.

    ``trust_ad`` and ``validator`` say which answers are trusted. ``lifetime`` bounds the lookup of names, in seconds.
    Threads may share a stub, which remembers the servers that do not respond, and for ten minutes those that do not
    echo the letter case of a query. If all of them are in resolv.conf(5), its options apply.

    Raises DiscoveryFailed for a name without address and an unreadable resolv.conf, DiscoveryTimeout if the lookup of a
    name takes too long, ValueError for a bad server.

    >>> Stub(["192.0.2.1", "2001:db8::1#5300"]).servers
    (Server(address='192.0.2.1', port=53, ...), Server(address='2001:db8::1', port=5300, ...))
    """

    def __init__(
        self,
        nameservers: Iterable[str] | None = None,
        *,
        trust_ad: bool = False,
        validator: Validator | None = None,
        lifetime: float | None = None,
    ) -> None:
        until = None if lifetime is None else time.monotonic() + lifetime
        servers = tuple(
            server
            for text in (system_servers() if nameservers is None else nameservers)
            for server in find_servers(text, seconds=None if until is None else until - time.monotonic())
        )
        self.asking = StubOptions(servers, CaseBlind(), trust_ad, validator is not None, options_for(servers))
        self.validator = validator
        self.questions = 0

    def __repr__(self) -> str:
        return f"<Stub of {', '.join(map(str, self.servers))}>"

    @property
    def servers(self) -> tuple[Server, ...]:
        return self.asking.servers

    @cached_property
    def tls_context(self) -> ssl.SSLContext:
        """The TLS context, which verifies servers by the certificates that the system trusts."""
        import ssl  # imported late: few programs use TLS

        context = ssl.create_default_context()
        context.set_alpn_protocols(["dot"])  # RFC 7858 8 registers it
        return context

    def exchange(self, name: Labels, rdtype: int = NAPTR) -> AnyExchange:
        """Return a question to these servers, for a driver. ``questions`` counts them."""
        self.questions += 1
        if self.validator is not None:
            return self.validator.exchange(name, rdtype, self._exchange)
        return self._exchange(name, rdtype)

    def _exchange(self, name: Labels, rdtype: int) -> Exchange:
        if self.asking.options.rotate:
            self._order(*self.servers[1:], *self.servers[:1])
        return Exchange(name, rdtype, self.asking)

    def _order(self, *servers: Server) -> None:
        self.asking = self.asking._replace(servers=servers)

    def demote(self, server: Server) -> None:
        """Move a server that did not respond to the end of the list."""
        if len(self.servers) > 1 and server in self.servers:
            self._order(*(other for other in self.servers if other != server), server)
