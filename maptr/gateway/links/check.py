"""The check of a link, without I/O: its requests, what their responses mean, and when the link is dead.

A link is the URL of own objects, without its fragment. Its check is one HEAD request, or GET if the server has no HEAD,
and those after redirects. A link is dead after DEAD_AFTER failed checks in a row over DEAD_SECONDS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple
from urllib.parse import quote, urljoin

from maptr import url
from maptr.errors import time_text
from maptr.gateway.objects import OwnObject
from maptr.web.http import MAX_REDIRECTS, REDIRECTS

PAUSE = 2.0  # seconds from one request to a host until the next
AT_ONCE = 8  # requests
MAX_WAITING = 64  # started checks, of as many hosts: after a redirect, many wait for a host's pause
MAX_PAUSES = 10_000  # hosts whose pause is remembered
DEAD_AFTER, DEAD_SECONDS = 3, 172_800.0  # failed checks in a row, and the time from first to last: two days
AGAIN = 86_400.0  # seconds until a failed link is checked again, before its host's other links
MAX_REST = 7 * 86_400.0  # seconds for which a host may ask to be left alone
UNTOLD_REST = 3_600.0  # the same, if it answers "too many requests" and does not say for how long
NO_NETWORK = 600.0  # seconds until the next request if no server responds
SILENT_HOSTS = 2  # silent hosts in a row after which this machine's network may be the reason
ALARM_OBJECTS, ALARM_SHARE = 10, 0.01  # objects with dead links that raise an alarm, whichever is less

_NO_METHOD = (405, 501)  # RFC 9110 15.5.6, 15.6.2
_GONE = (404, 410)
_LATER = (429, 503)  # RFC 6585 4, RFC 9110 15.6.4: their Retry-After says when to ask again
_TOO_MANY = 429
REDIRECT = "redirect"  # fault: too many redirects, or one that cannot be followed
NOT_ASKED = "not-asked"  # fault: a host whose address is not public here, or is this machine's
_IN_URL = "%/:=&?~#+!$,;'@()*[]"  # what servers leave unencoded, and the percent sign of what they encode


class LinkState(IntEnum):
    """What is known about a link."""

    UNKNOWN = 0
    ANSWERS = 1
    FAILING = 2  # but not dead yet
    DEAD = 3


class CheckOutcome(StrEnum):
    """How a check ended. NOT_KNOWN (the server asked to wait, or is not public here) changes no state."""

    ANSWERED = "answered"
    FAILED = "failed"
    NOT_KNOWN = "not known"


class LinkResponse(NamedTuple):
    """The response to one request; without a ``status``, the ``fault`` says why there is none. ``retry`` has the
    seconds of its Retry-After."""

    status: int = 0
    location: str = ""
    retry: float | None = None
    fault: str = ""


class CheckResult(NamedTuple):
    """The result of a check: the HTTP status, or a fault."""

    outcome: CheckOutcome
    status: int = 0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class CheckedLink:
    """A link after its last check at ``checked``, 0 if it had none. ``since`` is the time of the first check in the
    current run of failures or successes; ``failures`` counts the failures. Times are in seconds since 1970."""

    checked: float = 0.0
    since: float = 0.0
    failures: int = 0
    status: int = 0
    fault: str = ""

    @property
    def state(self) -> LinkState:
        if not self.failures:
            return LinkState.ANSWERS if self.status else LinkState.UNKNOWN
        is_dead = self.failures >= DEAD_AFTER and self.checked - self.since >= DEAD_SECONDS
        return LinkState.DEAD if is_dead else LinkState.FAILING

    def after(self, found: CheckResult, now: float) -> CheckedLink:
        """Return the link after one more check."""
        if found.outcome is CheckOutcome.NOT_KNOWN:
            return replace(self, checked=now)
        failed = found.outcome is CheckOutcome.FAILED
        goes_on = bool(self.failures) is failed and self.state is not LinkState.UNKNOWN
        failures = self.failures + 1 if failed else 0
        return CheckedLink(now, self.since if goes_on else now, failures, found.status, found.fault)


class LinkRow(NamedTuple):
    """An own object whose link has failed."""

    ark: str
    url: str
    link: CheckedLink

    def is_of(self, one: OwnObject | None) -> bool:
        """Return whether the object still has this link."""
        return one is not None and link_of(one.url) == self.url

    @property
    def status(self) -> str:
        """The HTTP status, or the fault."""
        return str(self.link.status or self.link.fault)

    def to_dict(self) -> dict[str, Any]:
        """Return the row in JSON types."""
        link = self.link
        times = {name: time_text(getattr(link, name)) for name in ("since", "checked")}
        known = {"state": link.state.name.lower(), "status": link.status or None, "fault": link.fault or None}
        return {"ark": self.ark, "url": self.url, **known, **times, "failures": link.failures}


LINK_COLUMNS = ("ark", "url", "status", "since", "state", "failures", "checked")
"""The columns of the CSV form."""


def link_cells(row: LinkRow) -> Sequence[str]:
    """Return a row's cells in the order of LINK_COLUMNS."""
    cells = row.to_dict() | {"status": row.status}
    return [str(cells[name]) for name in LINK_COLUMNS]


