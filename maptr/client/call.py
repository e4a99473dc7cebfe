"""One call of ``discover``: the walk, its deadline, its hook and its result, shared by the sync and async drivers.

Also the options of the public functions, and a short-lived cache of the SOA answers of origins.
"""

from __future__ import annotations

import time
from _thread import allocate_lock
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import dns.exception

from maptr.ark import Ark, Profile
from maptr.discovery import Discovery, Step
from maptr.errors import ConfigError
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.protocol.numbers import SOA
from maptr.walk import DEFAULTS, Answer, Question, Settings, Walk

if TYPE_CHECKING:
    import dns.name

    from maptr.choose import Chooser
    from maptr.client.validation.validator import TrustAnchors

LIFETIME = 5.0  # seconds for a whole walk; dnspython's default for one resolution

StepHook = Callable[[Step], None]
Clock = Callable[[], float]


class WalkOptions(TypedDict, total=False):
    """What is said of a walk, and of how far to trust what it hears; ``discover`` says what each means."""

    origin: str | dns.name.Name
    lifetime: float | None
    on_step: StepHook | None
    settings: Settings | None
    trust_ad: bool
    trust_anchors: TrustAnchors | None
    require: Literal["secure"] | None
    profile: Profile
    clock: Clock


class Options(WalkOptions, total=False):
    """What every form of ``discover`` takes beside the ARK and whom to ask."""

    raise_on_none: bool
    chooser: Chooser | None


class Call:
    """A walk under way, with its deadline and its hook."""

    def __init__(
        self,
        ark: Ark | str | bytes,
        *,
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
    ) -> None:
        parsed = as_ark(ark, profile)
        try:
            self.walk = Walk(parsed, with_origin(settings, origin))
        except ValueError as error:
            raise ConfigError(f"{parsed.naan}.{origin} is no domain name: {error}", key="origin") from None
        self.clock = clock
        self.trust_ad = trust_ad
        self.trust_anchors = trust_anchors
        self._raise_on_none = raise_on_none
        self.chooser = chooser
        self._require = required(require)
        self._deadline = clock() + seconds(lifetime)
        self._on_step = on_step
        self._shown = 0

    @property
    def left(self) -> float:
        """Seconds until the deadline, or since it."""
        return self._deadline - self.clock()

    def time_left(self) -> float:
        """Seconds until the deadline; dns.exception.Timeout where there are none, as of a resolver."""
        left = self.left
        if left <= 0:
            raise dns.exception.Timeout(timeout=0)  # type: ignore[no-untyped-call]
        return left

    def tell(self, question: Question, answer: Answer) -> None:
        self.walk.tell(question, answer)
        if self._on_step is not None:
            steps = self.walk.steps
            for step in steps[self._shown :]:
                self._on_step(step)
            self._shown = len(steps)

    def finish(self, now: float | None = None) -> Discovery:
        """The discovery, not yet with the chooser's choice first. Raises as ``discover`` says."""
        discovery = self.walk.result(time.time() if now is None else now)
        if self._on_step is not None:
            for step in discovery.trace[self._shown :]:  # a limit that the end alone shows
                self._on_step(step)
        discovery.raise_for_security(self._require)
        if self._raise_on_none or not discovery.complete:
            discovery.raise_for_none()
        return discovery


def as_ark(ark: Ark | str | bytes, profile: Profile) -> Ark:
    """An ARK to discover, which may be a bare NAAN. Raises as ``Ark.parse``."""
    return ark if isinstance(ark, Ark) else Ark.parse(ark, profile=profile, bare=True)


def origin_labels(origin: str | dns.name.Name) -> names.Labels:
    """An origin as the walk wants it; ConfigError for a text that is no domain name."""
    try:
        if isinstance(origin, str):
            return names.parse(origin)
        return names.check(tuple(label for label in origin.labels if label))
    except ValueError as error:
        raise ConfigError(f"{origin} is no domain name: {error}", key="origin") from None


def with_origin(settings: Settings | None, origin: str | dns.name.Name) -> Settings:
    """The settings below an origin; ConfigError where it is none."""
    if settings is None and origin == "ark.arpa.":
        return DEFAULTS
    return (settings or DEFAULTS)._replace(origin=origin_labels(origin))


def required(require: str | None) -> str | None:
    """What is required of the answers; ConfigError for anything but "secure"."""
    if require not in (None, "secure"):
        raise ConfigError(f"{require!r} cannot be required, only 'secure' can", key="require")
    return require


def check_whom(resolver: object, nameservers: object) -> None:
    """That only one of them is given, and a resolver that can be asked. Raises ConfigError."""
    if resolver is not None and not (hasattr(resolver, "resolve") or hasattr(resolver, "exchange")):
        raise ConfigError(
            f"{resolver!r} is not a resolver: servers by address or name are given as nameservers=", key="resolver"
        )
    if resolver is not None and nameservers is not None:
        raise ConfigError("give resolver or nameservers, not both")


def listed(nameservers: Iterable[str]) -> list[str]:
    """The servers, where a text alone is one of them."""
    return [nameservers] if isinstance(nameservers, str) else list(nameservers)


def prefer(discovery: Discovery, chooser: Chooser | None) -> Discovery:
    """The same, the chooser's choice first where there is one to make."""
    return discovery.preferring(chooser) if chooser is not None and discovery.candidates else discovery


def seconds(lifetime: float | None) -> float:
    """A lifetime, or the default one; ConfigError where it is no time."""
    lifetime = LIFETIME if lifetime is None else lifetime
    if not lifetime >= 0:  # NaN is neither, and would make a deadline that never comes
        raise ConfigError(f"{lifetime} is no time in seconds", key="lifetime")
    return lifetime


SECONDS = 60.0  # an origin that was found to exist, or not to, is not asked for again
MAX_KEPT = 100


class Origins:
    """Answers for the SOA of origins, as one resolver gave them; of any other question it knows nothing. For threads.

    ``trust`` is by what the answers were judged: by nothing, by the resolver's word, or by a ``Validator``.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[tuple[Labels, Hashable], tuple[float, Answer]] = {}
        self._asking = allocate_lock()
        self.asked: dict[Hashable, Any] = {}  # for ``aio``: an event for each question that an event loop waits for

    def recall(self, question: Question, trust: Hashable) -> Answer | None:
        """What was said in the last SECONDS; None where that is not known."""
        kept = self._kept.get((question.name, trust)) if question.rdtype == SOA else None
        return kept[1] if kept is not None and kept[0] > self._clock() else None

    def remember(self, question: Question, trust: Hashable, answer: Answer) -> Answer:
        """The same answer, kept where ``recall`` gives it."""
        if question.rdtype == SOA and answer.outcome.said:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[question.name, trust] = self._clock() + SECONDS, answer
        return answer

    def once(self, question: Question, trust: Hashable, ask: Callable[[], Answer], seconds: float) -> Answer:
        """What ``recall`` gives, or else ``ask``. While one thread asks for an origin the others wait for what it is
        told, for so many seconds at most."""
        if question.rdtype != SOA:
            return ask()
        alone = self._asking.acquire(timeout=max(0.0, seconds))
        try:
            known = self.recall(question, trust)
            return self.remember(question, trust, ask()) if known is None else known
        finally:
            if alone:
                self._asking.release()
