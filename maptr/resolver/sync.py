"""discover(): the walk over plain DNS servers or a dnspython resolver.

``walk`` decides what to ask and what an answer means, ``multiplexer`` asks plain servers, ``resolver`` dnspython's.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from maptr.ark import Ark, Profile
from maptr.discovery import Discovery
from maptr.errors import ConfigError
from maptr.protocol.names import Labels
from maptr.resolver.call import Call, StepHook, at_port, check_resolver, has_https, listed, prefer
from maptr.resolver.multiplexer import Multiplexer, SelectorWaiter
from maptr.resolver.stub import Stub
from maptr.walk import Answer, Question, Settings

if TYPE_CHECKING:
    import dns.name
    import dns.resolver

    from maptr.choose import Chooser
    from maptr.resolver.dnspython import DnspythonLookups
    from maptr.resolver.validation.validator import TrustAnchors

Resolving = TypeVar("Resolving", bound="dns.resolver.BaseResolver")


def discover(
    ark: Ark | str | bytes,
    *,
    resolver: dns.resolver.Resolver | Stub | None = None,
    nameservers: Iterable[str] | None = None,
    origin: str | dns.name.Name = "ark.arpa.",
    lifetime: float | None = None,
    raise_on_none: bool = True,
    chooser: Chooser | None = None,
    on_step: StepHook | None = None,
    settings: Settings | None = None,
    trust_ad: bool = False,
    trust_anchors: TrustAnchors | None = None,
    require: Literal["secure"] | None = None,
    profile: Profile = "current",
) -> Discovery:
    """Find the mapping authorities of an ARK (draft-kunze-ark appendix B), or of a bare NAAN (``ark:12345``).

    ``resolver`` is a dnspython Resolver, by default the system's, or a ``Stub``. ``nameservers`` instead names plain
    DNS servers (``"192.0.2.1"``, ``"::1#5300"``), recursive or authoritative, and takes about half the time; or
    servers by TLS (``"tls://192.0.2.1"``), or by HTTPS (``"https://dns.example/dns-query"``), which dnspython asks.
    ``lifetime`` in seconds bounds the whole walk (default 5). ``chooser`` puts its choice first. ``on_step`` gets each
    step of the trace as soon as it is known. ``settings`` are the other settings of the walk; ``origin`` replaces
    their origin. With ``raise_on_none=False``, an ARK without mapping authority gives an empty discovery. ``trust_ad``
    trusts the resolver's AD bit for ``security``: only for one that you run, over a secure channel. ``trust_anchors``
    validates every answer here, from the anchors of a ``Validator`` (which keeps keys), a file or a mapping; bogus
    data never becomes a candidate. ``require="secure"`` refuses a discovery that is not secure throughout.
    ``profile`` is the version of the draft by which text is read, as for ``Ark.parse``.

    Raises ArkSyntaxError; NoMappingAuthority if DNS said there is none; DiscoveryFailed if DNS did not say, as
    DiscoveryTimeout if there was no response; ConfigError for a bad origin, server or trust anchor.

    >>> discover("ark:12345/x6np1wh8k", nameservers=[server]).url()
    'https://ark.example.org/ark:12345/x6np1wh8k'
    """
    call = Call(
        ark, origin, lifetime, raise_on_none, chooser, on_step, settings, trust_ad, trust_anchors, require, profile
    )
    return discover_with(call, resolver, nameservers)


def discover_at(
    where: str,
    ark: Ark | str | bytes,
    *,
    port: int = 53,
    origin: str | dns.name.Name = "ark.arpa.",
    lifetime: float | None = None,
    raise_on_none: bool = True,
    chooser: Chooser | None = None,
    on_step: StepHook | None = None,
    settings: Settings | None = None,
    trust_ad: bool = False,
    trust_anchors: TrustAnchors | None = None,
    require: Literal["secure"] | None = None,
    profile: Profile = "current",
) -> Discovery:
    """``discover``, asking one server by address or name: a resolver, or a server that has the zone.

    ``port`` is that of the server, unless ``where`` ends with ``#port``. The other options and the errors are those of
    ``discover``; DiscoveryFailed also if ``where`` is a name without address.

    >>> discover_at(host, "ark:12345/x6np1wh8k", port=port).security
    'indeterminate'
    """
    call = Call(
        ark, origin, lifetime, raise_on_none, chooser, on_step, settings, trust_ad, trust_anchors, require, profile
    )
    return discover_with(call, None, at_port(where, port))


def discover_with(
    run: Call, resolver: dns.resolver.Resolver | Stub | None, nameservers: Iterable[str] | None
) -> Discovery:
    """Run a call to its end. Raises as ``discover`` does."""
    with run.named():
        given = resolver_for(resolver, nameservers, run)
    if isinstance(given, Stub):
        with closing(SelectorWaiter()) as waiter, closing(StubLookups(given, run, waiter)) as lookups:
            return _walk(run, lookups)
    from maptr.resolver.dnspython import DnspythonLookups  # dnspython takes 70 ms to import

    with run.named():
        return _walk(run, DnspythonLookups(given, run))


def _walk(run: Call, lookups: StubLookups | DnspythonLookups) -> Discovery:
    while questions := run.walk.next():
        known = lookups.origins.recall(questions, lookups.trust)
        run.tell(questions, known or lookups.origins.remember(questions, lookups.trust, lookups.ask(questions)))
    return prefer(run.finish(), run.chooser)


def make_stub(
    nameservers: Iterable[str],
    *,
    trust_ad: bool = False,
    trust_anchors: TrustAnchors | None = None,
    lifetime: float | None = None,
) -> Stub:
    """Return a stub for the servers. Raises ConfigError for a bad one, DiscoveryFailed for a name without address."""
    try:
        return Stub(nameservers, trust_ad=trust_ad, trust_anchors=trust_anchors, lifetime=lifetime)
    except ValueError as error:
        raise ConfigError(str(error), key="nameservers") from None


def resolver_for(
    resolver: Stub | Resolving | None, nameservers: Iterable[str] | None, run: Call
) -> Stub | Resolving | dns.resolver.Resolver | None:
    """Return the stub or dnspython resolver to ask; None for the system's. Raises ConfigError if both are given."""
    check_resolver(resolver, nameservers)
    if nameservers is None:
        return resolver.trusting(run.trust_anchors, trust_ad=run.trust_ad) if isinstance(resolver, Stub) else resolver
    nameservers = listed(nameservers)
    if has_https(nameservers):
        from maptr.resolver.dnspython import make_resolver  # dnspython takes 70 ms to import

        return make_resolver(nameservers, lifetime=run.left)
    return make_stub(nameservers, trust_ad=run.trust_ad, trust_anchors=run.trust_anchors, lifetime=max(0.0, run.left))


