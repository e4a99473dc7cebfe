"""The vectors of responses, and snapshots of zones as text."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import dns.zone

from maptr.zone.snapshot import Snapshot
from tests.support.zones import snapshot_of_zones

VECTORS = Path(__file__).resolve().parents[1] / "vectors"


def load_vectors(name: str) -> dict[str, Any]:
    return tomllib.loads((VECTORS / f"{name}.toml").read_text(encoding="utf-8"))


def snapshot_of(*zones: str | tuple[str, str]) -> Snapshot:
    """A snapshot of zones in master file format: the text of ``example.``, or a text and its origin."""
    pairs = [(zone, "example.") if isinstance(zone, str) else zone for zone in zones]
    return snapshot_of_zones(*(dns.zone.from_text(text, origin, relativize=False) for text, origin in pairs))


ANSWER, PACKETS, EDNS = load_vectors("answer"), load_vectors("packets"), load_vectors("edns")
SNAPSHOT = snapshot_of(ANSWER["zone"])
