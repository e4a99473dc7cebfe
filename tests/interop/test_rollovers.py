"""Key rollovers in shifted time with Unbound as judge: with the steps of docs/admin.md, and with inline signers.

``scripts/rollovers`` does the same for two years, and also with BIND, whose keys live at least 30 days.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.peers import require, skip_or_fail
from tests.support.rollovers import Lifetimes, OwnSigner, Run
from tests.support.soak.machines import libfaketime

pytest.importorskip("cryptography", reason="signing needs maptr[dnssec]")


@pytest.fixture(autouse=True)
def clock() -> None:
    require("unbound", "ldns-verify-zone", "setpriv")
    if libfaketime() is None:
        skip_or_fail("interop: not installed: libfaketime")


@pytest.mark.parametrize(
    ("way", "days", "lifetimes"),
    [
        ("maptr", 7, Lifetimes(zsk=3, ksk=3)),
        ("knot", 16, Lifetimes(zsk=8, ksk=9)),
    ],
)
def test_answers_are_secure_during_each_rollover(way: str, days: int, lifetimes: Lifetimes, tmp_path: Path) -> None:
    count = Run(way, days, 1, lifetimes, tmp_path).run(lambda text: None)
    assert not count.faults, "\n".join(count.faults[:10])
    assert len(count.zsks) > 1
    assert len(count.ksks) > 1
    assert count.ds_changes > 1
    assert min(count.answers.values()) > 100


def test_the_judge_notices_a_key_that_is_removed_too_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnSigner, "is_hasty", True)
    count = Run("maptr", 2, 1, Lifetimes(zsk=1, ksk=1), tmp_path).run(lambda text: None)
    assert any("fresh Unbound" in fault and "SERVFAIL" in fault for fault in count.faults), count.text()
