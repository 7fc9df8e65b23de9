"""Where a server of a shared tier is, how a connection to it is made, and what each request carries."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http.client import HTTPConnection, HTTPSConnection
from ssl import SSLContext, create_default_context
from typing import Final, final
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

__all__ = ["Endpoint", "Proxy", "endpoint_of"]

_PORTS: Final = {"http": 80, "https": 443}
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_OURS: Final = frozenset(
    ("accept-encoding", "connection", "content-length", "host", "if-none-match", "transfer-encoding")
)


@final
@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy in front of a server, and what it wants to be told of who asks."""

    host: str
    port: int
    headers: Mapping[str, str] = field(repr=False)


@final
@dataclass(frozen=True)
class Endpoint:
    """A server and the path that everything of ours is below. `headers` may be secret: they stay out of every text."""

    scheme: str
    host: str
    port: int
    prefix: str
    headers: Mapping[str, str] = field(repr=False)
    proxy: Proxy | None = None

    def __str__(self) -> str:
        return f"{self.origin}{self.prefix}"

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")

    @cached_property
    def _context(self) -> SSLContext:
        return create_default_context()

    def connection(self, timeout_s: float) -> HTTPConnection:
        """A connection that is not made yet; each of its system calls takes at most so long."""
        host, port = (self.host, self.port) if self.proxy is None else (self.proxy.host, self.proxy.port)
        if self.scheme == "http":
            return HTTPConnection(host, port, timeout=timeout_s)
        made = HTTPSConnection(host, port, timeout=timeout_s, context=self._context)
        if self.proxy is not None:
            made.set_tunnel(self.host, self.port, headers=dict(self.proxy.headers))
        return made

    def target(self, path: str) -> str:
        """What is asked of whom the connection is with: a plain proxy is told the whole address."""
        return f"{self.origin}{path}" if self.scheme == "http" and self.proxy is not None else path

    def sent_headers(self) -> dict[str, str]:
        plain = self.proxy if self.scheme == "http" else None  # a tunnel is told when it is made, and once
        return {**self.headers, **(plain.headers if plain is not None else {}), "Accept-Encoding": "identity"}

    def followed(self, path: str, location: str) -> str | None:
        """The path of a redirect, if it stays on this server; otherwise nobody is followed there."""
        try:
            parts = urlsplit(urljoin(f"{self.origin}{path}", location))
            here = (parts.scheme, parts.hostname, _port_of(parts)) == (self.scheme, self.host, self.port)
        except ValueError:
            return None
        found = parts.path + (f"?{parts.query}" if parts.query else "")
        return found if here and re.fullmatch(r"/[\x21-\x7e]*", found) else None


def endpoint_of(url: str, headers: Mapping[str, str], proxies: Mapping[str, str] | None) -> Endpoint:
    """The server of an address. A ValueError for what is no address or header, and never with its secret parts."""
    parts = urlsplit(url)
    port = _port_of(parts)
    if parts.scheme not in _PORTS or not parts.hostname or port is None or parts.query or parts.fragment:
        raise ValueError(
            "the address of a shared tier is http:// or https://, a host and a path, and nothing behind it"
        )
    prefix = parts.path.rstrip("/")
    if re.fullmatch(r"(/[\x21-\x7e]*)?", prefix) is None:
        raise ValueError("the path of a shared tier is printable ASCII; write other characters as %xx")
    try:
        _ = parts.hostname.encode("idna")
    except UnicodeError:
        raise ValueError("the host of a shared tier is no name of a host") from None
    for name, value in headers.items():
        if _HEADER_NAME.fullmatch(name) is None or name.lower() in _OURS or _HEADER_VALUE.fullmatch(value) is None:
            raise ValueError(f"a shared tier cannot be sent a header {name!r} like that")
    proxy = _proxy_of(parts, port, getproxies() if proxies is None else proxies, bypassed=proxies is None)
    return Endpoint(parts.scheme, parts.hostname, port, prefix, {**_authorization(parts, ""), **headers}, proxy)


def _proxy_of(parts: SplitResult, port: int, proxies: Mapping[str, str], *, bypassed: bool) -> Proxy | None:
    url = proxies.get(parts.scheme) or proxies.get("all")
    if not url or (bypassed and proxy_bypass(f"{parts.hostname}:{port}")):
        return None
    proxy = urlsplit(url if "://" in url else f"http://{url}")
    proxy_port = _port_of(proxy)
    if proxy.scheme != "http" or not proxy.hostname or proxy_port is None:
        raise ValueError(f"the proxy for {parts.scheme} is no address of an HTTP proxy")
    return Proxy(proxy.hostname, proxy_port, _authorization(proxy, "Proxy-"))


def _port_of(parts: SplitResult) -> int | None:
    return _PORTS.get(parts.scheme) if parts.port is None else parts.port


def _authorization(parts: SplitResult, prefix: str) -> dict[str, str]:
    if parts.username is None:
        return {}
    given = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {f"{prefix}Authorization": f"Basic {b64encode(given.encode()).decode('ascii')}"}
