"""The trace of a discovery for a person: each question, its records, what each of them led to, and its DNSSEC chain.

``step_lines`` is for pipes, one block a question; ``growing_tree`` is for a terminal. Both as soon as it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from maptr.discovery import Outcome, Step
from maptr.protocol import names
from maptr.text import printable


def step_lines(step: Step) -> Iterator[str]:
    """``? name NAPTR`` with the outcome, then ``+`` for records that count, ``-`` for those that do not, and ``=`` for
    the links of the chain of trust."""
    indent = "  " * step.depth
    yield f"{indent}? {step}"
    for reading in step.readings:
        yield f"{indent}  {'+' if reading.counted else '-'} {reading.naptr.to_text()}"
        for reason in reading.reasons:
            yield f"{indent}      {reason}"
    for link in step.links:
        yield f"{indent}  = {link}"


@contextmanager
def growing_tree(title: str) -> Iterator[Callable[[Step], None]]:
    """A tree on stderr, to which steps are added: a question hangs below the record that redirects to it."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text
    from rich.tree import Tree

    root = Tree(Text(title, "bold"), guide_style="dim")
    # A reading that counted and redirects says so in its reasons, with the name; questions are told in order of depth.
    led: dict[str, Tree] = {}
    colours = {"secure": "green", "bogus": "red"}

    def add(step: Step) -> None:
        name = names.to_text(step.name)
        style = "green" if step.outcome is Outcome.ANSWER else "yellow" if step.outcome.said else "red"
        asked = led.get(f"redirect to {name}", root).add(Text(str(step), style))
        for reading in step.readings:
            mark, style = ("+ ", "") if reading.counted else ("- ", "dim")
            record = asked.add(Text(mark + printable(reading.naptr.to_text()), style))
            for reason in reading.reasons:
                record.add(Text(printable(reason), "dim italic"))
                led.setdefault(reason, record)
        for link in step.links:
            asked.add(Text(f"= {link}", colours.get(link.security, "yellow")))
        live.refresh()

    console = Console(stderr=True, highlight=False)
    with Live(root, console=console, auto_refresh=False) as live:
        yield add
