r"""Entries of the table as NAPTR records: what of a target can be said, and in which order.

    12345 IN NAPTR   9 10 "u" "ark" "!^ark:/?12345/(x6.*)$!https://x6.example/ark:/12345/\\1!" .
    12345 IN NAPTR  10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://h.example:8443/p/ark:/12345/\\1!" .
    12345 IN NAPTR 100 10 "h" "ark" "" h.example\0588443.

A ``u`` rule says the whole target. An ``h`` record says host and port for clients that know no more, and is there
for NAANs only, because ``h`` cannot tell shoulders apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from maptr import names, url
from maptr.ere import RegexpError
from maptr.errors import ZoneError
from maptr.naptr import SERVICE, Naptr
from maptr.regexp import Substitution, escape
from maptr.table import Entry, Nma, example_url, template_parts

ORDER_NAAN = 10  # of a NAAN's u rules; shoulders come before, longest first
ORDER_HOST = 100  # of h records: the fallback
PREFERENCE_STEP = 10  # between the NMAs of one entry, in the registry's order

_DELIMITERS = "!#~,;@%&="


def records(entry: Entry, shoulders: Sequence[Entry] = ()) -> list[Naptr]:
    """All NAPTR records of a NAAN: rules of the shoulders that need one, its own rules, its hosts.

    Raises ZoneError, naming the record, where a target does not fit a rule.
    """
    needed = needed_shoulders(entry, shoulders)
    lengths = sorted({len(shoulder.shoulder) for shoulder in needed}, reverse=True)
    naan_order = max(ORDER_NAAN, len(lengths) + 1)
    made: list[Naptr] = []
    for shoulder in needed:
        made += _url_rules(shoulder, naan_order - len(lengths) + lengths.index(len(shoulder.shoulder)))
    made += _url_rules(entry, naan_order)
    made += _host_rules(entry, max(ORDER_HOST, naan_order + 1))
    return made


def fitting(entry: Entry, shoulders: Sequence[Entry], left_out: list[ZoneError]) -> list[Naptr]:
    """The rules of a NAAN; where one record fits none, the rules of the others, that one reported."""
    try:
        return records(entry, shoulders)
    except ZoneError:
        pass
    whole = _tried(entry, (), left_out)
    good = [shoulder for shoulder in shoulders if _tried(shoulder, (), left_out) is not None]
    return records(entry if whole is not None else Entry(entry.naan), good)


def _tried(entry: Entry, shoulders: Sequence[Entry], left_out: list[ZoneError]) -> list[Naptr] | None:
    try:
        return records(entry, shoulders)
    except ZoneError as error:
        left_out.append(error)
        return None


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


def regexp(entry: Entry, nma: Nma) -> bytes:
    """The ``u`` regexp that turns an ARK of the entry, in resolution form, into the NMA's URL.

    Raises ZoneError where the target asks for what no ARK has, or is too long for a character-string.
    """
    parts = template_parts(nma.target)
    used = {variable for _, variable in parts if variable}
    # From the inside out: what follows the shoulder, the name, the whole ARK, each a group only where it is used.
    groups = ["suffix"] if "suffix" in used else []
    pattern = escape(entry.shoulder) + ("(.*)" if groups else ".*")
    if used & {"value", "content"}:
        pattern, groups = f"({pattern})", ["value", *groups]
    pattern = f"ark:/?{entry.naan}/{pattern}"
    if "pid" in used:
        pattern, groups = f"({pattern})", ["pid", *groups]
    replacement = ""
    for literal, variable in parts:
        replacement += literal.replace("\\", "\\\\")
        if variable == "content":
            replacement += f"{entry.naan}/\\{groups.index('value') + 1}"
        elif variable == "prefix":
            replacement += entry.naan
        elif variable in groups:
            replacement += f"\\{groups.index(variable) + 1}"
        elif variable:
            raise ZoneError(f"record {entry.key}: the target asks for ${{{variable}}}, which no ARK has")
    return _delimited(f"^{pattern}$", replacement, entry)


def _delimited(pattern: str, replacement: str, entry: Entry) -> bytes:
    delimiter = next((mark for mark in _DELIMITERS if mark not in pattern + replacement), None)
    if delimiter is None:
        raise ZoneError(f"record {entry.key}: the target leaves no character to delimit a regexp with")
    try:
        field = f"{delimiter}{pattern}{delimiter}{replacement}{delimiter}".encode("ascii")
        Substitution.parse(field)
    except UnicodeEncodeError:
        raise ZoneError(f"record {entry.key}: the target is not ASCII") from None
    except RegexpError as error:
        raise ZoneError(f"record {entry.key}: its target makes no regexp: {error}") from None
    return field


def _url_rules(entry: Entry, order: int) -> Iterator[Naptr]:
    for index, nma in enumerate(entry.nmas, 1):
        yield Naptr(order, index * PREFERENCE_STEP, b"u", SERVICE, regexp(entry, nma), ())


def _host_rules(entry: Entry, order: int) -> Iterator[Naptr]:
    seen: set[names.Labels] = set()
    for nma in entry.nmas:
        labels = host_labels(nma)
        if labels and labels not in seen:
            seen.add(labels)
            yield Naptr(order, len(seen) * PREFERENCE_STEP, b"h", SERVICE, b"", labels)


def host_labels(nma: Nma) -> names.Labels:
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
