"""The built-in registry: the public NAAN registry as this version of maptr carries it, with its date.

``builtin.json`` is in the registry's own JSON, one record a line; ``scripts/registry`` writes it. A record is parsed
when it is needed, because most programs need one.
"""

from __future__ import annotations

import json
import pkgutil
import re
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from maptr.discovery import BUILT_IN
from maptr.registry.followed_file import TableState
from maptr.registry.json_records import read_record
from maptr.registry.table import Table

FILE = Path(__file__).with_name("builtin.json")

_KEY = re.compile(r'\{"what":"([^"]+)"')


@lru_cache(maxsize=1)
def state() -> TableState:
    """Return the built-in table, with its date as the time at which it was fetched."""
    head, *lines = (pkgutil.get_data(__package__, FILE.name) or b"").decode().splitlines()
    date = json.loads(f"{head}]}}")["metadata"]["date"]
    records = {match[1]: line for line in lines if (match := _KEY.match(line))}
    table = Table.lazy(records, lambda line: read_record(json.loads(line.removesuffix(","))), metadata={"date": date})
    fetched = datetime.fromisoformat(f"{date}T00:00:00+00:00").timestamp()
    return TableState(table, fetched=fetched, kind=BUILT_IN)
