"""NOTIFY and SOA queries to secondaries, which the tests simulate."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from maptr.answer.context import ReceivedQuery
from maptr.config.model import SecondariesConfig
from maptr.protocol.address import Address
from maptr.protocol.names import fold, parse, to_wire
from maptr.protocol.numbers import NOTAUTH
from maptr.protocol.serial import MAX_AHEAD
from maptr.server import requests, secondaries
from maptr.server.alarm import Alarm, AlarmKind, AlarmLog
from maptr.server.secondaries import Expected, NotifyState, SecondaryMonitor
from maptr.server.status import Progress, SecondaryStatus
from maptr.transfer import tsig
from maptr.transfer.acl import NotifyTarget, TsigKey
from tests.support import zones
from tests.support.ports import free_port
from tests.support.transfers import keyring
from tests.support.waiting import PATIENCE
from tests.transfer.test_session import EXAMPLE, KEY, NOW, view_of

Reply = Callable[[bytes], list[bytes]]
CATALOG = fold(parse("catalog.invalid."))
SOA_QUERY = b"\0\1" + requests.make_request(EXAMPLE)[2:]


def answer(request: bytes, rcode: int = 0) -> bytes:
    """Return a secondary's response: the header and question of the request, with QR set."""
    question = 12 + len(to_wire(view_of(1).origin)) + 4
    return request[:2] + bytes((request[2] | 0x80, rcode)) + b"\0\1" + b"\0" * 6 + request[12:question]


def is_notify(request: bytes) -> bool:
    return bool(request[2] & 0x78)


