r"""NAPTR records of the entries of a table, in their order.

    12345 IN NAPTR   9 10 "u" "ark" "!^ark:/?12345/(x6.*)$!https://x6.example/ark:/12345/\\1!" .
    12345 IN NAPTR  10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://h.example:8443/p/ark:/12345/\\1!" .
    12345 IN NAPTR 100 10 "h" "ark" "" h.example\0588443.

A ``u`` rule has the whole target. An ``h`` record has host and port, for clients that know only ``h``. Only NAANs have
``h`` records, because an ``h`` record cannot distinguish shoulders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

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

_DELIMITERS = "!#~,;@%&=<"  # no pattern or URL has the last one
_LABEL = re.compile(r"[a-z0-9]+\Z")


def records_by_name(entry: Entry, shoulders: Sequence[Entry], origin: Labels) -> Iterator[tuple[Labels, Naptr]]:
    """Yield the records of a NAAN in a zone, each with its owner.

    The owner is the NAAN. If the rule of a shoulder would be too long, the NAAN has a redirect to a name of the
    shoulder, where a shorter rule need not match NAAN and shoulder. ``unwritable`` must be None for every NMA.
    """
    root = (entry.naan.encode(), *origin)
    ordered, host_order = _orders(entry, shoulders)
    for one, order in ordered:
        short = any(len(regexp(one, nma)) > MAX_STRING for nma in one.nmas)
        name = root
        if short and one.shoulder:
            name = _own_name(one, origin)
            yield root, Naptr(order, PREFERENCE_STEP, b"", SERVICE, _redirect(one, name), ())
            order = ORDER_NAAN
        yield from ((name, naptr) for naptr in _url_rules(one, order, short=short))
    yield from ((root, naptr) for naptr in _host_rules(entry, host_order))


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
