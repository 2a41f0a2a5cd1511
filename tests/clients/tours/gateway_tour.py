"""LangChain and LiteLLM's client through the gateway: `python gateway_tour.py URL MODEL`."""

from __future__ import annotations

import asyncio
import sys

import litellm
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI

TALK = [SystemMessage("Be brief."), HumanMessage("One"), AIMessage("Two"), HumanMessage("Three")]


def langchain(url: str, model: str) -> None:
    settings = {"base_url": f"{url}/v1", "api_key": "none", "model": model, "max_retries": 0}
    chat = ChatOpenAI(**settings, max_tokens=8, temperature=0.7, seed=3)
    whole = chat.invoke(TALK)
    assert whole.usage_metadata and whole.usage_metadata["output_tokens"] <= 8
    assert "".join(piece.text for piece in chat.stream(TALK)) == whole.text

    async def together() -> list[str]:
        replies = await asyncio.gather(*(chat.ainvoke(f"{index}") for index in range(4)))
        return [reply.text for reply in replies]

    assert len(asyncio.run(together())) == 4
    responses = ChatOpenAI(**settings, use_responses_api=True, max_tokens=16)
    assert responses.invoke("One").usage_metadata["output_tokens"] <= 16


def lite(url: str, model: str) -> None:
    messages = [{"role": "user", "content": "One"}]
    for provider, base in (("openai", f"{url}/v1"), ("anthropic", url)):
        settings = {"model": f"{provider}/{model}", "api_base": base, "api_key": "none"}
        whole = litellm.completion(messages=messages, max_tokens=8, temperature=0, **settings)
        assert 1 <= whole.usage.completion_tokens <= 8
        pieces = litellm.completion(
            messages=messages, max_tokens=8, temperature=0, stream=True, **settings
        )
        text = "".join(one.choices[0].delta.content or "" for one in pieces)
        assert text == whole.choices[0].message.content


if __name__ == "__main__":
    langchain(*sys.argv[1:])
    lite(*sys.argv[1:])
