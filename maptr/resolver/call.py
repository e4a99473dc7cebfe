"""One call of ``discover``: the walk, its deadline, its hook and its result, shared by the sync and async drivers.

Also a short-lived cache of the SOA answers of origins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from maptr.ark import Ark, Profile
from maptr.discovery import Discovery, NoServer, Step
from maptr.errors import ArkSyntaxError, ConfigError, NoEventLoop
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.protocol.numbers import SOA
from maptr.resolver.servers import TLS, check_server
from maptr.walk import DEFAULTS, Answer, Question, Settings, Walk

if TYPE_CHECKING:
    import dns.name

    from maptr.choose import Chooser
    from maptr.resolver.validation.validator import TrustAnchors

HTTPS = "https://"
LIFETIME = 5.0  # seconds for a whole walk; dnspython's default for one resolution
ORIGIN_SECONDS = 60.0  # for which the answer whether an origin exists is kept
MAX_ORIGINS = 100  # kept by one resolver

StepHook = Callable[[Step], None]
Clock = Callable[[], float]


class Call:
    """A walk in progress, with its deadline and its hook. Its options are those of every form of ``discover``."""

    def __init__(
        self,
        ark: Ark | str | bytes,
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
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        parsed = as_ark(ark, profile)
        try:
            self.walk = Walk(parsed, with_origin(settings, origin))
        except ValueError as error:
            raise ConfigError(f"{parsed.naan}.{origin} is not a valid domain name: {error}", key="origin") from None
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
        return self._deadline - self.clock()

    def tell(self, questions: list[Question], answers: list[Answer]) -> None:
        for question, answer in zip(questions, answers, strict=True):
            self.walk.tell(question, answer)
        self._show(self.walk.steps)

    def finish(self) -> Discovery:
        """Return the discovery, before ``prefer`` applies the chooser. Raises as ``discover`` does."""
        discovery = self.walk.result(time.time())
        self._show(discovery.trace)  # with a limit that only the end shows
        discovery.raise_for_security(self._require)
        if self._raise_on_none or not discovery.complete:
            discovery.raise_for_none()
        return discovery

    @contextmanager
    def named(self) -> Iterator[None]:
        """Add the ARK to the discovery of an error that says that no server can be asked."""
        try:
            yield
        except NoServer as error:
            error.discovery = error.discovery.replace(ark=self.walk.ark)
            raise

    def _show(self, steps: Sequence[Step]) -> None:
        if self._on_step is not None:
            for step in steps[self._shown :]:
                self._on_step(step)
            self._shown = len(steps)


def need_asyncio() -> None:
    """Raise NoEventLoop unless asyncio runs the caller."""
    import asyncio  # late: it doubles the start time of a program that does not await

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        advice = "under trio, await trio.to_thread.run_sync(discover, ark)"
        raise NoEventLoop(f"no event loop of asyncio runs here: {advice}") from None


def as_ark(ark: Ark | str | bytes, profile: Profile) -> Ark:
    """Return an ARK to discover, or a bare NAAN. Raises as ``Ark.parse``."""
    return ark if isinstance(ark, Ark) else Ark.parse(ark, profile=profile, bare=True)


def as_item(item: object, position: int, profile: Profile) -> Ark | Discovery:
    """Return an item of a stream as an ARK; if it is none, as a discovery with the error."""
    try:
        if not isinstance(item, Ark | str | bytes):
            raise ArkSyntaxError(f"{type(item).__name__} is not text")
        return as_ark(item, profile)
    except ArkSyntaxError as error:
        return Discovery(Ark("", ""), complete=False, error=error, position=position)


def with_origin(settings: Settings | None, origin: str | dns.name.Name) -> Settings:
    """Return the settings with this origin. Raises ConfigError for an invalid domain name, or TypeError."""
    settings = DEFAULTS if settings is None else settings
    if not isinstance(settings, Settings):
        raise TypeError(f"settings: {settings!r} is not a maptr.Settings")
    if not (isinstance(origin, str) or hasattr(origin, "labels")):
        raise TypeError(f"origin: {origin!r} is neither a str nor a dns.name.Name")
    try:
        if not isinstance(origin, str):
            labels = names.check(tuple(label for label in origin.labels if label))
        elif origin == "ark.arpa.":
            labels = names.ARK_ARPA
        else:
            labels = names.parse(origin)
    except ValueError as error:
        raise ConfigError(f"{origin} is not a valid domain name: {error}", key="origin") from None
    return settings if labels is settings.origin else settings._replace(origin=labels)


def required(require: str | None) -> str | None:
    """Return the security that is required of the answers. Raises ConfigError for anything but "secure"."""
    if require not in (None, "secure"):
        raise ConfigError(f"{require!r} cannot be required, only 'secure'", key="require")
    return require


def check_resolver(resolver: object, nameservers: object) -> None:
    """Raise ConfigError unless at most one of them is given, and ``resolver`` is a Stub or a dnspython resolver."""
    if resolver is not None and not (hasattr(resolver, "resolve") or hasattr(resolver, "exchange")):
        raise ConfigError(f"{resolver!r} is not a resolver: give servers as nameservers=", key="resolver")
    if resolver is not None and nameservers is not None:
        raise ConfigError("give resolver or nameservers, not both")


def listed(nameservers: Iterable[str]) -> list[str]:
    """Return the servers as a list; a single text is one server. Raises TypeError for anything but text."""
    if not isinstance(nameservers, Iterable):
        raise TypeError(f"nameservers: {nameservers!r} is not a list of servers")
    found = [nameservers] if isinstance(nameservers, str) else list(nameservers)
    if wrong := [server for server in found if not isinstance(server, str)]:
        raise TypeError(f"nameservers: {wrong[0]!r} is not a str")
    return found


def check_nameservers(nameservers: Iterable[str]) -> tuple[str, ...]:
    """Return the servers after checking how each is written, without a lookup. Raises ConfigError for a bad one."""
    found = listed(nameservers)
    for text in found:
        try:
            check_server(text)
        except ValueError as error:
            raise ConfigError(str(error), key="nameservers") from None
    return tuple(found)


def at_port(where: str, port: int) -> list[str]:
    """Return one server as a list, at this port unless it names one, or has another protocol than plain DNS."""
    if not isinstance(where, str):
        raise TypeError(f"a server is a str, not {type(where).__name__}")
    return [where if "#" in where or where.startswith((TLS, HTTPS)) else f"{where}#{port}"]


def has_https(nameservers: Iterable[str] | None) -> bool:
    """Return whether some of the servers are asked by HTTPS, which is left to dnspython."""
    return any(text.startswith(HTTPS) for text in nameservers or ())


def prefer(discovery: Discovery, chooser: Chooser | None) -> Discovery:
    """Return the discovery with the chooser's choice first."""
    return discovery.preferring(chooser) if chooser is not None and discovery.candidates else discovery


