"""The options of ``maptr serve`` for secondaries: what is taken, and how each mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from maptr.cli.serve import serve

SECRET = "c2VjcmV0"


@pytest.fixture
def zone_file(tmp_path: Path) -> Path:
    path = tmp_path / "z"
    path.write_text("$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n")
    return path


def check(zone_file: Path, *options: str) -> Result:
    return CliRunner().invoke(serve, ["--zone", f"example={zone_file}", "--check-config", *options])


def test_all_of_them_together(zone_file: Path, tmp_path: Path) -> None:
    (tmp_path / "xfr.key").write_text(SECRET + "\n")
    result = check(
        zone_file,
        *("--key", f"xfr=HMAC-SHA512:@{tmp_path}/xfr.key", "--key", f"other=hmac-sha256-128:{SECRET}"),
        *("--transfer", "key:XFR", "--transfer", "192.0.2.0/24 key:other", "--transfer", "::1"),
        *("--notify", "192.0.2.1", "--notify", "[2001:db8::1]:5300 key:xfr"),
        *("--catalog", "catalog.invalid", "--state", str(tmp_path)),
    )
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["xfr.key", "z"], "a check writes nothing"


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        (("--key", "xfr"), 2, "a key is NAME=ALGORITHM:@FILE"),
        (("--key", f"xfr=hmac-md5:{SECRET}"), 2, "no algorithm known here: hmac-sha1"),
        (("--key", "xfr=hmac-sha256:@/none/xfr.key"), 2, "/none/xfr.key: No such file"),
        (("--transfer", "example.org"), 2, "neither key:NAME, an address nor a prefix"),
        (("--transfer", "key:xfr"), 1, "there is no key xfr."),
        (("--notify", "::1 key:xfr"), 1, "there is no key xfr."),
        (("--notify", "example.org"), 2, "is not HOST:PORT"),
        (("--catalog", "example"), 1, "the catalog example. is one of the zones"),
        (("--catalog", "a..b"), 2, "is not a domain name: empty label"),
        (("--catalog", ".".join(["x" * 40] * 6)), 1, "name of"),
        (("--state", "/none"), 2, "does not exist"),
        (("--key", f"a=hmac-sha256:{SECRET}", "--key", f"A=hmac-sha1:{SECRET}"), 1, "key a. is given twice"),
    ],
)
def test_each_mistake_is_told(zone_file: Path, options: tuple[str, ...], code: int, why: str) -> None:
    result = check(zone_file, *options)
    assert result.exit_code == code, result.output
    assert why in " ".join(result.output.replace("│", " ").split())
    assert SECRET not in result.output