class LinkCounts(NamedTuple):
    """How many own objects have links in each state."""

    unknown: int = 0
    answers: int = 0
    failing: int = 0
    dead: int = 0

    @property
    def is_alarm(self) -> bool:
        """Return whether enough objects lead nowhere to alert the operator."""
        return self.dead >= min(ALARM_OBJECTS, max(1, math.ceil(ALARM_SHARE * sum(self))))


LinkRows = Callable[[Iterable[LinkState], str, int], Sequence[LinkRow]]
"""Returns at most that many objects after an ARK whose links are in one of these states."""


@dataclass(frozen=True, slots=True)
class LinkReport:
    """What is known about the links of own objects. ``lacks_network``: no server answers. Any thread may call ``rows``,
    which raises Unreadable."""

    counts: LinkCounts
    lacks_network: bool = False
    rows: LinkRows = field(default=lambda states, after, most: (), compare=False)

    @property
    def alarm(self) -> str:
        """What the operator must fix, for the log and the alarm; "" if nothing."""
        if self.lacks_network:
            return "links: no server answers a check, perhaps because of the network of this machine"
        if self.counts.is_alarm:
            return f"links: {self.counts.dead} of {sum(self.counts)} objects lead nowhere: /links has them"
        return ""


# ---- one check


def link_of(target: str) -> str:
    """Return the link of a URL: the part that is requested."""
    return target.partition("#")[0]


def host_of(where: url.Url) -> str:
    return where.host.text.lower().removesuffix(".")


def retry_seconds(text: str, wall: float) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110 10.2.3), from its number or date; None if it has neither."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:20]), MAX_REST)
    try:
        return min(max(0.0, parsedate_to_datetime(text).timestamp() - wall), MAX_REST)
    except (ValueError, OverflowError, TypeError):
        return None


class LinkCheck:
    """The requests of one check. ``method`` and ``where`` are the next request; ``tell`` takes its response."""

    def __init__(self, link: int, target: str, *, allow_private: bool = False) -> None:
        self.link = link
        self.method = "HEAD"
        self.where = url.parse_allowed(target, allow_private=allow_private)
        self.first_host = host_of(self.where)
        self._target = target
        self._seen = {target}
        self._allow_private = allow_private

    @property
    def host(self) -> str:
        return host_of(self.where)

    def tell(self, response: LinkResponse) -> CheckResult | None:
        """Return the result, or None if another request follows."""
        status = response.status
        if not status:
            is_known = response.fault != NOT_ASKED
            return CheckResult(CheckOutcome.FAILED if is_known else CheckOutcome.NOT_KNOWN, fault=response.fault)
        if rest_of(response) is not None:
            return CheckResult(CheckOutcome.NOT_KNOWN, status)
        if self.method == "HEAD" and status in _NO_METHOD:
            self.method = "GET"
            return None
        if status in REDIRECTS and response.location:
            return None if self._follow(response.location) else CheckResult(CheckOutcome.FAILED, fault=REDIRECT)
        fails = status in _GONE or status >= 500
        return CheckResult(CheckOutcome.FAILED if fails else CheckOutcome.ANSWERED, status)

    def _follow(self, location: str) -> bool:
        """Take a redirect's URL as the next, encoded where the server has not. Return False if it must not be
        followed."""
        try:
            target = link_of(urljoin(self._target, quote(location.encode("latin-1"), safe=_IN_URL)))
            self.where = url.parse_allowed(target, allow_private=self._allow_private)
        except ValueError:
            return False
        if target in self._seen or len(self._seen) > MAX_REDIRECTS:
            return False
        self._target = target
        self._seen.add(target)
        return True


