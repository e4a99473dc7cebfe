"""The pytest fixture ``maptr_dns``, which pytest finds where maptr is installed; nothing needs to be imported."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from maptr.testing import Answers


@pytest.fixture
def maptr_dns(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """The DNS of every client and function of maptr in this test: ``maptr_dns["12345"] = URL``, or "silent" and so on.

    ``maptr.testing.Answers`` says what it takes. No network is used, and of tables only the given ones.
    """
    from maptr.client import Client  # late: pytest loads this module in every run, also of programs without maptr
    from maptr.testing import Answers, OfflineResolver

    answers = Answers()
    monkeypatch.setattr(Client, "_make_resolver", partial(OfflineResolver, answers))
    monkeypatch.setattr(Client, "_found", lambda *_: None)
    return answers
