r"""Zone files read in one pass into the packed form: for files that need no tokenizer, and large ones.

``read_plain`` gives None for whatever it is not sure about, in form or content: parentheses, comments, capitals in
owners, rare types, relative times, a second record of a kind that stands alone. Then dnspython reads the file, and
says what is wrong with it if anything is. What is read here is what dnspython reads, by a test over random zones.

Most of a large zone are *blocks*: lines that stand together, have one owner, a NAAN right below the origin, and say
what ``rules.py`` writes::

    12345 IN NAPTR 10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://h.example/ark:/12345/\\1!" .
    12345 IN NAPTR 100 10 "h" "ark" "" h.example.
    12345 IN TXT "who=Example"

One expression finds them all, and what it matches is right: each line is a record of the zone, and no check of
``integrity`` or ``rulecheck`` finds anything in it, which a test holds it to. So a block is kept as text, and packed
when it is asked for. All else is read line by line.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import NamedTuple

from maptr.protocol.names import Labels, from_wire, to_text, to_wire, wire_length
from maptr.protocol.numbers import CNAME, DNAME, NAPTR, NS, NSEC, RRSIG, SOA
from maptr.zone.masterline import BlockPacker, LineError, LineReader
from maptr.zone.packed import PackedNodes, special_names, view_packed
from maptr.zone.packing import RECORD, pack_records, types_of
from maptr.zone.snapshot import ZoneView

# What needs a real tokenizer wherever it stands: tabs and other controls, octets beyond ASCII.
_PRINTABLE = bytes(range(0x20, 0x7F)) + b"\n"
# Text is longer than what it says. So no string or name in a line is too long, for each line has 11 characters beside
# it; and no reply of a block is large, nor has it too many records (``rulecheck``).
MAX_LINE = 255 + 9
MAX_BLOCK = 900
MAX_ORIGIN = 190  # octets, so that no name of a block is too long

# No repeat can take what another could, so a match takes linear time. How long a line is, is looked at afterwards.
_NAAN = r"[0-9bcdfghjkmnpqrstvwxz]{1,63}+"
_LABEL = r"[a-z0-9_][a-z0-9_-]{0,62}+(?<!-)\.(?=[a-z0-9_])"
# Not possessive: before Python 3.11.5 such a group does not match what it should (CPython issue 106052).
_HOST = rf"(?:{_LABEL}){{1,8}}[a-z]{{2,58}}(?<!\blocalhost)"
_PORT = r"[1-9]\d{0,3}"
_PATH = r"[A-Za-z0-9_./:?=&~%+-]*"
_NUMBERS = r"\d{1,4} \d{1,4}"
_URL_RULE = (
    rf'NAPTR {_NUMBERS} "u" "ark" "!\^ark:/\?\2/[a-z0-9]*\([a-z0-9]*\.\*\)\$!'
    rf'https?://{_HOST}(?::{_PORT})?/{_PATH}(?:\\\\1{_PATH})?!" \.'
)
# Not below the zone: that would lead from name to name.
_HOST_RULE = rf'NAPTR {_NUMBERS} "h" "ark" "" {_HOST}(?:\\058{_PORT})?\.(?<!\bORIGIN)'
_TEXT = r'TXT "[^"\\\n]*(?:\\(?:[01]\d\d|2[0-4]\d|25[0-5]|["\\])[^"\\\n]*)*"'
_RECORD = rf"IN (?:{_HOST_RULE}|{_URL_RULE}|{_TEXT})"
_BLOCK = rf"^(({_NAAN}) {_RECORD}(?:\n\2 {_RECORD})*)$"

_CNAME = CNAME.to_bytes(2, "big")
_RRSIG = RRSIG.to_bytes(2, "big")
_BESIDE_ALIAS = (_RRSIG, NSEC.to_bytes(2, "big"))  # RFC 4034 3 and 4
_ALONE = (SOA.to_bytes(2, "big"), _CNAME, DNAME.to_bytes(2, "big"))


class Plain(NamedTuple):
    """A zone that was read. Only ``doubtful`` names need a look at what their NAPTR records say, and only where there
    are odd replacements (relative, or with a colon as it is) how the text writes them."""

    view: ZoneView
    doubtful: frozenset[Labels]
    has_odd_replacements: bool


def read_plain(octets: bytes, origin: Labels) -> Plain | None:
    """The zone in a plain file, or None for dnspython to read it, good or bad. ``origin`` is folded."""
    if octets.translate(None, _PRINTABLE) or b"\xff" in b"".join(origin) or wire_length(origin) > MAX_ORIGIN:
        return None
    try:
        return _Reader(origin).read(octets)
    except LineError:
        return None


class _Reader:
    """One file. Any LineError means that it is for dnspython."""

    def __init__(self, origin: Labels) -> None:
        self._zone = origin
        self._apex = to_wire(origin)

    def read(self, octets: bytes) -> Plain:
        head, *parts = self._expression().split(octets)
        blocks, owners, rests = parts[::3], parts[1::3], parts[2::3]
        between = [rest for rest in rests if rest != b"\n"]
        lines = self._lines(head)
        if blocks and not (lines.is_at_zone and lines.ttl is not None and not any(b"\n$" in rest for rest in between)):
            head, blocks, owners, rests, between = octets, [], [], [], []
            lines = self._lines(head)
        for rest in between:
            lines.read(rest)
        keys = self._keys(owners)
        texts = dict(zip(keys, blocks, strict=True))
        if apart := _apart(keys, blocks, texts, lines):
            # Names whose lines do not all stand together are read like all else, in the order of the file.
            texts = {key: block for key, block in texts.items() if key not in apart}
            lines = self._lines(head)
            for key, block, rest in zip(keys, blocks, rests, strict=True):
                if key in apart:
                    lines.read(block)
                lines.read(rest)
        return self._finish(lines, texts)

    def _lines(self, octets: bytes) -> LineReader:
        lines = LineReader(self._zone)
        lines.read(octets)
        return lines

    def _keys(self, owners: list[bytes]) -> list[bytes]:
        """The wire names. Those of neighbours as long as each other are made at once, for that takes half the time."""
        keys: list[bytes] = []
        for size, some in itertools.groupby(owners, len):
            length = bytes((size,))
            # No name has the octet 255 here, see ``read_plain``.
            keys += (length + (self._apex + b"\xff" + length).join(some) + self._apex).split(b"\xff")
        return keys

    def _expression(self) -> re.Pattern[bytes]:
        """Splits a file into what no block is, a block, its owner, and so on."""
        return re.compile(_BLOCK.replace("ORIGIN", re.escape(to_text(self._zone))).encode(), re.MULTILINE)

    def _finish(self, lines: LineReader, texts: dict[bytes, bytes]) -> Plain:
        table = {name: _pack_apart(records) for name, records in lines.records.items()}
        types = {name: types_of(packed) for name, packed in table.items()}
        if not {SOA, NS} <= set(types.get(self._apex, ())):
            raise LineError("no SOA or no NS at the origin")
        own = len(self._apex)
        for name in list(table):
            at = name[0] + 1
            while len(name) - at > own:
                if name[at:] not in texts:
                    table.setdefault(name[at:], b"")
                at += name[at] + 1
        special = list(special_names(table))  # wildcards that are empty non-terminals (RFC 4592 2.2.2) among them
        texts.update(table)
        packer = None if lines.ttl is None else BlockPacker(self._zone, lines.ttl)
        nodes = PackedNodes(texts, {}, special, packer)
        cuts = [from_wire(name) for name, found in types.items() if NS in found and name != self._apex]
        doubtful = frozenset(from_wire(name) for name, found in types.items() if NAPTR in found)
        return Plain(view_packed(self._zone, nodes, cuts), doubtful, lines.has_odd_replacements)


def _apart(keys: list[bytes], blocks: list[bytes], texts: dict[bytes, bytes], lines: LineReader) -> set[bytes]:
    """The names whose block is not all there is of them, or is long."""
    apart = {key for key in lines.records if key in texts}
    if len(texts) < len(keys):
        apart.update(key for key, count in Counter(keys).items() if count > 1)
    long = [block for block in blocks if len(block) > MAX_LINE]
    if max(map(len, b"\n".join(long).split(b"\n"))) > MAX_LINE or max(map(len, long), default=0) > MAX_BLOCK:
        apart.update(key for key, block in zip(keys, blocks, strict=True) if _is_long(block))
    return apart


def _is_long(block: bytes) -> bool:
    return len(block) > MAX_BLOCK or max(map(len, block.split(b"\n"))) > MAX_LINE


def _pack_apart(records: list[bytes]) -> bytes:
    """A node of records read one by one. Raises LineError."""
    if len({record.lower() for record in records}) < len(records):
        raise LineError("a record twice, or a name in it twice, but for its case")
    types = [record[2:4] for record in records]
    if _RRSIG in types:
        records, types = _pack_signatures(records), [rdtype for rdtype in types if rdtype not in _BESIDE_ALIAS]
    if _CNAME in types and len(types) > 1:
        raise LineError("data beside a CNAME")
    if len(types) > len(set(types)) and any(types.count(rdtype) > 1 for rdtype in _ALONE):
        raise LineError("two of one")
    if len({(record[2:4], record[6:10]) for record in records}) > len({record[2:4] for record in records}):
        raise LineError("two TTLs in one RRset")
    return pack_records(records)


def _pack_signatures(records: list[bytes]) -> list[bytes]:
    """The same records, the signatures after the others, by what they cover: all have the least TTL, for in a packed
    table they are one RRset. Raises LineError for one whose TTL is not that of what it covers (RFC 4034 3)."""
    size = RECORD.size
    ttls = {record[2:4]: record[6:10] for record in records if record[2:4] != _RRSIG}
    signatures: dict[bytes, list[bytes]] = {}
    for record in records:
        if record[2:4] == _RRSIG:
            covered = record[size : size + 2]
            if ttls.get(covered) != record[6:10]:
                raise LineError("a signature of nothing, or of another TTL")
            signatures.setdefault(covered, []).append(record)
    least = min(ttls[covered] for covered in signatures)
    others = [record for record in records if record[2:4] != _RRSIG]
    return others + [record[:6] + least + record[10:] for some in signatures.values() for record in some]
