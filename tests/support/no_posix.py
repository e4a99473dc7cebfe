"""Removes from this process what Windows lacks, as far as maptr may notice: ``import tests.support.no_posix`` first.

Standard library modules that need these parts on Linux are imported before they are removed.
"""

from __future__ import annotations

import asyncio  # noqa: F401
import logging  # noqa: F401
import os
import signal
import socket
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
import webbrowser  # noqa: F401

MODULES = ("crypt", "curses", "fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty")
NAMES = {
    os: (
        *("chown", "fchmod", "fchown", "fork", "geteuid", "getegid", "getloadavg", "getuid", "getgid", "initgroups"),
        *("mkfifo", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "register_at_fork", "sched_getaffinity"),
        *("setresgid", "setresuid", "statvfs", "ST_RDONLY", "uname"),
    ),
    signal: ("pthread_sigmask", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIG_BLOCK", "SIG_SETMASK", "SIG_UNBLOCK"),
    socket: ("AF_UNIX", "SO_PEERCRED", "SO_REUSEPORT"),
}

for name in MODULES:
    sys.modules[name] = None  # type: ignore[assignment]
for module, names in NAMES.items():
    for name in names:
        vars(module).pop(name, None)
