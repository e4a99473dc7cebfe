"""The trace of a discovery for a person: one block a question, one line a record, indented by depth."""

from __future__ import annotations

from collections.abc import Iterator

from maptr import names
from maptr.discovery import Step


def step_lines(step: Step) -> Iterator[str]:
    """``? name NAPTR`` with the outcome, then ``+`` for records that count and ``-`` for those that do not."""
    indent = "  " * step.depth
    where = f" from {step.server}" if step.server else ""
    took = f" in {step.elapsed * 1000:.1f} ms" if step.elapsed is not None else ""
    note = f" ({step.note})" if step.note else ""
    count = f", {len(step.readings)} records" if step.readings else ""
    yield f"{indent}? {names.to_text(step.name)} NAPTR: {step.outcome.value}{count}{where}{took}{note}"
    for reading in step.readings:
        yield f"{indent}  {'+' if reading.counted else '-'} {reading.naptr.to_text()}"
        for reason in reading.reasons:
            yield f"{indent}      {reason}"
