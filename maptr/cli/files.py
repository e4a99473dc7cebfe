"""Files that commands read and write: limits on input, and rules for what ``-o FILE`` may replace.

An input is never the output, under whatever path: a hard link, a symbolic link, or the shell's redirection. A file
that maptr wrote is replaced; any other file only with ``--overwrite``. OSError and
TableError end the command with exit code 8.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from maptr import registry
from maptr.cli import output
from maptr.cli.options import PATH, Command
from maptr.errors import TableError
from maptr.files import read_whole, write_atomically
from maptr.registry.table import Table

MAX_BYTES = 1 << 28  # 256 MiB, 200 times the 2026 registry: a device without an end must not fill memory
STDIN, STDOUT = 0, 1  # descriptors


# ---- input


def read_bytes(file: str) -> bytes:
    """The content of a file, or of standard input for ``-``."""
    try:
        if file == "-":
            data = output.standard_input().read(MAX_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        output.fail(f"{input_name(file)}: {error.strerror or error}", output.EXIT_UNREADABLE)
    if len(data) > MAX_BYTES:
        output.fail(f"{input_name(file)}: longer than {MAX_BYTES} bytes", output.EXIT_UNREADABLE)
    return data


def read_text(file: str) -> str:
    """The content of a file in UTF-8."""
    try:
        return read_bytes(file).decode()
    except UnicodeDecodeError as error:
        output.fail(f"{input_name(file)}: not UTF-8: {error}", output.EXIT_UNREADABLE)


def read_table(file: str, scheme: str = "https") -> tuple[Table, list[TableError]]:
    """The table of a registry in any format, and its bad records, which are left out. ``scheme`` is for a natab.

    Raises TableError if it is not a registry.
    """
    bad: list[TableError] = []
    return registry.read(read_bytes(file), filename=input_name(file), on_bad=bad.append, scheme=scheme), bad


def input_name(file: str) -> str:
    """The name of an input in messages."""
    return "<stdin>" if file == "-" else file


# ---- output


def _target(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    if value is None or value == "-" or _same(_status(value), _status(STDOUT)):
        return None
    return Path(value)


def output_option(help: str, metavar: str = "FILE") -> Callable[[Command], Command]:
    """``-o FILE`` as a Path; None for standard output, also as ``-`` or ``/dev/stdout``."""
    return click.option("-o", "--output", "target", metavar=metavar, type=PATH, callback=_target, help=help)


def overwrite_option(help: str) -> Callable[[Command], Command]:
    """``--overwrite``, for a file that maptr did not write."""
    return click.option("--overwrite", is_flag=True, help=help)


def refuse_input(target: Path | None, inputs: Iterable[str | Path | None]) -> None:
    """Raises UsageError if the output (standard output if ``target`` is None) is one of the inputs."""
    there = _status(STDOUT if target is None else target)
    if there is None or not stat.S_ISREG(there.st_mode):
        return  # a terminal, a pipe or a device may be both
    for name in inputs:
        if name is not None and _same(there, _status(STDIN if str(name) == "-" else name)):
            shown = "standard output" if target is None else str(target)
            raise click.UsageError(f"{shown}: input and output are the same file")


def refuse_foreign(target: Path | None, is_ours: Callable[[bytes], bool], *, overwrite: bool) -> None:
    """Raises UsageError if ``target`` is a file with other content than maptr writes, unless ``overwrite``; OSError."""
    there = None if target is None else _status(target)
    if target is None or there is None or overwrite:
        return
    if stat.S_ISBLK(there.st_mode):
        raise click.UsageError(f"{target}: is a block device")
    if not stat.S_ISREG(there.st_mode) or not there.st_size:
        return
    if not is_ours(read_whole(target)):
        raise click.UsageError(f"{target}: exists, and maptr did not write it: give --overwrite to replace it")


def _status(file: str | Path | int) -> os.stat_result | None:
    try:
        return os.stat(file)  # noqa: PTH116 - also of a descriptor
    except (OSError, ValueError):
        return None


def _same(one: os.stat_result | None, other: os.stat_result | None) -> bool:
    return one is not None and other is not None and os.path.samestat(one, other)


def write(target: Path | None, text: str) -> None:
    """Write the file atomically, or standard output. Raises OSError."""
    if target is None:
        click.echo(text, nl=False)
        return
    write_atomically(target, text.encode())
