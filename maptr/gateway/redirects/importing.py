"""Imports of whole files into a store of own objects.

An import writes a new file beside the store, while readers use the old one, and renames it. From the comparison of both
to the end it holds the writers' lock, so that no single change is lost; a writer that got the lock of a file that was
then replaced starts again (``changes.begun``).
"""

# ruff: noqa: S608 - only constants and numbers are put into statements

from __future__ import annotations

import enum
import fcntl
import json
import os
import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Self

from maptr.ark import Ark
from maptr.errors import ConfigError
from maptr.files import digest_of, flush_to_disk, locked, naming
from maptr.gateway.objects import COLUMNS, GONE, WITHDRAWAL, OwnObject, RowError, read_row
from maptr.gateway.redirects import words
from maptr.gateway.redirects.changes import (
    INSERT,
    ROW,
    RefusedError,
    StoreChange,
    alone,
    check_size,
    not_written,
    set_fact,
)
from maptr.gateway.redirects.rows import CHANGE, MAX_LINE, Row, read_rows
from maptr.gateway.redirects.store import NAMED, SCHEMA, facts_of, object_of, values_of
from maptr.registry.plan import REMOVAL_LIMIT

MAX_REDIRECTS = 5_000_000
TRACED = 10_000  # rows changed by one import that the trace lists one by one
FORMAT = 2  # of an import's result; if it differs, the file is imported again

_ASIDE = re.compile(r"\.[0-9a-f]{8}\Z")

OnBad = Callable[[RowError], None]


class Missing(enum.Enum):
    """What an import does with registered ARKs that its file lacks."""

    REFUSE = "refuse"
    REMOVE = "remove"
    WITHDRAW = "withdraw"
    KEEP = "keep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What an import may do. ``base``: the change number that its file is based on; None means the file's column, or
    the last import. ``only_public`` replaces ``public`` and ``private`` by a list of all public columns. ``follows`` is
    the CSV that the store follows."""

    base: int | None = None
    overwrite: bool = False
    missing: Missing = Missing.REFUSE
    force: bool = False
    by: str = ""
    public: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    only_public: Collection[str] | None = None
    follows: str = ""
    note: str = ""
    report: Mapping[str, object] = field(default_factory=dict)  # stored, because the store is opened without the file


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import did. ``kept`` are the ARKs whose rows it did not overwrite, because a command has changed them
    since; ``missing`` counts the ARKs that its file lacks and the store keeps."""

    total: int
    is_first: bool
    added: int = 0
    changed: int = 0
    removed: int = 0
    withdrawn: int = 0
    kept: tuple[str, ...] = ()
    missing: int = 0
    first_missing: tuple[str, ...] = ()


def fingerprint_of(path: Path, *, allow_private: bool) -> str:
    """Return what a store records about the file that it was made from. Raises OSError."""
    return f"{digest_of(path).hex()} {FORMAT} {int(allow_private)}"


