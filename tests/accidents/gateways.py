"""Accidents to a gateway: own objects, table, DNS, certificate, configuration, and hostile requests."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Self

from tests.accidents.outcome import accident
from tests.accidents.sites import LONGEST, QUIET
from tests.accidents.tables import registry
from tests.support.certificates import write_certificate
from tests.support.peers import HOST, Maptr
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE, until

OBJECTS = [f"ark:99999/k{number}" for number in range(20)]
HELD = [f"ark:{naan}/x1" for naan in range(10000, 10010)]


class GatewaySite:
    """A gateway with 20 own objects and a table of ten NAANs. No DNS server answers it, unless an accident says so.

    ``suffix`` is that of the file of own objects: ``.csv`` or ``.sqlite``.
    """

    def __init__(self, suffix: str = ".csv") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="acc-", dir="/tmp"))
        self.port = free_port()
        self.silent = free_port()
        self.csv = self.folder / "own.csv"
        self.objects = self.csv.with_suffix(suffix)
        self.table = self.folder / "naans.json"
        self.tls = False
        self.settings = self.sections = self.garbage = ""
        self.policy = "natab-only"
        self.expected: dict[str, str] = {}
        self._told = 0
        self.said: list[str] = []
        rows = "".join(
            f"{ark},https://objects.example.org/{number},Title {number}\n" for number, ark in enumerate(OBJECTS)
        )
        self.csv.write_text(f"ark,url,what\n{rows}")
        self.table.write_bytes(registry([*range(10000, 10010), 99999]))
        if suffix == ".sqlite":
            self.maptr("redirects", "import", self.csv, "-o", self.objects)
        self.server = Maptr({}, "-unused-", port=self.port)

    def maptr(self, *words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "maptr", *map(str, words)],
            cwd=Path(__file__).resolve().parents[2],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def configure(self) -> Path:
        config = self.folder / "maptr.toml"
        config.write_text(
            f'[gateway]\nlisten = ["{HOST}:{self.port}"]\nredirects = "{self.objects}"\ndrift_every = 0\n'
            f'public_url = "https://ark.example.org/"\n{self.settings}'
            f'[client]\nnameservers = ["{HOST}#{self.silent}"]\n'
            f'[cache]\nnatab = "{self.table}"\npath = "{self.folder}/cache.sqlite"\npolicy = "{self.policy}"\n'
            f"{self.sections}{self.garbage}"
        )
        return config

    def launch(self) -> None:
        config = self.configure()
        command = [sys.executable, "-m", "maptr", "gateway", "--config", str(config)]
        self.server.configure = lambda: command  # type: ignore[method-assign]
        self.server.launch()
        deadline = time.monotonic() + 2 * LONGEST
        while time.monotonic() < deadline and self.server.process.poll() is None:
            if self.get("/health")[0]:
                break
            time.sleep(0.05)
        self.settle()

    def __enter__(self) -> Self:
        try:
            self.launch()
            names = [*OBJECTS, *HELD]
            until(lambda: all(self.get(f"/{ark}")[1] for ark in names), self.server.log, seconds=30, pause=0.2)
            self.expected = {ark: self.get(f"/{ark}")[1] for ark in names}
        except BaseException:
            self.__exit__()
            raise
        self._told = len(self.server.log())
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def connection(self) -> http.client.HTTPConnection:
        if not self.tls:
            return http.client.HTTPConnection(HOST, self.port, timeout=10)
        return http.client.HTTPSConnection(HOST, self.port, timeout=10, context=ssl._create_unverified_context())

    def get(self, target: str) -> tuple[int, str]:
        """Status and Location of a response; 0 if there is none."""
        with closing(self.connection()) as connection:
            try:
                connection.request("GET", target)
                reply = connection.getresponse()
                body = reply.read()
            except (OSError, http.client.HTTPException):
                return 0, ""
        self.body = body.decode(errors="replace")
        return reply.status, reply.getheader("Location") or ""

    def settle(self) -> None:
        deadline, size, since = time.monotonic() + LONGEST, -1, time.monotonic()
        while time.monotonic() < deadline and time.monotonic() - since < QUIET:
            if (now := len(self.server.log())) != size:
                size, since = now, time.monotonic()
            time.sleep(0.05)

    def stop(self) -> None:
        self.server.kill(signal.SIGTERM)

    def restart(self) -> None:
        self.stop()
        self.launch()

    def reload(self) -> None:
        self.configure()
        self.server.process.send_signal(signal.SIGHUP)
        self.settle()

    def wait_for_reading(self) -> None:
        """Wait until the gateway has noticed that a file changed: it checks every few seconds."""
        size, deadline = len(self.server.log()), time.monotonic() + 12
        while time.monotonic() < deadline and len(self.server.log()) == size:
            time.sleep(0.1)
        self.settle()

    def lost(self) -> Mapping[str, list[str]]:
        """A 503 is not a loss: it says that the answer is not known now. A 404, a 410, another URL or a crash is."""
        self.settle()
        lost = []
        self.unavailable = 0
        for ark, where in self.expected.items():
            status, location = self.get(f"/{ark}")
            self.unavailable += status == 503
            if location != where and status != 503:
                lost.append(ark)
        return {"the gateway": lost}

    def alarms(self) -> list[str]:
        if self.server.process.poll() is not None:
            return [f"the gateway does not start: {line}" for line in self.server.log().strip().splitlines()[-1:]]
        status, _ = self.get("/ready")
        told = [f"/ready: {line}" for line in self.body.splitlines() if not line.startswith(("source:", "ready"))]
        log = self.server.log()[self._told :].splitlines()
        warnings = [line[21:] for line in log if " WARNING " in line or " ERROR " in line]
        return self.said + (told if status == 503 else []) + [f"log: {line}" for line in warnings]


def csv(_: str) -> GatewaySite:
    return GatewaySite()


def sqlite(_: str) -> GatewaySite:
    return GatewaySite(".sqlite")


LAST_GOOD = "keeps the last good objects, `/ready` says which file"
UNAVAILABLE = "starts; the NAANs of own objects get 503, other ARKs are redirected, `/ready` says which file"


@accident(
    "the file of own objects is cut in the middle; it is reread",
    site=csv,
    kind="own objects",
    does=LAST_GOOD,
    in_ci=True,
)
def objects_cut(site: GatewaySite) -> None:
    content = site.csv.read_bytes()
    site.csv.write_bytes(content[: len(content) // 2])
    site.wait_for_reading()


@accident(
    "the file of own objects is cut in the middle; SIGHUP for a new certificate",
    site=csv,
    kind="own objects",
    does="SIGHUP accepts no loss: keeps the last good objects, the log says why",
    in_ci=True,
)
def objects_cut_sighup(site: GatewaySite) -> None:
    content = site.csv.read_bytes()
    site.csv.write_bytes(content[: len(content) // 2])
    site.reload()


@accident(
    "the file of own objects is cut in the middle, then a restart",
    site=csv,
    kind="own objects",
    does="serves the objects of the last run, `/ready` says which file",
    in_ci=True,
)
def objects_cut_restart(site: GatewaySite) -> None:
    content = site.csv.read_bytes()
    site.csv.write_bytes(content[: len(content) // 2])
    site.restart()


@accident(
    "the CSV is cut in the middle when the nightly job imports it into the database",
    site=sqlite,
    kind="own objects",
    does="`import` exits with code 1 and the reason, and keeps the old database",
)
def objects_cut_import(site: GatewaySite) -> list[str]:
    content = site.csv.read_bytes()
    site.csv.write_bytes(content[: content.index(b"ark:99999/k9")])
    done = site.maptr("redirects", "import", "--quiet", site.csv, "-o", site.objects)
    site.said.append(done.stderr.strip()[-200:])
    return [] if done.returncode else ["it is imported"]


@accident("the file of own objects is empty; it is reread", site=csv, kind="own objects", does=LAST_GOOD)
def objects_empty(site: GatewaySite) -> None:
    site.csv.write_bytes(b"")
    site.reload()


@accident(
    "the file of own objects is deleted, then a restart",
    site=csv,
    kind="own objects",
    does="serves the objects of the last run, `/ready` says which file",
)
def objects_deleted_restart(site: GatewaySite) -> None:
    site.csv.unlink()
    site.restart()


@accident(
    "the file of own objects has other columns (another program's export)",
    site=csv,
    kind="own objects",
    does=LAST_GOOD,
)
def objects_other_columns(site: GatewaySite) -> None:
    site.csv.write_text("Identifier;Adresse\n1;https://x.example\n")
    site.reload()


@accident(
    "a row with a NUL, a newline, ESC and a bidi control",
    site=csv,
    kind="hostile bytes",
    does="leaves this row out and names its line; keeps the other rows",
)
def objects_control_characters(site: GatewaySite) -> None:
    with site.csv.open("ab") as file:
        file.write(
            b'ark:99999/z1,"https://a.example/\0\n\x1b[2J",x\nark:99999/z2,https://b.example/,"\xe2\x80\xaeevil\nLOG"\n'
        )
    site.reload()


@accident("the store of own objects is deleted, then a restart", site=sqlite, kind="own objects", does=UNAVAILABLE)
def database_deleted_restart(site: GatewaySite) -> None:
    site.objects.unlink()
    site.restart()


@accident("the store of own objects is damaged, then a restart", site=sqlite, kind="own objects", does=UNAVAILABLE)
def database_damaged_restart(site: GatewaySite) -> None:
    site.stop()
    content = bytearray(site.objects.read_bytes())
    content[100:-1] = bytes(len(content) - 101)
    site.objects.write_bytes(content)
    site.launch()


@accident(
    "the store of own objects is replaced by an empty file while it is open",
    site=sqlite,
    kind="own objects",
    does=LAST_GOOD,
)
def database_emptied(site: GatewaySite) -> None:
    beside = site.objects.with_suffix(".new")
    beside.write_bytes(b"")
    beside.replace(site.objects)
    site.reload()


@accident(
    "the store of own objects is overwritten in place while it is open",
    site=sqlite,
    kind="own objects",
    does="503 for the NAANs of own objects, `/ready` says which file",
)
def database_overwritten(site: GatewaySite) -> None:
    with site.objects.open("r+b") as file:
        file.write(b"garbage " * (site.objects.stat().st_size // 8))
    site.reload()


@accident(
    "the file of own objects loses its last five whole lines, then a restart",
    site=csv,
    kind="own objects",
    does="still serves them; an alarm on `/status`, and in the log the command that removes them",
    in_ci=True,
)
def objects_lines_lost_restart(site: GatewaySite) -> None:
    lines = site.csv.read_text().splitlines(keepends=True)
    site.csv.write_text("".join(lines[:-5]))
    site.restart()


@accident(
    "the store is replaced by another program's database, with NULL, NUL and bytes in its rows",
    site=sqlite,
    kind="hostile bytes",
    does="refuses it, with the command that imports it; keeps the last good objects",
)
def database_null(site: GatewaySite) -> list[str]:
    beside = site.objects.with_suffix(".new")
    with closing(sqlite3.connect(beside)) as database:
        database.execute("create table redirects (ark text, url text, what text)")
        rows = [(ark, site.expected[ark], "a thing") for ark in OBJECTS]
        damaged = [
            (None, None, None),
            ("ark:99999/z1", None, None),
            ("ark:99999/z2", "https://a.example/\0\n", b"\xff"),
        ]
        database.executemany("insert into redirects values (?, ?, ?)", [*rows, *damaged])
        database.commit()
    beside.replace(site.objects)
    site.reload()
    site.wait_for_reading()
    paths = ("", "health", "stats", "ark:99999/z1", "ark:99999/z2")
    return [f"/{path} is {status}" for path in paths if (status := site.get(f"/{path}")[0]) in (0, 500)]


@accident(
    "another program spoils rows of the store",
    site=sqlite,
    kind="hostile bytes",
    does="503, which no cache keeps, for these rows, and an alarm; serves the other rows",
)
def database_rows_spoilt(site: GatewaySite) -> list[str]:
    with closing(sqlite3.connect(site.objects)) as database:
        database.execute("update redirects set url = null where ark like '%k1_'")
        database.commit()
    statuses = {site.get(f"/{ark}")[0] for ark in OBJECTS}
    return [] if statuses == {302, 503} else [f"the statuses are {sorted(statuses)}"]


@accident(
    "a command is killed in the middle of changing the store",
    site=sqlite,
    kind="damage",
    does="rolls it back by itself, if it may write the file; otherwise 503, and an alarm with the command",
    is_quiet=True,
)
def database_writer_killed(site: GatewaySite) -> None:
    killed = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "c.execute('pragma cache_size = 1'); c.execute('begin immediate'); "
        "c.execute(\"update redirects set url = 'https://half.example/' || hex(randomblob(4000))\"); "
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", killed, str(site.objects)], check=False, timeout=PATIENCE)


@accident(
    "the CSV is cut at the end of a line when the nightly job imports it into the store",
    site=sqlite,
    kind="own objects",
    does="`import` exits with code 1, names what is missing, and keeps the old store",
    in_ci=True,
)
def objects_lines_lost_import(site: GatewaySite) -> list[str]:
    lines = site.csv.read_text().splitlines(keepends=True)
    site.csv.write_text("".join(lines[:-1]))
    done = site.maptr("redirects", "import", "--quiet", site.csv, "-o", site.objects)
    site.said.append(done.stderr.strip()[-200:])
    return [] if done.returncode else ["it is imported"]


@accident(
    "another process holds a lock on the database",
    site=sqlite,
    kind="own objects",
    does="503 after half a second for own objects, immediate answers for other ARKs",
    is_quiet=True,
)
def database_locked(site: GatewaySite) -> list[str]:
    wrong = []
    with closing(sqlite3.connect(site.objects, isolation_level=None)) as database:
        database.execute("begin exclusive")
        waiting = [threading.Thread(target=site.get, args=(f"/{ark}",)) for ark in OBJECTS[:8]]
        for thread in waiting:
            thread.start()
        begun = time.monotonic()
        status, _ = site.get("/health")
        took = time.monotonic() - begun
        if status != 200 or took > 0.3:
            wrong.append(f"/health waits {took:.1f} s")
        for thread in waiting:
            thread.join()
        if (found := site.get(f"/{OBJECTS[9]}"))[0] not in (302, 503):
            wrong.append(f"{found[0]} for an own object")
    return wrong


@accident(
    "the table is deleted, then a restart without DNS",
    site=csv,
    kind="table and DNS",
    does="uses the next table; a NAAN that it lacks gets 503, `/ready` says so",
)
def gateway_table_deleted_restart(site: GatewaySite) -> None:
    site.table.unlink()
    site.restart()


@accident(
    "the table is garbled, then it is reread",
    site=csv,
    kind="table and DNS",
    does="keeps the last good one, `/ready` says so",
)
def gateway_table_garbled(site: GatewaySite) -> None:
    site.table.write_bytes(b"\x00\xff<html>" * 100)
    site.reload()
    time.sleep(1)


@accident(
    "the table is garbled, then a restart without DNS",
    site=csv,
    kind="table and DNS",
    does="uses its kept copy or the next table, `/ready` says so",
)
def gateway_table_garbled_restart(site: GatewaySite) -> None:
    site.table.write_bytes(b"\x00\xff<html>" * 100)
    site.restart()


@accident(
    "another program removes 40 % of the table's records",
    site=csv,
    kind="table and DNS",
    does="keeps the last good one, `/ready` says so",
)
def gateway_table_smaller(site: GatewaySite) -> None:
    site.table.write_bytes(registry(range(10000, 10004)))
    site.reload()
    time.sleep(1)


@accident(
    "no DNS server answers, at a restart",
    site=csv,
    kind="table and DNS",
    does="answers from the table, `/ready` says so",
)
def dns_silent_restart(site: GatewaySite) -> None:
    site.policy = "dns-first"
    site.restart()


@accident(
    "a DNS server answers with garbage", site=csv, kind="hostile bytes", does="answers from the table, `/ready` says so"
)
def dns_garbage(site: GatewaySite) -> list[str]:
    site.policy = "dns-first"
    with _garbling(site.silent):
        site.restart()
        wrong = [ark for ark, where in site.expected.items() if site.get(f"/{ark}")[1] != where]
    return [f"{len(wrong)} names lost meanwhile"] if wrong else []


@contextmanager
def _garbling(port: int) -> Iterator[None]:
    """A DNS server whose responses are the query's first bytes followed by noise."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((HOST, port))
        server.settimeout(0.1)
        over = threading.Event()

        def answer() -> None:
            while not over.is_set():
                try:
                    query, client = server.recvfrom(4096)
                    server.sendto(query[:2] + os.urandom(60), client)
                except OSError:
                    continue

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@accident(
    "the disk cache is damaged, then a restart",
    site=csv,
    kind="damage",
    does="sets it aside, rebuilds it, and logs this",
)
def cache_damaged_restart(site: GatewaySite) -> None:
    site.stop()
    (site.folder / "cache.sqlite").write_bytes(b"garbage " * 4096)
    site.launch()


