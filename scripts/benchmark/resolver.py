"""A small ARK resolver on FastAPI and SQLite, with which ``scripts/bench gateway`` compares the gateway.

The table is the SQLite file in RESOLVER_TABLE. An ASGI server drops a final ``?``, so this inflection is missing.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

from fastapi import FastAPI, Request, Response

from maptr.registry.table import Table

ARK = re.compile(r"(?i)/ark:/?([0-9b-z]+)/([^/].*)")
FIND = """SELECT shoulder, target, status FROM records
    WHERE naan = ? AND substr(?, 1, length(shoulder)) = shoulder ORDER BY length(shoulder) DESC LIMIT 1"""


def fill(path: Path, table: Table) -> None:
    """Write the first mapping authority of each record."""
    rows = [(entry.naan, entry.shoulder, nma.target, nma.status) for entry in table.values() for nma in entry.nmas[:1]]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE records (naan, shoulder, target, status, PRIMARY KEY (naan, shoulder))")
        connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?)", rows)


async def resolve(request: Request) -> Response:
    found = ARK.fullmatch(request.scope["raw_path"].decode("latin-1").replace("-", ""))
    if found is None:
        return Response("not an ARK\n", 400)
    naan, name = found[1].lower(), found[2]
    row = records.execute(FIND, (naan, name)).fetchone()
    if row is None:
        return Response("no mapping authority\n", 404)
    shoulder, target, status = row
    values = {"content": f"{naan}/{name}", "pid": f"ark:{naan}/{name}", "value": name, "prefix": naan}
    for variable, value in (values | {"suffix": name[len(shoulder) :]}).items():
        target = target.replace(f"${{{variable}}}", value)
    query = request.scope["query_string"].decode("latin-1")
    return Response(status_code=status, headers={"Location": f"{target}?{query}" if query else target})


if "RESOLVER_TABLE" in os.environ:
    records = sqlite3.connect(f"file:{os.environ['RESOLVER_TABLE']}?mode=ro", uri=True, check_same_thread=False)
    app = FastAPI(openapi_url=None)
    app.add_api_route("/{path:path}", resolve, methods=["GET", "HEAD"])
