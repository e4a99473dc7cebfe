"""ARK text to Ark and back: normal form for identity, resolution form for rules and URLs.

Two forms of one ARK live here and must not be mixed up:

* the *normal form* (draft-kunze-ark section 3.2) decides equality, hash and ``str()``;
* the *resolution form* is the ARK as received, cleaned only of what is never part of it. Rules match it and
  URLs are made from it, because an NMA may care about a final slash or the case of a ``%`` pair.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from maptr.errors import ArkSyntaxError, ConfigError

BETANUMERIC = "0123456789bcdfghjkmnpqrstvwxz"
"""The characters of a NAAN, in the order that gives each its value in a check character (NOID, NCDA)."""

Profile = Literal["current", "2019", "2002"]

MAX_NAAN = 63  # one DNS label (RFC 1035 2.3.4); the draft asks for 16 at least
MAX_TEXT = 8192  # octets of a received ARK, NMA and query string included; the draft asks for 255 of name

INFLECTIONS = ("?info", "?", "??")  # draft section 5: the present one, then the reserved older forms

# Written, not compiled: a fresh process compiles what it meets, and ``re`` keeps it.
# White space of every kind, and the marks without width that pasted text brings along.
_MARKS = "\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff"
_BLANK = f"[\\s{_MARKS}]+"
_DASHES = "-\u00ad\u2010-\u2015\u2212\ufe58\ufe63\uff0d"
_HYPHEN = f"[{_DASHES}]+"
_COLON, _SLASH = "(?::|%3A)", "(?:/|%2F)"  # as they are, or %-encoded together with the whole ARK
_UNLABELLED = f"(?i)[0-9][{BETANUMERIC}]*/[^/]"  # an ARK without its label, as people write it in talk
_NMA = f"(?ai){_SLASH}(?=ark{_COLON})"
_STRUCTURE = "([/.])[/.]+"
_PERCENT = "(?s)%(..?|$)"
_NEVER = r'[^\x21-\x7e]|[<>"\\^`{|}\[\]]'  # RFC 3986 2: written only as % pairs
_SHOULDER = f"[{BETANUMERIC[10:]}]*[0-9]"
_AROUND = (  # what an ARK is pasted in, an opening and a closing character each
    "() <> [] {} \"\" '' `` \u201c\u201d \u201d\u201d \u201e\u201c \u201e\u201d \u2018\u2019 \u201a\u2018 \u201a\u2019 "
    "\xab\xbb \xbb\xab \xbb\xbb \u2039\u203a \u203a\u2039 \u300c\u300d \u300e\u300f \u300a\u300b \uff08\uff09"
)


class _Rules(NamedTuple):
    """What a version of the draft says of received text and of the normal form."""

    label: str
    outside: str  # a character that the draft does not have, but RFC 3986 in a path: it is kept, and noted
    older: bool  # % pairs in lower case; suffixes sorted and told once
    hash_in_name: bool = False
    host_in_label: bool = False


# A slash after ``ark:/`` is an initial structural character of the name, which 2002 2.4 and 2019 2.7 remove.
PROFILES: dict[Profile, _Rules] = {
    "current": _Rules(f"(?ai)ark{_COLON}{_SLASH}?", r"[^0-9A-Za-z=~*+@_$%./]", older=False),
    "2019": _Rules(f"(?ai)ark{_COLON}{_SLASH}*", r"[^0-9A-Za-z=~*+@_$%./]", older=True),
    "2002": _Rules(
        f"(?ai)ark{_COLON}{_SLASH}*", r"[^0-9A-Za-z=@$_*+#%./]", older=True, hash_in_name=True, host_in_label=True
    ),
}

# Text that is in normal form but for a host and a slash after the label: what most callers have, read at once. It has
# nothing that normalising would move, drop or note (no hyphen, % pair, doubled or final structure character, no suffix
# before a component), so that its parts are the parts of the normal form.
_AS_IT_IS = re.compile(
    rf"(https?://[0-9A-Za-z.:-]+/)?ark:/?([{BETANUMERIC}]{{1,{MAX_NAAN}}})/"
    + r"((C+)((?:/C+)*(?:\.C+)*))(\?[T?/.%-]*)?[ \t\r\n]*".replace("C", "[$*+0-9=@A-Z_a-z~]").replace(
        "T", "!$-,0-;=@A-Z_a-z~"
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
    notes: tuple[str, ...]


class Ark(_Parts):
    """One ARK: equal to every other spelling of itself.

    ``name`` is the base name, ``qualifier`` what follows it (``/c3/s5.v7.xsl``), both in normal form. A bare NAAN
    (``ark:12345``, draft table 1) has neither.
    ``resolution`` is the text that rules match. ``tail`` is the inflection or query string as received,
    its question mark included. ``nma`` is what stood before the label; it identifies nothing. ``notes`` say what
    ``parse`` dropped, or kept although the draft's repertoire does not have it.
    An Ark made from its parts takes them as they are; received text goes through ``parse``.
    """

    __slots__ = ()

    def __new__(
        cls,
        naan: str,
        name: str,
        qualifier: str = "",
        resolution: str = "",
        tail: str = "",
        nma: str = "",
        notes: tuple[str, ...] = (),
    ) -> Ark:
        # Without a resolution form it is made from its parts, not from received text.
        return _new(cls, (naan, name, qualifier, resolution or f"ark:{naan}/{name}{qualifier}", tail, nma, notes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ark) and self[:3] == other[:3]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:3])

    @classmethod
    def parse(cls, text: str | bytes, *, profile: Profile = "current", bare: bool = False) -> Ark:
        """An ARK from any received text: compact, inside a URL, in brackets or quotes, pasted across lines.

        >>> str(Ark.parse("https://n2t.net/ark:/12345/x5-4.v1/c2?info"))
        'ark:12345/x54/c2.v1'

        ``profile`` is the version of the draft that defines the normal form: ``"current"`` (section 3.2), ``"2019"``
        (draft-kunze-ark-21 section 2.7) or ``"2002"`` (draft-kunze-ark-03 section 2.4). The older ones have ``%``
        pairs in lower case, suffixes sorted and told once, and ``ark://``; the oldest ``#`` in a name and
        ``ark:HOST/NAAN/name``, too. ``bare`` takes a NAAN without a name.

        All that RFC 3986 allows in a path is kept, a final bracket or comma too: ``find_arks`` reads prose. A
        fragment is cut, for it never reaches a server. Raises ArkSyntaxError, and nothing else, for any text or
        octets; TypeError for what is neither; ConfigError for an unknown profile.
        """
        if not isinstance(text, str):
            text = _decode(text)
        if profile == "current" and len(text) <= _MAX_AS_IT_IS:
            plain = _AS_IT_IS.fullmatch(text)
            if plain is not None:
                nma, naan, rest, name, qualifier, tail = plain.groups("")
                return _new(cls, (naan, name, qualifier, f"ark:{naan}/{rest}", tail, nma, ()))
        rules = PROFILES.get(profile)
        if rules is None:
            raise ConfigError(f"{profile!r} is none of {', '.join(PROFILES)}", key="profile")
        received = _decode(text)
        text = _unwrap(re.sub(_BLANK, "", received))
        nma, text = _split_nma(text)
        label = re.match(rules.label, text)
        if label is None:
            raise ArkSyntaxError(f"no ark: label in {_shown(nma + text)}{_meant(text, received)}")
        text = text[label.end() :]
        if rules.host_in_label and (host := re.match("[^/?#]*[.:][^/?#]*/", text)):
            nma, text = nma + host[0], text[host.end() :]
        text, tail, fragment = _split_tail(text, rules.hash_in_name)
        parts = re.split(f"(?i){_SLASH}", re.sub(_HYPHEN, "", text), maxsplit=1)
        naan, rest = _check_naan(parts[0].lower()), "".join(parts[1:])
        _check_name(rest)
        base, qualifier = _normalise(rest, rules)
        if not base and not bare:
            raise ArkSyntaxError(f"ark:{naan} names nothing: a name follows the NAAN, as in ark:{naan}/x1")
        notes = _notes(rest, fragment, rules)
        return cls(naan, base, qualifier, f"ark:{naan}/{rest if base else ''}", _check_tail(tail), nma, notes)

    def __str__(self) -> str:
        return f"ark:{self.naan}/{self.name}{self.qualifier}" if self.name else f"ark:{self.naan}"

    @property
    def in_url(self) -> str:
        """The resolution form as it stands in a URL, where ``#`` (2002 draft 2.3) would begin a fragment."""
        return self.resolution.replace("#", "%23")

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
        """The primordinal shoulder: betanumeric, up to and including the first digit (draft section 2.4.1)."""
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


