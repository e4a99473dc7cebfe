"""The inputs that the fuzzer kept (``scripts/fuzz``), once more."""

from __future__ import annotations

import pytest

from tests.fuzz.targets import CORPUS, TARGETS, read_corpus


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_keeps_every_promise(target: str) -> None:
    inputs = read_corpus(target)
    assert inputs
    for data in [b"", *inputs]:
        try:
            TARGETS[target](data)
        except Exception as error:
            raise AssertionError(f"{target}: {data.hex()}") from error


def test_every_corpus_has_its_target() -> None:
    assert {path.stem for path in CORPUS.iterdir()} == set(TARGETS)
