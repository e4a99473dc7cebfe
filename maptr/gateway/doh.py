"""DNS over HTTPS (RFC 8484), answered from the configured zones in the server's steps: verify, answer, sign.

No client may transfer a zone, and there are no TSIG keys. There are no cookies, because HTTP caches share responses
between clients.
"""

from __future__ import annotations

import base64
import re
from http import HTTPStatus

from maptr.answer.context import ReceivedQuery, Transport
from maptr.answer.message import Message
from maptr.gateway.message import Request, Response, problem
from maptr.gateway.site import Site
from maptr.protocol.numbers import MAX_MESSAGE, MAX_TTL, NOERROR, NXDOMAIN, OPT, SOA
from maptr.transfer.session import Access, answer
from maptr.transfer.tsig import check_query

PATH = "/dns-query"
DNS_MESSAGE = "application/dns-message"
NO_ACCESS = Access()

_BASE64URL = re.compile("[A-Za-z0-9_-]*")  # without padding (RFC 8484 6)


def respond(request: Request, site: Site) -> Response:
    """Return the DNS response to the query in a GET, HEAD or POST, or a problem."""
    if site.zones is None:
        return problem(HTTPStatus.NOT_FOUND, "no zone is served here")
    if not request.quality(DNS_MESSAGE):
        return problem(HTTPStatus.NOT_ACCEPTABLE, f"the response is {DNS_MESSAGE}")
    query = _posted(request) if request.method == "POST" else _in_target(request)
    if isinstance(query, Response):
        return query
    if len(query) > MAX_MESSAGE:
        return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a DNS message has at most {MAX_MESSAGE} bytes")
    checked = check_query(ReceivedQuery(query, Transport.TLS, request.client), {}, 0)  # no keys, so no time is needed
    reply = answer(checked, site.zones, NO_ACCESS, site.dns_context).reply
    if reply is None:
        return problem(HTTPStatus.BAD_REQUEST, "not a DNS query")
    made = checked.sign(reply.wire)
    seconds = freshness(made)
    kept = "no-store" if seconds is None else f"max-age={seconds}"
    return Response(HTTPStatus.OK, (("Content-Type", DNS_MESSAGE), ("Cache-Control", kept)), made)


def _posted(request: Request) -> bytes | Response:
    if request.media_type == DNS_MESSAGE:
        return request.body
    return problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body is not {DNS_MESSAGE}", (("Accept", DNS_MESSAGE),))


def _in_target(request: Request) -> bytes | Response:
    values = [value for name, value in request.parameters if name == "dns"]
    if len(values) != 1:
        reason = "the parameter dns is missing: a DNS message as base64url" if not values else "dns is given twice"
        return problem(HTTPStatus.BAD_REQUEST, reason)
    if not _BASE64URL.fullmatch(values[0]) or len(values[0]) % 4 == 1:
        return problem(HTTPStatus.BAD_REQUEST, "dns is not base64url without padding")
    return base64.urlsafe_b64decode(values[0] + "=" * (-len(values[0]) % 4))


def freshness(response: bytes) -> int | None:
    """Return how many seconds a DNS response may be cached (RFC 8484 5.1): its smallest TTL.

    Without an answer, at most the SOA's MINIMUM (RFC 2308 5). None for an error, or without records.
    """
    message = Message.parse(response, most=MAX_MESSAGE)
    if message.header.rcode not in (NOERROR, NXDOMAIN):
        return None
    ttls = [record.ttl for record in (*message.rr, *message.auth, *message.ar) if record.rtype != OPT]
    if not message.rr:
        ttls += [int.from_bytes(record.rdata.data[-4:], "big") for record in message.auth if record.rtype == SOA]
    return min((ttl if ttl <= MAX_TTL else 0 for ttl in ttls), default=None)  # RFC 2181 8
