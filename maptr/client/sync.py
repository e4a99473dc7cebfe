"""discover(): the walk, one question after the other, over plain DNS servers or a dnspython resolver.

A driver and no more: what to ask and what an answer means is decided in ``walk``; asking plain servers is ``stub``,
asking dnspython is ``resolver``, which is imported only where it is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar, Unpack

from maptr.ark import Ark, Profile
from maptr.client.call import Call, Clock, Options, StepHook, check_whom, listed, prefer
from maptr.client.stub import Stub, make_validator
from maptr.discovery import Discovery
from maptr.errors import ConfigError
from maptr.walk import Answer, Question, Settings

if TYPE_CHECKING:
    import dns.name
    import dns.resolver

    from maptr.choose import Chooser
    from maptr.client.validation.validator import TrustAnchors, Validator

Ask = Callable[[Question], Answer]
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
    clock: Clock = time.monotonic,
) -> Discovery:
    """Find the mapping authorities of an ARK (draft-kunze-ark appendix B), or of a bare NAAN (``ark:12345``).

    ``resolver`` is a dnspython Resolver, by default the system's, or a ``Stub``. ``nameservers`` instead names plain
    DNS servers (``"192.0.2.1"``, ``"::1#5300"``), recursive or authoritative, and is several times as fast; or
    some by TLS (``"tls://192.0.2.1"``) or HTTPS (``"https://dns.example/dns-query"``), which dnspython asks.
    ``lifetime`` in seconds bounds the whole walk (default 5). ``chooser`` puts its choice first. ``on_step`` gets each
    question of the trace as soon as it is read. ``settings`` says what else a walk may do; its origin gives way to
    ``origin``. With ``raise_on_none=False`` an ARK that nobody serves gives an empty discovery. ``trust_ad`` takes the
    resolver's word on DNSSEC into ``security``: only for one you run, over a safe way. ``trust_anchors`` validates
    every answer here, from the anchors of a ``Validator`` (which remembers), of a file or of a mapping; what is bogus
    is never a candidate. ``require="secure"`` refuses whatever is not secure throughout. ``profile`` is the version of
    the draft that text is read by, as for ``Ark.parse``.

    Raises ArkSyntaxError; NoMappingAuthority where DNS said there is none; DiscoveryFailed where DNS did not say,
    as DiscoveryTimeout where it stayed silent; ConfigError for a bad origin, server or trust anchor.

    >>> discover("ark:12345/x6np1wh8k", nameservers=[server]).url()
    'https://ark.example.org/ark:12345/x6np1wh8k'
    """
    run = Call(
        ark,
        origin=origin,
        lifetime=lifetime,
        raise_on_none=raise_on_none,
        chooser=chooser,
        on_step=on_step,
        settings=settings,
        trust_ad=trust_ad,
        trust_anchors=trust_anchors,
        require=require,
        profile=profile,
        clock=clock,
    )
    ask = asker(resolver, nameservers, run)
    while questions := run.walk.next():
        for question in questions:
            run.tell(question, ask(question))
    return prefer(run.finish(), run.chooser)


def discover_at(where: str, ark: Ark | str | bytes, *, port: int = 53, **options: Unpack[Options]) -> Discovery:
    """The same, asking one server by address or name: a resolver, or a server that has the zone.

    ``options`` and errors are those of ``discover``; DiscoveryFailed also where ``where`` is a name without address.

    >>> discover_at(host, "ark:12345/x6np1wh8k", port=port).security
    'indeterminate'
    """
    return discover(ark, nameservers=[where if "#" in where else f"{where}#{port}"], **options)


def make_stub(
    nameservers: Iterable[str],
    *,
    trust_ad: bool = False,
    trust_anchors: TrustAnchors | None = None,
    clock: Clock = time.monotonic,
    lifetime: float | None = None,
) -> Stub:
    """A stub for the servers; ConfigError for a bad one, DiscoveryFailed for a name without address."""
    try:
        return Stub(nameservers, trust_ad=trust_ad, trust_anchors=trust_anchors, clock=clock, lifetime=lifetime)
    except ValueError as error:
        raise ConfigError(str(error), key="nameservers") from None


def whom(
    resolver: Stub | Resolving | None, nameservers: Iterable[str] | None, run: Call
) -> Stub | Resolving | dns.resolver.Resolver | None:
    """Who asks: a stub, a dnspython resolver, or None for the system's one. Raises ConfigError where both are given."""
    check_whom(resolver, nameservers)
    if nameservers is None:
        return resolver.trusting(run.trust_anchors) if isinstance(resolver, Stub) else resolver
    nameservers = listed(nameservers)
    if any("://" in text for text in nameservers):
        from maptr.client.resolver import make_resolver

        return make_resolver(nameservers, lifetime=run.left)
    return make_stub(
        nameservers, trust_ad=run.trust_ad, trust_anchors=run.trust_anchors, clock=run.clock, lifetime=run.left
    )


def asker(resolver: dns.resolver.Resolver | Stub | None, nameservers: Iterable[str] | None, run: Call) -> Ask:
    """How to ask one question. Raises ConfigError where both are given."""
    given = whom(resolver, nameservers, run)
    if isinstance(given, Stub):
        stub = given

        def ask(question: Question) -> Answer:
            asked = partial(stub.ask, question.name, run.left, question.rdtype)
            return stub.origins.once(question, stub.trust, asked, run.left)

        return ask
    from maptr.client import resolver as reading

    dnspython = given or reading.default_resolver()
    origins = reading.origins_of(dnspython)
    validator = None if run.trust_anchors is None else make_validator(run.trust_anchors, run.trust_ad)
    trust = validator or run.trust_ad
    asking = _ask_dnspython(dnspython, run) if validator is None else _ask_validating(dnspython, run, validator)
    return lambda question: origins.once(question, trust, partial(asking, question), run.left)


def _ask_dnspython(resolver: dns.resolver.Resolver, run: Call) -> Ask:
    from maptr.client import resolver as reading

    if run.trust_ad:
        resolver = reading.checking_ad(resolver)

    def ask(question: Question) -> Answer:
        started = run.clock()
        try:
            found = resolver.resolve(
                reading.qname(question),
                reading.rdtype(question),
                raise_on_no_answer=False,
                lifetime=run.time_left(),
                search=False,
            )
        except Exception as error:
            return reading.read_error(error, run.clock() - started, trust_ad=run.trust_ad)
        return reading.read_answer(found, run.clock() - started, trust_ad=run.trust_ad)

    return ask


def _ask_validating(given: dns.resolver.Resolver, run: Call, validator: Validator) -> Ask:
    from maptr.client import resolver as reading

    resolver = reading.validating(given)

    def ask(question: Question) -> Answer:
        started = run.clock()
        inquiry = validator.inquire(question.name, question.rdtype)
        while inquiry.answer is None:
            need = inquiry.need
            try:
                found = resolver.resolve(
                    need.name, need.rdtype, raise_on_no_answer=False, lifetime=run.time_left(), search=False
                )
            except Exception as error:
                inquiry.tell(reading.heard_error(error, run.clock() - started))
            else:
                inquiry.tell(reading.heard(found, run.clock() - started))
        return inquiry.answer.after(run.clock() - started)

    return ask
