"""A mapping authority that describes ARKs, and discoveries that lead to it."""

from __future__ import annotations

from maptr import url
from maptr.ark import Ark
from maptr.discovery import Candidate, Discovery

ARK = Ark.parse("ark:12345/x1")
ERC = b"""# a comment
erc:
who:   Lederberg,
       Joshua
what:  Studies%spof Human Families \xe2\x80\x94 1
when:  1974
where: https://ark.example.org/ark:12345/x1
!note: private
erc-support:
who:   Example
who:   Another
"""
TEXT = {"Content-Type": "text/plain; charset=UTF-8", "THUMP-Status": "0.6 200 OK", "Link": '<a>; rel="describes"'}


def erc(path: str) -> tuple[int, dict[str, str], bytes]:
    return (200, TEXT, ERC) if path.endswith("?info") else (200, {"Content-Type": "text/html"}, b"<html>")


def discovery_at(target: str, *more: str) -> Discovery:
    """A discovery with ``h`` candidates at these URLs."""
    places = [url.parse(text) for text in (target, *more)]
    found = [Candidate(where.host.text, where.port, 0, n, "12345.ark.arpa.") for n, where in enumerate(places)]
    return Discovery(ARK, tuple(found), scheme="http")
