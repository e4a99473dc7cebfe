"""One NAAN of a natab file, found without reading the file: for a process that asks once and ends.

Such a process waits for what it imports, so the reader is imported only where the entry, or what stands before
it, is not of the plainest form. Then the whole file is read, and the answer is the reader's.
"""

from __future__ import annotations

import os
from stat import S_ISREG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FILE = 64 << 20  # octets; the real registry has 1.2 million, natab for 100,000 NAANs has 8
_CHUNK = 1 << 16  # octets searched at a time: what stays in a processor's cache
_SOME = 4096  # octets read to find the end of a line
_DIGITS = 16  # of NAANs here; the reader takes longer ones, and none beyond a label
_SCHEMES = (b"http://", b"https://", b"ftp://", b"mailto:", b"urn:", b"ark:/")
_PRINTABLE = bytes(range(0x20, 0x7F))
_BETWEEN_WORDS = bytes(range(0x21)) + bytes(range(0x80, 0x100))  # white space of any alphabet, and more


def find(path: str | os.PathLike[str], naan: str) -> list[str] | None:
    """The NMAs of a NAAN in a natab file, each host or host:port, in order; None where the file has no such NAAN.

    The file is searched, so that 100,000 NAANs take two milliseconds and damage elsewhere in it is not seen. Raises
    OSError; TableError where the file has to be read and is no natab.
    """
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - pathlib takes longer to import than this takes to find
        try:
            return search(_File(file.fileno()), naan.lower())
        except NotPlainError:
            pass
    return _read(path, naan)


def look_up(path: str, naan: str) -> tuple[list[str] | None, float]:
    """The same of a file that is plain from its first line to its last octet, and when it was written, by its status.

    So there is nothing in it of which the reader of the whole would think otherwise. Raises NotPlainError for any other
    file and for one that changes meanwhile, OSError.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe without a writer must not hang us
    try:
        status = os.fstat(handle)
        octets = _File(handle)
        if not S_ISREG(status.st_mode) or not 0 < len(octets) <= MAX_FILE:
            raise NotPlainError
        _, piece, end = next(_pieces(octets))
        if not _begins_plainly(piece[1:end], more=end <= len(octets)):
            raise NotPlainError
        found = search(octets, naan, to_the_end=True)
        if _state(os.fstat(handle)) != _state(status):
            raise NotPlainError
    finally:
        os.close(handle)
    return found, status.st_mtime


def _state(status: os.stat_result) -> tuple[int, ...]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


class _File:
    """The octets of a file, read where they are looked at, a few at a time.

    Not mapped into memory: whoever cuts a mapped file short kills the process that looks at it.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._size = os.fstat(handle).st_size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start = part.start or 0
        return os.pread(self._handle, max(0, min(part.stop, self._size) - start), start)

    def find(self, octet: bytes, start: int) -> int:
        while some := os.pread(self._handle, _SOME, start):
            if (at := some.find(octet)) >= 0:
                return start + at
            start += len(some)
        return -1


class NotPlainError(Exception):
    """For the reader to decide."""


def is_plain(octets: bytes) -> bool:
    """True where the first entry shows that the reader takes the whole for a natab, and not for another format."""
    try:
        _check_text(octets, len(octets))
    except NotPlainError:
        return False
    return _begins_plainly(octets)


def _check_text(octets: bytes, end: int) -> None:
    """Raises NotPlainError for what is no text, up to ``end``."""
    if b"\0" in octets:
        raise NotPlainError
    try:
        octets.isascii() or octets[:end].decode()
    except UnicodeDecodeError:
        raise NotPlainError from None


def _begins_plainly(octets: bytes, *, more: bool = False) -> bool:
    """Of the whole, or of its first lines where there are ``more``."""
    at = 0
    while octets[at : at + 1] in (b"#", b"\n"):
        at = _line_end(octets, at) + 1
    end = _line_end(octets, at)
    below = end + 1
    while octets[below : below + 1] == b"\n":
        below += 1
    naan, colon, policy = octets[at:end].partition(b":")
    following = octets[below : _line_end(octets, below)]
    head = octets[:at] + following
    try:
        _check_policy(policy)
        lines = head.decode()
    except (NotPlainError, UnicodeDecodeError):
        return False
    return (
        naan.isdigit()
        and len(naan) <= _DIGITS
        and bool(colon)
        and (below < len(octets) or not more)
        and b": " not in following + b" "  # which may be YAML
        and not _may_end(b"\n" + head.lower(), len(head) + 1)
        and len(lines.splitlines()) == lines.count("\n") + (not lines.endswith("\n") if lines else 0)
    )


