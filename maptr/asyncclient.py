"""discover(), awaited: the same walk, the questions of one depth side by side."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from maptr.ark import Ark
from maptr.call import Call, Clock, StepHook
from maptr.client import make_stub
from maptr.discovery import Discovery
from maptr.errors import ConfigError
from maptr.mux import Mux
from maptr.stub import Stub
from maptr.waiters import LoopWaiter
from maptr.walk import Answer, Question, Settings

if TYPE_CHECKING:
    import dns.asyncresolver
    import dns.name

    from maptr.choose import Chooser


async def discover_async(
    ark: Ark | str | bytes,
    *,
    resolver: dns.asyncresolver.Resolver | Stub | None = None,
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
    """``discover``, awaited: same arguments, same discovery, same errors.

    Cancelling it cancels the questions under way. A server given by name is looked up before the first await.

    >>> asyncio.run(discover_async("ark:12345/x6np1wh8k", nameservers=[server])).url()
    'https://ark.example.org/ark:12345/x6np1wh8k'
    """
    run = Call(ark, origin=origin, lifetime=lifetime, settings=settings, on_step=on_step, clock=clock)
    if resolver is not None and nameservers is not None:
        raise ConfigError("give resolver or nameservers, not both")
    if nameservers is not None:
        resolver = make_stub(nameservers, trust_ad=trust_ad, clock=clock)
    ask = _Stubbed(resolver) if isinstance(resolver, Stub) else _Dnspython(resolver, trust_ad)
    while questions := run.walk.next():
        for question, answer in zip(questions, await ask(run, questions), strict=True):
            run.tell(question, answer)
    return run.finish(raise_on_none=raise_on_none, chooser=chooser, require=require)


async def discover_at_async(where: str, ark: Ark | str | bytes, *, port: int = 53, **options: Any) -> Discovery:
    """``discover_at``, awaited."""
    return await discover_async(ark, nameservers=[where if "#" in where else f"{where}#{port}"], **options)


class _Stubbed:
    """Asks plain servers."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub

    async def __call__(self, run: Call, questions: list[Question]) -> list[Answer]:
        waiter = LoopWaiter()
        mux = Mux(self._stub, waiter, seconds=run.left, concurrency=len(questions), clock=run.clock)
        answers: dict[int, Answer] = {}
        try:
            for number, question in enumerate(questions):
                mux.ask(question.name, partial(answers.__setitem__, number))
            while True:
                pause = mux.tick()
                if len(answers) == len(questions):
                    return [answers[number] for number in range(len(questions))]
                await waiter.wait(pause)
        finally:
            mux.close()


class _Dnspython:
    """Asks a dnspython resolver, by default the system's."""

    def __init__(self, given: dns.asyncresolver.Resolver | None, trust_ad: bool) -> None:
        from maptr import resolver as reading

        self._resolver = given or reading.as_async(reading.default_resolver())
        self._trust_ad = trust_ad
        if trust_ad:
            self._resolver = reading.checking_ad(self._resolver)

    async def __call__(self, run: Call, questions: list[Question]) -> list[Answer]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._ask(run, question)) for question in questions]
        return [task.result() for task in tasks]

    async def _ask(self, run: Call, question: Question) -> Answer:
        from maptr import resolver as reading

        started = run.clock()
        try:
            found = await self._resolver.resolve(
                reading.qname(question), "NAPTR", raise_on_no_answer=False, lifetime=run.time_left(), search=False
            )
        except Exception as error:
            return reading.read_error(error, run.clock() - started, trust_ad=self._trust_ad)
        return reading.read_answer(found, run.clock() - started, trust_ad=self._trust_ad)