class Staged:
    """The rows of a file, staged in a new store beside its target until ``put``. A context manager.

    ``name`` is the file's name in errors. Raises ConfigError. Bad rows, and second rows for an ARK, are passed to
    ``on_bad`` and left out.
    """

    def __init__(
        self,
        source: Path,
        target: Path,
        on_bad: OnBad,
        *,
        allow_private: bool = False,
        unended: bool = False,
        name: str = "",
    ) -> None:
        self._source = source
        self._name = name or str(source)
        self._target = Path(os.path.realpath(target))  # the file that a symbolic link leads to
        self._allow_private = allow_private
        self._on_bad = on_bad
        self._rows = read_rows(source, unended=unended)
        self.columns = [name for name in next(self._rows).cells if name != CHANGE]
        self._lacks = tuple(name for name in WITHDRAWAL if name not in self.columns)
        self._aside = self._target.with_name(f".{self._target.name}.{secrets.token_hex(4)}")
        self.path = self._aside / self._target.name
        self.count = 0
        self._second: dict[str, list[tuple[int, str]]] = {}

    def __enter__(self) -> Self:
        try:
            # Another import removes what has no lock, so that it must not look between these steps.
            with naming(self._target), locked(self._target.parent):
                _clear(self._target)
                self._aside.mkdir(mode=0o700)
                self._lock = os.open(self._aside, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                fcntl.flock(self._lock, fcntl.LOCK_EX)  # until the end
            self._connection = sqlite3.connect(self.path, isolation_level=None, uri=True)
            self._fill()
        except sqlite3.Error as error:
            self.__exit__()
            reason = f"its rows cannot be stored in {self._target.parent}: {error}"
            raise ConfigError(reason, filename=self._name) from None
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(AttributeError):
            self._connection.close()
        rmtree(self._aside, ignore_errors=True)
        with suppress(AttributeError, OSError):
            os.close(self._lock)

    def _fill(self) -> None:
        connection, source = self._connection, self._name
        self.fingerprint = fingerprint_of(self._source, allow_private=self._allow_private)
        connection.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {SCHEMA}")
        connection.execute("CREATE TEMP TABLE base (ark TEXT PRIMARY KEY NOT NULL, change INTEGER NOT NULL)")
        connection.execute("BEGIN")
        for row in self._rows:
            try:
                self._insert(row)
            except ValueError as error:
                self._on_bad(RowError(str(error), filename=source, line=row.number))
                continue
            self.count += 1
            if self.count > MAX_REDIRECTS:
                raise ConfigError(f"more than {MAX_REDIRECTS} redirects", filename=source)
        connection.execute("COMMIT")
        if self._second:
            self._name_firsts()

    def _insert(self, row: Row) -> None:
        if row.fault:
            raise ValueError(row.fault)
        base = row.cells.get(CHANGE, "")
        cells = row.cells if CHANGE not in row.cells else {k: v for k, v in row.cells.items() if k != CHANGE}
        one = read_row(cells, allow_private=self._allow_private)
        if sum(map(len, row.cells.values())) * 4 > MAX_LINE:
            check_size(one)
        if base and not base.isdecimal():
            raise ValueError(f"{one.ark}: change is {base!r}, not a number")
        if self._connection.execute(INSERT, values_of(one)).rowcount == 0:
            (first,) = self._connection.execute("SELECT url FROM redirects WHERE ark = ?", (one.ark,)).fetchone()
            leads = f"leads to {first}" if first else "is gone"
            self._second.setdefault(one.ark, []).append((row.number, leads))
        elif base:
            self._connection.execute("INSERT INTO base VALUES (?, ?)", (one.ark, int(base)))

    def _name_firsts(self) -> None:
        """Pass second rows to ``on_bad``, with the line of the first row, which is found by rereading the file."""
        left = dict(self._second)
        rows = read_rows(self._source, unended=True)
        next(rows)
        for row in rows:
            if not left:
                break
            with suppress(ValueError):
                if (ark := str(Ark.parse(row.cells.get("ark", "")))) in left and not row.fault:
                    for number, leads in left.pop(ark):
                        reason = f"a second redirect of {ark}: the first one, in line {row.number}, {leads}"
                        self._on_bad(RowError(reason, filename=self._name, line=number))

    def put(self, terms: Terms, now: float | None = None, *, is_first: bool = False) -> Imported:
        """Replace the store by these rows, as the terms allow. Raises RefusedError and ConfigError.

        ``is_first``: the file there is not a store, and is replaced.
        """
        connection = self._connection
        is_first = is_first or not self._target.exists()
        try:
            with nullcontext(connection) if is_first else alone(self._target) as lock:
                facts = {} if is_first else facts_of(lock)
                number = int(facts.get("change", 0)) + 1
                if facts.get("follows", terms.follows) != terms.follows and facts["follows"] != str(
                    self._source.absolute()
                ):
                    raise RefusedError(f"{self._target} follows {facts['follows']}: import that file")
                change = StoreChange(connection, number, terms.by, time.time() if now is None else now)
                connection.execute("ATTACH ? AS old", (":memory:" if is_first else f"{self._target.as_uri()}?mode=ro",))
                connection.execute("BEGIN")
                done = Imported(total=self.count, is_first=True)
                if not is_first:
                    done = _Merge(change, terms, self._lacks).run()
                self._finish(change, terms, done, facts)
                connection.execute("COMMIT")
                connection.close()
                with naming(self._target):
                    self._replace()
                return done
        except (OSError, sqlite3.Error) as error:
            raise not_written(self._target, error) from None

    def _finish(self, change: StoreChange, terms: Terms, done: Imported, facts: Mapping[str, int | str]) -> None:
        """Write the store's facts about itself."""
        connection = change.connection
        of_old = () if done.is_first else connection.execute("SELECT name, public FROM old.columns").fetchall()
        before = dict(of_old)
        names = [*self.columns, *(name for name in before if (done.kept or done.missing) and name not in self.columns)]
        if unknown := [name for name in (*terms.public, *terms.private) if name not in names or name in COLUMNS]:
            others = ", ".join(name for name in names if name and name not in COLUMNS) or "none"
            raise RefusedError(f"{unknown[0]} is not an extra column: there are {others}")
        public = {*(name for name in before if before[name]), *terms.public} - {*terms.private}
        public = public if terms.only_public is None else {*terms.only_public}
        connection.executemany("INSERT INTO columns VALUES (?, ?)", ((name, name in public) for name in names))
        naan = "substr(ark, 5, instr(ark, '/') - 5)"
        connection.execute(f"INSERT INTO naans SELECT {naan}, count(*) FROM redirects GROUP BY 1")
        counts = f"{done.added} added, {done.removed} removed, {done.withdrawn} withdrawn, {done.changed} changed"
        said = f"{terms.note}: {done.total} objects" if done.is_first else f"{terms.note}: {counts}"
        change.trace("import", "", None, None, said)
        kept: dict[str, int | str] = {"id": secrets.token_hex(8), "first": change.number, **facts}
        report = {**terms.report, "missing": done.missing, "first_missing": done.first_missing}
        kept |= {"change": change.number, "fingerprint": self.fingerprint, "report": json.dumps(report)}
        if terms.follows:
            kept["follows"] = terms.follows
        kept["words"] = change.number if words.make(connection) else 0
        for name, value in kept.items():
            set_fact(connection, name, value)

    def _replace(self) -> None:
        """Replace the old file by the new one, with the old one's owner and mode."""
        if self._target.exists():
            status = self._target.stat()
            try:
                os.chown(self.path, status.st_uid, status.st_gid)
            except PermissionError:
                reason = (
                    "belongs to another user or group, as which the gateway may read it: import as that user or root"
                )
                raise ConfigError(reason, filename=str(self._target)) from None
            self.path.chmod(status.st_mode & 0o777)
        else:
            self.path.chmod(0o644)
        flush_to_disk(self.path)
        self.path.replace(self._target)
        flush_to_disk(self._target.parent)


def _clear(target: Path) -> None:
    """Remove what killed imports left beside a store."""
    for left in target.parent.glob(f".{target.name}.*"):
        if not (_ASIDE.search(left.name) and left.is_dir() and not left.is_symlink()):
            continue
        with suppress(OSError):
            handle = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # another import still has it
                rmtree(left, ignore_errors=True)
            finally:
                os.close(handle)


class _Merge:
    """Merges the rows of a file, in the store ``main``, with those of the store ``old``."""

    def __init__(self, change: StoreChange, terms: Terms, lacks: tuple[str, ...]) -> None:
        self._change = change
        self._terms = terms
        self._lacks = lacks
        self._do = change.connection.execute

    def run(self) -> Imported:
        self._keep_withdrawal()
        self._compare()
        kept = () if self._terms.overwrite else self._keep_edited()
        (registered,) = self._do("SELECT count(*) FROM old.redirects").fetchone()
        (missing,) = self._do("SELECT count(*) FROM gone").fetchone()
        (changed,) = self._do("SELECT count(*) FROM differ").fetchone()
        first = tuple(ark for (ark,) in self._do("SELECT ark FROM gone ORDER BY ark LIMIT ?", (NAMED,)))
        what = self._terms.missing
        self._check_loss(missing, registered, first)
        self._trace(changed, missing)
        if what is Missing.WITHDRAW:
            self._withdraw()
        elif what is Missing.KEEP:
            self._do(f"INSERT INTO redirects ({ROW}) SELECT {ROW} FROM old.redirects JOIN gone USING (ark)")
        added = self._number()
        (total,) = self._do("SELECT count(*) FROM redirects").fetchone()
        return Imported(
            total=total,
            is_first=False,
            added=added,
            changed=changed,
            removed=missing if what is Missing.REMOVE else 0,
            withdrawn=missing if what is Missing.WITHDRAW else 0,
            kept=kept,
            missing=missing if what is Missing.KEEP else 0,
            first_missing=first if what is Missing.KEEP else (),
        )

    def _keep_withdrawal(self) -> None:
        """Keep the withdrawal of objects that are gone if the file has no columns for it."""
        for name in self._lacks:
            was = f'SELECT o."{name}" FROM old.redirects AS o WHERE o.ark = redirects.ark AND o.status = {GONE}'
            self._do(f"UPDATE redirects SET \"{name}\" = coalesce(({was}), '') WHERE status = {GONE}")

    def _compare(self) -> None:
        fields = [f'{{0}}."{name}"' for name in (*COLUMNS, "more")]
        new, old = (", ".join(fields).format(table) for table in ("n", "o"))
        both = "main.redirects AS n JOIN old.redirects AS o USING (ark)"
        self._do(f"CREATE TEMP TABLE differ AS SELECT n.ark FROM {both} WHERE ({new}) IS NOT ({old})")
        has = "SELECT 1 FROM main.redirects AS n WHERE n.ark = o.ark"
        self._do(f"CREATE TEMP TABLE gone AS SELECT o.ark FROM old.redirects AS o WHERE NOT EXISTS ({has})")

    def _keep_edited(self) -> tuple[str, ...]:
        """Keep the rows that a command has changed since, and return their ARKs."""
        (newest,) = self._do("SELECT max(change) FROM base").fetchone()
        base = self._terms.base
        if base is not None:
            since = f"edited > {int(base)}"
        elif newest is not None:
            since = f"edited > coalesce((SELECT b.change FROM base AS b WHERE b.ark = c.ark), {int(newest)})"
        else:
            since = "open = 1"
        touched = "SELECT ark FROM differ UNION ALL SELECT ark FROM gone"
        self._do(
            f"CREATE TEMP TABLE keep AS SELECT c.ark FROM old.changes AS c WHERE edited > 0 AND {since} "
            f"AND c.ark IN ({touched})"
        )
        self._do(f"INSERT OR REPLACE INTO redirects ({ROW}) SELECT {ROW} FROM old.redirects JOIN keep USING (ark)")
        for table in ("differ", "gone"):
            self._do(f"DELETE FROM {table} WHERE ark IN (SELECT ark FROM keep)")
        return tuple(ark for (ark,) in self._do("SELECT ark FROM keep ORDER BY ark"))

    def _check_loss(self, missing: int, registered: int, first: tuple[str, ...]) -> None:
        if not missing:
            return
        what = self._terms.missing
        named = ", ".join(first) + (f" and {missing - len(first)} more" if missing > len(first) else "")
        lacking = f"{missing} of {registered} registered ARKs are missing: {named}"
        if what is Missing.REFUSE:
            raise RefusedError(f"{lacking} (--remove removes them, --withdraw-missing makes them 410)")
        if missing > registered * REMOVAL_LIMIT and not self._terms.force:
            hint = "" if what is Missing.KEEP else " (--force overrides)"
            raise RefusedError(f"more than {REMOVAL_LIMIT:.0%} would be lost: {lacking}{hint}")

    def _trace(self, changed: int, missing: int) -> None:
        self._do("INSERT INTO history SELECT * FROM old.history")
        columns = ", ".join(f'r."{name}"' for name in (*COLUMNS, "more"))
        old_row = f"SELECT {columns} FROM old.redirects AS r JOIN"
        if changed <= TRACED:
            for values in self._do(f"{old_row} differ USING (ark) ORDER BY ark").fetchall():
                old = _object_if_any(values)
                self._change.trace("import", str(values[0]), old, self._change.get(str(values[0])))
        if missing and self._terms.missing is Missing.REMOVE:
            for values in self._do(f"{old_row} gone USING (ark) ORDER BY ark").fetchall():
                self._change.trace("remove", str(values[0]), _object_if_any(values), None)

    def _withdraw(self) -> None:
        """Mark as gone the objects that the file lacks."""
        day = time.strftime("%Y-%m-%d", time.gmtime(self._change.now))
        columns = ", ".join(f'r."{name}"' for name in (*COLUMNS, "more"))
        rows = self._do(f"SELECT {columns} FROM old.redirects AS r JOIN gone USING (ark) ORDER BY ark").fetchall()
        for values in rows:
            old = _object_if_any(values)
            if old is None:
                raise RefusedError(f"{values[0]}: another program wrote its row: maptr redirects check names it")
            new = old if old.is_gone else old._replace(url="", status=GONE, withdrawn=day)
            self._do(INSERT, values_of(new))
            if new is not old:
                self._change.trace("withdraw", new.ark, old, new)

    def _number(self) -> int:
        """Give each new or changed row the number of this import, and return how many are new."""
        number = self._change.number
        is_kept = "ark IN (SELECT ark FROM keep)" if not self._terms.overwrite else "0"
        self._do(
            f"INSERT INTO changes SELECT ark, change, edited, open AND {is_kept} FROM old.changes "
            "WHERE ark IN (SELECT ark FROM redirects)"
        )
        self._do(f"INSERT OR REPLACE INTO changes SELECT ark, {number}, 0, 0 FROM differ")
        if self._terms.missing is Missing.WITHDRAW:
            self._do(f"INSERT OR REPLACE INTO changes SELECT ark, {number}, 0, 0 FROM gone")
        is_new = "NOT EXISTS (SELECT 1 FROM old.redirects AS o WHERE o.ark = n.ark)"
        added = self._do(
            f"INSERT OR REPLACE INTO changes SELECT ark, {number}, 0, 0 FROM redirects AS n WHERE {is_new}"
        )
        return added.rowcount


def _object_if_any(values: tuple[object, ...]) -> OwnObject | None:
    try:
        return object_of(values)
    except (ValueError, OverflowError):
        return None
