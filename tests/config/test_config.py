"""The configuration: its keys, its sources, and the errors for wrong values."""

from __future__ import annotations

import base64
import inspect
import os
from pathlib import Path
from typing import Any

import pytest
import tomli

from maptr.cache import POLICIES, policy
from maptr.client import Client
from maptr.config import Config, load, model, parse, reader
from maptr.config.lines import key_lines
from maptr.config.model import CacheConfig, ClientConfig, Removed, ZoneConfig, all_keys
from maptr.config.reader import environment_names
from maptr.errors import ConfigError, ConfigErrors
from maptr.protocol.address import Address, read_network
from maptr.protocol.names import ARK_ARPA, Folded
from maptr.transfer.acl import AccessRule, NotifyTarget
from maptr.zone import build

EXAMPLE = """\
[serve]
listen = ["127.0.0.1:5300", "[::1]:5300"]
udp_payload = 1400
nsid = ""                  # and version, hostname; empty = refused
control = "run/maptr.sock"
[serve.tls]
listen = ["127.0.0.1:8853"]
certificate = "tls.crt"
key = "tls.key"
[serve.rrl]
responses_per_second = 20  # 0 = off
[[key]]
name = "xfr"
algorithm = "hmac-sha256"
secret = "c2VjcmV0IHNlY3JldCE="
[[zone]]
name = "ark.arpa"
file = "zones/ark.arpa.zone"
transfer = ["key:xfr", "127.0.0.1"]
notify = ["127.0.0.1:5300"]
"""
SECRET = "c2VjcmV0IHNlY3JldCE="
ZONE = "[[zone]]\nname='a'\nfile='x'\n"


