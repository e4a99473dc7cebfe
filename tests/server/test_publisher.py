"""Publishing zone files: what is logged."""

from __future__ import annotations

from pathlib import Path

import pytest

from maptr.config import ZoneConfig
from maptr.protocol.names import fold, parse
from tests.support.zone_site import ZoneSite


def test_a_finding_is_logged_again_only_if_it_is_new(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    site = ZoneSite(ZoneConfig(fold(parse("ark.arpa")), tmp_path / "z"), now=0.0)
    site.zone.file.write_text("")
    site.start()
    for serial, servers in enumerate(("a", "a", "ab", "b"), 1):
        delegations = "".join(f"{server} NS {server}\n" for server in servers)
        site.zone.file.write_text(f"$TTL 60\n@ SOA ns h {serial} 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n{delegations}")
        assert site.reload().serial == serial
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text.partition("its server ")[2][:1] for text in said] == ["a", "b"]


def test_the_same_refusal_is_an_error_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "maptr")
    site = ZoneSite(ZoneConfig(fold(parse("ark.arpa")), tmp_path / "z"), now=0.0)
    good = "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n"
    levels: list[list[str]] = []
    for text in ("", "", good, "x", "x", "y", good, "y"):
        caplog.clear()
        site.zone.file.write_text(text)
        (site.reload if levels else site.start)()
        levels.append([record.levelname[0] for record in caplog.records if " not " in record.getMessage()])
    assert levels == [["E"], ["I"], [], ["E"], ["I"], ["E"], [], ["E"]]
