"""``maptr redirects``: check, import and export the file of a gateway's own objects."""

from __future__ import annotations

import csv
import os
import secrets
import sys
import tempfile
from contextlib import ExitStack, suppress
from io import StringIO
from itertools import chain
from pathlib import Path
from shutil import copyfileobj, rmtree

import click

from maptr.cli import options, output
from maptr.cli.group import Group
from maptr.cli.output import counted
from maptr.errors import ConfigError, cell, printable
from maptr.files import flush_to_disk, naming
from maptr.gateway.objects import COLUMNS, RowError, to_row
from maptr.gateway.redirects import ObjectStore, check_loss, read, stored

_FILE = click.argument("file", type=options.FILE_OR_STDIN)
_ALLOW_PRIVATE = click.option("--allow-private", is_flag=True, help="Allow hosts that are not public, too.")


@click.group(cls=Group)
def redirects() -> None:
    """Check, import and export the redirects of single ARKs, which maptr gateway serves (gateway.redirects).

    A file has the columns ark and url, and may have: status (302, 303 or 307; 410 without a URL for an object that is
    gone), reason (why it is gone), who, what and when (its description, for ?info), and suffix (no: longer ARKs are not
    passed on). Any other column is kept, and public in descriptions as JSON; check and import name it, because
    its heading may be mistyped or translated.
    """


@redirects.command(
    short_help="List the errors in a file of redirects.", exits={0: "no errors", 1: "errors", 8: "FILE cannot be read"}
)
@_FILE
@_ALLOW_PRIVATE
@options.JSON_OPTION
def check(file: Path, allow_private: bool, as_json: bool) -> None:
    """List the errors in FILE, a CSV or a SQLite database, each as "FILE:LINE: reason".

    FILE is - for standard input. The line of a database is the number of the row. A summary goes to standard error.

    \b
    Example:
      maptr redirects check redirects.csv
    """
    store, bad = _read(file, allow_private=allow_private)
    if as_json:
        errors = [{"line": error.line, "reason": error.reason} for error in bad]
        unused = store.unused_columns()
        output.json_data({"file": str(file), "redirects": len(store), "unused_columns": unused, "errors": errors})
    else:
        for error in bad:
            output.data(str(error))
        _name_unused(store)
        output.inform(f"{counted(len(store), 'redirect')}, {counted(len(bad), 'error')}")
    sys.exit(output.EXIT_NONE if bad else output.EXIT_OK)


@redirects.command(
    "import",
    short_help="Make the database of a file of redirects.",
    exits={0: "written", 1: "a row is bad, or too many would be lost; nothing is written", 8: "a file cannot be used"},
)
@_FILE
@options.output_option("Write the database to FILE, atomically.")
@_ALLOW_PRIVATE
@click.option("--force", is_flag=True, help="Replace a database even if more than 30 % of its redirects would be lost.")
@click.option("--overwrite", is_flag=True, help="Replace a file that maptr redirects import did not write.")
@options.QUIET_OPTION
def import_(file: Path, target: Path | None, allow_private: bool, force: bool, overwrite: bool, quiet: bool) -> None:
    """Write the redirects in FILE, a CSV or a SQLite database, into a database in which the gateway looks up each ARK.

    All errors are listed as by check, and then nothing is written. The new database replaces the old one at once, and a
    gateway uses it within a second. The last line says how many ARKs were added, removed and changed.

    \b
    Example:
      maptr redirects import redirects.csv -o redirects.sqlite
    """
    if target is None:
        raise click.UsageError("the database cannot be standard output: give -o FILE")
    options.refuse_input(target, [file])
    old = _previous(target, overwrite=overwrite)
    real = Path(os.path.realpath(target))  # the file behind a link, as everywhere
    aside = real.with_name(f".{target.name}.{secrets.token_hex(4)}")
    beside = aside / target.name
    try:
        with naming(target):
            aside.mkdir(mode=0o700)
        store = read_good(file, str(beside), allow_private=allow_private)
        changes = ""
        if old is not None:
            try:
                if not force:
                    check_loss(old, store, target)
            except ConfigError as error:
                output.fail(f"{error} (--force overrides)", output.EXIT_NONE)
            with suppress(ConfigError):  # the old one was damaged meanwhile
                changes = " ({} added, {} removed, {} changed)".format(*store.changes(real))
        with naming(target):
            beside.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o644)
            flush_to_disk(beside)
            beside.replace(real)
            flush_to_disk(real.parent)
    finally:
        rmtree(aside, ignore_errors=True)
    if not quiet:
        _name_unused(store)
        output.inform(f"{target}: {counted(len(store), 'redirect')}{changes}")


