"""Alarms and their dates."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from maptr.server.alarm import Alarm, AlarmKind, AlarmLog


class Interrupted(str):
    """The name of a zone. Each time that it is looked up, another thread dates the alarms, which are none."""

    log: AlarmLog
    others: list[threading.Thread]

    def __hash__(self) -> int:
        other = threading.Thread(target=self.log.dated, args=((), 9.0))
        self.others.append(other)
        other.start()
        other.join(0.05)  # it may have to wait for its turn
        return hash(str(self))


def test_alarms_are_dated_by_several_threads_at_once() -> None:
    log = AlarmLog()
    zone = Interrupted("example.")
    zone.log, zone.others = log, []
    kinds = (AlarmKind.ZONE_REFUSED, AlarmKind.ZONE_NOT_SIGNED)
    found = log.dated([Alarm(kind, "reason", zone) for kind in kinds], 5.0)
    assert [alarm.since for alarm in found] == [5.0, 5.0]
    for other in zone.others:
        other.join()
    assert zone.others


def test_an_earlier_look_does_not_replace_a_later_one() -> None:
    """A thread that began to look before the alarm was there ends after one that has seen it."""
    log, begun, may_end = AlarmLog(), threading.Event(), threading.Event()
    alarm = Alarm(AlarmKind.ZONE_REFUSED, "reason", "example.")

    def slowly() -> None:
        def nothing() -> Iterator[Alarm]:
            begun.set()
            may_end.wait(5)
            yield from ()

        log.dated(nothing(), 1.0)

    def look() -> None:
        log.dated([alarm], 2.0)

    early = threading.Thread(target=slowly)
    early.start()
    begun.wait(5)
    late = threading.Thread(target=look)
    late.start()
    late.join(0.1)
    may_end.set()
    early.join()
    late.join()
    assert [each.since for each in log.dated([alarm], 3.0)] == [2.0]
