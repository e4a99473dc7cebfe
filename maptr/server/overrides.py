"""What the command line says of zones and secondaries, put over the configuration.

Its other options are settings by their keys, which ``config.load`` takes as flags; these are tables, and arrays.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from maptr.config import Config, KeyConfig, Secret, ZoneConfig
from maptr.errors import ConfigError
from maptr.protocol.names import Labels, to_text

if TYPE_CHECKING:
    from maptr.server.state import ZoneSource
    from maptr.transfer.acl import Key, NotifyTarget, Rule


class Overrides(NamedTuple):
    """Zones, and the keys, transfers and notifications of secondaries, as the command line gives them."""

    zones: tuple[ZoneSource, ...] = ()
    keys: tuple[Key, ...] = ()
    transfer: tuple[Rule, ...] = ()
    notify: tuple[NotifyTarget, ...] = ()

    def over(self, config: Config) -> Config:
        """The configuration with these zones and keys too, or in place of those of their name, and these
        secondaries for every zone and the catalog. Raises ConfigError."""
        zones = {zone.name: zone for zone in config.zones}
        for at, source in enumerate(self.zones):
            if source.origin in (earlier.origin for earlier in self.zones[:at]):
                raise ConfigError(f"zone {to_text(source.origin)} is given twice")
            known = zones.get(source.origin, ZoneConfig(name=source.origin, file=source.path))
            zones[source.origin] = replace(known, file=source.path, table=None)
        names = _names_of(self.keys)
        given = [KeyConfig(key.name, key.algorithm, Secret(key.secret)) for key in self.keys]
        keys = [*(key for key in config.keys if key.name not in names), *given]
        secondaries: dict[str, Any] = {"transfer": self.transfer} if self.transfer else {}
        secondaries |= {"notify": self.notify} if self.notify else {}
        catalog = replace(config.serve.catalog, **secondaries)
        return replace(
            config,
            serve=replace(config.serve, catalog=catalog),
            keys=tuple(keys),
            zones=tuple(replace(zone, **secondaries) for zone in zones.values()),
        )


def _names_of(keys: tuple[Key, ...]) -> Container[Labels]:
    """Raises ConfigError for a key given twice."""
    if not keys:
        return ()
    from maptr.transfer.acl import keyring

    try:
        return keyring(keys)
    except ValueError as error:
        raise ConfigError(str(error)) from None
