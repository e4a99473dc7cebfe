"""The trace of a discovery for a person: each question, its records, and what each of them led to.

``step_lines`` is for pipes, one block a question as soon as it is read; ``show_tree`` is for a terminal, when
all is known.
"""

from __future__ import annotations

from collections.abc import Iterator

from maptr import names
from maptr.discovery import Discovery, Outcome, Step
from maptr.printable import printable


def step_lines(step: Step) -> Iterator[str]:
    """``? name NAPTR`` with the outcome, then ``+`` for records that count and ``-`` for those that do not."""
    indent = "  " * step.depth
    yield f"{indent}? {_headline(step)}"
    for reading in step.readings:
        yield f"{indent}  {'+' if reading.counted else '-'} {reading.naptr.to_text()}"
        for reason in reading.reasons:
            yield f"{indent}      {reason}"


def _headline(step: Step) -> str:
    where = f" from {step.server}" if step.server else ""
    took = f" in {step.elapsed * 1000:.1f} ms" if step.elapsed is not None else ""
    note = f" ({step.note})" if step.note else ""
    count = f", {len(step.readings)} records" if step.readings else ""
    return f"{names.to_text(step.name)} NAPTR: {step.outcome.value}{count}{where}{took}{note}"


def show_tree(discovery: Discovery) -> None:
    """The whole trace as a tree on stderr: a question hangs below the record that redirects to it."""
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    console = Console(stderr=True, highlight=False)
    root = Tree(Text(str(discovery.ark), "bold"), guide_style="dim")
    # A reading that counted and redirects says so in its reasons, with the name; questions are told in order of depth.
    led: dict[str, Tree] = {}
    for step in discovery.trace:
        name = names.to_text(step.name)
        style = "green" if step.outcome is Outcome.ANSWER else "yellow" if step.outcome.said else "red"
        asked = led.get(f"redirect to {name}", root).add(Text(printable(_headline(step)), style))
        for reading in step.readings:
            mark, style = ("+ ", "") if reading.counted else ("- ", "dim")
            record = asked.add(Text(mark + printable(reading.naptr.to_text()), style))
            for reason in reading.reasons:
                record.add(Text(printable(reason), "dim italic"))
                led.setdefault(reason, record)
    console.print(root)
