"""Zones that were read once, kept as images: a restart maps octets into a table and parses nothing.

An image is named after what the zone file holds, so a changed file has none and is read anew. It is trusted only
from a folder that is ours and that nobody else may enter, and only if its checksum holds; anything else counts as no
image. It is ``marshal`` of dicts and bytes, never of code or objects. Signed zones, whose proofs are more than a
table, and files that include others, whose content is elsewhere, have no image.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import marshal
import os
import stat
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from maptr.errors import ConfigError
from maptr.names import Labels, to_text, to_wire
from maptr.packed import PackedNodes
from maptr.snapshot import RRSIG, ZoneView, make_view

log = logging.getLogger("maptr.serve")

# What the octets of an image depend on beside the zone: this layout, and the Python that reads them.
VERSION = f"maptr zone image 1, {sys.implementation.cache_tag}, marshal {marshal.version}".encode()
# Octets of a zone file that an image is worth its space for: 64 kB are parsed within the time Python takes to start.
MIN_TEXT = 1 << 16
DIGEST_SIZE = 32  # octets of BLAKE2b


@dataclass(frozen=True, slots=True)
class ImageFolder:
    """A folder of images, mode 0700."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> ImageFolder:
        """Make the folder if need be. Raises ConfigError for one that is not ours alone."""
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = path.lstat()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise ConfigError(f"{path}: images are kept in a folder of mode 0700 that belongs to who runs the server")
        return cls(path)

    def read(self, origin: Labels, text: bytes, lint: str) -> tuple[ZoneView, tuple[str, ...]] | None:
        """The zone as it was read from this very text and checked in that way, with the warnings then; or None."""
        path = self._path(origin, text, lint)
        try:
            octets = path.read_bytes()
        except OSError:
            return None
        checksum, payload = octets[:DIGEST_SIZE], octets[DIGEST_SIZE:]
        if checksum != _digest(payload):
            log.warning("%s is damaged, the zone is read anew", path)
            return None
        table, spelled, cuts, warnings = marshal.loads(payload)  # noqa: S302 - plain values that we wrote, see above
        return make_view(origin, PackedNodes(table, spelled), cuts), tuple(warnings)

    def write(self, origin: Labels, text: bytes, lint: str, view: ZoneView, warnings: Iterable[str]) -> None:
        """Keep an image of the zone in place of older ones. What goes wrong is logged, and costs time alone."""
        if not _is_plain(view, text):
            return
        nodes = PackedNodes.pack(view.nodes)
        payload = marshal.dumps((nodes.table, dict(nodes.spelled), list(view.cuts), list(warnings)))
        path = self._path(origin, text, lint)
        try:
            with tempfile.NamedTemporaryFile(dir=self.path, prefix=".", delete=False) as file:
                try:
                    file.write(_digest(payload) + payload)
                    file.close()
                    Path(file.name).replace(path)
                except BaseException:
                    Path(file.name).unlink()
                    raise
            for other in self.path.glob(f"{_name(origin)}-*.image"):
                if other != path:
                    with contextlib.suppress(FileNotFoundError):
                        other.unlink()
        except OSError as error:
            log.warning("no image of zone %s: %s: %s", to_text(origin), path, error.strerror)

    def _path(self, origin: Labels, text: bytes, lint: str) -> Path:
        head = VERSION + to_wire(origin) + lint.encode() + b"\0"
        content = hashlib.blake2b(head, digest_size=DIGEST_SIZE)
        content.update(text)
        return self.path / f"{_name(origin)}-{content.hexdigest()}.image"


def folder_for(state: Path | None, zone_file: Path) -> ImageFolder | None:
    """The folder of images in that of the state, if there is one and the zone's file is large. Raises OSError."""
    if state is None or zone_file.stat().st_size < MIN_TEXT:
        return None
    try:
        return ImageFolder.open(state / "images")
    except ConfigError as error:
        log.warning("no images of zones: %s", error)
        return None


def _name(origin: Labels) -> str:
    return hashlib.blake2b(to_wire(origin), digest_size=8).hexdigest()


def _digest(octets: bytes) -> bytes:
    return hashlib.blake2b(octets, digest_size=DIGEST_SIZE).digest()


def _is_plain(view: ZoneView, text: bytes) -> bool:
    if view.hashed or view.denial is not None or b"$INCLUDE" in text.upper():
        return False
    return isinstance(view.nodes, PackedNodes) or not any(RRSIG in node for node in view.nodes.values())
