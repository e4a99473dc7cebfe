"""Several workers as processes: nothing lost in reloads, deaths made good, all counted, nobody left at the end."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import dns.edns
import dns.exception
import dns.message
import dns.query
import dns.zone
import pytest

from maptr.answer import make_reply
from maptr.context import NO_COOKIES, Context, Transport
from maptr.rrl import RrlSettings
from maptr.serve.connections import TcpLimits
from maptr.serve.slots import BATCH
from maptr.snapshot import Snapshot
from tests.certificates import write_certificate
from tests.flood import Flood, Load
from tests.namespaces import environment
from tests.ports import free_port
from tests.test_batch import ask, numbered
from tests.test_control import Site
from tests.test_control import site as site
from tests.test_fastpath import ANSWER, PACKETS, wire
from tests.test_serve import connect, frame, receive, receive_message
from tests.test_serve_cli import PATIENCE, Server, address_of, zone_text

QUESTION = dns.message.make_query("ns.a.test.", "A")
WIRE = QUESTION.to_wire()
MANY = "".join(f"n{number} A 192.0.2.9\n" for number in range(100))


def start(site: Site, serve: str = "", extra: str = "", workers: int = 2) -> int:
    site.configure(extra, serve=f"workers = {workers}\n{serve}")
    return site.start()


def start_program(site: Site, program: str, file: Path | str = "none") -> int:
    """Two workers of a maptr that was tampered with, which looks at the file."""
    site.configure(serve="workers = 2")
    site.server = Server("--config", str(site.config), program=("-c", program, str(file)))
    site.servers.append(site.server)
    return site.server.ready()


def processes(site: Site) -> list[dict[str, object]]:
    found = site.status()["workers"]
    assert isinstance(found, list)
    return found


def pid_of(site: Site, worker: int | None, state: str = "answering") -> int:
    """The process of a worker, or of the reserve; waits until it is there."""
    found: list[int] = []

    def is_there() -> bool:
        found[:] = [int(str(p["pid"])) for p in processes(site) if (p["worker"], p["state"]) == (worker, state)]
        return len(found) == 1

    until(is_there)
    return found[0]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def answers(port: int, clients: int = 40) -> list[str]:
    """Of many clients, so of every worker: the address in each one's answer."""
    found = []
    for _ in range(clients):
        reply = dns.query.udp(QUESTION, "127.0.0.1", PATIENCE, port)
        found.append(str(reply.answer[0][0]))
    return found


def test_both_answer_and_status_has_them(site: Site) -> None:
    port = start(site)
    workers = processes(site)
    assert [(w["worker"], w["state"]) for w in workers] == [(1, "answering"), (2, "answering"), (None, "reserve")]
    assert set(answers(port)) == {"192.0.2.1"}
    assert address_of("ns.b.test.", port, "tcp") == "192.0.2.1"
    status = site.status()
    assert status["queries"] == {"udp": {"NOERROR": 40}, "tcp": {"NOERROR": 1}}
    assert status["alarms"] == []
    assert site.server is not None
    shown = site.run("status").stdout
    assert re.search(r"^worker 1 process \d+ answering since 20", shown, re.MULTILINE)
    assert re.search(r"^process \d+ in reserve$", shown, re.MULTILINE)
    # The kernel spreads clients, so each has had some: it has taken time of the processor for them.
    for worker in workers[:2]:
        assert Path(f"/proc/{worker['pid']}/schedstat").read_text().split()[2] != "0"


def test_twenty_reloads_under_load_lose_nothing(site: Site) -> None:
    """By UDP, and by TCP a connection each."""
    site.write_zone("a.test", zone_text(1) + MANY)
    port = start(site)
    with Flood(port, WIRE, threads=1) as flood, Load(port, clients=2) as load:
        for serial in range(2, 22):
            good = serial % 5 != 0
            text = zone_text(serial, f"192.0.2.{serial}") + MANY
            site.write_zone("a.test", text if good else text + "nonsense nonsense")
            assert site.run("reload", "a.test").exit_code == (0 if good else 1)
            flood.wait_for(20)
    assert (flood.lost, flood.faults, load.faults) == (0, [], [])
    assert site.zone("a.test.")["serial"] == 21
    assert set(answers(port)) == {"192.0.2.21"}
    counts = site.status()["queries"]
    assert isinstance(counts, dict)
    assert sum(counts["udp"].values()) + sum(counts["tcp"].values()) == flood.answered + load.asked + 40


