"""Files of own objects: stores and CSVs, and what a gateway reads from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from maptr.errors import ConfigError
from maptr.gateway.objects import Redirects
from maptr.gateway.redirects.following import KeptStores, follow
from maptr.gateway.redirects.importing import Imported, Staged, Terms
from maptr.gateway.redirects.store import ObjectStore, open_store
from tests.support.caching import Clock

GOOD = "ark,url\nark:12345/x5,https://h.example/5\n"


def csv_file(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


def imported(path: Path, text: str = GOOD) -> Path:
    """Write the store that ``maptr redirects import`` makes of a CSV."""
    put(csv_file(path.with_name(f"{path.name}.csv"), text), path)
    return path


def put(source: Path, path: Path, terms: Terms | None = None, now: float = 1e9) -> Imported:
    """Import a good file."""
    with Staged(source, path, lambda error: pytest.fail(str(error))) as staged:
        return staged.put(terms or Terms(), now)


def store_of(path: Path) -> ObjectStore:
    return open_store(path)


def read(path: Path, *, allow_private: bool = False) -> Redirects:
    """What a starting gateway reads from a file."""
    found = follow(path, allow_private=allow_private, clock=Clock(), kept=KeptStores()).value
    if found.trouble:
        raise ConfigError(found.trouble)
    return found