def search(octets: bytes | _File, naan: str, *, to_the_end: bool = False) -> list[str] | None:
    """``find`` in the content of a natab. Raises NotPlainError where only the reader can tell; with ``to_the_end`` also
    for what is no text behind the entry."""
    if not (naan.isascii() and naan.isdigit() and len(naan) <= _DIGITS):  # a letter may be written in capitals
        raise NotPlainError
    if not (octets[:1].isdigit() or octets[:1] == b"#"):  # a blank in front may indent the whole
        raise NotPlainError
    key = f"\n{naan}:".encode()
    ended = False
    found: list[str] | None = None
    for base, piece, end in _pieces(octets):
        if to_the_end:
            _check_text(piece, end)
        if found is not None:
            continue
        lines = piece.lower()
        if b"\r" in lines:
            raise NotPlainError
        # bytes.rfind is twice as fast as bytes.find, which is left to say which of several is the first.
        at = lines.find(key, 0, end) if lines.rfind(key, 0, end) >= 0 else end
        ended = ended or _may_end(lines, at)
        if at < end:
            if ended:
                raise NotPlainError
            found = _nmas(octets, base + at + len(key))
            if not to_the_end:
                break
    return found


def _pieces(octets: bytes | _File) -> Iterator[tuple[int, bytes, int]]:
    """Where in the file a piece begins, its octets, and where in it the last whole line ends; the next piece begins
    with that line's feed, the first with one of ours."""
    start, size = 0, len(octets)
    while start < size:
        piece = octets[start - 1 : start + _CHUNK] if start else b"\n" + octets[:_CHUNK]
        end = len(piece) if start + _CHUNK >= size else piece.rfind(b"\n") + 1
        if end < 2:  # in the middle of a long line
            piece = piece[:1] + octets[start : _line_end(octets, start + _CHUNK) + 1]
            end = len(piece)
            if end < 2:  # the file was cut short meanwhile
                return
        yield start - 1, piece, end
        start += end - 1


def _may_end(lines: bytes, end: int) -> bool:
    """True where a line before ``end`` may be the end of the data: ``of``, space of any alphabet, and ``data``."""
    at = end
    while (at := lines.rfind(b"data", 0, at)) >= 0:
        before = at
        while lines[before - 1] in _BETWEEN_WORDS:
            before -= 1
        if before < at and lines[before - 2 : before] == b"of":
            return True
    return False


def _nmas(octets: bytes | _File, at: int) -> list[str]:
    """The NMAs of the entry whose colon stands before ``at``."""
    end = _line_end(octets, at)
    _check_policy(octets[at:end])
    found = []
    while end < len(octets):
        at, end = end + 1, _line_end(octets, end + 1)
        line = octets[at:end]
        if line[:1] == b" ":
            found.append(_nma(line))
        elif line[:1].isalnum() or _is_end(line):
            break
        elif line and line[:1] != b"#":
            raise NotPlainError
    return found


def _line_end(octets: bytes | _File, at: int) -> int:
    end = octets.find(b"\n", at)
    return len(octets) if end < 0 else end


def _is_end(line: bytes) -> bool:
    if not _may_end(b"\n" + line.lower(), len(line) + 1):
        return False
    if line.lower().lstrip(b" #-").rstrip(b" -") != b"end of data":
        raise NotPlainError
    return True


def _words(line: bytes) -> list[bytes]:
    """The words of a line of ASCII between spaces."""
    if line.translate(None, _PRINTABLE):
        raise NotPlainError
    return line.split()


def _check_policy(line: bytes) -> None:
    words = _words(line)
    plain = len(words) == 1 and line[:1] == b" " and words[0].startswith(_SCHEMES) and not words[0].endswith(_SCHEMES)
    if words and (not plain or any(octet in words[0] for octet in b'<>"')):
        raise NotPlainError


def _nma(line: bytes) -> str:
    """The host, and port, of an NMA line."""
    host_port, *acronym = _words(line) or [b""]
    host, colon, port = host_port.partition(b":")
    labels = host.split(b".")
    plain = (
        len(host) <= 60  # so that no label has more than 63
        and len(labels) > 1
        and all(label.replace(b"-", b"").isalnum() and label.strip(b"-") == label for label in labels)
        and labels[-1].isalpha()
        and (not colon or (port.isdigit() and port[:1] != b"0" and len(port) < 5))
        and len(acronym) < 2
        and all(word.isalnum() and word == word.upper() for word in acronym)
    )
    if not plain:
        raise NotPlainError
    return host_port.decode()


def _read(path: str | os.PathLike[str], naan: str) -> list[str] | None:
    from pathlib import Path

    from maptr import registry
    from maptr.errors import TableError

    content = Path(path).read_bytes()
    if registry.recognise(content, filename=str(path)) is not registry.Format.NATAB:
        raise TableError("not a natab", filename=str(path))
    entry = registry.read(content, filename=str(path), on_bad=lambda error: None).get(naan.lower())
    return None if entry is None else [nma.where for nma in entry.nmas]
