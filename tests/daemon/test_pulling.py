"""Pulls of the table: by a gateway alone, and at a first start without a network."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dns.message
import dns.query
import dns.rcode
import pytest

from maptr import registry
from maptr.client import Client
from maptr.config import Config, parse
from maptr.daemon import pulling
from maptr.gateway.service import Service
from maptr.registry import builtin
from maptr.registry.found import FoundTable
from maptr.registry.pull import OFFICIAL
from tests.support.http_gateway import get, serving
from tests.support.http_server import http_server, sends
from tests.support.registries import natab
from tests.support.server_process import Site
from tests.support.waiting import until


def config(folder: Path, url: str, more: str = "") -> Config:
    text = f'[gateway]\nlisten = ["127.0.0.1:0"]\n[table]\nfile = "{folder}/naans"\nurl = "{url}"\nevery = "1s"\n{more}'
    return parse(text, filename=str(folder / "maptr.toml"), directory=folder)


@contextmanager
def gateway(settings: Config) -> Iterator[int]:
    table = FoundTable(str(settings.table.file), clock=time.monotonic, built_in=False)
    client = Client(["127.0.0.1#9"], table=table, policy="natab-only")
    made = Service(settings, client)
    with serving(made, client):
        yield made.bound[0].port


def test_a_gateway_pulls_its_table_by_itself(tmp_path: Path) -> None:
    answers = {"content": natab(*range(10000, 10010))}

    def serve(request: Any) -> None:
        sends(answers["content"])(request)

    with http_server(serve) as url, gateway(config(tmp_path, url)) as port:
        until(lambda: get(port, "/ark:10003/x").status == 302, "the table is pulled")
        assert get(port, "/ark:10010/x").status == 404
        answers["content"] = natab(*range(10000, 10011))
        until(lambda: get(port, "/ark:10010/x").status == 302, "the table is pulled again")
        answers["content"] = b"{"
        assert get(port, "/ark:10010/x").status == 302


def test_a_gateway_leaves_the_table_of_a_zone_to_the_server(tmp_path: Path) -> None:
    zone = f'[[zone]]\nname = "ark.arpa"\nfile = "{tmp_path}/z"\ntable = "{tmp_path}/naans"\n'
    with http_server(sends(natab(10000))) as url:
        client = Client(["127.0.0.1#9"], policy="dns-only")
        alone, beside = (Service(config(tmp_path, url, more), client) for more in ("", zone))
        assert alone._pulled_file() == tmp_path / "naans"
        assert beside._pulled_file() is None


def test_a_first_start_without_a_network_serves_the_built_in_registry(tmp_path: Path) -> None:
    settings = config(tmp_path, OFFICIAL)
    pulling.begin(settings, clock=time.time)
    table = registry.read((tmp_path / "naans").read_bytes())
    state = builtin.state()
    assert state.table is not None
    assert table == state.table
    (tmp_path / "naans").write_bytes(natab(10000))
    pulling.begin(settings, clock=time.time)
    assert (tmp_path / "naans").read_bytes() == natab(10000), "a table that exists stays"


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/naans.json", ""])
def test_the_built_in_registry_is_no_stand_in_for_another(tmp_path: Path, url: str) -> None:
    pulling.begin(config(tmp_path, url) if url else Config(), clock=time.time)
    assert not (tmp_path / "naans").exists()


def test_a_silent_registry_does_not_hold_up_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "START_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        pulling.begin(config(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}/"), clock=time.time)
    assert time.monotonic() - begun < 20


def test_a_first_start_pulls_another_registry_before_it_serves(tmp_path: Path) -> None:
    with http_server(sends(natab(10000))) as url:
        pulling.begin(config(tmp_path, url), clock=time.time)
    assert (tmp_path / "naans").read_bytes() == natab(10000)


def test_no_query_fails_and_no_error_is_logged_at_a_first_start(site: Site) -> None:
    source = site.directory / "source"
    source.write_bytes(natab(10000))
    table = f'[table]\nfile = "naans"\nurl = "{source}"\n'
    zone = '[[zone]]\nname = "ark.arpa"\nfile = "ark.zone"\ntable = "naans"\n'
    site.config.write_text(f'[serve]\nlisten = ["127.0.0.1:0"]\n{zone}{table}')
    port = site.start()
    reply = dns.query.udp(dns.message.make_query("10000.ark.arpa", "NAPTR"), "127.0.0.1", 20, port)
    assert (reply.rcode(), len(reply.answer)) == (dns.rcode.NOERROR, 1)
    assert "ERROR" not in site.server.log()
