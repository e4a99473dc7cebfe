r"""NAPTR records for a table's entries, in their order.

    12345 IN NAPTR   9 10 "u" "ark" "!^ark:/?12345/(x6.*)$!https://x6.example/ark:/12345/\\1!" .
    12345 IN NAPTR  10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://h.example:8443/p/ark:/12345/\\1!" .
    12345 IN NAPTR 100 10 "h" "ark" "" h.example\0588443.

A ``u`` rule has the whole target. An ``h`` record has host and port, for clients that know only ``h``. Only NAANs have
``h`` records, because an ``h`` record cannot distinguish shoulders.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from maptr import url
from maptr.errors import ZoneError
from maptr.naptr.record import MAX_STRING, SERVICE, Naptr
from maptr.naptr.regexp import escape
from maptr.protocol import names
from maptr.protocol.names import ARK_ARPA, Labels
from maptr.registry.table import Entry, Nma
from maptr.registry.target import example_url, replacement_parts

ORDER_NAAN = 10  # of the u rules of a NAAN; the rules of shoulders precede them, longest shoulder first
ORDER_HOST = 100  # of h records, the fallback
PREFERENCE_STEP = 10  # between the NMAs of one entry, in the order of the registry
MAX_RECORDS = 100
"""NAPTR records of one name: BIND's max-records-per-type since 9.18.28. They have at most 54,000 bytes, which leaves
room for signatures, OPT and TSIG in a response."""
MAX_NESTED = 16  # groups that one ARK may be redirected to; a walk has at most 32 questions
MAX_HEX = 60  # digits of a label

_DELIMITERS = "!#~,;@%&=<"  # no pattern or URL has the last one
_LABEL = re.compile(r"[a-z0-9]+\Z")


class Layout(NamedTuple):
    """The records of a NAAN in a zone, each with its owner, and the shoulders that do not fit."""

    records: tuple[tuple[Labels, Naptr], ...]
    left_out: tuple[Entry, ...] = ()


def lay_out(entry: Entry, shoulders: Sequence[Entry], origin: Labels) -> Layout:
    """Return the records of a NAAN in a zone. ``unwritable`` must be None for every NMA.

    The owner is the NAAN. If the rule of a shoulder would be too long, the NAAN has a redirect to the shoulder's own
    name, where a shorter rule need not match NAAN and shoulder.

    A name has at most MAX_RECORDS records. While the NAAN has more, the largest group of shoulders that begin with the
    same text, and that fits there, moves to a separate name, to which one redirect leads. The redirect has the order of
    the group's shortest shoulder, so that candidates keep their order: of two shoulders of one ARK, the longer one is
    in the same group, or in one that moved earlier, from within the other.

    If that is not enough, only the NAAN's first host keeps an ``h`` record, and then the shoulders with the most
    records are left out. The NAAN never is.
    """
    root = (entry.naan.encode(), *origin)
    ordered, host_order = _orders(entry, shoulders)
    is_short = any(len(regexp(entry, nma)) > MAX_STRING for nma in entry.nmas)
    own, hosts = [*_url_rules(entry, ordered[-1][1], short=is_short)], [*_host_rules(entry, host_order)]
    items = [_Item.of(one, order) for one, order in ordered[:-1]]
    room = MAX_RECORDS - len(own) - len(hosts)
    if sum(item.count for item in items) > room:
        room = MAX_RECORDS - len(own) - min(1, len(hosts))
    groups = _groups(items, room, origin)
    moved = {item for group in groups for item in group.items}
    staying = [item for item in items if item not in moved]
    used = len(groups) + sum(item.count for item in staying)
    left_out = set()
    for item in sorted(staying, key=lambda item: (-item.count, item.entry.shoulder)):
        if used > room:
            left_out.add(item)
            used -= item.count
    records: list[tuple[Labels, Naptr]] = []
    for item in staying:
        records += item.records(root, origin) if item not in left_out else ()
    records += [(root, group.redirect) for group in groups]
    records += [(root, naptr) for naptr in own]
    records += [(root, naptr) for naptr in hosts[: max(1, MAX_RECORDS - used - len(own))]]
    for group in groups:
        for item in group.items:
            records += item.records(group.name, origin)
    return Layout(tuple(records), tuple(item.entry for item in staying if item in left_out))


def records_by_name(entry: Entry, shoulders: Sequence[Entry], origin: Labels) -> Iterator[tuple[Labels, Naptr]]:
    """Yield the records of a NAAN in a zone, each with its owner, as ``lay_out`` arranges them."""
    yield from lay_out(entry, shoulders, origin).records


@dataclass(frozen=True, slots=True, eq=False)
class _Item:
    """A shoulder that needs rules, and their order.

    ``is_short``: it has its own name, because a rule would be too long. ``count`` is the number of records at the name
    that has its rules, or the redirect to them.
    """

    entry: Entry
    order: int
    is_short: bool
    count: int

    @classmethod
    def of(cls, entry: Entry, order: int) -> _Item:
        is_short = any(len(regexp(entry, nma)) > MAX_STRING for nma in entry.nmas)
        return cls(entry, order, is_short, 1 if is_short else len(entry.nmas))

    def records(self, name: Labels, origin: Labels) -> Iterator[tuple[Labels, Naptr]]:
        if not self.is_short:
            yield from ((name, naptr) for naptr in _url_rules(self.entry, self.order))
            return
        own = _own_name(self.entry, origin)
        yield name, Naptr(self.order, PREFERENCE_STEP, b"", SERVICE, _redirect(self.entry, own), ())
        yield from ((own, naptr) for naptr in _url_rules(self.entry, ORDER_NAAN, short=True))


@dataclass(frozen=True, slots=True)
class _Group:
    """Shoulders that share a name, made from the text with which they begin, and the redirect to it."""

    items: tuple[_Item, ...]
    name: Labels
    redirect: Naptr


def _groups(items: Sequence[_Item], room: int, origin: Labels) -> list[_Group]:
    """Return the groups that move, so that redirects and the other shoulders have ``room`` records, or a few more."""
    counts: Counter[str] = Counter()
    for item in items:
        for prefix in _prefixes(item):
            counts[prefix] += item.count
    left, excess = list(items), sum(item.count for item in items) - room
    groups: list[_Group] = []
    depths: dict[str, int] = {}  # of the groups by their text: how many redirects lead an ARK of the innermost one
    while excess > 0 and len(groups) < room:
        sizes = ((count, len(prefix), prefix) for prefix, count in counts.items() if 1 < count <= MAX_RECORDS)
        _, _, text = max(sizes, default=(0, 0, ""))
        if not text:
            break
        depth = 1 + max((depth for inner, depth in depths.items() if inner.startswith(text)), default=0)
        chosen = tuple(item for item in left if item.entry.shoulder.startswith(text))
        group = _group(text, chosen, origin) if depth <= MAX_NESTED else None
        if group is None:
            del counts[text]
            continue
        excess -= counts[text] - 1
        depths[text] = depth
        groups.append(group)
        left = [item for item in left if not item.entry.shoulder.startswith(text)]
        for item in chosen:
            for prefix in _prefixes(item):
                counts[prefix] -= item.count
    return groups


def _prefixes(item: _Item) -> list[str]:
    return [item.entry.shoulder[:end] for end in range(1, len(item.entry.shoulder) + 1)]


def _group(text: str, items: tuple[_Item, ...], origin: Labels) -> _Group | None:
    """Return the group of the shoulders that begin with a text; None if DNS cannot hold its name or redirect.

    The name cannot be that of a shoulder, which has no letter after ``_`` but a to f.
    """
    naan, digits = items[0].entry.naan, text.encode().hex()
    labels = [digits[at : at + MAX_HEX].encode() for at in range(0, len(digits), MAX_HEX)]
    try:
        name = names.check((b"_p" + labels[0], *labels[1:], naan.encode(), *origin))
    except ValueError:
        return None
    pattern = _redirect(Entry(naan, text), name)
    order = max(item.order for item in items)
    redirect = Naptr(order, PREFERENCE_STEP, b"", SERVICE, pattern, ())
    return _Group(items, name, redirect) if len(pattern) <= MAX_STRING else None


def unwritable(entry: Entry, nma: Nma, origin: Labels = ARK_ARPA) -> str | None:
    """Return the reason if no zone can hold the rule of an NMA that clients can use."""
    length = len(regexp(entry, nma))
    if length <= MAX_STRING:
        return None
    fits = len(regexp(entry, nma, short=True)) <= MAX_STRING
    if fits and entry.shoulder:
        try:
            fits = len(_redirect(entry, names.check(_own_name(entry, origin)))) <= MAX_STRING
        except ValueError:
            fits = False
    return None if fits else f"its rule has {length} bytes, {MAX_STRING} at most: {nma.target}"


def _orders(entry: Entry, shoulders: Sequence[Entry]) -> tuple[list[tuple[Entry, int]], int]:
    """Return the entries that need ``u`` rules, each with its order, and the order of the ``h`` records."""
    needed = needed_shoulders(entry, shoulders)
    lengths = sorted({len(one.shoulder) for one in needed}, reverse=True)
    naan_order = max(ORDER_NAAN, len(lengths) + 1)
    ordered = [(one, naan_order - len(lengths) + lengths.index(len(one.shoulder))) for one in needed]
    return [*ordered, (entry, naan_order)], max(ORDER_HOST, naan_order + 1)


def _own_name(entry: Entry, origin: Labels) -> Labels:
    """Return the name of a shoulder's own rules, below its NAAN.

    DNS names are case-insensitive and shoulders are not, so a shoulder with a capital is written in hexadecimal.
    """
    shoulder = entry.shoulder.encode()
    label = shoulder if _LABEL.match(entry.shoulder) else b"_" + shoulder.hex().encode()
    return label, entry.naan.encode(), *origin


def _redirect(entry: Entry, name: Labels) -> bytes:
    """Return the regexp that redirects the ARKs of a shoulder to a name."""
    return _field(f"^ark:/?{entry.naan}/{escape(entry.shoulder)}.*$", _literal(names.to_text(name)), entry)


def needed_shoulders(entry: Entry, shoulders: Iterable[Entry]) -> list[Entry]:
    """Return the shoulders whose targets differ from those that their ARKs would inherit.

    ARKs inherit the targets of the longest needed shoulder that is a prefix of theirs, or else of the NAAN.
    """
    needed = {"": entry}
    for shoulder in sorted(shoulders, key=lambda s: len(s.shoulder)):
        text = shoulder.shoulder
        inherited = next(needed[text[:end]] for end in range(len(text) - 1, -1, -1) if text[:end] in needed)
        if _meanings(shoulder, text) != _meanings(inherited, text):
            needed[text] = shoulder
    del needed[""]
    return sorted(needed.values(), key=lambda s: (-len(s.shoulder), s.shoulder))


def _meanings(entry: Entry, shoulder: str) -> list[str]:
    """Rewrite the targets of an entry for the ARKs of a shoulder, so that equal targets are equal texts."""
    rest = shoulder[len(entry.shoulder) :]
    return [nma.target.replace("${suffix}", rest + "${suffix}") for nma in entry.nmas]


def regexp(entry: Entry, nma: Nma, *, short: bool = False) -> bytes:
    """Return the ``u`` regexp that turns an ARK of the entry, in resolution form, into the NMA's URL.

    ``short`` is for a name at which only ARKs of the entry are looked up, so that the regexp need not match the start
    of the ARK. Raises ZoneError for a target with a variable that no ARK has.
    """
    try:
        groups, parts = replacement_parts(nma.target, entry.naan, short=short)
    except ValueError as error:
        raise ZoneError(f"record {entry.key}: {error}") from None
    levels = (("pid", "ark:/?"), ("content", f"{entry.naan}/"), ("value", escape(entry.shoulder)), ("suffix", ""))
    pattern, opened = "", 0
    for name, text in levels:
        if name in groups:
            pattern, opened = f"{pattern}(", opened + 1
        if short and opened == len(groups):
            break
        pattern += text
    replacement = "".join(f"\\{part}" if isinstance(part, int) else _literal(part) for part in parts)
    return _field(f"^{pattern}.*{')' * len(groups)}$", replacement, entry)


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\")


def _field(pattern: str, replacement: str, entry: Entry) -> bytes:
    delimiter = next((mark for mark in _DELIMITERS if mark not in pattern + replacement), None)
    if delimiter is None:
        raise ZoneError(f"record {entry.key}: the target leaves no character to delimit a regexp with")
    try:
        return f"{delimiter}{pattern}{delimiter}{replacement}{delimiter}".encode("ascii")
    except UnicodeEncodeError:
        raise ZoneError(f"record {entry.key}: the target is not ASCII") from None


def _url_rules(entry: Entry, order: int, *, short: bool = False) -> Iterator[Naptr]:
    for index, nma in enumerate(entry.nmas, 1):
        yield Naptr(order, index * PREFERENCE_STEP, b"u", SERVICE, regexp(entry, nma, short=short), ())


def _host_rules(entry: Entry, order: int) -> Iterator[Naptr]:
    seen: set[Labels] = set()
    for nma in entry.nmas:
        labels = host_labels(nma)
        if labels and labels not in seen:
            seen.add(labels)
            yield Naptr(order, len(seen) * PREFERENCE_STEP, b"h", SERVICE, b"", labels)


def host_labels(nma: Nma) -> Labels:
    """Return the host of a target as an ``h`` replacement, with the port in its last label; empty if none can be made.

    An IPv6 address is not a domain name. Port 80 means http: http targets without a port have it, https cannot have it.
    """
    try:
        where = url.parse(example_url(nma.target))
    except ValueError:
        return ()
    port = 80 if where.scheme == "http" and where.port is None else where.port
    if (where.host.address is not None and where.host.address.version == 6) or (where.scheme, port) == ("https", 80):
        return ()
    labels = where.host.text.removesuffix(".").lower().encode("ascii").split(b".")
    if port is not None:
        labels[-1] += b":%d" % port
    return names.check(tuple(labels))
