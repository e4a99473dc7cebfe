"""The machines of the soak: each has its own network namespace, if the system allows that, and its own clock.

The clock is libfaketime's. It changes the time of day that a program reads, and so affects signatures, TSIG, the
resolver's cache and all ages. It does not change the monotonic clock, by which programs wait: NSD's timers for refresh
and expiry, the retries of NOTIFY, and the TTLs in the memory of the gateway pass in real time. Knot has only the real
clock, because libfaketime makes its threads hang. BIND is not used, because it starts with libfaketime only without
jemalloc (``tests/support/rollovers.py``).
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.namespaces import REPOSITORY, Network
from tests.support.peers import HOST, Peer
from tests.support.waiting import PATIENCE

PREFIX = "10.53.0"
ADMIN = f"{PREFIX}.254"  # the address of the soak itself, on the bridge
BRIDGE = "soak"
INSIDE = "MAPTR_SOAK_INSIDE"  # set in the soak's own namespaces: "yes", or why there are none
LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib")


@functools.cache
def libfaketime() -> Path | None:
    """The library for multithreaded programs; None if it is not installed."""
    for folder in map(Path, LIBRARIES):
        for found in sorted(folder.glob("**/faketime/libfaketimeMT.so.1")):
            return found
    return None


def enter_namespaces(arguments: Sequence[str]) -> str:
    """Run the soak again as root of its own user, network and mount namespaces. Return why that is not possible."""
    if said := os.environ.get(INSIDE):
        return "" if said == "yes" else said
    unshare = ["unshare", "--map-root-user", "--net", "--mount"]
    try:
        trial = " && ".join(("ip link add x type bridge", "ip link add y type veth", "mount -t tmpfs none /mnt"))
        tried = subprocess.run([*unshare, "sh", "-c", trial], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    if not tried.returncode:
        os.environ[INSIDE] = "yes"
        os.execvp(unshare[0], [*unshare, sys.executable, "-m", "tests.support.soak", *arguments])
    return " ".join(tried.stderr.split()) or "unshare failed"


def ip(*lines: str) -> None:
    """Run ``ip`` in the soak's namespace."""
    for line in lines:
        subprocess.run(["ip", *line.split()], check=True, timeout=PATIENCE)


def make_bridge() -> None:
    """The network that all machines are connected to."""
    ip("link set lo up", f"link add {BRIDGE} type bridge", f"addr add {ADMIN}/24 dev {BRIDGE}", f"link set {BRIDGE} up")


class Machine:
    """A computer with an address, a clock and servers. ``namespaces`` is False if all share the present network."""

    def __init__(self, name: str, number: int, directory: Path, *, namespaces: bool, faked: bool = True) -> None:
        self.name = name
        self._faked = faked
        self.directory = directory / name
        self.directory.mkdir()
        self.network = Network() if namespaces else None
        self.host = f"{PREFIX}.{number}" if namespaces else HOST
        self._link = f"{BRIDGE}{number}"
        self._clock = self.directory / "clock"
        self.set_clock(0)
        if self.network is not None:
            if self.network.refused:
                raise RuntimeError(f"no network namespace for {name}: {self.network.refused}")
            pid = self.network.keeper.pid
            ip(f"link add {self._link} type veth peer name eth0 netns {pid}")
            ip(f"link set {self._link} master {BRIDGE} up")
            self.network.ip("link set lo up", f"addr add {self.host}/24 dev eth0", "link set eth0 up")

    def set_clock(self, offset: float) -> None:
        """Set the clock ahead of the real one by some seconds."""
        new = self._clock.with_suffix(".new")
        new.write_text(f"{offset:+.0f}\n")
        new.replace(self._clock)

    @property
    def wrapper(self) -> list[str]:
        """The command that runs another one on this machine."""
        inside = [] if self.network is None else self.network.command()
        faked = {
            "LD_PRELOAD": str(libfaketime()),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # otherwise Python's threads wait for each other without a pause
            "NO_FAKE_STAT": "1",
            "PYTHONPATH": str(REPOSITORY),
        }
        settings = [f"{name}={value}" for name, value in faked.items() if self._faked]
        return [*inside, "env", *settings]

    def place(self, peer: Peer) -> None:
        """Make a server run on this machine."""
        peer.host, peer.wrapper = self.host, self.wrapper

    def run(self, *command: str, codes: Sequence[int] = (0,)) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. Raises AssertionError for any other exit code."""
        words = [*self.wrapper, *command]
        done = subprocess.run(
            words,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode in codes, f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def maptr(self, *words: str, codes: Sequence[int] = (0,)) -> str:
        """The output of a maptr command."""
        return self.run(sys.executable, "-m", "maptr", *words, codes=codes).stdout

    def cut(self, *, off: bool) -> None:
        """Pull the network cable, or plug it in."""
        ip(f"link set {self._link} {'down' if off else 'up'}")

    def lose(self, other: Machine, *, lost: bool) -> None:
        """Lose the route to another machine, or get it back."""
        assert self.network is not None
        self.network.ip(f"route {'add' if lost else 'del'} blackhole {other.host}/32")

    def close(self) -> None:
        if self.network is not None:
            with contextlib.suppress(subprocess.SubprocessError, OSError):
                self.network.close()
