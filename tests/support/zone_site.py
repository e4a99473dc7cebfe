"""A zone that is published without a server around it."""

from __future__ import annotations

from maptr.config import ZoneConfig
from maptr.protocol.names import Folded
from maptr.server import publisher
from maptr.server.alarm import AlarmLog
from maptr.server.state import Served, ZoneState
from maptr.server.status import ZoneResult
from maptr.zone.snapshot import ZoneView


class ZoneSite:
    """A zone, and its served version at ``now``, in seconds since 1970."""

    def __init__(self, zone: ZoneConfig, now: float) -> None:
        self.zone = zone
        self.now = now
        self.served: Served = {}
        self.others: list[int] = []  # the serials of secondaries
        self.alarm_log = AlarmLog()

    def clock(self) -> float:
        return self.now

    def start(self) -> ZoneView | None:
        """Start as a new process does."""
        self.served = publisher.keep(publisher.start([self.zone], clock=self.clock, others=self.serials))
        self.alarm_log = AlarmLog()
        self.alarms()
        return self.state.view

    def reload(self, *, force: bool = False) -> ZoneResult:
        self.served, (outcome,) = publisher.publish(
            [self.zone], self.served, clock=self.clock, force=force, others=self.serials
        )
        self.alarms()
        return outcome

    def serials(self, origin: Folded) -> list[int]:
        assert origin == self.zone.name
        return self.others

    @property
    def state(self) -> ZoneState:
        return self.served[self.zone.name]

    @property
    def view(self) -> ZoneView:
        assert self.state.view is not None
        return self.state.view

    @property
    def serial(self) -> int:
        return self.view.serial

    def alarms(self) -> list[str]:
        """Look at the alarms, which are logged, and return their texts."""
        return [alarm.text for alarm in self.alarm_log.dated(self.state.alarms(self.now), self.now)]
