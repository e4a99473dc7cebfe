"""Drift: what the table says of a record against what DNS says, as a verdict with the evidence of both sides.

Both sides are held to the URLs that one ARK of the record, the probe, gets. Asking DNS is the caller's part, and
so is keeping the history that tells a side that lags behind from two that disagree.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from maptr import url
from maptr.ark import BETANUMERIC, Ark
from maptr.discovery import Candidate, Discovery
from maptr.protocol import names
from maptr.protocol.names import ARK_ARPA
from maptr.registry.table import Entry, Nma, Table, unusable
from maptr.text import printable
from maptr.zone.lint import unpublishable

Urls = tuple[str, ...]

# A u rule as `rules` writes it for a shoulder: what stands between the NAAN and the "anything" of its pattern.
_SHOULDER_RULE = re.compile(rb".\^\(?ark:/\?[0-9a-z]+/\(*((?:[A-Za-z0-9=~@_%-]|\[[.*+$]\])+)\(?\.\*")


class Verdict(enum.StrEnum):
    """How the two sides of a record stand to each other."""

    SAME = "same"  # the same URLs in the same order
    LOSSY = "lossy"  # equal as far as an h record, or natab, can say
    MISSING = "missing"  # the table has it, DNS says none
    EXTRA = "extra"  # DNS has it, the table not
    DIFFERS = "differs"
    UNPUBLISHED = "unpublished"  # no zone can hold the shoulder, and DNS gives its ARKs another record's URLs
    STALE = "stale"  # one side says what the other said earlier
    UNKNOWN = "unknown"  # DNS did not say

    @property
    def is_drift(self) -> bool:
        return self not in (Verdict.SAME, Verdict.LOSSY, Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Drift:
    """The verdict on one record. ``table`` and ``dns`` are the URLs each side gives the probe, best first;
    ``records`` what DNS holds at the NAAN, as text."""

    record: str
    verdict: Verdict
    probe: str
    table: Urls = ()
    dns: Urls = ()
    reason: str = ""
    records: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One printable line."""
        text = f"{self.verdict} {self.record}: {self.reason}" if self.reason else f"{self.verdict} {self.record}"
        return printable(text)

    def to_dict(self) -> dict[str, Any]:
        return {
            "record": self.record,
            "verdict": str(self.verdict),
            "reason": self.reason,
            "probe": self.probe,
            "table": list(self.table),
            "dns": list(self.dns),
            "records": list(self.records),
        }


@dataclass(frozen=True, slots=True)
class History:
    """What each side said of one record in earlier states, the latest first."""

    table: Sequence[Urls] = ()
    dns: Sequence[Urls] = ()


NO_HISTORY = History()


def reconcile(
    naan: str,
    table: Table,
    discover: Callable[[Ark], Discovery],
    history: Callable[[str], History] = lambda record: NO_HISTORY,
) -> Iterator[Drift]:
    """The verdicts on a NAAN and on its shoulders, those that only DNS has among them.

    ``discover`` never raises for want of a candidate; given kept answers, it costs one question a NAAN.
    """
    shoulders = {entry.shoulder: entry for entry in table.shoulders(naan)}
    whole = table.get(naan)
    probe = probe_of(naan, "", shoulders)
    found = discover(probe)
    for said in said_shoulders(found):
        if said not in shoulders and not _is_shown_by_naan(naan, said, whole, found, discover):
            shoulders[said] = Entry(naan, said)  # nothing of it in the table: judged as extra below
    if whole is not None or found.candidates or not found.complete or not shoulders:
        yield compare(naan, whole, probe, found, history(naan))
    for shoulder in sorted(shoulders):
        entry = shoulders[shoulder]
        probe = probe_of(naan, shoulder, shoulders)
        yield compare(entry.key, entry if entry.key in table else None, probe, discover(probe), history(entry.key))


def _is_shown_by_naan(
    naan: str, shoulder: str, whole: Entry | None, found: Discovery, discover: Callable[[Ark], Discovery]
) -> bool:
    """True where a shoulder's own rule gives what the NAAN's record in the table gives: nothing of note."""
    if whole is None or not found.complete:
        return False
    probe = probe_of(naan, shoulder, ())
    return _means_the_same(expected(whole, probe), urls_of(discover(probe)))


def compare(record: str, entry: Entry | None, probe: Ark, found: Discovery, history: History = NO_HISTORY) -> Drift:
    """The verdict on one record, ``entry`` being None where the table has none."""
    table = expected(entry, probe) if entry is not None else ()
    said = urls_of(found)
    records = tuple(reading.naptr.to_text() for step in found.trace[:1] for reading in step.readings)
    verdict, reason = _judge(entry, table, found, said)
    if verdict.is_drift and verdict is not Verdict.UNPUBLISHED:
        if said and said in history.table:
            verdict, reason = Verdict.STALE, "DNS says what the table said earlier"
        elif table and table in history.dns:
            verdict, reason = Verdict.STALE, "the table says what DNS said earlier"
    return Drift(record, verdict, str(probe), table, said, reason, records)


