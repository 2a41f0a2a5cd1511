"""LlamaIndex's OpenAILike: `python llama_index_tour.py URL MODEL`."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version

from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.llms.openai_like import OpenAILike


def tour(url: str, model: str) -> None:
    llm = OpenAILike(
        model=model,
        api_base=f"{url}/v1",
        api_key="none",
        is_chat_model=True,
        context_window=512,
        max_tokens=8,
        temperature=0.5,
        additional_kwargs={"seed": 5},
        max_retries=0,
    )
    talk = [
        ChatMessage(role=MessageRole.SYSTEM, content="Be brief."),
        ChatMessage(role=MessageRole.USER, content="Hello"),
    ]
    whole = llm.chat(talk)
    assert whole.message.role == MessageRole.ASSISTANT
    streamed = list(llm.stream_chat(talk))
    assert streamed[-1].message.content == whole.message.content

    async def together() -> str | None:
        first, second = await asyncio.gather(llm.achat(talk), llm.achat(talk))
        assert first.message.content == second.message.content
        return first.message.content

    assert asyncio.run(together()) == whole.message.content

    plain = OpenAILike(
        model=model,
        api_base=f"{url}/v1",
        api_key="none",
        is_chat_model=False,
        context_window=512,
        max_tokens=8,
        temperature=0.0,
        max_retries=0,
    )
    assert plain.complete("def f(").text == list(plain.stream_complete("def f("))[-1].text


if __name__ == "__main__":
    tour(*sys.argv[1:3])
    print("llama-index-llms-openai-like", version("llama-index-llms-openai-like"))
