"""Targets: the URL templates to which the registry sends an ARK.

A target is a URL with variables (VARIABLES). Older registries have a ``where`` or a redirect for human readers
instead; ``where_to_target`` and ``redirect_to_target`` convert them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from types import MappingProxyType

from maptr import url

VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "content": "NAAN and name: `12345/x6np1`",
        "pid": "the whole ARK: `ark:12345/x6np1`",
        "value": "the name: `x6np1`",
        "prefix": "the NAAN: `12345`",
        "suffix": "the text after the shoulder of the record: `np1`; in the record of a NAAN, the name",
    }
)
"""The variables of a target, written ``${name}``, and the value of each for ark:12345/x6np1 in the record 12345/x6."""

NATAB_PATH = "/ark:/${content}"  # the path in the target of a natab's host
DEFAULT_STATUS = 302  # the redirect code of the central resolver for a record without one
UNKNOWN = "(:unkn)"  # the registry's mark for an unknown value (a convention of ANVL)

_VARIABLE = re.compile(r"\$\{([^}]*)\}")  # known or unknown
_AUTHORITY = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//([^/?#]*)")
_STATUS = re.compile(r"(3[0-9][0-9])\s+(?=\S)")
_REGISTRY_VARIABLE = re.compile(r"(?P<slash>/?)\$(?:\{(?P<braced>\w+)\}|(?P<bare>arkpid|arkid|nlid|blade|pid|id)\b)")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_HOST_FIRST = re.compile(r"[^/?#]+")

_MEANING = {
    "id": "/${content}",  # the central resolver's $id starts with a slash: ark:$id becomes ark:/12345/x6
    "arkid": "${pid}",
    "arkpid": "${pid}",
    "pid": "${pid}",
    "nlid": "${value}",
    "blade": "${suffix}",
}


@lru_cache(maxsize=10_000)
def as_format(target: str) -> str:
    """Return a target as a format string for a mapping of all known variables; an unknown one is kept as it is."""
    pieces = _pieces(target.replace("%", "%%"))
    pieces[1::2] = [f"%({name})s" if name in VARIABLES else f"${{{name}}}" for name in pieces[1::2]]
    return "".join(pieces)


def example_url(target: str) -> str:
    """Replace each variable, known or not, with a letter, so that the URL can be checked."""
    return "x".join(_pieces(target)[::2])


def variables(target: str) -> list[str]:
    """Return the names of a target's variables, including unknown ones."""
    return _pieces(target)[1::2]


def _pieces(target: str) -> list[str]:
    """Return the literal texts of a target, and between them the names of its variables."""
    end = target.rfind("}") + 1  # a variable that is not closed is text
    pieces = _VARIABLE.split(target[:end])
    pieces[-1] += target[end:]
    return pieces


def template_parts(target: str) -> list[tuple[str, str]]:
    """Split a target into pairs of a literal text and the variable after it. The last variable is empty.

    >>> template_parts("https://h.example/ark:/${content}")
    [('https://h.example/ark:/', 'content'), ('', '')]
    """
    pieces = _pieces(target)
    return list(zip(pieces[::2], [*pieces[1::2], ""], strict=True))


def replacement_parts(target: str, naan: str, *, short: bool = False) -> tuple[list[str], list[str | int]]:
    """Return the variables that a regexp matches as groups, and the parts of its replacement: literal texts, and
    numbers of groups from 1.

    The groups nest, because each variable is the rest of the ARK from one part on. ``short``: the regexp need not match
    the NAAN, so ``${content}`` is a group. Raises ValueError for a variable that no ARK has.

    >>> replacement_parts("https://h.example/ark:/${content}", "12345")
    (['value'], ['https://h.example/ark:/', '12345/', 1])
    """
    pieces = template_parts(target)
    used = {variable for _, variable in pieces}
    if "content" in used and not short:
        used = used - {"content"} | {"value"}
    groups: list[str] = [name for name in ("pid", "content", "value", "suffix") if name in used]
    parts: list[str | int] = []
    for literal, variable in pieces:
        parts.append(literal)
        if variable in groups:
            parts.append(groups.index(variable) + 1)
        elif variable == "content":
            parts += [f"{naan}/", groups.index("value") + 1]
        elif variable == "prefix":
            parts.append(naan)
        elif variable:
            raise ValueError(f"the target has the variable ${{{variable}}}, which no ARK has")
    return groups, [part for part in parts if part != ""]


def authority(text: str) -> str:
    """Return the host and port in a text that may be an invalid URL; empty if it has none."""
    match = _AUTHORITY.match(text)
    return match[1] if match else ""


def unusable(target: str, *, allow_private: bool = False) -> tuple[str, str] | None:
    """Return a code and a reason if a client cannot use a target."""
    for name in variables(target):
        if name not in VARIABLES:
            return "unknown-variable", f"the target has the unknown variable ${{{name}}}: {target}"
    if "${" in authority(target):
        return "bad-target", f"the host contains a variable: {target}"
    try:
        url.parse_allowed(example_url(target), allow_private=allow_private)
    except ValueError as error:
        return "no-public-host" if isinstance(error, url.NotPublicError) else "bad-target", f"{error}: {target}"
    return None


def split_status(where: str) -> tuple[int, str]:
    """Split a redirect code (302 if there is none) from the URL after it."""
    text = where.strip()
    match = _STATUS.match(text)
    return (int(match[1]), text[match.end() :]) if match else (DEFAULT_STATUS, text)


def redirect_to_target(redirect: str) -> str:
    """Convert a redirect to a target. A redirect is complete: variables are replaced, nothing is appended."""
    return _replace_variables(_with_scheme(split_status(redirect)[1]))


def where_to_target(where: str) -> str:
    """Convert a ``where`` to a target. Text that is not a URL is returned unchanged, and lint reports it.

    Variables are replaced. Without any, ``/ark:/${content}`` is appended to the path (only ``${content}`` if the path
    ends with ``ark:``), or the whole ARK to a URL that ends with ``?`` or ``=``, whose host then keeps its case.
    A fragment is dropped, because clients do not send it. A host without a scheme gets https.
    """
    text = _with_scheme(split_status(where)[1])
    if not _ORIGIN.match(text):
        return text
    if _REGISTRY_VARIABLE.search(text):
        return _replace_variables(text)
    if text.endswith(("?", "=")):
        return text + "${pid}"
    text, _, _ = text.partition("#")
    path, question, query = text.partition("?")
    if path.lower().endswith(("ark:", "ark:/")):
        path += "${content}"
    else:
        path = path.rstrip("/") + NATAB_PATH
    return _lower_host(path) + question + query


def _replace_variables(text: str) -> str:
    def meaning(match: re.Match[str]) -> str:
        name = match["braced"] or match["bare"]
        found = _MEANING.get(name, f"${{{name}}}")
        return found if found.startswith("/") else match["slash"] + found  # ark:/$id and ark:$id mean the same

    return _lower_host(_REGISTRY_VARIABLE.sub(meaning, text))


def _with_scheme(text: str) -> str:
    """Put https before a domain name that has no scheme."""
    host = _HOST_FIRST.match(text)
    if not _ORIGIN.match(text) and host is not None:
        with suppress(ValueError):
            parsed = url.parse(f"https://{host[0]}")
            if "." in parsed.host.text.strip("."):
                return url.at(parsed.host.in_url, parsed.port, "https") + text[host.end() :]
    return text


def _lower_host(text: str) -> str:
    match = _ORIGIN.match(text)
    return match[0].lower() + text[match.end() :] if match and "$" not in match[0] else text