def _judge(entry: Entry | None, table: Urls, found: Discovery, said: Urls) -> tuple[Verdict, str]:
    if not found.complete:
        unsaid = next((step for step in found.trace if not step.outcome.said), None)
        where = f"{names.to_text(unsaid.name)}: {unsaid.outcome.value}" if unsaid else "the walk was cut short"
        return Verdict.UNKNOWN, where
    if not said and not table:
        if entry is None:
            return Verdict.SAME, "neither side has it"
        return Verdict.LOSSY, "the table's record has no URL that can be published"
    if entry is None:
        return Verdict.EXTRA, f"DNS gives {_told(said)}, the table has no such record"
    if not said:
        return Verdict.MISSING, f"the table gives {_told(table)}, DNS says none"
    if _means_the_same(table, said):
        return Verdict.SAME, ""
    if entry.shoulder and (why := unpublishable(entry, found.trace[0].name[1:] if found.trace else ARK_ARPA)):
        return Verdict.UNPUBLISHED, f"no zone can hold it ({why[0].reason}), DNS gives {_told(said)}"
    if [_place(one) for one in table] == [_place(one) for one in said]:
        if all(_is_bare(candidate) for candidate in found.best):
            return Verdict.LOSSY, "DNS says no more than the hosts"
        if all(_is_host_only(nma) for nma in entry.nmas):
            return Verdict.LOSSY, "the table says no more than the hosts"
    if sorted(map(_normal, table)) == sorted(map(_normal, said)):
        return Verdict.DIFFERS, "the same URLs in another order"
    return Verdict.DIFFERS, f"the table gives {_told(table)}, DNS {_told(said)}"


def probe_of(naan: str, shoulder: str, shoulders: Iterable[str]) -> Ark:
    """An ARK of a record that no longer shoulder of the same NAAN takes."""
    longer = [other for other in shoulders if len(other) > len(shoulder) and other.startswith(shoulder)]
    letters = BETANUMERIC[::-1]
    blades = ("".join(part) for length in (3, 4) for part in product(letters, repeat=length))
    free = (blade for blade in blades if not any((shoulder + blade).startswith(other) for other in longer))
    return Ark.parse(f"ark:{naan}/{shoulder}{next(free, 'zzz')}")


def expected(entry: Entry, probe: Ark) -> Urls:
    """The URLs that the table gives an ARK, those left out that lint keeps from being published."""
    made: dict[str, str] = {}
    for nma in entry.nmas:
        if unusable(nma) is None:
            text = nma.url(probe, entry.shoulder)
            made.setdefault(url.same_place(text), text)
    return tuple(made.values())


def urls_of(found: Discovery) -> Urls:
    """The URLs that DNS gives the ARK of a discovery: those of the lowest order, the rest being fallback."""
    return tuple(candidate.url(found.ark, scheme=found.scheme) for candidate in found.best) if found else ()


def said_shoulders(found: Discovery) -> set[str]:
    """The shoulders that u rules at the NAAN name, where they are written as this project writes them."""
    said: set[str] = set()
    for reading in (reading for step in found.trace[:1] for reading in step.readings):
        if match := _SHOULDER_RULE.match(reading.naptr.regexp):
            said.add(re.sub(r"\[(.)\]", r"\1", match[1].decode("ascii")))
    return said


def _is_bare(candidate: Candidate) -> bool:
    return candidate.substitution is None


def _is_host_only(nma: Nma) -> bool:
    """True for an NMA as natab holds it: no scheme, no path, so its target is what natab stands for."""
    return bool(nma.where) and "/" not in nma.where


def _means_the_same(one: Urls, other: Urls) -> bool:
    return [_normal(made) for made in one] == [_normal(made) for made in other]


def _normal(made: str) -> str:
    """A URL in the form that compares (RFC 3986 section 6.2.2.1): scheme and host in lower case."""
    scheme, _, rest = made.partition("://")
    cut = re.search(r"[/?#]|\Z", rest)
    end = cut.start() if cut else len(rest)
    return f"{scheme.lower()}://{rest[:end].lower()}{rest[end:]}"


def _place(made: str) -> tuple[str, int | None]:
    where = url.parse(made)
    return where.host.text.lower().removesuffix("."), where.port


def _told(urls: Urls) -> str:
    return " ".join(urls) if urls else "nothing"