def error_of(text: str = "", filename: str = "f", **sources: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(text, filename=filename, **sources)
    return caught.value


def test_a_number_with_too_many_digits_is_an_error_of_its_line() -> None:
    error = error_of(f"[serve]\nudp_payload = 1{'_999' * 2000}\n")
    assert (error.line, error.reason) == (2, "has a number with too many digits")
    assert error.of_text


def test_a_configuration_of_every_section() -> None:
    config = parse(EXAMPLE, filename="/etc/maptr.toml", directory=Path("/etc"))
    serve = config.serve
    assert serve.listen == (Address("127.0.0.1", 5300), Address("::1", 5300))
    assert (serve.udp_payload, serve.nsid, serve.control) == (1400, "", Path("/etc/run/maptr.sock"))
    assert serve.tls.listen == (Address("127.0.0.1", 8853),)
    assert (serve.tls.certificate, serve.tls.key) == (Path("/etc/tls.crt"), Path("/etc/tls.key"))
    assert serve.rrl.responses_per_second == 20
    (key,) = config.keys
    assert (key.name, key.algorithm) == ((b"xfr",), "hmac-sha256")
    assert key.secret == b"secret secret!"
    (build,) = config.zones
    assert (build.name, build.file) == ((b"ark", b"arpa"), Path("/etc/zones/ark.arpa.zone"))
    assert build.transfer == (AccessRule(None, (b"xfr",)), AccessRule(read_network("127.0.0.1")))
    assert build.notify == (NotifyTarget(Address("127.0.0.1", 5300)),)
    assert (build.max_shrink, build.serial, build.lint) == (0.3, "file", "warn")
    assert config.locations["serve.tls.key"] == ("/etc/maptr.toml", 9)


@pytest.mark.parametrize(
    ("written", "seconds"), [("3600", 3600), ("'3600'", 3600), ("'1h'", 3600), ("'30M'", 1800), ("'10m30s'", 630)]
)
def test_every_duration_is_written_as_a_ttl(written: str, seconds: int) -> None:
    text = f"""\
serve = {{rrl.window = {written}, tcp.idle_timeout = {written}, secondaries.interval = {written}}}
zone = [{{name = "a", file = "x", table = "y", ttl = {written}}}]
cache = {{patience = {written}, stale_limit = {written}}}
gateway = {{idle_timeout = {written}, probe_every = {written}}}
"""
    config = parse(text)
    serve, cache, gateway = config.serve, config.cache, config.gateway
    found = [serve.rrl.window, serve.tcp.idle_timeout, serve.secondaries.interval, config.zones[0].ttl]
    assert [*found, cache.patience, cache.stale_limit, gateway.idle_timeout, gateway.probe_every] == [seconds] * 8


def test_defaults() -> None:
    assert parse() == Config()
    assert Config().serve.listen == (Address("127.0.0.1", 5300),)


def test_file_then_environment_then_flags() -> None:
    environment = {"MAPTR_SERVE_LISTEN": "192.0.2.1:53, [::1]:53", "MAPTR_SERVE_NSID": "env", "MAPTR_PYTHON": "x"}
    environment |= {"MAPTR_SERVE_TCP_IDLE_TIMEOUT": "2.5", "MAPTR_SERVE_COOKIES_REQUIRE": "TRUE"}
    environment |= {"MAPTR_SERVE_RRL_RESPONSES_PER_SECOND": "0", "MAPTR_SERVE_STATE": "state"}
    text = '[serve]\nlisten = ["192.0.2.9:53"]\nnsid = "file"\nversion = "file"\ntcp.idle_timeout = 1\n'
    config = parse(text, directory=Path("/etc"), environment=environment, flags={"serve.nsid": ("flag", "--nsid")})
    serve = config.serve
    assert serve.listen == (Address("192.0.2.1", 53), Address("::1", 53))
    assert (serve.nsid, serve.version, serve.tcp.idle_timeout) == ("flag", "file", 2.5)
    assert serve.cookies.require
    assert serve.rrl.responses_per_second == 0
    assert serve.state == Path("state"), "relative to the current folder, not to the file's"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[serve]\n\nlisen = []", "f:3: serve.lisen: no such key; the nearest is serve.listen"),
        ("[serve.rll]\n", "f:1: serve.rll: no such key; the nearest is serve.rrl"),
        ("listen = []", "f:1: listen: no such key; the nearest is serve.listen"),
        ("[serve]\ncertificate = 'x'", "f:2: serve.certificate: no such key; the nearest is serve.tls.certificate"),
        ("[serve.tls]\n'a b'.c = 1", "f:2: serve.tls.a b: no such key; there are certificate, key, listen"),
        (
            "[[zone]]\nname='a'\nfile='b'\n[[zone]]\nname='b'\nfile='c'\ntabel='d'",
            "f:7: zone.tabel: no such key; the nearest is zone.table",
        ),
        ("[[zones]]\n", "f:1: zones: no such key; the nearest is zone"),
        ("[serve]\nudp_payload = '1'", "f:2: serve.udp_payload: must be an integer, not a text"),
        ("[serve]\nudp_payload = true", "f:2: serve.udp_payload: must be an integer, not true or false"),
        ("[serve]\nudp_payload = 0", "f:2: serve.udp_payload: must be from 512 to 4096, not 0"),
        ("[serve]\nnsid = 1979-05-27", "f:2: serve.nsid: must be a text, not a date or time"),
        ("[serve.tcp]\nidle_timeout = nan", "f:2: serve.tcp.idle_timeout: must be from 0.1 to 3600, not nan"),
        ("[serve]\nlisten = '127.0.0.1:53'", "f:2: serve.listen: must be an array, not a text"),
        (
            "[serve]\nlisten = [\n '127.0.0.1:53',\n 'h:53']",
            "f:4: serve.listen: 'h:53': the host must be an IP address",
        ),
        ("[serve]\nlisten = []", "f:2: serve.listen: is empty"),
        ("serve = 1", "f:1: serve: must be a table"),
        ("zone = {}", "f:1: zone: must be an array of tables, [[zone]]"),
        ("zone = [1]", "f:1: zone: must be a table"),
        ("\n[[zone]]\nname = 'a'", "f:2: zone: has no file, which is required"),
        ("[[zone]]\nname = ''\nfile = 'x'", "f:2: zone.name: is empty: a domain name is required"),
        ("[[zone]]\nname = 'a..b'\nfile = 'x'", "f:2: zone.name: 'a..b' is not a valid domain name: empty label"),
        ("[[zone]]\nname = 'a'\nfile = ''", "f:3: zone.file: is empty: a file is required"),
        (f"{ZONE}[[zone]]\nname='A.'\nfile='x'", "f:5: zone.name: zone a. is given twice"),
        (f"{ZONE}serial='date'", "f:4: zone.serial: also needs serve.state"),
        (f"{ZONE}serial='up'", "f:4: zone.serial: must be one of file, increment, date, unix"),
        (f"{ZONE}transfer=['10.0.0.1/8']", "f:4: zone.transfer: 10.0.0.1/8 has host bits set; a rule has"),
        (f"{ZONE}transfer=['key:y']", "f:4: zone.transfer: there is no key y; no key is given"),
        (
            f"[[key]]\nname='xfr'\nsecret='{SECRET}'\n{ZONE}notify=['::1 key:xrf']",
            "f:7: zone.notify: there is no key xrf; the nearest is xfr",
        ),
        ("[serve.tls]\nlisten=['127.0.0.1:853']", "f:2: serve.tls.listen: also needs serve.tls.certificate"),
        ("[serve.tls]\nkey='k'", "f:2: serve.tls.key: also needs serve.tls.listen"),
        (f"[serve.cookies]\nsecret='{0:032}'\nsecret_file='k'", "f:3: serve.cookies.secret_file: serve.cookies.sec"),
        (f"{ZONE}signing.zonemd = false", "f:4: zone.signing: also needs zone.keys"),
        ("[serve.catalog]\nnotify=['::1']", "f:2: serve.catalog.notify: also needs serve.catalog.name"),
        (
            "[serve.secondaries]\nsource=['192.0.2.1','192.0.2.2']",
            "f:2: serve.secondaries.source: 192.0.2.1 and 192.0.2.2: at most one IPv4 address",
        ),
        (
            "[serve.secondaries]\nsource=['::1','::2']",
            "f:2: serve.secondaries.source: ::1 and ::2: at most one IPv6 address",
        ),
        (
            "[serve.secondaries]\nsource=['192.0.2.1:53']",
            "f:2: serve.secondaries.source: '192.0.2.1:53' is not an IP address, such as",
        ),
        (
            "[serve.secondaries]\nsource=['0.0.0.0']",
            "f:2: serve.secondaries.source: 0.0.0.0 is not an address to send from",
        ),
        ("[serve.secondaries]\nsource=['fe80::1']", "f:2: serve.secondaries.source: fe80::1 is link-local"),
        (f"[serve.catalog]\nname='A'\n{ZONE}", "f:4: zone.name: zone a. is given twice"),
        ("[[key]]\nname='.'", "f:2: key.name: key without a name"),
        (f"[[key]]\nname='x'\nsecret='{SECRET}'\n" * 2, "f:5: key.name: the key x is given twice"),
        ("[[key]]\nname='x'", "f:1: key: the key x needs one of secret and secret_file"),
        (f"[[key]]\nname='x'\nsecret='{SECRET}'\nsecret_file='y'", "f:1: key: the key x needs one of"),
        (f"[[key]]\nname='x'\nalgorithm='md5'\nsecret='{SECRET}'", "f:3: key.algorithm: 'md5' is not a known"),
        ("[table]\nurl = 'https://r.example'", "f:2: table.url: also needs table.file"),
        ("[table]\nfile = 'a'\nmirrors = ['b']", "f:3: table.mirrors: also needs table.url"),
        ("[table]\nfile = 'a'\nurl = 'b'\ncafile = 'c'", "f:4: table.cafile: has no effect: all sources are files"),
        ("[table]\nfile = 'a'\nurl = 'b'\nevery = 0", "f:4: table.every: must be above 0"),
        ("[table]\nfile = 'a'\nurl = 'b'\nsha256 = 'x'", "f:4: table.sha256: must have 64 hexadecimal digits"),
        ("[serve.tcp]\nidle_timeout = '2h'", "f:2: serve.tcp.idle_timeout: must be from 0.1 to 3600, not 7200"),
        ("[serve.rrl]\nwindow = 0", "f:2: serve.rrl.window: must be from 1 to 3600, not 0"),
        ("[cache]\nstale_limit = true", "f:2: cache.stale_limit: must be seconds or a text such as '14d', not true"),
        ("[cache]\nstale_limit = '1h30'", "f:2: cache.stale_limit: '1h30' is not a duration"),
        ("[cache]\nstale_limit = -1", "f:2: cache.stale_limit: '-1' is not a duration"),
        (
            "[[zone]]\nname = 'a'\nfile = 'x'\ntable = 'x'",
            "f:4: zone.table: x is also used by zone.file: use separate files",
        ),
        (
            "[table]\nfile = 'y'\n[[zone]]\nname = 'a'\nfile = './y'\ntable = 'x'",
            "f:2: table.file: y is also used by zone.file",
        ),
        (
            "".join(f"[[zone]]\nname = '{name}'\nfile = 'x'\ntable = 'y'\n" for name in "ab"),
            "f:7: zone.file: x is also used by zone.file: use separate files",
        ),
        ("[gateway]\nredirects = 'o'\nstats = 'o'", "f:3: gateway.stats: o is also used by gateway.redirects"),
        ("[cache]\npath = 'o'\n[gateway]\nstats = 'p/../o'", "f:4: gateway.stats: p/../o is also used by cache.path"),
        ("[serve]\ncontrol = 's'\n[gateway]\nredirects = 's'", "f:4: gateway.redirects: s is also used by serve"),
        (f"{ZONE}keys = 'k'", "f:4: zone.keys: also needs serve.state"),
        (f"{ZONE}signing.refresh = '1d'", "f:4: zone.signing: also needs zone.keys"),
        (f"{ZONE}signing.lifetime = '7d'", "f:4: zone.signing: signatures that last 604800 s cannot be renewed"),
        (f"{ZONE}ns = ['b']", "f:4: zone.ns: also needs zone.table"),
        ("[serve]\nnsid = ", "f:2: Invalid value"),
        ("a = 1\na = 2\n", "f:2: Cannot overwrite a value"),
        ("[serve\n", "f:1: "),
        ("a = " + "[" * 5000, "f"),
        ("[serve.cookies]\nsecret='00'", "f:2: serve.cookies.secret: each secret must be 32 hexadecimal digits"),
        (
            f"[serve.cookies]\nsecret='{'0' * 32} {'1' * 32} {'2' * 32}'",
            "f:2: serve.cookies.secret: has 3 secrets, 2 at",
        ),
        ("[serve]\nudp_payload = 511", "f:2: serve.udp_payload: must be from 512 to 4096, not 511"),
        ("[serve]\nudp_payload = 4097", "f:2: serve.udp_payload: must be from 512 to 4096, not 4097"),
        ("[table]\nfile = 'a'\nurl = 'gopher://r.example/x'", "f:3: table.url: gopher://r.example/x: neither http"),
        ("[table]\nfile = 'a'\ndrift = ['udp://h']", "f:3: table.drift: 'udp://h' is not a server: write HOST"),
        (
            "[client]\nnameservers = ['ns#0']",
            "f:2: client.nameservers: 'ns#0' is not a server: 0 is not a port (1 to 65535)",
        ),
        ("[gateway]\nlisten = []", "f:2: gateway.listen: is empty: the gateway needs an address"),
        (
            "[gateway]\nlisten = ['127.0.0.1:0', '127.0.0.1:0', '127.0.0.1:80',\n'127.0.0.1:80']",
            "f:3: gateway.listen: 127.0.0.1:80 is given twice",
        ),
        (
            "[gateway]\npublic_url = 'https://h.example/ark'",
            "f:2: gateway.public_url: must be a URL without a path: the gateway answers at the root of its host",
        ),
        ("[gateway]\npublic_url = 'ark.example'", "f:2: gateway.public_url: not an absolute URL"),
        ("[gateway]\nroot = 'https://h.example/?q='", "f:2: gateway.root: must be a URL without a query string"),
        (
            "[gateway]\npublic_url = 'https://h.example/'\nroot = 'https://H.example:443'",
            "f:3: gateway.root: is gateway.public_url: the gateway would redirect to itself",
        ),
        ("[gateway]\nmetadata = 'https://h.example/${id}'", "f:2: gateway.metadata: ${id} is not one of ${pid}, "),
        ("[gateway]\nmetadata = 'https://h.example/${pid}${'", "f:2: gateway.metadata: ${ is not one of ${pid}, "),
        (
            "[gateway]\nmetadata = 'https://h.example/'",
            "f:2: gateway.metadata: has no ${pid}, which stands for the ARK",
        ),
        ("[gateway]\nmetadata = 'https://${pid}.example/'", "f:2: gateway.metadata: has a variable in its host"),
        ("[gateway]\nmetadata = 'h.example/${pid}'", "f:2: gateway.metadata: not an absolute URL"),
        ("[gateway]\ncertificate = 'c'", "f:2: gateway.certificate: also needs gateway.key"),
        ("[gateway]\nkey = 'k'", "f:2: gateway.key: also needs gateway.certificate"),
        ("[gateway]\nproxies = ['10.0.0.1/8']", "f:2: gateway.proxies: 10.0.0.1/8 has host bits set"),
    ],
)
def test_an_error_has_file_and_line(text: str, said: str) -> None:
    assert str(error_of(text)).startswith(said)


