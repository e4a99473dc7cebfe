"""Where a user's files are: the folders of the XDG base directory specification, below each of them ``maptr``.

Texts, not Paths: a command line looks here at each start, most often in vain.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # typing's own takes milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE = "naans"  # what ``maptr table pull`` brings, in any registry format
RUNNING = "up.toml"  # there while ``maptr up`` runs
LOCAL_CONFIG = "maptr.toml"
SYSTEM_CONFIG = "/etc/maptr/maptr.toml"  # of the server that the system runs
SYSTEM_SOCKET = "/run/maptr/maptr.sock"
NO_HOME = "/nonexistent"  # of a user without one, as Debian has it; "~" would be a folder where the command is given
MAX_HEAD = 1 << 16  # octets of a configuration that are looked through; longer ones are read in any case


def data_folder(environment: Mapping[str, str]) -> str:
    return _folder(environment, "XDG_DATA_HOME", ".local/share")


def table_file(environment: Mapping[str, str]) -> str:
    return f"{data_folder(environment)}/{TABLE}"


def running_file(environment: Mapping[str, str]) -> str:
    return f"{data_folder(environment)}/{RUNNING}"


def lock_file(environment: Mapping[str, str]) -> str:
    """Locked by ``maptr up`` as long as it runs, so that one that was killed is known to be gone."""
    return f"{data_folder(environment)}/up/lock"


def running(environment: Mapping[str, str]) -> str | None:
    """The configuration of the ``maptr up`` that runs; None where none does."""
    made = running_file(environment)
    return made if there(made) and locked(lock_file(environment)) else None


def cache_file(environment: Mapping[str, str]) -> str:
    return f"{_folder(environment, 'XDG_CACHE_HOME', '.cache')}/cache.sqlite"


def config_file(environment: Mapping[str, str]) -> str:
    return f"{_folder(environment, 'XDG_CONFIG_HOME', '.config')}/maptr.toml"


def control_sockets(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Where a server's control socket may be that no configuration names: the user's runtime folder, the system's."""
    folder = environment.get("XDG_RUNTIME_DIR", "")
    own = (f"{folder}/maptr/maptr.sock",) if folder.startswith("/") else ()
    return (*own, SYSTEM_SOCKET)


def there(path: str) -> bool:
    """True where there is such a file."""
    return os.path.exists(path)  # noqa: PTH110 - pathlib costs milliseconds to import


def locked(path: str) -> bool:
    """True where some process has the lock of the file."""
    import fcntl

    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def mentions(path: str, words: tuple[bytes, ...]) -> bool:
    """False where the file has none of the words; a file that cannot be read may have them."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO without a writer must not hang us
        try:
            head = os.read(handle, MAX_HEAD + 1)
        finally:
            os.close(handle)
    except OSError:
        return True
    return len(head) > MAX_HEAD or any(word in head for word in words)


def make_parent(path: str) -> None:
    """The folder of a file of ours, for its owner alone. Raises OSError."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120


def _folder(environment: Mapping[str, str], variable: str, default: str) -> str:
    named = environment.get(variable, "")
    # The specification: a path that is not absolute is invalid and ignored.
    return f"{named if named.startswith('/') else f'{_home(environment)}/{default}'}/maptr"


def _home(environment: Mapping[str, str]) -> str:
    home = environment.get("HOME") or os.path.expanduser("~")  # noqa: PTH111
    return NO_HOME if home == "~" else home
