"""Configuration: defaults < maptr.toml < MAPTR_* < flags, into frozen dataclasses.

What can be set is in ``model``, how text becomes that in ``reader``; here is what reads files.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from maptr.config import reader
from maptr.config.model import Config as Config
from maptr.config.model import KeyConfig as KeyConfig
from maptr.config.model import ServeConfig as ServeConfig
from maptr.config.model import ZoneConfig as ZoneConfig
from maptr.config.reader import parse as parse
from maptr.config.values import Secret as Secret
from maptr.config.values import read_cookie_secrets, read_tsig_secret
from maptr.errors import ConfigError, raise_all
from maptr.places import LOCAL_CONFIG

T = TypeVar("T")

FILE_VARIABLE = "MAPTR_CONFIG"
MAX_FILE = 16 * 1024 * 1024  # octets; a zone takes some 100, so this is room for all that one server can hold
MAX_SECRET = 4096  # octets of a secret's file


def find(environment: Mapping[str, str]) -> Path | None:
    """The file to read where none is named: ``MAPTR_CONFIG``, or ``maptr.toml`` here if there is one."""
    if named := environment.get(FILE_VARIABLE):
        return Path(named)
    return Path(LOCAL_CONFIG) if Path(LOCAL_CONFIG).exists() else None


def load(
    path: Path | None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, tuple[object, str]] | None = None,
    secrets: bool = True,
) -> Config:
    """The configuration of a file, or without one; the files of its secrets are read too, unless they are not wanted.

    Raises ConfigError with file, line and key (ConfigErrors where several are wrong), and OSError where the file itself
    cannot be read.
    """
    config, errors = examine(path, environment=environment, flags=flags, secrets=secrets)
    raise_all(errors)
    return config


def examine(
    path: Path | None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, tuple[object, str]] | None = None,
    secrets: bool = True,
) -> tuple[Config, list[ConfigError]]:
    """As ``load``, with all that is wrong, which the configuration then lacks.

    Raises ConfigError for a file that is no TOML.
    """
    if path is None:
        config, errors = reader.examine(environment=environment, flags=flags)
    else:
        try:
            text = _text(path)
        except OSError as error:
            if environment is not None and Path(environment.get(FILE_VARIABLE, "")) == path:
                error.strerror = f"{error.strerror}; {FILE_VARIABLE} names it"
            raise
        config, errors = reader.examine(
            text, filename=str(path), directory=path.parent, environment=environment, flags=flags
        )
    if secrets:
        config = _with_secrets(config, errors)
    return config, sorted(errors, key=lambda error: error.line)


def _text(path: Path) -> str:
    octets = _read(path, MAX_FILE)
    try:
        return octets.decode("utf-8-sig")  # editors of Windows put a byte order mark before it
    except UnicodeDecodeError as error:
        line = octets.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8", filename=str(path), line=line) from None


def _with_secrets(config: Config, errors: list[ConfigError]) -> Config:
    keys = []
    for index, key in enumerate(config.keys):
        if key.secret_file is not None:
            where = f"key[{index}].secret_file"
            secret = _read_secret(config, where, key.secret_file, read_tsig_secret, errors)
            key = key.replace(secret=secret)
        keys.append(key)
    cookies = config.serve.cookies
    if cookies.secret_file is not None:
        where = "serve.cookies.secret_file"
        secrets = _read_secret(config, where, cookies.secret_file, read_cookie_secrets, errors)
        cookies = cookies.replace(secret=secrets or ())
    return config.replace(keys=tuple(keys), serve=config.serve.replace(cookies=cookies))


def _read_secret(config: Config, key: str, path: Path, read: Callable[[str], T], errors: list[ConfigError]) -> T | None:
    """What a file of secrets holds; None, and an error more, for one that is bad or that others can read."""
    try:
        return read(_secret_text(config, key, path))
    except ConfigError as error:
        errors.append(error)
    except ValueError as error:
        errors.append(config.error(key, f"{path}: {error}"))
    return None


def _secret_text(config: Config, key: str, path: Path) -> str:
    """The text of a file that nobody but its owner can read, or write.

    The mode is that of the file opened, not of whatever has its name a moment before.
    """
    try:
        octets = _read(path, MAX_SECRET, secret=True)
        return octets.decode("ascii")
    except OSError as error:
        raise config.error(key, f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise config.error(key, f"{path}: is no text") from None
    except ValueError as error:
        raise config.error(key, f"{path}: {error}") from None


def _read(path: Path, limit: int, *, secret: bool = False) -> bytes:
    if path.is_dir():  # Python would name it by a number
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO without a writer must not hang us
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        mode = status.st_mode
        if secret and not stat.S_ISREG(mode):
            raise ValueError("is no regular file")
        if secret and mode & _open_bits(status):
            raise ValueError(f"has mode {stat.S_IMODE(mode):04o}: others can get at the secret; chmod 600 it")
        octets = file.read(limit + 1)
    if len(octets) > limit:
        raise ConfigError(f"has more than {limit} octets", filename=str(path))
    return octets


def _open_bits(status: os.stat_result) -> int:
    """The bits of a mode that give a secret away.

    Its group may read what is root's where we are not root: Debian's daemons have keys so, and systemd its
    credentials, whose access list shows as those bits.
    """
    return 0o037 if status.st_uid == 0 and os.geteuid() != 0 else 0o077