class Secondary:
    """Answers on one port over UDP and TCP. ``received`` has the requests, ``asked`` the transports of SOA queries."""

    def __init__(self, by_udp: Reply, by_tcp: Reply | None = None, host: str = "127.0.0.1") -> None:
        self.host = host
        self.clients: set[str] = set()
        self.asked: list[str] = []
        self.received: list[bytes] = []
        self._replies = {"udp": by_udp, "tcp": by_tcp or by_udp}

    async def __aenter__(self) -> Secondary:
        self._server = await asyncio.start_server(self._connected, self.host, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self._sock = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind((self.host, self.port))
        asyncio.get_running_loop().add_reader(self._sock, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._sock)
        self._sock.close()
        self._server.close()

    def _reply(self, transport: str, request: bytes) -> list[bytes]:
        if not is_notify(request):
            self.asked.append(transport)
        self.received.append(request)
        return self._replies[transport](request)

    def _read(self) -> None:
        request, client = self._sock.recvfrom(65535)
        self.clients.add(client[0])
        for each in self._reply("udp", request):
            self._sock.sendto(each, client)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.clients.add(writer.get_extra_info("peername")[0])
        query = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
        for each in self._reply("tcp", query):
            writer.write(len(each).to_bytes(2, "big") + each)
        await writer.drain()
        writer.close()


class Watch:
    """A monitor with a clock of its own, and a secondary. Constants of the module may be given.

    It waits for answers for longer than a slow machine needs, unless other times are given.
    """

    def __init__(
        self,
        reply: Reply,
        by_tcp: Reply | None = None,
        *,
        interval: int = 300,
        host: str = "127.0.0.1",
        source: tuple[str, ...] = (),
        **constants: Any,
    ) -> None:
        self.now = float(NOW)
        self.secondary = Secondary(reply, by_tcp, host)
        self.monitor = SecondaryMonitor(lambda: self.now, SecondariesConfig(source, interval, alarm_after=300))
        self.alarm_log = AlarmLog()
        self._constants = {"NOTIFY_TIMEOUTS": (PATIENCE,), "QUERY_TIMEOUT": PATIENCE} | constants

    async def __aenter__(self) -> Watch:
        self._patch = pytest.MonkeyPatch()
        for name, value in self._constants.items():
            self._patch.setattr(secondaries, name, value)
        await self.secondary.__aenter__()
        self.port = self.secondary.port
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.monitor.stop()
        await self.secondary.__aexit__()
        self._patch.undo()

    def follow(self, serial: int, key: TsigKey | None = None, *, is_catalog: bool = False) -> None:
        self.target = NotifyTarget(Address(self.secondary.host, self.port), None if key is None else key.name)
        self.monitor.follow({(EXAMPLE, self.target): Expected(view_of(serial), key, is_catalog)})

    @property
    def state(self) -> SecondaryStatus:
        return self.monitor.state(EXAMPLE, self.target)

    async def until(self, met: Callable[[SecondaryStatus], object]) -> SecondaryStatus:
        async with asyncio.timeout(PATIENCE):
            while not met(self.state):
                await asyncio.sleep(0.005)
        return self.state

    async def alarms_after(self, seconds: float) -> list[Alarm]:
        """Let the time pass, and the secondary be asked twice; return the alarms."""
        self.now += seconds
        asked = len(self.secondary.asked)
        await self.until(lambda _: len(self.secondary.asked) >= asked + 2)
        return list(self.alarm_log.dated(self.monitor.alarms(), self.now))


def is_notified(state: SecondaryStatus) -> bool:
    return state.notify is not NotifyState.PENDING


def notifying(reply: Reply, *serials: int, key: TsigKey | None = None, port: int = 0, **constants: Any) -> list[bytes]:
    """Return the NOTIFYs that a secondary, or another port, gets while it is told of these serials.

    It answers no SOA query.
    """

    async def run() -> list[bytes]:
        constants.setdefault("QUERY_TIMEOUT", 0.01)
        async with Watch(lambda request: reply(request) if is_notify(request) else [], **constants) as watch:
            watch.port = port or watch.port
            for serial in serials or (1,):
                watch.follow(serial, key)
                await asyncio.sleep(0)
            await watch.until(is_notified)
            AlarmLog().dated(watch.monitor.alarms(), watch.now)
        return [*filter(is_notify, watch.secondary.received)]

    return asyncio.run(run())


def test_rfc1996_3_7_notify_message_and_rfc1035_3_3_13_soa_query() -> None:
    message = dns.message.from_wire(requests.make_request(EXAMPLE, view_of(7).soa))
    assert (message.opcode(), message.flags & ~0x7800) == (dns.opcode.NOTIFY, dns.flags.AA)
    assert str(message.question[0]) == "example. IN SOA"
    assert message.answer[0][0].serial == 7
    query = dns.message.from_wire(requests.make_request(EXAMPLE))
    assert (int(query.flags), str(query.question[0]), query.answer) == (0, "example. IN SOA", [])


@pytest.mark.parametrize(
    ("rcodes", "timeouts", "count", "logged"),
    [
        ([0], (PATIENCE,) * 4, 1, ": done"),
        ([], (0.02, 0.04, 0.08), 3, "did not acknowledge NOTIFY: no answer; it will check after its refresh interval"),
        ([5, 9, 0], (0.05, 0.05, PATIENCE), 3, ": done"),
        ([4], (PATIENCE,) * 4, 1, "did not acknowledge NOTIFY: NOTIMP; "),
    ],
    ids=["acknowledged", "RFC 1996 3.6 no response", "errors", "RFC 1996 3.14 NOTIMP is final"],
)
def test_notify_is_repeated_until_it_is_acknowledged_or_given_up(
    rcodes: list[int], timeouts: tuple[float, ...], count: int, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "maptr")
    replies = iter(rcodes)
    received = notifying(
        lambda request: [answer(request, each) for each in islice(replies, 1)], NOTIFY_TIMEOUTS=timeouts
    )
    assert len(received) == count
    assert len({packet[:2] for packet in received}) == count, "each with an ID of its own"
    assert logged in caplog.text


async def test_a_secondary_that_does_not_answer_is_logged_once_and_again_after_an_answer(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, counts = AlarmLog(), []
    async with Watch(lambda request: [answer(request)] if serial == 3 else [], QUERY_TIMEOUT=0.01) as watch:
        for serial in range(1, 6):
            monkeypatch.setattr(secondaries, "NOTIFY_TIMEOUTS", (PATIENCE if serial == 3 else 0.05,))
            watch.now += 1
            watch.follow(serial)
            log.dated(watch.monitor.alarms(), watch.now)
            await watch.until(is_notified)
            log.dated(watch.monitor.alarms(), watch.now)
            counts.append([record.levelname for record in caplog.records].count("WARNING"))
    assert counts == [1, 1, 1, 2, 2]


def test_an_error_may_have_no_question() -> None:
    assert requests.read_response(SOA_QUERY, SOA_QUERY[:2] + b"\x80\1" + bytes(8)) == 1


def test_responses_to_other_requests_are_ignored() -> None:
    def reply(request: bytes) -> list[bytes]:
        good = answer(request)
        other_id = bytes((good[0] ^ 1,)) + good[1:]
        not_a_response = good[:2] + bytes((good[2] & 0x7F,)) + good[3:]
        a_query = good[:2] + b"\x84" + good[3:]
        other_zone = good.replace(b"\7example", b"\7exemple")
        return [b"", b"x", other_id, not_a_response, a_query, other_zone, good[:20], good]

    assert len(notifying(reply)) == 1
    assert len(notifying(lambda request: reply(request)[:-1], NOTIFY_TIMEOUTS=(0.05, 0.05))) == 2


def test_a_newer_serial_replaces_a_pending_one() -> None:
    received = notifying(lambda _: [], 1, 2, 3, NOTIFY_TIMEOUTS=(0.05, 0.05))
    assert [dns.message.from_wire(packet).answer[0][0].serial for packet in received] == [1, 2, 3, 3]


def test_rfc8945_notify_is_signed_if_the_target_has_a_key() -> None:
    def signed(request: bytes) -> list[bytes]:
        checked = tsig.check_query(ReceivedQuery(request), keyring([KEY]), NOW)
        assert checked.key == KEY.name
        good = checked.sign(answer(checked.query.wire))
        bad = good[:-20] + bytes((good[-20] ^ 1,)) + good[-19:]
        return [answer(checked.query.wire), bad, good]

    assert len(notifying(signed, key=KEY)) == 1
    unsigned = notifying(lambda request: signed(request)[:1], key=KEY, NOTIFY_TIMEOUTS=(0.05, 0.05))
    assert len(unsigned) == 2, "it is no answer"


def test_an_icmp_error_is_a_failed_attempt(caplog: pytest.LogCaptureFixture) -> None:
    assert notifying(lambda _: [], port=free_port(), NOTIFY_TIMEOUTS=(0.05, 0.05)) == []
    assert "did not acknowledge NOTIFY: Connection refused; " in caplog.text


@pytest.mark.parametrize("removed", [True, False], ids=["the secondary is removed", "the server stops"])
async def test_pending_notifications_end(removed: bool) -> None:
    async with Watch(lambda _: []) as watch:
        tasks = asyncio.all_tasks()
        watch.follow(1)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() > tasks
        if removed:
            watch.monitor.follow({})
            await asyncio.sleep(0)
            assert watch.state == SecondaryStatus(str(watch.target)), "forgotten"
        else:
            await watch.monitor.stop()
        assert asyncio.all_tasks() == tasks


async def test_a_secondary_that_does_not_answer_delays_no_other() -> None:
    async with Watch(lambda _: [], AT_ONCE=1) as silent, Watch(lambda request: [answer(request)]) as other:
        silent.follow(1)
        target = NotifyTarget(Address("127.0.0.1", other.port))
        replicas = (EXAMPLE, silent.target), (CATALOG, silent.target), (EXAMPLE, target)
        silent.monitor.follow(dict.fromkeys(replicas, Expected(view_of(1), None)))
        async with asyncio.timeout(PATIENCE):
            while silent.monitor.state(EXAMPLE, target).notify is not NotifyState.DONE:
                await asyncio.sleep(0.01)
        assert len(silent.secondary.received) == 1, "one at a time"


async def test_notify_is_sent_again_on_request_and_with_a_new_key() -> None:
    async with Watch(lambda request: [answer(request)]) as watch:
        received = watch.secondary.received
        watch.follow(1)
        await watch.until(is_notified)
        watch.follow(1)
        assert is_notified(watch.state), "nothing is new"
        watch.follow(1, KEY)
        await watch.until(lambda _: len(received) == 2)
        assert watch.monitor.notify_again(CATALOG) == []
        assert watch.monitor.notify_again(EXAMPLE) == watch.monitor.notify_again() == [f"example. {watch.target}"]
        await watch.until(lambda _: len(received) == 3)
    assert [tsig.find(request) is not None for request in received] == [False, True, True]


def soa(query: bytes, serial: int = 7, rcode: dns.rcode.Rcode = dns.rcode.NOERROR, flags: int = dns.flags.AA) -> bytes:
    """Return a secondary's response to an SOA query."""
    reply = dns.message.make_response(dns.message.from_wire(query))
    reply.flags |= flags
    reply.set_rcode(rcode)
    if not rcode:
        reply.answer.append(dns.rrset.from_text("example.", 60, "IN", "SOA", f". . {serial} 1 2 3 4"))
    return reply.to_wire()


def is_seen(observed: SecondaryStatus) -> bool:
    return observed.observed is not None or bool(observed.observed_error)


def observed(
    reply: Reply,
    by_tcp: Reply | None = None,
    until: Callable[[SecondaryStatus], bool] = is_seen,
    *,
    key: TsigKey | None = None,
    port: int = 0,
    timeout: float = PATIENCE,
) -> tuple[SecondaryStatus, list[str]]:
    """Return the state of a secondary, or of another port, that should have serial 7, and how it was asked."""

    async def run() -> tuple[SecondaryStatus, list[str]]:
        constants: dict[str, Any] = {"NOTIFY_TIMEOUTS": (), "IF_DIFFERENT": 0.02, "QUERY_TIMEOUT": timeout}
        async with Watch(reply, by_tcp, **constants) as watch:
            watch.port = port or watch.port
            watch.follow(7, key)
            found = await watch.until(until)
        # What is left out has tests of its own.
        found = replace(found, secondary="", progress=None, behind_since=None, notify=None, since=None, notify_error="")
        return found, watch.secondary.asked

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (soa(SOA_QUERY, 0xFFFFFFFF), 0xFFFFFFFF),
        (soa(SOA_QUERY, rcode=dns.rcode.SERVFAIL), "SERVFAIL"),
        (soa(SOA_QUERY, flags=0), "a response without AA"),
        (dns.message.make_response(dns.message.from_wire(SOA_QUERY)).to_wire(), "a response without"),
        (soa(SOA_QUERY)[:-1], "a malformed response"),
    ],
)
def test_read_serial_returns_the_serial_or_the_error(reply: bytes, said: int | str) -> None:
    def read(packet: bytes) -> int | str:
        try:
            return requests.read_serial(packet)
        except requests.NoResponse as error:
            return str(error)

    found = read(reply)
    assert found == said if isinstance(said, int) else str(found).startswith(said)
    for end in range(12, len(reply)):
        read(reply[:end])


