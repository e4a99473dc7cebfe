"""The paths of a user's files: in ``maptr`` below the folders of the XDG base directory specification.

Paths are strings here, because every start of a command looks for these files, and ``pathlib`` takes time to import.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

TABLE = "naans"  # the file of ``maptr table pull``, in any registry format
RUNNING = "up.toml"  # exists while ``maptr up`` runs
BUILT_IN = "builtin"  # as the name of a table: the built-in one; ./builtin is a file
BUILT_IN_FILE = f"{os.path.dirname(os.path.abspath(__file__))}/registry/builtin.json"  # noqa: PTH100, PTH120
LOCAL_CONFIG = "maptr.toml"
SYSTEM_CONFIG = "/etc/maptr/maptr.toml"  # of the system's server
SYSTEM_SOCKET = "/run/maptr/maptr.sock"
NO_HOME = "/nonexistent"  # the home of a user without one, as in Debian; "~" would be a folder in the current one


def data_folder(environment: Mapping[str, str]) -> str:
    return _folder(environment, "XDG_DATA_HOME", ".local/share")


def table_file(environment: Mapping[str, str]) -> str:
    return f"{data_folder(environment)}/{TABLE}"


def running_file(environment: Mapping[str, str]) -> str:
    return f"{data_folder(environment)}/{RUNNING}"


def lock_file(environment: Mapping[str, str]) -> str:
    """Return the file that ``maptr up`` locks while it runs, which shows if it was killed."""
    return f"{data_folder(environment)}/up/lock"


def running(environment: Mapping[str, str]) -> str | None:
    """Return the configuration of the running ``maptr up``, or None."""
    made = running_file(environment)
    return made if exists(made) and locked(lock_file(environment)) else None


def cache_file(environment: Mapping[str, str]) -> str:
    return f"{_folder(environment, 'XDG_CACHE_HOME', '.cache')}/cache.sqlite"


def config_file(environment: Mapping[str, str]) -> str:
    return f"{_folder(environment, 'XDG_CONFIG_HOME', '.config')}/maptr.toml"


def control_sockets(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the default places of a control socket: in the user's runtime folder, and in the system's."""
    folder = environment.get("XDG_RUNTIME_DIR", "")
    own = (f"{folder}/maptr/maptr.sock",) if folder.startswith("/") else ()
    return (*own, SYSTEM_SOCKET)


def exists(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - pathlib takes milliseconds to import


def locked(path: str) -> bool:
    try:
        import fcntl  # here, because Windows does not have it, nor a maptr up
    except ImportError:
        return False
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def make_parent(path: str) -> None:
    """Make the folder of a file, open to its owner only. Raises OSError."""
    os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120


def _folder(environment: Mapping[str, str], variable: str, default: str) -> str:
    named = environment.get(variable, "")
    if named.startswith("/"):  # the specification says to ignore a path that is not absolute
        return f"{named}/maptr"
    home = environment.get("HOME") or os.path.expanduser("~")  # noqa: PTH111
    return f"{NO_HOME if home == '~' else home}/{default}/maptr"
