"""Small requests to services that issue tokens: limited in time and size."""

from __future__ import annotations

import re
import ssl
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from headrace.gateway.credentials.renewed import Fresh
from headrace.gateway.upstream.errors import UpstreamError
from headrace.gateway.upstream.limits import PoolLimits, Timeouts
from headrace.gateway.upstream.origin import read_base_url
from headrace.gateway.upstream.pool import Pool
from headrace.gateway.upstream.request import request_bytes

_TIMEOUTS = Timeouts(5.0, 10.0, 10.0)
# A service on this machine or beside it: if it is missing, nothing answers at all.
NEAR = Timeouts(1.0, 2.0, 2.0)
_MOST_BYTES = 64 * 1024
# RFC 6749, 5.2. The rest of a refusal may repeat what was sent, so it is not shown.
_ERROR = re.compile(r"[A-Za-z_]{1,40}")
# The characters of a token in a header.
_TOKEN = re.compile(r"[!-~]+")
_FORM = (("content-type", "application/x-www-form-urlencoded"), ("accept", "application/json"))


class Answer(NamedTuple):
    """A reply of any status."""

    status: int
    body: bytes


class Endpoint:
    """A service that issues tokens.

    `address` has the scheme, host and path that every request's path begins with. `who` names the
    service in errors.
    """

    def __init__(self, address: str, who: str, timeouts: Timeouts = _TIMEOUTS) -> None:
        base = read_base_url(address)
        tls = ssl.create_default_context() if base.origin.scheme == "https" else None
        self._base = base
        self._pool = Pool(base.origin, PoolLimits(connections=4), tls=tls)
        self._timeouts = timeouts
        self.who = who

    async def ask(
        self,
        method: str,
        path: str = "",
        headers: tuple[tuple[str, str], ...] = (),
        body: bytes = b"",
    ) -> Answer:
        """Send a request. Raises UpstreamError."""
        target = self._base.path + path or "/"
        reply = await self._pool.send(
            request_bytes(method, self._base.origin, target, headers, body), self._timeouts
        )
        try:
            return Answer(reply.status, await reply.body(_MOST_BYTES))
        finally:
            reply.abort()

    async def token(self, form: dict[str, str]) -> Fresh[str]:
        """Request an access token with an OAuth 2.0 form. Raises UpstreamError."""
        return self.read_token(await self.ask("POST", "", _FORM, urlencode(form).encode()))

    def read_token(self, answer: Answer) -> Fresh[str]:
        """Read an access token. Raises UpstreamError if the reply is not one."""
        fields = self.read_object(answer)
        token, lasts_s = fields.get("access_token"), fields.get("expires_in")
        if isinstance(lasts_s, str) and lasts_s.isdigit():
            lasts_s = int(lasts_s)
        if (
            not isinstance(token, str)
            or not _TOKEN.fullmatch(token)
            or isinstance(lasts_s, bool)
            or not isinstance(lasts_s, int | float)
        ):
            raise self.refused(answer)
        return Fresh(token, float(lasts_s))

    def read_object(self, answer: Answer) -> dict[str, Any]:
        """Read a JSON object. Raises UpstreamError for a refusal or any other reply."""
        try:
            told = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise self.refused(answer) from None
        if answer.status != 200 or not isinstance(told, dict):
            code = told.get("error") if isinstance(told, dict) else None
            named = isinstance(code, str) and _ERROR.fullmatch(code)
            raise self.refused(answer, str(code) if named else "")
        return told

    def refused(self, answer: Answer, code: str = "") -> UpstreamError:
        """The error for a refusal, without the service's words."""
        detail = f", {code}" if code else ""
        return UpstreamError(
            "connect", f"{self.who} issued no token (status {answer.status}{detail})", unsent=True
        )
