"""Each zone's last good version, kept in the state folder (``serve.state``), so that no start serves less than the last
run.

A zone's file is a line with the format, a line of JSON, the packed table in parts, and the SHA-256 of all that. It is
read only after the checksum was verified, and contains nothing executable: another Python version or damage can at
worst make it useless. Only a server writes it; the gateway reads it.

A version whose zone is no longer configured is *set aside* under another name, which no start reads, and deleted after
AGE days on which a server ran. A day is counted when the clock differs from the last count by a day or more, so a clock
that jumps by a year counts once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import accumulate, compress, islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO

from maptr import __version__
from maptr.config import ZoneConfig
from maptr.config.model import signed_path
from maptr.files import CHUNK, digest_of, name_for, opened, write_private_parts
from maptr.protocol.names import Folded, Labels, to_wire
from maptr.zone.masterfile import Source
from maptr.zone.snapshot import PackedNodes, ZoneView

log = logging.getLogger("maptr.daemon")

SUFFIX = ".kept"
FORMAT = b"maptr kept zone 1\n"
NAMES = 4096  # in one part: the memory for reading and writing
MAX_SIGNED_HEAD = 200  # bytes of a signed zone's first line
MAX_HEAD = 1 << 20  # bytes of the JSON line
MAX_TIME = 1 << 37  # seconds since 1970: the year 6325
AGE = 30  # days until a version that was set aside is deleted
DAY = 86400.0
_DIGEST = 32  # bytes at the end of the file
_COUNT = struct.Struct("<IQ")  # a part's number of names, and of bytes of their names, spellings and values
_ASIDE = re.compile(r"(?P<file>.+)\.(?P<date>\d{8}T\d{6}Z)-(?P<days>\d{1,3})\.aside", re.ASCII)

Tell = Callable[[str], object]  # gets the fault of a file in the folder
log_trouble: Tell = partial(log.warning, "%s")
KeyFiles = tuple[tuple[str, int, int, int, int], ...]  # the files of a key folder: name, mode, owner, inode, time


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """A published version: its content, when it was published (seconds since 1970), and what it was made from.

    ``unsigned`` is the serial of the unsigned version if the server signed it, with the keys in ``key_files``;
    otherwise None. ``signed`` identifies the signed version's file. ``settings`` is the result of ``settings_of``.
    """

    view: ZoneView
    published: float
    settings: str = ""
    sources: tuple[Source, ...] = ()
    warnings: tuple[str, ...] = ()
    unsigned: int | None = None
    signed: str = ""
    key_files: KeyFiles = ()


def fits(zone: ZoneConfig, settings: str, sources: Sequence[Source]) -> bool:
    """Return whether a zone's settings and files are still those from which a version was made."""
    if settings != settings_of(zone) or [source.path for source in sources[:1]] != [zone.file]:
        return False
    try:
        return all(digest_of(source.path) == source.digest for source in sources)
    except OSError:
        return False


def settings_of(zone: ZoneConfig) -> str:
    """Digest what a version depends on besides its files: the settings, and the program that reads and checks them."""
    return hashlib.sha256(repr((__version__, FORMAT, zone)).encode(errors="backslashreplace")).hexdigest()


def path_of(folder: Path, origin: Labels) -> Path:
    return folder / (name_for(origin) + SUFFIX)


def signed_head(folder: Path, origin: Labels) -> str:
    """Return the first line of a signed zone's file, which identifies its version; "" without a file."""
    try:
        with opened(signed_path(folder, origin)) as file:
            return file.readline(MAX_SIGNED_HEAD).decode("ascii", "replace")
    except OSError:
        return ""


# ---- the file


class OtherFormat(ValueError):
    """The file is from another version of maptr."""


def read(folder: Path, origin: Folded, tell: Tell = log_trouble) -> Kept | None:
    """Return a zone's kept version, whatever became of its source; None without one.

    An unusable version is reported to ``tell``; one from another version of maptr is only logged.
    """
    path = path_of(folder, origin)
    try:
        with opened(path) as file:
            return _read(file, origin)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:  # a file with the right checksum may still be wrong in any way
        reason = getattr(error, "strerror", None) or str(error) or repr(error)
        report = log_trouble if isinstance(error, OtherFormat) else tell
        report(f"{path} is not used: {reason}")
        return None


