"""Liveness of mapping authorities, from the results of probes."""

from __future__ import annotations

import pytest

from maptr.registry.liveness import SUSPECT_AFTER, TRUSTED_FOR, Liveness, place_in, places_of
from maptr.registry.table import Entry, Nma, Table

PLACE = "https://a.example"


@pytest.mark.parametrize(
    ("answered", "failures"), [((), 0), ((True,), 0), ((False,), 1), ((False, True), 0), ((True, False, False), 2)]
)
def test_failures_are_counted_since_the_last_answer(answered: tuple[bool, ...], failures: int) -> None:
    found = Liveness.of(PLACE, [(float(at), one, "x") for at, one in enumerate(answered)])
    assert found.failures == failures
    assert not found.is_suspect(10.0), "one or two unanswered probes are not enough"


def test_a_place_is_suspect_for_a_week() -> None:
    found = Liveness.of(PLACE, [(float(at), False, "x") for at in range(SUSPECT_AFTER)])
    assert (found.since, found.at) == (0.0, SUSPECT_AFTER - 1.0)
    assert found.is_suspect(TRUSTED_FOR)
    assert not found.is_suspect(TRUSTED_FOR + SUSPECT_AFTER)
    assert not found.is_suspect(-2 * TRUSTED_FOR), "the clock was wrong when the probes were sent"


def test_the_places_of_a_table() -> None:
    several = Table(
        [
            Entry("1000", nmas=(Nma("https://A.example:8443/x/${content}"), Nma("http://b.example/${value}"))),
            Entry("2000", nmas=(Nma("https://a.example:8443/y"), Nma("N/A"), Nma("ftp://c.example/"))),
        ]
    )
    assert places_of(several) == ["https://a.example:8443", "http://b.example"]
    assert places_of(several, ["2000"]) == ["https://a.example:8443"]
    assert place_in("http://[2001:DB8::1]:80/x") == "http://[2001:db8::1]:80"
