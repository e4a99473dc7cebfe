"""The fuzzer's corpus (``scripts/fuzz``)."""

from __future__ import annotations

import pytest

from tests.fuzz.targets import CORPUS, TARGETS, read_corpus


@pytest.mark.parametrize("target", TARGETS)
def test_corpus_inputs_pass_their_fuzz_targets(target: str) -> None:
    inputs = read_corpus(target)
    assert inputs
    for data in [b"", *inputs]:
        try:
            TARGETS[target](data)
        except Exception as error:
            raise AssertionError(f"{target}: {data.hex()}") from error


def test_each_corpus_has_a_target() -> None:
    assert {path.stem for path in CORPUS.iterdir()} == set(TARGETS)
