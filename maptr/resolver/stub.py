"""A stub resolver: plain DNS servers, and the trust in their answers. ``multiplexer`` sends its questions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from maptr.errors import ConfigError
from maptr.protocol.names import Labels
from maptr.protocol.numbers import NAPTR, PORT
from maptr.resolver.call import checked
from maptr.resolver.exchange import Exchange, StubQuery
from maptr.resolver.servers import CaseBlind, Server, find_servers, options_for, system_servers

if TYPE_CHECKING:
    import ssl

    from maptr.resolver.validation.validator import TrustAnchors, ValidatedExchange, Validator

AnyExchange: TypeAlias = "Exchange | ValidatedExchange"


class Stub:
    """Queries the given servers, in order; those that do not respond go to the end of the order.

    ``nameservers`` are addresses or names, each with ``#port`` unless it is ``port``; one with
    ``tcp://`` or ``tls://`` before it is asked by TCP or TLS only, at port 853 by TLS. With
    ``trust_ad`` the AD bit of these servers is trusted: only for a validating resolver that you run, reached over
    loopback or another secure channel (RFC 6840 5.8); with ``trust_anchors`` every answer is validated from these (see
    ``Validator``). ``lifetime`` bounds the lookup of names, in seconds. Threads may share a stub, which remembers the
    servers that do not respond, and for ten minutes those that do not echo the letter case of a query. If all of them
    are in resolv.conf(5), its ``timeout``, ``attempts`` and ``rotate`` hold.

    Raises DiscoveryFailed for a name without address, DiscoveryTimeout if its lookup takes too long, ValueError for a
    bad server or port, ConfigError for bad anchors or a bad lifetime.

    >>> Stub(["192.0.2.1", "2001:db8::1#5300"]).servers
    (Server(address='192.0.2.1', port=53, ...), Server(address='2001:db8::1', port=5300, ...))
    """

    def __init__(
        self,
        nameservers: Iterable[str],
        *,
        port: int = PORT,
        trust_ad: bool = False,
        trust_anchors: TrustAnchors | None = None,
        lifetime: float | None = None,
    ) -> None:
        until = None if lifetime is None else time.monotonic() + checked(lifetime, "lifetime")
        self.servers: tuple[Server, ...] = tuple(
            server
            for text in nameservers
            for server in find_servers(text, port, None if until is None else until - time.monotonic())
        )
        self.options = options_for(self.servers)
        self.trust_ad = trust_ad
        self.validator: Validator | None = make_validator(trust_anchors, trust_ad)
        self.case_blind = CaseBlind()

    def __repr__(self) -> str:
        return f"<Stub of {', '.join(map(str, self.servers))}>"

    @cached_property
    def tls_context(self) -> ssl.SSLContext:
        """What verifies the certificates of servers asked by TLS: the certificates that the system trusts."""
        import ssl  # late: few programs ask by TLS

        context = ssl.create_default_context()
        context.set_alpn_protocols(["dot"])  # RFC 7858 8 registers it
        return context

    @classmethod
    def system(cls, *, trust_ad: bool = False, trust_anchors: TrustAnchors | None = None) -> Stub:
        """Return a stub for the servers in resolv.conf(5). Raises DiscoveryFailed if it cannot be read."""
        return cls(system_servers(), trust_ad=trust_ad, trust_anchors=trust_anchors)

    def exchange(self, name: Labels, rdtype: int = NAPTR) -> AnyExchange:
        """Return a question to these servers, for a driver."""
        if self.validator is not None:
            return self.validator.exchange(name, rdtype, self._query)
        return Exchange(self._query(name, rdtype))

    def _query(self, name: Labels, rdtype: int) -> StubQuery:
        return StubQuery(name, self._in_order(), self.case_blind, rdtype, self.trust_ad, options=self.options)

    def _in_order(self) -> tuple[Server, ...]:
        """Return the servers in the order for the next question."""
        if self.options.rotate:
            self.servers = (*self.servers[1:], *self.servers[:1])
        return self.servers

    def demote(self, server: Server) -> None:
        """Move a server that did not respond to the end of the order."""
        if len(self.servers) > 1 and server in self.servers:
            self.servers = (*(other for other in self.servers if other != server), server)


def make_validator(trust_anchors: TrustAnchors | None, trust_ad: bool) -> Validator | None:
    """Return the given validator, or one with these anchors, if any. Raises ConfigError, also together with
    ``trust_ad``."""
    if trust_anchors is None:
        return None
    from maptr.resolver.validation.validator import Validator  # needs the optional package cryptography

    if trust_ad:
        raise ConfigError("give trust_ad or trust_anchors, not both")
    return trust_anchors if isinstance(trust_anchors, Validator) else Validator(trust_anchors)