def seconds(lifetime: float | None) -> float:
    """Return the lifetime, or the default. Raises as ``checked``."""
    return checked(LIFETIME if lifetime is None else lifetime, "lifetime")


def checked(given: float, key: str) -> float:
    """Return a number of seconds. Raises ConfigError for a negative number or NaN, TypeError for another type."""
    if not isinstance(given, int | float):
        raise TypeError(f"{key}: {given!r} is not a number")
    if not given >= 0:
        raise ConfigError(f"{given} is not a number of seconds", key=key)
    return given


def checked_rate(rate: float | None) -> float | None:
    """Packets a second. Raises ConfigError unless it is more than 0, TypeError for another type."""
    if not isinstance(rate, int | float | None):
        raise TypeError(f"rate: {rate!r} is not a number")
    if rate is not None and not rate > 0:
        raise ConfigError("must be more than 0", key="rate")
    return rate


def checked_count(given: int, key: str) -> int:
    """Raises ConfigError for a number below 1, TypeError for another type."""
    if not isinstance(given, int):
        raise TypeError(f"{key}: {given!r} is not a whole number")
    if given < 1:
        raise ConfigError("must be at least 1", key=key)
    return given


class Origins:
    """A cache of one resolver's answers for the SOA of origins. Threads may share it.

    ``trust`` says what decides the security of an answer: nothing, the AD bit, or a ``Validator``.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[tuple[Labels, int, Hashable], tuple[float, list[Answer]]] = {}

    def recall(self, questions: list[Question], trust: Hashable) -> list[Answer] | None:
        """Return the cached answer to a question for an origin."""
        until, answers = self._kept.get((questions[0].name, questions[0].rdtype, trust), (0.0, None))
        return answers if until > self._clock() else None

    def remember(self, questions: list[Question], trust: Hashable, answers: list[Answer]) -> list[Answer]:
        """Return the same answers, after caching one for an origin."""
        if questions[0].rdtype == SOA and answers[0].outcome.answered:
            if len(self._kept) >= MAX_ORIGINS:
                self._kept.clear()
            self._kept[questions[0].name, SOA, trust] = self._clock() + ORIGIN_SECONDS, answers
        return answers
