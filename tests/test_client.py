"""``Client``: its servers, files, sources, descriptions and pulls; and the functions that use one."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dns.asyncresolver
import dns.message
import dns.resolver
import pytest

import maptr
from maptr import (
    ArkSyntaxError,
    Client,
    ConfigError,
    DiscoveryFailed,
    Dns,
    Entry,
    Natab,
    Nma,
    NmaError,
    NoMappingAuthority,
    Settings,
    States,
    Table,
    UnsafePlan,
    Validator,
    Verdict,
    registry,
    url,
)
from maptr.cache.disk import Disk
from maptr.testing import Answers, offline_client
from tests.resolver.validation.test_chain import PARENT, PARENT_KEYS
from tests.support.drivers import collect, resolver_of
from tests.support.peers import Maptr
from tests.support.scripted import serving

ZONES = Path(__file__).resolve().parents[1] / "zones"
ARK = "ark:12345/x1"
TABLE = Table([Entry("12345", nmas=(Nma("https://t.example/ark:/${content}"),))])


@pytest.fixture(scope="module")
def server() -> Iterator[Maptr]:
    with Maptr({"ark.arpa.": ZONES / "ark.arpa.zone"}) as running:
        yield running


def at(server: Maptr) -> str:
    return f"127.0.0.1#{server.port}"


def test_a_client_without_table_and_cache_asks_dns_each_time(server: Maptr) -> None:
    with Client([at(server)]) as client:
        assert [client.discover(ARK).source for _ in range(2)] == ["dns", "dns"]
        assert not client.reconciles
    with Client([at(server)], cache=":memory:") as client:
        assert [client.discover(ARK).source for _ in range(2)] == ["dns", "memory"]
        client.forget()
        assert asyncio.run(client.discover_async(ARK)).source == "dns"


def test_calls_share_one_resolver_which_learns(server: Maptr) -> None:
    asked: list[dns.message.Message] = []
    with serving(asked.append) as silent:
        client = Client([f"127.0.0.1#{silent}", at(server)])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("maptr.resolver.exchange.FIRST_SECONDS", 0.5)
            assert client.discover(ARK).trace[0].server == at(server)
        asked.clear()
        assert asyncio.run(client.discover_async(ARK))
        assert asked == [], "the silent server is asked last from then on"
        assert client.drift("12345")[0].verdict == "extra"


@pytest.mark.parametrize("kind", [dns.resolver.Resolver, dns.asyncresolver.Resolver])
def test_either_kind_of_dnspython_resolver_serves_both_ways(kind: Any, server: Maptr) -> None:
    client, plain = Client(resolver_of(server, kind)), Client(at(server))
    expected = plain.discover(ARK)
    assert client.discover(ARK) == expected
    assert asyncio.run(client.discover_async(ARK)) == expected
    assert list(client.discover_many([ARK])) == [expected]
    assert asyncio.run(collect(client.discover_many_async([ARK]))) == [expected]
    assert client.resolver.serial() == plain.resolver.serial() is not None
    with pytest.raises(ConfigError, match="one question at a time"):
        Client(resolver_of(server, kind), rate=5.0)


def test_a_function_is_a_client_for_one_call(server: Maptr) -> None:
    found = Client(at(server)).discover(ARK)
    assert (
        maptr.discover(ARK, nameservers=at(server))
        == maptr.discover(ARK, nameservers=f"127.0.0.1#{server.port}")
        == found
    )
    assert asyncio.run(maptr.discover_async(ARK, nameservers=at(server))) == found
    assert maptr.discover(ARK, table=TABLE, policy="natab-only").source == "natab"
    assert [one.source for one in maptr.discover_many([ARK], table=TABLE, policy="natab-only")] == ["natab"]
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        maptr.discover(ARK, lifetme=1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        maptr.discover(ARK, nameservers=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r": is it 127\.0\.0\.1#5300\?$"):
        maptr.discover(ARK, nameservers="127.0.0.1:5300")


def test_a_stream_may_carry_what_belongs_to_each_ark(server: Maptr) -> None:
    rows = [("a", ARK), ("b", "nonsense"), ("c", "ark:00000/x")]
    client = Client(at(server))
    found = dict(client.discover_pairs(rows))
    assert {row: (bool(one), one.error is None, one.position) for row, one in found.items()} == {
        "a": (True, True, None),
        "b": (False, False, 1),
        "c": (False, True, None),
    }
    assert client.resolver.questions > 1


FUNCTIONS = ("discover", "discover_async", "discover_many", "discover_many_async")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_options_are_plain_keywords(name: str) -> None:
    """Those of a call in each method and function, and those of the client, which functions take as one."""
    method, function = (inspect.signature(getattr(where, name)).parameters for where in (Client, maptr))
    options = maptr.StreamOptions if "many" in name else maptr.CallOptions
    own = [one for one in method.values() if one.kind is one.KEYWORD_ONLY]
    assert {one.name: one.annotation for one in own} == {
        key: hint.__forward_arg__ for key, hint in options.__annotations__.items()
    }
    assert [*function.values()] == [*[*method.values()][1:], function["client"]]
    assert (function["client"].kind, function["client"].annotation) == (
        inspect.Parameter.VAR_KEYWORD,
        "Unpack[ClientOptions]",
    )


def test_the_options_of_a_client_are_those_that_functions_take() -> None:
    parameters = inspect.signature(Client).parameters
    taken = {key: hint.__forward_arg__ for key, hint in maptr.ClientOptions.__annotations__.items()}
    assert taken == {key: one.annotation for key, one in parameters.items() if key != "lifetime"}


@pytest.mark.parametrize("name", [name for name in vars(Client) if not name.startswith("_")])
def test_no_method_hides_its_options(name: str) -> None:
    method = getattr(Client, name)
    kinds = {one.kind for one in inspect.signature(method).parameters.values()} if callable(method) else set()
    assert inspect.Parameter.VAR_KEYWORD not in kinds


@pytest.mark.parametrize("cache", [None, ":memory:", "c.sqlite"])
async def test_functions_close_the_client_that_they_make(
    cache: str | None, tmp_path: Path, maptr_dns: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    maptr_dns["12345"] = "https://ark.example.org/${content}"
    closed: list[Client] = []
    close = Client.close

    def closing_one(client: Client) -> None:
        closed.append(client)
        close(client)

    monkeypatch.setattr(Client, "close", closing_one)
    maptr.discover(ARK, cache=cache)
    await maptr.discover_async(ARK, cache=cache)
    assert len(closed) == 2
    stream = maptr.discover_many([ARK, ARK], cache=cache)
    next(stream)
    assert len(closed) == 2, "the result is not complete"
    assert len(list(stream)) == 1
    assert len(closed) == 3
    assert len(await collect(maptr.discover_many_async([ARK], cache=cache))) == 1
    assert len(closed) == 4
    with pytest.raises(NoMappingAuthority):
        maptr.discover("ark:99999/x1", cache=cache)
    with closing(maptr.discover_many([ARK, ARK], cache=cache)) as begun:
        next(begun)
    assert len(closed) == 6
    for client in closed:
        with pytest.raises(RuntimeError, match="the client is closed"):
            client.discover(ARK)


CALLS: dict[str, Callable[[Client], object]] = {
    "discover": lambda client: client.discover(ARK),
    "discover_async": lambda client: asyncio.run(client.discover_async(ARK)),
    "discover_many": lambda client: list(client.discover_many([ARK])),
    "discover_many_async": lambda client: asyncio.run(collect(client.discover_many_async([ARK]))),
    "discover_pairs": lambda client: list(client.discover_pairs([(1, ARK)])),
    "discover_pairs_async": lambda client: client.discover_pairs_async([(1, ARK)]),
    "describe": lambda client: client.describe(ARK),
    "describe_async": lambda client: asyncio.run(client.describe_async(ARK)),
    "drift": lambda client: client.drift("12345"),
    "drift_many": lambda client: list(client.drift_many(["12345"])),
    "drift_history": lambda client: client.drift_history(),
    "pull": lambda client: client.pull("no-file"),
    "forget": lambda client: client.forget(),
    "table": lambda client: client.table,
    "with": lambda client: client.__enter__(),
    "async with": lambda client: asyncio.run(client.__aenter__()),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("options", [{}, {"cache": ":memory:"}, {"table": TABLE}], ids=["plain", "cache", "table"])
@pytest.mark.parametrize("is_awaited", [False, True], ids=["close", "aclose"])
def test_a_closed_client_is_an_error(
    call: Callable[[Client], object], options: dict[str, Any], is_awaited: bool
) -> None:
    client = offline_client({"12345": "https://ark.example.org/${content}"}, **options)
    asyncio.run(client.discover_async(ARK))
    for _ in range(2):
        asyncio.run(client.aclose()) if is_awaited else client.close()
    with pytest.raises(RuntimeError, match="the client is closed"):
        call(client)


async def test_awaited_pairs_carry_what_belongs_to_each_ark() -> None:
    client = offline_client({"12345": "https://ark.example.org/${content}"})
    rows = [("a", ARK), ("b", "nonsense"), ("c", "ark:00000/x")]

    async def slowly() -> AsyncGenerator[tuple[str, str], None]:
        for row in rows:
            await asyncio.sleep(0)
            yield row

    for pairs in (rows, iter(rows), slowly()):
        found = {row: one async for row, one in client.discover_pairs_async(pairs, lifetime=5.0, ordered=False)}
        assert {row: (bool(one), one.position) for row, one in found.items()} == {
            "a": (True, None),
            "b": (False, 1),
            "c": (False, None),
        }
    with pytest.raises(ConfigError, match="lifetime"):
        client.discover_pairs_async(rows, lifetime=-1.0)


@pytest.mark.parametrize("options", [{}, {"cache": ":memory:"}], ids=["plain", "cache"])
def test_a_chooser_may_be_a_name(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    urls = [f"https://{letter}.example.org/${{content}}" for letter in "abcdefgh"]
    probed: list[str] = []

    def probe(where: url.Url, seconds: float, *, allow_private: bool) -> None:
        probed.append(where.host.text)
        if where.host.text != "c.example.org":
            raise NmaError("down")

    monkeypatch.setattr("maptr.nma.reachable.try_connection", probe)
    client = offline_client({"12345": urls}, **options)
    assert client.discover(ARK, chooser="first")[0].host == "a.example.org"
    assert len({client.discover(ARK, chooser="random")[0].host for _ in range(50)}) > 1
    assert [client.discover(ARK, chooser="reachable")[0].host for _ in range(2)] == ["c.example.org"] * 2
    assert probed == ["a.example.org", "b.example.org", "c.example.org"], "it remembers"
    assert asyncio.run(client.discover_async("https://c.example.org/ark:12345/x1", chooser="own"))[0].host == probed[2]
    with pytest.raises(ConfigError, match="chooser: 'rnadom' is not one of first, random, reachable, own"):
        client.discover(ARK, chooser="rnadom")
    with pytest.raises(TypeError, match="chooser: 5 is not a function"):
        client.discover(ARK, chooser=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'random' is not a chooser"):
        client.discover(ARK).url("random")  # type: ignore[arg-type]


def test_the_origin_of_the_settings_is_honoured(server: Maptr, maptr_dns: Answers) -> None:
    below = (b"ark", b"example")
    for settings in (Settings(origin=below), Settings(origin="ark.example.")):  # type: ignore[arg-type]
        client = Client(settings=settings)
        client.discover(ARK, raise_on_none=False)
        assert client.resolver.settings.origin == below
    maptr.discover(ARK, settings=Settings(origin=below), origin="other.example", raise_on_none=False)
    assert maptr_dns.asked == ["12345.ark.example."] * 2 + ["12345.other.example."]
    with pytest.raises(TypeError, match="origin"):
        Client(settings=Settings(origin=("ark", "arpa")))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="origin"):
        Client(settings=Settings(origin=(b"a" * 64,)))


@pytest.mark.parametrize("nothing", [[], (), iter([]), {}, set()], ids=lambda nothing: type(nothing).__name__)
def test_no_server_is_an_error(nothing: Any) -> None:
    with pytest.raises(ConfigError, match="nameservers: is empty: name a server; None means the system's servers"):
        Client(nothing)
    with pytest.raises(ConfigError, match="nameservers: "):
        maptr.discover(ARK, nameservers="")


def test_a_dns_without_the_origin_is_not_silent(server: Maptr) -> None:
    with Client(at(server), origin="ark.example", table=TABLE) as client:
        found = client.discover(ARK)
    assert (found.reason, found.states) == (
        "DNS: does not say; the table has it: record 12345",
        States(Dns.UNKNOWN, Natab.HAS),
    )


def test_a_server_without_address_leaves_the_table() -> None:
    client = Client("nowhere.invalid", table=TABLE)
    assert client.discover(ARK).source == "natab"
    with pytest.raises(DiscoveryFailed, match="no address for the server"):
        client.discover("ark:1000/x1")
    found = list(client.discover_many([ARK, "ark:1000/x1"]))
    assert (found[0].source, len(found[1])) == ("natab", 0)
    assert "no address for the server" in found[1].incomplete_reason()
    awaited = asyncio.run(collect(client.discover_many_async([ARK, "ark:1000/x1"])))
    told = [[(each.source, each.urls(), each.complete) for each in some] for some in (found, awaited)]
    assert told[0] == told[1]  # the system may say in other words why it has no address
    with pytest.raises(DiscoveryFailed, match="no address for the server"):
        next(Client("nowhere.invalid").discover_many([ARK]))


def test_a_client_validates_from_its_own_anchors(server: Maptr) -> None:
    ours = Validator({"arpa.": PARENT_KEYS})
    with pytest.raises(ConfigError, match="not both"):
        Client(trust_anchors=ours, trust_ad=True)
    with pytest.raises(DiscoveryFailed):
        Client(at(server), trust_anchors=ours, require="secure").discover(ARK)
    with serving(lambda query: None) as port, pytest.raises(DiscoveryFailed):
        Client(f"127.0.0.1#{port}", trust_anchors=Validator({PARENT: PARENT_KEYS}), lifetime=0.2).discover(ARK)
    assert Client(at(server)).discover(ARK).security == "indeterminate"


def test_a_naan_may_be_in_upper_case_and_anything_else_is_refused() -> None:
    table = Table([Entry("b5060", nmas=(Nma("https://t.example/ark:/${content}"),))])
    client = offline_client(table, table=table)
    assert [(one.record, one.verdict) for one in client.drift("B5060")] == [("b5060", Verdict.SAME)]
    for method in (client.drift, client.forget):
        for wrong in ("", "1" * 64, "ark:12345", "12345/x"):
            with pytest.raises(ArkSyntaxError):
                method(wrong)
        with pytest.raises(TypeError):
            method(12345)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="several NAANs"):
        client.drift_many("b5060")


# ---- files


def is_open(path: Path) -> bool:
    """True if this process has the file open."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("needs /proc")
    return any(os.path.realpath(one) == str(path) for one in descriptors.iterdir())


