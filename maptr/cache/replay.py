"""Answers that a walk was given, kept and walked again: for another ARK of the same NAAN, without a question.

A trace holds every record a server sent, so what one discovery learned answers others. Where answers are kept, and
for how long, is not decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from maptr.ark import Ark
from maptr.discovery import Discovery, Outcome
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.walk import Answer, Reader, Settings, Walk

Lookup = Callable[[Labels], Answer | None]


def answers_of(discovery: Discovery) -> Iterator[tuple[Labels, Answer]]:
    """Each question that was asked, by its folded name, with its answer; what a limit stopped was not asked.

    NXDOMAIN for the root name is left out unless the origin is known to exist: ``walk_again`` takes that for granted.
    """
    origin_unknown = any(step.rdtype == "SOA" and not step.outcome.said for step in discovery.trace)
    for step in discovery.trace:
        if step.outcome is Outcome.LIMIT or step.rdtype != "NAPTR" or (origin_unknown and step is discovery.trace[0]):
            continue
        records = tuple(reading.naptr for reading in step.readings)
        yield (
            names.fold(step.name),
            Answer(step.outcome, records, step.ttl, step.note, step.server, security=step.security),
        )


def walk_again(ark: Ark, settings: Settings, lookup: Lookup, reader: Reader | None = None) -> Discovery | None:
    """The discovery that kept answers give; None as soon as a name is not among them.

    Raises ValueError where NAAN and origin make no domain name.
    """
    walk = Walk(ark, settings, reader=reader, origin_known=True)
    while questions := walk.next():
        for question in questions:
            answer = lookup(names.fold(question.name))
            if answer is None:
                return None
            walk.tell(question, answer)
    return walk.result()
