"""LlamaIndex: tools and structured output. `python llama_index_answers_tour.py URL MODEL`."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version
from typing import Literal

from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel


def get_weather(city: str) -> str:
    """Weather of a city"""
    return f"21 degrees in {city}"


class Opinion(BaseModel):
    """What somebody thinks of a thing."""

    thing: Literal["Python", "Java"]
    verdict: Literal["good", "bad"]


def tour(url: str, model: str) -> None:
    def made(*, calls: bool) -> OpenAILike:
        return OpenAILike(
            model=model,
            api_base=f"{url}/v1",
            api_key="none",
            is_chat_model=True,
            is_function_calling_model=calls,
            should_use_structured_outputs=not calls,
            context_window=2048,
            max_tokens=300,
            temperature=0.0,
            max_retries=0,
        )

    prompt = PromptTemplate("Is {thing} good?")
    for calls in (True, False):
        opinion = made(calls=calls).structured_predict(Opinion, prompt, thing="Python")
        assert isinstance(opinion, Opinion), (calls, opinion)

    llm = made(calls=True)
    tools = [FunctionTool.from_defaults(get_weather)]
    asked = {"user_msg": "What is the weather in Paris?", "tool_required": True}
    reply = llm.chat_with_tools(tools, **asked)
    [call] = llm.get_tool_calls_from_response(reply)
    assert (call.tool_name, call.tool_kwargs) == ("get_weather", {"city": "Paris"})
    last = list(llm.stream_chat_with_tools(tools, **asked))[-1]
    [streamed] = llm.get_tool_calls_from_response(last)
    assert (streamed.tool_name, streamed.tool_kwargs) == (call.tool_name, call.tool_kwargs)
    again = asyncio.run(llm.achat_with_tools(tools, **asked))
    assert llm.get_tool_calls_from_response(again)[0].tool_kwargs == call.tool_kwargs

    output = str(tools[0](**call.tool_kwargs))
    talk = [
        ChatMessage(role="user", content=asked["user_msg"]),
        reply.message,
        ChatMessage(role="tool", content=output, additional_kwargs={"tool_call_id": call.tool_id}),
    ]
    assert llm.chat(talk).message.content


if __name__ == "__main__":
    tour(*sys.argv[1:3])
    print("llama-index-llms-openai-like", version("llama-index-llms-openai-like"))
