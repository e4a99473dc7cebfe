"""What a call asks for: the options that ``Cache.discover`` and its awaited twin take, and the request they make.

The names of the options stand in ``Options`` alone; both twins are typed by it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from maptr.ark import Ark
from maptr.cache.memory import Key
from maptr.client import call
from maptr.client.call import StepHook, with_origin
from maptr.client.stub import Stub, make_validator
from maptr.client.sync import make_stub
from maptr.protocol.names import fold
from maptr.walk import Settings

if TYPE_CHECKING:
    import dns.name
    import dns.resolver

    from maptr.choose import Chooser
    from maptr.client.validation.validator import TrustAnchors, Validator


class Options(call.Options, total=False):
    """As ``maptr.discover`` has them; what is not given is as the cache was made."""

    resolver: Any
    nameservers: Iterable[str] | None


class Trust:
    """Whose word on DNSSEC is taken: the servers' own (``ad``), a validator's, or nobody's. Raises ConfigError."""

    def __init__(self, ad: bool, anchors: TrustAnchors | None) -> None:
        self.ad = ad
        self.validator = None if anchors is None else make_validator(anchors, ad)
        self.ask: dict[str, Any] = {"trust_ad": True} if ad else {}
        self.view = " ad" if ad else ""
        if self.validator is not None:
            self.ask = {"trust_anchors": self.validator}
            self.view = f" from {_fingerprint(self.validator)}"


@dataclass(frozen=True, slots=True)
class Request:
    """One call: what is asked for, of whom, how long it may take, and what its caller wants of the result.

    ``view`` says whose word the answers are. ``ask`` has what the asking function takes beside the ARK.
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


class Defaults:
    """What a cache was made with, and the requests that a call's options make of it. Raises ConfigError."""

    def __init__(
        self,
        nameservers: Iterable[str] | None,
        origin: str | dns.name.Name,
        lifetime: float | None,
        settings: Settings | None,
        *,
        trust: Trust,
        require: Literal["secure"] | None,
    ) -> None:
        self.origin = origin
        self.settings = with_origin(settings, origin)
        self.lifetime = call.seconds(lifetime)
        self.nameservers = None if nameservers is None else tuple(call.listed(nameservers))
        self.trust = trust
        self.require = call.required(require)
        self.view = _view(None, self.nameservers, trust)
        self._own: Stub | dns.resolver.Resolver | None = None

    def request(self, ark: Ark | str | bytes, options: Options) -> Request:
        """Raises ArkSyntaxError, ConfigError, and TypeError for an option there is none of."""
        if unknown := options.keys() - Options.__annotations__.keys():
            raise TypeError(f"discover() has no option {', '.join(sorted(unknown))}")
        parsed = call.as_ark(ark, options.get("profile", "current"))
        origin, settings = options.get("origin"), options.get("settings")
        made = self.settings
        if origin is not None or settings is not None:
            made = with_origin(settings or made, self.origin if origin is None else origin)
        given = options.get("lifetime")
        lifetime = self.lifetime if given is None else call.seconds(given)
        ask: dict[str, Any] = {
            "origin": self.origin if origin is None else origin,
            "lifetime": lifetime,
            "settings": made,
            "raise_on_none": False,
        }
        view = self._whom(options, ask)
        require = call.required(options.get("require"))
        return Request(
            parsed,
            made,
            view,
            lifetime,
            ask,
            self.require if require is None else require,
            options.get("raise_on_none", True),
            options.get("chooser"),
            options.get("on_step"),
        )

    def _whom(self, options: Options, ask: dict[str, Any]) -> str:
        """Who is asked, noted in ``ask``; and the view that makes."""
        resolver, nameservers = options.get("resolver"), options.get("nameservers")
        call.check_whom(resolver, nameservers)
        trust = self.trust
        if "trust_ad" in options or "trust_anchors" in options:
            trust = Trust(options.get("trust_ad", False), options.get("trust_anchors"))
        ask |= trust.ask
        if resolver is not None:
            ask["resolver"] = resolver
            return _view(resolver, None, trust)
        if nameservers is not None:
            ask["nameservers"] = servers = tuple(call.listed(nameservers))
            return _view(None, servers, trust)
        if self.nameservers is not None:
            ask["nameservers"] = self.nameservers
        return self.view if trust is self.trust else _view(None, self.nameservers, trust)

    @property
    def has_resolver(self) -> bool:
        """Whether ``own_resolver`` has nothing to look up."""
        return self._own is not None or not self.nameservers

    def own_resolver(self, ask: dict[str, Any]) -> dict[str, Any]:
        """The same, the cache's own servers as one Stub or dnspython resolver for every call, which so learns which of
        them are silent, and whether the origin exists.

        Made when it is first needed, for a server given by name is looked up; raises as ``make_stub`` does.
        """
        own = self.nameservers or ()
        if not own or ask.get("nameservers") != own:
            return ask
        if ask.get("trust_ad", False) != self.trust.ad or ask.get("trust_anchors") is not self.trust.validator:
            return ask
        if self._own is None:
            self._own = self._make(own, ask.get("lifetime"))
        has = _STUB_HAS if isinstance(self._own, Stub) else ("nameservers",)
        rest = {name: value for name, value in ask.items() if name not in has}
        return {**rest, "resolver": self._own}

    def _make(self, servers: tuple[str, ...], lifetime: float | None) -> Stub | dns.resolver.Resolver:
        if not any("://" in server for server in servers):
            return make_stub(servers, **self.trust.ask, lifetime=lifetime)
        from maptr.client.resolver import make_resolver

        return make_resolver(servers, lifetime=lifetime)


_STUB_HAS = ("nameservers", "trust_ad", "trust_anchors")


def _view(resolver: Any, nameservers: tuple[str, ...] | None, trust: Trust) -> str:
    """Whose word it is, as text: what one set of servers said is never given out as another's, nor what was believed
    or proven to be valid as what was not."""
    if nameservers is not None:
        whose = ",".join(text if "#" in text else f"{text}#53" for text in nameservers)
    elif resolver is None:
        whose = ""
    else:
        servers: Any = getattr(resolver, "nameservers", None) or getattr(resolver, "servers", ())
        whose = ",".join(f"{s[0]}#{s[1]}" if isinstance(s, tuple) else str(s) for s in servers)
        port = getattr(resolver, "port", "")
        whose = f"{whose}#{port}" if whose and port else whose or repr(resolver)
        own = getattr(resolver, "validator", None)
        trusted = " ad" if getattr(resolver, "trust_ad", False) else f" from {_fingerprint(own)}" if own else ""
        return whose + (trust.view or trusted)
    return whose + trust.view


def _fingerprint(validator: Validator) -> str:
    """The same for the same trust anchors, in every process."""
    anchors = sorted((str(zone), sorted(map(str, rdatas))) for zone, rdatas in validator.trust.anchors.items())
    return hashlib.sha256(repr(anchors).encode()).hexdigest()[:16]
