"""The printed results of benchmarks, which ``--save`` keeps in ``scripts/benchmark/results/``."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "results"


def parser(subject: str, description: str | None, *, rounds: int = 5) -> argparse.ArgumentParser:
    """Make a parser with the options of every benchmark: ``--rounds``, ``--smoke`` and ``--save``."""
    made = argparse.ArgumentParser(prog=f"scripts/bench {subject}", description=description)
    made.add_argument("--rounds", type=int, default=rounds, help=f"rounds of each measurement (default {rounds})")
    made.add_argument("--smoke", action="store_true", help="one short round, to see that the benchmark works")
    made.add_argument("--save", action="store_true", help=f"keep the result in scripts/benchmark/results/{subject}.txt")
    return made


@contextlib.contextmanager
def reported(subject: str, *, save: bool, folder: Path = FOLDER) -> Iterator[None]:
    """Print the machine, then what the block prints. With ``save``, also write it to a file when the block succeeds."""
    copy = _Copy()
    with contextlib.redirect_stdout(copy):
        print(machine())
        yield
    if save:
        folder.mkdir(exist_ok=True)
        (folder / f"{subject}.txt").write_text("".join(copy.parts), encoding="utf-8")


class _Copy(io.TextIOBase):
    """A stdout that also keeps the written text."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._stdout = sys.stdout

    def write(self, text: str) -> int:
        self.parts.append(text)
        return self._stdout.write(text)

    def flush(self) -> None:
        self._stdout.flush()


def machine() -> str:
    """Return the date, processor, system, Python and load."""
    model = platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Hardware")):
                model = line.partition(":")[2].strip()
                break
    facts = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} x {model}",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load before": " ".join(f"{value:.1f}" for value in os.getloadavg()),
    }
    return "".join(f"{key}: {value}\n" for key, value in facts.items())
