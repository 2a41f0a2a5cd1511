"""Agents replayed through one of our dialects, and the same turns asked of a cold cache.

A cell's agents share a cache salt, which no other cell has: what a turn finds was computed in it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx

from benchmarks.agents.dialects import Answer, Chat, Dialect, Messages, Responses, ask
from benchmarks.agents.recorded import Conversation, Message

CHAT = Chat()


class Replay:
    """The turns of agents through a dialect of the server at `url`.

    answers and prompts (as messages of the chat API): of each agent's turns, once `run` was.
    """

    def __init__(
        self, url: str, model: str, dialect: Dialect, agents: Sequence[Conversation], tokens: int,
        salt: str, *, stored: bool = False,
    ) -> None:  # fmt: skip
        """stored: each request names the response before it and sends what is new alone."""
        self._url = url
        self._settings = {"model": model, "temperature": 0}
        self._dialect = dialect
        self._agents = agents
        self._tokens = tokens
        self._salt = salt
        self._stored = stored
        self.answers: list[list[Answer]] = [[] for _ in agents]
        self.prompts: list[list[list[Message]]] = [[] for _ in agents]

    async def run(self) -> None:
        """All agents at once; of each, turn after turn."""
        limits = httpx.Limits(max_connections=len(self._agents))
        async with httpx.AsyncClient(base_url=self._url, timeout=600.0, limits=limits) as client:
            await asyncio.gather(*(self._session(client, i) for i in range(len(self._agents))))

    async def _session(self, client: httpx.AsyncClient, number: int) -> None:
        agent = self._agents[number]
        for turn in range(len(agent.ends)):
            if self._stored and turn:
                prompt, fresh = self._continued(number, turn)
                body = self._dialect.body(fresh, agent.tools, turn)
                body["previous_response_id"] = self.answers[number][-1].response_id
            else:
                prompt = agent.turn(turn)
                body = self._dialect.body(prompt, agent.tools, turn)
            if self._stored:
                # A call of the model's own would need a result, which the record does not have.
                del body["tools"]
            body |= self._settings | self._dialect.limit(self._tokens)
            answer = await ask(client, self._dialect, {**body, "cache_salt": self._salt})
            self.prompts[number].append(prompt)
            self.answers[number].append(answer)

    def _continued(self, number: int, turn: int) -> tuple[list[Message], list[Message]]:
        """The conversation with the model's own answer in it, and what of it is sent.

        The model's answer stands where the recorded one did; the recorded one's calls, which the
        results that follow belong to, are sent with these.
        """
        agent, last = self._agents[number], self.answers[number][-1]
        recorded, *rest = agent.messages[agent.ends[turn - 1] : agent.ends[turn]]
        calls = recorded.get("tool_calls", [])
        own: Message = {"role": "assistant", "content": last.content}
        if last.reasoning:
            own["reasoning_content"] = last.reasoning
        if calls:
            own["tool_calls"] = calls
        sent: list[Message] = [{"role": "assistant", "content": "", "tool_calls": calls}]
        return [*self.prompts[number][-1], own, *rest], [*sent, *rest]


class Cold:
    """Answers to conversations of which nothing is cached, each asked once."""

    def __init__(self, url: str, model: str, tokens: int) -> None:
        self._url = url
        self._settings = {"model": model, "temperature": 0, **CHAT.limit(tokens)}
        self._known: dict[str, Answer] = {}

    async def answer(self, prompt: Sequence[Message], tools: list[dict[str, Any]]) -> Answer:
        """The answer, by way of the chat API: with ids, and log probabilities of ids."""
        name = json.dumps([list(prompt), tools])
        if name not in self._known:
            salt = f"cold {len(self._known)}"
            body = {**CHAT.body(prompt, tools, 0), **self._settings, "cache_salt": salt}
            async with httpx.AsyncClient(base_url=self._url, timeout=600.0) as client:
                answer = await ask(client, CHAT, body)
            if answer.cached_tokens:
                raise RuntimeError("a cold start found something cached")
            self._known[name] = answer
        return self._known[name]


def named_dialects() -> dict[str, tuple[Dialect, bool]]:
    """Dialects by the names of the table, and whether each names the response before."""
    return {
        "chat": (CHAT, False), "messages": (Messages(), False), "responses": (Responses(), False),
        "responses, previous": (Responses(), True),
    }  # fmt: skip
