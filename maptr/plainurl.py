r"""The URL of the plainest ARK by the plainest record: what ``oneshot`` needs of the walk, and light to import.

A shortcut of ``ark``, ``plain`` and ``candidate``, by string methods alone: a process that asks once would wait for
``re`` and ``typing`` longer than for DNS. Whatever it does not take is None, and theirs to read; tests hold what it
takes to what they say.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from maptr.names import Labels
    from maptr.naptr import Fields

MAX_TEXT = 255  # characters of an ARK
MAX_RECORDS = 16  # of a plain answer: the longest real one has 17; more could spend a walk's budget
# Of ``url.parse_host`` and ``names``, which a look-up in a table has no need of.
MAX_HOST = 253  # characters
MAX_LABEL = 63  # RFC 1035 2.3.4
ARK_ARPA: Labels = (b"ark", b"arpa")
BETANUMERIC = "0123456789bcdfghjkmnpqrstvwxz"
"""The characters of a NAAN, in the order that gives each its value in a check character (NOID, NCDA)."""

_ALNUM = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_NAME = f"{_ALNUM}!#$&'()*+,:;=@_~"  # what a component is made of (ARK draft 2.4); no hyphen, no % pair
_TAIL = f"{_NAME}%?/.-"
_HOST = f"{_ALNUM}_.".encode()  # without a hyphen, nothing can be amiss
_DIGITS = b"0123456789"
_PLAIN = _ALNUM.encode()
_PATH = _TAIL.encode()
_DELIMITERS = b"!#~,;@%&="  # those of ``rules``


def read_ark(text: str) -> tuple[str, str, str] | None:
    """NAAN, the rest of the resolution form, and the tail of an ARK in normal form (a slash after the label aside)."""
    body, mark, query = text.partition("?")
    naan, _, rest = body[4:].removeprefix("/").partition("/")
    path, dot, suffixes = rest.partition(".")
    plain = (
        len(text) <= MAX_TEXT
        and body.startswith("ark:")
        and 0 < len(naan) <= MAX_LABEL
        and not naan.strip(BETANUMERIC)
        and not rest.replace("/", "").replace(".", "").strip(_NAME)
        and all(path.split("/"))
        and (not dot or all(suffixes.split(".")))
        and "/" not in suffixes
        and not query.strip(_TAIL)
    )
    return (naan, rest, mark + query) if plain else None


def url_of(records: Sequence[Fields], naan: str, rest: str) -> str | None:
    """What the best of the records at ``NAAN.ark.arpa`` that is for the ARK makes of it, without its tail.

    All of them must be plain, so that the walk ends here, and is complete.
    """
    if len(records) > MAX_RECORDS or len({record[:2] for record in records}) < len(records):
        return None  # of two of equal rank the canonical rdata decides
    best = ""
    for _, _, flags, service, regexp, replacement in sorted(records):
        made = None
        if service == b"ark" and flags == b"h" and not regexp:
            host = host_of(replacement, undotted=ARK_ARPA)
            made = host and f"https://{host}/ark:{naan}/{rest}"
        elif service == b"ark" and flags == b"u" and not replacement:
            made = _rewritten(regexp, naan, rest)
        if made is None:
            return None
        best = best or made
    return best or None


def host_of(replacement: Labels, undotted: Labels | None) -> str | None:
    """The host of an ``h`` replacement made of letters, digits and hyphens. ``undotted`` is as in ``naptr.read``."""
    if not replacement:
        return None
    host = b".".join(replacement)
    last = replacement[-1].lower()
    if (
        (undotted and last == undotted[-1].lower())  # may lack its final dot
        or last == b"localhost"
        or len(host) > MAX_HOST
    ):
        return None
    if last.isalpha() and b"".join(replacement).isalnum():  # which says all of the rest, and quicker
        return host.decode()
    if (
        last[0] in _DIGITS  # a number, or an address
        or host.count(b".") != len(replacement) - 1
        or ((odd := host.translate(None, _HOST)) and (odd.strip(b"-") or not all(map(_hyphened, replacement))))
    ):
        return None
    return host.decode("ascii")


def _hyphened(label: bytes) -> bool:
    """True where hyphens stand only inside."""
    return label.strip(b"-") == label


def _rewritten(regexp: bytes, naan: str, rest: str) -> str | None:
    r"""What ``!^ark:/?NAAN/(x6.*)$!https://HOST/...\1...!`` makes of it, empty where it is for other ARKs.

    ``rules`` makes such a rule of nearly every target, the shoulder before the group, in it, or none.
    """
    delimiter = regexp[:1]
    if not delimiter or delimiter not in _DELIMITERS or regexp.count(delimiter) != 3:
        return None
    _, pattern, made, flags = regexp.split(delimiter)
    before, group, after = pattern.partition(b"(")
    skipped = before.removeprefix(b"^ark:/?%b/" % naan.encode())
    inside = after.removesuffix(b".*)$")
    if not group or flags or skipped == before or inside == after or (skipped + inside).translate(None, _PLAIN):
        return None
    if not rest.startswith((skipped + inside).decode()):
        return ""
    head, number, foot = made.partition(b"\\1")
    scheme, _, place = head.partition(b"://")
    where, slash, path = place.partition(b"/")
    host, colon, port = where.partition(b":")
    labels = tuple(host.split(b"."))
    plain = (
        number
        and slash
        and scheme in (b"http", b"https")
        and all(0 < len(label) <= MAX_LABEL for label in labels)
        and host_of(labels, undotted=None)
        and (not colon or (port.isdigit() and port[:1] != b"0" and len(port) < 5))
        and not (path + foot).translate(None, _PATH)
    )
    return f"{head.decode()}{rest[len(skipped) :]}{foot.decode()}" if plain else None
