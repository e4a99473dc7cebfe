"""discover(): the walk over dnspython's resolver, one question after the other.

A driver and no more: what to ask and what an answer means is decided in ``walk``; reading dnspython is in ``call``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import dns.name
import dns.resolver

from maptr import call
from maptr.ark import Ark
from maptr.call import Call, Clock, StepHook
from maptr.choose import Chooser
from maptr.discovery import Discovery
from maptr.errors import DiscoveryFailed
from maptr.walk import Settings


def discover(
    ark: Ark | str | bytes,
    *,
    resolver: dns.resolver.Resolver | None = None,
    origin: str | dns.name.Name = "ark.arpa.",
    lifetime: float | None = None,
    raise_on_none: bool = True,
    chooser: Chooser | None = None,
    on_step: StepHook | None = None,
    settings: Settings | None = None,
    clock: Clock = time.monotonic,
) -> Discovery:
    """Find the mapping authorities of an ARK (draft-kunze-ark appendix B).

    ``resolver`` is a dnspython Resolver, by default the system's. ``lifetime`` in seconds bounds the whole walk
    (default 5). ``chooser`` puts its choice first. ``on_step`` gets each question of the trace as soon as it is read.
    ``settings`` says what else a walk may do; its origin gives way to ``origin``. With ``raise_on_none=False``
    an ARK that nobody serves gives an empty discovery.

    Raises ArkSyntaxError; NoMappingAuthority where DNS said there is none; DiscoveryFailed where DNS did not say,
    as DiscoveryTimeout where it stayed silent; ConfigError for a bad origin.
    """
    run = Call(ark, origin=origin, lifetime=lifetime, settings=settings, on_step=on_step, clock=clock)
    resolver = resolver or call.default_resolver()
    while questions := run.walk.next():
        for question in questions:
            started = clock()
            try:
                found = resolver.resolve(
                    call.qname(question), "NAPTR", raise_on_no_answer=False, lifetime=run.time_left(), search=False
                )
            except Exception as error:
                answer = call.read_error(error, clock() - started)
            else:
                answer = call.read_answer(found, clock() - started)
            run.tell(question, answer)
    return run.finish(raise_on_none=raise_on_none, chooser=chooser)


def discover_at(where: str, ark: Ark | str | bytes, *, port: int = 53, **options: Any) -> Discovery:
    """The same, asking one server by address or name: a resolver, or a server that has the zone.

    ``options`` and errors are those of ``discover``; DiscoveryFailed also where ``where`` is a name without address.
    """
    return discover(ark, resolver=call.resolver_at(where, port), **options)


def discover_many(arks: Iterable[Ark | str | bytes], **options: Any) -> Iterator[Discovery]:
    """A discovery for each ARK, in order; an empty one where there is no candidate.

    One that failed is not ``complete``. ``options`` are those of ``discover``. Raises ArkSyntaxError.
    """
    options.setdefault("resolver", None)
    options["resolver"] = options["resolver"] or call.default_resolver()
    for ark in arks:
        try:
            yield discover(ark, **{**options, "raise_on_none": False})
        except DiscoveryFailed as failed:
            if failed.discovery is None:
                raise
            yield failed.discovery
