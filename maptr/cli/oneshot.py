"""``maptr url ARK``, for one ARK, by the shortest way: a process that asks once waits for imports more than for DNS.

Taken is ``maptr url ARK [@ADDRESS[#PORT]]``, where nothing is configured, and ARK and answer are of the plainest form.
For whatever else comes, in the line or in the answer, this gives None before a word was said, and ``brief`` begins
again, in full: a question more, once in a while.

Nothing is imported here, nor by what is imported here, that costs more than a fraction of a millisecond: no ``re``,
``typing``, ``enum``, ``contextlib``, ``collections``, and nothing of dnspython. ``_socket`` is the C half of
``socket``, whose Python half imports ``selectors`` and ``enum`` to name the numbers; what is used of it is the same.
"""

from __future__ import annotations

import os

from maptr import places
from maptr.cli import output, through
from maptr.plainurl import ARK_ARPA, read_ark, url_of

TYPE_CHECKING = False  # typing's own takes milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE = 0.3  # seconds for the first reply; a question asked again does no harm, and a dead server must not cost more


def answer(words: Sequence[str]) -> int | None:
    """The exit code for the words after ``maptr url``; None for those that are to be read and answered in full."""
    line = _read(words)
    if line is None or through.set_up() is not None:
        return None
    ark, server = line
    if not server and places.there(places.table_file(os.environ)):
        return None
    return _from_dns(ark, server)


def _read(words: Sequence[str]) -> tuple[str, str] | None:
    """ARK and server of a line, the server empty where it is not given; None for any other line."""
    arks = [word for word in words if word[:1] not in ("@", "-")]
    servers = [word for word in words if word[:1] == "@"]
    if len(arks) != 1 or len(arks) + len(servers) != len(words) or len(servers) > 1 or servers == ["@"]:
        return None
    return arks[0], servers[0][1:] if servers else ""


def _from_dns(text: str, server: str) -> int | None:
    ark = read_ark(text)
    if ark is None:
        return None
    from maptr import protocol, resolvconf

    naan, rest, tail = ark
    host, mark, port = server.partition("#")
    if mark and not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536):
        return None
    if not server:
        try:
            host = resolvconf.nameservers()[0]
        except (OSError, IndexError):
            return None
    made = _ask(naan, rest, host, int(port or protocol.PORT))
    if made is None:
        return None
    output.data(made + tail)
    return output.EXIT_OK


def _ask(naan: str, rest: str, host: str, port: int) -> str | None:
    """The URL by what the server says at once."""
    import _socket

    from maptr import names, plainwire, protocol

    name = (naan.encode(), *ARK_ARPA)
    query, question = plainwire.make_question(name, os.urandom(2 + names.wire_length(name)))
    family = _socket.AF_INET6 if ":" in host else _socket.AF_INET
    try:
        _socket.inet_pton(family, host)
        sock = _socket.socket(family, _socket.SOCK_DGRAM)
        try:
            sock.settimeout(PATIENCE)
            sock.connect((host, port))  # the system picks a random source port, and drops what others send
            sock.send(query)
            reply = sock.recv(protocol.MAX_MESSAGE)
        finally:
            sock.close()
    except (OSError, ValueError):
        return None
    plain = plainwire.plain_records(name, question, reply) if reply[:2] == query[:2] else None
    return None if plain is None else url_of(plain[0], naan, rest)
