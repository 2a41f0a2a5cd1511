"""instructor in its text modes: `python instructor_tour.py URL MODEL`.

The model has to answer every conversation with a JSON object of `Person`, as text.
"""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version

import instructor
import openai
from pydantic import BaseModel


class Person(BaseModel):
    name: str
    age: int


USER = {"role": "user", "content": "Ada is 36."}


def tour(url: str, model: str) -> None:
    plain = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    client = instructor.from_openai(plain, mode=instructor.Mode.MD_JSON)
    settings = {"model": model, "messages": [USER], "response_model": Person, "max_retries": 0}
    person, completion = client.chat.completions.create_with_completion(**settings)
    assert person.model_dump() == {"name": "Ada", "age": 36}
    assert completion.usage.completion_tokens > 0
    pieces = list(
        client.chat.completions.create_partial(
            model=model, messages=[USER], response_model=Person, max_retries=0
        )
    )
    assert pieces[-1].model_dump() == person.model_dump()

    async def with_async() -> Person:
        other = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        return await instructor.from_openai(
            other, mode=instructor.Mode.MD_JSON
        ).chat.completions.create(**settings)

    assert asyncio.run(with_async()).model_dump() == person.model_dump()


if __name__ == "__main__":
    tour(*sys.argv[1:3])
    print("instructor", version("instructor"))
