"""LangChain's OpenAI chat model and completion model: `python langchain_tour.py URL MODEL`."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI, OpenAI


def tour(url: str, model: str) -> None:
    settings = {"base_url": f"{url}/v1", "api_key": "none", "model": model, "max_retries": 0}
    chat = ChatOpenAI(**settings, max_tokens=8, temperature=0.7, seed=3)
    talk = [
        SystemMessage("Be brief."),
        HumanMessage("One"),
        AIMessage("Two"),
        HumanMessage([{"type": "text", "text": "Three"}]),
    ]
    whole = chat.invoke(talk)
    assert whole.usage_metadata and whole.usage_metadata["output_tokens"] <= 8
    assert whole.response_metadata["finish_reason"] in ("stop", "length")
    pieces = list(chat.stream(talk))
    assert "".join(piece.text for piece in pieces) == whole.text

    chain = ChatPromptTemplate.from_messages([("user", "{x}")]) | chat | StrOutputParser()
    assert chain.batch([{"x": "a"}, {"x": "b"}]) == [chain.invoke({"x": "a"}), chain.invoke("b")]

    with_logprobs = chat.bind(logprobs=True, top_logprobs=2).invoke("Hello")
    assert with_logprobs.response_metadata["logprobs"]["content"]
    assert chat.bind(stop=["e", " "]).invoke("Hello").text.count("e") == 0
    several = chat.generate([[HumanMessage("Hi")]], n=2)
    assert len(several.generations[0]) == 2

    async def together() -> list[str]:
        replies = await asyncio.gather(*(chat.ainvoke(f"{index}") for index in range(4)))
        return [reply.text for reply in replies]

    assert asyncio.run(together()) == [chat.invoke(f"{index}").text for index in range(4)]

    completion = OpenAI(**settings, max_tokens=6, temperature=0, seed=1)
    assert completion.invoke("import ") == "".join(completion.stream("import "))


if __name__ == "__main__":
    tour(*sys.argv[1:3])
    print("langchain-openai", version("langchain-openai"))
