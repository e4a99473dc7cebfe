r"""Reader of zone files: blocks by itself, all other lines by ``masterfile.py``.

A *block* has the lines of one NAAN directly below the origin, as ``rules.py`` writes them::

    12345 IN NAPTR 10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://h.example/ark:/12345/\\1!" .
    12345 IN NAPTR 100 10 "h" "ark" "" h.example.
    12345 IN TXT "who=Example"

One regular expression finds all blocks of a file. It matches only records in which ``check.py`` finds nothing, so the
text of a block can stay as it is until its name is read for the first time. ``masterfile.py`` reads the whole of a file
that has an error, because it says where, or a finding.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple

from maptr.errors import ZoneError
from maptr.protocol.names import Labels, from_wire, to_text, to_wire, wire_length
from maptr.protocol.numbers import NAPTR, NS, SOA
from maptr.zone.masterfile import FileState, MasterFileReader, read_master_file
from maptr.zone.rdata import PLAIN
from maptr.zone.rrset import pack_record, pack_records, types_of
from maptr.zone.snapshot import PackedNodes, ZoneView

_PRINTABLE = bytes(range(0x20, 0x7F)) + b"\n"
# Bytes of a line and of a block. Text is longer than its wire format, and a line has 11 characters besides its longest
# name or string, so these limits keep each name, string and response within the limits that ``check.py`` checks.
MAX_LINE = 255 + 9
MAX_BLOCK = 900
MAX_ORIGIN = 190  # bytes of the origin in wire format, so that no name of a block is too long

# A part never matches text that the next part could match, so matching takes linear time. Lengths are checked later.
_NAAN = r"[0-9bcdfghjkmnpqrstvwxz]{1,63}+"
_LABEL = r"[a-z0-9_][a-z0-9_-]{0,62}+(?<!-)\.(?=[a-z0-9_])"
# Not possessive: possessive groups match too little before Python 3.11.5 (CPython issue 106052).
_HOST = rf"(?:{_LABEL}){{1,8}}[a-z]{{2,58}}(?<!\blocalhost)"
_PORT = r"[1-9]\d{0,3}"
_PATH = r"[A-Za-z0-9_./:?=&~%+-]*"
_TWO_NUMBERS = r"\d{1,4} \d{1,4}"
_URL_RULE = (
    rf'NAPTR {_TWO_NUMBERS} "u" "ark" "!\^ark:/\?\2/[a-z0-9]*\([a-z0-9]*\.\*\)\$!'
    rf'https?://{_HOST}(?::{_PORT})?/{_PATH}(?:\\\\1{_PATH})?!" \.'
)
_HOST_RULE = rf'NAPTR {_TWO_NUMBERS} "h" "ark" "" {_HOST}(?:\\058{_PORT})?\.'
_TEXT_RECORD = r'TXT "[^"\\\n]*(?:\\(?:[01]\d\d|2[0-4]\d|25[0-5]|["\\])[^"\\\n]*)*"'
_RECORD = rf"IN (?:{_HOST_RULE}|{_URL_RULE}|{_TEXT_RECORD})"
_BLOCK = rf"^(({_NAAN}) {_RECORD}(?:\n\2 {_RECORD})*)$"

_BYTES = [bytes((value,)) for value in range(256)]


class ZoneFile(NamedTuple):
    """A zone that was read from a file. ``doubtful`` are the names whose NAPTR records to check; None: all."""

    view: ZoneView
    doubtful: frozenset[Labels] | None = None


def read_zone_file(data: bytes, origin: Labels, path: Path) -> ZoneFile:
    """Read the zone in the content of a file. ``origin`` is folded.

    Raises ZoneError with file and line, also for records outside the zone and for an unreadable included file.
    """
    return read_blocks(data, origin) or ZoneFile(read_master_file(str(path), data, origin))


def read_blocks(data: bytes, origin: Labels) -> ZoneFile | None:
    """Read the zone in a file with blocks. ``origin`` is folded.

    Returns None for a file that has none, a finding in its text, an error, or another file to include.
    """
    if data.translate(None, _PRINTABLE) or wire_length(origin) > MAX_ORIGIN:
        return None
    head, *parts = re.compile(_BLOCK.encode(), re.MULTILINE).split(data)
    blocks, owners, rests = parts[::3], parts[1::3], parts[2::3]
    if not blocks:
        return None
    reader = MasterFileReader(origin, may_include=False)
    file = FileState("", origin, origin)
    reader.read(file, head)
    ttl = reader.default_ttl
    others = [*(rest for rest in rests[:-1] if rest != b"\n"), rests[-1]]
    # A directive after the last block does not apply to any block. The owner of an indented line is in a block.
    if (
        ttl is None
        or file.origin != origin
        or any(b"\n$" in rest for rest in others[:-1])
        or b"\n " in b"".join(others)
    ):
        return None
    for rest in others:
        reader.read(file, rest)
    apex = to_wire(origin)
    keys = [_BYTES[len(owner)] + owner + apex for owner in owners]
    nodes = dict(zip(keys, blocks, strict=True))
    line_by_line = nodes.keys() & {to_wire(name) for name in reader.nodes}
    if len(nodes) < len(keys):
        line_by_line.update(key for key, count in Counter(keys).items() if count > 1)
    inside = to_text(origin).encode()  # a host below the origin may be another name of the zone
    for key, text in zip(keys, blocks, strict=True):
        is_long = len(text) > MAX_LINE and (len(text) > MAX_BLOCK or max(map(len, text.split(b"\n"))) > MAX_LINE)
        if is_long or inside in text:
            line_by_line.add(key)
    reader.default_ttl = ttl
    for key, text in zip(keys, blocks, strict=True) if line_by_line else ():
        if key in line_by_line:
            reader.read(FileState("", origin, origin), text + b"\n")
    if reader.findings or not {SOA, NS} <= reader.nodes.get(origin, {}).keys():
        return None
    found = PackedNodes.pack(reader.records())
    doubtful = frozenset(from_wire(name) for name, value in found.table.items() if NAPTR in types_of(value))
    nodes.update((name, value) for name, value in found.table.items() if value or name not in nodes)
    packed = PackedNodes(nodes, found.spelled, found.special, partial(_pack, ttl=ttl), ttl)
    try:
        return ZoneFile(ZoneView.of(origin, packed), doubtful)
    except ZoneError:
        return None


def _pack(block: bytes, ttl: int) -> bytes:
    """Pack the records of a block. Equal records are one (RFC 2181 5)."""
    records: dict[bytes, None] = {}
    for line in block.decode("ascii").split("\n"):
        _, _, kind, text = line.split(" ", 3)
        rdtype, read = PLAIN[kind]
        records[pack_record(rdtype, ttl, read(text, ()))] = None
    return pack_records(records)
