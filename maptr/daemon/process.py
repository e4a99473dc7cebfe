"""The server as a process: its user, its signals, readiness for systemd (sd_notify(3)), and threads for long work.

With ``serve.user``, a server started as root binds its sockets and then permanently becomes another user. It reads keys
and zones as that user from the start, so a file that a reload could not read prevents the start.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import logging
import os
import pwd
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple, TypeVar

from maptr.config import Config
from maptr.daemon.sockets import Sockets, bind
from maptr.errors import ConfigError

T = TypeVar("T")

log = logging.getLogger("maptr.daemon")

KEY = "serve.user"
MAX_ID = 0xFFFF_FFFF  # which stands for "unchanged" in setresuid(2)

READY = "READY=1"
STOPPING = "STOPPING=1"

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
RELOAD_SIGNAL = signal.SIGHUP
# Ignored with a log line. Other servers use them: NSD logs statistics, Knot reloads zones, BIND reopens its log.
USER_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
BLOCKED_AT_START = (RELOAD_SIGNAL, *USER_SIGNALS)


class User(NamedTuple):
    name: str
    uid: int
    gid: int


def user_of(config: Config) -> User | None:
    """Return the configured user to run as, or None. Raises ConfigError for a user that does not exist."""
    if not config.serve.user:
        return None
    name, colon, group = config.serve.user.partition(":")
    found = _account(name)
    if found is None:
        raise config.error(KEY, f"there is no user {name!r}")
    if not colon:
        return found
    try:
        gid = int(group) if _is_number(group) else grp.getgrnam(group).gr_gid
    except (KeyError, ValueError):
        raise config.error(KEY, f"there is no group {group!r}") from None
    return found._replace(gid=gid)


def _account(name: str) -> User | None:
    """Return the user with a name or a number. A number needs no entry: its group then has the same number."""
    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError):  # ValueError: a NUL or a lone surrogate
        if not _is_number(name):
            return None
        try:
            entry = pwd.getpwuid(int(name))
        except KeyError:
            return User(name, int(name), int(name))
    return User(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) < MAX_ID


def check_user(config: Config) -> None:
    """Raise ConfigError if this process neither runs as the configured user nor can become it."""
    user = user_of(config)
    if user is not None and os.geteuid() not in (0, user.uid):
        raise config.error(KEY, f"only root can become {user.name}; start the server as {user.name}, or as root")


def drop_privileges(config: Config, user: User, *, listening: bool = True) -> Sockets | None:
    """Bind the sockets as root if ``listening``, then become the user. Raises ConfigError.

    Creates missing folders for the state and the control socket, which the user binds later. Needs no secrets.
    """
    bound = None
    if listening:
        if config.serve.state is not None:
            with contextlib.suppress(ConfigError):  # the server raises an alarm, and serves
                _make_folder(config, config.serve.state, user)
        if config.control is not None:
            _make_folder(config, config.control.parent, user)
        bound = bind(config)
    try:
        # Changing all user and group IDs also clears every capability (capabilities(7)).
        os.initgroups(user.name, user.gid)
        os.setresgid(user.gid, user.gid, user.gid)
        os.setresuid(user.uid, user.uid, user.uid)
    except OSError as error:
        raise config.error(KEY, f"cannot become {user.name}: {error.strerror}") from None
    for path in (Path(__file__), Path(os.__file__)):
        if not os.access(path, os.R_OK):
            raise config.error(KEY, f"{user.name} cannot read {path.parent}, where maptr or Python is installed")
    return bound


def _make_folder(config: Config, folder: Path, user: User) -> None:
    try:
        if folder.exists():
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chown(folder, user.uid, user.gid, follow_symlinks=False)
    except OSError as error:
        raise config.error(KEY, f"{folder}: {error.strerror}") from None


def notify(state: str) -> bool:
    """Send a state to systemd's NOTIFY_SOCKET. Returns False if that is not possible. Never raises an exception."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return False
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.setblocking(False)
        sock.connect("\0" + path[1:] if path.startswith("@") else path)  # ``@`` marks an abstract socket
        sock.send(state.encode())
        return True
    return False


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Block the signals that must not end a starting server, until ``handle_signals`` or the end of the context.

    They remain pending until then. For the main thread. Threads that it starts in the context never get these signals.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_AT_START)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def handle_signals(stop: Callable[[], object], reload: Callable[[], object]) -> None:
    """Handle the signals in the running event loop, and unblock them. For the main thread."""
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(RELOAD_SIGNAL, reload)
    for number in USER_SIGNALS:
        loop.add_signal_handler(number, _log_ignored, number.name)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, BLOCKED_AT_START)  # delivers pending signals


def _log_ignored(name: str) -> None:
    log.info("%s is ignored; SIGHUP reloads", name)


async def in_thread(function: Callable[[], T]) -> T:
    """Call the function in a daemon thread, and return its result."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # the function continues even if the caller stops waiting
    threading.Thread(target=_run, args=(function, future), name="background", daemon=True).start()
    try:
        return await asyncio.wrap_future(future)
    finally:
        del future  # as in ``_run``


def _run(function: Callable[[], T], future: Future[T]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)
    finally:
        # The frames of an error in a future that they hold are a cycle, which would keep all the failed call's memory.
        del future
