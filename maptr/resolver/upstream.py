"""``Upstream``: where a client asks, and how: servers or a dnspython resolver, trust, origin and limits."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from maptr.ark import MAX_NAAN
from maptr.errors import ConfigError
from maptr.protocol import names
from maptr.resolver.call import LIFETIME, Clock, KnownOrigin, checked
from maptr.resolver.multiplexer import CONCURRENCY, MAX_CONNECTIONS
from maptr.resolver.servers import TCP, TLS, check_server, is_address
from maptr.resolver.stub import Stub
from maptr.walk import DEFAULTS, Settings

if TYPE_CHECKING:
    import dns.name
    import dns.resolver

    from maptr.resolver.validation.validator import TrustAnchors, Validator

HTTPS = "https://"


class Upstream:
    """The options are those of ``maptr.Client``; ``opened`` makes what asks. Threads and tasks may share one.

    ``questions`` counts the names that were asked for many ARKs. Many parameters: one for each option of the client
    that it uses. Raises ConfigError and TypeError.
    """

    def __init__(
        self,
        nameservers: Iterable[str] | dns.resolver.BaseResolver | None = None,
        *,
        origin: str | dns.name.Name = "ark.arpa.",
        lifetime: float | None = None,
        settings: Settings | None = None,
        trust_ad: bool = False,
        trust_anchors: TrustAnchors | None = None,
        concurrency: int | None = None,
        rate: float | None = None,
        max_connections: int | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.settings = with_origin(settings, origin)
        self.lifetime = checked(LIFETIME if lifetime is None else lifetime, "lifetime")
        self.trust_ad = trust_ad
        self.validator = _validator(trust_anchors, trust_ad)
        self.given: Any = nameservers  # servers as text, a dnspython resolver, or None for the servers of the system
        if nameservers is not None and not hasattr(nameservers, "resolve"):
            self.given = check_nameservers(nameservers)  # type: ignore[arg-type]
        self.concurrency = checked_count(CONCURRENCY if concurrency is None else concurrency, "concurrency")
        self.max_connections = checked_count(
            MAX_CONNECTIONS if max_connections is None else max_connections, "max_connections"
        )
        self.rate = _checked_rate(rate)
        if self.is_dnspython and any(limit is not None for limit in (concurrency, rate, max_connections)):
            raise ConfigError(
                "a dnspython resolver is asked one question at a time: concurrency, rate and max_connections do not"
                " apply"
            )
        self.clock = clock
        self.origin = KnownOrigin()
        self.questions = 0
        self._asked: Stub | dns.resolver.BaseResolver | None = None

    def __repr__(self) -> str:
        if self.given is None:
            return "the servers of the system"
        return ", ".join(self.given) if isinstance(self.given, tuple) else repr(self.given)

    @property
    def is_dnspython(self) -> bool:
        return hasattr(self.given, "resolve")

    @property
    def blocks(self) -> bool:
        """Whether its first use looks up the name of a server, which blocks."""
        if self._asked is not None or self.given is None or self.is_dnspython:
            return False
        texts = (text.removeprefix(TCP).removeprefix(TLS).partition("#")[0] for text in self.given)
        return not all(map(is_address, texts))

    def opened(self, seconds: float) -> Stub | dns.resolver.BaseResolver:
        """Return the stub or the dnspython resolver that asks. The first call looks up servers given by name, each for
        so many seconds. Raises NoServer, and ConfigError for a missing package."""
        if self._asked is None:
            seconds = max(0.0, seconds)
            if self.is_dnspython:
                self._asked = self.given
            elif has_https(self.given):
                from maptr.resolver.dnspython import make_resolver  # dnspython takes 70 ms to import

                self._asked = make_resolver(self.given, lifetime=seconds)
            else:
                self._asked = Stub(self.given, trust_ad=self.trust_ad, validator=self.validator, lifetime=seconds)
        return self._asked


def with_origin(settings: Settings | None, origin: str | dns.name.Name) -> Settings:
    """Return the settings with this origin. Raises ConfigError for an invalid domain name, or TypeError."""
    settings = DEFAULTS if settings is None else settings
    if not isinstance(settings, Settings):
        raise TypeError(f"settings: {settings!r} is not a maptr.Settings")
    if not (isinstance(origin, str) or hasattr(origin, "labels")):
        raise TypeError(f"origin: {origin!r} is neither a str nor a dns.name.Name")
    try:
        if not isinstance(origin, str):
            labels = names.check(tuple(label for label in origin.labels if label))
        elif origin == "ark.arpa.":
            labels = names.ARK_ARPA
        else:
            labels = names.parse(origin)
    except ValueError as error:
        raise ConfigError(f"{origin} is not a valid domain name: {error}", key="origin") from None
    if names.wire_length(labels) + MAX_NAAN + 1 > names.MAX_NAME:
        raise ConfigError(f"{origin} is too long for a NAAN below it", key="origin")
    return settings if labels is settings.origin else settings._replace(origin=labels)


def check_nameservers(nameservers: Iterable[str]) -> tuple[str, ...]:
    """Return the servers after checking how each is written, without a lookup; a single text is one server.

    Raises ConfigError for a bad one, TypeError for anything but text.
    """
    if not isinstance(nameservers, Iterable):
        raise TypeError(f"nameservers: {nameservers!r} is neither a list of servers nor a dnspython resolver")
    found = (nameservers,) if isinstance(nameservers, str) else tuple(nameservers)
    for text in found:
        if not isinstance(text, str):
            raise TypeError(f"nameservers: {text!r} is not a str")
        try:
            check_server(text)
        except ValueError as error:
            raise ConfigError(str(error), key="nameservers") from None
    return found


def has_https(nameservers: Iterable[str] | None) -> bool:
    """Return whether some of the servers are asked by HTTPS, which is left to dnspython."""
    return any(text.startswith(HTTPS) for text in nameservers or ())


def checked_count(given: int, key: str) -> int:
    """Return a number of at least 1. Raises ConfigError for a smaller one, TypeError for another type."""
    if not isinstance(given, int):
        raise TypeError(f"{key}: {given!r} is not a whole number")
    if given < 1:
        raise ConfigError("must be at least 1", key=key)
    return given


def _checked_rate(rate: float | None) -> float | None:
    """Return packets a second. Raises ConfigError unless it is more than 0, TypeError for another type."""
    if not isinstance(rate, int | float | None):
        raise TypeError(f"rate: {rate!r} is not a number")
    if rate is not None and not rate > 0:
        raise ConfigError("must be more than 0", key="rate")
    return rate


def _validator(trust_anchors: TrustAnchors | None, trust_ad: bool) -> Validator | None:
    """Return the given validator, or one with these anchors, if any. Raises ConfigError, also together with
    ``trust_ad``."""
    if trust_anchors is None:
        return None
    from maptr.resolver.validation.validator import Validator  # needs the optional package cryptography

    if trust_ad:
        raise ConfigError("give trust_ad or trust_anchors, not both")
    return trust_anchors if isinstance(trust_anchors, Validator) else Validator(trust_anchors)
