"""discover(), awaited: the same walk, the questions of one depth side by side."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import dns.asyncresolver
import dns.name

from maptr import call
from maptr.ark import Ark
from maptr.call import Call, Clock, StepHook
from maptr.choose import Chooser
from maptr.discovery import Discovery
from maptr.walk import Answer, Question, Settings


async def discover_async(
    ark: Ark | str | bytes,
    *,
    resolver: dns.asyncresolver.Resolver | None = None,
    origin: str | dns.name.Name = "ark.arpa.",
    lifetime: float | None = None,
    raise_on_none: bool = True,
    chooser: Chooser | None = None,
    on_step: StepHook | None = None,
    settings: Settings | None = None,
    clock: Clock = time.monotonic,
) -> Discovery:
    """``discover``, awaited: same arguments, same discovery, same errors.

    Cancelling it cancels the questions under way.
    """
    run = Call(ark, origin=origin, lifetime=lifetime, settings=settings, on_step=on_step, clock=clock)
    asking = resolver or call.as_async(call.default_resolver())

    async def ask(question: Question) -> tuple[Question, Answer]:
        started = clock()
        try:
            found = await asking.resolve(
                call.qname(question), "NAPTR", raise_on_no_answer=False, lifetime=run.time_left(), search=False
            )
        except Exception as error:
            return question, call.read_error(error, clock() - started)
        return question, call.read_answer(found, clock() - started)

    while questions := run.walk.next():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(question)) for question in questions]
        for task in tasks:
            run.tell(*task.result())
    return run.finish(raise_on_none=raise_on_none, chooser=chooser)


async def discover_at_async(where: str, ark: Ark | str | bytes, *, port: int = 53, **options: Any) -> Discovery:
    """``discover_at``, awaited. A server given by name is looked up before the first await."""
    return await discover_async(ark, resolver=call.as_async(call.resolver_at(where, port)), **options)
