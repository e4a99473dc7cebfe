"""Requests to the gateway without sockets: ``route``, with a cache over a scripted DNS for look-ups."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from maptr.ark import Ark
from maptr.config.model import GatewayConfig
from maptr.discovery import Discovery, DiscoveryError
from maptr.gateway.message import Lines, Lookup, Response, Work
from maptr.gateway.objects import OwnObject, OwnObjects, Redirects
from maptr.gateway.route import finished, route
from maptr.gateway.site import Site
from maptr.registry.followed_file import TableSource, TableState
from maptr.registry.search import NaanIndex
from maptr.registry.table import Table
from maptr.walk import Answer
from tests.support.caching import Rig

NONE: Mapping[str, str] = MappingProxyType({})
FETCHED = 1_699_999_000.0  # a thousand seconds before the wall clock of a Rig


class Objects(OwnObjects):
    """Own objects in memory."""

    def __init__(self, rows: Iterable[OwnObject]) -> None:
        self._rows = {row.ark: row for row in rows}
        self.naans = Counter(Ark.parse(ark).naan for ark in self._rows)
        self.samples = {naan: [ark for ark in self._rows if Ark.parse(ark).naan == naan] for naan in self.naans}

    def get(self, ark: str) -> OwnObject | None:
        return self._rows.get(ark)


def objects(*rows: OwnObject) -> Objects:
    return Objects(rows)


class Gateway:
    """A gateway over a table and a scripted DNS. ``values`` are those of ``Site`` and settings of ``GatewayConfig``."""

    def __init__(
        self,
        table: Table | None = None,
        answers: Mapping[str, Answer] | None = None,
        *,
        policy: str = "natab-only",
        origin: str = "",
        trouble: str = "",
        objects: OwnObjects | None = None,
        settings: GatewayConfig | None = None,
        **values: Any,
    ) -> None:
        source: TableSource = TableState(table, trouble, fetched=None if table is None else FETCHED, origin=origin)
        self.rig = Rig(answers, source, policy)
        if objects is not None:
            values["redirects"] = Redirects(objects=objects)
        of_site = {name: values.pop(name) for name in Site.__dataclass_fields__ if name in values}
        state, index = source.current(), NaanIndex(table or Table())
        self.site = Site(replace(settings or GatewayConfig(), **values), table_state=state, index=index, **of_site)

    def discover(self, ark: Ark) -> Discovery:
        try:
            return self.rig.sources.discover(ark.resolution if ark.name else ark)
        except DiscoveryError as error:
            return error.discovery

    def ask(self, target: str, method: str = "GET", *, body: str = "", **headers: str) -> Response:
        """The response to a request. Underscores in the names of headers stand for hyphens."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self._route(target, method, body, named)
        assert not isinstance(answer, Lines)
        return finished(self._response(answer), method, target, named, self.site.settings)

    def lines(self, target: str) -> list[Any]:
        """The documents of a response in lines."""
        answer = self._route(target)
        assert isinstance(answer, Lines)
        return [json.loads(self._response(part).body) for part in answer.parts]

    def _route(
        self, target: str, method: str = "GET", body: str = "", headers: Mapping[str, str] = NONE
    ) -> Response | Lookup | Lines | Work:
        return route(method, target, headers, self.site, body=body.encode(), now=self.rig.wall(), client="192.0.2.1")

    def _response(self, part: Lookup | Response | Work) -> Response:
        if isinstance(part, Lookup):
            return part.respond(self.discover(part.ark))
        return part() if callable(part) else part

    def location(self, target: str, **headers: str) -> str:
        return self.ask(target, **headers).header("location")
