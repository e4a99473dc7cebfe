"""The gateway as ``maptr gateway`` runs it, in a thread of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from maptr.cache.cache import Cache
from maptr.config import Config
from maptr.config.model import GatewayConfig
from maptr.gateway.service import Service
from maptr.protocol.address import Address
from tests.support.running import PATIENCE, Running

LOOPBACK = Address("127.0.0.1", 0)


@contextmanager
def running_service(cache: Cache, *, reread: Callable[[], Config] | None = None, **tables: Any) -> Iterator[Service]:
    """A service on a free port. ``tables`` are those of the configuration, such as ``zones``."""
    settings = tables.pop("gateway", GatewayConfig(listen=(LOOPBACK,)))
    service = Service(Config(gateway=settings, **tables), cache, reread=reread)
    running = Running()
    try:
        service.bind()
        done = asyncio.run_coroutine_threadsafe(service.run(), running.loop)
        yield service
        running.call(service.stop)
        done.result(2 * PATIENCE)
        asyncio.run_coroutine_threadsafe(cache.aclose(), running.loop).result(PATIENCE)
    finally:
        running.close()
