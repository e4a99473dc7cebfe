"""DNS without a network, for the tests of programs that use maptr.

    from maptr.testing import offline_client
    client = offline_client({"12345": "https://ark.example.org/ark:${content}", "99999": "silent"})

With pytest, the fixture ``maptr_dns`` is such a DNS for every client and function of a test (``pytest_plugin``). No
socket is opened. Requests to mapping authorities, such as those of ``describe``, are not answered here.
"""

from __future__ import annotations

import asyncio
import time
from collections import UserDict
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias, Unpack, get_args

from maptr.ark import Ark
from maptr.client import Client, ClientOptions
from maptr.discovery import SECURITY, Discovery, Outcome
from maptr.errors import ConfigError
from maptr.naptr.record import Naptr
from maptr.protocol.names import Labels, to_text
from maptr.protocol.numbers import SOA
from maptr.registry.table import Entry, Nma, Table, parse_key
from maptr.registry.target import unusable
from maptr.resolver.bulk import Item, Token
from maptr.resolver.call import Lifetime, StepHook, TimedWalk, complete
from maptr.resolver.resolver import Resolver
from maptr.walk import Answer, Question
from maptr.zone.rules import records_by_name, unwritable

__all__ = ["Answers", "DnsFault", "Reply", "Slow", "offline_client"]

DnsFault = Literal["none", "silent", "servfail", "slow", "bogus"]
"""What DNS says instead of an answer: that there is none; nothing in time; that the server failed; that there is none,
but after a second; an answer that fails validation. The times of "silent" pass at once."""

FAULTS: Final = get_args(DnsFault)
TTL = 300  # seconds, of every answer


class Slow(NamedTuple):
    """An answer that comes after that many seconds, or a timeout if the caller does not wait for it."""

    reply: str | Sequence[str] = "none"
    seconds: float = 1.0


Reply: TypeAlias = str | Sequence[str] | Slow
"""A URL template, several of them, best first, a DnsFault, or a Slow one of these."""

Heard: TypeAlias = dict[Labels, tuple[Answer, float]]


class Answers(UserDict[str, Reply | Entry]):
    """DNS's answers, by NAAN (``12345``) or NAAN and shoulder (``12345/x6``). Any other NAAN has none.

    A URL template has the variables of the registry, such as ``${content}``. ``security`` is the DNSSEC state of every
    answer. ``asked`` has the names of the queries, in their order. A Table answers like its zone, without ``h``.

    Raises ConfigError for an invalid NAAN or reply, and for an unknown state.

    >>> answers = Answers({"12345": "https://ark.example.org/ark:${content}"})
    >>> offline_client(answers).discover("ark:12345/x1").url(), answers.asked
    ('https://ark.example.org/ark:12345/x1', ['12345.ark.arpa.'])
    """

    def __init__(self, replies: Mapping[str, Reply] | Table | None = None, *, security: str = "indeterminate") -> None:
        if security not in SECURITY:
            raise ConfigError(f"{security!r} is not one of {', '.join(SECURITY)}", key="security")
        self.security = security
        self.asked: list[str] = []
        super().__init__(dict(replies or {}))

    def __setitem__(self, key: str, reply: Reply | Entry) -> None:
        if not isinstance(key, str):
            raise TypeError(f"a NAAN is a str, not {type(key).__name__}: {key!r}")
        try:
            naan, shoulder = parse_key(key.removeprefix("ark:").removeprefix("/"))
        except ValueError as error:
            raise ConfigError(f"{key!r} is not a NAAN, such as 12345, or NAAN and shoulder: {error}") from None
        entry = Entry(naan, shoulder)
        if not isinstance(reply, Entry):
            _check(entry, reply)
        super().__setitem__(entry.key, reply)

    def answer(self, question: Question, origin: Labels) -> tuple[Answer, float]:
        """Return the answer to a question, and after how many seconds it comes."""
        self.asked.append(to_text(question.name))
        below = question.name[: len(question.name) - len(origin)]
        if question.rdtype == SOA or not below:
            return Answer(Outcome.NODATA, security=self.security, zone=origin), 0.0
        naan = below[-1].decode().lower()
        reply, seconds = self.get(naan, "none"), 0.0
        if isinstance(reply, Slow):
            reply, seconds = reply
        if reply == "slow":
            reply, seconds = Slow()
        if reply == "silent":
            return Answer(Outcome.TIMEOUT), seconds
        if reply == "servfail":
            return Answer(Outcome.SERVFAIL), seconds
        if reply == "bogus":
            return Answer(Outcome.BOGUS, security="bogus"), seconds
        records = [naptr for owner, naptr in self._records(naan, origin) if owner == question.name]
        outcome = Outcome.ANSWER if records else Outcome.NXDOMAIN
        return Answer(outcome, records, TTL, security=self.security, zone=None if records else origin), seconds

    def _records(self, naan: str, origin: Labels) -> Iterator[tuple[Labels, Naptr]]:
        entries = [_entry(key, reply) for key, reply in self.items() if key.partition("/")[0] == naan]
        usable = [each for each in entries if each.nmas and not any(unwritable(each, nma) for nma in each.nmas)]
        root = next((each for each in usable if not each.shoulder), Entry(naan))
        made = records_by_name(root, [each for each in usable if each.shoulder], origin)
        return ((owner, naptr) for owner, naptr in made if naptr.flags != b"h")


