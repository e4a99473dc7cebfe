"""From ``where``, which the registry writes for people, to ``target``, which a resolver can expand.

Only registries that give no target of their own need this; a target that stands in a record is kept as it is.
"""

from __future__ import annotations

import re

from maptr import url
from maptr.registry.table import DEFAULT_STATUS

_STATUS = re.compile(r"(3[0-9][0-9])\s+(?=\S)")
_VARIABLE = re.compile(r"(?P<slash>/?)\$(?:\{(?P<braced>\w+)\}|(?P<bare>arkpid|arkid|nlid|blade|pid|id)\b)")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_HOST_FIRST = re.compile(r"[^/?#]+")

_MEANING = {
    "id": "/${content}",  # the $id of the central resolver starts with a slash: ark:$id makes ark:/12345/x6
    "arkid": "${pid}",
    "arkpid": "${pid}",
    "pid": "${pid}",
    "nlid": "${value}",
    "blade": "${suffix}",
}

UNKNOWN = "(:unkn)"
"""How the registry writes that a value is not known (ANVL's own convention)."""


def expand(redirect: str) -> str:
    """The target that a redirect means which is whole as it stands: variables are replaced, and nothing is appended."""
    _, text = split_status(redirect)
    text = _with_scheme(text)
    return _lower_host(_VARIABLE.sub(_replace, text))


def to_target(where: str) -> str:
    """The target that a ``where`` means. Never an error: no URL comes back as it stands, for lint to find.

    Variables are replaced; without any, ``/ark:/${content}`` is appended to the path, or the whole ARK
    to a URL that ends in ``?`` or ``=``, whose host then keeps its case. A path that ends in ``ark:``
    wants the rest only. A fragment is dropped: no server ever sees it. A host without scheme is https.
    """
    _, text = split_status(where)
    text = _with_scheme(text)
    if not _ORIGIN.match(text):
        return text
    if _VARIABLE.search(text):
        return _lower_host(_VARIABLE.sub(_replace, text))
    if text.endswith(("?", "=")):
        return text + "${pid}"
    text, _, _ = text.partition("#")
    path, question, query = text.partition("?")
    if path.lower().endswith(("ark:", "ark:/")):
        path += "${content}"
    else:
        path = path.rstrip("/") + "/ark:/${content}"
    return _lower_host(path) + question + query


def split_status(where: str) -> tuple[int, str]:
    """The redirect code that may stand before the URL (302 if none does), and the URL."""
    text = where.strip()
    match = _STATUS.match(text)
    return (int(match[1]), text[match.end() :]) if match else (DEFAULT_STATUS, text)


def _replace(match: re.Match[str]) -> str:
    name = match["braced"] or match["bare"]
    meaning = _MEANING.get(name, f"${{{name}}}")
    # Two slashes are never meant: ark:/$id and ark:$id are the same wish.
    return meaning if meaning.startswith("/") else match["slash"] + meaning


def _with_scheme(text: str) -> str:
    """The same with a scheme, where it is a host without one."""
    host = _HOST_FIRST.match(text)
    if _ORIGIN.match(text) or host is None or not _is_domain(host[0]):
        return text
    where = url.parse(f"https://{host[0]}")
    return url.at(where.host.in_url, where.port, "https") + text[host.end() :]


def _is_domain(host: str) -> bool:
    try:
        return "." in url.parse(f"https://{host}").host.text.strip(".")
    except ValueError:
        return False


def _lower_host(text: str) -> str:
    match = _ORIGIN.match(text)
    return match[0].lower() + text[match.end() :] if match and "$" not in match[0] else text
