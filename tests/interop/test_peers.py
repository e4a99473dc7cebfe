"""Tests of ``tests.support.peers``, with which other tests run real servers."""

from __future__ import annotations

import pytest

from tests.support.peers import require


def test_a_missing_server_skips_a_test_and_fails_it_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAPTR_REQUIRE_PEERS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="not installed: no-such-server; run scripts/test as root"):
        require("sh", "no-such-server")
    monkeypatch.setenv("MAPTR_REQUIRE_PEERS", "1")
    with pytest.raises(pytest.fail.Exception, match="no-such-server"):
        require("no-such-server")
    require("sh")
