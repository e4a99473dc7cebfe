"""maptr finds the server that resolves an ARK by DNS, and serves the DNS zone that makes this possible.

``__all__`` has the public names. They are imported on first use, so that ``import maptr`` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maptr.ark import Ark, find_arks
    from maptr.cache.cache import Cache
    from maptr.client.aio import discover_async, discover_at_async
    from maptr.client.bulk import discover_many, discover_many_async
    from maptr.client.stub import Stub
    from maptr.client.sync import discover, discover_at
    from maptr.client.validation.validator import Validator
    from maptr.discovery import (
        Candidate,
        Discovery,
        DiscoveryError,
        DiscoveryFailed,
        DiscoveryTimeout,
        NoMappingAuthority,
    )
    from maptr.errors import ArkSyntaxError, ConfigError, MaptrError, TableError, UnsafePlan, ZoneError
    from maptr.registry.table import Entry, Table

__version__ = "0.1.0"

_HOMES = {
    "maptr.ark": "Ark find_arks",
    "maptr.cache.cache": "Cache",
    "maptr.client.aio": "discover_async discover_at_async",
    "maptr.client.bulk": "discover_many discover_many_async",
    "maptr.client.stub": "Stub",
    "maptr.client.sync": "discover discover_at",
    "maptr.client.validation.validator": "Validator",
    "maptr.discovery": "Candidate Discovery DiscoveryError DiscoveryFailed DiscoveryTimeout NoMappingAuthority",
    "maptr.errors": "ArkSyntaxError ConfigError MaptrError TableError UnsafePlan ZoneError",
    "maptr.registry.table": "Entry Table",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Ark",
    "ArkSyntaxError",
    "Cache",
    "Candidate",
    "ConfigError",
    "Discovery",
    "DiscoveryError",
    "DiscoveryFailed",
    "DiscoveryTimeout",
    "Entry",
    "MaptrError",
    "NoMappingAuthority",
    "Stub",
    "Table",
    "TableError",
    "UnsafePlan",
    "Validator",
    "ZoneError",
    "discover",
    "discover_async",
    "discover_at",
    "discover_at_async",
    "discover_many",
    "discover_many_async",
    "find_arks",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
