"""All accidents, by name, in the order of the page."""

from tests.accidents import gateways, tables, zones
from tests.accidents.outcome import KEPT, Accident

ACCIDENTS: dict[str, Accident] = {
    name: each
    for module in (zones, tables, gateways)
    for name, each in KEPT.items()
    if each.act.__module__ == module.__name__
}
