"""discover(): the walk, one question after the other, over plain DNS servers or a dnspython resolver.

A driver and no more: what to ask and what an answer means is decided in ``walk``; asking plain servers is ``stub``,
asking dnspython is ``resolver``, which is imported only where it is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from maptr.ark import Ark
from maptr.call import Call, Clock, StepHook
from maptr.discovery import Discovery
from maptr.errors import ConfigError
from maptr.stub import Stub
from maptr.walk import Answer, Question, Settings

if TYPE_CHECKING:
    import dns.name
    import dns.resolver

    from maptr.choose import Chooser

Ask = Callable[[Question, Call], Answer]


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
    require: Literal["secure"] | None = None,
    clock: Clock = time.monotonic,
) -> Discovery:
    """Find the mapping authorities of an ARK (draft-kunze-ark appendix B).

    ``resolver`` is a dnspython Resolver, by default the system's, or a ``Stub``. ``nameservers`` instead names plain
    DNS servers (``"192.0.2.1"``, ``"::1#5353"``), recursive or authoritative, and is several times as fast.
    ``lifetime`` in seconds bounds the whole walk (default 5). ``chooser`` puts its choice first. ``on_step`` gets each
    question of the trace as soon as it is read. ``settings`` says what else a walk may do; its origin gives way to
    ``origin``. With ``raise_on_none=False`` an ARK that nobody serves gives an empty discovery. ``trust_ad`` takes the
    resolver's word on DNSSEC into ``security``: only for one you run, over a safe way. ``require="secure"`` refuses
    whatever that does not call secure.

    Raises ArkSyntaxError; NoMappingAuthority where DNS said there is none; DiscoveryFailed where DNS did not say,
    as DiscoveryTimeout where it stayed silent; ConfigError for a bad origin or server.

    >>> discover("ark:12345/x6np1wh8k", nameservers=[server]).url()
    'https://ark.example.org/ark:12345/x6np1wh8k'
    """
    run = Call(ark, origin=origin, lifetime=lifetime, settings=settings, on_step=on_step, clock=clock)
    ask = asker(resolver, nameservers, trust_ad=trust_ad, clock=clock)
    while questions := run.walk.next():
        for question in questions:
            run.tell(question, ask(question, run))
    return run.finish(raise_on_none=raise_on_none, chooser=chooser, require=require)


def discover_at(where: str, ark: Ark | str | bytes, *, port: int = 53, **options: Any) -> Discovery:
    """The same, asking one server by address or name: a resolver, or a server that has the zone.

    ``options`` and errors are those of ``discover``; DiscoveryFailed also where ``where`` is a name without address.
    """
    return discover(ark, nameservers=[where if "#" in where else f"{where}#{port}"], **options)


def make_stub(nameservers: Iterable[str], *, trust_ad: bool = False, clock: Clock = time.monotonic) -> Stub:
    """A stub for the servers; ConfigError for a bad one, DiscoveryFailed for a name without address."""
    if isinstance(nameservers, str):
        nameservers = [nameservers]
    try:
        return Stub(nameservers, trust_ad=trust_ad, clock=clock)
    except ValueError as error:
        raise ConfigError(str(error), key="nameservers") from None


def asker(
    resolver: dns.resolver.Resolver | Stub | None, nameservers: Iterable[str] | None, *, trust_ad: bool, clock: Clock
) -> Ask:
    """How to ask one question. Raises ConfigError where both are given."""
    if resolver is not None and nameservers is not None:
        raise ConfigError("give resolver or nameservers, not both")
    if nameservers is not None:
        resolver = make_stub(nameservers, trust_ad=trust_ad, clock=clock)
    if isinstance(resolver, Stub):
        stub = resolver
        return lambda question, run: stub.ask(question.name, run.left)
    return _ask_dnspython(resolver, trust_ad=trust_ad, clock=clock)


def _ask_dnspython(given: dns.resolver.Resolver | None, *, trust_ad: bool, clock: Clock) -> Ask:
    from maptr import resolver as reading

    resolver = given or reading.default_resolver()
    if trust_ad:
        resolver = reading.checking_ad(resolver)

    def ask(question: Question, run: Call) -> Answer:
        started = clock()
        try:
            found = resolver.resolve(
                reading.qname(question), "NAPTR", raise_on_no_answer=False, lifetime=run.time_left(), search=False
            )
        except Exception as error:
            return reading.read_error(error, clock() - started, trust_ad=trust_ad)
        return reading.read_answer(found, clock() - started, trust_ad=trust_ad)

    return ask