def write(folder: Path, kept: Kept) -> None:
    """Keep a version atomically. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private_parts(path_of(folder, kept.view.origin), _with_digest(_content(kept)))


def _content(kept: Kept) -> Iterator[bytes]:
    nodes = kept.view.nodes
    head = {
        "origin": to_wire(kept.view.origin).hex(),
        "serial": kept.view.serial,
        "names": len(nodes.table),
        "digest": None if nodes.digest is None else f"{nodes.digest:x}",
        "published": kept.published,
        "settings": kept.settings,
        "sources": [[str(source.path), source.digest.hex()] for source in kept.sources],
        "warnings": kept.warnings,
        "unsigned": kept.unsigned,
        "signed": kept.signed,
        "key_files": kept.key_files,
    }
    yield FORMAT
    yield json.dumps(head).encode() + b"\n"
    special, items = frozenset(nodes.special), iter(nodes.table.items())
    while part := tuple(islice(items, NAMES)):
        names, values = zip(*part, strict=True)
        spelled = [nodes.spelled.get(name, b"") for name in names]
        texts = [*names, *spelled, *values]
        content = b"".join(texts)
        yield _COUNT.pack(len(names), len(content))
        yield bytes(name in special for name in names)
        yield struct.pack(f"<{len(texts)}I", *map(len, texts))
        yield content


def _with_digest(parts: Iterable[bytes]) -> Iterator[bytes]:
    made = hashlib.sha256()
    for part in parts:
        made.update(part)
        yield part
    yield made.digest()


def _read(file: BinaryIO, origin: Folded) -> Kept:
    """Read a file. Raises ValueError, and any exception for a forged file."""
    size = os.fstat(file.fileno()).st_size
    if size <= CHUNK:  # as for most of thousands of zones: fewer system calls
        file = BytesIO(file.read(size + 1))
    end = size - _DIGEST
    if file.read(len(FORMAT)) != FORMAT:
        raise OtherFormat("it is from another version of maptr")
    _verify(file, end)
    file.seek(len(FORMAT))
    head = json.loads(file.readline(MAX_HEAD))
    if head["origin"] != to_wire(origin).hex():
        raise ValueError("it belongs to another zone")
    nodes = _read_nodes(file, end, head["names"])
    nodes.digest = None if head["digest"] is None else int(head["digest"], 16)
    view = ZoneView.of(origin, nodes)
    if view.serial != head["serial"]:
        raise ValueError("its serial differs")
    key_files: list[tuple[Any, ...]] = head["key_files"]
    published = float(head["published"])
    if not 0 <= published < MAX_TIME:
        raise ValueError("its time is invalid")
    return Kept(
        view,
        published,
        str(head["settings"]),
        tuple(Source(Path(path), bytes.fromhex(digest)) for path, digest in head["sources"]),
        tuple(map(str, head["warnings"])),
        None if head["unsigned"] is None else int(head["unsigned"]),
        str(head["signed"]),
        tuple((str(name), int(mode), int(owner), int(inode), int(at)) for name, mode, owner, inode, at in key_files),
    )


def _verify(file: BinaryIO, end: int) -> None:
    """Raise ValueError unless the file ends with the digest of everything before it."""
    made = hashlib.sha256(FORMAT)
    left = end - len(FORMAT)
    while left > 0 and (part := file.read(min(left, CHUNK))):
        made.update(part)
        left -= len(part)
    if left or file.read(_DIGEST + 1) != made.digest():
        raise ValueError("it is damaged: its checksum is wrong")


def _read_nodes(file: BinaryIO, end: int, total: int) -> PackedNodes:
    table: dict[bytes, bytes] = {}
    spelled: dict[bytes, bytes] = {}
    special: list[bytes] = []
    while (at := file.tell()) < end:
        count, size = _COUNT.unpack(file.read(_COUNT.size))
        if at + _COUNT.size + 13 * count + size > end:
            raise ValueError("a part is cut short")
        flags = file.read(count)
        lengths = struct.unpack(f"<{3 * count}I", file.read(12 * count))
        content = file.read(size)
        if sum(lengths) != size:
            raise ValueError("the lengths in a part are wrong")
        texts = [content[start:stop] for start, stop in pairwise(accumulate(lengths, initial=0))]
        names = texts[:count]
        table.update(zip(names, texts[2 * count :], strict=True))
        spelled.update((name, owner) for name, owner in zip(names, texts[count : 2 * count], strict=True) if owner)
        special += compress(names, flags)
    if len(table) != total:
        raise ValueError("names are missing")
    return PackedNodes(table, spelled, special)


# ---- versions whose zones are no longer configured


def set_aside(folder: Path, configured: Iterable[Labels], now: float, *, suffixes: tuple[str, ...]) -> list[Path]:
    """Rename the files of zones that are not configured, and return their new paths. Raises OSError."""
    names = {name_for(origin) + suffix for origin in configured for suffix in suffixes}
    moved: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not path.name.endswith(suffixes) or path.name in names:
            continue
        at = now
        while (aside := path.with_name(f"{path.name}.{_stamp(at)}-0.aside")).exists():
            at += 1
        path.rename(aside)
        os.utime(aside, (now, now), follow_symlinks=False)
        moved.append(aside)
    return moved


def _stamp(at: float) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))


def last_set_aside(folder: Path, name: str) -> Path | None:
    """Return the newest set-aside file that had this name; None without one."""
    found = [match for each in _aside_in(folder) if (match := _ASIDE.fullmatch(each.name)) and match["file"] == name]
    return folder / max(found, key=lambda match: match["date"])[0] if found else None


def count_days(folder: Path, now: float) -> list[Path]:
    """Count a day for each set-aside version, if one has passed, and delete the old ones. Raises OSError."""
    deleted: list[Path] = []
    for path in _aside_in(folder):
        match = _ASIDE.fullmatch(path.name)
        with suppress(FileNotFoundError):
            if match is None or abs(now - path.lstat().st_mtime) < DAY:
                continue
            days = int(match["days"]) + 1
            if days >= AGE:
                path.unlink()
                deleted.append(path)
                continue
            path = path.rename(path.with_name(f"{match['file']}.{match['date']}-{days}.aside"))
            os.utime(path, (now, now), follow_symlinks=False)
    return deleted


def _aside_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(".aside"))
