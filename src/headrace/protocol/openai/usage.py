"""Token counts as OpenAI reports them."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType


class PromptTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Details of the prompt's tokens."""

    cached_tokens: Annotated[
        int, Meta(description="Tokens whose KV blocks were found in the prefix cache.")
    ] = 0


class CompletionTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Details of the generated tokens."""

    reasoning_tokens: Annotated[
        int | UnsetType, Meta(description="Tokens of the model's reasoning.")
    ] = UNSET
    draft_tokens: Annotated[
        int | UnsetType,
        Meta(description="Tokens guessed by speculation, of choices that have ended."),
    ] = UNSET
    accepted_draft_tokens: Annotated[
        int | UnsetType, Meta(description="Those of them that came.")
    ] = UNSET


class DraftTokens(NamedTuple):
    """Counts of tokens guessed by speculation."""

    made: int = 0
    accepted: int = 0


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a request; of all its prompts and choices together."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptTokensDetails | UnsetType | None = UNSET
    completion_tokens_details: CompletionTokensDetails | UnsetType | None = UNSET


def usage_of(
    prompt_tokens: int,
    completion_tokens: int,
    cached_tokens: int,
    reasoning_tokens: int | None = None,
    drafts: DraftTokens | None = None,
) -> Usage:
    """The usage object; cached tokens are part of the prompt, those of reasoning of the answer.

    reasoning_tokens: None where the answer is not read for reasoning. drafts: None where they are
    not asked for; those that were not accepted are no tokens of the answer.
    """
    details: CompletionTokensDetails | UnsetType = UNSET
    if reasoning_tokens is not None or drafts is not None:
        details = CompletionTokensDetails(
            reasoning_tokens=UNSET if reasoning_tokens is None else reasoning_tokens,
            draft_tokens=UNSET if drafts is None else drafts.made,
            accepted_draft_tokens=UNSET if drafts is None else drafts.accepted,
        )
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=cached_tokens),
        completion_tokens_details=details,
    )
