"""The features of one OpenAI-compatible service, as data."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.protocol.neutral.call import Effort

EffortStyle = Literal["reasoning_effort", "reasoning", "thinking", "chat_template_kwargs", "none"]
ThoughtsField = Literal["reasoning_content", "reasoning", "reasoning_details", "none"]

# Names for `Variant.takes`: fields of ChatCall, and forms of content.
OPENAI = frozenset(
    {
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "strict",
        "temperature",
        "top_p",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "seed",
        "stop",
        "choices",
        "logprobs",
        "top_logprobs",
        "json",
        "json_schema",
        "modalities",
        "user",
        "metadata",
        "service_tier",
        "hosted_tools",
        "names",
        "parts",
        "image",
        "audio",
        "document",
    }
)

# What engines with samplers of their own take besides.
SAMPLERS = frozenset({"top_k", "min_p", "repetition_penalty"})


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A service's variant of OpenAI's dialect. Replies need no settings: all known forms are "
    "read."""

    name: str
    chat_path: str = "/chat/completions"
    """After the base URL, as the other paths; `{model}` is replaced by the quoted model."""
    completions_path: str = "/completions"
    """Whether a service has the older completions at all is not part of the variant."""
    embeddings_path: str = "/embeddings"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Its name for the limit of generated tokens."""
    system_role: Literal["asked", "system"] = "system"
    """Whether a client's "developer" is kept, or always written as "system"."""
    one_system_message: bool = False
    """Texts before the first turn are joined by an empty line into one, since the model's template
    accepts only one."""
    late_system: bool = True
    """Whether a system message may be between turns; otherwise it is sent as the user's."""
    thoughts: ThoughtsField = "none"
    """The field of an assistant's message in which thoughts are sent back."""
    thoughts_with_calls: bool = False
    """Whether that field is required, if only empty, where tools were called."""
    effort_style: EffortStyle = "none"
    """How thinking is requested."""
    efforts: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh")
    """The supported ones; others become the nearest."""
    effort_takes_budget: bool = False
    """Whether a number of tokens can be given."""
    stream_usage: bool = True
    """Whether it understands `stream_options.include_usage`."""
    done_mark: bool = False
    """Whether every stream ends in [DONE]; otherwise finished choices are an end too."""
    takes: frozenset[str] = OPENAI
    """See `OPENAI`."""
    refuses: frozenset[str] = frozenset()
    """Further top-level fields that it does not accept."""
    cache_marks: Literal["cache_control", "prompt_cache_breakpoint", "none"] = "none"
    """The field of a content part that marks the end of what to cache."""
    prompt_cache_field: str | None = None
    """The field that separates its prompt cache: requests with other values share nothing, or, at
    OpenAI and Azure, are routed to other machines."""
    google_signatures: bool = False
    """Whether tool calls carry Google's `extra_content`."""
    gap_is_thoughts: bool = False
    """Whether the usage's total includes thoughts that no other line has."""
    base64_embeddings: bool = False
    """Whether vectors may be requested as base64."""
    embedding_task_field: str | None = None
    """The field for the purpose of an embedding."""