@pytest.mark.parametrize("key", [None, KEY])
def test_the_state_has_the_serial_and_the_time(key: TsigKey | None) -> None:
    def signed(query: bytes) -> list[bytes]:
        checked = tsig.check_query(ReceivedQuery(query), keyring([KEY]), int(NOW))
        return [checked.sign(soa(checked.query.wire))] if checked.key == (None if key is None else key.name) else []

    expected = SecondaryStatus("", observed_serial=7, observed=NOW)
    assert observed(signed, key=key) == (expected, ["udp"]), "and not again soon"


def test_an_unreachable_secondary_is_an_error() -> None:
    assert observed(lambda _: [], port=free_port())[0] == SecondaryStatus("", observed_error="Connection refused")


def test_a_lagging_secondary_is_queried_until_it_has_the_serial() -> None:
    serials = iter([5, 5, 6])
    state, asked = observed(
        lambda query: [soa(query, next(serials, 7))], until=lambda state: state.observed_serial == 7
    )
    assert state == SecondaryStatus("", observed_serial=7, observed=NOW)
    assert len(asked) == 4


@pytest.mark.parametrize(
    ("is_good", "found"),
    [(True, {"observed_serial": 7, "observed": NOW}), (False, {"observed_error": "a TCP response"})],
)
def test_soa_query_over_tcp_after_a_truncated_response(is_good: bool, found: dict[str, Any]) -> None:
    def cut(query: bytes) -> bytes:
        return soa(query, flags=dns.flags.AA | dns.flags.TC)[: len(query)]

    state, asked = observed(lambda query: [cut(query)], lambda query: [soa(query) if is_good else query])
    assert replace(state, observed_error=state.observed_error[:14]) == SecondaryStatus("", **found)
    assert asked == ["udp", "tcp"]


