"""One request over HTTP, streamed or whole, and what came of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from tools.soak.plan import Planned


@dataclass
class Choice:
    """What one choice came to."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    top_logprobs: list[Any] = field(default_factory=list)
    prompt_logprobs: Any = None
    finish_reason: str | None = None
    stop_reason: Any = None

    def add(self, choice: dict[str, Any]) -> None:
        """Take a choice of a reply, or its part of an event."""
        self.text += choice["text"]
        self.token_ids += choice.get("token_ids") or []
        logprobs = choice.get("logprobs")
        if logprobs:
            self.logprobs += logprobs["token_logprobs"]
            self.top_logprobs += logprobs["top_logprobs"]
        self.prompt_logprobs = choice.get("prompt_logprobs") or self.prompt_logprobs
        self.finish_reason = choice["finish_reason"] or self.finish_reason
        self.stop_reason = choice.get("stop_reason") or self.stop_reason

    def is_beginning_of(self, other: Choice) -> bool:
        """Whether all there is here is what `other` begins with; held-back text may lack.

        What ended before its prompt was read has an echo without log probabilities.
        """
        if not self.token_ids and not any(self.logprobs):
            return other.text.startswith(self.text)
        return (
            other.token_ids[: len(self.token_ids)] == self.token_ids
            and other.logprobs[: len(self.logprobs)] == self.logprobs
            and other.top_logprobs[: len(self.top_logprobs)] == self.top_logprobs
        )


@dataclass
class Outcome:
    """How a request went. status: of HTTP. error: of the body or of an error event."""

    planned: Planned
    choices: dict[int, Choice] = field(default_factory=dict)
    status: int = 0
    error: dict[str, Any] | None = None
    given_up: bool = False
    broken: str = ""
    """What went wrong with the connection itself; never expected."""

    @property
    def complete(self) -> bool:
        """Whether every choice has ended by itself."""
        wanted = self.planned.body.get("n", 1)
        return len(self.choices) == wanted and all(
            choice.finish_reason for choice in self.choices.values()
        )

    @property
    def num_tokens(self) -> int:
        """Tokens of all choices."""
        return sum(len(choice.token_ids) for choice in self.choices.values())


async def run(client: httpx.AsyncClient, planned: Planned, body: dict[str, Any]) -> Outcome:
    """Send `body` and do to it what is planned."""
    outcome = Outcome(planned)
    await asyncio.sleep(planned.delay_s)
    try:
        if planned.fate == "leave":
            await _leave(client, body, outcome)
        elif body["stream"]:
            await _stream(client, body, outcome)
        else:
            await _whole(client, body, outcome)
    except httpx.HTTPError as error:
        outcome.broken = f"{type(error).__name__}: {error}"
    return outcome


async def _leave(client: httpx.AsyncClient, body: dict[str, Any], outcome: Outcome) -> None:
    outcome.given_up = True
    task = asyncio.ensure_future(client.post("/v1/completions", json={**body, "stream": False}))
    await asyncio.sleep(outcome.planned.give_up_after * 0.002)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _whole(client: httpx.AsyncClient, body: dict[str, Any], outcome: Outcome) -> None:
    reply = await client.post("/v1/completions", json=body)
    outcome.status = reply.status_code
    fields = reply.json()
    outcome.error = fields.get("error")
    for choice in fields.get("choices", ()):
        outcome.choices.setdefault(choice["index"], Choice()).add(choice)


async def _stream(client: httpx.AsyncClient, body: dict[str, Any], outcome: Outcome) -> None:
    async with client.stream("POST", "/v1/completions", json=body) as reply:
        outcome.status = reply.status_code
        if reply.status_code != 200:
            outcome.error = json.loads(await reply.aread())["error"]
            return
        async for line in reply.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                outcome.error = event["error"]
                return
            for choice in event["choices"]:
                outcome.choices.setdefault(choice["index"], Choice()).add(choice)
            planned = outcome.planned
            if planned.fate == "cancel" and outcome.num_tokens >= planned.give_up_after:
                outcome.given_up = True
                return
