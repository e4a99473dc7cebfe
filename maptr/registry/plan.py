"""Plans: the changes between two tables, for review before they are applied.

A plan changes nothing by itself. It depends only on contents, never on a clock or a file's date.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from maptr.errors import UnsafePlan, printable
from maptr.registry.table import Entry, Table

REMOVAL_LIMIT = 0.30
"""The fraction of a table that a plan may remove, and of a zone's names that a reload may lose (octoDNS's default): a
registry file that was cut at the end of a line is still valid, and so is the zone built from it."""

SMALL = 10  # records; a smaller table may lose any of them


@dataclass(frozen=True, slots=True)
class Plan:
    """The entries to add, remove and change (as pairs of old and new), each sorted by key.

    Falsy if nothing changes. ``size`` is the number of records in the old table. ``kept`` has the key of each old entry
    that is kept because its record in the new source cannot be read, with the reason.
    """

    added: tuple[Entry, ...] = ()
    removed: tuple[Entry, ...] = ()
    changed: tuple[tuple[Entry, Entry], ...] = ()
    size: int = 0
    kept: tuple[tuple[str, str], ...] = ()

    @classmethod
    def between(cls, old: Table, new: Table) -> Plan:
        """Make the plan that turns ``old`` into ``new``. The order of their entries does not matter."""
        common = sorted(old.keys() & new.keys())
        return cls(
            added=tuple(new[key] for key in sorted(new.keys() - old.keys())),
            removed=tuple(old[key] for key in sorted(old.keys() - new.keys())),
            changed=tuple((old[key], new[key]) for key in common if old[key] != new[key]),
            size=len(old),
        )

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def check(self) -> None:
        """Raise UnsafePlan if more than REMOVAL_LIMIT of the old table is removed, retargeted or unreadable.

        A table of fewer than SMALL records is exempt, because one record may be more than that fraction. Other fields
        may change in all records, for example when the registry adds a field, or rewrites the text of a target.
        """
        moved = sum(_leads_to(old) != _leads_to(new) for old, new in self.changed)
        touched = len(self.removed) + moved + len(self.kept)
        if self.size >= SMALL and touched / self.size > REMOVAL_LIMIT:
            share = f"{touched} of {self.size} records ({touched / self.size:.0%}, the limit is {REMOVAL_LIMIT:.0%})"
            raise UnsafePlan(f"the plan removes, retargets or cannot read {share}")

    def _rows(self) -> list[tuple[str, str, str]]:
        """Return key, sign and text of each record, sorted. A registry's text cannot add a line."""
        rows = [(entry.key, "+", _targets(entry)) for entry in self.added]
        rows += [(entry.key, "-", _targets(entry)) for entry in self.removed]
        rows += [(old.key, "~", "; ".join(differences(old, new))) for old, new in self.changed]
        rows += [(key, "!", f"unchanged: {reason}") for key, reason in self.kept]
        return sorted((key, sign, printable(what)) for key, sign, what in rows)

    def to_text(self) -> str:
        """Return a line for each record, sorted by key: ``+`` added, ``~`` changed, ``-`` removed, ``!`` kept."""
        return "".join(f"{f'{sign} {key} {what}'.rstrip()}\n" for key, sign, what in self._rows())

    def to_markdown(self) -> str:
        """Return a Markdown table, for a ticket or a pull request."""
        signs = {"+": "added", "~": "changed", "-": "removed", "!": "kept"}
        lines = [f"{counts_text(self)} of {self.size}", "", "| | record | what |", "|---|---|---|"]
        for record, sign, what in self._rows():
            shown = "".join(f"\\{mark}" if mark in "|`<\\" else mark for mark in what)
            lines.append(f"| {signs[sign]} | `{record}` | {shown} |")
        return "\n".join(lines) + "\n"

    def to_dict(self) -> dict[str, Any]:
        return {
            "added": [entry.key for entry in self.added],
            "changed": [{"record": old.key, "differences": list(differences(old, new))} for old, new in self.changed],
            "removed": [entry.key for entry in self.removed],
            "kept": [{"record": key, "reason": reason} for key, reason in self.kept],
            "size": self.size,
        }


def counts_text(plan: Plan) -> str:
    return f"{len(plan.added)} added, {len(plan.changed)} changed, {len(plan.removed)} removed"


def kept_text(kept: Sequence[tuple[str, str]]) -> str:
    """Return a line about a plan's kept records, of which there is at least one."""
    count = f"{len(kept)} record{' keeps its' if len(kept) == 1 else 's keep their'} last good entry"
    (record, reason), more = kept[0], len(kept) - 1
    others = f" and {more} more" if more else ""
    return f"{count}, as the source has unreadable data: {record}: {reason}{others}"


def differences(old: Entry, new: Entry) -> Iterator[str]:
    """Yield the fields in which two entries for one key differ, as ``field old -> new``."""
    for field in ("target", "status", "where", "acronym"):
        before, after = ([getattr(nma, field) for nma in entry.nmas] for entry in (old, new))
        if before != after:
            yield _change(field, " ".join(map(str, before)), " ".join(map(str, after)))
            if field == "target":
                break  # the other fields belong to it
    if old.who != new.who:
        renamed = old.who.name != new.who.name
        yield f"who {old.who.name!r} -> {new.who.name!r}" if renamed else "who (native name or acronym)"
    if old.when != new.when:
        yield _change("when", old.when, new.when)
    if old.policy != new.policy:
        yield "policy"
    extra = sorted(key for key in old.extra.keys() | new.extra.keys() if old.extra.get(key) != new.extra.get(key))
    if extra:
        yield ", ".join(extra)


def _change(field: str, before: str, after: str) -> str:
    return f"{field} {before.strip() or 'none'} -> {after.strip() or 'none'}"


def _targets(entry: Entry) -> str:
    return " ".join(nma.target for nma in entry.nmas)


def _leads_to(entry: Entry) -> list[tuple[str, int]]:
    """Return the targets: changing them counts against the limit."""
    return [(nma.target, nma.status) for nma in entry.nmas]