def test_the_last_known_serial_is_kept_after_a_failure() -> None:
    seen = False

    def until(state: SecondaryStatus) -> bool:
        nonlocal seen
        seen |= state.observed_serial == 5
        return seen and bool(state.observed_error)

    state, _ = observed(lambda query: [] if seen else [soa(query, 5)], until=until, timeout=0.05)
    assert state == SecondaryStatus("", observed_serial=5, observed=NOW, observed_error="no answer")


# ---- alarms


def asking(reply: Reply, **constants: Any) -> Watch:
    """A watch that asks again and again."""
    return Watch(reply, interval=1, AFTER_NOTIFY=(0.01,), IF_DIFFERENT=0.01, **constants)


async def test_a_secondary_that_lags_behind_is_an_alarm_until_it_has_the_serial(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "maptr")
    serial = 6
    async with asking(lambda query: [soa(query, serial)]) as watch:
        watch.follow(7)
        assert await watch.alarms_after(299) == []
        text = f"zone example.: secondary {watch.target} has serial 6, not 7"
        alarm = Alarm(AlarmKind.SECONDARY_BEHIND, text, "example.", str(watch.target), watch.state.behind_since)
        assert await watch.alarms_after(1) == [alarm]
        watch.follow(8)  # a newer serial does not end the alarm
        assert [found.kind for found in await watch.alarms_after(0)] == [AlarmKind.SECONDARY_BEHIND]
        serial = 8
        assert await watch.alarms_after(1) == []
        assert watch.state.behind_since is None
    said = [message for message in caplog.messages if "NOTIFY" not in message]
    assert said == [alarm.text, f"alarm ended after 301 s: secondary-behind example. {watch.target}"]


