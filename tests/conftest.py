"""Fixtures for all tests, and Hypothesis profiles. The real servers are in ``tests.support.peers``."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from maptr.config.reader import environment_names
from maptr.nma.reachable import Reachable
from tests.support.command_line import home
from tests.support.namespaces import Network, with_loopback
from tests.support.peers import HOST, Maptr, require
from tests.support.server_process import site, start, zone_file
from tests.support.waiting import PATIENCE

__all__ = ["home", "site", "start", "zone_file"]  # fixtures for every test

REPOSITORY = Path(__file__).resolve().parent.parent
TESTS = REPOSITORY / "tests"
VECTORS = TESTS / "vectors"

# No limit of time, because a machine may be slow. In CI the examples are the same on every run: a failure repeats.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, max_examples=150)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


def pytest_configure(config: pytest.Config) -> None:
    """SIGTERM ends a run as Ctrl-C does, so that the servers of the tests are stopped.

    A shell starts its background jobs with SIGINT ignored, and programs would inherit that from the tests.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker and [Path(argument).resolve() for argument in config.args] == [TESTS]:
        config.args[:] = _modules_from(worker)


def _modules_from(worker: str) -> list[str]:
    """All test modules. Processes of pytest-xdist begin at different ones, so that each is compiled by one of them."""
    modules = sorted(map(str, TESTS.rglob("test_*.py")))
    first = len(modules) * int(worker.removeprefix("gw")) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    return modules[first:] + modules[:first]


@pytest.hookimpl(optionalhook=True)  # pytest-xdist may be missing
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """The processes for ``-n auto`` (scripts/test): three more than cores, because tests wait for servers; none for
    named modules or tests, for which starting processes would take longer."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    if named and all(".py" in argument for argument in config.args):
        return 0
    return (os.cpu_count() or 1) + 3


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests into the order of their paths, and mark them by what they need, for ``-m "not interop"``."""
    items.sort(key=lambda item: item.path)
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if {"interop", "browser"} & {*item.path.relative_to(REPOSITORY).parts}:
            item.add_marker(pytest.mark.interop)
        if "real_data" in fixtures:
            item.add_marker(pytest.mark.real_data)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in an event loop of its own."""
    if not asyncio.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_collection_finish() -> None:
    """Keep the collected tests out of garbage collection, which would take a tenth of a second longer each time."""
    gc.freeze()


@pytest.fixture
def network() -> Iterator[Network]:
    require("unshare", "nsenter", "ip")
    with with_loopback() as found:
        yield found


@pytest.fixture(scope="session", autouse=True)
def nothing_set_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide table, cache and configuration of the user who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
            patch.setenv(variable, str(tmp_path_factory.mktemp(variable)))
        for variable in ("MAPTR_CONFIG", *environment_names()):
            patch.delenv(variable, raising=False)
        # The servers of the tests are not asked by a proxy of this machine, which pip may need.
        excepted = [HOST, "::1", "localhost", "example", "example.org", "example.com", "example.net"]
        patch.setenv("no_proxy", ",".join([*excepted, os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")]))
        yield


@pytest.fixture(scope="session", autouse=True)
def patient_clients() -> Iterator[None]:
    """A discovery takes as long as a slow machine needs, unless a test gives a lifetime or is about the retries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("maptr.resolver.resolver.LIFETIME", PATIENCE)
        patch.setattr("maptr.resolver.exchange.FIRST_SECONDS", 10.0)
        patch.setattr("maptr.nma.reachable.ALL_SECONDS", PATIENCE)
        patch.setitem(Reachable.__init__.__kwdefaults__ or {}, "seconds", PATIENCE)
        yield


@pytest.fixture(scope="session")
def at() -> Iterator[str]:
    """@server#port of a running server with the sample."""
    with Maptr({"ark.arpa.": REPOSITORY / "zones" / "ark.arpa.zone"}) as server:
        yield f"@{server.host}#{server.port}"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The directory of the real registry (``naan_records.json``): MAPTR_REAL_DATA, or ../shared/data."""
    if named := os.environ.get("MAPTR_REAL_DATA"):
        if not (Path(named) / "naan_records.json").is_file():
            pytest.fail(f"MAPTR_REAL_DATA is {named}, where there is no naan_records.json", pytrace=False)
        return Path(named)
    beside = REPOSITORY.parent / "shared" / "data"
    if not (beside / "naan_records.json").is_file():
        pytest.skip("real data: no registry in ../shared/data; name its directory in MAPTR_REAL_DATA")
    return beside


@pytest.fixture(scope="session")
def sample() -> Path:
    """The project's own small registry, on example hosts; the zone made from it lies beside it."""
    return REPOSITORY / "zones" / "sample.json"


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The directory of the test vectors."""
    return VECTORS
