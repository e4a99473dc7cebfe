"""An accident, its run, and the outcome: the names that are lost, and the alarms."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, TypeVar

COMMAND = re.compile(r"maptr [a-z]|systemctl|nsd-control|knotc|rndc|pdns_control|restart|restore|SIGHUP")
PEERS = ("bind", "nsd", "knot", "knot-journal", "powerdns")
WITH_CATALOG = (*PEERS, "knot-catalog")
SIGNERS = ("bind", "knot")  # those that sign a zone file by themselves


FOLDER = re.compile(r"/tmp/(?:acc|maptr)-[^/\s:'\"]*/?")  # of one run


class Impossible(Exception):
    """This machine cannot have this accident: it needs root, or a program that is not installed."""


class Machines(Protocol):
    """The machines to which an accident happens. A context, in which all names are answered at first."""

    def __enter__(self) -> Machines: ...

    def __exit__(self, *_: object) -> None: ...

    def lost(self) -> Mapping[str, list[str]]:
        """The names that are no longer answered as before the accident, by place."""
        ...

    def alarms(self) -> list[str]:
        """The messages for an operator: maptr's alarms, or lines of another server's log."""
        ...


Site = TypeVar("Site", bound=Machines)


@dataclass(frozen=True, slots=True)
class Accident:
    """An accident. ``act`` causes it, and may return what else is wrong afterwards.

    ``does`` says on the page what maptr does. ``peers`` are the other servers to which it can happen. ``is_quiet``:
    nothing is wrong afterwards, so no alarm is due; ``in_ci``: the tests run it.
    """

    name: str
    title: str
    kind: str
    does: str
    site: Callable[[str], Machines]
    act: Callable[[Any], Iterable[str] | None]
    peers: tuple[str, ...] = ()
    is_quiet: bool = False
    in_ci: bool = False
    note: str = ""  # on what a peer does better, or how it was measured

    @property
    def software(self) -> tuple[str, ...]:
        return ("maptr", *self.peers)


@dataclass(frozen=True, slots=True)
class Outcome:
    """An accident's effect on one server. ``lost`` counts names by place; ``wrong`` says what else was wrong."""

    accident: str
    software: str
    lost: Mapping[str, int] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()
    seconds: float = 0.0
    skipped: str = ""

    @property
    def keeps(self) -> bool:
        """No name is lost."""
        return not self.skipped and not any(self.lost.values()) and not self.wrong

    def is_met(self, accident: Accident) -> bool:
        return self.keeps and bool(self.alarms or accident.is_quiet)

    @property
    def names_a_command(self) -> bool:
        """Whether an alarm names the command that fixes it."""
        return any(COMMAND.search(alarm) for alarm in self.alarms)

    @property
    def text(self) -> str:
        """The outcome in a cell of the table."""
        if self.skipped:
            return "not tried"
        said = "alarm" if self.software == "maptr" else "logged"
        told = said if self.alarms else f"no {said}" if said == "alarm" else "silent"
        gone = [place for place, count in self.lost.items() if count]
        if self.wrong:
            return f"**{'; '.join(self.wrong)}**, {told}"
        if not gone:
            return f"kept, {told}"
        return f"**lost at {' and '.join(gone)}**, {told}"

    def to_json(self) -> dict[str, Any]:
        return {name: found for name, found in asdict(self).items() if found or name in ("accident", "software")}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Outcome:
        return cls(**{**document, **{key: tuple(document.get(key, ())) for key in ("wrong", "alarms")}})


KEPT: dict[str, Accident] = {}  # by name, as ``accident`` got them


def accident(
    title: str, *, site: Callable[[str], Machines], kind: str, does: str, **options: Any
) -> Callable[[Callable[[Site], Iterable[str] | None]], Callable[[Site], Iterable[str] | None]]:
    """Keep a function as an accident with its name."""

    def keep(act: Callable[[Site], Iterable[str] | None]) -> Callable[[Site], Iterable[str] | None]:
        name = act.__name__.replace("_", "-")
        assert name not in KEPT, name
        KEPT[name] = Accident(name, title, kind, does, site, act, **options)
        return act

    return keep


def run(accident: Accident, software: str) -> Outcome:
    """Let an accident happen to a server and judge the outcome."""
    started = time.monotonic()
    try:
        with accident.site(software) as site:
            wrong = tuple(accident.act(site) or ())
            lost = {place: len(names) for place, names in site.lost().items()}
            alarms = tuple(FOLDER.sub("", alarm) for alarm in site.alarms())
    except Impossible as reason:
        return Outcome(accident.name, software, skipped=str(reason))
    return Outcome(accident.name, software, lost, wrong, alarms[:3], round(time.monotonic() - started, 1))
