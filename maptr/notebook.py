"""A Discovery as HTML, for Jupyter notebooks: its candidates, and its walk below them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from maptr import url

if TYPE_CHECKING:
    from maptr.discovery import Discovery


def html_of(found: Discovery) -> str:
    """Return a part of a page without scripts. Only web addresses become links."""
    rows = [
        (_link(made), str(c.order), str(c.preference), escape(c.owner), str(c.ttl))
        for made, c in zip(found.urls(), found.candidates, strict=True)
    ]
    state = ["complete" if found.complete else f"not complete: {found.incomplete_reason()}", found.security]
    source = f"from {found.source}" + (f" ({found.table} table)" if found.table else "")
    state += [source, *(["stale"] if found.stale else [])]
    title = found.ark if found.candidates else found
    steps = "".join(
        f"<li>{escape(str(step))}<ul>{''.join(f'<li>{escape(str(each))}</li>' for each in step.readings)}</ul></li>"
        for step in found.trace
    )
    walk = f"<details><summary>the walk</summary><ol>{steps}</ol></details>" if steps else ""
    table = _table(("URL", "order", "preference", "record at", "TTL"), rows) if rows else ""
    return f"<div><b>{escape(str(title))}</b> <small>{escape(', '.join(state))}</small>{table}{walk}</div>"


def _link(text: str) -> str:
    """Return a URL as a link if it is one of the web."""
    try:
        url.parse(text)
    except ValueError:
        return escape(text)
    return f'<a href="{escape(text)}" rel="noreferrer">{escape(text)}</a>'


def _table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    titles = "".join(f"<th>{title}</th>" for title in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{titles}</tr>{body}</table>"
