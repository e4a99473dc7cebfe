"""``serve.user``: a server started as root binds its sockets and then permanently becomes another user.

Keys and zones are read as that user from the start: a file that a reload could not read is an error of the start.
"""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from typing import NamedTuple

from maptr.config import Config
from maptr.server.sockets import Sockets, bind

KEY = "serve.user"


class User(NamedTuple):
    """A user of this system and the group to run as."""

    name: str
    uid: int
    gid: int


def is_root() -> bool:
    return os.geteuid() == 0


def user_of(config: Config) -> User | None:
    """The user to run as; None if none is configured. Raises ConfigError for one that does not exist."""
    if not config.serve.user:
        return None
    name, colon, group = config.serve.user.partition(":")
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise config.error(KEY, f"there is no user {name!r}") from None
    try:
        gid = grp.getgrnam(group).gr_gid if colon else entry.pw_gid
    except KeyError:
        raise config.error(KEY, f"there is no group {group!r}") from None
    return User(name, entry.pw_uid, gid)


def check(config: Config) -> None:
    """Raise ConfigError for a user that this process is not and cannot become."""
    user = user_of(config)
    if user is not None and not is_root() and user.uid != os.geteuid():
        raise config.error(KEY, f"only root can become {user.name}; start the server as {user.name}, or as root")


def give_up(config: Config, user: User, *, control: Path | None = None, listening: bool = True) -> Sockets | None:
    """Bind the sockets as root if ``listening``, then become the user. Raises ConfigError.

    Missing folders for the state and for the socket at ``control`` are created for the user, who binds that socket
    later. ``config`` may be without its secrets.
    """
    bound = None
    if listening:
        serve = config.serve
        for folder in (serve.state, control and control.parent):
            if folder is not None:
                _make_folder(config, folder, user)
        bound = bind(serve.listen, serve.tls.listen, metrics=serve.metrics)
    try:
        _become(user)
    except OSError as error:
        raise config.error(KEY, f"cannot become {user.name}: {error.strerror}") from None
    for path in (Path(__file__), Path(os.__file__)):
        if not os.access(path, os.R_OK):
            raise config.error(KEY, f"{user.name} cannot read {path.parent}, where maptr or Python is installed")
    state = config.serve.state
    if state is not None and listening and not os.access(state, os.W_OK | os.X_OK):
        raise config.error("serve.state", f"{state} cannot be written to by {user.name}: chown it")
    return bound


def _make_folder(config: Config, folder: Path, user: User) -> None:
    if folder.exists():
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chown(folder, user.uid, user.gid, follow_symlinks=False)
    except OSError as error:
        raise config.error(KEY, f"{folder}: {error.strerror}") from None


def _become(user: User) -> None:
    """Change all user and group IDs, which also clears every capability (capabilities(7)). Raises OSError."""
    os.initgroups(user.name, user.gid)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
