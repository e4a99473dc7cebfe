"""maptr's exceptions, which derive from dnspython's DNSException, and the text of messages.

Those that carry a discovery are in ``discovery``: NoMappingAuthority if DNS answered that there is none, and
DiscoveryFailed if DNS gave no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated

import dns.exception

MAX_TEXT = 1000  # characters of a FetchError


def printable(text: str, *, keep: str = "") -> str:
    """Return the text with ``?`` in place of every character that is not printable and not in ``keep``.

    Every line of a log, a message, a terminal and a plain-text response goes through it, because control characters,
    such as ESC and line breaks, and those that change the direction of text could forge lines. So does the text of a
    MaptrError. HTML and table cells use ``visible``.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() or character in keep else "?" for character in text)


# Characters that change the direction of the text around them (Unicode UAX 9).
_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
_VISIBLE = {**dict.fromkeys(_CONTROLS, " "), **dict.fromkeys(_BIDI, "")}


def visible(text: str) -> str:
    """Return untrusted text for a page or a table: without characters that affect the text around it."""
    return text if text.isascii() and text.isprintable() else text.translate(_VISIBLE)


_FORMULA = re.compile("'*[=+@-]")


NOT_UTF8 = 'not UTF-8: save it as UTF-8 (Excel: "CSV UTF-8")'


def cell(text: str) -> str:
    """Return a text as a CSV cell, with an apostrophe before what a spreadsheet takes for a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def text_of_cell(written: str) -> str:
    """Return the text that ``cell`` wrote."""
    return written[1:] if written.startswith("'") and _FORMULA.match(written) else written


# Bytes that Python read as lone surrogates (PEP 383), and other lone surrogates. No JSON may hold one (RFC 8259 8.1).
_LONE = re.compile("[\udc80-\udcff]+|[\ud800-\udfff]")


def without_surrogates(document: str) -> str:
    r"""Return JSON with ``\xe9`` for a byte of an argument or a file name that is not UTF-8."""
    return _LONE.sub(_shown, document)


def _shown(found: re.Match[str]) -> str:
    escape = "surrogateescape" if "\udc80" <= found[0][0] <= "\udcff" else "backslashreplace"
    return found[0].encode("utf-8", escape).decode("utf-8", "backslashreplace").replace("\\", "\\\\")


SCHEMA = "maptr/1"  # of every JSON document, in its first member


def json_text(value: object, *, indent: int | None = None) -> str:
    """Write JSON in ASCII, without lone surrogates."""
    import json  # late: few command lines print JSON

    text = json.dumps(value, indent=indent)
    if "\\ud" not in text:  # neither a surrogate nor a pair of them
        return text
    return json.dumps(json.loads(without_surrogates(json.dumps(value, ensure_ascii=False))), indent=indent)


Time = Annotated[float, "seconds since 1970"]  # a status shows a field of this type by ``time_text``


def time_text(seconds: Time) -> str:
    """Return a Unix time in UTC, in the format of RFC 3339."""
    import datetime  # late: few command lines show a time

    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def nearest(word: str, words: Iterable[str], *, likeness: float = 0.0) -> str:
    """Return the most similar of the words; "" if none has the ``likeness``, from 0 (any) to 1 (equal)."""
    from difflib import get_close_matches  # late: only mistakes need it, and it takes milliseconds to import

    return next(iter(get_close_matches(word, list(words), 1, likeness)), "")


def reason_of(error: BaseException) -> str:
    """Return the text of an error for a message. For an OSError: its file and the system's text, without a number."""
    if isinstance(error, OSError) and error.strerror:
        return printable(error.strerror if error.filename is None else f"{error.filename}: {error.strerror}")
    return printable(str(error)) or type(error).__name__


class MaptrError(dns.exception.DNSException):
    """The base of all maptr errors. It is a DNSException, so code that handles dnspython's errors handles these too.

    >>> try:
    ...     discover("ark:99999/x1", nameservers=[server])
    ... except MaptrError as error:
    ...     print(error)
    no mapping authority for ark:99999/x1: 99999.ark.arpa. NAPTR: no such name
    """

    def __init__(self, message: str = "") -> None:
        # DNSException makes its text from keyword arguments and a format of the class. Here the message is the text. It
        # may quote a file, a registry or a response.
        message = printable(message)
        Exception.__init__(self, message)
        self.msg: str | None = message
        self.kwargs: dict[str, object] = {}

    def __str__(self) -> str:
        return self.msg or ""


class ArkSyntaxError(MaptrError, ValueError):
    """The text is not an ARK (draft-kunze-ark section 2).

    >>> try:
    ...     Ark.parse("12345/x1")
    ... except ArkSyntaxError as error:
    ...     print(error)
    no ark: label in '12345/x1': is it ark:12345/x1?

    ``suggestion`` is the only ARK that the text may mean, or "". ``labelled`` is False if it has no ``ark:`` label.
    """

    def __init__(self, message: str = "", *, suggestion: str = "", labelled: bool = True) -> None:
        super().__init__(message)
        self.suggestion = suggestion
        self.labelled = labelled


def error_fields(error: MaptrError | None) -> dict[str, str | None]:
    """Return an error, or none, in JSON types: its text, and what an ArkSyntaxError suggests."""
    suggestion = error.suggestion if isinstance(error, ArkSyntaxError) else ""
    return {"error": None if error is None else str(error), "suggestion": suggestion or None}


class Fault(StrEnum):
    """Why a mapping authority did not answer."""

    DNS = "dns"  # no address of its host was found
    UNREACHABLE = "unreachable"  # connection refused or broken, no route
    TIMEOUT = "timeout"
    TLS = "tls"
    EXPIRED = "expired"  # its certificate
    NOT_HTTP = "not-http"
    SERVER_ERROR = "server-error"  # status 500 or above (RFC 9110 15.6)


