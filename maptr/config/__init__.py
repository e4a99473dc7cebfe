"""Configuration: defaults < ``maptr.toml`` < ``MAPTR_*`` < flags, read into frozen dataclasses.

``model`` has what can be set, ``reader`` reads it from text and files.
"""

from maptr.config.model import (
    CatalogConfig,
    Config,
    KeyConfig,
    RrlConfig,
    Secret,
    ServeConfig,
    TcpConfig,
    TlsConfig,
    ZoneConfig,
)
from maptr.config.reader import FILE_VARIABLE, examine, find, load, parse

__all__ = [
    "FILE_VARIABLE",
    "CatalogConfig",
    "Config",
    "KeyConfig",
    "RrlConfig",
    "Secret",
    "ServeConfig",
    "TcpConfig",
    "TlsConfig",
    "ZoneConfig",
    "examine",
    "find",
    "load",
    "parse",
]
