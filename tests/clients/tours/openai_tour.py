"""The openai package against a server: `python openai_tour.py URL MODEL`."""

from __future__ import annotations

import asyncio
import sys

import openai

USER = {"role": "user", "content": "Say something."}


def sync_tour(url: str, model: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    assert model in [one.id for one in client.models.list()]
    assert client.models.retrieve(model).id == model

    whole = client.chat.completions.create(
        model=model, messages=[USER], max_completion_tokens=8, seed=1, temperature=0.8
    )
    assert whole.choices[0].message.role == "assistant"
    assert whole.usage is not None and whole.usage.completion_tokens <= 8
    text, usage = "", None
    for chunk in client.chat.completions.create(
        model=model,
        messages=[USER],
        max_completion_tokens=8,
        seed=1,
        temperature=0.8,
        stream=True,
        stream_options={"include_usage": True},
    ):
        usage = chunk.usage or usage
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    # The same but for the tokens found in the cache: all but the last of a prompt seen before.
    assert usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens == whole.usage.prompt_tokens

    several = client.chat.completions.create(
        model=model,
        messages=[USER],
        n=3,
        seed=4,
        max_tokens=4,
        logprobs=True,
        top_logprobs=2,
        frequency_penalty=0.5,
        presence_penalty=0.1,
        logit_bias={"65": 3},
        stop=["\n\n"],
    )
    assert [choice.index for choice in several.choices] == [0, 1, 2]
    for choice in several.choices:
        assert choice.logprobs is not None and choice.logprobs.content
        assert all(len(one.top_logprobs) == 2 for one in choice.logprobs.content)

    completion = client.completions.create(
        model=model,
        prompt=["def f(", "import "],
        max_tokens=6,
        echo=True,
        logprobs=1,
        seed=2,
        best_of=2,
        extra_body={"top_k": 20, "min_p": 0.01, "repetition_penalty": 1.1, "min_tokens": 2},
    )
    assert completion.choices[0].text.startswith("def f(")
    assert completion.choices[1].text.startswith("import ")
    assert completion.choices[0].logprobs is not None
    assert completion.choices[0].logprobs.token_logprobs[0] is None

    with client.chat.completions.stream(model=model, messages=[USER], max_tokens=4) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        try:
            final = stream.get_final_completion()
        except openai.LengthFinishReasonError as error:  # how the package tells of "length"
            final = error.completion
    assert final.choices[0].message.content == "".join(deltas)

    raw = client.chat.completions.with_raw_response.create(
        model=model,
        messages=[USER],
        max_tokens=1,
        extra_headers={"x-request-id": "tour-1"},
        extra_body={"nobody_knows_this": 1},
    )
    assert raw.headers["x-request-id"] == "tour-1"
    assert raw.headers["x-ignored-params"] == "nobody_knows_this"

    for wrong, error in (
        ({"model": "absent"}, openai.NotFoundError),
        ({"max_tokens": 10**9}, openai.BadRequestError),
        ({"temperature": -1}, openai.BadRequestError),
        ({"tools": [{"type": "function", "function": {}}]}, openai.BadRequestError),
    ):
        try:
            client.chat.completions.create(**{"model": model, "messages": [USER]} | wrong)
        except error as raised:
            assert raised.body is not None
        else:
            raise AssertionError(f"{wrong} was accepted")


async def async_tour(url: str, model: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:

        async def one(index: int) -> str:
            stream = await client.completions.create(
                model=model, prompt=f"{index}: ", max_tokens=8, seed=index, stream=True
            )
            return "".join([chunk.choices[0].text async for chunk in stream if chunk.choices])

        together = await asyncio.gather(*(one(index) for index in range(8)))
        assert together == [await one(index) for index in range(8)]


if __name__ == "__main__":
    sync_tour(*sys.argv[1:3])
    asyncio.run(async_tour(*sys.argv[1:3]))
    print("openai", openai.__version__)
