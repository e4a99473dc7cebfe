"""``maptr redirects``: check, import and export the file of a gateway's own objects."""

from __future__ import annotations

import csv
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import StringIO
from itertools import chain
from pathlib import Path
from shutil import copyfileobj

import click

from maptr.cli import options, output
from maptr.cli.group import Group
from maptr.cli.output import counted
from maptr.cli.own_object import editor
from maptr.errors import ConfigError, cell, printable
from maptr.gateway.objects import COLUMNS, RowError, to_row
from maptr.gateway.redirects.changes import RefusedError
from maptr.gateway.redirects.importing import Missing, Staged, Terms
from maptr.gateway.redirects.rows import CHANGE, LockedFileError
from maptr.gateway.redirects.store import NotAStoreError, ObjectStore, open_store

_FILE = click.argument("file", type=options.FILE_OR_STDIN)
_ALLOW_PRIVATE = click.option("--allow-private", is_flag=True, help="Also allow hosts that are not public.")
_UNENDED = click.option("--unended", is_flag=True, help="Accept a last line without a line end.")

_OBJECT = "maptr.cli.own_object"


@click.group(
    cls=Group,
    lazy={
        "set": (_OBJECT, "set_", "Register an ARK, or change its URL or description."),
        "withdraw": (_OBJECT, "withdraw", "Mark an object as gone (410)."),
        "restore": (_OBJECT, "restore", "Let a withdrawn object redirect again."),
        "show": (_OBJECT, "show", "Show the row of an ARK."),
        "compare": ("maptr.cli.compare", "compare", "Compare the answers of a running resolver with a file."),
        "probe": ("maptr.cli.probe", "probe", "Check whether the URLs of own objects answer."),
        "history": (_OBJECT, "history", "Show what was changed, when and by whom."),
    },
)
def redirects() -> None:
    """Change a gateway's own objects (gateway.redirects): the redirects of single ARKs, in a store or a CSV.

    import makes a store, a SQLite database, from a CSV; the other commands change and show single objects in it.

    A CSV has the columns ark and url, and may have: status (302, 303 or 307; 410 without a URL for an object that is
    gone), reason (why it is gone), replaced_by, authority and withdrawn (what replaces it, who withdrew it and when),
    who, what and when (its description, for ?info), and suffix (no: longer ARKs are not passed on). Any other column is
    kept, but not public unless import --public names it; check and import list it, because its heading may be
    mistyped or translated.
    """


@redirects.command(
    short_help="List the errors in a file of redirects.", exits={0: "no errors", 1: "errors", 8: "FILE cannot be read"}
)
@_FILE
@_ALLOW_PRIVATE
@_UNENDED
@options.JSON_OPTION
def check(file: Path, allow_private: bool, unended: bool, as_json: bool) -> None:
    """List the errors in FILE, a CSV, a store or another SQLite database, each as "FILE:LINE: reason".

    FILE is - for standard input. For a database, LINE is the row number. A summary goes to standard error.

    \b
    Example:
      maptr redirects check redirects.csv
    """
    store, bad = _read(file, allow_private=allow_private, unended=unended)
    if as_json:
        errors = [{"line": error.line, "reason": error.reason} for error in bad]
        others = list(store.other_columns())
        about = {"file": str(file), "redirects": len(store), "unused_columns": others, "unindexed": store.unindexed}
        output.json_data({**about, "errors": errors})
    else:
        for error in bad:
            output.data(str(error))
        _tell(store)
        output.inform(f"{counted(len(store), 'redirect')}, {counted(len(bad), 'error')}")
    sys.exit(output.EXIT_NONE if bad else output.EXIT_OK)


