"""A time on the command line, as people write it."""

from __future__ import annotations

import click

from maptr.config.values import read_duration


class Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic from click 8.2 on
    """``14d``, ``36h`` or ``3600`` as seconds, so many of them at least."""

    name = "duration"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            seconds = value if isinstance(value, int) else read_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds < self._least:
            self.fail("a time is wanted, not none", param, ctx)
        return seconds
