"""Restores ARKs that other software has rewritten, for ``find_arks`` and suggestions.

Each pattern has an example. A reader takes linear time (``scripts/bench patterns``).
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64

_NAAN = "[0-9bcdfghjkmnpqrstvwxz]+"
_COLON, _SLASH = "(?::|%3A)", "(?:/|%2F)"
_AT_WORD = "(?:(?<![0-9a-z])|(?<=%[0-9a-f]{2}))"
NEVER = r'[^\x21-\x7e]|[<>"\\^`{|}\[\]]'  # RFC 3986 2: only as % pairs
SUBFIELD = "[$|\u2021\x1f][0-9a-z]"  # of MARC, in the marks of several programs: "$u", "|a"

# 856 40$aark:/12345/x1$yTitle
_IN_SUBFIELD = f"(?ai)({SUBFIELD})(?=ark[:%+]|info[:%])"
# info:ark/12345/x1, info%3Aark%2F12345%2Fx1
_INFO = f"(?ai){_AT_WORD}info({_COLON})ark(?={_SLASH}{_NAAN}{_SLASH})"
# https://urldefense.com/v3/__https://n2t.net/ark:/12345/x1__;!!KGKeukY!0d7xq$
_URLDEFENSE_3 = (
    f"(?ai)(?:https?{_COLON}{_SLASH}{{2}})?urldefense\\.(?:com|us|proofpoint\\.com){_SLASH}v3{_SLASH}"
    "__((?:(?!__(?:;|%3B)|urldefense)\\S)+)__(?:;|%3B)([\\w-]*)(?:!|%21)(?:[\\w!~-]|%21)*(?:\\$|%24)?"
)
# https://urldefense.proofpoint.com/v2/url?u=https-3A__n2t.net_ark-3A_12345_x1&d=DwMF
_URLDEFENSE_2 = r"(?ai)(?:https?://)?urldefense\.(?:proofpoint\.)?com/v2/url\?u=([\w.~*!'()-]+)(?:&[a-z]+=[\w.%~-]*)*"
_WRAPPED = 3  # times that a link is rewritten, by the mail servers of its readers
# ark%253A%252F12345%252Fx1, ark%25253A..., info%253Aark%252F...
_LAYERS = (
    "(?ai)(?:(?<![0-9a-z])|(?<=%[0-9a-f]{2})|(?<=25[0-9a-f]{2}))(?:info(?::|%(?:25)+3A))?ark(?::|%((?:25)+)3A)?"
    f"(?:/|%((?:25)+)2F){{0,8}}{_NAAN}(?:/|%((?:25)+)2F)"
)
_SEGMENT = "[^\\s/?&#=<>\"']+"
# loc.ark+=12345=x1 (draft-kunze-pairtree section 3), loc.ark%2B%3D12345%3Dx1
_PAIRTREE = (
    f"(?ai){_AT_WORD}ark(?:\\+|(%2B))(=|%3D)?({_NAAN})(?:=|%3D)((?:[0-9a-z=+^_$@~-]|,(?=[0-9a-z])|%[0-9a-f]{{2}})+)"
)
_CLEANED = str.maketrans("=+,", "/:.")
# https://www.europeana.eu/item/9200365/ark__12148_btv1b8449691v
_EUROPEANA = f"(?ai)(?:^|[/=])ark__?({_NAAN})_([0-9a-z_]+)(?:$|[/?&#.])"


def restored(text: str) -> str:
    """Return a text in which rewritten ARKs are restored, where that is certain."""
    lower = text.lower()
    if "urldefense" in lower:
        for _ in range(_WRAPPED):
            text = re.sub(_URLDEFENSE_2, _of_version_2, re.sub(_URLDEFENSE_3, _of_version_3, text))
    if "ark%25" in lower or "ark:%25" in lower or "info%25" in lower:
        text = re.sub(_SEGMENT, _without_layers, text)
        lower = text.lower()
    if "$" in text or "|" in text or "\u2021" in text or "\x1f" in text:
        text = re.sub(_IN_SUBFIELD, r"\1 ", text)
    if "ark/" in lower or "ark%2f" in lower:
        text = re.sub(_INFO, r"info\1ark\1", text)
    if "ark+" in lower or "ark%2b" in lower:
        text = re.sub(_PAIRTREE, _of_pairtree, text)
    return text


def of_europeana(text: str) -> str:
    """Return the ARK in a Europeana item's identifier, which has underscores for its slashes; "" if none."""
    found = re.search(_EUROPEANA, text)
    return f"ark:/{found[1]}/{found[2]}" if found else ""


def decoded(pair: re.Match[str]) -> str:
    """Return the character that a % pair encodes; the pair if a URL must not have it."""
    character = chr(int(pair[0][1:], 16))
    return pair[0] if re.match(NEVER, character) else character


def _of_version_3(link: re.Match[str]) -> str:
    """Return the URL in a link of urldefense.com: its stars stand for bytes that follow in base64."""
    url, code = link.groups()
    try:
        left = a2b_base64(code.replace("-", "+").replace("_", "/") + "==").decode()
    except (Error, UnicodeDecodeError):
        return str(url)

    def star(run: re.Match[str]) -> str:
        """``*`` is one character, ``**A`` two, ``**B`` three."""
        nonlocal left
        count = 1 if run[1] is None else _LENGTHS.index(run[1]) + 2
        characters, left = left[:count], left[count:]
        return characters or run[0]

    return re.sub(r"\*(?:\*([0-9A-Za-z_-]))?", star, url)


_LENGTHS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def _of_version_2(link: re.Match[str]) -> str:
    return re.sub("%[0-9A-Fa-f]{2}", decoded, link[1].replace("-", "%").replace("_", "/"))


def _without_layers(segment: re.Match[str]) -> str:
    """Return a segment of a URL with one layer of %-encoding, if the label of its ARK has more."""
    label = re.search(_LAYERS, segment[0])
    layers = next(filter(None, label.groups()), "") if label else ""
    return re.sub(f"%{layers}(?=[0-9A-Fa-f]{{2}})", "%", segment[0]) if layers else segment[0]


def _of_pairtree(found: re.Match[str]) -> str:
    """Return the ARK of a pairtree's identifier, and a blank: a file name's suffix is not part of it."""
    is_encoded, slash, naan, name = found.groups()
    if is_encoded:
        name = re.sub("%[0-9A-Fa-f]{2}", decoded, name)
    name = re.sub(r"(?a)\^([0-9A-Fa-f]{2})", _cleaned_character, name.translate(_CLEANED))
    return f"ark:{'/' if slash else ''}{naan}/{name} "


def _cleaned_character(code: re.Match[str]) -> str:
    pair = f"%{code[1]}"
    return pair if pair.lower() in ("%3f", "%23") else re.sub("%..", decoded, pair)
