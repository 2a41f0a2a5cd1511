"""Replies of /completion and /infill, whole and as events."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.protocol.openai.choice import PromptProgress

StopType = Literal["none", "eos", "limit", "word"]


class TokenProbability(msgspec.Struct, frozen=True, kw_only=True):
    """A token with its log probability before sampling."""

    id: int
    token: str
    bytes: list[int]
    logprob: float
    top_logprobs: list[TokenProbability] | UnsetType = UNSET


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one answer, in milliseconds; 0 for stages it did not reach."""

    cache_n: Annotated[int, Meta(description="Prompt tokens found in the prefix cache.")] = 0
    prompt_n: Annotated[int, Meta(description="Prompt tokens computed.")] = 0
    prompt_ms: float = 0.0
    prompt_per_token_ms: float = 0.0
    prompt_per_second: float = 0.0
    predicted_n: int = 0
    predicted_ms: Annotated[
        float, Meta(description="From the first token to the last, so of all but the first.")
    ] = 0.0
    predicted_per_token_ms: float = 0.0
    predicted_per_second: float = 0.0
    draft_n: Annotated[
        int | UnsetType, Meta(description="Tokens guessed by speculation, where there were any.")
    ] = UNSET
    draft_n_accepted: Annotated[int | UnsetType, Meta(description="Those of them that came.")] = (
        UNSET
    )


class NativeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """New text of an answer."""

    index: int
    content: str
    tokens: list[int]
    stop: bool = False
    tokens_predicted: int
    tokens_evaluated: int
    completion_probabilities: list[TokenProbability] | UnsetType = UNSET
    timings: Timings | UnsetType = UNSET
    prompt_progress: PromptProgress | UnsetType = UNSET


class NativeReply(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer, or the last event of its stream, whose content is empty."""

    index: int
    content: str
    tokens: list[int]
    stop: bool = True
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    generation_settings: dict[str, Any]
    prompt: str
    has_new_line: bool
    truncated: Annotated[bool, Meta(description="Whether the context ended the text.")]
    stop_type: StopType
    stopping_word: str
    tokens_cached: Annotated[int, Meta(description="Prompt tokens found in the prefix cache.")]
    timings: Timings
    completion_probabilities: list[TokenProbability] | UnsetType = UNSET