async def test_a_secondary_with_a_greater_serial_is_an_alarm_at_once() -> None:
    async with asking(lambda query: [soa(query, 8)]) as watch:
        watch.follow(7)
        (alarm,) = await watch.alarms_after(0)
        said = f"zone example.: secondary {watch.target} is ahead: it has serial 8, not 7; "
        assert alarm.text == said + "the next one passes it; maptr reload example. --force publishes that now"
        assert watch.state.at(0.0, 7).is_ahead
        watch.follow(8)
        assert await watch.alarms_after(0) == []


async def test_is_ahead_stays_until_it_is_true_no_more() -> None:
    """Also while the secondary does not answer."""
    silent = False
    async with asking(lambda query: [] if silent else [soa(query, 8)], QUERY_TIMEOUT=0.02) as watch:
        watch.follow(7)
        await watch.until(lambda state: state.observed_serial == 8)
        silent = True
        await watch.until(lambda state: state.observed_error == "no answer")
        (alarm,) = watch.monitor.alarms()
        assert (alarm.kind, "is ahead" in alarm.text) == (AlarmKind.SECONDARY_BEHIND, True)
        watch.follow(9)
        assert list(watch.monitor.alarms()) == []


async def test_one_that_was_too_far_ahead_is_never_passed() -> None:
    """Also when the serial of the zone comes nearer."""
    async with asking(lambda query: [soa(query, serial)]) as watch:
        serial = 7 + MAX_AHEAD + 1
        watch.follow(7)
        (alarm,) = await watch.alarms_after(0)
        assert alarm.text.endswith("that is too far ahead to pass: make it transfer the whole zone once")
        for served in (8, 9):
            watch.follow(served)
            await watch.alarms_after(0)
            assert watch.monitor.serials(EXAMPLE, [watch.target]) == []
        serial = 9
        await watch.alarms_after(0)
        assert watch.monitor.serials(EXAMPLE, [watch.target]) == [9]