UNREADABLE = """\
[serve]
listen = ["h:53", "127.0.0.1:53", "127.0.0.1"]
udp_payload = 0
lisen = []
[serve.rrl]
slip = "2"
[[zone]]
name = "a"
fil = "x"
serial = "date"
[table]
url = "ftp://r.example/naans"
file = "naans"
mirrors = ["https:r.example", "mirror", "http://user@r.example/"]
[client]
nameservers = ["127.0.0.1:53", "udp://x", "192.0.2.1#53", "https://dns.example/dns-query", "tls://dns.example#853"]
"""
CONTRADICTORY = """\
[[key]]
name = "xfr"
[[zone]]
name = "a"
file = "x"
serial = "date"
transfer = ["key:y"]
[[zone]]
name = "a"
file = "y"
table = "z"
ns = ["ns.a=nonsense"]
"""


@pytest.mark.parametrize(
    ("text", "environment", "expected"),
    [
        (
            UNREADABLE,
            {"MAPTR_SERVE_LISTN": ""},
            "0 MAPTR_SERVE_LISTN, 2 serve.listen, 2 serve.listen, 3 serve.udp_payload, 4 serve.lisen, "
            "6 serve.rrl.slip, 7 zone, 9 zone.fil, 12 table.url, 14 table.mirrors, 14 table.mirrors, "
            "16 client.nameservers, 16 client.nameservers",
        ),
        (CONTRADICTORY, {}, "1 key, 6 zone.serial, 7 zone.transfer, 9 zone.name, 12 zone.ns"),
    ],
    ids=["unreadable", "contradictory"],
)
def test_all_errors_are_reported_with_file_and_line(text: str, environment: dict[str, str], expected: str) -> None:
    found = error_of(text, environment=environment)
    assert isinstance(found, ConfigErrors)
    assert ", ".join(f"{error.line} {error.key}" for error in found.all) == expected
    assert all(str(error) in str(found) for error in found.all)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"MAPTR_SERVE_LISTN": ""}, "MAPTR_SERVE_LISTN: no such setting; the nearest is MAPTR_SERVE_LISTEN"),
        (
            {"MAPTR_SERVE_UDP_PAYLOAD": "two"},
            "MAPTR_SERVE_UDP_PAYLOAD: serve.udp_payload: must be an integer",
        ),
        ({"MAPTR_SERVE_COOKIES_REQUIRE": "1"}, "MAPTR_SERVE_COOKIES_REQUIRE: serve.cookies.require: must be true or"),
        ({"MAPTR_SERVE_LISTEN": ""}, "MAPTR_SERVE_LISTEN: serve.listen: is empty"),
        ({"MAPTR_SERVE_LISTEN": "nonsense"}, "MAPTR_SERVE_LISTEN: serve.listen: 'nonsense' is not"),
    ],
)
def test_an_error_in_the_environment_names_the_variable(environment: dict[str, str], said: str) -> None:
    assert str(error_of('[serve]\nlisten = ["192.0.2.1:53"]', environment=environment)).startswith(said)


