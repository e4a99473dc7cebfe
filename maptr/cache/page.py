"""Drift verdicts as one HTML page: a map with a square for each NAAN, linked to the evidence of what deviates.

The page, ``page.html``, has no script, image or font, and loads nothing from any server. A letter and words tell the
verdicts apart, never colour alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template

from maptr.cache.drift import Drift, Verdict
from maptr.cache.probe_log import Liveness

# The mark and the meaning of each verdict, worst first: the square of a NAAN shows the worst of its records.
VERDICTS = {
    Verdict.DIFFERS: ("≠", "Both sides have the record, and give different URLs."),
    Verdict.UNPUBLISHED: ("×", "No zone can hold the shoulder, and DNS gives its ARKs the URLs of another record."),
    Verdict.MISSING: ("−", "The table has the record, DNS says there is none."),
    Verdict.EXTRA: ("+", "DNS has the record, the table does not."),
    Verdict.STALE: ("…", "One side says what the other said earlier."),
    Verdict.UNKNOWN: ("?", "DNS did not say."),
    Verdict.LOSSY: ("", "Equal as far as an h record or a natab can tell."),
    Verdict.SAME: ("", "Both sides give the same URLs."),
}
_WORST_FIRST = list(VERDICTS)
AGREES = (Verdict.SAME, Verdict.LOSSY)


MARK = b'<meta name="generator" content="maptr">'


def is_page(content: bytes) -> bool:
    """True for the content of a file that ``render`` made."""
    return MARK in content[:1000]


def render(verdicts: Sequence[Drift], *, table: str, asked: str, origin: str, silent: Sequence[Liveness] = ()) -> str:
    """The page. ``table``, ``asked`` and ``origin`` are plain text that says what was compared.

    ``silent`` are the mapping authorities that did not answer their last probe.
    """
    counts = Counter(one.verdict for one in verdicts)
    naans: dict[str, list[Drift]] = {}
    for one in verdicts:
        naans.setdefault(one.record.partition("/")[0], []).append(one)
    return Template(Path(__file__).with_suffix(".html").read_text("utf-8")).substitute(
        origin=escape(origin),
        table=escape(table),
        asked=escape(asked),
        summary=_summary(len(verdicts), counts),
        counts="\n".join(_count(verdict, counts[verdict]) for verdict in reversed(VERDICTS)),
        naans=f"{len(naans):,}",
        map="\n".join(_square(naan, records) for naan, records in naans.items()),
        evidence="\n".join(_evidence(one for one in verdicts if one.verdict not in AGREES)),
        silent="\n".join(_silent(silent)),
    )


def _summary(records: int, counts: Counter[Verdict]) -> str:
    if not records:
        return "There was nothing to compare."
    drifting = sum(number for verdict, number in counts.items() if verdict.is_drift)
    unknown = counts[Verdict.UNKNOWN]
    text = f"{drifting:,} of {records:,} records deviate" if drifting else f"All {records:,} records agree"
    if unknown:
        text = text if drifting else f"No record of {records:,} is known to deviate"
        text += f"; for {unknown:,} DNS did not say"
    return text + "."


def _count(verdict: Verdict, number: int) -> str:
    mark, meaning = VERDICTS[verdict]
    square = f'<span class="q {verdict}" aria-hidden="true">{mark}</span>'
    return f"<li>{square}<span><b>{number:,}</b> {verdict}</span><small>{meaning}</small></li>"


def _square(naan: str, records: Iterable[Drift]) -> str:
    """The square of a NAAN, which shows the worst of its records."""
    worst = min(records, key=lambda one: _WORST_FIRST.index(one.verdict))
    label = escape(f"{naan}: {worst.verdict}")
    named = f'class="q {worst.verdict}" aria-label="{label}" title="{label}"'
    if worst.verdict in AGREES:
        return f'<li><span {named} role="img"></span></li>'
    return f'<li><a {named} href="#{_anchor(worst.record)}">{VERDICTS[worst.verdict][0]}</a></li>'


def _evidence(deviating: Iterable[Drift]) -> Iterator[str]:
    ordered = sorted(deviating, key=lambda one: (_WORST_FIRST.index(one.verdict), one.record))
    if ordered:
        yield "<h2>Evidence</h2>"
    for one in ordered:
        mark, meaning = VERDICTS[one.verdict]
        yield f'<article class="{one.verdict}" id="{_anchor(one.record)}">'
        yield f'<h3><span class="q {one.verdict}" aria-hidden="true">{mark}</span>'
        yield f"<span><code>{escape(one.record)}</code> {one.verdict}</span></h3>"
        yield f"<p>{escape(meaning if one.verdict != Verdict.UNKNOWN else one.reason)}</p>\n<dl>"
        facts = {"For example": (one.probe,), "The table gives": one.table, "DNS gives": one.dns, "NAPTR": one.records}
        yield from (
            f"<dt>{title}</dt><dd>{_codes(facts[title])}</dd>" for title in facts if title != "NAPTR" or one.records
        )
        yield "</dl>\n</article>"


def _silent(silent: Sequence[Liveness]) -> Iterator[str]:
    if not silent:
        return
    yield "<h2>Mapping authorities that did not answer</h2>"
    yield '<p class="soft">At their last probe by <code>maptr table probe</code>. The records of both sides may be'
    yield "correct nevertheless.</p>\n<ul>"
    for one in silent:
        times = f"{one.failures} times in a row" if one.failures > 1 else "once"
        yield f"<li><code>{escape(one.place)}</code> {times}: {escape(one.note)}</li>"
    yield "</ul>"


def _codes(lines: Sequence[str]) -> str:
    return "<br>".join(f"<code>{escape(line)}</code>" for line in lines) or '<span class="soft">nothing</span>'


def _anchor(record: str) -> str:
    """A unique id for a record, of letters, digits and ``-``."""
    return "r-" + "".join(c if c.isascii() and c.isalnum() else f"-{ord(c):x}-" for c in record)
