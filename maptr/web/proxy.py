"""The environment's proxy for a URL: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, by urllib's rules.

A lower-case variable takes precedence over its upper-case form. Where REQUEST_METHOD is set, as for a CGI program,
HTTP_PROXY is ignored, because a client can set it with the header ``Proxy`` (CVE-2016-1000110, "httpoxy").
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from maptr import url


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy. Its text omits the credentials, which are in ``authorization`` ("" for none)."""

    host: url.Host
    port: int
    authorization: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"http://{self.host.in_url}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Proxy-Authorization": self.authorization} if self.authorization else {}


def proxy_for(where: url.Url) -> Proxy | None:
    """Return the environment's proxy for requests to this server, or None to connect directly.

    Raises ValueError for an unusable proxy; the message omits its credentials.
    """
    proxies = getproxies_environment()
    kind = where.scheme if where.scheme in proxies else "all"
    if kind not in proxies or _is_excepted(where, proxies):
        return None
    try:
        return _read(proxies[kind])
    except ValueError as error:
        raise ValueError(f"{kind.upper()}_PROXY is not a usable proxy: {error}") from None


def _is_excepted(where: url.Url, proxies: dict[str, str]) -> bool:
    host = where.host.in_url.removesuffix(".")
    forms = {f"{host}:{where.port or url.PORTS[where.scheme]}", where.host.text}  # the second: IPv6 without brackets
    return any(proxy_bypass_environment(form, proxies) for form in forms)


def _read(text: str) -> Proxy:
    """Return the proxy ``[http://][USER:PASSWORD@]HOST[:PORT][/]``. Raises ValueError."""
    scheme, mark, rest = text.strip().partition("://")
    if not mark:
        scheme, rest = "http", text.strip()
    if scheme.lower() != "http":
        raise ValueError("only http:// proxies are supported, not SOCKS or https://")
    credentials, mark, server = rest.rpartition("@")
    try:
        where = url.parse(f"http://{server}")
    except ValueError:  # its text may contain part of the password
        where = None
    if where is None or where.rest not in ("", "/") or set(credentials) & set("/?#"):
        raise ValueError("write http://USER:PASSWORD@HOST:PORT, with / ? # @ in the password as %2F %3F %23 %40")
    authorization = ""
    if mark:
        user, _, password = credentials.partition(":")
        basic = b":".join(map(unquote_to_bytes, (user, password)))  # RFC 7617 2
        authorization = f"Basic {base64.b64encode(basic).decode()}"
    return Proxy(where.host, where.port or url.PORTS["http"], authorization)