def _unwrap(text: str) -> str:
    """The text without the brackets or quotes around all of it (RFC 3986 appendix C)."""
    while len(text) > 1 and text[0] + text[-1] in _AROUND:
        text = text[1:-1]
    return text


def _split_nma(text: str) -> tuple[str, str]:
    """What precedes the first ``/ark:``, and the rest; an ARK without NMA may hold ``/ark:`` in its name."""
    if re.match(f"(?ai)ark{_COLON}", text):
        return "", text
    nma = re.search(_NMA, text)
    return (text[: nma.end()], text[nma.end() :]) if nma else ("", text)


def _split_tail(text: str, hash_in_name: bool) -> tuple[str, str, str]:
    """NAAN and name, inflection or query string, and fragment, the latter two with the character that begins them."""
    at = text.find("#", text.find("?") if "?" in text else len(text)) if hash_in_name else text.find("#")
    text, fragment = (text, "") if at < 0 else (text[:at], text[at:])
    name, mark, query = text.partition("?")
    return name, mark + query, fragment


def _meant(text: str, received: str) -> str:
    """What a text without a label may have been meant as, for a message."""
    if re.match(_UNLABELLED, text):
        return f": is it {_shown('ark:' + text)}?"
    found = find_arks(received)
    return f": is it {found[0]}?" if found else ""


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