@accident(
    "the statistics file is damaged, then a restart",
    site=csv,
    kind="damage",
    does="keeps them in memory, and logs this",
)
def statistics_damaged_restart(site: GatewaySite) -> None:
    site.stop()
    (site.folder / "stats.sqlite").write_bytes(b"garbage " * 4096)
    site.settings = f'stats = "{site.folder}/stats.sqlite"\n'
    site.launch()


@accident(
    "a wrong line in the gateway's configuration, then a reload",
    site=csv,
    kind="typo",
    does="keeps the old configuration, and logs this",
)
def gateway_configuration_reload(site: GatewaySite) -> None:
    site.garbage = "}{ wrong\n"
    site.reload()


@accident(
    "requests for an ARK with 5,400 blanks, one a second from each of ten clients",
    site=csv,
    kind="hostile bytes",
    does="answers these and all other requests in time",
    is_quiet=True,
    in_ci=True,
)
def hostile_blanks(site: GatewaySite) -> list[str]:
    target = f"/ark:12345/{'%20' * 1700}"
    attack = [threading.Thread(target=site.get, args=(target,)) for _ in range(10)]
    for thread in attack:
        thread.start()
    begun = time.monotonic()
    status, _ = site.get(f"/{OBJECTS[0]}")
    took = time.monotonic() - begun
    for thread in attack:
        thread.join()
    return [] if status == 302 and took < 1 else [f"another client waits {took:.1f} s, status {status}"]


