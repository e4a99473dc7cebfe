"""ARK text to Ark and back: normal form for identity, resolution form for rules and URLs.

Two forms of one ARK live here and must not be mixed up:

* the *normal form* (draft-kunze-ark section 3.2) decides equality, hash and ``str()``;
* the *resolution form* is the ARK as received, cleaned only of what is never part of it. Rules match it and
  URLs are made from it, because an NMA may care about a final slash or the case of a ``%`` pair.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from maptr.errors import ArkSyntaxError

BETANUMERIC = "0123456789bcdfghjkmnpqrstvwxz"
"""The characters of a NAAN, in the order that gives each its value in a check character (NOID, NCDA)."""

Profile = Literal["draft", "2002"]

MAX_NAAN = 63  # one DNS label (RFC 1035 2.3.4); the draft asks for 16 at least
MAX_TEXT = 8192  # octets of a received ARK, NMA and query string included; the draft asks for 255 of name

INFLECTIONS = ("?info", "?", "??")  # draft section 5: the present one, then the reserved older forms

# Written, not compiled: a fresh process compiles what it meets, and ``re`` keeps it.
# White space of every kind, and the marks without width that pasted text brings along.
_BLANK = "[\\s\u200b-\u200d\u2060\ufeff]+"
_HYPHEN = "[-\u00ad\u2010-\u2015]+"
_LABEL = "(?i)ark:/?"
_UNLABELLED = f"(?i)[0-9][{BETANUMERIC}]*/[^/]"  # what is an ARK but for its label, as people write them in talk
_NMA = "(?i)/(?=ark:)"
_STRUCTURE = "([/.])[/.]+"
_PERCENT = "(?s)%(..?|$)"
_NEVER = r'[^\x21-\x7e]|[<>"\\^`{|}\[\]]'  # RFC 3986 2: written only as % pairs
_SHOULDER = "[A-Za-z]*[0-9]"

# Text that is in normal form but for a slash after the label: what most callers have, read at once. It holds nothing
# that normalising would move or drop (no hyphen, % pair, doubled or final structure character, no suffix before a
# component), so that its parts are the parts of the normal form.
_AS_IT_IS = re.compile(
    rf"ark:/?([{BETANUMERIC}]{{1,{MAX_NAAN}}})/"
    + r"((C+)((?:/C+)*(?:\.C+)*))(\?[T?/.%-]*)?[ \t\r\n]*".replace("C", "[!#-$&-,0-;=@A-Z_a-z~]").replace(
        "T", "!#-,0-;=@A-Z_a-z~"
    )
)
_MAX_AS_IT_IS = 255  # characters; so that a long text is never matched in vain

_new = tuple.__new__


class SharedNaan(NamedTuple):
    """What a NAAN shared by all organisations says of every ARK under it (draft section 2.3, table 2)."""

    meaning: str
    resolves: bool | None
    long_term: bool


SHARED_NAANS = {
    "12345": SharedNaan("examples in documentation", None, False),
    "99152": SharedNaan("controlled vocabulary and ontology terms", True, True),
    "99166": SharedNaan("people, groups and institutions as agents", True, True),
    "99999": SharedNaan("test, development and experiment", None, False),
}
"""Shared NAANs; ``resolves`` is None where the draft says maybe."""


class _Parts(NamedTuple):
    naan: str
    name: str
    qualifier: str
    resolution: str
    tail: str
    nma: str


class Ark(_Parts):
    """One ARK: equal to every other spelling of itself.

    ``name`` is the base name, ``qualifier`` what follows it (``/c3/s5.v7.xsl``), both in normal form.
    ``resolution`` is the text that rules match. ``tail`` is the inflection or query string as received,
    its question mark included. ``nma`` is what stood before the label; it identifies nothing.
    An Ark made from its parts takes them as they are; received text goes through ``parse``.
    """

    __slots__ = ()

    def __new__(
        cls, naan: str, name: str, qualifier: str = "", resolution: str = "", tail: str = "", nma: str = ""
    ) -> Ark:
        # Without a resolution form it is made from its parts, not from received text.
        return _new(cls, (naan, name, qualifier, resolution or f"ark:{naan}/{name}{qualifier}", tail, nma))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ark) and self[:3] == other[:3]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:3])

    @classmethod
    def parse(cls, text: str | bytes, *, profile: Profile = "draft") -> Ark:
        """An ARK from any received text: compact, inside a URL, pasted across lines (draft section 3.2).

        >>> str(Ark.parse("https://n2t.net/ark:/12345/x5-4.v1/c2?info"))
        'ark:12345/x54/c2.v1'

        ``profile="2002"`` normalises as section 2.4 of the 2002 draft: ``%`` pairs in lower case, suffixes
        sorted and told once. Raises ArkSyntaxError, and nothing else, for any text or octets; TypeError for what is
        neither.
        """
        if not isinstance(text, str):
            text = _decode(text)
        if profile == "draft" and len(text) <= _MAX_AS_IT_IS:
            plain = _AS_IT_IS.fullmatch(text)
            if plain is not None:
                naan, rest, name, qualifier, tail = plain.groups("")
                return _new(cls, (naan, name, qualifier, f"ark:{naan}/{rest}", tail, ""))
        text = re.sub(_BLANK, "", _decode(text))
        nma, text = _split_nma(text)
        text, mark, query = text.partition("?")
        label = re.match(_LABEL, text)
        if label is None:
            meant = f": is it {_shown('ark:' + text)}?" if re.match(_UNLABELLED, text) else ""
            raise ArkSyntaxError(f"no ark: label in {_shown(nma + text)}{meant}")
        naan, slash, rest = re.sub(_HYPHEN, "", text[label.end() :]).partition("/")
        naan = _check_naan(naan.lower())
        _check_name(rest)
        base, qualifier = _normalise(rest, profile)
        if not base:
            raise ArkSyntaxError(f"ark:{naan}{slash} names nothing: a name follows the NAAN, as in ark:{naan}/x1")
        return cls(naan, base, qualifier, f"ark:{naan}/{rest}", _check_tail(mark + query), nma)

    def __str__(self) -> str:
        return f"ark:{self.naan}/{self.name}{self.qualifier}"

    @property
    def inflection(self) -> str | None:
        """``?info``, ``?`` or ``??`` where the ARK ended in one, else None."""
        return self.tail if self.tail in INFLECTIONS else None

    @property
    def query(self) -> str | None:
        """The query string without its question mark, None where there is none (an inflection is none)."""
        return self.tail[1:] if self.tail and self.inflection is None else None

    @property
    def shoulder(self) -> str | None:
        """The primordinal shoulder: letters up to and including the first digit (draft section 2.4.1)."""
        match = re.match(_SHOULDER, self.name)
        return match[0] if match else None

    @property
    def blade(self) -> str:
        """The base name less its shoulder."""
        return self.name[len(self.shoulder or "") :]

    @property
    def components(self) -> tuple[str, ...]:
        """The component path: ``("c3", "s5")`` of ``/c3/s5.v7.xsl``."""
        return tuple(part for part in self.qualifier.partition(".")[0].split("/") if part)

    @property
    def variants(self) -> tuple[str, ...]:
        """The variant path: ``("v7", "xsl")`` of ``/c3/s5.v7.xsl``."""
        return tuple(part for part in self.qualifier.partition(".")[2].split(".") if part)

    @property
    def shared(self) -> SharedNaan | None:
        """What the NAAN means where it is one of the four shared ones."""
        return SHARED_NAANS.get(self.naan)

    def implied(self) -> tuple[Ark, ...]:
        """Every ARK that publishing this one implies, itself first (draft sections 2.5.1 and 2.5.2).

        >>> [str(ark) for ark in Ark.parse("ark:12345/x54/c2.fr.odf").implied()]
        ['ark:12345/x54/c2.fr.odf', 'ark:12345/x54/c2.fr', 'ark:12345/x54/c2', 'ark:12345/x54']
        """
        steps = [self]
        qualifier = self.qualifier
        while qualifier:
            qualifier = qualifier[: max(qualifier.rfind("."), qualifier.rfind("/"))]
            steps.append(Ark(self.naan, self.name, qualifier))
        return tuple(steps)

    def check(self) -> bool:
        """True where the last character of the base name is its check character (NOID Check Digit Algorithm)."""
        return bool(self.name[:-1]) and check_character(f"{self.naan}/{self.name[:-1]}") == self.name[-1]


def check_character(text: str) -> str:
    """The NCDA check character over ``NAAN/name``; characters that are not betanumeric count as nought.

    >>> check_character("13030/xf93gt2")
    'q'
    """
    values = (position * max(BETANUMERIC.find(octet), 0) for position, octet in enumerate(text, 1))
    return BETANUMERIC[sum(values) % len(BETANUMERIC)]


def _decode(text: str | bytes) -> str:
    """Text within the length limit that UTF-8 can hold."""
    if not isinstance(text, str | bytes):
        raise TypeError(f"an ARK is text, octets or an Ark, and no {type(text).__name__}")
    if len(text) > MAX_TEXT:
        raise ArkSyntaxError(f"longer than {MAX_TEXT} octets")
    try:
        if isinstance(text, bytes):
            return text.decode()
        text.encode()
    except UnicodeError:
        raise ArkSyntaxError("not UTF-8") from None
    return text


def _split_nma(text: str) -> tuple[str, str]:
    """What precedes the first ``/ark:``, and the rest; an ARK without NMA may hold ``/ark:`` in its name."""
    if re.match(_LABEL, text):
        return "", text
    nma = re.search(_NMA, text)
    return (text[: nma.end()], text[nma.end() :]) if nma else ("", text)


def _check_naan(naan: str) -> str:
    if not naan:
        raise ArkSyntaxError("no NAAN after the ark: label")
    if len(naan) > MAX_NAAN:
        raise ArkSyntaxError(f"a NAAN of {len(naan)} characters, {MAX_NAAN} at most")
    if wrong := set(naan) - set(BETANUMERIC):
        raise ArkSyntaxError(f"{_shown(naan)} is no NAAN: {_shown(min(wrong))} is not one of {BETANUMERIC}")
    return naan


def _check_name(rest: str) -> None:
    if wrong := re.search(_NEVER, rest):
        raise ArkSyntaxError(f"{_shown(wrong[0])} stands in no ARK as it is: write {_pairs(wrong)}")
    for pair in re.finditer(_PERCENT, rest):
        if not re.fullmatch("[0-9A-Fa-f]{2}", pair[1]):
            raise ArkSyntaxError(f"{_shown(pair[0])} is no %-encoded octet: write % itself as %25")


def _check_tail(tail: str) -> str:
    """The tail fit for a URL: octets that no URL holds become % pairs, as for an IRI (RFC 3987 3.1)."""
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in tail):
        raise ArkSyntaxError("a control character in the query string")
    return re.sub(_NEVER, _pairs, tail)


def _pairs(found: re.Match[str]) -> str:
    return "".join(f"%{octet:02X}" for octet in found[0].encode())


def _normalise(rest: str, profile: Profile) -> tuple[str, str]:
    """Base name and qualifier in normal form (draft section 3.2, steps 5 and 8; 2002 draft section 2.4).

    Hyphens are gone already: a pair that a line break had split (``%7-d``) is one pair first, so that
    normalising twice changes nothing.
    """
    case = str.lower if profile == "2002" else str.upper
    rest = re.sub(_PERCENT, lambda pair: case(pair[0]), rest)
    rest = re.sub(_STRUCTURE, r"\1", rest).strip("/.")
    # A component with a period on its left and a slash on its right moves to the end; its order is kept.
    path: list[str] = []
    suffixes: list[str] = []
    for segment in rest.split("/"):
        component, *moved = segment.split(".")
        path.append(component)
        suffixes += moved
    if profile == "2002":
        suffixes = sorted(set(suffixes))
    base, *components = path
    return base, "".join(f"/{part}" for part in components) + "".join(f".{part}" for part in suffixes)


def _shown(text: str) -> str:
    """Received text, safe and short enough for one line of a message."""
    shown = ascii(text)
    return shown if len(shown) <= 80 else shown[:76] + "...'"