async def test_a_context_closes_the_file_of_answers(server: Maptr, tmp_path: Path) -> None:
    path = tmp_path / "c"
    async with Client(at(server), cache=path) as client:
        assert (await client.discover_async(ARK)).source == "dns"
        assert is_open(path)
    assert not is_open(path)
    with Client(at(server), cache=Disk(path, wall=lambda: 0.0), history=tmp_path / "h") as client:
        client.drift("12345")
        assert is_open(path)
        assert client.drift_history()["12345"][0].verdict == "extra"
    assert not is_open(path)
    assert not is_open(tmp_path / "h")


def test_its_text_names_servers_policy_table_and_file(tmp_path: Path) -> None:
    natab, kept = tmp_path / "natab", tmp_path / "c"
    natab.touch()
    assert repr(Client(table=None)) == "<Client of the system's servers>"
    assert re.search(r"dns-first, <table '.*builtin.json', builtin>, no disk>$", repr(Client()))
    whole = Client(["192.0.2.1", "::1#53"], table=natab, cache=kept, policy="natab-first")
    shown = f"<table {str(natab)!r}>, <disk {str(kept)!r}>"
    assert repr(whole) == f"<Client of 192.0.2.1, ::1#53, natab-first, {shown}>"
    assert repr(Client(table=TABLE)).endswith("dns-first, <Table of 1 NAANs, 0 shoulders>, no disk>")


