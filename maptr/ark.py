"""ARKs: from text to Ark and back, check characters, and ARKs in prose.

An ARK has two forms that must not be confused:

* the *normal form* (draft-kunze-ark section 3.2) decides equality, hash and ``str()``;
* the *resolution form* is the ARK as received, without the characters that are never part of it. Rules match it and
  URLs are made from it, because an NMA may distinguish a final slash or the case of a ``%`` pair.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Literal, NamedTuple, TypedDict, Unpack
from unicodedata import category

from maptr.errors import ArkSyntaxError, ConfigError, json_text
from maptr.rewritten import NEVER, SUBFIELD, decoded, of_europeana, restored

BETANUMERIC = "0123456789bcdfghjkmnpqrstvwxz"
"""The characters of a NAAN, in the order of their values for a check character (NOID, NCDA)."""

Profile = Literal["current", "2019", "2002"]
Hyphens = Literal["remove", "keep"]
Scope = Literal["naan", "name"]
SCOPES: tuple[Scope, ...] = ("naan", "name")

MAX_NAAN = 63  # one DNS label (RFC 1035 2.3.4); the draft asks for at least 16
MAX_COUNTED = 20  # ARKs counted in a text that should have one
MAX_TRIED = 40  # labels in such a text that are looked at, because a server must not read hundreds to refuse a request
MAX_TEXT = 8192  # bytes of a received ARK, with NMA and query string; the draft asks for names of at least 255

INFLECTIONS = ("?info", "?", "??")  # draft section 5: the current one, then the reserved older forms

# Patterns are strings, because a short process uses few of them and ``re`` caches those that it compiles. Each has
# examples and counter-examples in tests/vectors/ark_patterns.toml.
_MARKS = "\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff"  # zero-width characters that pasted text may have
_DASHES = "-\u00ad\u2010-\u2015\u2212\ufe58\ufe63\uff0d"
_HYPHEN = f"[{_DASHES}]+"
_LINE_END = "(?:\r\n|[\n\r\x85\u2028\u2029])"
_INDENT = f"(?>(?:(?!{_LINE_END})\\s)*)"
_WRAP = f"{_INDENT}{_LINE_END}{_INDENT}(?!{_LINE_END})"  # the end of a line, not of a paragraph
_COLON, _SLASH = "(?::|%3A)", "(?:/|%2F)"  # plain, or %-encoded with the whole ARK
_BLANK_IN_LABEL = f"(?:[ \u00a0]+(?=/?[0-9][{BETANUMERIC}]{{4}}))?"  # as in "ARK: 53355/x", but not in prose
_LABEL = f"ark{_COLON}{_BLANK_IN_LABEL}"
_AFTER_LABEL = f"(?ai)(?<=ark:){_BLANK_IN_LABEL}"
_BEFORE_LABEL = f"(?:^|(?<=[/=:.&?+~_@!{_DASHES[1:]}-])(?<!://)|(?<=%[0-9A-F]{{2}})(?<!%2F%2F))"
_LABEL_AND_NAAN = f"(?ai){_LABEL}{_SLASH}*[{BETANUMERIC}]+{_SLASH}"
# An ARK in the text before the label; "ark:8080" after "://" is a host with its port.
_ARK_BEFORE = f"(?ai)(?<![0-9a-z])(?<!://){_LABEL}{_SLASH}*[{BETANUMERIC}]+{_SLASH}"
_STRUCTURE_RECEIVED = f"(?ai)ark{_COLON}{_SLASH}*[{_DASHES}{BETANUMERIC}]*{_SLASH}?"  # label, NAAN, slash
_PARAMETER = "&|;(?=[A-Za-z][0-9A-Za-z_.-]*=)"  # the start of a URL's next parameter
_ENCODED_PARAMETER = "%26|%3B(?=[A-Za-z][0-9A-Za-z_.-]*%3D)"
_SCHEME = f"HTTPS?{_COLON}{_SLASH}{{2}}"  # the start of a URL within a URL, in capitals: "https://", "https%3A%2F%2F"
# An encoded delimiter before an ARK or its URL, and the one that ends it.
_CLOSING = {"%22": "%22", "%27": "%27", "%28": "%29", "%3C": "%3E", "%3D": "%26", "%5B": "%5D", "%7B": "%7D"}
_CLOSING |= dict.fromkeys(("%20", "%09", "%0A", "%0D"), "%20|%0[9AD]")
# What ends an ARK in encoded text: white space, what RFC 3986 excludes, and the punctuation of U+0080 to U+00BF,
# U+2000 to U+203F (without its hyphens), U+3000 to U+303F and U+FF00 to U+FF0F.
_ENCODED_END = (
    "%(?:[01][0-9A-F]|2[02]|3[CE]|5[BCDE]|60|7[BCDF]|C2%[89AB][0-9A-F]"
    "|E2%80%(?:8[0-9A-F]|9[6-9A-F]|[AB][0-9A-F])|E3%80%[89AB][0-9A-F]|EF%BC%8[0-9A-F])"
)
_ENTITY = "(?ai)&(?:#[0-9]{1,7}|#x[0-9a-f]{1,6}|[a-z][a-z0-9]{1,30});"
_LAYOUT = r"[^\S \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]"  # white space that is not a blank: a tab, a line end
# What people write before NAAN and name in place of the label, or nothing.
_UNLABELLED = f"(?ai)(?:^/?|(?:^|[/:])arks?[\\s:\uff1a/]*)(?=[0-9][{BETANUMERIC}]*/[^/\\s])"
_MARC = f"(?ai)[^:?]*(?:{SUBFIELD}https?:|[$\u2021]u)"  # "40$uhttps://n2t.net/", "$un2t.net/"
_STRUCTURE = "([/.])[/.]+"
_PERCENT = "(?s)%(..?|$)"
_CONTROL = r"[\x00-\x1f\x7f]"
_SHOULDER = f"[{BETANUMERIC[10:]}]*[0-9]"
_AROUND = (  # pairs of brackets and quotes that may enclose a pasted ARK
    "() <> [] {} \"\" '' `` \u201c\u201d \u201d\u201d \u201e\u201c \u201e\u201d \u2018\u2019 \u201a\u2018 \u201a\u2019 "
    "\xab\xbb \xbb\xab \xbb\xbb \u2039\u203a \u203a\u2039 \u300c\u300d \u300e\u300f \u300a\u300b \uff08\uff09"
)


class _Rules(NamedTuple):
    """The rules of one version of the draft for received text and the normal form."""

    outside: str  # a character that the draft excludes, but RFC 3986 allows in a path: it is kept and noted
    older: bool  # % pairs in lower case; suffixes sorted, without duplicates
    hash_in_name: bool = False
    host_in_label: bool = False


PROFILES: dict[Profile, _Rules] = {
    "current": _Rules(r"[^0-9A-Za-z=~*+@_$%./]", older=False),
    "2019": _Rules(r"[^0-9A-Za-z=~*+@_$%./]", older=True),
    "2002": _Rules(r"[^0-9A-Za-z=@$_*+#%./]", older=True, hash_in_name=True, host_in_label=True),
}

# A shortcut for most ARKs, which bulk discovery needs: text in normal form, apart from a host and a slash after the
# label. It has nothing to normalise or note (no hyphen, % pair, doubled or final structural character, and no suffix
# before a component).
_AS_IT_IS = re.compile(
    rf"(https?://[0-9A-Za-z.:-]+/)?ark:/?([{BETANUMERIC}]{{1,{MAX_NAAN}}})/"
    + r"(C+)((?:/C+)*(?:\.C+)*)(\?[T?/.%-]*)?[ \t\r\n]*".replace("C", "[$*+0-9=@A-Z_a-z~]").replace(
        "T", "!$-,0-:=@A-Z_a-z~"
    )
)
_MAX_AS_IT_IS = 255  # characters


class SharedNaan(NamedTuple):
    """The meaning of a NAAN that all organisations share (draft section 2.3, table 2). ``resolves`` and ``long_term``
    hold for its ARKs; None means perhaps."""

    meaning: str
    resolves: bool | None
    long_term: bool


SHARED_NAANS = {
    "12345": SharedNaan("examples in documentation", None, False),
    "99152": SharedNaan("controlled vocabulary and ontology terms", True, True),
    "99166": SharedNaan("people, groups and institutions as agents", True, True),
    "99999": SharedNaan("test, development and experiment", None, False),
}


class _Changes(TypedDict, total=False):
    resolution: str
    tail: str
    nma: str
    notes: tuple[str, ...]
    hyphenated: str


class _Received(NamedTuple):
    """What the text had besides the normal form. ``resolution`` is "" where it is the normal form."""

    resolution: str = ""
    tail: str = ""
    nma: str = ""
    notes: tuple[str, ...] = ()
    hyphenated: str = ""


_NOTHING = _Received()


class Ark:
    """One ARK (draft-kunze-ark section 2): an immutable value, equal to all its other spellings.

    ``Ark(naan, name, qualifier)`` makes one from parts in any spelling that the draft allows; a name without a
    qualifier is the base name, and a qualifier begins with ``/`` or ``.``. ``parse`` reads received text. Both raise
    ArkSyntaxError. Equality, hash and order (by code points) use the normal form, which is ``str(ark)``.

    ``name`` is the base name, ``qualifier`` the rest (``/c3/s5.v7.xsl``), both in normal form. A bare NAAN
    (``ark:12345``, draft table 1) has neither. ``resolution`` is the resolution form. ``tail`` is the inflection or
    query string as received, with its question mark. ``nma`` is the text before the label, which identifies nothing.
    ``hyphenated`` is the resolution form with the hyphens that it came with, or "". ``notes`` say what ``parse``
    dropped, or kept although the draft excludes it.

    >>> ark = Ark.parse("https://n2t.net/ark:/12345/x5-4.v1?info")
    >>> str(ark), ark.nma, ark.naan, ark.name, ark.qualifier, ark.inflection
    ('ark:12345/x54.v1', 'https://n2t.net/', '12345', 'x54', '.v1', '?info')
    >>> Ark("12345", "x5-4") / "c3", Ark("12345", "x54", "/c3.pdf").parent
    (Ark('12345', 'x54', '/c3'), Ark('12345', 'x54', '/c3'))
    """

    __slots__ = ("_received", "naan", "name", "qualifier")

    naan: str
    name: str
    qualifier: str
    _received: _Received

    def __new__(cls, naan: str, name: str, qualifier: str = "") -> Ark:
        for part in (naan, name, qualifier):
            if not isinstance(part, str):
                raise TypeError(f"a part of an ARK is a str, not {type(part).__name__}")
        if re.search("[/.]", name):
            raise ArkSyntaxError(f"{_shown(name)} is not a base name: what follows its first / or . is the qualifier")
        if qualifier and (qualifier[0] not in "/." or not name):
            raise ArkSyntaxError(f"{_shown(qualifier)} is not a qualifier, which follows a name and begins with / or .")
        rest = f"{name}{qualifier}"
        if rest:
            _check_components(rest)
        made = _of_parts(naan, rest, PROFILES["current"], received=rest, bare=not rest)
        return made.with_received(hyphenated="")

    def __setattr__(self, name: str, *value: object) -> None:
        raise AttributeError(f"an Ark is immutable: replace({name}=...) makes a copy")

    __delattr__ = __setattr__

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, (self.naan, self.name, self.qualifier, *self._received)

    def __copy__(self) -> Ark:
        return self

    def __deepcopy__(self, memo: object) -> Ark:
        return self

    def __str__(self) -> str:
        return f"ark:{self.naan}/{self.name}{self.qualifier}" if self.name else f"ark:{self.naan}"

    def __repr__(self) -> str:
        parts = (self.naan, self.name, self.qualifier) if self.qualifier else (self.naan, self.name)
        return f"Ark({', '.join(map(repr, parts))})"

    def __format__(self, specification: str) -> str:
        return format(str(self), specification)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ark):
            return NotImplemented
        return self.name == other.name and self.naan == other.naan and self.qualifier == other.qualifier

    def __hash__(self) -> int:
        return hash((self.naan, self.name, self.qualifier))

    def __lt__(self, other: Ark) -> bool:
        return str(self) < str(other) if isinstance(other, Ark) else NotImplemented

    def __le__(self, other: Ark) -> bool:
        return str(self) <= str(other) if isinstance(other, Ark) else NotImplemented

    def __gt__(self, other: Ark) -> bool:
        return str(self) > str(other) if isinstance(other, Ark) else NotImplemented

    def __ge__(self, other: Ark) -> bool:
        return str(self) >= str(other) if isinstance(other, Ark) else NotImplemented

    def __conform__(self, protocol: object) -> str:
        """Return the text that ``sqlite3`` stores for a parameter."""
        return str(self)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        """Return the schema of a pydantic field: text that ``parse`` reads, written in normal form."""
        from pydantic_core import core_schema  # only pydantic calls this

        def read(value: object) -> Ark:
            if not isinstance(value, Ark | str | bytes):
                raise ValueError("an ARK is a text")
            return cls.parse(value)

        return core_schema.no_info_plain_validator_function(
            read,
            json_schema_input_schema=core_schema.str_schema(),
            serialization=core_schema.to_string_ser_schema(when_used="json"),
        )

    @property
    def resolution(self) -> str:
        return self._received.resolution or f"ark:{self.naan}/{self.name}{self.qualifier}"

    @property
    def tail(self) -> str:
        return self._received.tail

    @property
    def nma(self) -> str:
        return self._received.nma

    @property
    def notes(self) -> tuple[str, ...]:
        return self._received.notes

    @property
    def hyphenated(self) -> str:
        return self._received.hyphenated

    def replace(self, *, naan: str | None = None, name: str | None = None, qualifier: str | None = None) -> Ark:
        """Return an ARK with other parts, made as by ``Ark(naan, name, qualifier)``; it keeps only the ``nma``.

        >>> Ark("12345", "x54", "/c3").replace(qualifier="/c4")
        Ark('12345', 'x54', '/c4')
        """
        made = Ark(
            self.naan if naan is None else naan,
            self.name if name is None else name,
            self.qualifier if qualifier is None else qualifier,
        )
        return made.with_received(nma=self.nma)

    def __replace__(self, **changes: str) -> Ark:
        return self.replace(**changes)

    def __truediv__(self, text: str) -> Ark:
        """Return the ARK of one or more components below this one, as received: hyphens are removed, ``%`` pairs are
        normalised, nothing is encoded. The first one below a bare NAAN is a name. Tail and notes are dropped.

        Raises ArkSyntaxError for a component that is empty, ``.``, ``..``, or has ``?``, ``#`` or a blank, and below an
        ARK with a variant (``x.pdf``), because the draft would move the variant after the component (3.2).
        """
        if not isinstance(text, str):
            return NotImplemented
        if self.variants:
            raise ArkSyntaxError(f"{self} is a variant, which has no components: use .parent / {text!r:.80}")
        _check_components(text)
        if "." in text.rpartition("/")[0]:
            raise ArkSyntaxError(f"{_shown(text)} has a variant before its last component, behind which it would move")
        before = (self.hyphenated or self.resolution).partition("/")[2].rstrip("/")
        rest = f"{before}/{text}" if before else text
        return _of_parts(self.naan, rest, PROFILES["current"], received=rest, nma=self.nma)

    @property
    def parent(self) -> Ark:
        """The ARK without its variants; if it has none, without its last component; finally the bare NAAN, which is its
        own parent."""
        at = self.qualifier.find(".")
        if at < 0:
            at = self.qualifier.rfind("/")
        if at < 0:
            return _made(self.naan, "", "")
        return _made(self.naan, self.name, self.qualifier[:at])

    @property
    def parents(self) -> tuple[Ark, ...]:
        """The parent, its parent, and so on, up to the bare NAAN.

        >>> [str(ark) for ark in Ark("12345", "x54", "/c3.pdf").parents]
        ['ark:12345/x54/c3', 'ark:12345/x54', 'ark:12345']
        """
        found: list[Ark] = []
        ark = self
        while ark.name:
            ark = ark.parent
            found.append(ark)
        return tuple(found)

    @property
    def parts(self) -> tuple[str, ...]:
        """NAAN, name and components: ``("12345", "x54", "c3")`` for ``ark:12345/x54/c3.pdf``."""
        return (self.naan, self.name, *self.components) if self.name else (self.naan,)

    def with_inflection(self, inflection: str | None) -> Ark:
        """Return the ARK with an inflection, ``?info``, ``?`` or ``??``, in place of its tail; None removes the tail.

        Raises ArkSyntaxError for another text.
        """
        if inflection is not None and inflection not in INFLECTIONS:
            raise ArkSyntaxError(f"{_shown(inflection)} is not one of {', '.join(INFLECTIONS)}")
        return self.with_received(tail=inflection or "")

    def received(self) -> dict[str, Any]:
        """Return what is not in the normal form, in JSON types, as ``with_received`` takes it."""
        return {**self._received._asdict(), "resolution": self.resolution, "notes": list(self.notes)}

    def with_received(self, **changes: Unpack[_Changes]) -> Ark:
        """Return the same ARK with other received text, which is not checked: the caller has split it from an ARK."""
        return _made(self.naan, self.name, self.qualifier, self._received._replace(**changes))

    @classmethod
    def parse(
        cls, text: Ark | str | bytes, *, profile: Profile = "current", bare: bool = False, wrapped: bool = False
    ) -> Ark:
        """Read an ARK from any received text: alone, in a URL, in brackets or quotes, or broken across lines.

        >>> str(Ark.parse("https://n2t.net/ark:/12345/x5-4.v1/c2?info"))
        'ark:12345/x54/c2.v1'

        ``profile`` is the version of the draft that defines the normal form: ``"current"`` (section 3.2), ``"2019"``
        (draft-kunze-ark-21 section 2.7) or ``"2002"`` (draft-kunze-ark-03 section 2.4). The older versions have ``%``
        pairs in lower case and sorted suffixes without duplicates; the oldest also allows ``#`` in a name
        and ``ark:HOST/NAAN/name``. ``bare`` accepts a NAAN without a name.

        The end of a line and its indentation are removed (section 3.1). ``wrapped`` also removes one run of blanks, for
        text that a person pastes as one ARK. Any other white space, and a second label, make the text not an ARK.
        If the colon of the label or the slash after label or NAAN is %-encoded, one layer of encoding is removed.
        In the query string of another URL, the ARK ends at its next parameter.
        Everything that RFC 3986 allows in a path is kept, even a final bracket or comma; for prose, use ``find_arks``.
        A fragment is cut off, because it is never sent to a server. An ``Ark`` is returned unchanged. Raises
        ArkSyntaxError for invalid text or bytes and for an invalid NAAN, TypeError for other types, and ConfigError for
        an unknown profile.
        """
        if isinstance(text, Ark):
            check_naan(text.naan)
            return text
        if not isinstance(text, str):
            text = _decode(text)
        if profile == "current" and len(text) <= _MAX_AS_IT_IS:
            plain = _AS_IT_IS.fullmatch(text)
            if plain is not None:
                nma, naan, name, qualifier, tail = plain.groups("")
                if tail or nma:
                    # Faster than the class itself: scripts/bench client.
                    return _made(naan, name, qualifier, _new_tuple(_Received, ("", tail, nma, (), "")))
                return _made(naan, name, qualifier)
        rules = PROFILES.get(profile)
        if rules is None:
            raise ConfigError(f"{profile!r} is not one of {', '.join(PROFILES)}", key="profile")
        received = _decode(text)
        pasted = _pasted(received)
        blanks = re.findall(r"\s+", pasted)
        if blanks and not (wrapped and len(blanks) == 1 and not re.search(_LAYOUT, blanks[0])):
            is_labelled = re.search(_LABEL_AND_NAAN, pasted) is not None
            problem = "white space inside" if is_labelled else "no ark: label in"
            raise _not_one(received, f"{problem} {_shown(pasted)}", pasted, labelled=is_labelled)
        nma, text = _split_nma(re.sub(r"\s", "", pasted))
        if not re.match(f"(?ai){_LABEL}", text):
            raise _not_one(received, f"no ark: label in {_shown(text)}", text, labelled=False)
        within = _within_url(_Around.of(nma), text)
        try:
            _check_nma(nma, text, received)
            return cls._read(nma, _without_layer(within), rules, bare=bare)
        except _NotAlone as error:
            raise _not_one(received, str(error), within) from None

    @classmethod
    def _read(cls, nma: str, text: str, rules: _Rules, *, bare: bool = False) -> Ark:
        """Return the ARK of a text that starts with its label and has no white space and no layer of encoding."""
        received = nma + text
        label = re.match(f"(?ai){_LABEL}/*", text)
        if label is None:  # in prose, the text may have ended inside of it
            raise ArkSyntaxError(f"no ark: label in {_shown(received)}", labelled=False)
        text = text[label.end() :]
        if rules.host_in_label and (host := re.match("[^/?#]*/", text)) and re.search("[.:]", host[0]):
            nma, text = nma + host[0], text[host.end() :]
        text, tail, fragment = _split_tail(text, rules.hash_in_name)
        naan, _, rest = text.partition("/")
        return _of_parts(naan, rest, rules, received=received, tail=tail, nma=nma, fragment=fragment, bare=bare)

    @property
    def without_hyphens(self) -> str:
        """The resolution form without hyphens that were kept, for comparisons."""
        return self.resolution.replace("-", "")

    @property
    def in_url(self) -> str:
        """The resolution form for a URL, in which a ``#`` (2002 draft 2.3) would begin a fragment."""
        return self.resolution.replace("#", "%23")

    def sent(self, hyphens: Hyphens) -> Ark:
        """Return the ARK whose resolution form has no hyphens ("remove"), or those that it came with ("keep")."""
        return self.with_received(resolution=self.hyphenated) if hyphens == "keep" and self.hyphenated else self

    @property
    def inflection(self) -> str | None:
        """``?info``, ``?`` or ``??`` if the ARK ends with one, else None."""
        return self.tail if self.tail in INFLECTIONS else None

    @property
    def query(self) -> str | None:
        """The query string without its question mark, or None; an inflection is not a query string."""
        return self.tail[1:] if self.tail and self.inflection is None else None

    @property
    def shoulder(self) -> str | None:
        """The primordinal shoulder: letters up to and including the first digit (draft section 2.4.1)."""
        match = re.match(_SHOULDER, self.name)
        return match[0] if match else None

    @property
    def blade(self) -> str:
        """The base name without its shoulder."""
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
        """The meaning of the NAAN if it is a shared one."""
        return SHARED_NAANS.get(self.naan)

    def implied(self) -> tuple[Ark, ...]:
        """Return every ARK that publishing this one implies, itself first (draft sections 2.5.1 and 2.5.2).

        >>> [str(ark) for ark in Ark.parse("ark:12345/x54/c2.fr.odf").implied()]
        ['ark:12345/x54/c2.fr.odf', 'ark:12345/x54/c2.fr', 'ark:12345/x54/c2', 'ark:12345/x54']
        """
        steps = [self]
        qualifier = self.qualifier
        while qualifier:
            qualifier = qualifier[: max(qualifier.rfind("."), qualifier.rfind("/"))]
            steps.append(_made(self.naan, self.name, qualifier))
        return tuple(steps)

    def to_dict(self) -> dict[str, Any]:
        """Return every part, in JSON types; None for a part that is not present."""
        return {
            "ark": str(self),
            "resolution": self.resolution,
            "naan": self.naan,
            "shared": self.shared.meaning if self.shared else None,
            "name": self.name,
            "shoulder": self.shoulder,
            "blade": self.blade,
            "qualifier": self.qualifier,
            "components": list(self.components),
            "variants": list(self.variants),
            "inflection": self.inflection,
            "query": self.query,
            "nma": self.nma,
            "check": self.check() is not None,
            "check_scope": self.check_scope,
            "check_character": self.name[-1] if self.check() else None,
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """Return ``to_dict`` as JSON."""
        return json_text(self.to_dict())

    def check(self, scope: Scope | None = None) -> Scope | None:
        """Return the scope over which the last character of the base name is its check character; None if it is not.

        That is ``"naan"`` for NAAN and name, as N2T and most organisations compute it, even if both are right, or
        ``"name"`` for the name alone, as the National Library of France does. ``scope`` accepts only one of them. Of
        names without a check character, 7 of 100 pass one of the two by chance.

        >>> Ark.parse("ark:/13030/xf93gt2q").check(), Ark.parse("ark:/12148/cb13988532q").check()
        ('naan', 'name')
        """
        return next((each for each in _scopes(scope) if self._holds(each)), None)

    @property
    def check_scope(self) -> Literal["naan", "name", "both"] | None:
        """The scopes over which the check character is right: ``"naan"``, ``"name"``, ``"both"``, or None."""
        return "both" if self._holds("naan") and self._holds("name") else self.check()

    def check_character(self, *, scope: Scope) -> str:
        """Return the check character to add to the base name (NOID Check Digit Algorithm), over a scope of ``check``.

        Raises ArkSyntaxError for a bare NAAN.

        >>> Ark("13030", "xf93gt2").check_character(scope="naan")
        'q'
        """
        if not self.name:
            raise ArkSyntaxError(f"{self} has no name, and so no check character")
        (each,) = _scopes(scope)
        return _ncda(self.naan, self.name, each)

    def with_check_character(self, *, scope: Scope) -> Ark:
        """Return the ARK of the base name with its check character added. Raises ArkSyntaxError for a bare NAAN."""
        return self.replace(name=self.name + self.check_character(scope=scope))

    def _holds(self, scope: Scope) -> bool:
        return bool(self.name[:-1]) and _ncda(self.naan, self.name[:-1], scope) == self.name[-1]


def _scopes(scope: Scope | None) -> tuple[Scope, ...]:
    if scope is not None and scope not in SCOPES:
        raise ConfigError(f"{scope!r} is not one of {', '.join(SCOPES)}", key="scope")
    return SCOPES if scope is None else (scope,)


def _made(naan: str, name: str, qualifier: str, received: _Received = _NOTHING) -> Ark:
    """Make an ARK of checked parts: the one place where its attributes are set."""
    ark = _new(Ark)
    _set_naan(ark, naan)
    _set_name(ark, name)
    _set_qualifier(ark, qualifier)
    _set_received(ark, received)
    return ark


# The attributes of an Ark cannot be assigned, so its slots are set directly, as frozen dataclasses do.
_new, _new_tuple = object.__new__, tuple.__new__
_set_naan, _set_name, _set_qualifier, _set_received = (
    vars(Ark)[name].__set__ for name in ("naan", "name", "qualifier", "_received")
)


def _unpickled(naan: str, name: str, qualifier: str, *received: Any) -> Ark:
    return _made(naan, name, qualifier, _Received(*received))


NO_ARK = _made("", "", "")
"""Stands for an ARK where there is none: in a discovery for an item that is not an ARK."""


def _of_parts(
    naan: str,
    rest: str,
    rules: _Rules,
    *,
    received: str,
    tail: str = "",
    nma: str = "",
    fragment: str = "",
    bare: bool = False,
) -> Ark:
    """Return the ARK of a NAAN and what follows its slash, as received. Raises ArkSyntaxError."""
    hyphenated = re.sub(_HYPHEN, "-", rest.replace("\xad", ""))
    naan, rest = re.sub(_HYPHEN, "", naan).lower(), re.sub(_HYPHEN, "", rest)
    if ":" in naan and re.search("(?ai)ark:|https?:$", naan):  # "ark:/ark:/12345/x1"
        raise _NotAlone(_second_label(received))
    check_naan(naan)
    if re.search(_LABEL_AND_NAAN, rest):
        raise _NotAlone(_second_label(received))
    _check_name(rest)
    base, qualifier = _normalise(rest, rules)
    if not base and not bare:
        raise ArkSyntaxError(f"ark:{naan} has no name after the NAAN: write ark:{naan}/NAME")
    keeps_hyphens = base and "-" in hyphenated and not re.search("%.?-", hyphenated)
    found = _Received(
        f"ark:{naan}/{rest}" if base and rest != base + qualifier else "",
        _check_tail(tail),
        nma,
        _notes(rest, fragment, rules),
        f"ark:{naan}/{hyphenated}" if keeps_hyphens else "",
    )
    return _made(naan, base, qualifier, found)


def _check_components(text: str) -> None:
    """Check components that a program gives. Raises ArkSyntaxError."""
    if wrong := re.search(r"[?#\s]", text):
        raise ArkSyntaxError(f"{_shown(wrong[0])} is not allowed in a component, here {_shown(text)}")
    for component in text.split("/"):
        if not component.partition(".")[0]:
            raise ArkSyntaxError(f"{_shown(text)} has an empty component, or one that begins with a dot")


def _ncda(naan: str, name: str, scope: Scope) -> str:
    """Return the check character of a name (NCDA). Characters that are not betanumeric count as zero."""
    text = f"{naan}/{name}" if scope == "naan" else name
    values = (position * max(BETANUMERIC.find(character), 0) for position, character in enumerate(text, 1))
    return BETANUMERIC[sum(values) % len(BETANUMERIC)]


def _decode(text: str | bytes) -> str:
    """Return the Unicode text of the data, within the length limit."""
    if not isinstance(text, str | bytes):
        raise TypeError(f"an ARK is a str, bytes or an Ark, not {type(text).__name__}")
    if len(text) > MAX_TEXT:
        raise ArkSyntaxError(f"longer than {MAX_TEXT} bytes")
    try:
        if isinstance(text, bytes):
            return text.decode()
        text.encode()
    except UnicodeError:
        raise ArkSyntaxError("not UTF-8") from None
    return text


def _pasted(text: str) -> str:
    """Return received text without what surrounds an ARK, and without line ends and zero-width characters in it."""
    text = _bare(_plain(re.sub(f"[{_MARKS}]", "", text)).strip())
    return re.sub(_AFTER_LABEL, "", re.sub(r"\s+", _unwrapped, text), count=1)


def _bare(text: str) -> str:
    """Return a text without the brackets, quotes and emphasis around it (RFC 3986 appendix C)."""
    start, end = 0, len(text)
    while end - start > 1 and (
        text[start] + text[end - 1] in _AROUND
        or (end - start > 2 and text[start] == text[end - 1] and text[start] in _EMPHASIZING)
    ):
        start, end = start + 1, end - 1
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
    return text[start:end]


def _unwrapped(blanks: re.Match[str]) -> str:
    """Return a run of white space without a line end in it and the indentation around that.

    Of several line ends, which end a paragraph, only the last one is removed.
    """
    ends = [found.end() for found in re.finditer(_LINE_END, blanks[0])]
    return blanks[0][: ends[-2]] if len(ends) > 1 else "" if ends else blanks[0]


def _plain(text: str) -> str:
    """Return a text without HTML entities and the escapes of JSON's slashes.

    Both quotes become the one that is never part of an ARK.
    """
    text = text.replace("\\/", "/")
    if "&" not in text or ";" not in text:
        return text
    import html  # late: few texts have entities

    return re.sub(_ENTITY, lambda entity: html.unescape(entity[0]).replace("'", '"'), text)


def _split_nma(text: str) -> tuple[str, str]:
    label = re.search(f"(?ai){_BEFORE_LABEL}ark{_COLON}", text)
    return (text[: label.start()], text[label.start() :]) if label else ("", text)


class _Around(NamedTuple):
    """What the text before an ARK tells about its end: about the URL around it, or the text that a URL encodes."""

    parameters: bool = False  # "?a=ark:/12345/x1&b=2"
    encoded_parameters: bool = False  # "%3Fa%3Dark%3A%2F12345%2Fx1%26b%3D2"
    value: bool = False  # "?text=ark%3A%2F12345%2Fx1%20and": an ARK with an encoded label is in encoded text
    text: bool = False  # "?text=https%3A%2F%2Fn2t.net%2Fark:12345%2Fx1%20and", "mailto:?body=...": so is any ARK
    closing: str = ""  # a pattern

    @classmethod
    def of(cls, before: str) -> _Around:
        """Read the text before the label, from the start of the outermost URL on."""
        if not ("?" in before or "=" in before or "%" in before):
            return _NOTHING_AROUND
        of_fragment = "=" in before and ("://" not in before or "=" in before.partition("#")[2])
        parameters = "?" in before or of_fragment
        if "%" not in before and "+" not in before and "mailto:" not in before:
            return _IN_PARAMETER if parameters else _NOTHING_AROUND
        upper = before.upper()
        schemes = list(re.finditer(_SCHEME, upper))
        opening = [upper[-3:], *(upper[: scheme.start()][-3:] for scheme in schemes[-1:])]
        encoded_parameters = "%3F" in upper
        closing = next((_CLOSING[each] for each in opening if each in _CLOSING), "")
        if not closing and parameters and any(each.endswith("+") for each in opening):
            closing = r"\+|%20|%0[9AD]"
        text = "MAILTO:" in upper or any("%" in scheme[0] for scheme in schemes)
        return cls(parameters, encoded_parameters, parameters or encoded_parameters or text, text, closing)

    def further(self, after: _Around) -> _Around:
        """Return what holds for a later ARK of the same URL, before which ``after`` was read."""
        if self is _NOTHING_AROUND:
            return after
        return _Around(
            self.parameters or after.parameters,
            self.encoded_parameters or after.encoded_parameters,
            self.value or after.value,
            self.text or after.text,
            after.closing,
        )


_NOTHING_AROUND, _IN_PARAMETER = _Around(), _Around(parameters=True, value=True)


def _within_url(around: _Around, text: str) -> str:
    """Return an ARK, still encoded, without what follows it in the URL, or in the text that the URL encodes."""
    if around is _NOTHING_AROUND:
        return text
    is_encoded = around.value and _is_encoded(text)
    ends = [around.closing] if around.closing else []
    if around.parameters:
        ends.append(_PARAMETER)
    if around.encoded_parameters:
        ends.append(_ENCODED_PARAMETER)
    if around.text or is_encoded:
        ends.append(_ENCODED_END)
    if is_encoded and around.parameters:
        ends.append(r"\+")  # a blank of a form
    end = re.search(f"(?i){'|'.join(ends)}", text) if ends else None
    return text if end is None else text[: end.start()]


def _is_encoded(text: str) -> bool:
    """Return whether the label of an ARK or a slash beside its NAAN is %-encoded."""
    start = re.match(_STRUCTURE_RECEIVED, text)
    return start is not None and "%" in start[0]


def _check_nma(nma: str, text: str, received: str) -> None:
    """Raise _NotAlone for text before the label after which an ARK would not end where it should: another ARK, an
    opening quotation mark, MARC's ``$u``, a link of urldefense.com."""
    if "urldefense" in nma.lower():
        raise _NotAlone(f"a link that urldefense.com rewrote: {_shown(nma + text)}")
    is_code = nma and not nma.startswith("http") and re.match(_MARC, nma)
    if is_code or ("\x1f" in received and re.match(r"\s*\x1f[0-9a-z]", received)):
        raise _NotAlone(f"a subfield of MARC: {_shown(nma + text)}")
    if '"' in nma and '"' in text:
        raise _NotAlone(_only_as('"'))
    if re.search(_ARK_BEFORE, nma):
        raise _NotAlone(_second_label(nma + text))


def _without_layer(text: str) -> str:
    """Return an ARK without one layer of %-encoding, if its label or a slash beside its NAAN has it.

    The layer reaches to the next delimiter of the URL around it. What a URL must not contain remains encoded.
    """
    start = re.match(_STRUCTURE_RECEIVED, text)
    if start is None or "%" not in start[0]:
        return text
    delimiter = re.compile("[/?&#]").search(text, start.end())
    if delimiter and delimiter[0] == "&":  # the next parameter
        text = text[: delimiter.start()]

    def without(segment: re.Match[str]) -> str:
        if "%" not in text[segment.start() : min(segment.end(), start.end())]:
            return segment[0]
        return re.sub("%[0-9A-Fa-f]{2}", decoded, segment[0])

    return re.sub("[^/?&#]+", without, text)


def _split_tail(text: str, hash_in_name: bool) -> tuple[str, str, str]:
    """NAAN and name, then inflection or query string with its ``?``, then fragment with its ``#``."""
    at = text.find("#", text.find("?") if "?" in text else len(text)) if hash_in_name else text.find("#")
    text, fragment = (text, "") if at < 0 else (text[:at], text[at:])
    name, mark, query = text.partition("?")
    return name, mark + query, fragment


class _NotAlone(ArkSyntaxError):
    """A second label, or a character that cannot be in an ARK and may be the first one after it."""


def _only_as(wrong: str) -> str:
    return f"{_shown(wrong)} is not allowed in an ARK, only as {_encoded(wrong)}"


def _second_label(text: str) -> str:
    return f"a second ark: label in {_shown(text)}"


def _not_one(received: str, problem: str, text: str = "", *, labelled: bool = True) -> ArkSyntaxError:
    """Return the error for a text that is not one ARK, with the ARKs in it. ``text`` may lack a label."""
    found = _first_found(received, MAX_COUNTED + 1)
    if len(found) > MAX_COUNTED or len({one.ark for one in found}) > 1:
        count = f"more than {MAX_COUNTED}" if len(found) > MAX_COUNTED else str(len(found))
        return ArkSyntaxError(f"{count} ARKs, not one: {', '.join(_short(str(one.ark)) for one in found[:2])}")
    if len(found) > 1:
        problem = f"{len(found)} ARKs, not one, but the same one"
    meant = _as_received(found[0].ark) if found else _meant(of_europeana(text) or text)
    if found and found[0].is_cut:
        whole = _meant(text)
        meant = whole if whole.startswith(meant) else ""
    if not meant:
        return ArkSyntaxError(problem, labelled=labelled)
    return ArkSyntaxError(f"{problem}: is it {_short(meant)}?", suggestion=meant, labelled=labelled)


def _meant(text: str) -> str:
    """Return the ARK whose characters are not all encoded, or that a text without a label perhaps ends with, or ""."""
    if re.match(f"(?ai){_LABEL}", text) and not re.search(r"\s", text):
        meant = re.sub(NEVER, _pairs, _without_layer(text))
    else:
        meant = _labelled(text)
    with suppress(ArkSyntaxError):
        return _as_received(Ark._read("", meant, PROFILES["current"]))
    return ""


def _as_received(ark: Ark) -> str:
    """Return all that was received of an ARK: its hyphens, the spelling of its ``%`` pairs, its query string."""
    return f"{ark.hyphenated or ark.resolution}{ark.tail}"


def _labelled(text: str) -> str:
    """Return the ARK, with its label, that a text without a label perhaps ends with; "" if there is none."""
    last = max(map(text.rfind, " \t\n\r\f\v")) + 1  # an ARK has no white space
    meant = (place.end() for place in re.finditer(_UNLABELLED, text) if place.end() >= last)
    start = next(meant, None)
    return "" if start is None else f"ark:{text[start:]}"


def check_naan(naan: str) -> str:
    """Return a NAAN, which must be in lower case. Raises ArkSyntaxError."""
    if not naan:
        raise ArkSyntaxError("no NAAN after the ark: label")
    if len(naan) > MAX_NAAN:
        raise ArkSyntaxError(f"a NAAN of {len(naan)} characters, {MAX_NAAN} at most")
    if wrong := naan.strip(BETANUMERIC):
        raise ArkSyntaxError(f"{_shown(naan)} is not a valid NAAN: {_shown(wrong[0])} is not one of {BETANUMERIC}")
    return naan


def _check_name(rest: str) -> None:
    if ":" in rest and (other := re.search(f"(?i)[,;]({_OTHER})", rest)):
        raise _NotAlone(f"after the ARK, {other[1]} begins another identifier")
    if wrong := re.search(NEVER, rest):
        raise _NotAlone(_only_as(wrong[0]))
    for pair in re.finditer(_PERCENT, rest):
        if not re.fullmatch("[0-9A-Fa-f]{2}", pair[1]):
            raise ArkSyntaxError(f"{_shown(pair[0])} is not a %-encoded byte: write % as %25")


def _check_tail(tail: str) -> str:
    """Return the tail with % pairs for bytes that are not allowed in a URL, as for an IRI (RFC 3987 3.1)."""
    if re.search(_CONTROL, tail):
        raise ArkSyntaxError("a control character in the query string")
    return re.sub(NEVER, _pairs, tail)


def _pairs(found: re.Match[str]) -> str:
    return _encoded(found[0])


def _encoded(text: str) -> str:
    return "".join(f"%{octet:02X}" for octet in text.encode())


def _normalise(rest: str, rules: _Rules) -> tuple[str, str]:
    """Base name and qualifier in normal form (draft section 3.2, steps 5 and 8; 2002 draft section 2.4).

    Hyphens are removed first, so that a pair split by one (``%7-d``) is a pair, and normalising twice changes nothing.
    """
    case = str.lower if rules.older else str.upper
    rest = re.sub(_PERCENT, lambda pair: case(pair[0]), rest)
    rest = re.sub(_STRUCTURE, r"\1", rest).strip("/.")
    # A component between a period on its left and a slash on its right moves to the end; these keep their order.
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


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _shown(text: str) -> str:
    """Return the received text, printable and short enough for one line of a message."""
    shown = ascii(text)
    return shown if len(shown) <= 80 else shown[:76] + "...'"


# ---- ARKs in prose

_STOP = r"[!&'(),:;]"  # punctuation after an ARK in a sentence, and between two ARKs
_OTHER = "(?:doi|hdl|https?|info|isbn|issn|oai|urn):"  # the next identifier of a list
_AT_WORD = r"(?:(?<![0-9a-z])|(?<=%[0-9a-f]{2})|(?<=\\[nrt]))"  # where a label can start; JSON escapes line ends
_PIECE = (
    r"[-\u2010\u00ad]\r?\n[ \t]*(?=[0-9A-Za-z])"  # a word hyphenated at the end of a line
    rf"|[{_DASHES}{_MARKS}$*+./0-9=@A-Z_a-z~]|%[0-9A-Fa-f]{{2}}|{_STOP}(?!{_STOP}{{0,3}}(?:{_OTHER}|ark{_COLON}))"
)
_WRAP_AT_NAAN = f"(?:{_WRAP}(?=/*[0-9][{BETANUMERIC}]{{4}}))?"
_IN_PROSE = (
    rf"(?ai){_AT_WORD}ark{_COLON}{_BLANK_IN_LABEL}{_WRAP_AT_NAAN}{_SLASH}{{0,8}}{_WRAP_AT_NAAN}"
    rf"[{_DASHES}{BETANUMERIC}]{{1,{2 * MAX_NAAN}}}{_SLASH}(?:{_WRAP}(?={_SHOULDER}))?"
    rf"(?>(?:(?!{_AT_WORD}{_LABEL}{_SLASH}{{0,8}}[{BETANUMERIC}]+{_SLASH})(?:{_PIECE}))+)"
    rf"(?:\?(?>(?:{_PIECE}|\?)*))?(?:\#(?>(?:{_PIECE}|[?#])*))?"
)
_GOES_ON = r"(?ai)[\[{][0-9a-z]|\\(?![nrt]|u(?:20|30))[0-9a-z]"  # not the escapes of JSON for the end of a word
_MAX_BEFORE = 2048  # characters of a URL before a label, and of a paragraph that may open an emphasis
_URL_CHARACTERS = r"[!#-;=?-\[\]_a-z~]*"  # RFC 3986 2
_EMPHASIZING = "*_~"
_EMPHASIS = r"(?<![0-9A-Za-z*_~])[*_~]+(?=[^\s*_~])", r"(?<=[^\s*_~])[*_~]+(?![0-9A-Za-z*_~])"  # of Markdown


def find_arks(text: str, *, profile: Profile = "current") -> list[Ark]:
    """Return all ARKs in a text, in order (2002 draft section 2.5).

    >>> [str(ark) for ark in find_arks("See ark:12345/x5-4 (and https://n2t.net/ark:/12345/x6).")]
    ['ark:12345/x54', 'ark:12345/x6']

    Final punctuation, even a question mark, belongs to the sentence, and so do brackets, quotes and emphasis that open
    before the ARK. An ARK may continue on the next line after its label, a slash beside its NAAN, and a hyphen.
    HTML entities and the escaped slashes of JSON are read. ``profile``: as for ``Ark.parse``. Text that merely
    resembles an ARK is skipped; nothing is raised.
    """
    return list(each_ark(text, profile=profile))


def each_ark(text: str, *, profile: Profile = "current") -> Iterator[Ark]:
    """Yield the ARKs of ``find_arks`` one by one, for a caller that needs only the first ones."""
    if not isinstance(text, str):
        raise TypeError(f"a text is a str, not {type(text).__name__}")
    yield from (found.ark for found in _each(text, PROFILES[profile]) if found is not None)


def first_arks(text: str, count: int) -> list[Ark]:
    """Return the first ARKs of ``find_arks``, for a server: only the first MAX_TRIED labels of the text are read."""
    return [found.ark for found in _first_found(text, count)]


class _InText(NamedTuple):
    """An ARK in a text. ``is_cut``: it goes on with a character that an ARK may not have, as its notes say."""

    ark: Ark
    is_cut: bool


def _first_found(text: str, count: int) -> list[_InText]:
    tried = islice(_each(text, PROFILES["current"]), MAX_TRIED)
    return list(islice((found for found in tried if found is not None), count))


def _each(text: str, rules: _Rules) -> Iterator[_InText | None]:
    """Yield what each label in a text begins: an ARK, or None."""
    text = restored(_plain(text))
    end = 0  # of the last ARK
    around = _NOTHING_AROUND  # the last ARK, and so the next one of the same URL
    for match in re.finditer(_IN_PROSE, text):
        before = text[max(end, match.start() - _MAX_BEFORE) : match.start()]
        if len(match[0]) > MAX_TEXT:
            yield None
            continue
        run = _url_at_end(before)
        here = _Around.of(run)
        around = around.further(here) if end and len(run) == match.start() - end else here
        nma = _from_scheme(run)
        outside = before.removesuffix(nma)
        received = re.sub(_AFTER_LABEL, "", match[0])
        within = _within_url(around, received)
        if "$" in within and re.search(f"(?ai){SUBFIELD} ?$", outside):
            within = re.split(rf"(?ai)\$*{SUBFIELD}", within, maxsplit=1)[0]  # "$$u" of some systems
        found = _trim(_without_layer(re.sub(f"[{_MARKS}\\s]+", "", within)), outside)
        try:
            ark = Ark._read(nma, found, rules)
        except ArkSyntaxError:
            yield None
            continue
        end = match.end() - (len(received) - len(within))
        if "://" not in nma and not nma.lower().endswith(("/", "%2f")):
            ark = ark.with_received(nma="")
        cut = _cut_off(text, match.end()) if len(within) == len(received) else ""
        if cut:
            ark = ark.with_received(notes=(*ark.notes, f"cut before {_shown(cut)}, which is not allowed in an ARK"))
        yield _InText(ark, is_cut=bool(cut))


def _cut_off(text: str, end: int) -> str:
    """Return the character at which an ARK was cut although the text goes on; "" if it is one that ends words.

    It is a letter or a combining mark, as in ``?r=th\xe9\xe2tre``, a ``%`` without its digits, IIIF's ``^max``, or a
    bracket or backslash before a letter or digit.
    """
    after = text[end : end + 1]
    if after.isascii():
        goes_on = after in "^%" or (after in "[{\\" and re.match(_GOES_ON, text[end : end + 4]))
        return after if after and goes_on else ""
    return after if after.isalnum() or category(after)[0] == "M" else ""


def _trim(found: str, before: str) -> str:
    """Return an ARK in prose without the characters of the sentence. ``before`` is the text before it and its URL."""
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
    if dash := re.search("[\u2014\u2015]", found[digit + 1 :]):  # only words follow it, so it belongs to the sentence
        found = found[: digit + 1 + dash.start()]
    marks = f".,;:!?'&{_open_emphasis(before) if found[-1:] in '*_~.,;:!?' else ''}"
    return found.rstrip(marks).removesuffix("'s").rstrip(marks)


def _open_emphasis(before: str) -> str:
    """Return the characters of emphasis that are open at the end of a paragraph."""
    paragraph = f"{_paragraph_at_end(before)}a"  # the start of the ARK
    opened, closed = ("".join(re.findall(pattern, paragraph)) for pattern in _EMPHASIS)
    return "".join(mark for mark in _EMPHASIZING if opened.count(mark) > closed.count(mark))


def _paragraph_at_end(text: str) -> str:
    """Return the text after the last empty line."""
    end = text.rfind("\n")
    while end >= 0:
        before = text.rfind("\n", 0, end)
        if before >= 0 and not text[before + 1 : end].strip():
            return text[end + 1 :]
        end = before
    return text


def _url_at_end(before: str) -> str:
    """Return the run of a URL's characters at the end of the text."""
    run = re.match(_URL_CHARACTERS, before[::-1])
    return run[0][::-1] if run else ""


def _from_scheme(run: str) -> str:
    """Return the URL that begins in a run of its characters, or the text that may be one without its scheme."""
    scheme = re.search("(?ai)https?://", run)
    return run[scheme.start() :] if scheme else run.lstrip("!'()*,;:[]_~")
