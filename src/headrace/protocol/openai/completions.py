"""Completions: text or token ids in, text out, without a chat template.

A prompt may be a string, a list of strings, a list of token ids or a list of such lists; choices
are numbered in the order of the prompts.
"""

from __future__ import annotations

from typing import Annotated, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.errors import RequestError
from headrace.protocol.openai.choice import ChoiceMetrics, PromptLogprobs, PromptProgress
from headrace.protocol.openai.rules import check_generation, check_min_tokens
from headrace.protocol.openai.sampling import Choices, Count, SamplingFields, TokenId
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
        Count | None,
        Meta(
            description=f"Most tokens to generate. Default {DEFAULT_MAX_TOKENS}. 0, with `echo` or "
            "`prompt_logprobs`, only reads the prompt."
        ),
    ] = None
    logprobs: Annotated[
        Count | None,
        Meta(
            description="Return log probabilities of each token and of this many of the likeliest "
            "(at most `--max-logprobs`).",
        ),
    ] = None
    best_of: Annotated[
        Choices | None,
        Meta(
            description="Generate this many answers per prompt and return the `n` with the "
            "highest mean "
            "log probability per token, best first. Not with `stream`."
        ),
    ] = None
    echo: Annotated[
        bool,
        Meta(
            description="Begin the text with the prompt, and the log probabilities with those of "
            "its "
            "tokens."
        ),
    ] = False
    add_special_tokens: Annotated[
        bool,
        Meta(description="Let the tokenizer add its own (BOS) tokens to text. Default true."),
    ] = True

    @property
    def candidates(self) -> int:
        """Answers to generate per prompt."""
        return self.n if self.best_of is None else self.best_of

    @property
    def ranks(self) -> bool:
        """Whether the answers to a prompt are ordered by how likely they are."""
        return self.best_of is not None and self.best_of > 1


def prompts_of(request: CompletionRequest) -> list[str | list[int]]:
    """The prompts, each a text or a list of token ids; raises RequestError for a mixed list."""
    prompt = request.prompt
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise RequestError("prompt: the list is empty; give at least one prompt", param="prompt")
    if set(map(type, prompt)) == {int}:  # a prompt may have a million ids
        return [cast("list[int]", prompt)]
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
    check_generation(request)
    wanted = DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens
    check_min_tokens(request.min_tokens, wanted, "max_tokens")
    prompts_of(request)
    if request.max_tokens == 0 and not request.echo and request.prompt_logprobs is None:
        raise RequestError(
            "max_tokens: 0 generates nothing; give 1 or more, or `echo` or `prompt_logprobs` to "
            "only have the prompt read",
            param="max_tokens",
        )
    if request.best_of is not None and request.best_of < request.n:
        raise RequestError(
            f"best_of: {request.best_of} is less than n, {request.n}, the number of answers to "
            "return; raise best_of or lower n",
            param="best_of",
        )
    if request.thinking_tokens is not None and request.given_form:
        raise RequestError(
            "thinking_token_budget: a completion has its form from its first token on, so there is "
            "no reasoning to bound; omit one of the two, or use /v1/chat/completions, where the "
            "form follows the reasoning",
            param="thinking_token_budget",
        )
    if request.ranks and request.stream:
        raise RequestError(
            f"best_of: {request.best_of} answers are compared when all are complete, so they "
            "cannot be streamed; omit best_of or stream",
            param="best_of",
        )


class CompletionLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Columns over the choice's tokens; text_offset counts characters from the text's beginning.

    A token that is not whole UTF-8 is written as OpenAI does: `bytes:` and `\\xNN` for each byte.
    """

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None] | None = None


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One continuation, or its part of a chunk. stop_reason, *_token_ids, prompt_logprobs: vLLM's.

    prompt_*: in a stream with the choice's first event.
    """

    index: int = 0
    text: str = ""
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType | None = UNSET
    metrics: ChoiceMetrics | UnsetType = UNSET


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """The whole reply, and, as OpenAI has it, also each event of a stream."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET
    system_fingerprint: str | None = None
    prompt_progress: Annotated[
        PromptProgress | UnsetType,
        Meta(description="In events before the first text, with `return_progress`."),
    ] = UNSET