class NmaError(MaptrError):
    """A mapping authority gave no answer: it has no allowed address, no connection, or no HTTP response (``fault``)."""

    def __init__(self, message: str = "", fault: Fault = Fault.UNREACHABLE) -> None:
        super().__init__(message)
        self.fault = fault


class LocatedError(MaptrError):
    """An error at a place in a file. The text starts with ``filename:line:``, as compilers write it, or ``line N:`` for
    data without a name, and what is wrong. ``reason`` is the message alone."""

    def __init__(self, message: str, *, filename: str = "", line: int = 0, what: str = "") -> None:
        where = (f"{filename}:{line}" if filename else f"line {line}") if line else filename
        super().__init__(": ".join(filter(None, (where, what, message))))
        self.reason: str = printable(message)
        self.filename = filename
        self.line = line


class TableError(LocatedError):
    """A registry, natab or prefixes file is not a valid table.

    ``record`` is the key of the bad record (``12345`` or ``12345/x6``), if it is known.

    >>> from maptr import registry
    >>> try:
    ...     registry.read("naa:\\nwho: no one\\n", filename="naans")
    ... except TableError as error:
    ...     print(error)
    naans:1: no what: the record names no NAAN
    """

    def __init__(self, message: str, *, filename: str = "", line: int = 0, record: str = "") -> None:
        super().__init__(message, filename=filename, line=line, what=f"record {record}" if record else "")
        self.record = record


class UnsafePlan(MaptrError):
    """A plan removes or changes more of the table than the safety limit allows. The old table is kept.

    >>> from maptr.registry.plan import Plan
    >>> try:
    ...     Plan.between(Table(Entry(f"1234{n}") for n in range(10)), Table()).check()
    ... except UnsafePlan as error:
    ...     print(error)
    the plan removes, retargets or cannot read 10 of 10 records (100%, the limit is 30%)
    """


class ZoneError(LocatedError):
    """A zone is not fit to load, or a record cannot be written.

    ``owner`` is the record's. ``code`` is the code of a finding, if the reader of zone files gives one.

    >>> from maptr.zone.build import NameServer
    >>> try:
    ...     NameServer.parse("ns.example.org=192.0.2.1")
    ... except ZoneError as error:
    ...     print(error)
    name server ns.example.org=192.0.2.1 is not in the zone, so the zone cannot have its address
    """

    def __init__(self, message: str, *, filename: str = "", line: int = 0, owner: str = "", code: str = "") -> None:
        super().__init__(message, filename=filename, line=line)
        self.owner = owner
        self.code = code


class JournalError(LocatedError):
    """A journal of differences is damaged or belongs to another zone."""


class ConfigError(LocatedError):
    """A wrong option or configuration value. ``key`` is its dotted name, ``line`` its line (0: none).

    For an option of a command, ``filename`` is the option, such as ``--listen``; the text then leaves out the key.
    ``of_text``: the text of the configuration alone shows the mistake, so only editing it can help.

    >>> try:
    ...     discover("ark:12345/x1", lifetime=-1.0)
    ... except ConfigError as error:
    ...     print(error)
    lifetime: -1.0 is not a number of seconds
    """

    def __init__(
        self, message: str, *, filename: str = "", line: int = 0, key: str = "", of_text: bool = False
    ) -> None:
        super().__init__(message, filename=filename, line=line, what="" if filename.startswith("--") else key)
        self.key = key
        self.of_text = of_text
        self.all: tuple[ConfigError, ...] = (self,)


class ConfigErrors(ConfigError):
    """Several mistakes in one configuration. ``all`` has each; this error is the first one, with the text of all."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        first = errors[0]
        of_text = all(error.of_text for error in errors)
        super().__init__(first.reason, filename=first.filename, line=first.line, key=first.key, of_text=of_text)
        self.msg = "; ".join(map(str, errors))
        self.all = tuple(errors)
        self.args = (self.all,)  # from which pickle makes it again


def raise_all(errors: Sequence[ConfigError]) -> None:
    """Raise nothing, the one ConfigError, or ConfigErrors."""
    if errors:
        raise (errors[0] if len(errors) == 1 else ConfigErrors(errors)) from None


class SigningError(LocatedError):
    """A zone cannot be signed: keys are missing, unfit or open to others, or a package is missing.

    The text never contains any part of a private key.
    """


class SignatureError(MaptrError):
    """A signature does not verify, or the key or the signature cannot be read."""


class NoEventLoop(MaptrError, RuntimeError):
    """An asynchronous function was awaited without asyncio, for example under trio.

    >>> try:
    ...     discover_async("ark:12345/x1").send(None)
    ... except NoEventLoop as error:
    ...     print(error)
    no event loop of asyncio runs here: under trio, await trio.to_thread.run_sync(discover, ark)
    """


class PluginError(ConfigError):
    """Something that an installed package declares for maptr cannot be used."""


class MissingExtra(ConfigError, SigningError, SignatureError):
    """The package of an optional extra is not installed; the text says which extra to install."""


class FetchError(MaptrError):
    """A file could not be fetched. The text has its URL and the reason, in printable characters only."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_TEXT:  # the server may send a status or a URL of any length
            text = f"{text[: MAX_TEXT // 2]}...{text[-MAX_TEXT // 2 :]}"
        super().__init__(printable(text))


class PullFailed(MaptrError):
    """No source had a usable registry. ``reasons`` has one reason for each source, in order."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons: tuple[str, ...] = tuple(reasons)
        self.args = (self.reasons,)  # from which pickle makes it again
