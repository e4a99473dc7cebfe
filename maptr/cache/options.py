"""The options of a cache and of each call of its ``discover``, and the DNS client that they describe."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from maptr.ark import Ark, Profile
from maptr.discovery import Discovery, DiscoveryError, NoServer
from maptr.protocol.names import Labels, fold
from maptr.resolver import call, sync
from maptr.resolver.call import StepHook, with_origin
from maptr.resolver.multiplexer import MAX_CONNECTIONS
from maptr.resolver.stub import Stub, make_validator
from maptr.walk import Settings

if TYPE_CHECKING:
    import dns.name
    import dns.resolver

    from maptr.choose import Chooser
    from maptr.resolver.validation.validator import TrustAnchors, Validator

THREADS = MAX_CONNECTIONS  # queries at a time over TLS and HTTPS, each on a connection of its own

Key = tuple[str, Labels]
"""A view and a case-folded name. The view is a text that names the servers asked and how DNSSEC was checked."""


class CallOptions(NamedTuple):
    """The options of one call of ``Cache.discover``."""

    resolver: Any = None
    nameservers: Iterable[str] | None = None
    origin: str | dns.name.Name | None = None
    lifetime: float | None = None
    raise_on_none: bool = True
    chooser: Chooser | None = None
    on_step: StepHook | None = None
    settings: Settings | None = None
    trust_ad: bool | None = None
    trust_anchors: TrustAnchors | None = None
    require: Literal["secure"] | None = None
    profile: Profile = "current"


NO_OPTIONS = CallOptions()


class TrustSettings:
    """How DNSSEC is checked: by the servers (``ad``), by a validator with trust anchors, or not at all.

    Raises ConfigError if both are given.
    """

    def __init__(self, ad: bool, anchors: TrustAnchors | None) -> None:
        self.ad = ad
        self.validator = make_validator(anchors, ad)
        self.ask: dict[str, Any] = {"trust_ad": True} if ad else {}
        self.view = " ad" if ad else ""
        if self.validator is not None:
            self.ask = {"trust_anchors": self.validator}
            self.view = f" from {_fingerprint(self.validator)}"


class ArkLookup(NamedTuple):
    """One call of ``discover`` with every option resolved.

    ``ask`` holds the options for the DNS client. Answers are shared only between lookups with the same ``view``.
    """

    ark: Ark
    settings: Settings
    view: str
    lifetime: float
    ask: dict[str, Any]
    require: str | None = None
    raise_on_none: bool = True
    chooser: Chooser | None = None
    on_step: StepHook | None = None

    @property
    def key(self) -> Key:
        return self.view, fold((self.ark.naan.encode(), *self.settings.origin))


class DnsClient:
    """The DNS client of a cache, and the options of the cache, from which each call's lookup is made.

    ``rate``: packets a second to one server in ``discover_many``, None for no limit. The options of ``discover`` are
    those of ``ArkLookup.ask``. The methods raise what ``maptr.discover`` and ``maptr.discover_many`` raise. Raises
    ConfigError.
    """

    def __init__(
        self,
        nameservers: Iterable[str] | None,
        origin: str | dns.name.Name,
        lifetime: float | None,
        settings: Settings | None,
        *,
        trust: TrustSettings,
        require: Literal["secure"] | None,
        rate: float | None,
    ) -> None:
        self.origin = origin
        self.settings = with_origin(settings, origin)
        self.lifetime = call.seconds(lifetime)
        self.nameservers = None if nameservers is None else call.check_nameservers(nameservers)
        self.trust = trust
        self.require = call.required(require)
        self.view = _view(None, self.nameservers, trust)
        self._rate = call.checked_rate(rate)
        self._resolver: Stub | dns.resolver.Resolver | None = None

    def lookup(self, ark: Ark | str | bytes, options: CallOptions = NO_OPTIONS) -> ArkLookup:
        """Raises ArkSyntaxError and ConfigError."""
        parsed = call.as_ark(ark, options.profile)
        origin = self.origin if options.origin is None else options.origin
        settings = self.settings
        if options.origin is not None or options.settings is not None:
            settings = with_origin(options.settings or settings, origin)
        lifetime = self.lifetime if options.lifetime is None else call.seconds(options.lifetime)
        ask = {"origin": origin, "lifetime": lifetime, "settings": settings, "raise_on_none": False}
        return ArkLookup(
            parsed,
            settings,
            self._add_servers(options, ask),
            lifetime,
            ask,
            call.required(options.require) or self.require,
            options.raise_on_none,
            options.chooser,
            options.on_step,
        )

    def _add_servers(self, options: CallOptions, ask: dict[str, Any]) -> str:
        """Add servers and trust to ``ask``, and return the view."""
        resolver, nameservers = options.resolver, options.nameservers
        call.check_resolver(resolver, nameservers)
        trust = self.trust
        if options.trust_ad is not None or options.trust_anchors is not None:
            trust = TrustSettings(options.trust_ad or False, options.trust_anchors)
        ask |= trust.ask
        if resolver is not None:
            ask["resolver"] = resolver
            return _view(resolver, None, trust)
        servers = self.nameservers if nameservers is None else call.check_nameservers(nameservers)
        if servers is not None:
            ask["nameservers"] = servers
        return _view(None, servers, trust)

    def discover(self, ark: Ark, **options: Any) -> Discovery:
        return sync.discover(ark, **self._with_resolver(options))

    async def discover_async(self, ark: Ark, **options: Any) -> Discovery:
        import asyncio  # late, as in ``Cache``

        from maptr.resolver.aio import discover_async

        if self._resolver is None and self.nameservers:  # a server that is given by name is looked up, which blocks
            await asyncio.to_thread(self._with_resolver, options)
        return await discover_async(ark, **self._with_resolver(options))

    def discover_many(self, arks: list[Ark]) -> Iterator[Discovery]:
        if call.has_https(self.nameservers):  # which bulk.discover_many does not speak
            for ark in arks[:1]:
                self._with_resolver(self.lookup(ark).ask)  # made once, before several threads need it
            with ThreadPoolExecutor(THREADS) as pool:
                yield from pool.map(self._discover_one, arks)
            return
        from maptr.resolver.bulk import discover_many  # a command that looks up one ARK starts without it

        yield from discover_many(
            arks,
            nameservers=self.nameservers,
            origin=self.origin,
            settings=self.settings,
            lifetime=self.lifetime,
            trust_ad=self.trust.ad,
            trust_anchors=self.trust.validator,
            rate=self._rate,
        )

    def serial(self) -> int | None:
        """Return the serial of the zone at the origin, asked now; None if DNS does not say."""
        import dns.exception  # late: dns.resolver doubles the start time of a command
        import dns.name

        from maptr.resolver.dnspython import default_resolver, make_resolver

        try:
            servers = self.nameservers
            resolver = make_resolver(servers, lifetime=self.lifetime) if servers else default_resolver()[0]
            origin = dns.name.Name((*self.settings.origin, b""))
            answer = resolver.resolve(origin, "SOA", lifetime=self.lifetime, search=False)
        except (dns.exception.DNSException, OSError):
            return None
        serial: int = answer[0].serial
        return serial

    def _discover_one(self, ark: Ark) -> Discovery:
        """Return the discovery, incomplete if DNS did not say."""
        try:
            return self.discover(ark, **self.lookup(ark).ask)
        except NoServer:
            raise
        except DiscoveryError as error:
            return error.discovery

    def _with_resolver(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options with the cache's own servers replaced by one resolver, which all calls share.

        That resolver learns which servers do not answer, and whether the origin exists. The first call makes it,
        because a server that is given by name must be looked up; raises what ``make_stub`` raises.
        """
        servers, trust = self.nameservers or (), self.trust
        if not servers or options.get("nameservers") != servers:
            return options
        if options.get("trust_ad", False) != trust.ad or options.get("trust_anchors") is not trust.validator:
            return options
        if self._resolver is None:
            lifetime = options.get("lifetime")
            if call.has_https(servers):
                from maptr.resolver.dnspython import make_resolver  # dns.resolver doubles the start time of a command

                self._resolver = make_resolver(servers, lifetime=lifetime)
            else:
                self._resolver = sync.make_stub(servers, **trust.ask, lifetime=lifetime)
        held = ("nameservers", "trust_ad", "trust_anchors") if isinstance(self._resolver, Stub) else ("nameservers",)
        rest = {name: value for name, value in options.items() if name not in held}
        return {**rest, "resolver": self._resolver}


def _view(resolver: Any, nameservers: tuple[str, ...] | None, trust: TrustSettings) -> str:
    """Return the servers and the trust as text: answers of one set of servers are never given out as another's."""
    if nameservers is not None:
        return ",".join(text if "#" in text else f"{text}#53" for text in nameservers) + trust.view
    if resolver is None:
        return trust.view
    servers: Any = getattr(resolver, "nameservers", None) or getattr(resolver, "servers", ())
    view = ",".join(f"{s[0]}#{s[1]}" if isinstance(s, tuple) else str(s) for s in servers)
    port = getattr(resolver, "port", "")
    view = f"{view}#{port}" if view and port else view or repr(resolver)
    validator = getattr(resolver, "validator", None)
    own = " ad" if getattr(resolver, "trust_ad", False) else f" from {_fingerprint(validator)}" if validator else ""
    return view + (trust.view or own)


def _fingerprint(validator: Validator) -> str:
    """Return a hash of the trust anchors, the same in every process."""
    anchors = sorted((str(zone), sorted(map(str, rdatas))) for zone, rdatas in validator.trust.anchors.items())
    return hashlib.sha256(repr(anchors).encode()).hexdigest()[:16]