def test_the_failure_of_an_ark_says_why_the_table_cannot_be_used() -> None:
    with pytest.raises(DiscoveryFailed, match="the table: missing: not a registry: ") as refused:
        Client(table=__file__, policy="natab-only").discover(ARK)
    assert __file__ not in str(refused.value), "a gateway shows the text to its clients"


def test_a_pull_replaces_the_table_under_the_guards(tmp_path: Path) -> None:
    source, file = tmp_path / "source.json", tmp_path / "naans.json"
    file.write_text((ZONES / "sample.json").read_text())
    before = registry.read(file.read_bytes())
    more = Entry("54321", nmas=(Nma("https://u.example/ark:/${content}"),))
    with Client(table=file, policy="natab-only") as client:
        assert not client.discover("ark:54321/x1", raise_on_none=False)
        source.write_text(registry.write_json(Table([*before.values(), more])))
        assert client.pull(str(source)).plan.added == (more,)
        assert client.discover("ark:54321/x1").source == "natab"
        source.write_text(registry.write_json(Table([more])))
        with pytest.raises(UnsafePlan):
            client.pull(str(source))
        assert client.discover("ark:12345/x1").source == "natab"
        client.pull(source, force=True)
        assert not client.discover("ark:12345/x1", raise_on_none=False)
    with pytest.raises(ConfigError, match="no table in a file"):
        Client(table=TABLE).pull(str(source))


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("policy", 5, TypeError),
        ("policy", "dns-last", ConfigError),
        ("table", 5, TypeError),
        ("patience", "1", TypeError),
        *((key, -1, ConfigError) for key in ("patience", "stale_limit", "table_limit", "size")),
        ("settings", Settings(max_depth=-1), ConfigError),
        ("settings", Settings(regexp_steps=-1), ConfigError),
        ("settings", Settings(max_depth="8"), TypeError),  # type: ignore[arg-type]
        ("settings", Settings(scheme="ftp"), ConfigError),
        ("settings", Settings(hyphens="no"), ConfigError),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_option_is_an_error_that_names_it(option: str, value: Any, error: type[Exception]) -> None:
    names = option if option != "settings" else "|".join(value._fields)
    with pytest.raises(error, match=names):
        Client(**{option: value})