class StubLookups:
    """The lookups of one call at plain servers. A failure is an answer, too."""

    def __init__(self, stub: Stub, run: Call, waiter: Any) -> None:
        self.origins = stub.origins
        self.trust = stub.trust
        self.multiplexer = Multiplexer(stub, waiter, clock=run.clock)
        self.waiter = waiter
        self.close = self.multiplexer.close
        self._run = run

    def start(self, questions: list[Question]) -> dict[Labels, Answer]:
        """Queue questions, to be answered within the time of the call. Returns a dictionary that the answers fill."""
        answers: dict[Labels, Answer] = {}
        for question in questions:
            done = partial(answers.__setitem__, question.name)
            self.multiplexer.ask(question.name, done, question.rdtype, seconds=self._run.left)
        return answers

    def ask(self, questions: list[Question]) -> list[Answer]:
        """Return the answers to questions, which are asked side by side."""
        answers = self.start(questions)
        while len(answers) < len(questions):
            self.waiter.wait(self.multiplexer.tick() or 0)
        return [answers[question.name] for question in questions]

    async def ask_async(self, questions: list[Question]) -> list[Answer]:
        """``ask``, awaited."""
        answers = self.start(questions)
        while len(answers) < len(questions):
            await self.waiter.wait(self.multiplexer.tick() or 0)
        return [answers[question.name] for question in questions]
