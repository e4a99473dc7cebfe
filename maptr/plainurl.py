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
MAX_HOST = 253  # characters, as url.parse_host
MAX_NAAN = MAX_LABEL = 63  # RFC 1035 2.3.4
ARK_ARPA: Labels = (b"ark", b"arpa")

_BETANUMERIC = "0123456789bcdfghjkmnpqrstvwxz"
_ALNUM = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_NAME = f"{_ALNUM}!#$&'()*+,:;=@_~"  # what a component is made of (ARK draft 2.4); no hyphen, no % pair
_TAIL = f"{_NAME}%?/.-"
_HOST = f"{_ALNUM}_.".encode()  # without a hyphen, nothing can be amiss
_DIGITS = b"0123456789"
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
        and 0 < len(naan) <= MAX_NAAN
        and not naan.strip(_BETANUMERIC)
        and not rest.replace("/", "").replace(".", "").strip(_NAME)
        and all(path.split("/"))
        and (not dot or all(suffixes.split(".")))
        and "/" not in suffixes
        and not query.strip(_TAIL)
    )
    return (naan, rest, mark + query) if plain else None


def url_of(records: Sequence[Fields], naan: str, rest: str) -> str | None:
    """What the best of the records at ``NAAN.ark.arpa`` makes of an ARK, without its tail."""
    best = min(records)
    if sum(record[:2] == best[:2] for record in records) > 1:  # canonical rdata decides
        return None
    _, _, flags, service, regexp, replacement = best
    if service != b"ark":
        return None
    if flags == b"h" and not regexp:
        host = host_of(replacement, undotted=ARK_ARPA)
        return host and f"https://{host}/ark:{naan}/{rest}"
    if flags == b"u" and not replacement:
        return _rewritten(regexp, naan, rest)
    return None


def host_of(replacement: Labels, undotted: Labels | None) -> str | None:
    """The host of an ``h`` replacement made of letters, digits and hyphens. ``undotted`` is as in ``naptr.read``."""
    if not replacement:
        return None
    host = b".".join(replacement)
    last = replacement[-1].lower()
    if (
        (undotted and last == undotted[-1].lower())  # may lack its final dot
        or last == b"localhost"
        or last[0] in _DIGITS  # a number, or an address
        or len(host) > MAX_HOST
        or host.count(b".") != len(replacement) - 1
        or ((odd := host.translate(None, _HOST)) and (odd.strip(b"-") or not all(map(_hyphened, replacement))))
    ):
        return None
    return host.decode("ascii")


def _hyphened(label: bytes) -> bool:
    """True where hyphens stand only inside."""
    return label.strip(b"-") == label


def _rewritten(regexp: bytes, naan: str, rest: str) -> str | None:
    r"""What ``!^ark:/?NAAN/(.*)$!https://HOST/...\1...!`` makes of it: the rule that the zone writer makes of nearly
    every target."""
    delimiter = regexp[:1]
    if not delimiter or delimiter not in _DELIMITERS or regexp.count(delimiter) != 3:
        return None
    _, pattern, made, flags = regexp.split(delimiter)
    if pattern != b"^ark:/?%b/(.*)$" % naan.encode() or flags:
        return None
    head, group, foot = made.partition(b"\\1")
    scheme, _, place = head.partition(b"://")
    host, slash, path = place.partition(b"/")
    labels = tuple(host.split(b"."))
    if not (group and slash and scheme in (b"http", b"https") and all(0 < len(label) <= MAX_LABEL for label in labels)):
        return None
    if host_of(labels, undotted=None) is None or (path + foot).translate(None, _PATH):
        return None
    return f"{head.decode()}{rest}{foot.decode()}"
