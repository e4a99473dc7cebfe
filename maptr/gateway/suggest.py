"""What a visitor perhaps meant by an ARK or a path that leads nowhere. It is suggested, never followed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from urllib.parse import unquote

from maptr.ark import BETANUMERIC, SCOPES, Ark, Scope, first_arks
from maptr.errors import ArkSyntaxError
from maptr.gateway.message import Busy, Unreadable
from maptr.gateway.objects import match
from maptr.gateway.site import Site

NEIGHBOURS = "neighbours"  # the value of gateway.suggest that includes names with one wrong character
MAX_NAME = 32  # characters of the longest base name for which such names are tried
MAX_LOOK_UPS = 64
MAX_SECONDS = 0.002  # for these look-ups
SAMPLED = 20  # names of a NAAN that show how it makes check characters
USING = 0.9  # the share that must be valid; 7 in 100 names without check characters are, by chance

_LAYERS = 2  # of %-encoding too many
# What follows an ARK in prose, plain or as encoded by browsers and careless programs.
_AFTER = re.compile(
    r"(?i)(?:[])}>.,;:!?'\"*]|%(?:2[1279AC]|3[ABEF]|5D|7D)|%C2%BB|%E2%80%(?:99|9D|BA|A6)|&(?:gt|quot|amp|#\d+);?)+\Z"
)
_LABEL = re.compile(r"(?i)(?:ark:/*)+(?=ark:)")  # a label before a label


def of(site: Site, ark: Ark) -> str:
    """Return the normalized ARK that was perhaps meant by one that leads nowhere; "" if none is known."""
    return spelled(site, ark.resolution, ark) or (_neighbour(site, ark) if site.settings.suggest == NEIGHBOURS else "")


def spelled(site: Site, received: str, asked: Ark | None = None) -> str:
    """Return a known ARK, other than the one ``asked`` for, of which a text is another spelling; "" if there is none.
    DNS is not asked."""
    try:
        spellings = dict.fromkeys(_spellings(received.lstrip("/")))
        return next((str(ark) for ark in spellings if ark != asked and _is_known(site, ark)), "")
    except Busy:
        raise
    except Unreadable:
        return ""


def _spellings(text: str) -> Iterator[Ark]:
    """Yield the ARKs that a text may stand for: without trailing prose, as it is, and in the other case."""
    for _ in range(1 + _LAYERS):
        if (ark := _read(_LABEL.sub("", text))) is not None:
            trimmed = _AFTER.sub("", ark.resolution)
            for each in (trimmed, ark.resolution, trimmed.lower(), str(ark).lower(), str(ark).upper()):
                yield from _arks(each)
        if "%25" not in text and (ark is not None or "%" not in text):
            return
        text = unquote(text)


def _read(text: str) -> Ark | None:
    """Return the ARK that a text is, or the only ARK in it."""
    try:
        return Ark.parse(text, wrapped=True)
    except ArkSyntaxError as error:
        if error.suggestion:
            return next(_arks(error.suggestion), None)
        found = first_arks(text, 2)
        return found[0] if len(found) == 1 else None


def _arks(text: str) -> Iterator[Ark]:
    with suppress(ArkSyntaxError):
        yield Ark.parse(text)


def _is_known(site: Site, ark: Ark) -> bool:
    if ark.naan in site.objects.naans:
        return match(site.objects, ark) is not None
    return site.table.lookup(ark) is not None


# ---- names with one wrong character


def _neighbour(site: Site, ark: Ark) -> str:
    """Return the ARK of an own object whose name differs by one character, or by two swapped ones, and has a valid
    check character of its NAAN. Withdrawn objects are not suggested."""
    if len(ark.name) > MAX_NAME or site.patience:  # a suggestion is not worth a thread's wait
        return ""
    scope = site.once((_neighbour, ark.naan), lambda: _scope_of(site.objects.samples.get(ark.naan, ())) or "")
    if not scope or ark.check(scope) is not None:  # a name with one error has a wrong check character
        return ""
    names = [*dict.fromkeys(_neighbours(ark, scope))][:MAX_LOOK_UPS]
    with suppress(Unreadable):
        found = site.objects.first([f"ark:{ark.naan}/{name}" for name in names], MAX_SECONDS)
        if found is not None:
            return f"{found.ark}{ark.qualifier}" if found.suffix else found.ark
    return ""


def _scope_of(samples: Sequence[str]) -> Scope | None:
    """Return what the check characters of some ARKs cover; None if they have none."""
    arks = [ark for text in samples for ark in _arks(text)]
    for scope in SCOPES:
        if arks and sum(ark.check(scope) is not None for ark in arks) >= USING * len(arks):
            return scope
    return None


def _neighbours(ark: Ark, scope: Scope) -> Iterator[str]:
    """Yield the names that differ by one character, or by two swapped neighbours, and whose check character is valid.
    At each place, at most one character makes it valid, because the number of characters is a prime (NCDA)."""
    name, size = ark.name, len(BETANUMERIC)
    for place in range(len(name) - 1):
        swapped = name[:place] + name[place + 1] + name[place] + name[place + 2 :]
        if any(each.check(scope) for each in _arks(f"ark:{ark.naan}/{swapped}")):
            yield swapped
    right = ark.replace(name=name[:-1], qualifier="").check_character(scope=scope) if name[1:] else name
    yield name[:-1] + right
    lacking = BETANUMERIC.find(name[-1]) - BETANUMERIC.find(right)
    first = len(ark.naan) + 2 if scope == "naan" else 1  # the position of the name
    for place, character in enumerate(name[:-1] if name[-1] in BETANUMERIC else ""):
        if (first + place) % size:
            value = max(BETANUMERIC.find(character), 0) + lacking * pow(first + place, -1, size)
            yield name[:place] + BETANUMERIC[value % size] + name[place + 1 :]
