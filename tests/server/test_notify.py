"""NOTIFY out: told until answered, with pauses; and the primary's side of a reload. The targets are sockets here."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import dns.flags
import dns.message
import dns.opcode
import dns.rdatatype
import dns.tsig
import pytest

from maptr.errors import ConfigError
from maptr.protocol.address import Address
from maptr.protocol.names import Labels, parse, to_wire
from maptr.server.primary import Primary, PrimarySettings
from maptr.server.secondaries import Notifier
from maptr.server.state import ZoneSource
from maptr.transfer import tsig
from maptr.transfer.acl import Acl, Key, NotifyTarget, Secondaries, keyring
from maptr.transfer.journal import Journal
from maptr.transfer.notify import make_notify, read_response
from maptr.transfer.session import Access
from maptr.zone.snapshot import Snapshot
from tests.support.ports import free_port
from tests.transfer.test_xfr import EXAMPLE, KEY, NOW, OPEN, view_of

Reply = Callable[[bytes], list[bytes]]


def answer(request: bytes, rcode: int = 0) -> bytes:
    """A secondary's answer: the request's header and question, QR set."""
    question = 12 + len(to_wire(view_of(1).origin)) + 4
    return request[:2] + bytes((request[2] | 0x80, rcode)) + b"\0\1" + b"\0" * 6 + request[12:question]


async def told(
    view_serials: list[int], reply: Reply, key: Key | None = None, timeouts: tuple[float, ...] = (5.0,) * 4
) -> list[bytes]:
    """What a target receives while the notifier tells it of these serials, until it has no more to say."""
    received: list[bytes] = []
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)

        def read() -> None:
            packet, peer = sock.recvfrom(65535)
            received.append(packet)
            for each in reply(packet):
                sock.sendto(each, peer)

        loop.add_reader(sock, read)
        target = NotifyTarget(Address("127.0.0.1", sock.getsockname()[1]), None if key is None else key.name)
        notifier = Notifier(lambda: NOW, timeouts=timeouts)
        keys = keyring([] if key is None else [key])
        for serial in view_serials:
            notifier.notify(view_of(serial), [target], keys)
            await asyncio.sleep(0)
        while notifier.pending:
            await asyncio.sleep(0.01)
        loop.remove_reader(sock)
    return received


def test_rfc1996_3_7_the_request() -> None:
    message = dns.message.from_wire(make_notify(view_of(7), 4711))
    assert (message.id, message.opcode(), message.flags & ~0x7800) == (4711, dns.opcode.NOTIFY, dns.flags.AA)
    assert str(message.question[0]) == "example. IN SOA"
    assert message.answer[0].rdtype == dns.rdatatype.SOA
    assert message.answer[0][0].serial == 7


def test_one_request_is_enough_where_it_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "maptr.serve")
    received = asyncio.run(told([1], lambda request: [answer(request)]))
    assert len(received) == 1
    assert "NOTIFY of zone example. serial 1 to 127.0.0.1:" in caplog.text
    assert ": done" in caplog.text


def test_rfc1996_3_6_silence_is_asked_again_and_given_up(caplog: pytest.LogCaptureFixture) -> None:
    received = asyncio.run(told([1], lambda _: [], timeouts=(0.02, 0.04, 0.08)))
    assert len(received) == 3
    assert len({packet[:2] for packet in received}) > 1, "each with an ID of its own"
    assert "given up, no answer" in caplog.text


def test_an_error_is_asked_again_for_it_may_be_starting(caplog: pytest.LogCaptureFixture) -> None:
    replies = iter([5, 9, 0])
    received = asyncio.run(told([1], lambda request: [answer(request, next(replies))], timeouts=(0.5, 0.5, 5.0)))
    assert len(received) == 3
    assert "given up" not in caplog.text


def test_rfc1996_3_14_notimp_is_final(caplog: pytest.LogCaptureFixture) -> None:
    received = asyncio.run(told([1], lambda request: [answer(request, 4)]))
    assert len(received) == 1
    assert "given up, rcode 4" in caplog.text


def test_answers_to_something_else_are_passed_over() -> None:
    def reply(request: bytes) -> list[bytes]:
        good = answer(request)
        other_id = bytes((good[0] ^ 1,)) + good[1:]
        not_a_response = good[:2] + bytes((good[2] & 0x7F,)) + good[3:]
        a_query = good[:2] + b"\x84" + good[3:]
        other_zone = good.replace(b"\7example", b"\7exemple")
        return [b"", b"x", other_id, not_a_response, a_query, other_zone, good[:20], good]

    assert len(asyncio.run(told([1], reply))) == 1
    assert len(asyncio.run(told([1], lambda request: reply(request)[:-1], timeouts=(0.05, 0.05)))) == 2


def test_a_newer_serial_replaces_what_was_still_to_be_told() -> None:
    received = asyncio.run(told([1, 2, 3], lambda request: [answer(request)]))
    assert {dns.message.from_wire(packet).answer[0][0].serial for packet in received} == {3}


def test_rfc8945_signed_where_a_key_is_named() -> None:
    requests: list[bytes] = []

    def signed(request: bytes) -> list[bytes]:
        requests.append(request)
        opened = tsig.open_query(request, keyring([KEY]), NOW)
        assert opened.key == KEY.name
        good = opened.seal(answer(opened.query))
        bad = good[:-20] + bytes((good[-20] ^ 1,)) + good[-19:]
        return [answer(opened.query), bad, good]

    assert len(asyncio.run(told([1], signed, KEY))) == 1
    unsigned = lambda request: [answer(tsig.open_query(request, keyring([KEY]), NOW).query)]  # noqa: E731
    assert len(asyncio.run(told([1], unsigned, KEY, timeouts=(0.05, 0.05)))) == 2, "an unsigned answer is none"


def test_nobody_listening_is_no_crash(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        notifier = Notifier(lambda: NOW, timeouts=(0.05, 0.05))
        notifier.notify(view_of(1), [NotifyTarget(Address("127.0.0.1", free_port()))], {})
        while notifier.pending:
            await asyncio.sleep(0.01)

    asyncio.run(run())
    assert "given up" in caplog.text


def test_stopping_ends_what_is_still_telling() -> None:
    async def run() -> None:
        notifier = Notifier(lambda: NOW)
        notifier.notify(view_of(1), [NotifyTarget(Address("127.0.0.1", 9))], {})
        await asyncio.sleep(0)
        assert notifier.pending
        await notifier.stop()
        assert not notifier.pending

    asyncio.run(run())


def test_read_response_of_rubbish() -> None:
    request = make_notify(view_of(1), 1)
    assert read_response(request, answer(request, 5)) == 5
    assert read_response(request, request[:2] + b"\xa0\1" + b"\0" * 8) == 1, "an error may have no question"
    for end in range(len(answer(request))):
        read_response(request, answer(request)[:end])


def primary_of(tmp_path: Path, **settings: object) -> tuple[Primary, list[ZoneSource]]:
    made = PrimarySettings((KEY,), {EXAMPLE: OPEN}, **settings)  # type: ignore[arg-type]
    return Primary(made, clock=lambda: NOW), [ZoneSource(EXAMPLE, tmp_path / "example.zone")]


def test_a_reload_extends_the_journal_and_its_file(tmp_path: Path) -> None:
    primary, sources = primary_of(tmp_path)
    snapshots = [Snapshot.of([view_of(serial)]) for serial in (1, 2, 3)]
    access = primary.start(sources, snapshots[0])
    assert access.journals[EXAMPLE].differences == ()
    for old, new in ((0, 1), (1, 2)):
        access = primary.follow(access, sources, snapshots[old], snapshots[new])
    assert [change.from_serial for change in access.journals[EXAMPLE].differences] == [1, 2]
    again = Primary(primary.settings).start(sources, snapshots[2])
    assert again.journals == access.journals
    assert (tmp_path / "example.zone.journal").exists()


def test_a_zone_that_nobody_may_have_gets_no_journal(tmp_path: Path) -> None:
    sources = [ZoneSource(EXAMPLE, tmp_path / "example.zone")]
    settings: list[dict[Labels, Secondaries]] = [{}, {EXAMPLE: Secondaries()}]
    for secondaries in settings:
        primary = Primary(PrimarySettings((), secondaries))
        one, two = (Snapshot.of([view_of(serial)]) for serial in (1, 2))
        assert primary.follow(primary.start(sources, one), sources, one, two).journals == {}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("serial", "text", "warned"), [(1, "a 60 A 192.0.2.9\n", True), (0, "", True), (1, "", False)])
def test_a_change_without_a_serial_is_told_loudly(
    serial: int, text: str, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    primary, sources = primary_of(tmp_path)
    old, new = Snapshot.of([view_of(1)]), Snapshot.of([view_of(serial, text)])
    access = primary.follow(primary.start(sources, old), sources, old, new)
    assert ("no secondary will follow" in caplog.text) is warned
    assert access.journals[EXAMPLE] == Journal.start(new.zones[EXAMPLE])


def test_the_catalogs_serial_goes_forward_when_the_zones_change(tmp_path: Path) -> None:
    catalog = parse("catalog.invalid.")
    primary, sources = primary_of(tmp_path, catalog=(catalog, OPEN))
    one, none = Snapshot.of([view_of(1)]), Snapshot.of([])
    access = primary.start(sources, one)
    assert access.catalog is not None
    assert access.catalog.view.serial == NOW
    assert primary.follow(access, sources, one, one).catalog is access.catalog
    after = primary.follow(access, [], one, none)
    assert after.catalog is not None
    assert after.catalog.view.serial == NOW + 1, "even where the clock stands still"


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no key no\."):
        PrimarySettings((), {EXAMPLE: Secondaries(Acl.of(["key:no"]))})
    with pytest.raises(ConfigError, match="given twice"):
        PrimarySettings((KEY, KEY))
    with pytest.raises(ConfigError, match="is one of the zones"):
        Primary(PrimarySettings(catalog=(EXAMPLE, OPEN))).access(Snapshot.of([view_of(1)]))
    assert Primary().access(Snapshot.of([view_of(1)])) == Access()
