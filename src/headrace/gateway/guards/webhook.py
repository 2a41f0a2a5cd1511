"""A guardrail behind a webhook.

Question and verdict follow LiteLLM's generic guardrail API, so that existing webhooks can be used:
`texts`, `input_type`, and back `action` with `blocked_reason` or replaced `texts`. Further fields
are added. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.gateway.alerts.webhook import (
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    Receiver,
    signature,
)
from headrace.gateway.guards.guard import GuardFailedError, Subject, Verdict
from headrace.gateway.settings.secret import Secret
from headrace.gateway.upstream.errors import UpstreamError
from headrace.gateway.upstream.limits import Timeouts
from headrace.gateway.upstream.pool import Pool
from headrace.gateway.upstream.request import request_bytes

_MOST_REPLY_BYTES = 64 * 2**20


class _Question(msgspec.Struct, frozen=True, kw_only=True):
    guardrail: str
    input_type: Literal["request", "response"]
    texts: tuple[str, ...]
    roles: tuple[str, ...]
    kinds: tuple[str, ...]
    tools: tuple[str, ...]
    max_tokens: int | None
    request_id: str
    dialect: str
    model: str
    key: str
    user: str
    team: str
    organisation: str


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    action: Literal["NONE", "BLOCKED", "GUARDRAIL_INTERVENED"]
    blocked_reason: Annotated[str, Meta(max_length=2000)] | None = None
    texts: tuple[str, ...] | None = None


_DECODER = msgspec.json.Decoder(_Told)


class WebhookGuard:
    """A guardrail that calls a webhook. timeout_s: for the whole exchange. wall_s: Unix time."""

    def __init__(
        self,
        name: str,
        receiver: Receiver,
        headers: Sequence[tuple[str, Secret]],
        secret: Secret | None,
        *,
        timeout_s: float,
        wall_s: Callable[[], float],
    ) -> None:
        self._name = name
        self._receiver = receiver
        self._headers = headers
        self._secret = secret
        self._timeout_s = timeout_s
        self._wall_s = wall_s
        self._pool = Pool(receiver.origin)

    def close(self) -> None:
        """Close idle connections. It can still be called: answers that began before a reload end
        under the guardrails they began with."""
        self._pool.close()

    async def __call__(self, subject: Subject) -> Verdict:
        """See Look."""
        question = _Question(
            guardrail=self._name,
            input_type="request" if subject.on == "input" else "response",
            texts=tuple(passage.text for passage in subject.passages),
            roles=tuple(one.role for one in subject.passages),
            kinds=tuple(one.kind for one in subject.passages),
            tools=subject.tools,
            max_tokens=subject.max_tokens,
            request_id=subject.request_id,
            dialect=subject.dialect,
            model=subject.model,
            key=subject.key,
            user=subject.user,
            team=subject.team,
            organisation=subject.organisation,
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                told = await self._ask(msgspec.json.encode(question))
        except TimeoutError:
            raise GuardFailedError(f"no verdict within {self._timeout_s:g} s") from None
        except UpstreamError as error:
            raise GuardFailedError(f"{self._receiver.origin.host}: {error.problem}") from None
        if told.action == "BLOCKED":
            return Verdict(told.blocked_reason or "refused")
        if told.action == "NONE":
            return Verdict()
        if told.texts is None or len(told.texts) != len(question.texts):
            raise GuardFailedError(
                f"{len(question.texts)} texts were sent, and a different number came back"
            )
        changed = told.texts != question.texts
        return Verdict("texts were replaced" if changed else "", told.texts)

    async def _ask(self, body: bytes) -> _Told:
        timestamp = int(self._wall_s())
        headers = [
            ("content-type", "application/json"),
            ("user-agent", "headrace-gateway"),
            (TIMESTAMP_HEADER, str(timestamp)),
            *((name, value.reveal()) for name, value in self._headers),
        ]
        if self._secret is not None:
            headers.append((SIGNATURE_HEADER, signature(self._secret, timestamp, body)))
        origin, target = self._receiver
        timeouts = Timeouts(self._timeout_s, self._timeout_s, self._timeout_s)
        request = request_bytes("POST", origin, target, headers, body)
        reply = await self._pool.send(request, timeouts)
        try:
            told = await reply.body(_MOST_REPLY_BYTES)
        finally:
            reply.abort()
        if reply.status != 200:
            raise GuardFailedError(f"{origin.host}: status {reply.status}")
        try:
            return _DECODER.decode(told)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise GuardFailedError(f"{origin.host}: the reply is not a verdict: {error}") from None
