"""Token counts as OpenAI reports them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType


class PromptTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Details of the prompt's tokens."""

    cached_tokens: Annotated[
        int, Meta(description="Tokens whose KV blocks were found in the prefix cache.")
    ] = 0


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a request; of all its prompts and choices together."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptTokensDetails | UnsetType | None = UNSET


def usage_of(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> Usage:
    """The usage object; cached tokens are part of the prompt."""
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=cached_tokens),
    )
