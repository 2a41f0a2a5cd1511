"""LiteLLM's OpenAI-compatible and vLLM routes: `python litellm_tour.py URL MODEL`."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib.metadata import version

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks the network for prices

import litellm

USER = {"role": "user", "content": "Hello"}


def tour(url: str, model: str) -> None:
    for route in ("openai", "hosted_vllm"):
        settings = {
            "model": f"{route}/{model}",
            "api_base": f"{url}/v1",
            "api_key": "none",
            "max_tokens": 8,
            "seed": 2,
            "temperature": 0.6,
            "num_retries": 0,
        }
        whole = litellm.completion(**settings, messages=[USER])
        assert whole.usage.completion_tokens <= 8
        pieces = litellm.completion(
            **settings, messages=[USER], stream=True, stream_options={"include_usage": True}
        )
        text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
        assert text == whole.choices[0].message.content
        extra = litellm.completion(
            **settings, messages=[USER], n=2, extra_body={"top_k": 5, "repetition_penalty": 1.2}
        )
        assert len(extra.choices) == 2

        async def together(settings: dict[str, object]) -> list[str]:
            replies = await asyncio.gather(
                *(litellm.acompletion(**settings, messages=[USER]) for _ in range(3))
            )
            return [reply.choices[0].message.content for reply in replies]

        assert set(asyncio.run(together(settings))) == {whole.choices[0].message.content}
        try:
            litellm.completion(**settings | {"max_tokens": 10**9}, messages=[USER])
        except litellm.ContextWindowExceededError:
            pass
        else:
            raise AssertionError("a length beyond the context was accepted")
    text = litellm.text_completion(
        model=f"text-completion-openai/{model}",
        api_base=f"{url}/v1",
        api_key="none",
        prompt="import ",
        max_tokens=4,
    )
    assert text.choices[0].finish_reason in ("stop", "length")


if __name__ == "__main__":
    tour(*sys.argv[1:3])
    print("litellm", version("litellm"))
