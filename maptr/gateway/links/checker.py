"""Sends the requests of checks, in threads, and keeps what comes of them.

Only the thread that calls ``work`` uses the files; each request has a thread of its own, which ends with its time.
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
PAGE = 200  # objects that are compared at a time: less than a millisecond, for which others wait for the interpreter
CALM = 3  # times as long as a page took, a gateway then does something else
FOLLOW_PAUSE = 2  # times as long as it took to go through all objects, until that is done again after a change
SPACING = 0.05  # seconds between two requests of a gateway, each of which takes it some milliseconds
FEW = MAX_WAITING // 2  # checks that have begun, at which more links are looked for
TRUSTED_FOR = 3_600.0  # seconds until the certificates of the system are read again
STEP = 0.5  # seconds that ``work`` waits at most for something to happen

AskLink = Callable[[LinkCheck], LinkResponse]


class LinkChecker:
    """Checks links, those of the store ``objects`` as it changes. ``contact`` tells the operators of servers who asks.

    It goes through the store slowly, and spaces its requests, because its gateway has something better to do. Without a
    store, the links are those that ``follow`` has found.
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
        self._followed: tuple[int, ...] | None = None  # the signature of the store that was gone through
        self._follow_since = 0.0
        self._follow_at = -math.inf  # when it may be gone through again
        self._is_stopped = False
        self._context: tuple[ssl.SSLContext | None, float] = None, 0.0

    @property
    def lacks_network(self) -> bool:
        """Return whether several hosts in a row sent nothing, perhaps because of the network of this machine."""
        return self._queue.lacks_network

    def stop(self) -> None:
        """Let ``work`` return at once, now and later."""
        self._is_stopped = True
        self._done.put(None)

    def follow(self, store: ObjectStore) -> None:
        """Take over the links of all objects of a store. Raises sqlite3.Error."""
        for _ in self._pages(store):
            pass

    def work(self, seconds: float, due: Callable[[float], Due]) -> bool:
        """Check links that are due, for that many seconds. False if there is nothing to do.

        ``due`` is asked with the time of the wall clock. Raises ConfigError, sqlite3.Error and OSError.
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
                except RuntimeError as error:  # there is a limit on threads
                    self._tell(check, error)
            pause = 0.0 if is_following else min(self._queue.wait(now), until - now, STEP)
            self._take(max(0.0, pause))
        return not self._is_stopped

    def _look_for(self, due: Due) -> None:
        known, paused, wall = self._queue.hosts, self._queue.paused(self._clock()), self._wall()
        for link, where in self.kept.next(due, wall, MAX_WAITING - len(known), without=known, later=paused):
            try:
                self._queue.add(LinkCheck(link, where, allow_private=self._allow_private))
            except ValueError:  # a host that only a command may ask, with --allow-private
                self.kept.record(link, CheckResult(CheckOutcome.NOT_KNOWN), wall)

    def _take(self, seconds: float) -> None:
        """Take the responses that are there, and wait that many seconds for the first one."""
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
        """Go through a page of the objects if their store has changed. Returns whether there are more."""
        began = self._clock()
        if self._following is None:
            if self.objects is None or began < self._follow_at:
                return False
            if (signature := signature_if_any(self.objects)) == self._followed:
                return False
            # A connection beside the one that answers requests.
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
        except Exception as error:  # such as no memory, or no thread for the look-up of a host
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
        """Return the certificates of the system, which are read once in a while: that takes longer than a request."""
        made, at = self._context
        if made is None or self._clock() - at > TRUSTED_FOR:
            made = ssl.create_default_context()
            self._context = made, self._clock()
        return made
