"""Arrivals of a streamed answer, and answers that are not whole."""

from __future__ import annotations

import json

import httpx
import pytest

from benchmarks.streamed import arrivals_s

PARTS: list[dict[str, object]] = [
    {"choices": [{"text": "a", "token_ids": [1], "prompt_token_ids": [1, 2]}]},
    {"choices": [{"text": "", "token_ids": [2, 3]}]},
]


async def arrivals_of(parts: list[dict[str, object]], tokens: int) -> list[float]:
    """Of an answer with these parts."""

    def answered(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content)["max_tokens"] == tokens
        lines = [f"data: {json.dumps(part)}\n\n" for part in parts]
        return httpx.Response(200, text="".join([*lines, "data: [DONE]\n\n"]))

    transport = httpx.MockTransport(answered)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        return await arrivals_s(client, "model", [1, 2], tokens)


async def test_every_part_with_tokens_is_an_arrival() -> None:
    """One has no text, as where a character is not whole."""
    found = await arrivals_of([*PARTS, {"choices": [], "usage": {}}], tokens=3)
    assert len(found) == 2 and found == sorted(found)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([*PARTS, {"error": {"message": "engine died"}}], "with 3 of 4 tokens: .*engine died"),
        (PARTS, "with 3 of 4 tokens"),
        ([], "with 0 of 4 tokens: nothing"),
    ],
    ids=["an error", "cut", "empty"],
)
async def test_an_answer_that_is_not_whole_is_no_figure(
    parts: list[dict[str, object]], reason: str
) -> None:
    with pytest.raises(RuntimeError, match=reason):
        await arrivals_of(parts, tokens=4)
