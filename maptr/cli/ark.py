"""``maptr ark``: what a text says as an ARK, without asking anyone."""

from __future__ import annotations

import sys
from typing import Any

import click

from maptr.ark import Ark, Profile, check_character, find_arks
from maptr.cli import output, shared
from maptr.errors import ArkSyntaxError


@click.command(
    epilog="""
\b
Exit codes:
  0  every TEXT is an ARK, or has one with --find
  2  bad usage: a TEXT that is not an ARK, or has none with --find
"""
)
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...")
@click.option("--find", is_flag=True, help="Each TEXT is prose: show every ARK in it.")
@shared.PROFILE_OPTION
@click.option("--json", "as_json", is_flag=True, help="One JSON document for each ARK.")
def ark(texts: tuple[str, ...], find: bool, profile: Profile, as_json: bool) -> None:
    """Parse each TEXT as an ARK and show its normal form and its parts. Nothing is asked of DNS.

    A bare NAAN (ark:12345) is accepted. TEXT - is standard input.

    \b
    Examples:
      maptr ark https://example.org/ark:/12345/x6np1wh8k/c3.pdf
      maptr ark --find "See ark:12345/x5-4 (and ark:12345/x6)."
    """
    code = output.EXIT_OK
    for text in texts:
        received = output.standard_input().read().decode("utf-8", "replace") if text == "-" else text
        try:
            arks = _read(received, find, profile)
        except ArkSyntaxError as error:
            code = output.EXIT_USAGE
            output.talk(f"maptr: {error}")
            if as_json:
                output.json_data({"ark": None, "received": None if find else received, "error": str(error)})
            continue
        for parsed in arks:
            if as_json:
                output.json_data({**_document(parsed), "received": None if find else received, "error": None})
            else:
                output.data("\n".join(_lines(parsed)))
    sys.exit(code)


def _read(text: str, find: bool, profile: Profile) -> list[Ark]:
    if not find:
        return [Ark.parse(text, profile=profile, bare=True)]
    found = find_arks(text, profile=profile)
    if not found:
        raise ArkSyntaxError("no ARK in the text")
    return found


def _document(parsed: Ark) -> dict[str, Any]:
    shared_naan = parsed.shared
    return {
        "ark": str(parsed),
        "resolution": parsed.resolution,
        "naan": parsed.naan,
        "shared": shared_naan.meaning if shared_naan else None,
        "name": parsed.name,
        "shoulder": parsed.shoulder,
        "blade": parsed.blade,
        "qualifier": parsed.qualifier,
        "components": list(parsed.components),
        "variants": list(parsed.variants),
        "inflection": parsed.inflection,
        "query": parsed.query,
        "nma": parsed.nma,
        "check": parsed.check(),
        "check_character": check_character(f"{parsed.naan}/{parsed.name[:-1]}") if parsed.name[:-1] else None,
        "notes": list(parsed.notes),
    }


def _lines(parsed: Ark) -> list[str]:
    """For people: the normal form, then each part that is there."""
    told = _document(parsed)
    expected = told["check_character"]
    rows = {
        "resolution form": told["resolution"] if told["resolution"] != told["ark"] else "",
        "NMA": told["nma"],
        "NAAN": f"{parsed.naan} ({told['shared']})" if told["shared"] else parsed.naan,
        "name": told["name"],
        "shoulder": told["shoulder"],
        "blade": told["blade"] if told["shoulder"] else "",
        "qualifier": told["qualifier"],
        "inflection": told["inflection"],
        "query": told["query"],
        "check character": "",
        "note": "; ".join(parsed.notes),
    }
    if expected is not None:
        rows["check character"] = (
            f"{expected}, correct" if told["check"] else f"none, or wrong: after {parsed.name[:-1]} it is {expected}"
        )
    return [str(parsed), *(f"  {label + ':':<17}{value}" for label, value in rows.items() if value)]
