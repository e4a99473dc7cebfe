r"""Entries of the table as NAPTR records: what of a target can be said, and in which order.

    12345 IN NAPTR   9 10 "u" "ark" "!^ark:/?12345/(x6.*)$!https://x6.example/ark:/12345/\\1!" .
    12345 IN NAPTR  10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://h.example:8443/p/ark:/12345/\\1!" .
    12345 IN NAPTR 100 10 "h" "ark" "" h.example\0588443.

A ``u`` rule says the whole target. An ``h`` record says host and port for clients that know no more, and is there
for NAANs only, because ``h`` cannot tell shoulders apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from maptr import url
from maptr.errors import ZoneError
from maptr.naptr.record import MAX_STRING, SERVICE, Naptr
from maptr.naptr.regexp import escape
from maptr.protocol import names
from maptr.protocol.names import ARK_ARPA, Labels
from maptr.registry.table import Entry, Nma
from maptr.registry.target import example_url, template_parts

ORDER_NAAN = 10  # of a NAAN's u rules; shoulders come before, longest first
ORDER_HOST = 100  # of h records: the fallback
PREFERENCE_STEP = 10  # between the NMAs of one entry, in the registry's order

_DELIMITERS = "!#~,;@%&=<"  # the last stands neither in a pattern nor in a URL
_LABEL = re.compile(r"[a-z0-9]+\Z")


def records(entry: Entry, shoulders: Sequence[Entry] = ()) -> list[Naptr]:
    """All NAPTR records of a NAAN, at one name: rules of the shoulders that need one, its own rules, its hosts.

    A regexp may be longer than DNS can carry, for a table is asked by these records too; those of a zone are
    ``records_by_name``. Raises ZoneError, naming the record, where a target makes no rule.
    """
    return [naptr for made in _ordered(entry, shoulders) for naptr in made.rules()]


def records_by_name(entry: Entry, shoulders: Sequence[Entry], origin: Labels) -> Iterator[tuple[Labels, Naptr]]:
    """The records of a NAAN as a zone has them, each with its owner: all of them at the NAAN.

    But a shoulder whose rule would be too long has a redirect there, and at a name of its own the rule, which then
    need not match NAAN and shoulder. Every NMA is one for which ``unwritable`` is None.
    """
    root = (entry.naan.encode(), *origin)
    for made in _ordered(entry, shoulders):
        short = any(len(regexp(made.entry, nma)) > MAX_STRING for nma in made.entry.nmas)
        if not (short and made.entry.shoulder):
            yield from ((root, naptr) for naptr in made.rules(short=short))
            continue
        name = _own_name(made.entry, origin)
        yield root, Naptr(made.order, PREFERENCE_STEP, b"", SERVICE, _redirect(made.entry, name), ())
        yield from ((name, naptr) for naptr in made._replace(order=ORDER_NAAN).rules(short=True))


def unwritable(entry: Entry, nma: Nma, origin: Labels = ARK_ARPA) -> str | None:
    """Why no zone can hold the rule of an NMA that clients can use; None if one can."""
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


class _Ordered(NamedTuple):
    """An entry and the order of its rules."""

    entry: Entry
    order: int
    hosts: bool = False  # its h records, not its u rules

    def rules(self, *, short: bool = False) -> Iterator[Naptr]:
        if self.hosts:
            yield from _host_rules(self.entry, self.order)
            return
        for index, nma in enumerate(self.entry.nmas, 1):
            field = regexp(self.entry, nma, short=short)
            yield Naptr(self.order, index * PREFERENCE_STEP, b"u", SERVICE, field, ())


def _ordered(entry: Entry, shoulders: Sequence[Entry]) -> Iterator[_Ordered]:
    needed = needed_shoulders(entry, shoulders)
    lengths = sorted({len(shoulder.shoulder) for shoulder in needed}, reverse=True)
    naan_order = max(ORDER_NAAN, len(lengths) + 1)
    for shoulder in needed:
        yield _Ordered(shoulder, naan_order - len(lengths) + lengths.index(len(shoulder.shoulder)))
    yield _Ordered(entry, naan_order)
    yield _Ordered(entry, max(ORDER_HOST, naan_order + 1), hosts=True)


def _own_name(entry: Entry, origin: Labels) -> Labels:
    """Where the rules of a shoulder are that a redirect leads to: below its NAAN.

    DNS does not tell capitals from small letters, and shoulders do.
    """
    shoulder = entry.shoulder.encode()
    label = shoulder if _LABEL.match(entry.shoulder) else b"_" + shoulder.hex().encode()
    return label, entry.naan.encode(), *origin


def _redirect(entry: Entry, name: Labels) -> bytes:
    """The regexp that sends the ARKs of a shoulder to a name."""
    return _field(f"^ark:/?{entry.naan}/{escape(entry.shoulder)}.*$", _literal(names.to_text(name)), entry)


def needed_shoulders(entry: Entry, shoulders: Iterable[Entry]) -> list[Entry]:
    """The shoulders whose targets differ from what their ARKs would get without a rule of their own.

    That is the longest needed shoulder around them, else the NAAN.
    """
    needed: list[Entry] = []
    for shoulder in sorted(shoulders, key=lambda s: (len(s.shoulder), s.shoulder)):
        around = [outer for outer in needed if shoulder.shoulder.startswith(outer.shoulder)]
        inherited = around[-1] if around else entry
        if _meanings(shoulder, shoulder.shoulder) != _meanings(inherited, shoulder.shoulder):
            needed.append(shoulder)
    return sorted(needed, key=lambda s: (-len(s.shoulder), s.shoulder))


def _meanings(entry: Entry, shoulder: str) -> list[str]:
    """Targets with ``${suffix}`` said as what it means for ARKs of the shoulder: two texts alike act alike."""
    lost = shoulder[len(entry.shoulder) :]
    return [nma.target.replace("${suffix}", lost + "${suffix}") for nma in entry.nmas]


def regexp(entry: Entry, nma: Nma, *, short: bool = False) -> bytes:
    """The ``u`` regexp that turns an ARK of the entry, in resolution form, into the NMA's URL.

    ``short`` is for a name where no other ARK is looked up: what is not asked for need not be matched. Raises
    ZoneError where the target asks for what no ARK has.
    """
    parts = template_parts(nma.target)
    used = {variable for _, variable in parts if variable}
    if "content" in used and not short:  # the NAAN and the name
        used = used - {"content"} | {"value"}
    # Each variable is a part of the resolution form and all that follows it, so groups nest.
    levels = (("pid", "ark:/?"), ("content", f"{entry.naan}/"), ("value", escape(entry.shoulder)), ("suffix", ""))
    groups = [name for name, _ in levels if name in used]
    pattern, opened = "", 0
    for name, text in levels:
        if name in groups:
            pattern, opened = f"{pattern}(", opened + 1
        if short and opened == len(groups):
            break
        pattern += text
    replacement = ""
    for literal, variable in parts:
        replacement += _literal(literal)
        if variable in groups:
            replacement += f"\\{groups.index(variable) + 1}"
        elif variable == "content":
            replacement += f"{entry.naan}/\\{groups.index('value') + 1}"
        elif variable == "prefix":
            replacement += entry.naan
        elif variable:
            raise ZoneError(f"record {entry.key}: the target asks for ${{{variable}}}, which no ARK has")
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


def _host_rules(entry: Entry, order: int) -> Iterator[Naptr]:
    seen: set[Labels] = set()
    for nma in entry.nmas:
        labels = host_labels(nma)
        if labels and labels not in seen:
            seen.add(labels)
            yield Naptr(order, len(seen) * PREFERENCE_STEP, b"h", SERVICE, b"", labels)


def host_labels(nma: Nma) -> Labels:
    """The host of a target as an ``h`` replacement, a port in its last label; empty where there is none.

    An IPv6 address is no domain name, so it has none. Port 80 means http, and stands for it where the target has none;
    so a host that speaks https there cannot be said.
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
