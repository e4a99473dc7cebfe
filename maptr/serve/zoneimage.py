"""Zones that were read once, kept as images: a restart maps octets into a table and parses nothing.

An image is named after what the zone file holds, so a changed file has none and is read anew; files that it includes
are named in the image with what they held, and looked at again. It is trusted only from a folder that is ours and that
nobody else may enter, and only if its checksum holds; anything else counts as no image. It is ``marshal`` of dicts
and bytes, never of code or objects. Names that nobody asked for yet are lines in it, as in ``packed.py``.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import marshal
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from maptr import __version__
from maptr.errors import ConfigError
from maptr.files import keep, read_whole
from maptr.names import Labels, to_text, to_wire
from maptr.packed import PackedNodes, view_packed
from maptr.snapshot import ZoneView

log = logging.getLogger("maptr.serve")

# What an image depends on beside the zone: this layout, the Python that reads it, and the maptr that checked the zone.
VERSION = f"maptr {__version__} zone image 4, {sys.implementation.cache_tag}, marshal {marshal.version}".encode()
# Octets of a zone file that an image is worth its space for: a smaller one is read within some milliseconds.
MIN_TEXT = 1 << 16
DIGEST_SIZE = 32  # octets of SHA-256: where the processor has instructions for it, twice as fast as BLAKE2b


class ImageFolder(NamedTuple):
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
        checksum, payload = octets[:DIGEST_SIZE], memoryview(octets)[DIGEST_SIZE:]
        if checksum != _digest(payload):
            log.warning("%s is damaged, the zone is read anew", path)
            return None
        included, warnings, cuts, ttl, special, spelled, table = marshal.loads(payload)  # noqa: S302 - values that we wrote
        try:
            if any(_digest(read_whole(Path(file))) != content for file, content in included):
                return None
        except OSError:
            return None  # whoever reads the zone says so
        packer = None
        if ttl is not None:
            from maptr.masterline import BlockPacker

            packer = BlockPacker(origin, ttl)
        return view_packed(origin, PackedNodes(table, spelled, special, packer), cuts), tuple(warnings)

    def write(
        self,
        origin: Labels,
        text: bytes,
        lint: str,
        view: ZoneView,
        warnings: Iterable[str],
        included: Iterable[tuple[Path, bytes]] = (),
    ) -> None:
        """Keep an image of the zone in place of older ones. What goes wrong is logged, and costs time alone.

        ``included`` are the files that belong to the text, and what they held.
        """
        nodes = PackedNodes.pack(view.nodes)
        files = [(os.path.abspath(file), _digest(content)) for file, content in included]  # noqa: PTH100 - links stay
        ttl = None if nodes.packer is None else nodes.packer.ttl
        payload = marshal.dumps(
            (
                *(files, list(warnings), list(view.cuts)),
                *(ttl, nodes.special, dict(nodes.spelled), nodes.table),
            )
        )
        path = self._path(origin, text, lint)
        try:
            keep(path, _digest(payload), payload, sync=False)  # it has a checksum
            # Older ones, and what crashes left half written.
            for other in (*self.path.glob(f"{_name(origin)}-*.image"), *self.path.glob(f".{_name(origin)}-*")):
                if other != path:
                    with contextlib.suppress(FileNotFoundError):
                        other.unlink()
        except OSError as error:
            log.warning("no image of zone %s: %s: %s", to_text(origin), path, error.strerror)

    def _path(self, origin: Labels, text: bytes, lint: str) -> Path:
        head = VERSION + to_wire(origin) + lint.encode() + b"\0"
        content = hashlib.sha256(head)
        content.update(text)
        return self.path / f"{_name(origin)}-{content.hexdigest()}.image"


def folder_for(state: Path | None, size: int, name: str = "images") -> ImageFolder | None:
    """The folder of images in that of the state, if there is one and the zone's file has many octets."""
    if state is None or size < MIN_TEXT:
        return None
    try:
        return ImageFolder.open(state / name)
    except ConfigError as error:
        log.warning("no images of zones: %s", error)
        return None


def _name(origin: Labels) -> str:
    return hashlib.blake2b(to_wire(origin), digest_size=8).hexdigest()


def _digest(octets: bytes | memoryview) -> bytes:
    return hashlib.sha256(octets).digest()
