"""The browser for these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browser import Chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    with Chromium() as started:
        yield started
