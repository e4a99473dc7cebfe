"""``maptr config``: servers and names that are printed, and those that are rejected."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support import command_line

run = partial(command_line.run, "config")

ANCHOR = "ark.arpa. IN DS 1 13 2 " + "ab" * 32 + "\n"
LISTEN = '[serve]\nlisten = ["0.0.0.0:5301", "[::]:5301"]\n[client]\norigin = "ark.example.org"\n'


def test_the_default_server_is_the_default_address_of_maptr_serve() -> None:
    assert "stub-addr: 127.0.0.1@5300\n" in run("unbound", code=0).stdout
    assert "forwarders { 127.0.0.1 port 5300; };" in run("bind", code=0).stdout
    assert "DNS=127.0.0.1:5300\nDomains=~ark.arpa\n" in run("systemd-resolved", code=0).stdout


def test_the_configuration_names_servers_and_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "maptr.toml").write_text(LISTEN)
    printed = run("systemd-resolved", "--config", tmp_path / "maptr.toml", code=0).stdout
    assert printed.endswith("DNS=127.0.0.1:5301 [::1]:5301\nDomains=~ark.example.org\n")
    monkeypatch.setenv("MAPTR_CONFIG", str(tmp_path / "maptr.toml"))
    assert run("systemd-resolved", code=0).stdout == printed
    named = run("unbound", "@192.0.2.7", "@2001:db8::1#5353", "--origin", "ARK.test", code=0).stdout
    assert "do-not-query-localhost" not in named
    assert named.endswith('    name: "ARK.test."\n    stub-addr: 192.0.2.7@53\n    stub-addr: 2001:db8::1@5353\n')


@pytest.mark.parametrize(
    ("resolver", "secure", "insecure"),
    [
        ("unbound", 'trust-anchor: "ark.arpa. IN DS 1 13 2 ', "domain-insecure"),
        ("bind", 'trust-anchors { "ark.arpa." static-ds 1 13 2 "', "validate-except"),
        ("systemd-resolved", "#     ark.arpa. IN DS 1 13 2 ", "*.negative"),
    ],
)
def test_a_signed_zone_has_its_trust_anchor(resolver: str, secure: str, insecure: str, tmp_path: Path) -> None:
    (tmp_path / "anchor").write_text(ANCHOR)
    printed = run(resolver, "--trust-anchor", tmp_path / "anchor", code=0).stdout
    assert secure in printed
    assert insecure not in printed
    assert insecure in run(resolver, code=0).stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["dnsmasq"], 2, "is not one of"),
        (["unbound", "192.0.2.7"], 2, "is not @SERVER"),
        (["unbound", "@ns.example.org"], 2, "a resolver needs the IP address of the server"),
        (["unbound", "@fe80::1%eth0"], 2, "a resolver needs the IP address of the server"),
        (["unbound", "@192.0.2.7#0"], 2, "is not a server"),
        (["bind", "--origin", '";\n};'], 2, "is not"),
        (["bind", "--origin", "."], 2, "is not a name of letters"),
        (["bind", "--config", "none"], 8, "none"),
        (["bind", "--trust-anchor", "none"], 8, "none"),
        (["bind", "--trust-anchor", "other"], 2, "has no trust anchor of ark.arpa"),
        (["bind", "--trust-anchor", "empty"], 2, "no trust anchor"),
        (["bind", "--config", "free"], 2, "give @SERVER#PORT"),
        (["bind", "--config", "bad"], 2, "bad:1: nothing"),
    ],
)
def test_invalid_arguments_are_refused(
    words: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").write_text(ANCHOR.replace("ark.", "x."))
    (tmp_path / "empty").write_text("")
    (tmp_path / "free").write_text('[serve]\nlisten = ["127.0.0.1:0"]\n')
    (tmp_path / "bad").write_text("nothing = 1\n")
    assert run(*words, code=code, said=said).stdout == ""
