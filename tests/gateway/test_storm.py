"""Full rate while DNS is killed, table and redirects are broken, and the gateway is reloaded; see ``storm``."""

from __future__ import annotations

from pathlib import Path

from tests.support.storm import EXPECTED, storm


def test_a_storm_causes_no_wrong_redirect_and_no_error(tmp_path: Path) -> None:
    with storm(tmp_path) as raging:
        figures = raging.run(4)
    assert figures.faults == [], str(figures)
    assert {pattern for pattern, _ in figures.statuses} == {pattern for pattern, _, _ in EXPECTED}
    assert figures.changes.total() > 5