def test_a_value_in_place_of_a_table_hides_no_other_error() -> None:
    environment = {"MAPTR_SERVE_TLS_CERTIFICATE": "x", "MAPTR_SERVE_UDP_PAYLOAD": "two"}
    found = error_of("[serve]\ntls = 1", environment=environment)
    assert [(error.line, error.key) for error in found.all] == [(0, "serve.udp_payload"), (2, "serve.tls")]


def test_the_error_says_that_the_environment_names_the_file(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    with pytest.raises(OSError, match=r"none\.toml") as caught:
        load(missing, environment={"MAPTR_CONFIG": str(missing)})
    assert caught.value.strerror == "No such file or directory; MAPTR_CONFIG names it"
    with pytest.raises(OSError, match=r"none\.toml") as caught:
        load(missing, environment={"MAPTR_CONFIG": str(tmp_path / "other.toml")})
    assert caught.value.strerror == "No such file or directory"


def test_each_key_has_a_unique_variable() -> None:
    known = {key for key in (*all_keys(), *model.REMOVED) if not key.startswith(("zone.", "key."))}
    assert set(environment_names().values()) == known
    assert len(set(environment_names())) == len(environment_names())


@pytest.mark.parametrize(
    "text",
    [
        "[[key]]\nname = 'x'\nsecret = 'hunter2!'",
        "[[key]]\nname = 'x'\nsecret = ['hunter2!']",
        "[[key]]\nname = 'x'\nsecret = 'hunter2!\n",
        "[serve.cookies]\nsecret = 'hunter2!'",
    ],
)
def test_no_error_contains_a_secret(text: str) -> None:
    found = error_of(text)
    assert "hunter" not in str(found)
    assert found.__cause__ is None
    assert found.__suppress_context__


def test_a_secret_is_not_in_the_repr() -> None:
    config = parse(EXAMPLE + "[serve.cookies]\nsecret = '" + "ab" * 16 + "'\n")
    for shown in (SECRET, "secret secret", "abab", "\\xab"):
        assert shown not in repr(config)
    assert config.serve.cookies.secret == (bytes.fromhex("ab" * 16),)


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "xfr.key"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    (tmp_path / "maptr.toml").write_text("[[key]]\nname = 'xfr'\nsecret_file = 'xfr.key'\n")
    return path


def test_a_secret_from_a_file(secret_file: Path) -> None:
    (key,) = load(secret_file.parent / "maptr.toml").keys
    assert key.secret == base64.b64decode(SECRET)


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        *(
            (SECRET, mode, rf"^\S+maptr.toml:3: key.secret_file: .*xfr.key: has mode {mode:04o}.*chmod 600")
            for mode in (0o640, 0o604, 0o620)
        ),
        ("hunter2!", 0o600, "not base64"),
        ("\n", 0o600, "empty"),
        ("A" * 5000, 0o600, "more than"),
        ("ä", 0o600, "not base64"),
    ],
)
def test_a_file_without_a_valid_secret(secret_file: Path, content: str, mode: int, reason: str) -> None:
    secret_file.write_text(content)
    secret_file.chmod(mode)
    with pytest.raises(ConfigError, match=reason) as caught:
        load(secret_file.parent / "maptr.toml")
    assert content.strip() not in str(caught.value) or not content.strip()


