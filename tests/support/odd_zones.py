"""Random zone files with every record type, layout and oddity, valid and not, for readers that must agree.

A file has a head, so that most files can be loaded, and then lines of a few names, which are often apart, have
different TTLs, occur twice, or contradict each other.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

from maptr.errors import ZoneError
from maptr.protocol.names import Folded
from maptr.zone.masterfile import FileState, Locations, MasterFileReader, read_master_file, read_zone_file
from maptr.zone.plain_lines import LineGroup, PlainLines
from tests.support.answers import load_vectors

ORIGIN = Folded((b"example",))
ROUNDS = 8  # of removing lines, because some are rejected only after others are gone
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n|\Z)")
HEAD = "$TTL 60\n@ IN SOA ns host 1 7200 3600 1209600 300\n@ IN NS ns\nns IN A 192.0.2.1\n"
_PARTS = load_vectors("odd_zones")
OWNERS: list[str] = _PARTS["owners"]
RDATA: list[str] = _PARTS["rdata"]
HOSTS: list[str] = _PARTS["hosts"]
URLS: list[str] = _PARTS["urls"]
PATTERNS: list[str] = _PARTS["patterns"]


def odd_zone(rng: random.Random) -> bytes:
    """Return a zone file of ``example.``"""
    lines = [odd_lines(rng) for _ in range(rng.randint(1, 12))]
    if rng.random() < 0.1:
        rng.shuffle(lines)
        text = "".join(lines)
    else:
        text = HEAD + "".join(lines)
    data = b"".join(bytes([ord(c)]) if 0x80 <= ord(c) < 0x100 and rng.random() < 0.5 else c.encode() for c in text)
    if rng.random() < 0.15:
        data = data.upper()
    if rng.random() < 0.1:
        data = data.replace(b"\n", b"\r\n")
    if rng.random() < 0.1:
        data = data.rstrip()
    if rng.random() < 0.1:
        at = rng.randrange(len(data))
        data = data[:at] + bytes((rng.randrange(256),)) + data[at + rng.randint(0, 1) :]
    return data


def loadable_zone(rng: random.Random) -> bytes:
    """Return a zone file without the lines that its reader rejects."""
    data = odd_zone(rng)
    for _ in range(ROUNDS):
        reader = MasterFileReader(ORIGIN, Locations())
        reader.read(FileState("zone", ORIGIN, ORIGIN), data)
        if not reader.refused:
            break
        refused = {error.line for error in reader.refused}
        lines = enumerate(_LINE.findall(data), 1)
        data = b"".join(line for number, line in lines if number not in refused)
    try:
        read_master_file("zone", data, ORIGIN)
    except ZoneError:  # it lacks its head, or its chain is not complete
        return HEAD.encode()
    return data


def odd_lines(rng: random.Random) -> str:
    """Return the lines of one owner, a directive, or lines without records."""
    if rng.random() < 0.12:
        return _pick(rng, "directives") + _end(rng)
    owner, text = rng.choice(OWNERS), _pick(rng, "between")
    for _ in range(rng.choice((1, 1, 2, 3))):
        words = [_pick(rng, "ttls"), _pick(rng, "classes")]
        if rng.random() < 0.6:
            words = rng.choice((["", "IN"], ["", ""], ["60", "IN"]))
        rng.shuffle(words)
        rdata = odd_naptr(rng) if rng.random() < 0.4 else rng.choice(RDATA)
        shown = owner if rng.random() < 0.7 else ""
        text += _spaced(rng, [shown, *filter(None, words), *rdata.split(" ")]) + _end(rng) + _pick(rng, "between")
    return text


def odd_naptr(rng: random.Random) -> str:
    """Return a NAPTR record, usually one of the two forms of a NAAN."""
    kind = rng.random()
    order, preference = rng.choice(_PARTS["numbers"][: 3 if kind < 0.7 else None]), rng.choice(_PARTS["numbers"][:3])
    if kind < 0.35:
        rule = f'"u" "ark" "!{rng.choice(PATTERNS[:3])}!{rng.choice(URLS)}!" .'
    elif kind < 0.7:
        rule = f'"h" "ark" "" {rng.choice(HOSTS)}'
    else:
        mark = rng.choice("!!!#i")
        regexp = f'"{mark}{rng.choice(PATTERNS)}{mark}{rng.choice(URLS)}{mark}{rng.choice(("", "", "i", "x"))}"'
        end = rng.choice((".", ".", *HOSTS))
        flags, service = _pick(rng, "flags"), _pick(rng, "services")
        rule = f"{flags} {service} {rng.choice((regexp, regexp, chr(34) * 2))} {end}"
    return f"{rng.choice(('NAPTR', 'NAPTR', 'NAPTR', 'naptr', 'Naptr', 'TYPE35'))} {order} {preference} {rule}"


def _pick(rng: random.Random, part: str) -> str:
    return str(rng.choice(_PARTS[part]))


def _spaced(rng: random.Random, words: Sequence[str]) -> str:
    gap = _pick(rng, "gaps") if rng.random() < 0.8 else ""
    return "".join([word + (gap or _pick(rng, "gaps")) for word in words[:-1]]) + words[-1]


def _end(rng: random.Random) -> str:
    return _pick(rng, "ends") if rng.random() < 0.6 else "\n"


# ---- reading them in both ways


class NoPlainLines(PlainLines):
    """A reader that leaves every line to the tokenizer."""

    def groups(self, data: bytes, at: int, number: int, origin: object, owner: object) -> Iterator[LineGroup]:
        self.at, self.number, self.owner = at, number, None
        return iter(())


def outcome(data: bytes, locations: Locations | None, path: Path) -> object:
    """Return everything read from a zone file: the zone, or the error; and the findings with their lines."""
    try:
        zone = read_zone_file(str(path), data, ORIGIN, locations)
    except ZoneError as error:
        found: object = str(error), error.filename, error.line, error.owner, error.code
    else:
        found = {**zone.view.nodes.table}, {**zone.view.nodes.spelled}, {*zone.view.nodes.special}, zone.view[:2]
    return found, locations and [*map(str, locations.findings)]


def assert_read_alike(data: bytes, path: Path = Path("zone")) -> None:
    """Assert that a zone file is read as by the tokenizer alone, for the server and for the checks."""
    for with_locations in (False, True):
        read = outcome(data, Locations() if with_locations else None, path)
        with mock.patch("maptr.zone.masterfile.PlainLines", NoPlainLines):
            assert read == outcome(data, Locations() if with_locations else None, path), data.decode("latin-1")