def _normalise(rest: str, rules: _Rules) -> tuple[str, str]:
    """Base name and qualifier in normal form (draft section 3.2, steps 5 and 8; 2002 draft section 2.4).

    Hyphens are gone already: a pair that a line break had split (``%7-d``) is one pair first, so that
    normalising twice changes nothing.
    """
    case = str.lower if rules.older else str.upper
    rest = re.sub(_PERCENT, lambda pair: case(pair[0]), rest)
    rest = re.sub(_STRUCTURE, r"\1", rest).strip("/.")
    # A component with a period on its left and a slash on its right moves to the end; its order is kept.
    path: list[str] = []
    suffixes: list[str] = []
    for segment in rest.split("/"):
        component, *moved = segment.split(".")
        path.append(component)
        suffixes += moved
    if rules.older:
        suffixes = sorted(set(suffixes))
    base, *components = path
    return base, "".join(f"/{part}" for part in components) + "".join(f".{part}" for part in suffixes)


def _notes(rest: str, fragment: str, rules: _Rules) -> tuple[str, ...]:
    notes = []
    if fragment:
        notes.append(f"the fragment {_shown(fragment)} is not part of the ARK")
    if odd := re.findall(rules.outside, rest):
        notes.append(f"outside the draft's repertoire: {' '.join(sorted(set(odd)))}")
    return tuple(notes)


def _shown(text: str) -> str:
    """Received text, safe and short enough for one line of a message."""
    shown = ascii(text)
    return shown if len(shown) <= 80 else shown[:76] + "...'"


# ---- ARKs in prose

_STOP = r"[!&'(),:;]"  # what may follow an ARK in a sentence, and before the next one does
_PIECE = (
    r"[-\u2010\u00ad]\r?\n[ \t]*(?=[0-9A-Za-z])"  # a word broken at the end of a line
    rf"|[{_DASHES}{_MARKS}$*+./0-9=@A-Z_a-z~]|%[0-9A-Fa-f]{{2}}|{_STOP}(?!{_STOP}{{0,3}}(?:https?:|ark{_COLON}))"
)
_IN_PROSE = (
    rf"(?ai)(?:(?<![0-9a-z])|(?<=%2F))ark{_COLON}{_SLASH}{{0,2}}[{_DASHES}{BETANUMERIC}]{{1,{2 * MAX_NAAN}}}{_SLASH}"
    rf"(?:{_PIECE})++(?:\?(?:{_PIECE}|\?)*+)?(?:\#(?:{_PIECE}|[?#])*+)?"
)
_MAX_NMA = 2048  # characters of a URL before a label
_URL_CHARACTERS = r"[!#-;=?-\[\]_a-z~]*"  # RFC 3986 2


def find_arks(text: str, *, profile: Profile = "current") -> list[Ark]:
    """Every ARK in a text, in order (2002 draft section 2.5). Never raises for a text.

    >>> [str(ark) for ark in find_arks("See ark:12345/x5-4 (and https://n2t.net/ark:/12345/x6).")]
    ['ark:12345/x54', 'ark:12345/x6']

    Punctuation at the end belongs to the sentence, a question mark too, and so do brackets and quotes that were
    opened before the ARK.
    """
    found: list[Ark] = []
    end = 0
    for match in re.finditer(_IN_PROSE, text):
        before = text[max(end, match.start() - _MAX_NMA) : match.start()]
        if len(match[0]) > MAX_TEXT:
            continue
        nma = _nma_at_end(before)
        try:
            ark = Ark.parse(_trim(match[0], before[-1:], in_query=before[-1:] == "=" or "?" in nma), profile=profile)
        except ArkSyntaxError:
            continue
        found.append(ark._replace(nma=nma))
        end = match.end()
    return found


def _trim(found: str, before: str, in_query: bool) -> str:
    """An ARK in prose without what belongs to the sentence. ``before`` is the character before it."""
    if in_query:  # the next parameter
        found = found.partition("&")[0]
    opened: list[int] = []
    for bracket in re.finditer("[()]", found):
        if bracket[0] == "(":
            opened.append(bracket.start())
        elif opened:
            opened.pop()
        else:
            opened = [bracket.start()]
            break
    found = found[: opened[0]] if opened else found
    digit = max(map(found.rfind, "0123456789"))
    if dash := re.search("[\u2014\u2015]", found[digit + 1 :]):  # of the sentence: only words follow it
        found = found[: digit + 1 + dash.start()]
    emphasis = before if before in ("*", "_", "~") else ""  # as Markdown has it
    return found.rstrip(f".,;:!?'&{emphasis}").removesuffix("'s").rstrip(".,;:!?'&")


def _nma_at_end(before: str) -> str:
    """The beginning of a URL that a text ends with; empty where it ends with none."""
    if not before.lower().endswith(("/", "%2f")):
        return ""
    run = re.match(_URL_CHARACTERS, before[::-1])
    url = run[0][::-1] if run else ""
    scheme = re.search("(?ai)https?://", url)
    return url[scheme.start() :] if scheme else url.lstrip("!'()*,;:[]")