def rest_of(response: LinkResponse) -> float | None:
    """Return for how many seconds a host wants to be left alone; None if it does not say so."""
    if response.status == _TOO_MANY and response.retry is None:
        return UNTOLD_REST
    return response.retry if response.status in _LATER else None


# ---- many checks


class CheckQueue:
    """The started checks, and the choice of the next request: at most AT_ONCE at a time, none to a host that has a
    pending request or had one within PAUSE, and none at all for NO_NETWORK after several hosts in a row sent nothing.

    ``spacing`` is the seconds between two requests to any hosts. ``now`` is monotonic.
    """

    def __init__(self, spacing: float = 0.0) -> None:
        self._spacing = spacing
        self._next_at = -math.inf  # when the next request to any host may be sent
        self._waiting: list[LinkCheck] = []  # in order of arrival
        self._asked: dict[LinkCheck, float] = {}  # with the time of the request
        self._opens: dict[str, float] = {}  # when a host may get its next request
        self._silent: set[str] = set()  # silent hosts since the last response

    def __len__(self) -> int:
        return len(self._waiting) + len(self._asked)

    @property
    def hosts(self) -> list[str]:
        """The hosts of the links being checked."""
        return [check.first_host for check in (*self._waiting, *self._asked)]

    def paused(self, now: float) -> list[str]:
        """Return the hosts that may not get a request now."""
        return [host for host, opens in self._opens.items() if opens > now]

    @property
    def lacks_network(self) -> bool:
        """Return whether this machine's network may be the reason that no server answers."""
        return len(self._silent) >= SILENT_HOSTS

    def add(self, check: LinkCheck) -> None:
        self._waiting.append(check)

    def next(self, now: float) -> LinkCheck | None:
        """Return the check whose request may be sent now; None if there is none."""
        if len(self._asked) >= AT_ONCE or now < self._next_at:
            return None
        for index, check in enumerate(self._waiting):
            if self._opens.get(check.host, now) <= now:
                del self._waiting[index]
                self._asked[check] = now
                self._opens[check.host] = math.inf
                self._next_at = now + self._spacing
                return check
        return None

    def wait(self, now: float) -> float:
        """Return the seconds until another request may be sent if no response arrives first."""
        if len(self._asked) >= AT_ONCE or not self._waiting:
            return math.inf
        opens = min(self._opens.get(check.host, now) for check in self._waiting)
        return max(0.0, opens - now, self._next_at - now)

    def tell(self, check: LinkCheck, response: LinkResponse, now: float) -> CheckResult | None:
        """Return the result of a check after the response to its request; None if another request follows, or if the
        check is abandoned, because the network may have failed: its link then keeps its turn."""
        host, rest = check.host, rest_of(response)
        self._close(host, max(self._asked.pop(check) + PAUSE, now + (rest or 0.0)), now)
        if rest is not None:
            self._waiting = [each for each in self._waiting if each.host != host]
        if response.status:
            self._silent.clear()
            self._next_at = min(self._next_at, now + self._spacing)
        elif response.fault != NOT_ASKED:
            if len(self._silent) < SILENT_HOSTS:
                self._silent.add(host)
            if self.lacks_network:
                self._next_at = now + NO_NETWORK
                return None
        found = check.tell(response)
        if found is None and PAUSE < self._opens.get(check.host, now) - now < math.inf:
            # The redirect leads to a host that wants to be left alone.
            return CheckResult(CheckOutcome.NOT_KNOWN, response.status)
        if found is None:
            self._waiting.append(check)
        return found

    def _close(self, host: str, until: float, now: float) -> None:
        self._opens[host] = until
        if len(self._opens) > MAX_PAUSES:
            closed = sorted((at, each) for each, at in self._opens.items() if at > now)
            self._opens = {each: at for at, each in closed[-MAX_PAUSES // 2 :]}