# ---- the log

PROGRAM = """
import logging, sys
from maptr import Client
if sys.argv[1:]:
    logging.basicConfig(level=sys.argv[1], format="%(levelname)s %(name)s %(message)s")
from maptr.registry.found import FoundTable
FoundTable("no-such-table.json", clock=lambda: 0.0).current()
Client(["127.0.0.1#9"], lifetime=0.2)
"""


def test_the_library_writes_no_log_unless_the_program_wants_one() -> None:
    def run(*words: str) -> str:
        command = [sys.executable, "-c", PROGRAM, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stderr

    assert run() == ""
    assert run("WARNING").startswith("WARNING maptr.cache no-such-table.json does not exist")


def test_a_line_for_each_query_and_each_discovery(caplog: pytest.LogCaptureFixture) -> None:
    answers = {"12345": "https://ark.example.org/ark:${content}", "99999": "silent"}
    client = offline_client(answers, table=TABLE)
    with caplog.at_level(logging.DEBUG, "maptr"):
        for _ in range(3):  # the later ones within the second in which a discovery is handed out again
            client.discover(ARK)
            asyncio.run(client.discover_async(ARK))
        list(client.discover_many([ARK, "ark:99999/x1", "nonsense"]))
        asyncio.run(collect(client.discover_many_async([ARK])))
    lines = [record.getMessage() for record in caplog.records if record.name == "maptr.client"]
    assert [line.partition(" ")[0] for line in lines].count("found") == 10
    assert "query 12345.ark.arpa. NAPTR: answer: 1 records" in lines
    assert "query 99999.ark.arpa. NAPTR: no answer in time: 0 records" in lines
    assert any(line.startswith("found ark:12345/x1: https://ark.example.org/") for line in lines)
    assert {record.levelname for record in caplog.records} == {"DEBUG"}


def test_bulk_queries_are_in_the_log(server: Maptr, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "maptr"):
        assert len(list(Client([at(server)]).discover_many([ARK, "ark:12345/x2"]))) == 2
    lines = [record.getMessage().partition(" from ")[0] for record in caplog.records]
    assert lines[0] == "query 12345.ark.arpa. NAPTR: answer"
    assert [line.partition(" ")[0] for line in lines] == ["query", "found", "found"]
