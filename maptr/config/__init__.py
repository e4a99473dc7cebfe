"""Configuration: defaults < ``maptr.toml`` < ``MAPTR_*`` < flags, read into frozen dataclasses.

``model`` defines the settings, ``reader`` reads them from text and files, and ``reference`` describes them.

Internal: it may change in any release. ``help(maptr)`` lists the public names.
"""

from maptr.config.model import Config, KeyConfig, ServeConfig, ZoneConfig
from maptr.config.reader import FILE_VARIABLE, examine, find, from_document, load, parse, with_secrets

__all__ = [
    "FILE_VARIABLE",
    "Config",
    "KeyConfig",
    "ServeConfig",
    "ZoneConfig",
    "examine",
    "find",
    "from_document",
    "load",
    "parse",
    "with_secrets",
]
