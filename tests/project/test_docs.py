"""The pages give the limits, defaults and exit codes that the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from maptr import ark, discovery, url, walk
from maptr.cli import output
from maptr.client import call, referral
from maptr.client.validation import nsec3, signed
from maptr.naptr import record
from maptr.protocol.numbers import UDP_PAYLOAD
from maptr.registry import plan, records, sandbox, table
from maptr.zone import build, rulecheck

DOCS = Path(__file__).resolve().parents[2] / "docs"


def rows(page: str) -> dict[str, str]:
    """The tables of a page that have two columns: first cell to second."""
    found = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", (DOCS / page).read_text("utf-8"), re.MULTILINE)
    return {first.strip(): second.strip() for first, second in found}


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("redirects on one path", walk.MAX_DEPTH),
        ("queries in one walk", walk.MAX_QUESTIONS),
        ("candidates kept", walk.MAX_CANDIDATES),
        ("records read in one walk", walk.MAX_RECORDS),
        ("steps of compiling and matching", discovery.REGEXP_STEPS),
        ("seconds for one walk", call.LIFETIME),
        ("bytes of a UDP response", UDP_PAYLOAD),
        ("bytes of a regexp field", record.MAX_STRING),
        ("bytes of a URL", url.MAX_URL),
        ("characters of an ARK", ark.MAX_TEXT),
        ("referrals followed", referral.MAX_REFERRALS),
        ("seconds of the TTL of a zone's records", build.TTL),
        ("seconds of the TTL of its negative", build.MINIMUM),
        ("records at one name", rulecheck.MAX_RRSET),
        ("records of a registry", records.MAX_ENTRIES),
        ("bytes of a registry", table.MAX_TABLE),
        ("share of a table", plan.REMOVAL_LIMIT),
        ("seconds in which a pulled registry", sandbox.SECONDS),
        ("bytes of memory for parsing", sandbox.MEMORY),
        ("signature checks", signed.MAX_CHECKS),
        ("NSEC3 iterations", nsec3.INSECURE_ITERATIONS),
    ],
)
def test_limits_of_discovery_and_zones(limit: str, value: float) -> None:
    (shown,) = [shown for name, shown in rows("maptr.md").items() if name.startswith(limit)]
    assert float(shown.replace(",", "")) == value


def test_exit_codes() -> None:
    codes = {value for name, value in vars(output).items() if name.startswith("EXIT_")}
    assert {int(code) for code in rows("maptr.md") if code.isdigit()} == codes
