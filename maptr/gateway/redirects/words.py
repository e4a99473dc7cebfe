"""The words of the objects in a store, and the search for them, with SQLite's full-text index (FTS5).

The index covers the public texts of each row, without a copy of them. It agrees with the rows as long as the store's
fact ``words`` is the number of its last change: a writer that cannot update the index, because its SQLite has no FTS5,
changes only that number. Then, and in a store without an index, a search only finds ARKs by their beginning.

Searched text is never an FTS5 expression: each of its words is a string in one, which SQLite itself tokenizes.
"""

# ruff: noqa: S608 - only constants are put into statements

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from itertools import islice
from typing import Any

from maptr.ark import Ark
from maptr.errors import ArkSyntaxError
from maptr.gateway.objects import COLUMNS, GONE
from maptr.registry.search import MAX_QUERY, MAX_WORDS

NO_INDEX = "it has no index of words that agrees with its rows: maptr redirects import makes one"
MIN_BEGINNING = 3  # bytes of a word's beginning that are enough: one Chinese character, three letters
MAX_NAANS = 8  # whose ARKs are searched by name alone
MEMORY = 64 * 2**20  # bytes of words that an import collects before it writes them
USUAL_MEMORY = 2**20  # the default of FTS5
PAGES = 500  # of the index, merged by one transaction

_NUMBERS = "CREATE TABLE numbers (number INTEGER PRIMARY KEY, ark TEXT NOT NULL UNIQUE)"
_INDEX = (
    "CREATE VIRTUAL TABLE words USING fts5"
    "(what, other, content='', columnsize=0, tokenize='unicode61 remove_diacritics 2')"
)
_SHOWN = "SELECT name FROM columns WHERE public"
LETTERS = {"œ": "oe", "Œ": "OE", "æ": "ae", "Æ": "AE", "ß": "ss"}  # which the index treats as letters of their own


def _spelled_out(sql: str) -> str:
    """Return an SQL expression for a text with two letters in place of each of LETTERS."""
    spelled = sql
    for letter, two in LETTERS.items():
        spelled = f"replace({spelled}, '{letter}', '{two}')"
    return f"CASE WHEN {sql} GLOB '*[{''.join(LETTERS)}]*' THEN {spelled} ELSE {sql} END"


# The public texts of a row. Public extra columns are rare.
_OTHER = f"""(who || ' ' || "when" || CASE
    WHEN more IS NOT NULL AND EXISTS ({_SHOWN}) AND json_valid(more)
    THEN ' ' || coalesce((SELECT group_concat(value, ' ') FROM json_each(more) WHERE key IN ({_SHOWN})), '')
    ELSE '' END)"""
_TEXTS = f"""
SELECT number, {_spelled_out("what")} AS what, {_spelled_out(_OTHER)} AS other
FROM numbers JOIN redirects USING (ark)
"""
_ROW = "SELECT {}, more FROM redirects AS r".format(", ".join(f'r."{name}"' for name in COLUMNS))
_TWO_LETTERS = str.maketrans(LETTERS)
_BEGINNING = re.compile(rf"[^\s?#]{{{MIN_BEGINNING},{MAX_QUERY}}}")


def lacking() -> str:
    """Return why this SQLite cannot have an index; "" if it can."""
    with closing(sqlite3.connect(":memory:")) as probe:
        try:
            probe.execute(_INDEX)
            probe.execute("SELECT json_valid('{}')")
        except sqlite3.Error as error:
            return f"SQLite {sqlite3.sqlite_version}: {error}"
    return ""


# ---- the index of a store, in the transaction of a writer


def make(connection: sqlite3.Connection) -> bool:
    """Index all rows of a new store. Return whether this SQLite can."""
    if lacking():
        return False
    connection.execute(_NUMBERS)
    connection.execute(_INDEX)
    connection.execute("INSERT INTO numbers (ark) SELECT ark FROM redirects ORDER BY ark")
    _command(connection, "hashsize", MEMORY)
    connection.execute(f"INSERT INTO words (rowid, what, other) {_TEXTS} ORDER BY number")
    _command(connection, "hashsize", USUAL_MEMORY)
    return True


