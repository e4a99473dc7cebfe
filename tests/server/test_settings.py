"""The settings of ``[serve]``, tested through the responses to clients and secondaries."""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from pathlib import Path

import dns.edns
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.tsig
import dns.tsigkeyring
import dns.zone
import pytest

from maptr.config import Config, KeyConfig, ServeConfig, ZoneConfig, parse
from maptr.config.model import CatalogConfig
from maptr.errors import ConfigError
from maptr.protocol.names import Folded
from maptr.server import settings
from maptr.server.settings import overridden
from maptr.transfer.acl import AccessRule
from tests.support.server_process import Site, zone_text
from tests.support.waiting import PATIENCE

KEY = '[[key]]\nname = "xfr"\nsecret_file = "xfr.key"\n'


def ask(port: int, name: str, kind: str = "A", **options: object) -> dns.message.Message:
    query = dns.message.make_query(name, kind, **options)  # type: ignore[arg-type]
    return dns.query.udp(query, "127.0.0.1", PATIENCE, port)


def nsid(port: int) -> bytes:
    reply = ask(port, "ns.a.test.", options=[dns.edns.GenericOption(dns.edns.OptionType.NSID, b"")])
    found = [option.to_wire() for option in reply.options if option.otype == dns.edns.OptionType.NSID]
    return b"".join(wire or b"" for wire in found)


def version(port: int) -> str:
    query = dns.message.make_query("version.bind.", "TXT", "CH")
    reply = dns.query.udp(query, "127.0.0.1", PATIENCE, port)
    return str(reply.answer[0][0]) if reply.answer else dns.rcode.to_text(reply.rcode())


def test_a_reload_changes_the_identity(site: Site) -> None:
    site.configure(serve='nsid = "one"')
    port = site.start()
    assert (nsid(port), version(port)) == (b"one", "REFUSED")
    cookie, _ = server_cookie(port)
    site.configure(serve='nsid = "two"\nversion = "v"\nudp_payload = 1000')
    assert site.run("reload").exit_code == 0
    assert (nsid(port), version(port)) == (b"two", '"v"')
    assert server_cookie(port, b"12345678" + cookie)[0] == cookie, "the server keeps the secret that it made"
    assert ask(port, "ns.a.test.", use_edns=0).payload == 1000


def server_cookie(port: int, cookie: bytes = b"12345678") -> tuple[bytes, int]:
    reply = ask(port, "ns.a.test.", options=[dns.edns.CookieOption(cookie[:8], cookie[8:])])
    found = [option for option in reply.options if isinstance(option, dns.edns.CookieOption)]
    return (found[0].server if found else b""), reply.rcode()


def test_cookies_and_the_rotation_of_their_secrets(site: Site) -> None:
    """RFC 9018 5: the new secret first only verifies, then makes cookies; then the old secret is removed."""
    old, new = secrets.token_hex(16), secrets.token_hex(16)
    file = site.directory / "cookies"

    def have(text: str) -> None:
        file.write_text(text)
        file.chmod(0o600)

    have(f"{old}\n")
    site.configure(serve='cookies.secret_file = "cookies"\ncookies.require = true')
    port = site.start()
    first, code = server_cookie(port)
    assert (len(first), code) == (16, dns.rcode.BADCOOKIE)
    assert server_cookie(port, b"12345678" + first) == (first, dns.rcode.NOERROR)
    have(f"{new}\n{old}\n")
    assert site.run("reload").exit_code == 0
    assert server_cookie(port, b"12345678" + first)[1] == dns.rcode.NOERROR
    have(f"{new}\n")
    assert site.run("reload").exit_code == 0
    second, code = server_cookie(port, b"12345678" + first)
    assert (code, second != first) == (dns.rcode.BADCOOKIE, True)
    site.configure(serve="cookies.enabled = false")
    assert site.run("reload").exit_code == 0
    assert server_cookie(port) == (b"", dns.rcode.NOERROR)


LINE = "DNS cookies are off: they need the package siphashc: pip install 'maptr[server]'"


@pytest.mark.parametrize("setting", ["secret", "secret_file", "require"])
def test_without_the_extra_server_cookies_are_off_and_wanted_ones_are_an_alarm(
    site: Site, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site.directory / "siphashc.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", str(site.directory))
    (site.directory / "file").write_text("0" * 32)
    (site.directory / "file").chmod(0o600)
    value = {"secret": f'"{"0" * 32}"', "secret_file": '"file"', "require": "true"}[setting]
    port = site.start()
    assert server_cookie(port) == (b"", dns.rcode.NOERROR)
    site.server.wait_for(f"^maptr: {re.escape(LINE)}$")
    assert site.status()["alarms"] == []

    site.configure(serve=f"cookies.{setting} = {value}")
    assert site.run("reload").exit_code == 0
    (alarm,) = site.status()["alarms"]
    text = f"serve.cookies.{setting} has no effect: {LINE}"
    assert (alarm["kind"], alarm["text"]) == ("cookies-off", text)
    site.server.wait_for(f"^maptr: {re.escape(text)}$")
    assert server_cookie(port) == (b"", dns.rcode.NOERROR)
    site.server.stop()

    site.start()
    assert [alarm["kind"] for alarm in site.status()["alarms"]] == ["cookies-off"]
    site.configure(serve=f"cookies.enabled = false\ncookies.{setting} = {value}")
    assert site.run("reload").exit_code == 0
    assert site.status()["alarms"] == []


