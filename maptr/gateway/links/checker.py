"""Sends the requests of link checks, in threads, and stores the results.

Only the thread that calls ``work`` uses the files; each request has its own thread, which ends with its timeout.
"""

from __future__ import annotations

import math
import queue
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from maptr import url
from maptr.errors import NmaError
from maptr.files import signature_if_any
from maptr.gateway.links.check import (
    MAX_WAITING,
    NOT_ASKED,
    CheckOutcome,
    CheckQueue,
    CheckResult,
    LinkCheck,
    LinkResponse,
    rest_of,
    retry_seconds,
)
from maptr.gateway.links.store import Due, LinkStore
from maptr.gateway.redirects.store import ObjectStore, open_store
from maptr.web import http
from maptr.web.http import NotPublicAddress

SECONDS = 10.0  # for one request
PAGE = 200  # objects compared at a time: other threads wait less than a millisecond for the interpreter
CALM = 3  # times as long as a page took, left for the gateway's other work
FOLLOW_PAUSE = 2  # times as long as a pass through all objects took, until the next pass after a change
SPACING = 0.05  # seconds between a gateway's requests, each of which takes it some milliseconds
FEW = MAX_WAITING // 2  # started checks below which more links are looked for
TRUSTED_FOR = 3_600.0  # seconds until the system's certificates are reread
STEP = 0.5  # seconds that ``work`` waits at most for something to happen

AskLink = Callable[[LinkCheck], LinkResponse]


class LinkChecker:
    """Checks the links of the store ``objects`` as it changes. ``contact`` tells server operators who is asking.

    It reads the store slowly, and spaces its requests, so that the gateway's answers are not delayed. Without a store,
    the links are those that ``follow`` has found.
    """

    def __init__(
        self,
        objects: Path | None,
        kept: LinkStore,
        *,
        contact: str = "",
        allow_private: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.kept = kept
        self.objects = objects
        self._allow_private = allow_private
        self.contact = contact
        self._clock, self._wall = clock, wall
        self._queue = CheckQueue(0.0 if objects is None else SPACING)
        self._done: queue.SimpleQueue[tuple[LinkCheck, LinkResponse | Exception] | None] = queue.SimpleQueue()
        self._following: Iterator[None] | None = None
        self._followed: tuple[int, ...] | None = None  # the signature of the store last gone through
        self._follow_since = 0.0
        self._follow_at = -math.inf  # when the next pass may begin
        self._is_stopped = False
        self._context: tuple[ssl.SSLContext | None, float] = None, 0.0

    @property
    def lacks_network(self) -> bool:
        """Return whether several hosts in a row sent nothing, perhaps because of this machine's network."""
        return self._queue.lacks_network

    def stop(self) -> None:
        """Make ``work`` return at once, now and in future."""
        self._is_stopped = True
        self._done.put(None)

    def follow(self, store: ObjectStore) -> None:
        """Take over the links of all objects of a store. Raises sqlite3.Error."""
        for _ in self._pages(store):
            pass

    def work(self, seconds: float, due: Callable[[float], Due]) -> bool:
        """Check links that are due, for that many seconds. Return False if there is nothing to do.

        ``due`` is called with the wall-clock time. Raises ConfigError, sqlite3.Error and OSError.
        """
        until = self._clock() + seconds
        while not self._is_stopped and (now := self._clock()) < until:
            is_following = self._follow_some()
            if len(self._queue) <= FEW:
                self._look_for(due(self._wall()))
            if not len(self._queue) and not is_following:
                return False
            while (check := self._queue.next(self._clock())) is not None:
                try:
                    threading.Thread(target=self._ask, args=(check,), name="maptr-link", daemon=True).start()
                except RuntimeError as error:  # the system's limit on threads
                    self._tell(check, error)
            pause = 0.0 if is_following else min(self._queue.wait(now), until - now, STEP)
            self._take(max(0.0, pause))
        return not self._is_stopped

    def _look_for(self, due: Due) -> None:
        known, paused, wall = self._queue.hosts, self._queue.paused(self._clock()), self._wall()
        for link, where in self.kept.next(due, wall, MAX_WAITING - len(known), without=known, later=paused):
            try:
                self._queue.add(LinkCheck(link, where, allow_private=self._allow_private))
            except ValueError:  # a host that only a command with --allow-private may ask
                self.kept.record(link, CheckResult(CheckOutcome.NOT_KNOWN), wall)

    def _take(self, seconds: float) -> None:
        """Take the available responses, waiting that many seconds for the first."""
        with suppress(queue.Empty):
            done = self._done.get(timeout=seconds)
            while done is not None:
                self._tell(*done)
                done = self._done.get_nowait()

    def _tell(self, check: LinkCheck, response: LinkResponse | Exception) -> None:
        if isinstance(response, Exception):
            self._queue.tell(check, LinkResponse(fault=NOT_ASKED), self._clock())
            raise response
        wall = self._wall()
        if rest := rest_of(response):
            self.kept.rest(check.host, wall + rest)
        if (found := self._queue.tell(check, response, self._clock())) is not None:
            self.kept.record(check.link, found, wall)

    # ---- the objects

    def _follow_some(self) -> bool:
        """Go through a page of the objects if their store has changed. Return whether there are more."""
        began = self._clock()
        if self._following is None:
            if self.objects is None or began < self._follow_at:
                return False
            if (signature := signature_if_any(self.objects)) == self._followed:
                return False
            # Not the connection that answers requests.
            self._following = self._pages(open_store(self.objects, allow_private=self._allow_private))
            self._followed, self._follow_since = signature, began
        try:
            next(self._following)
        except BaseException as error:
            self._following = None
            if not isinstance(error, StopIteration):
                self._followed = None
                raise
            self._follow_at = began + FOLLOW_PAUSE * (began - self._follow_since)
            return False
        time.sleep(CALM * (self._clock() - began))
        return True

    def _pages(self, store: ObjectStore) -> Iterator[None]:
        after, is_last = "", False
        while not is_last:
            rows = store.targets(after, PAGE)
            is_last = len(rows) < PAGE
            last = "" if is_last else rows[-1][0]
            self.kept.follow(after, last, dict(rows), allow_private=self._allow_private)
            after = last
            yield
        self.kept.forget_hosts()

    # ---- requests

    def _ask(self, check: LinkCheck) -> None:
        try:
            self._done.put((check, self._response(check.where, check.method)))
        except Exception as error:  # such as no memory, or no thread to resolve a host
            self._done.put((check, error))

    def _response(self, where: url.Url, method: str) -> LinkResponse:
        context = self._trusted() if where.scheme == "https" else None
        try:
            found = http.ask(
                where,
                method,
                SECONDS,
                allow_private=self._allow_private,
                user_agent=http.user_agent(self.contact),
                context=context,
            )
        except NotPublicAddress:
            return LinkResponse(fault=NOT_ASKED)
        except NmaError as error:
            return LinkResponse(fault=str(error.fault))
        retry = retry_seconds(found.headers.get("Retry-After") or "", self._wall())
        return LinkResponse(found.status, found.headers.get("Location") or "", retry)

    def _trusted(self) -> ssl.SSLContext:
        """Return the system's certificates, which are reread only at intervals: that takes longer than a request."""
        made, at = self._context
        if made is None or self._clock() - at > TRUSTED_FOR:
            made = ssl.create_default_context()
            self._context = made, self._clock()
        return made