def test_after_a_reload_nobody_answers_from_before(site: Site) -> None:
    port = start(site, workers=3)
    for serial in range(2, 8):
        site.write_zone("a.test", zone_text(serial, f"192.0.2.{serial}"))
        assert site.run("reload").exit_code == 0
        assert set(answers(port)) == {f"192.0.2.{serial}"}


def test_every_worker_answers_as_the_general_path_does(site: Site) -> None:
    (site.directory / "example.zone").write_text(ANSWER["zone"])
    site.configure(zones=("example",), serve="workers = 2\ncookies.enabled = false")
    port = site.start()
    rng = random.Random(1)
    queries = [wire(case["name"], case["type"], rng) for case in ANSWER["case"]]
    queries = numbered(queries + [bytes.fromhex(case["packet"]) for case in PACKETS["case"]])
    snapshot = Snapshot.from_zones([dns.zone.from_text(ANSWER["zone"], "example.", relativize=False)])
    context = Context(cookies=NO_COOKIES)
    for _ in range(8):  # each from a port of its own
        replies = ask(("127.0.0.1", port), queries)
        for query in queries:
            expected = make_reply(query, snapshot, transport=Transport.UDP, client="127.0.0.1", context=context)
            assert replies.get(query[:2]) == (None if expected is None else expected.wire), query.hex()


def test_what_changed_nothing_forks_nothing(site: Site) -> None:
    start(site)
    before = processes(site)
    site.write_zone("a.test", "nonsense")
    assert site.run("reload").exit_code == 1
    assert site.run("reload", "b.test").exit_code == 0
    assert processes(site) == before


def test_kill_9_of_a_worker_under_load(site: Site) -> None:
    """Another takes its place; what it had taken and not yet answered is lost, and nothing else."""
    port = start(site)
    first = pid_of(site, 1)
    with Flood(port, WIRE, patience=5) as flood:
        flood.wait_for(500)
        os.kill(first, signal.SIGKILL)
        until(lambda: pid_of(site, 1) != first)
        second = pid_of(site, 1)
        flood.wait_for(500)
    assert flood.lost <= BATCH
    assert flood.faults == []
    assert site.server is not None
    site.server.wait_for(rf"^maptr: worker 1, process {first}, was killed by SIGKILL; another takes its place$")
    site.server.wait_for(rf"^maptr: worker 1 is process {second} now$")
    status = site.status()
    counts = status["queries"]
    assert isinstance(counts, dict)
    assert flood.answered <= sum(counts["udp"].values()) <= flood.answered + flood.lost
    assert status["alarms"] == []
    assert "1 ended before it, the last was killed by SIGKILL" in site.run("status").stdout