class OfflineResolver(Resolver):
    """Runs walks over ``answers`` instead of DNS; ``nameservers`` are not asked. The other options are a Resolver's."""

    def __init__(self, answers: Answers, nameservers: object = None, **options: Any) -> None:
        super().__init__(**options)
        self.given = ()  # so that its cached answers are not those of the system's servers
        self._source = answers

    def __repr__(self) -> str:
        return "the answers of a test"

    def discover(
        self, ark: Ark, lifetime: Lifetime, on_step: StepHook | None = None, heard: Heard | None = None
    ) -> Discovery:
        run = self._timed(ark, lifetime, on_step)
        return complete(self._look_up(run, {} if heard is None else heard, _sleep))

    async def discover_async(
        self, ark: Ark, lifetime: Lifetime, on_step: StepHook | None = None, heard: Heard | None = None
    ) -> Discovery:
        run = self._timed(ark, lifetime, on_step)
        return await self._look_up(run, {} if heard is None else heard, asyncio.sleep)

    async def _look_up(self, run: TimedWalk, heard: Heard, sleep: Callable[[float], Awaitable[None]]) -> Discovery:
        while questions := run.walk.next():
            answers, seconds = self._answers(questions, run.deadline.left(), heard)
            if seconds:
                await sleep(seconds)
            run.tell(questions, answers)
        return run.result()

    def discover_many(
        self, pairs: Iterable[tuple[Token, Item]], lifetime: float, *, ordered: bool = True
    ) -> Generator[tuple[Token, Discovery], None, None]:
        heard: Heard = {}
        for token, item in pairs:
            yield token, item if isinstance(item, Discovery) else self.discover(item, lifetime, None, heard)

    async def discover_many_async(
        self, pairs: AsyncIterator[tuple[Token, Item]], lifetime: float, *, ordered: bool = True
    ) -> AsyncGenerator[tuple[Token, Discovery], None]:
        heard: Heard = {}
        async for token, item in pairs:
            yield token, item if isinstance(item, Discovery) else await self.discover_async(item, lifetime, None, heard)

    def serial(self) -> int | None:
        return None

    def answer(self, question: Question) -> tuple[Answer, float]:
        """Return the answer to a question, and after how many seconds it comes."""
        return self._source.answer(question, self.settings.origin)

    def _answers(self, questions: Sequence[Question], left: float, heard: Heard) -> tuple[list[Answer], float]:
        """Return the answers, and how long to wait for the last of them. A run asks again only after a timeout."""
        made = [heard.get(question.name) or self.answer(question) for question in questions]
        answers = [answer if seconds <= left else Answer(Outcome.TIMEOUT) for answer, seconds in made]
        for question, answer in zip(questions, answers, strict=True):
            if answer.outcome is not Outcome.TIMEOUT:
                heard[question.name] = answer, 0.0
        return answers, max(0.0, min(left, max(seconds for _, seconds in made)))


async def _sleep(seconds: float) -> None:
    """Sleep in a coroutine that has no event loop."""
    time.sleep(seconds)


class _OfflineClient(Client):
    def __init__(self, answers: Answers, lifetime: float | None, **options: Unpack[ClientOptions]) -> None:
        self._make_resolver = partial(OfflineResolver, answers)
        super().__init__(lifetime=lifetime, **options)


def offline_client(
    answers: Mapping[str, Reply] | Table | Answers, *, lifetime: float | None = None, **options: Unpack[ClientOptions]
) -> Client:
    """Return a client that uses these answers instead of DNS, with the options of ``Client`` except ``nameservers``.

    Its table is only the given one, never the machine's. Raises ConfigError for an invalid answer.

    >>> client = offline_client({"12345": "https://ark.example.org/ark:${content}", "99999": "silent"})
    >>> client.discover("ark:12345/x1").url()
    'https://ark.example.org/ark:12345/x1'
    >>> client.discover("ark:99999/x1")
    Traceback (most recent call last):
    maptr.discovery.DiscoveryTimeout: no mapping authority known for ark:99999/x1: 99999.ark.arpa. NAPTR: no answer ...
    """
    if "nameservers" in options:
        raise TypeError("the answers stand for the nameservers: give no others")
    options.setdefault("table", None)
    given = answers if isinstance(answers, Answers) else Answers(answers)
    return _OfflineClient(given, lifetime, **options)


def _entry(key: str, reply: Reply | Entry) -> Entry:
    if isinstance(reply, Entry):
        return reply
    if isinstance(reply, Slow):
        reply = reply.reply
    targets = (reply,) if isinstance(reply, str) else reply
    return Entry(*parse_key(key), nmas=tuple(Nma(target) for target in targets if target not in FAULTS))


def _check(entry: Entry, reply: Reply) -> None:
    """Raise ConfigError for a reply that DNS cannot give for this record."""
    if isinstance(reply, Slow):
        reply = reply.reply
    if reply in FAULTS:
        if entry.shoulder:
            raise ConfigError(f"{entry.key}: only a whole NAAN is {reply!r}, because a query is for a NAAN")
        return
    for target in (reply,) if isinstance(reply, str) or not isinstance(reply, Sequence) else reply:
        if not isinstance(target, str) or "://" not in target:
            raise ConfigError(f"{entry.key}: {target!r} is neither a URL nor one of {', '.join(FAULTS)}")
        why = unusable(target, allow_private=True)
        if reason := unwritable(entry, Nma(target)) if why is None else why[1]:
            raise ConfigError(f"{entry.key}: {reason}")
