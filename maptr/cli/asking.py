"""What ``maptr discover`` and ``maptr url`` do, whoever read the command line: ``discover`` by click, or ``brief``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from maptr import call
from maptr.ark import Ark
from maptr.cli import output
from maptr.client import discover
from maptr.discovery import Discovery, Step
from maptr.errors import ConfigError, DiscoveryError, NoMappingAuthority
from maptr.stub import Stub
from maptr.walk import Settings

if TYPE_CHECKING:
    import dns.resolver


class Options(NamedTuple):
    """What the commands share, with its defaults: the one place where they stand."""

    origin: str = "ark.arpa."
    timeout: float = 5.0
    trust_ad: bool = False
    trust_anchor: str | None = None
    require: Literal["secure"] | None = None
    allow_private: bool = False
    as_json: bool = False


DEFAULTS = Options()


def parse_words(
    words: Sequence[str], *, trust_ad: bool = False, trust_anchor: str | None = None
) -> tuple[list[Ark], Stub | dns.resolver.Resolver]:
    """The ARKs among the arguments, and who asks the ``@SERVER`` ones, by default the system's: a dnspython resolver
    where one of them is a URL.

    Raises ArkSyntaxError or ConfigError for what is neither, DiscoveryFailed where a server has no address.
    """
    servers = [word[1:] for word in words if word.startswith("@")]
    parsed = [Ark.parse(word) for word in words if not word.startswith("@")]
    if not parsed:
        raise ConfigError("no ARK given")
    if any("://" in server for server in servers):
        from maptr.resolver import make_resolver

        return parsed, make_resolver(servers)
    try:
        make = partial(Stub, servers) if servers else Stub.system
        return parsed, make(trust_ad=trust_ad, trust_anchors=trust_anchor)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def show_urls(arks: Sequence[Ark], resolver: Stub | dns.resolver.Resolver, options: Options) -> int:
    """One line for each ARK, empty where it has no URL; the exit code. Raises ConfigError before the first."""
    code = output.EXIT_OK
    for ark, found, error in _each(arks, resolver, options, trace=False):
        code = max(code, _code(error))
        made = found.url() if found else None
        if options.as_json:
            output.json_data({"ark": str(ark), "url": made, "error": str(error) if error else None})
        else:
            output.data(made or "")
        if error is not None:
            output.talk(f"maptr: {error}")
    return code


def show_discoveries(
    arks: Sequence[Ark],
    resolver: Stub | dns.resolver.Resolver,
    options: Options,
    *,
    short: bool = False,
    trace: bool = False,
) -> int:
    """The candidates of each ARK, best first; the exit code. Raises ConfigError before the first."""
    code = output.EXIT_OK
    for ark, found, error in _each(arks, resolver, options, trace=trace and not options.as_json):
        code = max(code, _code(error))
        if options.as_json:
            document = found.to_dict() if found is not None else {"ark": str(ark), "candidates": []}
            output.json_data({**document, "error": str(error) if error else None})
        elif found:
            output.data("\n".join(found.urls()) if short else found.to_text())
        if error is not None:
            output.talk(f"maptr: {error}")
    return code


def _each(
    arks: Sequence[Ark], resolver: Stub | dns.resolver.Resolver, options: Options, *, trace: bool
) -> Iterator[tuple[Ark, Discovery | None, DiscoveryError | None]]:
    """Each ARK with its discovery and what went wrong."""
    asked: call.Options = {
        "origin": options.origin,
        "lifetime": options.timeout,
        "settings": Settings(allow_private=options.allow_private),
        "require": options.require,
    }
    if not isinstance(resolver, Stub):  # a stub knows already whom it trusts
        asked["trust_ad"] = options.trust_ad
        if options.trust_anchor is not None:
            from maptr.trust import Validator

            asked["trust_anchors"] = Validator(options.trust_anchor)
    for ark in arks:
        try:
            with _shown(ark) if trace else nullcontext() as on_step:
                asked["on_step"] = on_step
                found = discover(ark, resolver=resolver, **asked)
        except DiscoveryError as error:
            yield ark, error.discovery, error
        else:
            yield ark, found, None


@contextmanager
def _shown(ark: Ark) -> Iterator[Callable[[Step], None]]:
    """Shows each step as it is read: a tree that grows on a terminal, lines in a pipe."""
    from maptr.cli.trace import growing_tree, step_lines

    if sys.stderr.isatty():
        with growing_tree(str(ark)) as add:
            yield add
        return

    def tell(step: Step) -> None:
        for line in step_lines(step):
            output.talk(line)

    yield tell


def _code(error: DiscoveryError | None) -> int:
    if error is None:
        return output.EXIT_OK
    return output.EXIT_NONE if isinstance(error, NoMappingAuthority) else output.EXIT_NO_ANSWER
