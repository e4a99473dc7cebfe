"""The Host headers that operator addresses accept."""

from __future__ import annotations

import socket
import threading

import pytest

from maptr.daemon.hosts import is_for_operators, machine
from tests.support.waiting import until

ANSWERED = [
    *("127.0.0.1", "127.0.0.1:9153", "[::1]", "[::1]:9153", "192.0.2.7", "localhost", "LOCALHOST:80", "localhost."),
    *("primary", "primary:9153", "metrics_1", "admin.example.org", "ADMIN.example.org.:9153"),
]
REFUSED = [
    *("evil.example", "evil.example:9153", "127.0.0.1.evil.example", "127.0.0.1.nip.io", "evil.localhost"),
    *("admin.example.org.evil.example", "xadmin.example.org", ".admin.example.org", "user@evil.example", "a/b.c"),
    *("[evil.example]", "[127.0.0.1.evil.example]:1", "1.2.3", "999.1.1.1", "a:b:c", "evil.example:80:90"),
    *("[", "]", "[::1", "::1]"),
]


@pytest.mark.parametrize("host", ["", *ANSWERED])
def test_a_host_that_no_stranger_can_name_is_answered(host: str) -> None:
    assert is_for_operators(host, ("admin.example.org",))


@pytest.mark.parametrize("host", REFUSED)
def test_any_other_host_is_refused(host: str) -> None:
    assert not is_for_operators(host, ("admin.example.org",))


def test_the_names_of_the_machine_are_answered_and_never_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def slowly() -> str:
        gate.wait(60)
        return "Here.example.org."

    machine.cache_clear()
    monkeypatch.setattr(socket, "gethostname", lambda: "here.example")
    monkeypatch.setattr(socket, "getfqdn", slowly)
    assert is_for_operators("here.example:1", ())
    assert not is_for_operators("here.example.org", ())
    gate.set()
    until(lambda: is_for_operators("HERE.example.org:9153", ()), "the full name is known")
    assert machine().names == {"here.example", "here.example.org"}
    machine.cache_clear()
