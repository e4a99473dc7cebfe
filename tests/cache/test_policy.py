"""What a cache answers for each policy and each state of DNS and table. docs/operator.md shows it for two policies.

``python -m tests.cache.test_policy`` rewrites the page's table.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from maptr.ark import Ark
from maptr.cache import DNS_ONLY, POLICIES
from maptr.discovery import Discovery, DiscoveryError
from maptr.registry.followed_file import WatchedTable
from tests.support.caching import ARK, HOME, ONE_HOST, SILENT, Clock, Rig, dns_answer, host, table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operator.md"
BEGIN, END = "<!-- policies: begin -->\n", "<!-- policies: end -->\n"

DNS = ("answers", "says none", "does not say", "does not say, older answer kept", "bogus")
NATAB = (
    "has it",
    "has not",
    "missing",
    "stale, has it",
    "stale, has not",
    "broken, had it",
    "broken, had not",
    "has it, unusable",
    "has it, unclear",
)
UNASKED = " \\*"  # no query was sent
OTHERS = """\
| dns-only | answers | DNS | DNS | DNS | DNS | DNS |
|  | says none | none | none | none | none | none |
|  | does not say; bogus | not known | not known | not known | not known | not known |
|  | does not say, older answer kept | DNS (stale) | DNS (stale) | DNS (stale) | DNS (stale) | DNS (stale) |
| natab-only | any | natab \\* | none \\* | not known \\* | natab (stale) \\* | natab (stale) \\* |
"""
HAS = "12345:\n    t.example.org  ACR\n"
UNUSABLE = "12345:\n    10.0.0.1  ACR\n"
HAS_NOT = "23456:\n    t.example.org  ACR\n"


def observe(policy: str, dns: str, natab: str, directory: Path) -> str:
    """The answer of a cache in words: its source, whether it is stale, and whether DNS was asked."""
    path = directory / "natab"
    if natab != "missing":
        path.write_text(
            UNUSABLE if natab.endswith(("unusable", "unclear")) else HAS_NOT if natab.endswith("not") else HAS
        )
    answer = dns_answer(host("d.example."))
    clock = Clock()
    table = WatchedTable(path, clock=clock)
    rig = Rig({HOME: answer}, table, policy, table_limit=100.0, patience=5.0, clock=clock)
    rig.wall.now = path.stat().st_mtime if path.exists() else rig.wall.now
    if dns == "does not say, older answer kept":
        rig.drift("12345")  # asks DNS with every policy
        clock.now += 301
    if natab.startswith("broken"):
        table.refresh()
        path.write_text("<html>Not the registry</html>")
        table.refresh()
    rig.wall.now += 101 if natab.startswith("stale") or natab.endswith("unclear") else 10
    rig.dns.answers[HOME] = {"answers": answer, "says none": dns_answer(), "bogus": answer}.get(dns, SILENT)
    rig.dns.security = "bogus" if dns == "bogus" else "indeterminate"
    before = len(rig.dns.asked)
    try:
        found: Discovery = rig.sources.discover(ARK)
    except DiscoveryError as error:
        found = error.discovery
    assert found.states is not None
    asked, table_state = (state.value for state in found.states)
    assert asked in (dns.replace(", older answer", ", an older answer is"), "not asked")
    assert table_state in (natab, "not asked")
    if found:
        outcome = "natab" if found.source == "natab" else "DNS"
        assert found[0].host == ("t.example.org" if outcome == "natab" else "d.example")
        assert {candidate.source for candidate in found} == {outcome.lower()}
        outcome += " (stale)" if found.stale else ""
    else:
        outcome = "none" if found.complete else "not known"
    return outcome if len(rig.dns.asked) > before else outcome + UNASKED


def merged(lines: dict[str, list[str]]) -> dict[str, list[str]]:
    """The lines of a table, those with the same cells as one, which has all their names."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, cells in lines.items():
        names.setdefault(tuple(cells), []).append(name)
    return {"; ".join(same) if len(names) > 1 else "any": list(cells) for cells, same in names.items()}


def render(directory: Path) -> str:
    """The table of all policies, in which columns, and rows of a policy, that are the same are merged."""
    columns: dict[str, list[str]] = {}
    for natab in NATAB:
        columns[natab] = []
        for policy, dns in product(POLICIES, DNS):
            place = directory / f"{policy} {natab} {dns}"
            place.mkdir()
            columns[natab].append(observe(policy, dns, natab, place))
    columns = merged(columns)
    lines = [f"| policy | DNS | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
    cells = dict(zip(product(POLICIES, DNS), zip(*columns.values(), strict=True), strict=True))
    for policy in POLICIES:
        name: str = policy  # in the first row only
        for dns, row in merged({dns: list(cells[policy, dns]) for dns in DNS}).items():
            lines.append(f"| {name} | {dns} | {' | '.join(row)} |")
            name = ""
    return "".join(f"{line}\n" for line in lines)


def test_the_cache_answers_as_the_page_says(tmp_path: Path) -> None:
    printed = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    assert printed + OTHERS == render(tmp_path), "run python -m tests.cache.test_policy and read the difference"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_fresh_answer_that_is_kept_answers_only_if_dns_comes_first(policy: str) -> None:
    rig = Rig(ONE_HOST, table(("12345", "t.example")), policy)
    rig.sources.from_dns(Ark.parse(ARK))
    assert rig.sources.discover(ARK)[0].host == ("h.example" if policy.startswith("dns") else "t.example")


def main() -> None:
    import tempfile

    text = PAGE.read_text("utf-8")
    head, _, rest = text.partition(BEGIN)
    with tempfile.TemporaryDirectory() as directory:
        table = render(Path(directory)).partition(f"| {DNS_ONLY} ")[0]
        PAGE.write_text(f"{head}{BEGIN}{table}{END}{rest.partition(END)[2]}", "utf-8")


if __name__ == "__main__":
    main()
