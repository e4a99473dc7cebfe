"""The walk of ``Resolver.discover``, in the thread of the caller."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from maptr.discovery import Discovery
from maptr.protocol.names import Labels
from maptr.resolver.call import TimedWalk
from maptr.resolver.multiplexer import Multiplexer, SelectorWaiter
from maptr.resolver.stub import Stub
from maptr.resolver.upstream import Upstream, names_ark
from maptr.walk import Answer, Question

if TYPE_CHECKING:
    from maptr.resolver.dnspython import DnspythonLookups


def discover(upstream: Upstream, run: TimedWalk) -> Discovery:
    """Run a walk to its end. Raises NoServer."""
    with names_ark(run.walk.ark):
        asked = upstream.opened(run.left)
    if isinstance(asked, Stub):
        with closing(SelectorWaiter()) as waiter, closing(StubLookups(asked, run, waiter)) as lookups:
            return _walk(upstream, run, lookups)
    from maptr.resolver.dnspython import DnspythonLookups  # dnspython takes 70 ms to import

    return _walk(upstream, run, DnspythonLookups(asked, run, upstream.validator, trust_ad=upstream.trust_ad))


def _walk(upstream: Upstream, run: TimedWalk, lookups: StubLookups | DnspythonLookups) -> Discovery:
    origin = upstream.origin
    while questions := run.walk.next():
        known = origin.recall(questions)
        run.tell(questions, known or origin.remember(questions, lookups.ask(questions)))
    return run.result()


class StubLookups:
    """The lookups of one walk at plain servers. A failure is an answer, too."""

    def __init__(self, stub: Stub, run: TimedWalk, waiter: Any) -> None:
        self.multiplexer = Multiplexer(stub, waiter, clock=run.clock)
        self.waiter = waiter
        self.close = self.multiplexer.close
        self._run = run

    def start(self, questions: list[Question]) -> dict[Labels, Answer]:
        """Queue questions, to be answered within the time of the walk. Returns a dictionary that the answers fill."""
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
