"""What ``maptr discover`` and ``maptr url`` do, whoever read the command line: ``discover`` by click, or ``brief``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from maptr.ark import Ark, Profile
from maptr.cli import output, through
from maptr.client import call
from maptr.client.stub import Stub, is_address
from maptr.client.sync import discover
from maptr.discovery import Discovery, DiscoveryError, NoMappingAuthority, Step
from maptr.errors import ArkSyntaxError, ConfigError, MaptrError

if TYPE_CHECKING:
    from maptr.cache.cache import Cache
    from maptr.config import Config


class Options(NamedTuple):
    """What the commands share, with its defaults: the one place where they stand. ``origin`` and ``scheme`` None
    are those of the configuration, or ark.arpa and https."""

    origin: str | None = None
    timeout: float = 5.0
    trust_ad: bool = False
    trust_anchor: str | None = None
    require: Literal["secure"] | None = None
    allow_private: bool = False
    table: str | None = None
    policy: str | None = None
    no_cache: bool = False
    config: str | None = None
    as_json: bool = False
    scheme: str | None = None
    profile: Profile = "current"
    choose: str | None = None


DEFAULTS = Options()


class Way(NamedTuple):
    """How ARKs are discovered: ``ask`` takes one and ``on_step``; ``cache`` is None where DNS is asked directly."""

    ask: Callable[..., Discovery]
    cache: Cache | None = None

    def close(self) -> None:
        """After the last ARK."""
        if self.cache is not None:
            self.cache.close()


class NotArk(NamedTuple):
    """An argument that is not an ARK, among others that are."""

    word: str
    error: ArkSyntaxError

    def __str__(self) -> str:
        return self.word


Asked: TypeAlias = Ark | NotArk


def parse_words(words: Sequence[str], profile: Profile = "current") -> tuple[list[Asked], list[str]]:
    """The ARKs among the arguments, and the ``@SERVER`` ones. One that is not an ARK does not keep others from being
    asked. Raises ArkSyntaxError where none is an ARK or one is a server, and ConfigError without any."""
    parsed = [_parse(word, profile) for word in words if not word.startswith("@")]
    if not parsed:
        raise ConfigError("no ARK given")
    if all(isinstance(one, NotArk) for one in parsed):
        raise next(one.error for one in parsed if isinstance(one, NotArk))
    return parsed, [word[1:] for word in words if word.startswith("@")]


def _parse(word: str, profile: Profile) -> Asked:
    try:
        return call.as_ark(word, profile)
    except ArkSyntaxError as error:
        if is_address(word.partition("#")[0]):  # without it the others would be asked elsewhere than was meant
            raise ArkSyntaxError(f"{error}: is it '@{word}'?") from None
        return NotArk(word, error)


def whom(servers: list[str], options: Options) -> Way:
    """Whom to ask: a cache where one is set up and no server named, else DNS directly.

    Raises ConfigError for what makes no sense, DiscoveryFailed where there is nobody to ask or a server has no
    address, OSError for a configuration that cannot be read.
    """
    config = through.configured(options.config)
    if (cache := through.cache_for(servers, options, config)) is not None:
        chooser = through.chooser(options, config)
        return Way(cache.discover if chooser is None else partial(cache.discover, chooser=chooser), cache)
    return Way(_direct(servers, options, config))


def _direct(servers: list[str], options: Options, config: Config | None) -> Callable[..., Discovery]:
    """DNS itself: by our own stub, but for servers that are URLs, which dnspython asks."""
    origin, servers = through.origin_of(options.origin, config), through.servers_of(servers, config)
    asked: call.Options = {
        "origin": origin,
        "lifetime": options.timeout,
        "settings": through.settings_of(options, config),
        "require": options.require,
        "chooser": through.chooser(options, config),
    }
    call.origin_labels(origin)
    if any("://" in server for server in servers):
        from maptr.client.resolver import make_resolver

        asked["trust_ad"] = options.trust_ad
        if options.trust_anchor is not None:
            from maptr.client.validation.validator import Validator

            asked["trust_anchors"] = Validator(options.trust_anchor)
        return partial(discover, resolver=make_resolver(servers), **asked)
    try:
        make = partial(Stub, servers) if servers else Stub.system
        stub = make(trust_ad=options.trust_ad, trust_anchors=options.trust_anchor)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return partial(discover, resolver=stub, **asked)


def show_urls(arks: Sequence[Asked], way: Way, options: Options) -> int:
    """One line for each ARK, empty where it has no URL; the exit code."""
    code = output.EXIT_OK
    for ark, found, error in _each(arks, way, trace=False):
        code = max(code, code_of(error))
        made = found.url() if found and error is None else None  # what is not secure enough has candidates
        if options.as_json:
            told = {name: getattr(found, name, None) for name in ("source", "stale", "reason")}
            told["age"] = through.age_of(found)
            output.json_data({"ark": str(ark), "url": made, **told, "error": str(error) if error else None})
        else:
            if made and found and (found.source == "natab" or found.stale):
                _tell_source(found)
            output.data(made or "")
        if error is not None:
            output.talk(f"maptr: {error}")
    return code


def show_discoveries(
    arks: Sequence[Asked], way: Way, options: Options, *, short: bool = False, trace: bool = False
) -> int:
    """The candidates of each ARK, best first; the exit code."""
    code = output.EXIT_OK
    for ark, found, error in _each(arks, way, trace=trace and not options.as_json):
        code = max(code, code_of(error))
        if options.as_json:
            document: dict[str, Any] = found.to_dict() if found is not None else {"ark": str(ark)}
            if error is not None:
                document["candidates"] = []  # refused, but on the trace
            output.json_data({**document, "age": through.age_of(found), "error": str(error) if error else None})
        elif found and error is None:
            if way.cache is not None:
                _tell_source(found)
            output.data("\n".join(found.urls()) if short else found.to_text())
        if error is not None:
            output.talk(f"maptr: {error}")
    return code


def _each(
    arks: Sequence[Asked], way: Way, *, trace: bool
) -> Iterator[tuple[Asked, Discovery | None, ArkSyntaxError | DiscoveryError | None]]:
    """Each ARK with its discovery and what went wrong."""
    advice = ""
    try:
        for answered, ark in enumerate(arks):
            if isinstance(ark, NotArk):
                yield ark, None, ark.error
                continue
            for note in ark.notes if trace else ():
                output.talk(f"maptr: {ark}: {note}")
            try:
                with _shown(ark) if trace else nullcontext() as on_step:
                    found = way.ask(ark, on_step=on_step)
            except KeyboardInterrupt:
                output.interrupted(answers_kept(answered, len(arks)))
            except DiscoveryError as error:
                advice = advice or advice_of(error.discovery)
                yield ark, error.discovery, error
            else:
                if not found.complete and found.source == "dns":
                    output.talk(f"maptr: {ark}: this may not be all: {found.unsaid()}")
                yield ark, found, None
        if advice:
            output.talk(f"maptr: {advice}")
    finally:
        way.close()


def answers_kept(answered: int, asked: int) -> str:
    """What an interruption leaves."""
    return f"{answered} of {asked} ARKs were answered; ask again for the others"


def advice_of(found: Discovery | None) -> str:
    """What to do where the origin does not exist; empty for any other outcome."""
    if found is None or found.complete:
        return ""
    return found.advice()


def _tell_source(found: Discovery) -> None:
    output.talk(f"maptr: {found.ark}: {through.provenance(found, time.time())}")


@contextmanager
def _shown(ark: Ark) -> Iterator[Callable[[Step], None]]:
    """Shows each step as it is read: a tree that grows on a terminal, lines in a pipe."""
    from maptr.cli.trace import growing_tree, step_lines

    if output.watched():
        with growing_tree(str(ark)) as add:
            yield add
        return

    def tell(step: Step) -> None:
        for line in step_lines(step):
            output.talk(line)

    yield tell


def code_of(error: MaptrError | None) -> int:
    """That of one ARK; of several the greatest counts: an answer that may still come before a word that never will."""
    if error is None:
        return output.EXIT_OK
    if isinstance(error, ArkSyntaxError):
        return output.EXIT_USAGE
    return output.EXIT_NONE if isinstance(error, NoMappingAuthority) else output.EXIT_NO_ANSWER
