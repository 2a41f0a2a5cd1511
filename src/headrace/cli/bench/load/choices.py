"""Choices of `headrace bench load` whose other values other tools know: each with what is meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

_DOWNLOADED = "nothing is downloaded; name a file of prompts with --dataset"
_IMAGES = "write --image-size 512x512"
_SPEECH = "speech is not measured"
_RERANKERS = "rerankers are not measured"

# Of `vllm bench serve`.
DATASETS_ELSEWHERE = {
    "sonnet": "its prompts share a beginning: write --prefix-tokens 200, or name a file of prompts "
    "with --dataset",
    "hf": _DOWNLOADED,
    "spec_bench": _DOWNLOADED,
    "speed_bench": _DOWNLOADED,
    "prefix_repetition": "write --prefix-tokens 200 --prefixes 10",
    "burstgpt": "give its file as --trace",
    "timed_trace": "give a file with times as --trace",
    "random-mm": _IMAGES,
    "custom_image": _IMAGES,
    "custom_audio": _SPEECH,
    "random-rerank": _RERANKERS,
}

_COMPLETIONS = "use its OpenAI API: --backend openai, or openai-chat"
BACKENDS_ELSEWHERE = {
    **dict.fromkeys(
        (
            "sglang",
            "sglang-oai",
            "sglang-oai-chat",
            "tgi",
            "lmdeploy",
            "deepspeed-mii",
            "scalellm",
            "tensorrt-llm",
            "llama.cpp",
        ),
        f"that server's own API is not supported; {_COMPLETIONS}",
    ),
    "openai-audio": _SPEECH,
    "vllm-pooling": "write --backend openai-embeddings",
    "vllm-rerank": _RERANKERS,
}


class HintedChoice(click.Choice[str]):
    """A choice; for a value of `elsewhere` the error says what it is here."""

    def __init__(self, choices: Sequence[str], elsewhere: Mapping[str, str]) -> None:
        super().__init__(choices)
        self.elsewhere = elsewhere

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """As click does."""
        hint = self.elsewhere.get(value) if isinstance(value, str) else None
        if hint is not None and value not in self.choices:
            self.fail(f"{value!r} is not one of {', '.join(self.choices)}: {hint}.", param, ctx)
        return super().convert(value, param, ctx)