async def test_a_secondary_that_does_not_say_its_serial_is_an_alarm() -> None:
    async with asking(lambda query: [answer(query, 0 if is_notify(query) else 5)]) as watch:
        watch.follow(7)
        assert await watch.alarms_after(100) == []
        (alarm,) = await watch.alarms_after(200)
        assert (alarm.kind, alarm.secondary) == (AlarmKind.SECONDARY_UNKNOWN, str(watch.target))
        assert alarm.text.endswith("has an unknown serial: REFUSED")
        watch.monitor.follow({})
        assert list(watch.monitor.alarms()) == []


async def test_a_notify_that_was_given_up_is_an_alarm_until_the_secondary_has_the_zone() -> None:
    catalog = zones.view_of("", 1, "catalog.invalid.")
    serial = 6

    def reply(query: bytes) -> list[bytes]:
        if is_notify(query):
            return []
        of_catalog = to_wire(CATALOG) in query
        return [soa(query, serial, dns.rcode.REFUSED if of_catalog else dns.rcode.NOERROR)]

    async with asking(reply, NOTIFY_TIMEOUTS=(0.05,)) as watch:
        watch.follow(7)
        replica, expected = (EXAMPLE, watch.target), Expected(view_of(7), None)
        of_catalog = {(CATALOG, watch.target): Expected(catalog, None, is_catalog=True)}
        watch.monitor.follow({replica: expected, **of_catalog})
        await watch.until(is_notified)
        await watch.alarms_after(0)
        assert sum(map(is_notify, watch.secondary.received)) == 2, "one for each zone"
        alarms = [*watch.monitor.alarms()]
        assert [(alarm.kind, alarm.zone) for alarm in alarms] == [
            (AlarmKind.NOTIFY_GIVEN_UP, "example."),
            (AlarmKind.NOTIFY_GIVEN_UP, "catalog.invalid."),
        ]
        assert all(" did not acknowledge NOTIFY: no answer; " in alarm.text for alarm in alarms)
        serial = 7
        assert [alarm.zone for alarm in await watch.alarms_after(0)] == ["catalog.invalid."]
        watch.monitor.follow({replica: expected})
        assert list(watch.monitor.alarms()) == []
        watch.now += 1
        watch.follow(8)
        assert list(watch.monitor.alarms()) == [], "the next NOTIFY may be acknowledged"


@pytest.mark.parametrize("rcode", [dns.rcode.REFUSED, dns.rcode.NOTAUTH])
async def test_rfc9432_7_a_secondary_of_the_catalog_may_refuse_to_tell_its_serial(rcode: int) -> None:
    async with asking(lambda query: [answer(query, 0 if is_notify(query) else rcode)]) as watch:
        watch.follow(7, is_catalog=True)
        assert await watch.alarms_after(1000) == []
        state = watch.state
        assert (state.progress, state.observed_error, state.behind_since) == (Progress.UNTOLD, "", None)
        watch.follow(8, is_catalog=True)
        assert watch.state.behind_since is None
        assert await watch.alarms_after(1000) == []


