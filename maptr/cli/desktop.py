"""The user's desktop entry, which makes a click on a link that starts with ``ark:`` run ``maptr open``.

It follows two freedesktop.org specifications: Desktop Entry, and Association between MIME types and applications.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from maptr import paths
from maptr.errors import ConfigError, reason_of
from maptr.files import write_atomically

NAME = "maptr.desktop"
SCHEME = "x-scheme-handler/ark"
OTHER_SYSTEMS = ("win32", "cygwin", "darwin")  # whose desktops read no desktop entries
SECONDS = 30.0  # for xdg-mime and update-desktop-database, which normally end at once
_RESERVED = re.compile(r"""[\s"'\\><~|&;$*?#()`]""")  # a word with one of these is quoted in Exec

ENTRY = """\
[Desktop Entry]
Type=Application
Name=maptr
GenericName=ARK resolver
Comment=Open the object that an ARK names
Exec={command} open %u
Terminal=false
NoDisplay=true
MimeType=x-scheme-handler/ark;
"""


def register(environment: Mapping[str, str], program: str) -> Path:
    """Write the entry, which runs ``program`` (``sys.argv[0]``), and make it the default for ARKs; return its path.

    Raises ConfigError.
    """
    path = _entry(environment)
    content = ENTRY.format(command=" ".join(map(_quoted, _command(program))))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, os.fsencode(content))
    except OSError as error:
        raise ConfigError(reason_of(error)) from None
    _run(environment, "update-desktop-database", str(path.parent))
    _run(environment, "xdg-mime", "default", NAME, SCHEME)
    return path


def unregister(environment: Mapping[str, str]) -> Path | None:
    """Remove the entry and what makes it the default; return its path, None if there was none. Raises ConfigError."""
    path = _entry(environment)
    found = path.exists() or path.is_symlink()
    configured = Path(paths.config_file(environment)).parents[1]
    try:
        path.unlink(missing_ok=True)
        for defaults in (configured / "mimeapps.list", path.with_name("mimeapps.list")):
            found = _forget(defaults) or found
    except OSError as error:
        raise ConfigError(reason_of(error)) from None
    if path.parent.is_dir():
        _run(environment, "update-desktop-database", str(path.parent))
    return path if found else None


def _entry(environment: Mapping[str, str]) -> Path:
    if sys.platform in OTHER_SYSTEMS:
        raise ConfigError("this system has no desktop entries; faq.md explains how to open ark: links on it")
    return Path(paths.data_folder(environment)).with_name("applications") / NAME


def _command(program: str) -> list[str]:
    """Return the words that run maptr as it was started: its script, its zipapp, or the module of this Python."""
    path = Path(program).absolute()
    if path.name.startswith("maptr") and path.is_file():
        return [str(path)] if os.access(path, os.X_OK) else [sys.executable, str(path)]
    return [sys.executable, "-m", "maptr"]


def _quoted(word: str) -> str:
    """Quote a word for Exec, whose value is first read as a string, then split into words, then has its % replaced."""
    if re.search(r"[\n\r=]", word):
        raise ConfigError(f"{word!r} cannot be written in a desktop entry")
    text = '"{}"'.format(re.sub(r'(["`$\\])', r"\\\1", word)) if _RESERVED.search(word) else word
    return text.replace("\\", "\\\\").replace("%", "%%")


def _forget(defaults: Path) -> bool:
    """Remove the entry from a list of default applications. Returns whether it was there. Raises OSError."""
    if not defaults.is_file():
        return False
    old = defaults.read_bytes()
    pattern = rb"(?m)^(%b[ \t]*=[^\r\n]*?(?<=[=; \t]))%b(?:;|[ \t]*$)" % (re.escape(SCHEME.encode()), NAME.encode())
    new = re.sub(pattern, rb"\1", old)
    new = re.sub(rb"(?m)^%b[ \t]*=[; \t]*(?:\n|\Z)" % re.escape(SCHEME.encode()), b"", new)
    if new == old:
        return False
    write_atomically(defaults, new)
    return True


def _run(environment: Mapping[str, str], *command: str) -> None:
    """Run a tool of the desktop if it is installed. Raises ConfigError if it fails."""
    if shutil.which(command[0], path=environment.get("PATH")) is None:
        return
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{command[0]} failed: {error}") from None
    if done.returncode:
        said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise ConfigError(f"{command[0]} failed: {said}")
