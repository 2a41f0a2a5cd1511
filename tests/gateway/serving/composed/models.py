"""Gateways whose models are made of others, in front of a provider that answers by model."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from tests.gateway.openai_provider import Answer, answers, body_of, completion, reply

PRICES = {"small": (1.0, 2.0), "medium": (2.0, 4.0), "strong": (10.0, 30.0), "judge": (0.5, 1.0)}
# Of `openai_provider.USAGE`: 12 tokens in and 3 out, in nano-dollars.
COST_NUSD = {name: round(12_000 * in_ + 3_000 * out) for name, (in_, out) in PRICES.items()}
# Of requests without max_tokens.
HELD_OUTPUT_TOKENS = 4096


def settings(origin: Any, models: dict[str, Any], **more: Any) -> dict[str, Any]:
    """small, medium, strong and judge at one provider, and `models` made of them."""
    plain = {
        name: {"targets": [{"model": f"a/{name}", "price": {"input": in_, "output": out}}]}
        for name, (in_, out) in PRICES.items()
    }
    return {
        "providers": {"a": {"base_url": f"{origin}/v1", "dialect": "openai-chat"}},
        "models": {**plain, **models},
        "retries": {"backoff_s": 0.01, "backoff_max_s": 0.02, "attempts": 1},
        **more,
    }


def cascade(*stages: Any, **accept: Any) -> dict[str, Any]:
    """A model `auto` of these stages."""
    return {"auto": {"cascade": {"stages": list(stages), "accept": accept}}}


def says(**by_model: Any) -> Answer:
    """Each model its own: a text, an Answer, or a function of the request's body."""
    kinds: dict[str, Any] = by_model

    async def answer(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        body = body_of(request)
        said = kinds[body["model"]]
        if isinstance(said, str):
            said = answers(said)
        elif isinstance(said, _Sure):
            said = said.answer
        await said(number, request, writer)

    return answer


class _Sure:
    """A whole answer whose tokens all have one probability; told only to who asks for it."""

    def __init__(self, text: str, probability: float, second: float) -> None:
        self._text, self._probability, self._second = text, probability, second

    async def answer(self, _number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        body = body_of(request)
        told = completion(self._text, body["model"])
        if body.get("logprobs"):
            others = [(self._text, self._probability), ("other", self._second)]
            listed = [
                {"token": word, "logprob": math.log(value), "bytes": None}
                for word, value in others[: body.get("top_logprobs") or 0]
            ]
            told["choices"][0]["logprobs"] = {
                "content": [
                    {
                        "token": word, "logprob": math.log(self._probability), "bytes": None,
                        "top_logprobs": listed,
                    }
                    for word in self._text.split()
                ]
            }  # fmt: skip
        assert body.get("stream") is not True, "what is looked at comes whole"
        writer.write(reply(200, told))


def sure(text: str, probability: float, second: float = 0.05) -> _Sure:
    """See `says`."""
    return _Sure(text, probability, second)


def late(after_s: float, then: Answer) -> Answer:
    """The same after a while."""

    async def answer(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(after_s)
        await then(number, request, writer)

    return answer


def asked(requests: list[bytes], of: Callable[[dict[str, Any]], Any]) -> list[Any]:
    """Something of each request that the provider had."""
    return [of(body_of(one)) for one in requests]


def model_of(body: dict[str, Any]) -> Any:
    return body["model"]