def test_check_config_warns_of_cookies_that_cannot_be_made(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.server.settings.is_installed", lambda: False)
    site.configure(serve="cookies.require = true")
    done = site.run("serve", "--check-config")
    assert (done.exit_code, f"serve.cookies.require has no effect: {LINE}" in done.stderr) == (0, True)
    site.configure()
    assert LINE not in site.run("serve", "--check-config").output


@pytest.fixture
def keyed(site: Site) -> Site:
    (site.directory / "xfr.key").write_text("c2VjcmV0IHNlY3JldCE=\n")
    (site.directory / "xfr.key").chmod(0o600)
    return site


def transfer(port: int, name: str, key: bool = True) -> int:
    """Transfer a zone by AXFR, and return its serial."""
    ring = dns.tsigkeyring.from_text({"xfr": (dns.tsig.HMAC_SHA256, "c2VjcmV0IHNlY3JldCE=")}) if key else None
    query = dns.message.make_query(name, "AXFR")
    if ring is not None:
        query.use_tsig(ring, "xfr")
    zone = dns.zone.Zone(dns.name.from_text(name))
    dns.query.inbound_xfr("127.0.0.1", zone, query, port=port, timeout=PATIENCE, lifetime=PATIENCE)
    return int(zone.get_soa().serial)


def test_secondaries_get_the_configured_zones(keyed: Site) -> None:
    keyed.configure('transfer = ["key:xfr"]\n' + KEY, serve='state = "state"\ncatalog.name = "catalog.test"')
    port = keyed.start()
    assert transfer(port, "b.test.") == 1
    for name, key in (("b.test.", False), ("a.test.", True)):
        with pytest.raises(dns.exception.DNSException):
            transfer(port, name, key)
    keyed.write_zone("b.test", zone_text(2, "192.0.2.2"))
    assert keyed.run("reload").exit_code == 0
    assert transfer(port, "b.test.") == 2
    assert (keyed.directory / "state" / "b.test.journal").is_file()

    keyed.configure('transfer = ["127.0.0.1"]\n', serve='state = "state"')
    assert keyed.run("reload").exit_code == 0
    assert transfer(port, "b.test.", key=False) == 2
    keyed.configure(
        'transfer = ["127.0.0.1"]\n',
        serve='state = "state"\ncatalog.name = "catalog.test"\ncatalog.transfer = ["127.0.0.1"]',
    )
    assert keyed.run("reload").exit_code == 0
    assert transfer(port, "catalog.test.", key=False)


def test_secrets_are_in_neither_log_nor_status(keyed: Site) -> None:
    keyed.configure('transfer = ["key:xfr"]\n' + KEY)
    port = keyed.start()
    transfer(port, "b.test.")
    (keyed.directory / "xfr.key").chmod(0o644)
    assert keyed.run("reload").exit_code == 1
    keyed.server.wait_for("others can read or change the secret")
    told = "\n".join(keyed.server.lines) + keyed.run("status", "--json").stdout
    assert "c2VjcmV0" not in told
    assert "secret secret" not in told


# --- without a server process


def test_options_override_the_configuration() -> None:
    text = '[[key]]\nname = "k"\nsecret = "YQ=="\n'
    text += '[[zone]]\nname = "a"\nfile = "x"\ntable = "t"\ntransfer = ["192.0.2.1"]\n'
    zones = ZoneConfig(Folded((b"a",)), Path("y")), ZoneConfig(Folded((b"b",)), Path("z"))
    keys, transfer = (KeyConfig((b"k",), "hmac-sha512", b"b"),), (AccessRule.from_text("key:k"),)
    config = overridden(parse(text), zones=zones, keys=keys, transfer=transfer)
    assert [(str(zone.file), zone.table) for zone in config.zones] == [("y", None), ("z", None)]
    assert [(key.algorithm, key.secret) for key in config.keys] == [("hmac-sha512", b"b")]
    assert all(zone.transfer == transfer for zone in config.zones)
    assert settings.mistakes(config) == []
    errors = settings.mistakes(overridden(config, transfer=(AccessRule.from_text("key:no"),)))
    assert [str(error) for error in errors] == ["there is no key no; the nearest is k"]
    errors = settings.mistakes(replace(config, serve=ServeConfig(catalog=CatalogConfig((b"a",)))))
    assert [str(error) for error in errors] == ["the catalog a. is one of the zones"]
    with pytest.raises(ConfigError, match=r"--zone: a[.] is given twice"):
        overridden(config, zones=zones * 2)
    with pytest.raises(ConfigError, match=r"--key: k[.] is given twice"):
        overridden(config, keys=keys * 2)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[[zone]]\nname = 'a'\nfile = 'f'\nnotify = ['::1', '[::1]:53']", " 4: zone.notify: [::1]:53 is given twice"),
        ("[serve.catalog]\nname = 'c'\nnotify = ['::1', '::1']", " 3: serve.catalog.notify: [::1]:53 is given twice"),
        ("[table]\nfile = 'f'\ndrift = ['::1', '::1']", " 3: table.drift: ::1 is given twice"),
    ],
)
def test_a_server_that_is_given_twice_is_an_error(text: str, error: str) -> None:
    """Two samples of a metric with the same labels would make Prometheus refuse them."""
    config = parse(text)
    assert [str(each).endswith(error) for each in settings.mistakes(config)] == [True]
    with pytest.raises(ConfigError) as caught:
        settings.check_change(Config(), config)
    assert str(caught.value).endswith(error)