@accident(
    "300 hostile requests: random bytes, endless headers, cut requests",
    site=csv,
    kind="hostile bytes",
    does="answers 400, or closes the connection",
    is_quiet=True,
)
def hostile_requests(site: GatewaySite) -> None:
    for number in range(300):
        with socket.socket() as hostile:
            hostile.settimeout(0.2)
            try:
                hostile.connect((HOST, site.port))
                noise = os.urandom(64 + number)
                hostile.sendall(
                    (noise, b"GET /ark:" + noise + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"a" * 9000)[
                        number % 3
                    ]
                )
            except OSError:
                continue


@accident(
    "the database has an endless recursive view in place of its table",
    site=sqlite,
    kind="hostile bytes",
    does="refuses it after a bounded time; keeps the last good objects",
)
def database_endless(site: GatewaySite) -> list[str]:
    beside = site.objects.with_suffix(".new")
    with closing(sqlite3.connect(beside)) as database:
        endless = "with recursive n(i) as (select 1 union all select i + 1 from n)"
        of_each = "'ark:99999/e' || i as ark, 'https://evil.example.net/' as url"
        database.execute(f"create view redirects as {endless} select {of_each} from n")
        database.commit()
    beside.replace(site.objects)
    site.server.process.send_signal(signal.SIGHUP)
    time.sleep(3)
    status, _ = site.get("/health")
    return [] if status == 200 else [f"/health is {status}"]


@accident(
    "the gateway's certificate has expired",
    site=csv,
    kind="clock",
    does="serves with it; alarm from two weeks before",
)
def certificate_expired_restart(site: GatewaySite) -> None:
    write_certificate(site.folder, hours=-1)
    site.tls = True
    site.settings = f'certificate = "{site.folder}/tls.crt"\nkey = "{site.folder}/tls.key"\n'
    site.restart()


@accident(
    "the gateway's certificate is replaced by one that does not match its key; SIGHUP",
    site=csv,
    kind="human",
    does="keeps the old certificate, alarm",
)
def certificate_wrong_reload(site: GatewaySite) -> None:
    write_certificate(site.folder, hours=1000)
    site.tls = True
    site.settings = f'certificate = "{site.folder}/tls.crt"\nkey = "{site.folder}/tls.key"\n'
    site.restart()
    (site.folder / "other").mkdir()
    write_certificate(site.folder / "other", hours=1000)
    (site.folder / "other" / "tls.crt").replace(site.folder / "tls.crt")
    site.reload()
