"""Completions: text or token ids in, text out, without a chat template.

A prompt may be a string, a list of strings, a list of token ids or a list of such lists; choices
are numbered in the order of the prompts.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.errors import RequestError
from headrace.protocol.openai.sampling import (
    AtLeastOne,
    Count,
    SamplingFields,
    TokenId,
    check_stop,
    check_stream_options,
)
from headrace.protocol.openai.usage import Usage

# Each prompt is a request of its own in the engine; more belong into several requests.
MAX_PROMPTS = 1024

# What OpenAI generates when max_tokens is absent.
DEFAULT_MAX_TOKENS = 16


class CompletionRequest(SamplingFields, frozen=True, kw_only=True):
    """POST /v1/completions."""

    prompt: Annotated[
        str | list[str | TokenId | list[TokenId]],
        Meta(
            description="String, list of strings, list of token ids, or list of lists of token "
            f"ids (at most {MAX_PROMPTS} prompts)."
        ),
    ]
    max_tokens: Annotated[
        AtLeastOne | None,
        Meta(description=f"Most tokens to generate. Default {DEFAULT_MAX_TOKENS}."),
    ] = None
    logprobs: Annotated[
        Count | None,
        Meta(
            description="Return log probabilities of each token and of this many of the likeliest "
            "(at most `--max-logprobs`).",
        ),
    ] = None
    add_special_tokens: Annotated[
        bool,
        Meta(description="Let the tokenizer add its own (BOS) tokens to text. Default true."),
    ] = True


def prompts_of(request: CompletionRequest) -> list[str | list[int]]:
    """The prompts, each a text or a list of token ids; raises RequestError for a mixed list."""
    prompt = request.prompt
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise RequestError("prompt: the list is empty; give at least one prompt", param="prompt")
    if all(isinstance(item, int) for item in prompt):
        return [[item for item in prompt if isinstance(item, int)]]
    kind = type(prompt[0])
    prompts: list[str | list[int]] = []
    for index, item in enumerate(prompt):
        if isinstance(item, int) or type(item) is not kind:
            raise RequestError(
                f"prompt[{index}]: strings, token ids and lists of token ids cannot be mixed",
                param=f"prompt[{index}]",
            )
        prompts.append(item)
    if len(prompts) > MAX_PROMPTS:
        raise RequestError(
            f"prompt: {len(prompts)} prompts given, at most {MAX_PROMPTS} are allowed; "
            "send several requests",
            param="prompt",
        )
    return prompts


def check_completion(request: CompletionRequest) -> None:
    """Rules over several fields; raises RequestError."""
    check_stop(request)
    check_stream_options(request)
    prompts_of(request)


class CompletionLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Columns over the choice's tokens; text_offset counts characters from the text's beginning.

    A token that is not whole UTF-8 is written as OpenAI does: `bytes:` and `\\xNN` for each byte.
    """

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None] | None = None


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One continuation, or its part of a chunk. stop_reason, *_token_ids: as in vLLM."""

    index: int = 0
    text: str = ""
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """The whole reply, and, as OpenAI has it, also each event of a stream."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET
    system_fingerprint: str | None = None