@redirects.command(
    short_help="Write a file of redirects as CSV.",
    exits={0: "written", 1: "a row is bad; nothing is written", 8: "a file cannot be used"},
)
@_FILE
@options.output_option("Write to FILE, atomically.  [default: standard output]")
@_ALLOW_PRIVATE
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
def export(file: Path, target: Path | None, allow_private: bool, overwrite: bool) -> None:
    """Write the redirects in FILE as CSV, with all columns, sorted by ARK. maptr redirects import reads it again.

    \b
    Example:
      maptr redirects export redirects.sqlite -o redirects.csv
    """
    options.refuse_input(target, [file])
    options.refuse_foreign(target, overwrite=overwrite)
    store = read_good(file, allow_private=allow_private)
    columns = [*COLUMNS, *(name for name in store.columns() if name not in COLUMNS)]
    text = StringIO(newline="")
    plain = csv.writer(text, lineterminator="\n")
    quoting = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)  # Python 3.11 and 3.12 write a lone \r bare
    rows = ([cell(row.get(name, "")) for name in columns] for row in map(to_row, store.every()))
    for cells in chain([columns], rows):
        (quoting if "\r" in "".join(cells) else plain).writerow(cells)
    options.write(target, text.getvalue())


def read_good(file: Path, database: str = "", *, allow_private: bool = False) -> ObjectStore:
    """Return the redirects of a file, as ``stored`` does. Exits if one of its rows is bad, with all errors."""
    store, bad = _read(file, database, allow_private=allow_private)
    for error in bad:
        output.inform(str(error))
    if bad:
        output.fail(f"{counted(len(bad), 'error')}; nothing is written", output.EXIT_NONE)
    return store


def _read(file: Path, database: str = "", *, allow_private: bool) -> tuple[ObjectStore, list[RowError]]:
    """Return the redirects of a file or of standard input, and the bad rows. Exits if it cannot be read."""
    bad: list[RowError] = []
    name = options.input_name(str(file))

    def take(error: RowError) -> None:
        bad.append(RowError(error.reason, filename=name, line=error.line))

    with ExitStack() as stack:
        if str(file) == "-":  # a file is opened twice
            copy = stack.enter_context(tempfile.NamedTemporaryFile())
            copyfileobj(output.standard_input(), copy)
            copy.flush()
            file = Path(copy.name)
        try:
            with output.progress("reading the redirects"):
                store = stored(file, take, database, allow_private=allow_private)
        except ConfigError as error:
            for each in bad:
                output.inform(str(each))
            output.fail(str(ConfigError(error.reason, filename=name, line=error.line)), output.EXIT_UNREADABLE)
    return store, sorted(bad, key=lambda error: error.line)


def _name_unused(store: ObjectStore) -> None:
    if unused := store.unused_columns():
        output.inform(f"without a meaning, but public in descriptions as JSON: {printable(', '.join(unused))}")


def _previous(target: Path, *, overwrite: bool) -> ObjectStore | None:
    """Return the database that will be replaced; None if there is none. Raises UsageError for another file."""
    with suppress(ConfigError):
        objects = read(target, allow_private=True).objects
        if isinstance(objects, ObjectStore) and objects.is_file:
            return objects
    options.refuse_foreign(target, overwrite=overwrite)
    return None
