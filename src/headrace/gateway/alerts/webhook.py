"""Delivers alerts to a webhook: from a bounded queue, in a separate task.

Only that task waits for the receiver. An alert is retried with growing delays as long as waiting
may help. Redirects are not followed: the configuration decides who receives alerts. Logs name only
the receiver's host, as the path or query of its address is often a secret.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from headrace.errors import ConfigError
from headrace.gateway.alerts.notice import Format, Notice, written
from headrace.gateway.settings.secret import Secret
from headrace.gateway.upstream.errors import UpstreamError
from headrace.gateway.upstream.limits import Timeouts
from headrace.gateway.upstream.origin import Origin
from headrace.gateway.upstream.pool import Pool
from headrace.gateway.upstream.request import request_bytes

logger = logging.getLogger(__name__)

SIGNATURE_HEADER = "x-headrace-signature"
TIMESTAMP_HEADER = "x-headrace-timestamp"

_MOST_WAITING = 200
_ATTEMPTS = 8
_FIRST_WAIT_S, _MOST_WAIT_S = 1.0, 60.0
_TIMEOUTS = Timeouts(connect_s=5.0, first_byte_s=10.0, idle_s=10.0)
_MOST_REPLY_BYTES = 1 << 20
_CLOSE_S = 2.0
# Besides 5xx: statuses by which the receiver itself suggests a retry.
_LATER = frozenset((408, 425, 429))


class Receiver(NamedTuple):
    """The receiver of alerts: its origin, and a target of path and query."""

    origin: Origin
    target: str

    def __repr__(self) -> str:
        return f"<receiver at {self.origin.host}>"


def read_receiver(url: str) -> Receiver:
    """Parse an address. Raises ConfigError, without the address, if it is invalid."""
    problem = "alerts.url: must be an address like https://alerts.example.com/hook"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(problem) from error
    ports = {"http": 80, "https": 443}
    visible = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in ports or not parts.hostname or parts.username or not visible:
        raise ConfigError(problem)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Receiver(Origin(parts.scheme, parts.hostname, port or ports[parts.scheme]), target)


def signature(secret: Secret, timestamp: int, body: bytes) -> str:
    """`v1=` and the hexadecimal HMAC-SHA256 of timestamp, a dot and the body."""
    signed = str(timestamp).encode() + b"." + body
    return "v1=" + hmac.new(secret.reveal().encode(), signed, hashlib.sha256).hexdigest()


class Webhook:
    """A sender of alerts to one receiver. `wall_s` is Unix time; `source` randomises delays."""

    def __init__(
        self,
        receiver: Receiver,
        secret: Secret | None,
        format: Format,
        *,
        wall_s: Callable[[], float],
        source: random.Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._receiver = receiver
        self._secret = secret
        self._format = format
        self._wall_s = wall_s
        self._source = source
        self._sleep = sleep
        self._pool = Pool(receiver.origin)
        self._waiting: deque[Notice] = deque()
        self._telling: asyncio.Task[None] | None = None
        self.lost = 0

    def tell(self, notice: Notice) -> None:
        """Queue an alert; never waits. If the queue is full it is lost, and logged."""
        if len(self._waiting) >= _MOST_WAITING:
            self.lost += 1
            logger.error(
                "alerts: %d alerts to %s are waiting; another was lost",
                _MOST_WAITING,
                self._receiver,
            )
            return
        self._waiting.append(notice)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.ensure_future(self._tell_all())

    async def close(self, within_s: float = _CLOSE_S) -> None:
        """Send pending alerts for up to `within_s`; the rest is lost, and logged."""
        if self._telling is not None:
            await asyncio.wait({self._telling}, timeout=within_s)
            self._telling.cancel()
        if self._waiting:
            logger.error(
                "alerts: %d were not sent to %s before the end", len(self._waiting), self._receiver
            )
        self._pool.close()

    async def _tell_all(self) -> None:
        while self._waiting:
            await self._tell(self._waiting[0])
            self._waiting.popleft()

    async def _tell(self, notice: Notice) -> None:
        body = written(notice, self._format)
        why = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                wait_s = min(_MOST_WAIT_S, _FIRST_WAIT_S * 2.0 ** (attempt - 1))
                await self._sleep(wait_s * (1 - 0.5 * self._source.random()))
            try:
                status = await self._post(notice, body)
            except UpstreamError as error:
                why = error.problem
                continue
            if 200 <= status < 300:
                return
            why = f"status {status}"
            if status < 500 and status not in _LATER:
                break
        self.lost += 1
        logger.error("alerts: %s did not accept %s: %s", self._receiver, notice.event, why)

    async def _post(self, notice: Notice, body: bytes) -> int:
        # Signed again for each attempt: receivers refuse old signatures.
        timestamp = int(self._wall_s())
        headers = [
            ("content-type", "application/json"),
            ("user-agent", "headrace-gateway"),
            ("x-headrace-id", notice.id),
            (TIMESTAMP_HEADER, str(timestamp)),
        ]
        if self._secret is not None:
            headers.append((SIGNATURE_HEADER, signature(self._secret, timestamp, body)))
        origin, target = self._receiver
        reply = await self._pool.send(
            request_bytes("POST", origin, target, headers, body), _TIMEOUTS
        )
        try:
            await reply.body(_MOST_REPLY_BYTES)
            return reply.status
        finally:
            reply.abort()
