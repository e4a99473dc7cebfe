"""Between validation and whoever asks for it: what has to be asked, and what came of it."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from maptr.discovery import Outcome

if TYPE_CHECKING:
    import dns.message
    import dns.name
    from dns.rdatatype import RdataType

T = TypeVar("T")


class Need(NamedTuple):
    """A question that has to be asked, with DO and CD set."""

    name: dns.name.Name
    rdtype: RdataType


class Heard(NamedTuple):
    """What came of it: a message, or why there is none."""

    outcome: Outcome
    message: dns.message.Message | None = None
    note: str = ""
    server: str = ""
    elapsed: float | None = None

    @property
    def said(self) -> dns.message.Message:
        """The message, for whoever has seen that there is one."""
        assert self.message is not None  # noqa: S101
        return self.message


Asking = Generator[Need, Heard, T]
