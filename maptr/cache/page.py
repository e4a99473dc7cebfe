"""Drift verdicts as one HTML page: a map with a square for each NAAN, linked to the evidence of what deviates.

The page has no script, image or font, and loads nothing from any server. A letter and words tell the verdicts apart,
never colour alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from maptr.cache.drift import Drift, Verdict
from maptr.registry.liveness import Liveness

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

STYLE = """
:root { color-scheme: light dark; --bg: #fbfbf9; --fg: #1c1f23; --soft: #5a626c; --line: #d9dcdf; --card: #fff;
  --same: #b9dcc3; --lossy: #e6e2ae; --missing: #b3261e; --extra: #6a3fb5; --differs: #a8500a; --stale: #6b5d00;
  --unpublished: #a1246b; --unknown: #4f5a66; --mark: #fff; --link: #0b57a4; }
@media (prefers-color-scheme: dark) { :root { --bg: #14171a; --fg: #e7e9ea; --soft: #a2abb5; --line: #333a41;
  --card: #1b1f23; --same: #2c5a3b; --lossy: #465a2c; --missing: #ff8a80; --extra: #c4a7ff; --differs: #ffb070;
  --stale: #e6d35c; --unpublished: #ff9ad5; --unknown: #a9b6c4; --mark: #14171a; --link: #8ec2ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 76rem; background: var(--bg); color: var(--fg);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere; }
h1 { margin: 0; font-size: 1.75rem; letter-spacing: -.01em; }
h2 { margin: 2.5rem 0 .75rem; font-size: 1.2rem; }
p { max-width: 46rem; }
.soft { color: var(--soft); }
a { color: var(--link); }
a:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
code { font: .875em ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
.verdict { font-size: 1.15rem; font-weight: 600; margin: 1rem 0 0; }
.counts { display: grid; grid-template-columns: repeat(auto-fill, minmax(13.5rem, 1fr)); gap: .6rem; padding: 0;
  margin: 1.25rem 0 0; list-style: none; }
.counts li { display: grid; grid-template-columns: auto 1fr; gap: 0 .6rem; align-items: center;
  align-content: start; padding: .6rem .75rem;
  background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }
.counts small { grid-column: 2; color: var(--soft); line-height: 1.35; }
.counts b { font-variant-numeric: tabular-nums; }
.map { display: grid; grid-template-columns: repeat(auto-fill, 1.5rem); gap: 3px; padding: 0; margin: 0;
  list-style: none; }
.map li { display: contents; }
.q { display: inline-grid; place-items: center; width: 1rem; height: 1rem; border-radius: 3px; font-size: .8rem;
  font-weight: 700; line-height: 1; text-decoration: none; color: var(--mark); background: var(--own); flex: none; }
a.q, .map .q { width: 1.5rem; height: 1.5rem; }
.same { --own: var(--same); } .lossy { --own: var(--lossy); } .missing { --own: var(--missing); }
.extra { --own: var(--extra); } .differs { --own: var(--differs); } .stale { --own: var(--stale); }
.unknown { --own: var(--unknown); } .unpublished { --own: var(--unpublished); }
article { margin: 0 0 .9rem; padding: .9rem 1rem; background: var(--card); border: 1px solid var(--line);
  border-left: .35rem solid var(--own); border-radius: .5rem; }
article:target { box-shadow: 0 0 0 3px var(--link); }
article h3 { display: flex; gap: .6rem; align-items: center; margin: 0 0 .4rem; font-size: 1rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; min-width: 0; }
@media (max-width: 36rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .35rem; } }
@media print { body { background: #fff; color: #000; } .q, article { print-color-adjust: exact; } }
"""


MARK = '<meta name="generator" content="maptr">'


def is_page(content: bytes) -> bool:
    """True for the content of a file that ``render`` made."""
    return MARK.encode() in content[:1000]


def render(verdicts: Sequence[Drift], *, table: str, asked: str, origin: str, silent: Sequence[Liveness] = ()) -> str:
    """The page. ``table``, ``asked`` and ``origin`` are plain text that says what was compared.

    ``silent`` are the mapping authorities that did not answer their last probe.
    """
    counts = Counter(one.verdict for one in verdicts)
    deviating = [one for one in verdicts if one.verdict not in AGREES]
    title = f"Drift of {origin} against {table}"
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        MARK,
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>",
        "<h1>Does DNS say what the table says?</h1>",
        f'<p class="soft">Origin <code>{escape(origin)}</code>, asked at <code>{escape(asked)}</code>, against the'
        f" table <code>{escape(table)}</code>.</p>",
        f'<p class="verdict">{_summary(verdicts, counts)}</p>',
        "</header>\n<main>",
        *_counts(counts),
        *_map(verdicts),
        *_evidence(deviating),
        *_silent(silent),
        "</main>\n</body>\n</html>",
    ]
    return "\n".join(parts) + "\n"


def _summary(verdicts: Sequence[Drift], counts: Counter[Verdict]) -> str:
    if not verdicts:
        return "There was nothing to compare."
    drifting = sum(number for verdict, number in counts.items() if verdict.is_drift)
    unknown = counts[Verdict.UNKNOWN]
    text = f"{drifting:,} of {len(verdicts):,} records deviate" if drifting else f"All {len(verdicts):,} records agree"
    if unknown:
        text = text if drifting else f"No record of {len(verdicts):,} is known to deviate"
        text += f"; for {unknown:,} DNS did not say"
    return text + "."


def _counts(counts: Counter[Verdict]) -> Iterator[str]:
    yield '<ul class="counts">'
    for verdict in reversed(VERDICTS):
        mark, meaning = VERDICTS[verdict]
        yield (
            f'<li><span class="q {verdict}" aria-hidden="true">{mark}</span>'
            f"<span><b>{counts[verdict]:,}</b> {verdict}</span><small>{meaning}</small></li>"
        )
    yield "</ul>"


def _map(verdicts: Iterable[Drift]) -> Iterator[str]:
    naans: dict[str, list[Drift]] = {}
    for one in verdicts:
        naans.setdefault(one.record.partition("/")[0], []).append(one)
    yield f"<h2>All {len(naans):,} NAANs</h2>"
    yield '<p class="soft">One square for each NAAN shows the worst verdict of its records. A marked square links'
    yield "to the evidence.</p>"
    yield '<ul class="map">'
    for naan, records in naans.items():
        worst = min(records, key=lambda one: _WORST_FIRST.index(one.verdict))
        label = escape(f"{naan}: {worst.verdict}")
        if worst.verdict in AGREES:
            yield f'<li><span class="q {worst.verdict}" role="img" aria-label="{label}" title="{label}"></span></li>'
        else:
            yield (
                f'<li><a class="q {worst.verdict}" href="#{_anchor(worst.record)}" aria-label="{label}"'
                f' title="{label}">{VERDICTS[worst.verdict][0]}</a></li>'
            )
    yield "</ul>"


def _evidence(deviating: Sequence[Drift]) -> Iterator[str]:
    if not deviating:
        return
    yield "<h2>Evidence</h2>"
    for one in sorted(deviating, key=lambda one: (_WORST_FIRST.index(one.verdict), one.record)):
        yield f'<article class="{one.verdict}" id="{_anchor(one.record)}">'
        mark, meaning = VERDICTS[one.verdict]
        yield f'<h3><span class="q {one.verdict}" aria-hidden="true">{mark}</span>'
        yield f"<span><code>{escape(one.record)}</code> {one.verdict}</span></h3>"
        yield f"<p>{escape(meaning if one.verdict != Verdict.UNKNOWN else one.reason)}</p>"
        yield "<dl>"
        yield f"<dt>For example</dt><dd><code>{escape(one.probe)}</code></dd>"
        yield f"<dt>The table gives</dt><dd>{_codes(one.table)}</dd>"
        yield f"<dt>DNS gives</dt><dd>{_codes(one.dns)}</dd>"
        if one.records:
            yield f"<dt>NAPTR</dt><dd>{_codes(one.records)}</dd>"
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
