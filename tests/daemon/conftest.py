"""Fixtures of a server process."""

from tests.support.server_process import site, start, zone_file

__all__ = ["site", "start", "zone_file"]
