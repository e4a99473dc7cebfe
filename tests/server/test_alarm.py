"""Alarms and their dates."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

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


def test_the_beginning_a_new_reason_and_the_end_of_an_alarm_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "maptr")
    log, kind, other = AlarmLog(), AlarmKind.ZONE_REFUSED, Alarm(AlarmKind.FROZEN, "frozen", level=logging.WARNING)
    looks: tuple[list[str], ...] = ([], ["a"], ["a"], ["b"], ["b"], [], [], ["b"])
    for now, reasons in enumerate(looks):
        log.dated([other, *(Alarm(kind, reason, "example.") for reason in reasons)], float(now))
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert said == [
        ("WARNING", "frozen"),
        ("ERROR", "a"),
        ("ERROR", "b"),
        ("INFO", "alarm ended after 4 s: zone-refused example."),
        ("ERROR", "b"),
    ]


def test_an_alarm_whose_text_changes_with_time_is_logged_again_with_its_version(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, kind = AlarmLog(), AlarmKind.CERTIFICATE
    for hour in (50, 49, 24, 23):
        log.dated([Alarm(kind, f"in {hour} hours", version=("end", hour // 24))], 0.0)
    assert caplog.messages == ["in 50 hours", "in 24 hours", "in 23 hours"]
    log.dated([Alarm(kind, "in 23 hours", version=("end", 0))], 0.0, [kind])
    assert caplog.messages[3:] == ["in 23 hours"], "the result of a reload"
