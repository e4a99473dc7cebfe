"""A state folder is one server's: two would overwrite each other's signed zones, serials and journals.

The lock goes with the process, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING

from maptr.errors import ConfigError

if TYPE_CHECKING:
    from maptr.config import Config

FILE = ".lock"
PATIENCE = 2.0  # seconds for the server before to end, where one is started as another stops
PAUSE = 0.05


def take(config: Config, patience: float = PATIENCE) -> int | None:
    """Lock the state folder; what is to be closed when the server ends. Raises ConfigError where another has it.

    None where there is no such folder, or no file can be made in it, where nobody can write anything.
    """
    folder = config.serve.state
    if folder is None:
        return None
    try:
        handle = os.open(folder / FILE, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < end:
                time.sleep(PAUSE)
                continue
            os.close(handle)
            raise _error(config) from None
        except OSError:  # a file system without locks
            pass
        return handle


def _error(config: Config) -> ConfigError:
    return config.error("serve.state", f"{config.serve.state} is in use by another server: each needs its own")
