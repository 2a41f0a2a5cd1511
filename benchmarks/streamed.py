"""When the parts of streamed answers arrive."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import httpx


async def arrivals_s(
    client: httpx.AsyncClient, model: str, prompt: Sequence[int], tokens: int
) -> list[float]:
    """Readings of the clock at each arrival of an answer of so many tokens, greedily drawn.

    Tokens without a text arrive, too. Raises RuntimeError where the answer has another number of
    tokens, as one that failed does.
    """
    body = {
        "model": model, "prompt": list(prompt), "max_tokens": tokens, "temperature": 0,
        "ignore_eos": True, "stream": True, "return_token_ids": True,
    }  # fmt: skip
    parts: list[tuple[float, str]] = []
    async with client.stream("POST", "/v1/completions", json=body) as reply:
        reply.raise_for_status()
        async for line in reply.aiter_lines():
            if line.startswith("data: {"):
                parts.append((time.perf_counter(), line.removeprefix("data: ")))
    found: list[float] = []
    counted = 0
    for arrived_s, text in parts:
        for choice in json.loads(text).get("choices", ()):
            found.append(arrived_s)
            counted += len(choice.get("token_ids") or ())
    if counted != tokens or not found:
        last = parts[-1][1] if parts else "nothing"
        raise RuntimeError(f"an answer ended with {counted} of {tokens} tokens: {last}")
    return found
