"""ARKs in an SQLite table: an Ark is a parameter, stored in its normal form, so that one key finds every spelling."""

from __future__ import annotations

import sqlite3

from maptr import Ark


def store(database: sqlite3.Connection, titles: dict[str, str]) -> None:
    database.execute("CREATE TABLE IF NOT EXISTS things (ark TEXT PRIMARY KEY, title TEXT NOT NULL)")
    rows = [(Ark.parse(text), title) for text, title in titles.items()]
    database.executemany("INSERT OR REPLACE INTO things VALUES (?, ?)", rows)
    database.commit()


def title(database: sqlite3.Connection, text: str) -> str | None:
    row = database.execute("SELECT title FROM things WHERE ark = ?", (Ark.parse(text),)).fetchone()
    return row[0] if row else None


if __name__ == "__main__":
    things = sqlite3.connect(":memory:")
    store(things, {"https://n2t.net/ark:/12148/btv1b8449691v": "Atlas catalan", "ark:/13960/t4wh3b18q": "A book"})
    print(title(things, "ark:12148/btv1b-8449691v"))
    print([row for (row,) in things.execute("SELECT ark FROM things ORDER BY ark")])
    things.close()