@redirects.command(
    "import",
    short_help="Put a file of redirects into a store.",
    exits={
        0: "written",
        1: "a row is bad, or ARKs would be lost, and nothing is written; or rows were kept that commands have changed",
        8: "a file cannot be used",
    },
)
@_FILE
@options.output_option("Write the store to FILE, atomically.")
@_ALLOW_PRIVATE
@_UNENDED
@click.option("--remove", is_flag=True, help="Remove from the store what FILE lacks.")
@click.option("--withdraw-missing", is_flag=True, help="Mark the objects that FILE lacks as gone (410).")
@click.option("--force", is_flag=True, help="Do so even if that is more than 30 % of the store.")
@click.option(
    "--base",
    type=click.IntRange(0),
    metavar="N",
    help="FILE is based on change N of the store: keep the rows that commands have changed since.  [default: its "
    "column change, else the last import]",
)
@click.option(
    "--overwrite", is_flag=True, help="Overwrite rows that commands have changed; replace a file that is not a store."
)
@click.option("--public", multiple=True, metavar="COLUMN", help="Show this column in descriptions, from now on.")
@click.option("--private", multiple=True, metavar="COLUMN", help="Stop showing it.")
@click.option("--by", metavar="NAME", help="Name this editor in the history.  [default: the user]")
@options.QUIET_OPTION
def import_(
    file: Path,
    target: Path | None,
    allow_private: bool,
    unended: bool,
    remove: bool,
    withdraw_missing: bool,
    force: bool,
    base: int | None,
    overwrite: bool,
    public: tuple[str, ...],
    private: tuple[str, ...],
    by: str | None,
    quiet: bool,
) -> None:
    """Put the redirects in FILE, a CSV or a SQLite database, into a store, in which the gateway looks up each ARK.

    Errors are listed as by check, and nothing is written if there are any. The new store replaces the old one at once,
    and a gateway uses it within a second. The last line says how many ARKs were added, removed and changed.

    If FILE lacks ARKs of the store, it is refused, unless an option says what to do with them. A row that a command
    (set, withdraw, restore) has changed since is kept and named.

    \b
    Example:
      maptr redirects import redirects.csv -o redirects.sqlite
    """
    if target is None:
        raise click.UsageError("the store cannot be standard output: give -o FILE")
    if remove and withdraw_missing:
        raise click.UsageError("give one of --remove and --withdraw-missing")
    options.refuse_input(target, [file])
    is_store = _is_store(target, overwrite=overwrite)
    missing = Missing.REMOVE if remove else Missing.WITHDRAW if withdraw_missing else Missing.REFUSE
    terms = Terms(
        base=base,
        overwrite=overwrite,
        missing=missing,
        force=force,
        by=editor(by),
        public=public,
        private=private,
        note=Path(options.input_name(str(file))).name,
    )
    bad: list[RowError] = []
    with _staged(file, target, bad, allow_private=allow_private, unended=unended) as staged:
        _end_if_bad(bad)
        try:
            done = staged.put(terms, is_first=not is_store)
        except RefusedError as error:
            output.fail(f"{target}: {error}", output.EXIT_NONE)
        except ConfigError as error:
            output.fail(str(error), output.EXIT_UNREADABLE)
    for ark in done.kept:
        output.inform(f"{ark}: kept, because a command has changed it since (--overwrite takes the file's row)")
    if not quiet:
        _tell(open_store(target, allow_private=allow_private))
        withdrawn = f"{done.withdrawn} withdrawn, " if done.withdrawn else ""
        counts = f" ({done.added} added, {done.removed} removed, {withdrawn}{done.changed} changed)"
        output.inform(f"{target}: {counted(done.total, 'redirect')}{'' if done.is_first else counts}")
    sys.exit(output.EXIT_NONE if done.kept else output.EXIT_OK)


@redirects.command(
    short_help="Write a file of redirects as CSV.",
    exits={0: "written", 1: "a row is bad; nothing is written", 8: "a file cannot be used"},
)
@_FILE
@options.output_option("Write to FILE, atomically.  [default: standard output]")
@_ALLOW_PRIVATE
@_UNENDED
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
def export(file: Path, target: Path | None, allow_private: bool, unended: bool, overwrite: bool) -> None:
    """Write the redirects in FILE as CSV, with all columns, sorted by ARK. maptr redirects import can read it.

    Rows of a store have the number of their last change in the column change: an import keeps what was changed since.

    \b
    Example:
      maptr redirects export redirects.sqlite -o redirects.csv
    """
    options.refuse_input(target, [file])
    options.refuse_foreign(target, overwrite=overwrite)
    store, bad = _read(file, allow_private=allow_private, unended=unended)
    _end_if_bad(bad)
    columns = [*COLUMNS, *store.other_columns()]
    is_numbered = store.filename == str(file)  # and not made from a file
    text = StringIO(newline="")
    plain = csv.writer(text, lineterminator="\n")
    quoting = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)  # Python 3.11 and 3.12 write a lone \r bare
    header = [cell(name) for name in columns] + [CHANGE] * is_numbered
    rows = (_cells(to_row(one), columns) + [str(change)] * is_numbered for one, change in store.every_change())
    for cells in chain([header], rows):
        (quoting if "\r" in "".join(cells) else plain).writerow(cells)
    options.write(target, text.getvalue())


