"""Around every request: limits on what comes in, headers on what goes out, one line of log, and no traceback ever."""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fewone.service.errors import ServiceError, as_service_error
from fewone.service.logs import get_logger
from fewone.service.metrics import Metrics
from fewone.service.settings import Limits

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self';"
    " form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\]|testserver)(:\d+)?")


class Guard:
    """The outermost layer. open_to_all: there are no tokens, so only this machine's own pages may ask."""

    def __init__(self, app: ASGIApp, limits: Limits, metrics: Metrics, open_to_all: bool) -> None:
        self.app, self.limits, self.metrics, self.open_to_all = app, limits, metrics, open_to_all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self.limits)
        try:
            exchange.check(self.open_to_all)
            await self.app(scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:  # the server ends and has waited long enough
            fields = {"request": exchange.number, "path": scope["path"][:200]}
            get_logger().warning("the service ends: a request was broken off", extra={"fields": fields})
            await exchange.fail(ServiceError(503, "the service is going down; send it again in a moment", 5))
        except Exception as error:  # the last place where an error can become an answer
            await exchange.fail(error)
        finally:
            self._note(exchange)

    def _note(self, exchange: _Exchange) -> None:
        route = getattr(exchange.scope.get("route"), "path", "none")
        seconds = time.perf_counter() - exchange.begin
        method = exchange.scope["method"]
        method = method if method in ("GET", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "PUT") else "other"
        self.metrics.requests.labels(method, route, str(exchange.status)).inc()
        self.metrics.latency.labels(method, route).observe(seconds)
        fields = {
            "request": exchange.number,
            "method": method,
            "path": exchange.scope["path"][:200],
            "status": exchange.status,
            "milliseconds": round(1000 * seconds, 2),
            "client": (exchange.scope.get("client") or ("",))[0],
        }
        get_logger().info("request", extra={"fields": fields})


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: Limits) -> None:
        self.scope, self._receive, self._send, self.limits = scope, receive, send, limits
        self.number = scope["number"] = uuid.uuid4().hex[:12]
        self.begin = time.perf_counter()
        self.status = 0
        self._bytes = 0
        self._whole = False

    def check(self, open_to_all: bool) -> None:
        headers: MutableMapping[bytes, bytes] = dict(self.scope["headers"])
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.limits.body_bytes:
            raise self._too_large()
        if not open_to_all:
            return
        # Without tokens, a page of another site must not reach us through the browser of someone on this machine.
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not LOOPBACK.fullmatch(host):
            raise ServiceError(403, f"host {host[:80]!r}: without tokens only this machine is served; set a token")
        if origin and origin.partition("://")[2] != host:
            raise ServiceError(403, f"origin {origin[:80]!r}: pages of other sites are not served")

    async def receive(self) -> Message:
        if self._whole:
            return await self._receive()
        left = self.limits.request_seconds - (time.perf_counter() - self.begin)
        try:
            message = await asyncio.wait_for(self._receive(), max(0.01, min(self.limits.idle_seconds, left)))
        except TimeoutError:
            raise ServiceError(408, "the request came too slowly and was given up; send it again") from None
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._bytes > self.limits.body_bytes:
                raise self._too_large()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", []), *HEADERS, (b"x-request-id", self.number.encode())]
            if not any(name.lower() == b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            message = {**message, "headers": headers}
        await self._send(message)

    async def fail(self, error: Exception) -> None:
        known = as_service_error(error)
        if known is None:
            get_logger().error("internal error", exc_info=error, extra={"fields": {"request": self.number}})
            known = ServiceError(500, f"an internal error; the service's log has it under request {self.number}")
        if self.status:  # the answer has begun: all one can do is break it off
            return
        await self.send({"type": "http.response.start", "status": known.status, "headers": error_headers(known)})
        await self.send({"type": "http.response.body", "body": error_body(str(known))})

    def _too_large(self) -> ServiceError:
        return ServiceError(413, f"the request is larger than {self.limits.body_bytes} bytes; send less at once")


def error_headers(error: ServiceError) -> list[tuple[bytes, bytes]]:
    headers = [(b"content-type", b"application/json")]
    if error.retry_after is not None:
        headers.append((b"retry-after", str(error.retry_after).encode()))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.status in (408, 413):
        headers.append((b"connection", b"close"))
    return headers


def error_body(message: str) -> bytes:
    """One line of JSON, whatever a client typed."""
    return json.dumps({"error": " ".join(message.split())}, ensure_ascii=True).encode() + b"\n"


def error_content(message: str) -> dict[str, Any]:
    return {"error": " ".join(message.split())}
