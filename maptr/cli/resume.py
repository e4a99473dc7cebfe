"""``maptr bulk --resume``: the rows of an earlier run, each checked against its line before the file is touched."""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click

from maptr.ark import Profile
from maptr.cli.lines import read_lines
from maptr.cli.output import SCHEMA
from maptr.cli.rows import COLUMNS, STATUSES, ark_of, csv_text

MAX_LINE = 1 << 31
_HEADER = ",".join(COLUMNS).encode() + b"\n"
_DOCUMENT = json.dumps({"schema": SCHEMA}).encode()[:-1]


class Kept:
    """What an output file has already: ``whole`` octets of rows, and by number the lines that they are of."""

    def __init__(self) -> None:
        self.whole = 0
        self._rows = array("q")  # by line number a hash of the row's ARK, 0 without a row

    def __contains__(self, number: int) -> bool:
        return number < len(self._rows) and self._rows[number] != 0

    def add(self, number: int, ark: str) -> None:
        if number >= len(self._rows):
            self._rows.frombytes(bytes(8 * (max(number + 1, 2 * len(self._rows), 1024) - len(self._rows))))
        self._rows[number] = hash(ark) or 1

    def fits(self, number: int, ark: str) -> bool:
        return self._rows[number] == (hash(ark) or 1)

    def last(self) -> int:
        """The greatest number of a line with a row; 0 without any."""
        return next((number for number in range(len(self._rows) - 1, 0, -1) if self._rows[number]), 0)


def kept_rows(target: Path, source: IO[bytes], *, as_json: bool, profile: Profile) -> Kept:
    """What ``target`` has of the lines of ``source``, which can be read again afterwards. Changes nothing.

    Raises UsageError where ``target`` is not what maptr bulk wrote in this format, of this input; OSError.
    """
    kept = Kept()
    if not target.exists():
        return kept
    if not target.is_file():
        raise click.UsageError(f"{target}: is no regular file, and has no rows to keep")
    with target.open("rb") as file:
        for record, number, ark in _rows(file, as_json, target):
            if number in kept and not kept.fits(number, ark):
                raise _other(target, record, f"line {number} has another row already")
            kept.add(number, ark)
        kept.whole = file.tell()
    start = source.tell()
    last = 0
    for last, line in enumerate(read_lines(source), 1):
        if last in kept and not kept.fits(last, _shown(ark_of(line, profile), as_json=as_json)):
            raise click.UsageError(f"{target}: its row of line {last} is of another ARK: it is not of this input")
    if kept.last() > last:
        raise click.UsageError(f"{target}: it has a row of line {kept.last()}, and the input has {last} lines")
    source.seek(start)
    return kept


def _shown(ark: str, *, as_json: bool) -> str:
    return ark if as_json else csv_text(ark)


def _rows(file: IO[bytes], as_json: bool, target: Path) -> Iterator[tuple[int, int, str]]:
    """Record number, line number and ARK of each whole row; the file is left where the last of them ends."""
    record = whole = 0
    begins = _DOCUMENT if as_json else _HEADER
    while line := file.readline():
        if record == 0 and not (line.startswith(begins) or (not line.endswith(b"\n") and begins.startswith(line))):
            raise _other(target, 1, f"it does not begin with {begins.decode().strip()}")
        if not line.endswith(b"\n"):
            break  # it was cut short
        whole += len(line)
        record += 1
        if record == 1 and not as_json:
            continue
        try:
            row = _document(line) if as_json else dict(zip(COLUMNS, _fields(line), strict=True))
            number = int(row["line"])
            if row["status"] not in STATUSES or not 0 < number < MAX_LINE:
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError, csv.Error):
            raise _other(target, record, "no such row") from None
        yield record, number, str(row["ark"])
    file.seek(whole)


def _document(line: bytes) -> dict[str, Any]:
    row = json.loads(line)
    if row["schema"] != SCHEMA or not row.keys() >= set(COLUMNS):
        raise ValueError
    return dict(row)


def _fields(line: bytes) -> list[str]:
    (fields,) = csv.reader([line.decode()], strict=True)
    return fields


def _other(target: Path, record: int, why: str) -> click.UsageError:
    return click.UsageError(f"{target}: record {record} is none that maptr bulk wrote in this format: {why}")