def trouble_of(connection: sqlite3.Connection, facts: Mapping[str, int | str]) -> str:
    """Return why a store's words cannot be searched or updated; "" if they can."""
    made = "SELECT sql FROM sqlite_master WHERE name = 'words'"
    if facts.get("words", 0) != facts.get("change") or connection.execute(made).fetchone() != (_INDEX,):
        return NO_INDEX
    return lacking()


def take_out(connection: sqlite3.Connection, ark: str) -> None:
    """Remove a row's words from the index, before it changes."""
    insert = f"INSERT INTO words (words, rowid, what, other) SELECT 'delete', * FROM ({_TEXTS} WHERE ark = ?)"
    connection.execute(insert, (ark,))


def put_in(connection: sqlite3.Connection, ark: str) -> None:
    """Add a row's words to the index, after it has changed."""
    connection.execute("INSERT OR IGNORE INTO numbers (ark) VALUES (?)", (ark,))
    connection.execute(f"INSERT INTO words (rowid, what, other) {_TEXTS} WHERE ark = ?", (ark,))


def merge(connection: sqlite3.Connection) -> bool:
    """Merge a part of the index, which removes words of earlier rows there. Return whether there is more."""
    before = connection.total_changes
    _command(connection, "merge", -PAGES)
    return connection.total_changes - before >= 2  # as documented for FTS5


def _command(connection: sqlite3.Connection, name: str, value: int) -> None:
    connection.execute("INSERT INTO words (words, rank) VALUES (?, ?)", (name, value))


# ---- the search


def find(
    connection: sqlite3.Connection, text: str, naans: Iterable[str], *, has_index: bool, most: int
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows that match a text, some of them twice: those whose ARK begins with it, whose ``what`` begins with
    it or has all its words, and then those with all words anywhere; at most ``most`` of each kind. Withdrawn objects
    come last. Raises sqlite3.Error.
    """
    beginnings = list(_beginnings(text.strip(), naans))
    expressions = _expressions(text) if has_index else []
    by_ark = f"{_ROW} WHERE ark BETWEEN ? AND ? || char(127)"
    by_words = f"{_ROW} JOIN numbers USING (ark) JOIN words ON words.rowid = number WHERE words MATCH ?"
    for is_gone, kinds in ((False, expressions), (True, expressions[-1:])):
        which = f"AND (status = {GONE}) = {int(is_gone)} LIMIT {int(most)}"
        for beginning in beginnings:
            yield from connection.execute(f"{by_ark} {which}", (beginning, beginning))
        for expression in kinds:
            yield from connection.execute(f"{by_words} {which}", (expression,))


def _beginnings(text: str, naans: Iterable[str]) -> Iterator[str]:
    """Yield the beginnings of ARKs that a text may stand for, with or without a label and NAAN."""
    if not _BEGINNING.fullmatch(text):
        return
    known = [*naans]
    for spelled in (text, f"ark:{text}", *(f"ark:{naan}/{text}" for naan in islice(known, MAX_NAANS))):
        with suppress(ArkSyntaxError):
            ark = Ark.parse(spelled)
            if ark.naan in known and ark.name:
                yield str(ark)


def _expressions(text: str) -> list[str]:
    """Return FTS5 expressions, narrowest first. The last word may be incomplete."""
    text = text[:MAX_QUERY].encode("utf-8", "ignore").decode().replace("\0", " ")
    words = text.translate(_TWO_LETTERS).split()
    known = [*dict.fromkeys(word for word in words if any(map(str.isalnum, word)))][:MAX_WORDS]
    if not known:
        return []
    strings = ['"{}"'.format(word.replace('"', '""')) for word in known]
    if len(known[-1].encode()) >= MIN_BEGINNING:
        strings[-1] += " *"
    every = " ".join(strings)
    return [f"what : ^ {' + '.join(strings)}", f"what : ({every})", every]
