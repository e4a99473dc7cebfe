"""The registry that ``maptr up`` serves: pulled, pulled before, or the sample if asked for; told as it comes about."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from maptr import places
from maptr.cli import output
from maptr.config import Config
from maptr.errors import MaptrError, PullFailed
from maptr.files import write_atomically
from maptr.registry.pull import OFFICIAL, Demands, apply_pull, plan_pull
from maptr.server import settings

SAMPLE = Path(__file__).resolve().parent.parent / "sample.json"
PULL_SECONDS = 30.0  # for one source, while somebody looks on
EVERY = 3600  # seconds between pulls while it runs


class Registry(NamedTuple):
    """The table to serve, and how it is pulled again: what [table] has of it, as TOML values."""

    file: Path
    kind: str  # the folder of its zone: one registry is no successor of another
    pulled: Mapping[str, object] = MappingProxyType({})


def find_registry(sources: tuple[str, ...], config: Config | None, *, offline: bool, force: bool) -> Registry:
    """The registry of the first source that has one, by default that of the configuration or the public one; else the
    table pulled before. Ends the command where there is none.

    Raises ConfigError for a key that cannot be read, OSError for the table.
    """
    known = config.table if config is not None and config.table.file else None
    file = (known.file if known is not None and known.file else Path(places.table_file(os.environ))).absolute()
    demands, cafile = Demands(), None
    again: dict[str, object] = {"every": EVERY}
    if not sources and config is not None and known is not None and known.sources:
        sources, demands = known.sources, settings.demands_of(config)
        cafile, key = _absolute(known.cafile), _absolute(known.public_key)
        again |= {"sha256": known.sha256, "public_key": key or "", "cafile": cafile or ""}
    sources = tuple(source if "://" in source else str(Path(source).resolve()) for source in sources or (OFFICIAL,))
    pulled = not offline and _pull(file, sources, demands, cafile, force=force)
    if not file.exists():
        output.fail(f"no registry was pulled to {file}; maptr up --sample serves an example", output.EXIT_UNREADABLE)
    if not pulled:
        output.talk(f"registry  as it was pulled before: {file}")
    if offline:
        return Registry(file, "registry")
    return Registry(file, "registry", {**again, "url": sources[0], "mirrors": list(sources[1:])})


def _pull(file: Path, sources: tuple[str, ...], demands: Demands, cafile: str | None, *, force: bool) -> bool:
    """True where the file is now what a source has."""
    output.talk(f"registry  pulling from {sources[0]} ...")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = plan_pull(file, sources, demands=demands, cafile=cafile, force=force, seconds=PULL_SECONDS)
        apply_pull(found, wall=time.time)
    except PullFailed as error:
        for reason in error.reasons:
            output.talk(f"registry  not pulled: {reason}")
    except MaptrError as error:
        output.talk(f"registry  not taken: {error} (--force overrides)")
    else:
        output.talk(f"registry  pulled from {found.source}, kept as {file}")
        for key, reason in found.plan.kept:
            output.talk(f"registry  {key} is kept as it was: {reason}")
        return True
    return False


def sample() -> Registry:
    """A few example organisations. Raises OSError."""
    output.talk("registry  THE SAMPLE, a few example organisations; no real ARK is found in it")
    return Registry(_sample(), "sample")


def _sample() -> Path:
    """The file of it: a copy where maptr itself is in an archive (zipapp). Raises OSError."""
    if SAMPLE.exists():
        return SAMPLE
    copy = Path(places.data_folder(os.environ)) / "up" / SAMPLE.name
    write_atomically(copy, (resources.files("maptr") / SAMPLE.name).read_bytes())
    return copy


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())
