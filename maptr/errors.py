"""Every exception that maptr raises to whoever calls it.

They derive from dnspython's DNSException, so a caller who already catches that needs nothing new.
"None" and "not known" are different here: DNS said no is NoMappingAuthority, DNS did not say is DiscoveryFailed.
"""

from __future__ import annotations

from collections.abc import Sequence

import dns.exception

from maptr.text import printable

MAX_TEXT = 1000  # characters of a FetchError


def reason_of(error: BaseException) -> str:
    """What went wrong, in words for a person: of an OSError its file and what the system calls it, no number."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


class MaptrError(dns.exception.DNSException):
    """The base of every error raised by maptr."""

    def __init__(self, message: str = "") -> None:
        # DNSException builds its text from keyword arguments and a class-level format;
        # here the message is always the whole text, for subclasses of dnspython's own errors too.
        Exception.__init__(self, message)
        self.msg: str | None = message
        self.kwargs: dict[str, object] = {}

    def __str__(self) -> str:
        return self.msg or ""


class ArkSyntaxError(MaptrError, ValueError):
    """The text is not an ARK."""


class NmaError(MaptrError):
    """A mapping authority was found but could not be asked: no address it may be asked at, no connection, no HTTP."""


class LocatedError(MaptrError):
    """An error at a place in a file: the text starts with ``filename:line:`` as compilers write it."""

    def __init__(self, message: str, *, filename: str = "", line: int = 0) -> None:
        where = filename + (f":{line}" if line else "")
        super().__init__(f"{where}: {message}" if where else message)
        self.reason = message
        self.filename = filename
        self.line = line


class TableError(LocatedError):
    """A registry, natab or prefixes file that cannot be read as a table.

    ``record`` is the key of the bad record (``12345`` or ``12345/x6``) where it is known.
    """

    def __init__(self, message: str, *, filename: str = "", line: int = 0, record: str = "") -> None:
        super().__init__(f"record {record}: {message}" if record else message, filename=filename, line=line)
        self.reason = message  # without the record, for whoever prints that in a column of its own
        self.record = record


class UnsafePlan(MaptrError):
    """A plan removes or changes more of the table than the safety limit allows."""


class ZoneError(LocatedError):
    """A zone that no server should load, or a record that cannot be written; ``owner`` where it is one record's.

    ``code`` is that of a finding, where a reader of zone files says it.
    """

    def __init__(self, message: str, *, filename: str = "", line: int = 0, owner: str = "", code: str = "") -> None:
        super().__init__(message, filename=filename, line=line)
        self.owner = owner
        self.code = code


class JournalError(LocatedError):
    """A journal of differences that is damaged, or belongs to another zone."""


class ConfigError(LocatedError):
    """A bad option or configuration value; ``key`` is its dotted name, ``line`` where that stands (0: nowhere)."""

    def __init__(self, message: str, *, filename: str = "", line: int = 0, key: str = "") -> None:
        super().__init__(f"{key}: {message}" if key else message, filename=filename, line=line)
        self.reason = message  # without the key, as in ``TableError``
        self.key = key
        self.all: tuple[ConfigError, ...] = (self,)


class ConfigErrors(ConfigError):
    """Several mistakes in one configuration: ``all`` has each, and this is the first, with the text of all of them."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        first = errors[0]
        super().__init__(first.reason, filename=first.filename, line=first.line, key=first.key)
        self.msg = "; ".join(map(str, errors))
        self.all = tuple(errors)


def raise_all(errors: Sequence[ConfigError]) -> None:
    """Raise what is wrong with a configuration: nothing, one ConfigError, or ConfigErrors."""
    if errors:
        raise (errors[0] if len(errors) == 1 else ConfigErrors(errors)) from None


class SigningError(LocatedError):
    """A zone cannot be signed: keys missing, unfit or open to others, or no package to sign with.

    No text of it has anything of a private key.
    """


class SignatureError(MaptrError):
    """A signature is not that of the key for this content; or key or signature cannot be read."""


class MissingExtra(ConfigError, SigningError, SignatureError):
    """A package is not installed that only one of maptr's extras needs; the text says which extra to install."""


class FetchError(MaptrError):
    """A file could not be got; the text says from where, and why, in nothing but printable words."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_TEXT:  # a server may write an essay where its status or a URL belongs
            text = f"{text[: MAX_TEXT // 2]}...{text[-MAX_TEXT // 2 :]}"
        super().__init__(printable(text))


class ParserFailed(MaptrError):
    """The process that reads a registry file came to a limit, or could not run; the file itself may be good."""


class PullFailed(MaptrError):
    """No source had a registry fit to be taken; ``reasons`` has one for each, in order."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)
