"""All accidents, by name, in the order of the page."""

from tests.accidents import gateways, tables, zones
from tests.accidents.outcome import ACCIDENTS

__all__ = ["ACCIDENTS", "gateways", "tables", "zones"]