def test_a_secret_file_that_is_missing_or_a_fifo(secret_file: Path) -> None:
    secret_file.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        load(secret_file.parent / "maptr.toml")
    os.mkfifo(secret_file, 0o600)
    with pytest.raises(ConfigError, match="not a regular file"):
        load(secret_file.parent / "maptr.toml")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none")
    with pytest.raises(IsADirectoryError) as folder:
        load(tmp_path)
    assert folder.value.filename == str(tmp_path)
    (tmp_path / "latin1").write_bytes(b"[serve]\nnsid = '\xe4'\n")
    with pytest.raises(ConfigError, match="latin1:2: is not UTF-8"):
        load(tmp_path / "latin1")


def test_a_path_that_the_locale_cannot_encode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsencode", lambda text: text.encode("iso8859-1"))
    monkeypatch.setattr("sys.getfilesystemencoding", lambda: "iso8859-1")
    with pytest.raises(ConfigError, match=r"^maptr.toml:2: serve.state: .* in iso8859-1, .*: set LC_ALL=C.UTF-8$"):
        parse("[serve]\nstate = 'é/国'\n", filename="maptr.toml")
    assert parse("[serve]\nstate = 'é'\n").serve.state == Path("é")


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "windows").write_bytes(b"\xef\xbb\xbf[serve]\r\nnsid = 'x'\r\n")
    assert load(tmp_path / "windows").serve.nsid == "x"