async def test_a_secondary_of_the_catalog_that_tells_its_serial_is_watched() -> None:
    async with asking(lambda query: [answer(query) if is_notify(query) else soa(query, 6)]) as watch:
        watch.follow(7, is_catalog=True)
        (alarm,) = await watch.alarms_after(300)
        assert alarm.text.endswith("has serial 6, not 7")


async def test_a_secondary_that_does_not_acknowledge_is_asked_meanwhile() -> None:
    def reply(query: bytes) -> list[bytes]:
        return [] if is_notify(query) else [soa(query)]

    async with Watch(reply, NOTIFY_TIMEOUTS=(0.05, PATIENCE)) as watch:
        watch.follow(7)
        state = await watch.until(lambda state: state.observed_serial == 7)
        assert (state.notify, state.behind_since) == (NotifyState.PENDING, None)


async def test_a_secondary_that_acknowledges_but_stays_behind_gets_notify_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "maptr")
    notified = 0

    def reply(query: bytes) -> list[bytes]:
        """It does not follow the first two, as if its transfers failed."""
        nonlocal notified
        notified += is_notify(query)
        return [answer(query) if is_notify(query) else soa(query, 6 + (notified > 2))]

    async with asking(reply) as watch:
        watch.follow(7)
        await watch.until(lambda state: state.observed_serial == 7)
        asked = len(watch.secondary.asked)
        await watch.until(lambda _: len(watch.secondary.asked) >= asked + 2)
        assert notified == 3, "and no more, as it has the serial"
    assert [record.message.endswith(": done") for record in caplog.records] == [True], "the others are for debugging"


# ---- the time after a publication


async def test_a_secondary_that_transfers_within_a_second_is_in_step_within_another() -> None:
    """With the pauses as they are: it is told at first, not behind."""
    serials = iter([6])
    seen: list[str | None] = []

    def reply(query: bytes) -> list[bytes]:
        if is_notify(query):
            return [answer(query)]
        seen.append(watch.state.progress)
        return [soa(query, next(serials, 7))]

    async with Watch(reply) as watch:
        watch.follow(7)
        state = await watch.until(lambda state: state.progress == Progress.IN_STEP)
        assert seen == [Progress.TOLD, Progress.TOLD]
        assert state.behind_since is None
    assert sum(secondaries.AFTER_NOTIFY[:3]) <= 1.0, "asked three times within a second"
    assert [*secondaries.AFTER_NOTIFY] == sorted(secondaries.AFTER_NOTIFY), "the pauses grow"


async def test_a_secondary_that_stays_behind_is_behind_and_gets_notify_again() -> None:
    async with asking(lambda query: [answer(query) if is_notify(query) else soa(query, 6)]) as watch:
        watch.follow(7)
        await watch.until(lambda _: sum(map(is_notify, watch.secondary.received)) == 3)
        assert watch.state.progress == Progress.BEHIND, "also after the next NOTIFY"


# ---- the source of requests


def truncated_soa(query: bytes) -> list[bytes]:
    return [soa(query, flags=dns.flags.AA | dns.flags.TC)[: len(query)]]


@pytest.mark.parametrize(
    ("host", "source", "client"),
    [
        ("127.0.0.1", ("127.0.0.2", "::1"), "127.0.0.2"),
        ("127.0.0.1", ("::1",), "127.0.0.1"),
        ("::1", ("127.0.0.2", "::1"), "::1"),
    ],
)
async def test_requests_come_from_the_source_of_their_family(host: str, source: tuple[str, ...], client: str) -> None:
    """By UDP and by TCP."""

    def by_udp(query: bytes) -> list[bytes]:
        return [answer(query)] if is_notify(query) else truncated_soa(query)

    async with Watch(by_udp, lambda query: [soa(query)], host=host, source=source) as watch:
        watch.follow(7)
        await watch.until(lambda state: state.progress == Progress.IN_STEP)
        assert watch.secondary.asked == ["udp", "tcp"]
        assert watch.secondary.clients == {client}
        assert list(watch.monitor.alarms()) == []


