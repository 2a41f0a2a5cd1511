"""The same turns through llama-server's chat completions."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from benchmarks.agents.dialects import Answer, events
from benchmarks.agents.models import AgentModel
from benchmarks.agents.recorded import Conversation
from benchmarks.llamacpp.server import start_server


def start_peer(
    program: str, model: AgentModel, template: Path, agents: int, threads: int
) -> tuple[subprocess.Popen[bytes], str]:
    """llama-server with what it has to keep prefixes; the process and its address."""
    options = ["--jinja", "--chat-template-file", str(template), "--no-warmup"]
    options += ["--kv-unified", "--cache-ram", "8192", "--ctx-checkpoints", "32"]
    options += ["-np", str(max(agents, 4)), "-c", str(model.context * 4), "-t", str(threads)]
    return start_server(program, model.path, options)


async def replay_peer(url: str, agents: Sequence[Conversation], tokens: int) -> list[list[Answer]]:
    """Every turn of every agent, the agents at once; prompt_ids as its own template gives them."""
    # A connection of its own for each request: an idle one may be closed just as the next is sent.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=600.0, limits=limits) as client:
        answers = await asyncio.gather(*(_session(client, agent, tokens) for agent in agents))
        for agent, of_agent in zip(agents, answers, strict=True):
            for turn, answer in enumerate(of_agent):
                answer.prompt_ids = await _prompt_ids(client, agent, turn)
    return list(answers)


async def _session(client: httpx.AsyncClient, agent: Conversation, tokens: int) -> list[Answer]:
    return [await _ask(client, agent, turn, tokens) for turn in range(len(agent.ends))]


async def _ask(client: httpx.AsyncClient, agent: Conversation, turn: int, tokens: int) -> Answer:
    body: dict[str, Any] = {
        "messages": agent.turn(turn), "tools": agent.tools, "max_tokens": tokens,
        "temperature": 0, "stream": True, "cache_prompt": True, "timings_per_token": True,
    }  # fmt: skip
    answer, first, start = Answer(), 0.0, time.perf_counter()
    async with client.stream("POST", "/v1/chat/completions", json=body) as reply:
        if reply.status_code != 200:
            raise RuntimeError(f"llama-server: {(await reply.aread()).decode()}")
        async for event in events(reply):
            # That an answer of random weights does not parse ends the stream, not the count.
            if timings := event.get("timings"):
                answer.cached_tokens = timings["cache_n"]
                answer.prompt_tokens = timings["cache_n"] + timings["prompt_n"]
                answer.output_tokens = timings["predicted_n"]
            for choice in event.get("choices", ()):
                delta = choice["delta"]
                text = delta.get("content") or delta.get("reasoning_content")
                if (text or delta.get("tool_calls")) and not first:
                    first = time.perf_counter()
    answer.ttft_s = (first or time.perf_counter()) - start
    return answer


async def _prompt_ids(client: httpx.AsyncClient, agent: Conversation, turn: int) -> list[int]:
    body = {"messages": agent.turn(turn), "tools": agent.tools}
    prompt = (await client.post("/apply-template", json=body)).json()["prompt"]
    text = {"content": prompt, "add_special": True, "parse_special": True}
    ids: list[int] = (await client.post("/tokenize", json=text)).json()["tokens"]
    return ids
