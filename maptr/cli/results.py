"""Printing discoveries: as URLs, candidates, JSON and traces, with the exit code of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from maptr.cli import output
from maptr.cli.lookup import Argument, Client, LookupOptions, NotArk
from maptr.discovery import Discovery, DiscoveryError, NoMappingAuthority, Step
from maptr.errors import ArkSyntaxError, MaptrError

SOURCES = {"dns": "DNS", "memory": "memory", "disk": "the cache on disk", "natab": "the table"}


Answer: TypeAlias = tuple[Argument, Discovery | None, ArkSyntaxError | DiscoveryError | None]
"""An argument, its discovery and its error."""


def show_urls(arks: Sequence[Argument], client: Client, options: LookupOptions) -> int:
    """Print one line for each ARK, empty if it has no URL; the exit code."""

    def show(ark: Argument, found: Discovery | None, error: MaptrError | None) -> None:
        made = found.url() if found and error is None else None  # an answer that is not secure has candidates
        if options.as_json:
            fields = {name: getattr(found, name, None) for name in ("source", "stale", "reason")}
            fields["age"] = age_of(found)
            output.json_data({"ark": str(ark), "url": made, **fields, "error": str(error) if error else None})
            return
        if made and found and (found.source == "natab" or found.stale):
            _show_source(found)
        output.data(made or "")

    return _show_all(_look_up(arks, client, trace=False), show)


def show_discoveries(
    arks: Sequence[Argument], client: Client, options: LookupOptions, *, short: bool = False, trace: bool = False
) -> int:
    """Print the candidates of each ARK, best first; the exit code."""

    def show(ark: Argument, found: Discovery | None, error: MaptrError | None) -> None:
        if options.as_json:
            document: dict[str, Any] = found.to_dict() if found is not None else {"ark": str(ark)}
            if error is not None:
                document["candidates"] = []  # those that were refused are in the trace
            output.json_data({**document, "age": age_of(found), "error": str(error) if error else None})
        elif found and error is None:
            if client.cache is not None:
                _show_source(found)
            output.data("\n".join(found.urls()) if short else found.to_text())

    return _show_all(_look_up(arks, client, trace=trace and not options.as_json), show)


def _show_all(answers: Iterator[Answer], show: Callable[..., None]) -> int:
    code = output.EXIT_OK
    for ark, found, error in answers:
        code = max(code, code_of(error))
        show(ark, found, error)
        if error is not None:
            output.talk(f"maptr: {error}")
    return code


def _look_up(arks: Sequence[Argument], client: Client, *, trace: bool) -> Iterator[Answer]:
    advice = ""
    try:
        for answered, ark in enumerate(arks):
            if isinstance(ark, NotArk):
                yield ark, None, ark.error
                continue
            for note in ark.notes if trace else ():
                output.talk(f"maptr: {ark}: {note}")
            try:
                found = client.ask(ark, on_step=_show_step if trace else None)
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
        client.close()


def answers_kept(answered: int, asked: int) -> str:
    """What to do after an interruption."""
    return f"{answered} of {asked} ARKs were answered; ask again for the others"


def advice_of(found: Discovery | None) -> str:
    """What to do if the origin does not exist; empty for any other outcome."""
    return "" if found is None or found.complete else found.advice()


def code_of(error: MaptrError | None) -> int:
    """The exit code of one ARK; that of several is the greatest."""
    if error is None:
        return output.EXIT_OK
    if isinstance(error, ArkSyntaxError):
        return output.EXIT_USAGE
    return output.EXIT_NONE if isinstance(error, NoMappingAuthority) else output.EXIT_NO_ANSWER


# ---- where an answer comes from


def _show_source(found: Discovery) -> None:
    output.talk(f"maptr: {found.ark}: {provenance(found, time.time())}")


def provenance(found: Discovery, now: float) -> str:
    """Source, age and reason of a discovery in words."""
    age = found.age(now)
    old = "of unknown age" if age is None else f"{duration_text(age)} old"
    return f"from {SOURCES[found.source]}, {old}{', stale' if found.stale else ''} ({found.reason})"


def age_of(found: Discovery | None) -> float | None:
    """The age for JSON: seconds with three decimals."""
    age = None if found is None else found.age(time.time())
    return None if age is None else round(age, 3)


def duration_text(seconds: float) -> str:
    """A duration in its largest fitting unit: 3 s, 5 min, 2 h, 4 days."""
    for least, size, unit in ((172_800, 86_400, "days"), (7200, 3600, "h"), (120, 60, "min")):
        if seconds >= least:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


# ---- the trace


def _show_step(step: Step) -> None:
    """``? name NAPTR`` with the outcome, ``+`` for records that count, ``-`` for those that do not, and ``=`` for the
    links of the chain of trust."""
    indent = "  " * step.depth
    output.talk(f"{indent}? {step}")
    for reading in step.readings:
        output.talk(f"{indent}  {'+' if reading.counted else '-'} {reading.naptr.to_text()}")
        for reason in reading.reasons:
            output.talk(f"{indent}      {reason}")
    for link in step.links:
        output.talk(f"{indent}  = {link}")