async def test_a_source_that_is_not_on_the_machine_is_an_alarm_until_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is sent from another address, and NOTIFY is not given up meanwhile."""
    constants: dict[str, Any] = {"SOURCE_RETRY": 0.01, "NOTIFY_TIMEOUTS": (PATIENCE,)}
    caplog.set_level("INFO", "maptr")
    missing = "192.0.2.77"  # RFC 5737: of no machine

    def reply(query: bytes) -> list[bytes]:
        return [answer(query) if is_notify(query) else soa(query)]

    async with Watch(reply, source=(missing,), **constants) as watch:
        watch.follow(7)
        async with asyncio.timeout(PATIENCE):
            while not list(watch.monitor.alarms()):
                await asyncio.sleep(0.01)
        (alarm,) = watch.monitor.alarms()
        assert (alarm.kind, alarm.since) == (AlarmKind.SOURCE_MISSING, NOW)
        assert f"{missing} is not on this machine" in alarm.text
        await asyncio.sleep(0.1)
        assert watch.secondary.received == []
        assert watch.state.notify is NotifyState.PENDING
        assert caplog.records == [], "the alarm says it"
        watch.monitor.settings = replace(watch.monitor.settings, source=("127.0.0.2",))
        watch.follow(7)
        await watch.until(lambda state: state.progress == Progress.IN_STEP)
        assert list(watch.monitor.alarms()) == []
        assert watch.secondary.clients == {"127.0.0.2"}


# ---- refusals of the key


@pytest.mark.parametrize("name", ["BADSIG", "BADKEY", "BADTIME"])
async def test_rfc8945_5_3_2_an_unsigned_refusal_of_the_key_is_said_and_is_no_answer(name: str) -> None:
    def refuse(query: bytes) -> bytes:
        record = tsig.find(query)
        assert record is not None
        bare = query[:10] + b"\0\0" + query[12 : record.start]
        return tsig.attach(answer(bare, NOTAUTH), record.key, record.rdata.replace(error=getattr(tsig, name), mac=b""))

    async def reasons(reply: Reply, seconds: float) -> tuple[SecondaryStatus, list[Alarm]]:
        async with asking(reply, NOTIFY_TIMEOUTS=(seconds,), QUERY_TIMEOUT=seconds) as watch:
            watch.follow(7, KEY)
            alarms = await watch.alarms_after(300)
            state = await watch.until(lambda state: is_seen(state) and is_notified(state))
            return state, alarms

    said = f"the secondary refuses our TSIG key: {name}"
    for seconds in (0.05, 1.0, 20.0):  # until a slow machine has seen the refusal before the time is over
        state, alarms = await reasons(lambda query: [refuse(query)], seconds)
        if (state.observed_error, state.notify_error) == (said, said):
            break
    assert (state.observed_error, state.notify_error, state.notify) == (said, said, NotifyState.GIVEN_UP)
    assert [alarm.text.endswith(said) for alarm in alarms] == [True]

    def then_signed(query: bytes) -> list[bytes]:
        checked = tsig.check_query(ReceivedQuery(query), keyring([KEY]), NOW + 300)
        good = answer(checked.query.wire) if query[2] & 0x78 else soa(checked.query.wire)
        return [refuse(query), checked.sign(good)]

    state, alarms = await reasons(then_signed, PATIENCE)
    assert (state.observed_serial, state.observed_error, state.notify, alarms) == (7, "", NotifyState.DONE, [])
