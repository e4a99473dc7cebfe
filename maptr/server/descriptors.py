"""How many connections there may be by the files that the system lets a process have open (getrlimit(2)).

Where there is room for fewer than are allowed, as many are allowed as there is room for: past that the one idle for
longest makes room, while without a descriptor nobody could even be accepted.
"""

from __future__ import annotations

import contextlib
import logging
import resource

from maptr.server.connections import TcpLimits
from maptr.server.conversations import MAX_CONNECTIONS as MAX_CONVERSATIONS

log = logging.getLogger("maptr.serve")

OTHERS = 16  # standard streams, event loop, log, and the files that a reload reads
RESERVED = 2 * MAX_CONVERSATIONS + OTHERS  # control and metrics have those beside each other


def fitting(limits: TcpLimits, listening: int) -> TcpLimits:
    """The limits, or lower ones that can be kept, with so many listening sockets.

    Takes what the system would give for the asking: the soft limit is raised, the hard one stays.
    """
    others = RESERVED + listening
    wanted = limits.max_connections + others
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits
    fits = max(1, soft - others)
    log.warning(
        "max_connections is %d and not %d, for a process may have %d files open: raise LimitNOFILE",
        fits,
        limits.max_connections,
        soft,
    )
    return limits._replace(max_connections=fits)