def test_a_worker_that_dies_again_and_again_is_replaced_ever_later(site: Site) -> None:
    port = start(site)
    assert site.server is not None
    for pause in ("", " in 0.1 s", " in 0.2 s", " in 0.4 s"):
        pid = pid_of(site, 2)
        os.kill(pid, signal.SIGKILL)
        site.server.wait_for(
            rf"^maptr: worker 2, process {pid}, was killed by SIGKILL; another takes its place{pause}$"
        )
    alarm = "worker 2 does not answer, the last one was killed by SIGKILL"

    def is_told() -> bool:
        """Kills once more where the pause was over before status was asked: the next one is longer."""
        if site.status()["alarms"] == [alarm]:
            return True
        for pid in (int(str(p["pid"])) for p in processes(site) if (p["worker"], p["state"]) == (2, "answering")):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return False

    until(is_told)

    def reserve_is_killed() -> bool:
        """Kills once more where the pause was over before, so that it had a place when it ended: the next is longer."""
        assert site.server is not None
        if any("the worker in reserve, was killed by SIGKILL" in line for line in site.server.lines):
            return True
        for pid in (int(str(p["pid"])) for p in processes(site) if p["state"] == "reserve"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return False

    until(reserve_is_killed)
    pid_of(site, 2)
    pid_of(site, None, "reserve")
    assert site.status()["alarms"] == []
    assert set(answers(port)) == {"192.0.2.1"}


HOLDING = """
import sys, time
from pathlib import Path
from maptr.serve import zones
hold, read_whole = Path(sys.argv.pop(1)), zones.read_whole
def held(path):
    while hold.exists():
        hold.with_suffix(".seen").touch()
        time.sleep(0.01)
    return read_whole(path)
zones.read_whole = held
from maptr.cli import main
main()
"""


def being_read(site: Site, hold: Path) -> None:
    """A reload begins, and reads a zone until the file is gone."""
    hold.touch()
    seen = hold.with_suffix(".seen")
    seen.unlink(missing_ok=True)
    assert site.server is not None
    site.server.hang_up()
    until(seen.exists)


def test_the_reserve_takes_a_place_while_a_reload_reads(site: Site) -> None:
    """Nobody may fork then; so a place that is left a second time waits until the file was read."""
    hold = site.directory / "hold"
    port = start_program(site, HOLDING, hold)
    first = pid_of(site, 1)
    being_read(site, hold)
    assert site.server is not None
    os.kill(first, signal.SIGKILL)
    site.server.wait_for(r"worker 1 is process \d+ now")
    assert set(answers(port)) == {"192.0.2.1"}
    os.kill(pid_of(site, 1), signal.SIGKILL)
    until(lambda: site.status()["alarms"] == ["worker 1 does not answer, the last one was killed by SIGKILL"])
    before = len(site.server.lines)
    hold.unlink()
    site.server.wait_for(r"worker 1 is process \d+ now", before)
    assert set(answers(port)) == {"192.0.2.1"}
    being_read(site, hold)
    assert site.server.end() == 0


def test_sigterm_to_a_worker_costs_nothing(site: Site) -> None:
    port = start(site)
    with Flood(port, WIRE) as flood, Load(port) as load:
        for worker in (1, 2):
            flood.wait_for(100)
            os.kill(pid_of(site, worker), signal.SIGTERM)
            assert site.server is not None
            site.server.wait_for(rf"worker {worker}, process \d+, left, by SIGTERM; another takes its place")
    assert (flood.lost, flood.faults, load.faults) == (0, [], [])


def test_only_sigterm_is_for_workers(site: Site) -> None:
    port = start(site)
    workers = processes(site)
    for worker in workers:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            os.kill(int(str(worker["pid"])), number)
    assert set(answers(port)) == {"192.0.2.1"}
    assert processes(site) == workers


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_with_the_owner_everybody_goes(site: Site, number: int) -> None:
    site.configure(serve="workers = 2")
    site.config.write_text(site.config.read_text().replace("127.0.0.1:0", f"127.0.0.1:{free_port()}"))
    port = site.start()
    pids = [int(str(worker["pid"])) for worker in processes(site)]
    assert site.server is not None
    with Flood(port, WIRE, patience=0.3) as flood, connect(port) as open_for_long:
        open_for_long.sendall(frame(QUESTION))
        assert receive_message(open_for_long).answer
        flood.wait_for(100)
        code = site.server.end(number)
    assert code == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    if number == signal.SIGTERM:
        assert not any(is_alive(pid) for pid in pids)
        assert site.server.lines[-1] == "maptr: stopped"
    until(lambda: not any(is_alive(pid) for pid in pids))
    assert site.start() == port, "the port is free again"


def test_a_second_server_does_not_share_the_port(site: Site) -> None:
    port = start(site)
    site.config.write_text(
        site.config.read_text().replace("127.0.0.1:0", f"127.0.0.1:{port}").replace("[serve]", "[serve]\ncontrol = 's'")
    )
    second = Server("--config", str(site.config))
    site.servers.append(second)
    second.wait_for(rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use")


def test_a_transfer_outlives_the_worker_that_gives_way(site: Site) -> None:
    """What is asked on a connection has its whole reply from the zone that was; then it is closed."""
    text = "".join(f"n{number} TXT {40 * (' ' + 'x' * 250)}\n" for number in range(120))
    site.write_zone("a.test", zone_text(1) + text)
    site.configure(serve="workers = 2")
    zone = site.config.read_text().replace('"a.test.zone"', "\"a.test.zone\"\nlint = 'off'\ntransfer = ['127.0.0.1']")
    site.config.write_text(zone)
    port = site.start()
    with socket.socket() as slow, connect(port) as idle:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)  # or loopback takes megabytes at once
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        slow.settimeout(PATIENCE)
        slow.connect(("127.0.0.1", port))
        slow.sendall(frame(dns.message.make_query("a.test.", "AXFR")))
        first = receive_message(slow)
        idle.sendall(frame(QUESTION))
        assert receive_message(idle).answer
        site.write_zone("b.test", zone_text(2, "192.0.2.2"))
        assert site.run("reload", "b.test").exit_code == 0
        assert {address_of("ns.b.test.", port) for _ in range(40)} == {"192.0.2.2"}
        assert idle.recv(1) == b"", "idle, so closed"
        assert "giving way" in site.run("status").stdout
        messages = []
        with contextlib.suppress(EOFError):  # by the server, after the last message
            while True:
                messages.append(receive(slow, int.from_bytes(receive(slow, 2), "big")))
    last = dns.message.from_wire(messages[-1])
    assert first.answer[0][0].serial == last.answer[-1][0].serial == 1
    assert sum(int.from_bytes(message[6:8], "big") for message in messages) > 100
    until(lambda: "giving way" not in site.run("status").stdout)


def test_one_who_keeps_asking_on_a_connection_has_every_answer(site: Site) -> None:
    """Asked without a pause it gives way in the end; a client that tells keepalive is told to close."""
    port = start(site)
    site.write_zone("a.test", zone_text(2, "192.0.2.2"))
    query = dns.message.make_query("ns.a.test.", "A", options=[dns.edns.GenericOption(dns.edns.OptionType(11), b"")])
    with connect(port) as sock:
        sock.sendall(frame(query))
        assert option(receive_message(sock)) == (100).to_bytes(2, "big")
        assert site.server is not None
        before = site.server.hang_up()
        told = False
        while not told:
            sock.sendall(frame(query))
            reply = receive_message(sock)
            assert str(reply.answer[0][0]) == "192.0.2.1"
            told = option(reply) == b"\0\0"
        site.server.wait_for("reloaded, serial 2", before)
    assert address_of("ns.a.test.", port, "tcp") == "192.0.2.2"


def option(reply: dns.message.Message) -> bytes:
    return next(o.to_wire() or b"" for o in reply.options if o.otype == 11)


def test_certificates_are_new_after_a_reload(site: Site) -> None:
    write_certificate(site.directory)
    start(site, 'tls.listen = ["127.0.0.1:0"]\ntls.certificate = "tls.crt"\ntls.key = "tls.key"\n')
    assert site.server is not None
    port = int(site.server.wait_for(r"127\.0\.0\.1:(\d+) \(tls\)")[1])
    old = {ssl.get_server_certificate(("127.0.0.1", port)) for _ in range(10)}
    write_certificate(site.directory)
    assert site.run("reload").exit_code == 0
    new = {ssl.get_server_certificate(("127.0.0.1", port)) for _ in range(10)}
    assert (len(old), len(new), len(old | new)) == (1, 1, 2)


def test_limits_are_divided() -> None:
    limits = TcpLimits().shared(3)
    assert (limits.max_connections, limits.max_per_client) == (167, 17)
    assert TcpLimits().shared(1) == TcpLimits()
    assert RrlSettings().shared(2).responses_per_second == 10


def test_the_rate_limit_is_shared_and_counted(site: Site) -> None:
    port = start(site, "rrl.responses_per_second = 10\nrrl.exempt = []\n")
    for _ in range(300):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(WIRE, ("127.0.0.1", port))

    def limited() -> dict[str, int]:
        found = site.status()["rate_limit"]
        assert isinstance(found, dict)
        return found

    def queries() -> int:
        found = site.status()["queries"]
        assert isinstance(found, dict)
        return sum(found.get("udp", {}).values())

    until(lambda: queries() == 300)
    # 5 for each worker at once, and 10 a second while they came.
    assert 100 < sum(limited().values()) <= 290
    assert re.search(r"^rate limit: \d+ replies dropped, \d+ truncated$", site.run("status").stdout, re.MULTILINE)


def test_cookies_of_one_worker_are_good_at_the_other(site: Site) -> None:
    port = start(site, "rrl.responses_per_second = 1\nrrl.exempt = []\nrrl.slip = 0\n")
    client = b"12345678"
    cookie = b""
    while not cookie:
        query = dns.message.make_query("ns.b.test.", "A", options=[dns.edns.CookieOption(client, b"")])
        with contextlib.suppress(dns.exception.Timeout):
            reply = dns.query.udp(query, "127.0.0.1", 1, port)
            cookie = next(o.server for o in reply.options if isinstance(o, dns.edns.CookieOption))
    query = dns.message.make_query("ns.a.test.", "A", options=[dns.edns.CookieOption(client, cookie)])
    for _ in range(40):
        assert dns.query.udp(query, "127.0.0.1", PATIENCE, port).answer


# Stands in for a system that refuses to fork: while a file is there, nobody can but as often as it says.
REFUSING = """
import errno, os, sys
from pathlib import Path
fork = os.fork
def refused():
    refusal = Path(sys.argv[0])
    if refusal.exists():
        left = int(refusal.read_text() or 0)
        if not left:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        refusal.write_text(str(left - 1))
    return fork()
os.fork = refused
sys.argv[:1] = [sys.argv.pop(1)]
from maptr.cli import main
main()
"""


def test_a_system_that_does_not_fork(site: Site) -> None:
    """A reload is refused whole, a place stays with its worker, and a lost one is filled once that is possible."""
    refusal = site.directory / "refuse"
    port = start_program(site, REFUSING, refusal)
    server = site.server
    assert server is not None
    before = processes(site)
    refusal.touch()
    site.write_zone("a.test", zone_text(2, "192.0.2.2"))
    for arguments, forks in ((("a.test",), 0), ((), 2)):
        refusal.write_text(str(forks))
        result = site.run("reload", *arguments)
        assert result.exit_code == 1
        assert "no workers can be forked for what was read: Resource temporarily unavailable" in result.stderr
    server.wait_for("no workers can be forked for what was read, everything stays: ")
    assert processes(site) == before
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    assert sorted(map(int, children)) == sorted(int(str(process["pid"])) for process in before)
    assert set(answers(port)) == {"192.0.2.1"}
    os.kill(pid_of(site, 1), signal.SIGKILL)
    server.wait_for(r"no worker can be forked, tried again in 1 s: Resource temporarily unavailable")
    pid_of(site, 1)  # from the reserve
    assert set(answers(port)) == {"192.0.2.1"}
    refusal.unlink()
    pid_of(site, None, "reserve")
    assert site.run("reload").exit_code == 0
    assert set(answers(port)) == {"192.0.2.2"}
    assert site.status()["alarms"] == []


def test_a_system_that_does_not_fork_at_the_start(site: Site) -> None:
    site.configure(serve="workers = 2")
    refusal = site.directory / "refuse"
    refusal.touch()
    server = Server("--config", str(site.config), program=("-c", REFUSING, str(refusal)))
    site.servers.append(server)
    server.wait_for("cannot run 2 workers: Resource temporarily unavailable")
    assert server.process.wait(PATIENCE) == 1
    assert not site.socket.exists()


# Stands in for a worker that falls before it answers, as of a bug would every one.
FALLING = REFUSING.replace("os.fork = refused", "").replace(
    "from maptr.cli import main\n",
    """
from maptr.serve.front import Front
start = Front.start
def fall(*arguments):
    if Path(sys.argv[0]).exists():
        raise RuntimeError("fallen")
    start(*arguments)
Front.start = fall
import maptr.serve.workers
maptr.serve.workers.START_TIMEOUT = 2.0
from maptr.cli import main
""",
)


def test_a_generation_that_falls_leaves_the_one_before(site: Site) -> None:
    falling = site.directory / "fall"
    port = start_program(site, FALLING, falling)
    server = site.server
    assert server is not None
    falling.touch()
    site.write_zone("a.test", zone_text(2, "192.0.2.2"))
    with Flood(port, WIRE) as flood:
        flood.wait_for(100)
        result = site.run("reload", "a.test")
        assert result.exit_code == 1
        assert "worker 1, 2 did not start within 2 seconds" in result.stderr
        server.wait_for("worker 1, 2 did not start within 2 seconds")
        assert set(answers(port)) == {"192.0.2.1"}
        late = [f"worker {number} answers from before the last reload" for number in (1, 2)]
        assert site.status()["alarms"] == late
        server.wait_for("internal error, a worker ends")
        falling.unlink()
        until(lambda: not site.status()["alarms"])
        until(lambda: all(process["state"] != "giving way" for process in processes(site)))
        assert set(answers(port)) == {"192.0.2.2"}
    assert (flood.lost, flood.faults) == (0, [])
    site.write_zone("a.test", zone_text(3, "192.0.2.3"))
    assert site.run("reload", "a.test").exit_code == 0
    assert set(answers(port)) == {"192.0.2.3"}
    assert site.status()["alarms"] == []


def test_a_worker_that_never_begins_is_killed(site: Site) -> None:
    """As one would that was forked amid somebody else's lock."""
    falling = site.directory / "fall"
    hanging = FALLING.replace('raise RuntimeError("fallen")', "__import__('time').sleep(1000)")
    hanging = hanging.replace(
        "maptr.serve.workers.START_TIMEOUT = 2.0",
        "maptr.serve.workers.START_TIMEOUT = 2.0\nmaptr.serve.workers.HELLO_INTERVAL = 0.2",
    )
    port = start_program(site, hanging, falling)
    server = site.server
    assert server is not None
    falling.touch()
    os.kill(pid_of(site, 1), signal.SIGKILL)
    server.wait_for(r"^maptr: process \d+, a worker, has not been heard of for long and is killed$")
    falling.unlink()
    pid_of(site, 1)
    assert set(answers(port)) == {"192.0.2.1"}


def with_limit(name: str, seconds: float) -> str:
    """A maptr that is less patient."""
    return REFUSING.replace("os.fork = refused", f"import maptr.serve.workers\nmaptr.serve.workers.{name} = {seconds}")


def test_a_worker_that_does_not_give_way_is_killed(site: Site) -> None:
    """It hangs, here by SIGSTOP; its place is another's when the reload says so."""
    port = start_program(site, with_limit("QUIET_TIMEOUT", 1.0))
    assert site.server is not None
    hanging = pid_of(site, 1)
    os.kill(hanging, signal.SIGSTOP)
    site.write_zone("a.test", zone_text(2, "192.0.2.2"))
    assert site.run("reload", "a.test").exit_code == 0
    site.server.wait_for(rf"process {hanging}, a worker from before, did not give way and is killed")
    until(lambda: not is_alive(hanging))
    assert set(answers(port)) == {"192.0.2.2"}


def test_a_worker_that_hangs_is_killed(site: Site) -> None:
    port = start_program(site, with_limit("HELLO_INTERVAL", 0.2))
    assert site.server is not None
    hanging = pid_of(site, 2)
    os.kill(hanging, signal.SIGSTOP)
    site.server.wait_for(rf"^maptr: process {hanging}, a worker, has not been heard of for long and is killed$")
    site.server.wait_for(r"^maptr: worker 2 is process \d+ now$")
    assert not is_alive(hanging)
    assert set(answers(port)) == {"192.0.2.1"}


def test_workers_hold_nothing_of_the_owners(site: Site) -> None:
    """A connection to the control socket that the owner closes is closed, and memory is what they share."""
    start(site)
    for worker in processes(site):
        links = [str(path.readlink()) for path in Path(f"/proc/{worker['pid']}/fd").iterdir()]
        inodes = {link for link in links if link.startswith("socket:")}
        unix = Path(f"/proc/{worker['pid']}/net/unix").read_text()
        paths = [line.split()[-1] for line in unix.splitlines() if f"socket:[{line.split()[6]}]" in inodes]
        assert str(site.socket) not in paths


def test_too_few_descriptors_is_said_at_the_start(site: Site) -> None:
    site.configure(serve="workers = 200")
    serve = shlex.join([sys.executable, "-m", "maptr", "serve", "--config", str(site.config)])
    command = ["sh", "-c", f"ulimit -n 128; exec {serve}"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=environment(), timeout=60)
    assert re.search(r"cannot listen on 127\.0\.0\.1:\d+: Too many open files", done.stderr), done.stderr
    assert done.returncode == 1


def test_the_command_line_has_workers(site: Site) -> None:
    server = Server("--zone", f"a.test={site.directory}/a.test.zone", "--listen", "127.0.0.1:0", "--workers", "2")
    site.servers.append(server)
    port = server.ready()
    server.wait_for("^maptr: 2 workers answer$")
    assert set(answers(port)) == {"192.0.2.1"}
    assert server.end() == 0
