"""The pytest fixture ``maptr_dns``, which pytest finds where maptr is installed; nothing needs to be imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from maptr.testing import Answers


@pytest.fixture
def maptr_dns(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """The DNS for every maptr client and function in this test: ``maptr_dns["12345"] = URL``, or "silent" and so on.

    ``maptr.testing.Answers`` says what it takes. No network is used, and no tables except the given ones. A client that
    was made before the test is also served; ``forget`` drops what it cached.
    """
    # Imported late: pytest loads this module in every run, even of programs without maptr.
    from maptr.client import Client
    from maptr.registry.followed_file import TableState
    from maptr.registry.found import FoundTable
    from maptr.resolver.resolver import Resolver
    from maptr.testing import Answers, OfflineResolver

    answers = Answers()

    def offline(method: str) -> Callable[..., Any]:
        def call(resolver: Resolver, *given: Any, **options: Any) -> Any:
            return getattr(OfflineResolver(answers, settings=resolver.settings), method)(*given, **options)

        return call

    for method in ("discover", "discover_async", "discover_many", "discover_many_async", "serial"):
        monkeypatch.setattr(Resolver, method, offline(method))
    monkeypatch.setattr(Client, "_found", lambda *_: None)
    monkeypatch.setattr(FoundTable, "current", lambda _: TableState(None))
    return answers