def _cells(row: Mapping[str, str], columns: list[str]) -> list[str]:
    return [cell(row.get(name, "")) for name in columns]


def read_good(file: Path, *, allow_private: bool = False) -> ObjectStore:
    """Return the redirects of a file. Exits if one of its rows is bad, with all errors."""
    store, bad = _read(file, allow_private=allow_private)
    _end_if_bad(bad)
    return store


def _end_if_bad(bad: list[RowError]) -> None:
    for error in bad:
        output.inform(str(error))
    if bad:
        output.fail(f"{counted(len(bad), 'error')}; nothing is written", output.EXIT_NONE)


def _read(file: Path, *, allow_private: bool, unended: bool = False) -> tuple[ObjectStore, list[RowError]]:
    """Return the redirects of a file or of standard input, and the bad rows. Exits if it cannot be read."""
    bad: list[RowError] = []
    if str(file) != "-":
        try:
            store = open_store(file, allow_private=allow_private)
            bad = [RowError(reason, filename=str(file), line=number) for number, reason in store.faults()]
            return store, sorted(bad, key=lambda error: error.line)
        except NotAStoreError:  # another database, or a CSV
            pass
        except ConfigError as error:
            output.fail(str(error), output.EXIT_UNREADABLE)
    with tempfile.TemporaryDirectory(prefix="maptr-") as folder:
        target = Path(folder) / "own.sqlite"
        with _staged(file, target, bad, allow_private=allow_private, unended=unended) as staged:
            staged.put(Terms())
        return open_store(target, allow_private=allow_private), bad


@contextmanager
def _staged(file: Path, target: Path, bad: list[RowError], *, allow_private: bool, unended: bool) -> Iterator[Staged]:
    """Read the rows of a file or of standard input, and put bad ones into ``bad``. Exits if it cannot be read."""
    name = options.input_name(str(file))
    with ExitStack() as stack:
        if str(file) == "-":  # a file is read twice
            copy = stack.enter_context(tempfile.NamedTemporaryFile())
            copyfileobj(output.standard_input(), copy)
            copy.flush()
            file = Path(copy.name)
        try:
            with output.progress("reading the redirects"):
                made = Staged(file, target, bad.append, allow_private=allow_private, unended=unended, name=name)
                staged = stack.enter_context(made)
        except ConfigError as error:
            for each in bad:
                output.inform(str(each))
            where = (
                str(error)
                if error.filename != str(file)
                else str(ConfigError(error.reason, filename=name, line=error.line))
            )
            output.fail(where, output.EXIT_UNREADABLE)
        bad.sort(key=lambda error: error.line)
        yield staged


def _tell(store: ObjectStore) -> None:
    for line in noted(store.other_columns()):
        output.inform(line)
    if store.unindexed:
        output.inform(f"a search finds them by the beginning of their ARK only: {store.unindexed}")


def noted(others: Mapping[str, bool]) -> Iterator[str]:
    """Yield the lines about extra columns, those that are not public first."""
    for is_public, what in ((False, "kept, and not public"), (True, "public in descriptions as JSON")):
        if names := [name for name, public in others.items() if public is is_public]:
            yield f"extra columns, {what}: {printable(', '.join(names))}"


def _is_store(target: Path, *, overwrite: bool) -> bool:
    """Return whether the target is a store, which will be changed. Raises UsageError for another file."""
    if not target.exists():
        return False
    if not target.is_file():
        raise click.UsageError(f"{target}: is not a regular file")
    try:
        open_store(target, allow_private=True)
    except LockedFileError:
        return True
    except ConfigError as error:
        if not overwrite and isinstance(error, NotAStoreError) and os.path.getsize(target):  # noqa: PTH202
            raise click.UsageError(f"{error} (--overwrite replaces it)") from None
        options.refuse_foreign(target, overwrite=overwrite)
        return False
    return True
