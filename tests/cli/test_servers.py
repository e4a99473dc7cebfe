"""Servers in options, arguments and configurations: their transports, and servers that are rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import home, run
from tests.support.hostile import hostile, hosts, naptr

__all__ = ["home"]

ARK = "ark:12345/x"


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("line", "transport"),
    [
        ("url ark:12345/x @HOST#PORT", "udp"),
        ("url ark:12345/x @HOST -p PORT", "udp"),
        ("url ark:12345/x @HOST#PORT -4 -p 1", "udp"),
        ("url ark:12345/x @HOST#PORT +tcp", "tcp"),
        ("url ark:12345/x @HOST --tcp -p PORT", "tcp"),
        ("url ark:12345/x @tcp://HOST#PORT", "tcp"),
        ("url ark:12345/x --config client.toml", "tcp"),
        ("discover ark:12345/x @tcp://HOST#PORT -4", "tcp"),
        ("discover ark:12345/x --config client.toml +tcp", "tcp"),
        ("bulk @HOST -p PORT", "udp"),
        ("bulk @HOST#PORT -4", "udp"),
        ("bulk @HOST#PORT +tcp", "tcp"),
        ("bulk @tcp://HOST#PORT", "tcp"),
        ("bulk --config client.toml -4", "tcp"),
        ("table drift --table natab --all @tcp://HOST#PORT", "tcp"),
        ("table drift --table natab --all --config client.toml", "tcp"),
    ],
)
def test_a_server_is_asked_by_its_transport_only(line: str, transport: str) -> None:
    Path("natab").write_text("12345:\n    h.example.org  ACR\n")
    transports = set()
    answer = hosts({"12345.ark.arpa.": [naptr("h.example.org.")]})

    def script(query: bytes, how: str) -> list[bytes]:
        transports.add(how)
        return answer(query, how)

    with hostile(script) as server:
        Path("client.toml").write_text(f'[client]\nnameservers = ["tcp://{server.name}"]\n')
        host, _, port = server.name.partition("#")
        run(*line.replace("HOST", host).replace("PORT", port).split(), text=f"{ARK}\n", code=0)
    assert transports == {transport}


NOT_A_SERVER = "is not a server: write HOST, tcp://HOST, tls://HOST or https://HOST/PATH"


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("url", ARK, "@udp://h"), f"@SERVER: 'udp://h' {NOT_A_SERVER}"),
        (("url", ARK, "@tcp://"), "@SERVER: tcp://: '' is not a server: write HOST"),
        (("url", ARK, "@tcp://127.0.0.1:53"), "is it 127.0.0.1#53?"),
        (("url", ARK, "@[::1]#53"), "is it ::1#53?"),
        (("url", ARK, "@https://127.0.0.1#8443/dns-query"), "write https://HOST:PORT/PATH"),
        (("info", ARK, "@http://h"), f"@SERVER: 'http://h' {NOT_A_SERVER}"),
        (("url", ARK, "@tls://h", "-4"), "@tls://h: -4, -6, -p and +tcp are for servers without tls:// or https://"),
        (("bulk", "@https://h/q"), "@https://h/q: maptr bulk asks servers without https://"),
        (("bulk", "@tls://h", "+tcp"), "@tls://h: -4, -6, -p and +tcp are for servers"),
        (("bulk", "--config", "https.toml"), "https.toml:2: client.nameservers: https://h: maptr bulk asks"),
        (("url", ARK, "--config", "tls.toml", "-6"), "tls.toml:2: client.nameservers: tls://h: -4, -6, -p and +tcp"),
        (("table", "drift", "12345", "--table", "natab", "@udp://h"), f"@SERVER: 'udp://h' {NOT_A_SERVER}"),
        (("gateway", "--check-config", "@udp://h"), f"@SERVER: 'udp://h' {NOT_A_SERVER}"),
        (("config", "unbound", "@tcp://192.0.2.1"), "@tcp://192.0.2.1: a resolver asks servers without tcp://"),
    ],
)
def test_a_server_that_the_command_cannot_ask_is_refused_by_name(words: tuple[str, ...], said: str) -> None:
    Path("natab").write_text("12345:\n    h.example.org  ACR\n")
    Path("https.toml").write_text('[client]\nnameservers = ["https://h"]\n')
    Path("tls.toml").write_text('[client]\nnameservers = ["tls://h"]\n')
    result = run(*words, text=f"{ARK}\n", code=2, out="")
    assert said in " ".join(result.stderr.split())
