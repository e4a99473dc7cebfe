"""The rows of ``maptr bulk``: made of discoveries, written as CSV or JSON, in the order of the lines they are of."""

from __future__ import annotations

import csv
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, TextIO

from maptr.ark import Ark, Profile
from maptr.cli import output, through
from maptr.cli.asking import advice_of
from maptr.client.call import as_ark, prefer
from maptr.discovery import DiscoveryError, NoMappingAuthority
from maptr.errors import ArkSyntaxError
from maptr.text import printable

if TYPE_CHECKING:
    from maptr.cache.cache import Cache
    from maptr.choose import Chooser
    from maptr.discovery import Discovery

COLUMNS = ("line", "status", "ark", "url", "note")
FOUND, NONE, UNKNOWN, BAD = STATUSES = "found", "none", "unknown", "bad"

MAX_SHOWN = 20  # bad lines told one by one on stderr; every one has its row
CHOOSING = 16  # choosers that connect, at a time
MAX_HELD = 100_000  # rows; those beyond are written out of order

Row = dict[str, object]


def row_of(number: int, discovery: Discovery, require: str | None) -> Row:
    """The row of a discovery; its note says why there is no URL, or from where one is that DNS did not say just now."""
    row: Row = {"line": number, "status": FOUND, "ark": str(discovery.ark), "url": "", "note": ""}
    try:
        discovery.raise_for_security(require)
        row["url"] = discovery.url()
    except NoMappingAuthority as error:
        row |= {"status": NONE, "note": str(error)}
    except DiscoveryError as error:
        row |= {"status": UNKNOWN, "note": str(error)}
    else:
        if discovery.source != "dns" or discovery.stale:
            row["note"] = through.provenance(discovery, time.time())
            row |= {"source": discovery.source, "age": through.age_of(discovery), "stale": discovery.stale}
    if discovery.security != "indeterminate":
        row["security"] = discovery.security
    return row


def bad_row(number: int, line: bytes, why: str) -> Row:
    """That of a line that is no ARK."""
    return {"line": number, "status": BAD, "ark": _shown(line), "url": "", "note": why}


def ark_of(line: bytes, profile: Profile) -> str:
    """What the row of a line has for an ARK."""
    try:
        return str(as_ark(line, profile))
    except ArkSyntaxError:
        return _shown(line)


def _shown(line: bytes) -> str:
    return line.strip()[:200].decode("utf-8", "backslashreplace")


def csv_text(value: object) -> str:
    """A value as it stands in CSV, which people open in other programs."""
    return printable(str(value))


def writer(sink: TextIO, jsonl: bool, *, header: bool) -> Callable[[Row], None]:
    if jsonl:
        return lambda row: _write_json(sink, row)
    rows = csv.DictWriter(sink, COLUMNS, extrasaction="ignore", lineterminator="\n")
    if header:
        rows.writeheader()
    return lambda row: rows.writerow({key: output.held(sink, csv_text(value)) for key, value in row.items()})


def _write_json(sink: TextIO, row: Row) -> None:
    sink.write(output.json_text(row, sink) + "\n")


class Rows:
    """Where the rows go, and what a cache makes of what DNS said, where there is one. ``finish`` writes the last."""

    def __init__(
        self,
        write: Callable[[Row], None],
        cache: Cache | None,
        *,
        ordered: bool,
        require: str | None,
        chooser: Chooser | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._write = write
        self._order = InOrder(write) if ordered else None
        self._cache = cache
        self._require = require
        self.advice = ""  # of the discoveries so far, to be said once
        self._choosing = Choosing(chooser, lambda number, found: self.put(number, row_of(number, found, require)))
        self.may_be_answered = cache is not None and not getattr(cache.policy, "takes_dns", False)

    def answered(self, number: int, ark: Ark) -> bool:
        """True where the table answers and DNS is not asked; else the row is awaited."""
        found = self._cache.unasked(ark) if self._cache is not None and self.may_be_answered else None
        if self._order is not None:
            self._order.announce(number)
        if found is None:
            return False
        self._choosing.take(number, found)
        return True

    def found(self, number: int, discovery: Discovery) -> None:
        """What DNS said, or did not."""
        if self._cache is not None:
            discovery = self._cache.judge(discovery)
        self.advice = self.advice or advice_of(discovery)
        self._choosing.take(number, discovery)

    def finish(self) -> None:
        """Wait for the choosers, and write what they chose."""
        self._choosing.finish()

    def close(self) -> None:
        """Wait for nothing any more."""
        self._choosing.close()

    def put(self, number: int, row: Row) -> None:
        self.counts[str(row["status"])] += 1
        self.counts["table"] += row.get("source") == "natab"
        if row["status"] == BAD and self.counts[BAD] <= MAX_SHOWN:
            more = "; further bad lines are only in the output" if self.counts[BAD] == MAX_SHOWN else ""
            output.talk(f"maptr: line {row['line']}: {row['note']}{more}")
        if self._order is not None:
            self._order.put(number, row)
        else:
            self._write(row)


class Choosing:
    """Applies a chooser. One that connects to servers runs in threads, while DNS is asked for other ARKs."""

    def __init__(self, chooser: Chooser | None, put: Callable[[int, Discovery], None]) -> None:
        self._chooser = chooser
        self._put = put
        self._pool: ThreadPoolExecutor | None = None
        self._chosen: SimpleQueue[tuple[int, Discovery | BaseException]] = SimpleQueue()
        self._awaited = 0
        if getattr(chooser, "waits", False):
            self._pool = ThreadPoolExecutor(CHOOSING, "maptr-choose")

    def take(self, number: int, found: Discovery) -> None:
        """Hand the discovery on, the choice first, now or later."""
        if self._pool is None or not found.candidates:
            self._put(number, prefer(found, self._chooser))
            return
        self._awaited += 1
        self._pool.submit(self._choose, number, found)
        while not self._chosen.empty() or self._awaited > MAX_HELD:
            self._hand_on()

    def finish(self) -> None:
        while self._awaited:
            self._hand_on()

    def close(self) -> None:
        """Begin with no further one."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _choose(self, number: int, found: Discovery) -> None:
        try:
            self._chosen.put((number, prefer(found, self._chooser)))
        except BaseException as error:
            self._chosen.put((number, error))

    def _hand_on(self) -> None:
        number, chosen = self._chosen.get()
        self._awaited -= 1
        if isinstance(chosen, BaseException):
            raise chosen
        self._put(number, chosen)


class InOrder:
    """Hands rows on in the order in which their lines were announced, those made at once behind those still awaited."""

    def __init__(self, write: Callable[[Row], None]) -> None:
        self._write = write
        self._waiting: dict[int, Row | None] = {}

    def announce(self, number: int) -> None:
        """A line was read whose row comes later."""
        self._waiting[number] = None

    def put(self, number: int, row: Row) -> None:
        if number not in self._waiting and len(self._waiting) >= MAX_HELD:
            self._write(row)
            return
        self._waiting[number] = row
        while self._waiting:
            first = next(iter(self._waiting))
            ready = self._waiting[first]
            if ready is None:
                return
            del self._waiting[first]
            self._write(ready)
