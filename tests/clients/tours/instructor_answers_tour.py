"""instructor with calls and with schemas: `python instructor_answers_tour.py URL MODEL`."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version
from typing import Any, Literal

import instructor
import openai
from instructor import Mode
from pydantic import BaseModel


class Opinion(BaseModel):
    """What somebody thinks of a thing."""

    thing: Literal["Python", "Java"]
    verdict: Literal["good", "bad"]


USER = {"role": "user", "content": "Is Python good?"}


def tour(url: str, model: str) -> None:
    settings = {
        "model": model,
        "messages": [USER],
        "response_model": Opinion,
        "max_retries": 0,
        "temperature": 0,
        "max_tokens": 300,
    }
    plain = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    for mode in (Mode.TOOLS, Mode.TOOLS_STRICT, Mode.JSON_SCHEMA):
        client = instructor.from_openai(plain, mode=mode)
        opinion, completion = client.chat.completions.create_with_completion(**settings)
        assert isinstance(opinion, Opinion), (mode, opinion)
        assert completion.usage.completion_tokens > 0
        pieces = list(client.chat.completions.create_partial(**settings))
        assert pieces[-1].model_dump() == opinion.model_dump(), mode
        again = asyncio.run(with_async(url, mode, settings))
        assert again.model_dump() == opinion.model_dump(), mode


async def with_async(url: str, mode: Mode, settings: dict[str, Any]) -> BaseModel:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as plain:
        return await instructor.from_openai(plain, mode=mode).chat.completions.create(**settings)


if __name__ == "__main__":
    tour(*sys.argv[1:3])
    print("instructor", version("instructor"))
