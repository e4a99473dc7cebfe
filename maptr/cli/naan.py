"""``maptr naan``: what the registry and DNS say about an organisation and its ARKs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from maptr import paths
from maptr.ark import Ark
from maptr.cache import DNS_ONLY
from maptr.cli import lookup, options, output
from maptr.cli.group import command
from maptr.cli.lookup import LookupOptions
from maptr.cli.output import Painted
from maptr.client import Client
from maptr.discovery import BUILT_IN, Discovery, DiscoveryError
from maptr.errors import ArkSyntaxError, printable
from maptr.registry import builtin
from maptr.registry.followed_file import TableState, WatchedTable
from maptr.registry.found import NAMES
from maptr.registry.json_records import write_record
from maptr.registry.search import NaanIndex
from maptr.registry.table import Entry, Table

if TYPE_CHECKING:
    from maptr.config import Config

MAX_LISTED = 50  # NAANs of one search


@command(exits={0: "found", 1: "the table has no such NAAN or organisation", 8: "the table cannot be read"})
@click.argument("words", nargs=-1, required=True, metavar="NAAN|ARK|NAME... [@SERVER[#PORT]]...")
@options.TABLE_OPTION
@options.ORIGIN_OPTION
@options.lifetime_option("DNS is asked for no longer than this.")
@options.CONFIG_OPTION
@options.json_option("Print one JSON document for each match.")
def naan(words: tuple[str, ...], file: str | None, config: str | None, as_json: bool, **given: Any) -> None:
    """Show who has a NAAN, since when, where its ARKs go, its shoulders, and what DNS says.

    The words are a NAAN, one of its ARKs, or an organisation's acronym or part of its name, in any case, with or
    without accents. Several matches are listed, one per line: NAAN, acronym, name. @SERVER asks this DNS server instead
    of the system's resolver.

    \b
    Examples:
      maptr naan 12148
      maptr naan bnf
      maptr naan national library
    """
    others, servers = lookup.split_servers(words)
    if not " ".join(others).strip():
        raise click.UsageError("no NAAN, ARK or name given")
    known = lookup.read_config(config)
    output.show_log()
    if file is None:
        state = lookup.found_table(known, lookup.ORIGIN).current()  # an organisation has its NAAN under any origin
    else:
        state = _read(file, lookup.scheme_of(None, known))
    table = state.table or Table()
    text = " ".join(others)
    key = _naan_of(text)
    found = [table[key]] if key in table else NaanIndex(table).search(text)
    if not found and key in {each.partition("/")[0] for each in table}:
        found = [Entry(key)]
    if not found:
        newer = "; maptr table pull --apply gets today's registry" if state.kind == BUILT_IN else ""
        output.fail(f"{text}: the {NAMES[state.kind]} table has no such NAAN or organisation{newer}", output.EXIT_NONE)
    said = _ask(found[0].naan, servers, LookupOptions.of(given), known) if len(found) == 1 else None
    for entry in found[:MAX_LISTED]:
        if as_json:
            _show_json(entry, table, state, said)
        elif len(found) == 1:
            _show(entry, table, state, said)
        else:
            output.data("\t".join(map(printable, (entry.naan, entry.who.acronym or "", entry.who.name))))
    if len(found) > MAX_LISTED:
        output.inform(f"{len(found) - MAX_LISTED} more matches: give more words")


def _read(file: str, scheme: str) -> TableState:
    """Return the table in a file, with its dates, or that of standard input. Raises TableError and OSError."""
    table = options.read_table(file, scheme)[0]  # raises an error that says what is wrong
    if file == "-":
        return TableState(table)
    if file == paths.BUILT_IN_FILE:
        return builtin.state()
    return WatchedTable(file, clock=time.monotonic, scheme=scheme).current()


def _naan_of(text: str) -> str:
    """Return the NAAN of an ARK, or the text in lower case."""
    try:
        return Ark.parse(text, bare=True).naan if ":" in text else text.lower().strip("/")
    except ArkSyntaxError:
        return text.lower()


def _ask(naan: str, servers: list[str], given: LookupOptions, config: Config | None) -> Discovery:
    client_options = lookup.client_options(given, config) | {"policy": DNS_ONLY, "table": None}
    try:
        with Client(lookup.servers_of(servers, config) or None, **client_options) as client:
            return client.discover(Ark(naan, ""), raise_on_none=False)
    except DiscoveryError as error:
        return error.discovery


def _show_json(entry: Entry, table: Table, state: TableState, said: Discovery | None) -> None:
    output.json_data(
        {
            "naan": entry.naan,
            "entry": write_record(entry) if entry.naan in table else None,
            "shoulders": [write_record(each) for each in table.shoulders(entry.naan)],
            "table": state.kind,
            "fetched": state.fetched,
            "date": state.date,
            "dns": None if said is None else said.to_dict(),
        }
    )


def _show(entry: Entry, table: Table, state: TableState, said: Discovery | None) -> None:
    def line(label: str, text: str) -> None:
        output.data(Painted(f"{label:10}", output.MINOR), f" {printable(text)}")

    who, policy = entry.who, entry.policy
    line("NAAN", entry.naan)
    if who.name:
        line("who", f"{who.name}{f' ({who.acronym})' if who.acronym else ''}")
    if entry.when:
        line("since", entry.when)
    if policy.policy or policy.url:
        line("policy", " ".join(filter(None, (policy.policy, policy.url))))
    for nma in entry.nmas:
        line("ARKs go to", nma.target)
    for each in table.shoulders(entry.naan):
        name = f", {each.who.name}" if each.who.name else ""
        line("shoulder", f"{each.shoulder}: {', '.join(nma.target for nma in each.nmas)}{name}")
    day = "" if state.date is None else f" of {lookup.day_text(state.date)}"
    is_known = state.fetched is not None and state.kind != BUILT_IN
    confirmed = f", confirmed {lookup.day_text(state.fetched or 0.0)}" if is_known else ""
    line("table", f"{NAMES[state.kind]}{day}{confirmed}")
    if said is not None:
        step = next((step.ended + step.remark for step in said.trace), said.reason)
        line("DNS", ", ".join(said.urls()) or step)
