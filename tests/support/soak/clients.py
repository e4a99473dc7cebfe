"""The clients of the soak, and the program in which they run: it reads requests as JSON lines and writes answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from maptr import Client, Validator
from maptr.discovery import DiscoveryError, NoMappingAuthority
from maptr.errors import MaptrError
from tests.support.command_line import ENDING
from tests.support.soak.machines import Machine

SECONDS = 15.0  # for one ARK, on a busy machine


class Answer(NamedTuple):
    """What a client got for an ARK. ``url`` is None if there is no mapping authority, or if it is ``silent``."""

    url: str | None
    silent: bool = False
    source: str = "dns"
    stale: bool = False
    age: int | None = None
    note: str = ""

    def __str__(self) -> str:
        what = f"no answer ({self.note})" if self.silent else self.url or "no mapping authority"
        said = f", stale, {self.age} s old" if self.stale else f", {self.age} s old" if self.age is not None else ""
        return f"{what} from {self.source}{said}"


class Clients:
    """The program on its machine. ``ask`` names the client, and what it is configured with."""

    def __init__(self, machine: Machine) -> None:
        self._process = subprocess.Popen(
            [*machine.wrapper, *ENDING, sys.executable, "-m", "tests.support.soak.clients"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ask(self, client: str, arks: Sequence[str], **settings: Any) -> list[Answer]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([client, list(arks), settings]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the program of the clients has ended"
        return [Answer(*fields) for fields in json.loads(line)]

    def close(self) -> None:
        try:
            self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_validators: dict[str, Validator] = {}


def by_discover(ark: str, *, nameservers: list[str], anchor: str = "") -> Answer:
    """``discover``, which validates from an anchor, or trusts a validating resolver."""
    trust: dict[str, Any] = {"trust_ad": True}
    if anchor:
        trust = {"trust_anchors": _validators.setdefault(anchor, Validator(anchor))}
    try:
        return Answer(Client(nameservers, require="secure", lifetime=SECONDS, **trust).discover(ark).url())
    except NoMappingAuthority:
        return Answer(None)
    except (DiscoveryError, MaptrError) as error:
        return Answer(None, silent=True, note=str(error))


def by_http(ark: str, *, host: str, port: int) -> Answer:
    """A request to the gateway."""
    with contextlib.closing(http.client.HTTPConnection(host, port, timeout=SECONDS)) as connection:
        try:
            connection.request("GET", f"/{ark}")
            response = connection.getresponse()
            response.read()
        except OSError as error:
            return Answer(None, silent=True, note=str(error))
    source, *parameters = (response.getheader("Maptr-Source") or "").split(";")
    said = dict(parameter.partition("=")[::2] for parameter in parameters)
    return Answer(
        response.getheader("Location"),
        response.status not in (302, 303, 404),
        source,
        "stale" in said,
        int(said["age"]) if "age" in said else None,
        f"status {response.status}",
    )


def main() -> None:
    kinds: dict[str, Callable[..., Answer]] = {"discover": by_discover, "http": by_http}
    with ThreadPoolExecutor(4) as pool:
        for line in sys.stdin:
            client, arks, settings = json.loads(line)
            answers = list(pool.map(partial(kinds[client], **settings), arks))
            sys.stdout.write(json.dumps(answers) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
