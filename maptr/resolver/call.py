"""One call of ``discover``: its options, and the walk that answers it, with its deadline and its hook."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from maptr.ark import NO_ARK, Ark, Profile
from maptr.discovery import Discovery, Step
from maptr.errors import ArkSyntaxError, ConfigError
from maptr.protocol.names import Labels
from maptr.walk import Answer, Question, Settings, Walk

if TYPE_CHECKING:
    from maptr.choose import Chooser

LIFETIME = 5.0  # seconds for a whole walk; dnspython's default for one resolution

T = TypeVar("T")

log = logging.getLogger("maptr.client")  # DEBUG: one line per query, and one per discovery

StepHook = Callable[[Step], object]  # what it returns is not used
Clock = Callable[[], float]
_RECEIVED = (Ark, str, bytes)


class Deadline:
    """The time at which a look-up ends, by a monotonic clock: ``seconds`` from now."""

    __slots__ = ("clock", "until")

    def __init__(self, seconds: float, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self.until = clock() + seconds

    @classmethod
    def of(cls, lifetime: Lifetime, clock: Clock) -> Deadline:
        """Return a deadline unchanged, and a number of seconds as a deadline from now."""
        return lifetime if isinstance(lifetime, Deadline) else cls(lifetime, clock)

    def left(self) -> float:
        """Return the seconds until it; negative after it."""
        return self.until - self.clock()


Lifetime = float | Deadline
"""How long a look-up may take: seconds from its start, or the deadline of the call that needs it."""


class Options(NamedTuple):
    """The options of one call, as given. ``help(maptr.Client.discover)`` explains them."""

    lifetime: float | None = None
    chooser: Chooser | None = None
    on_step: StepHook | None = None
    raise_on_none: bool = True
    profile: Profile = "current"


NO_OPTIONS = Options()


class Call:
    """The ARK and the options of one call, read and checked; its time begins. ``default`` is its lifetime in seconds.

    Raises ArkSyntaxError, ConfigError and TypeError.
    """

    def __init__(self, ark: Ark | str | bytes, options: Options, default: float, clock: Clock) -> None:
        lifetime, self.chooser, self.on_step, self._raise_on_none, profile = options
        for name in ("chooser", "on_step"):
            if (given := getattr(self, name)) is not None and not callable(given):
                raise TypeError(f"{name}: {given!r:.60} is not a function")
        self.ark = as_ark(ark, profile)
        self.deadline = Deadline(default if lifetime is None else checked(lifetime, "lifetime"), clock)

    def raise_for(self, found: Discovery, require: str | None) -> None:
        """Raise what ``discover`` raises for this discovery."""
        log_discovery(found)
        found.raise_for_security(require)
        if self._raise_on_none or not found.complete:
            found.raise_for_none()


class TimedWalk:
    """A walk in progress, with its deadline and its hook."""

    def __init__(self, ark: Ark, settings: Settings, deadline: Deadline, on_step: StepHook | None = None) -> None:
        self.walk = Walk(ark, settings)
        self.deadline = deadline
        self._on_step = on_step
        self._shown = 0

    def tell(self, questions: list[Question], answers: list[Answer]) -> None:
        for question, answer in zip(questions, answers, strict=True):
            if logs():
                log_answer(question.name, question.rdtype, answer)
            self.walk.tell(question, answer)
        self._show(self.walk.steps)

    def result(self) -> Discovery:
        found = self.walk.result(time.time())
        self._show(found.trace)  # with a limit that only the end shows
        return found

    def _show(self, steps: Sequence[Step]) -> None:
        if self._on_step is not None:
            for step in steps[self._shown :]:
                self._on_step(step)
            self._shown = len(steps)


def complete(steps: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that blocks where others wait, and so needs no event loop, and return its result.

    Look-ups are written once, as coroutines. In a task they wait in the event loop, in a thread here.
    """
    try:
        steps.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a coroutine that was to block waits for an event loop")


def logs() -> bool:
    """Return whether the program wants a line for each query and each discovery."""
    return log.isEnabledFor(logging.DEBUG)


def log_answer(name: Labels, rdtype: int, answer: Answer) -> None:
    """Log the answer to a query."""
    log.debug("query %s: %d records", answer.as_step(name, rdtype), len(answer.records))


def log_discovery(found: Discovery) -> None:
    """Log a discovery, and why its source was taken, if the program wants such lines."""
    if logs():
        log.debug("found %s", f"{found} [{found.reason}]" if found.candidates and found.reason else found)


def as_ark(ark: Ark | str | bytes, profile: Profile) -> Ark:
    """Return an ARK to discover, or a bare NAAN. Raises as ``Ark.parse``."""
    return Ark.parse(ark, profile=profile, bare=True)


def as_item(item: object, position: int, profile: Profile) -> Ark | Discovery:
    """Return an item of a stream as an ARK; if it is not one, as a discovery with the error."""
    try:
        if not isinstance(item, _RECEIVED):
            raise ArkSyntaxError(f"{type(item).__name__} is not text")
        return as_ark(item, profile)
    except ArkSyntaxError as error:
        return Discovery(NO_ARK, complete=False, error=error, position=position)


def prefer(found: Discovery, chooser: Chooser | None) -> Discovery:
    """Return the discovery with the chooser's choice first."""
    return found.preferring(chooser) if chooser is not None and found.candidates else found


def checked(given: float, key: str) -> float:
    """Return a number of seconds. Raises ConfigError for a negative number or NaN, TypeError for another type."""
    if not isinstance(given, int | float):
        raise TypeError(f"{key}: {given!r} is not a number")
    if not given >= 0:
        raise ConfigError(f"{given} is not a number of seconds", key=key)
    return given