def test_key_lines_with_all_forms_of_strings_and_tables() -> None:
    text = (
        'a = """x\n"\\"]"""""\nb = \'\'\'\n\\\'\'\'\n[c . "d.e"] # [x]\nf.g = [ # [\n 1979-05-27 07:32:00Z, "#" ]\n'
        "[[h]]\n[[h.i]]\n[[h.i]]\nj = 1\n[[h]]\nk = {l = 1, m.n = 2}\no = [ 1\n , 2 ]"
    )
    tomli.loads(text)
    expected = (
        "a 1 b 3 c 5 c.d.e 5 c.d.e.f 6 c.d.e.f.g 6 c.d.e.f.g.0 7 c.d.e.f.g.1 7 h 8 h.0 8 h.0.i 9 h.0.i.0 9 h.0.i.1 10"
        " h.0.i.1.j 11 h.1 12 h.1.k 13 h.1.k.l 13 h.1.k.m 13 h.1.k.m.n 13 h.1.o 14 h.1.o.0 14 h.1.o.1 15"
    )
    assert " ".join(f"{'.'.join(map(str, path))} {line}" for path, line in key_lines(text).items()) == expected


def test_the_sections_for_table_client_cache_and_gateway() -> None:
    text = """\
[table]
file = "naans.json"
url = "https://one.example/naans"
mirrors = ["https://two.example/naans"]
every = "15m"
drift = ["192.0.2.7"]
[client]
origin = "ARK.example"
nameservers = ["127.0.0.1#5300"]
[cache]
path = "cache.sqlite"
stale_limit = "2d"
[[zone]]
name = "ark.example"
file = "ark.example.zone"
table = "naans.json"
ns = ["ns1=192.0.2.1"]
include = ["delegations.zone"]
[gateway]
public_url = "https://ark.example.org/"
metadata = "https://about.example.org/?ark=${pid}&as=${inflection}"
redirects = "single.csv"
drift_every = "1d"
proxies = ["192.0.2.0/24", "::1"]
"""
    environment = {"MAPTR_CACHE_POLICY": "natab-first", "MAPTR_GATEWAY_RATE": "50"}
    config = parse(text, directory=Path("/etc"), environment=environment)
    assert config.table.sources == ("https://one.example/naans", "https://two.example/naans")
    assert (config.table.file, config.table.every, config.table.drift) == (Path("/etc/naans.json"), 900, ("192.0.2.7",))
    assert config.client == ClientConfig((b"ark", b"example"), ("127.0.0.1#5300",))
    assert config.cache == CacheConfig(None, Path("/etc/cache.sqlite"), "natab-first", 0.3, 172_800, 0)
    (build,) = config.zones
    assert (build.table, build.include) == (Path("/etc/naans.json"), (Path("/etc/delegations.zone"),))
    gateway = config.gateway
    assert gateway.public_url == "https://ark.example.org"
    assert gateway.metadata == "https://about.example.org/?ark=${pid}&as=${inflection}"
    assert (gateway.redirects, gateway.drift_every, gateway.rate) == (Path("/etc/single.csv"), 86_400, 50)
    assert gateway.proxies == (read_network("192.0.2.0/24"), read_network("::1"))


