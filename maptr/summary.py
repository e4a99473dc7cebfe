"""A discovery in words: ``str()``, ``repr()``, and why there is nothing. Imported where somebody wants to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maptr.protocol import names
from maptr.text import printable
from maptr.trace import Outcome, Step

if TYPE_CHECKING:
    from maptr.discovery import Discovery

SHOWN = 3  # URLs in the repr


def line(found: Discovery) -> str:
    """One printable line: the ARK with its URL and what there is to mind, or why there is none."""
    if not found.candidates:
        return printable(none(found))
    mind = [f"and {len(found) - 1} more"] if len(found) > 1 else []
    mind += [f"from {found.source}"] if found.source != "dns" else []
    mind += ["stale"] if found.stale else []
    mind += [] if found.complete else [f"this may not be all: {unsaid(found)}"]
    return printable(f"{found.ark}: {found.url()}" + (f" ({', '.join(mind)})" if mind else ""))


def tag(found: Discovery) -> str:
    """What it is, for whoever debugs: the first URLs, and the state of the whole."""
    urls = [repr(candidate.url(found.ark, scheme=found.scheme)) for candidate in found.candidates[:SHOWN]]
    urls += [f"{len(found) - SHOWN} more"] if len(found) > SHOWN else []
    state = [
        "complete" if found.complete else "not complete",
        found.source,
        *(["stale"] if found.stale else []),
        found.security,
    ]
    return f"<Discovery of {str(found.ark)!r}: [{', '.join(urls)}], {', '.join(state)}>"


def none(found: Discovery) -> str:
    """That there is no candidate, and why."""
    known = "" if found.complete else " known"
    return f"no mapping authority{known} for {found.ark}: {_why(found)}"


def advice(found: Discovery) -> str:
    """What to do where the origin does not exist in the DNS that was asked; empty where it is not known to be so."""
    origin = next((step.name for step in found.trace if step.outcome is Outcome.NO_ORIGIN), None)
    if origin is None:
        return ""
    if names.fold(origin) != names.ARK_ARPA:
        return f"{names.to_text(origin)} does not exist in the DNS that was asked: name a server that has it (@SERVER)"
    return (
        "ark.arpa is not delegated on the public Internet: name a server that has it (@SERVER), or serve it on this"
        " machine (maptr up)"
    )


def unsaid(found: Discovery) -> str:
    """What makes it incomplete: the first question without an answer; empty where it is complete."""
    if found.complete:
        return ""
    steps = [step for step in found.trace if not step.outcome.said]
    if not steps:
        return "a limit of the walk was reached"
    more = f", and {len(steps) - 1} more" if len(steps) > 1 else ""
    return _ended(steps[0]) + _note(steps[0]) + more


def _why(found: Discovery) -> str:
    step = _to_blame(found)
    if step is None:
        return found.reason or "nothing was asked"
    nowhere = ", none of them leads to a mapping authority" if step.outcome is Outcome.ANSWER else ""
    return _ended(step) + nowhere + _note(step)


def _to_blame(found: Discovery) -> Step | None:
    """The first question that was not answered, or the first of all; None where nothing was asked."""
    return next((step for step in found.trace if not step.outcome.said), next(iter(found.trace), None))


def _ended(step: Step) -> str:
    return step.ended


def _note(step: Step) -> str:
    return f" ({step.note})" if step.note else ""
