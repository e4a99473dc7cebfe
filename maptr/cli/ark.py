"""``maptr ark``: the normal form and the parts of ARKs, without a lookup."""

from __future__ import annotations

import os
import sys

import click

from maptr.ark import Ark, Profile, find_arks
from maptr.cli import options, output
from maptr.cli.group import command
from maptr.cli.output import Painted
from maptr.errors import NOT_UTF8, ArkSyntaxError, error_fields


@command(
    exits={
        0: "every TEXT is an ARK; with --find: contains one",
        2: "bad usage, or a TEXT is not an ARK; with --find: contains none",
    }
)
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...")
@click.option("--find", is_flag=True, help="Find every ARK in each TEXT, which is prose.")
@options.PROFILE_OPTION
@options.JSON_EACH_OPTION
def ark(texts: tuple[str, ...], find: bool, profile: Profile, as_json: bool) -> None:
    """Parse each TEXT as an ARK and show its normal form and its parts. DNS is not used.

    A bare NAAN (ark:12345) is accepted. The TEXT - is standard input.

    \b
    Examples:
      maptr ark https://example.org/ark:/12345/x6np1wh8k/c3.pdf
      maptr ark --find "See ark:12345/x5-4 (and ark:12345/x6)."
      pdftotext report.pdf - | maptr ark --find -
    """
    code = output.EXIT_OK
    for text in texts:
        received = output.standard_input().read().decode("utf-8", "replace") if text == "-" else text
        shown = None if find else received
        try:
            arks = find_arks(received, profile=profile) if find else [Ark.parse(received, profile=profile, bare=True)]
            if not arks:
                raise ArkSyntaxError(f"no ARK in the text{_why_none(received)}")
        except ArkSyntaxError as error:
            code = output.EXIT_USAGE
            output.error(str(error))
            if as_json:
                output.json_data({"ark": None, "received": shown, **error_fields(error)})
            continue
        for parsed in arks:
            if as_json:
                output.json_data({**parsed.to_dict(), "received": shown, **error_fields(None)})
            else:
                output.data(Painted(str(parsed), output.STRONG))
                for label, value in _rows(parsed).items():
                    if value:
                        output.data(Painted(f"  {label}:", output.MINOR), " " * (16 - len(label)), value)
    sys.exit(code)


_SCOPES = {
    "naan": "NAAN and name",
    "name": "the name alone",
    "both": "NAAN and name, and over the name alone",
}


def _why_none(text: str) -> str:
    """Return why a text may have no ARK: it is a file's name, or bytes in another encoding or format."""
    if "\0" in text:
        return f", which is {NOT_UTF8}"
    return f": to read the file, write: - < {text}" if os.path.isfile(text) else ""  # noqa: PTH113 - False if not a path


def _rows(parsed: Ark) -> dict[str, str]:
    """Return the parts of an ARK by their labels; "" for one that is not present."""
    parts = parsed.to_dict()
    check = "none, or wrong" if parsed.name[:-1] else ""
    if scope := parsed.check_scope:
        check = f"{parts['check_character']}, correct over {_SCOPES[scope]}"
    return {
        "resolution form": parts["resolution"] if parts["resolution"] != parts["ark"] else "",
        "NMA": parts["nma"],
        "NAAN": f"{parsed.naan} ({parts['shared']})" if parts["shared"] else parsed.naan,
        "name": parts["name"],
        "shoulder": parts["shoulder"],
        "blade": parts["blade"] if parts["shoulder"] else "",
        "qualifier": parts["qualifier"],
        "inflection": parts["inflection"],
        "query": parts["query"],
        "check character": check,
        "note": "; ".join(parsed.notes),
    }