def test_a_relative_source_is_resolved_against_the_folder_of_the_configuration() -> None:
    text = "[table]\nfile = 'naans'\nurl = 'registry.json'\nmirrors = ['/old/naans', 'https://r.example/naans']\n"
    assert parse(text, directory=Path("/etc")).table.sources == (
        "/etc/registry.json",
        "/old/naans",
        "https://r.example/naans",
    )
    set_outside = parse(text, directory=Path("/etc"), environment={"MAPTR_TABLE_URL": "mine.json"})
    assert set_outside.table.url == "mine.json"


def test_the_defaults_for_cache_and_built_zones_are_those_of_the_library() -> None:
    defaults = inspect.signature(Client).parameters
    assert CacheConfig().patience == defaults["patience"].default
    assert CacheConfig().stale_limit == defaults["stale_limit"].default
    assert CacheConfig().policy == defaults["policy"].default
    assert ClientConfig().origin == ARK_ARPA
    assert [policy.named(name).name for name in POLICIES] == list(POLICIES)
    built = ZoneConfig(Folded((b"a",)), Path("a"))
    assert (built.ttl, built.contact) == (build.TTL, build.ZoneSettings().contact)


def test_lines_are_only_looked_for_when_one_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of zones, that takes as long as all the rest of the reading."""
    path, asked = tmp_path / "maptr.toml", []
    path.write_text("[serve]\nstate = 'state'\n" + "".join(f"[[zone]]\nname='z{n}'\nfile='z{n}'\n" for n in range(9)))

    def noted(text: str) -> Any:
        asked.append(text)
        return key_lines(text)

    monkeypatch.setattr(reader, "key_lines", noted)
    config = load(path)
    assert config.open_secrets() == []
    assert "zone[8].file" in config.locations
    assert asked == []
    assert [config.locations[f"zone[{n}].file"] for n in (0, 8)] == [(str(path), 5), (str(path), 29)]
    assert len(asked) == 1


def test_a_file_that_two_settings_name_through_links_is_found(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "real" / "link").symlink_to("file")
    for other in ("real/file", "folder/file", "folder/link", "real/../real/link", "folder/x/../file"):
        (tmp_path / "real" / "x").mkdir(exist_ok=True)
        text = f"[serve]\nstate='s'\ncontrol='{other}'\n[[zone]]\nname='z'\nfile='real/file'\n"
        with pytest.raises(ConfigError, match="use separate files"):
            parse(text, directory=tmp_path)


# ---- settings of earlier versions


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> None:
    removed = {
        "client.timeout": Removed("it has the name that Python uses", "client.lifetime"),
        "zone.keydir": Removed("", "zone.keys"),
        "extra": Removed("there is none"),
        "serve.tls.mode": Removed("TLS 1.3 is always allowed"),
    }
    monkeypatch.setattr(model, "REMOVED", removed)


def test_a_removed_setting_is_a_warning_and_its_successor_has_the_value(older: None) -> None:
    text = "[client]\ntimeout = 2\n[extra]\na = 1\n[serve]\nstate = 's'\n[serve.tls]\nmode = [\n1]\n"
    text += ZONE + "keydir = 'k'\n" + ZONE.replace("'a'", "'b'") + "keys = 'new'\nkeydir = 'k'\n"
    config = parse(text, filename="f")
    assert (config.client.lifetime, [str(zone.keys) for zone in config.zones]) == (2.0, ["k", "new"])
    assert [str(each) for each in config.removed] == [
        "f:2: client.timeout: is no longer a setting: write client.lifetime; it has the name that Python uses",
        "f:13: zone.keydir: is no longer a setting: write zone.keys",
        "f:18: zone.keydir: is no longer a setting: write zone.keys",
        "f:3: extra: is no longer a setting: there is none",
        "f:8: serve.tls.mode: is no longer a setting: TLS 1.3 is always allowed",
    ]


def test_a_wrong_value_of_a_removed_setting_has_its_line_and_the_successor(older: None) -> None:
    assert str(error_of("[client]\n\ntimeout = 'x'")).startswith("f:3: client.lifetime: ")
    assert str(error_of(environment={"MAPTR_CLIENT_TIMEOUT": "x"})).startswith(
        "MAPTR_CLIENT_TIMEOUT: client.lifetime: "
    )
    for odd in ("client = 1", "[[client]]\ntimeout = 1", "serve = 'x'", "zone = 1"):
        assert error_of(odd).reason.startswith("must be ")


def test_a_removed_setting_in_the_environment(older: None) -> None:
    config = parse("[client]\nlifetime = 3", environment={"MAPTR_CLIENT_TIMEOUT": "2", "MAPTR_SERVE_TLS_MODE": "x"})
    assert config.client.lifetime == 3.0
    assert [each.filename for each in config.removed] == ["MAPTR_CLIENT_TIMEOUT", "MAPTR_SERVE_TLS_MODE"]
    assert parse(environment={"MAPTR_CLIENT_TIMEOUT": "2"}).client.lifetime == 2.0


def test_settings_that_were_removed_are_no_settings_now() -> None:
    known = model.all_keys()
    for key, removed in model.REMOVED.items():
        assert key not in known
        assert not removed.successor or removed.successor in known
        assert removed.successor.rpartition(".")[0] in ("", key.rpartition(".")[0]), "of the same table"
