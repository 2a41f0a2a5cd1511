"""What one OpenAI-compatible service understands of OpenAI's chat completions, as data."""

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
    """A service's dialect of OpenAI's. Replies need no settings: all forms known are read.

    chat_path, completions_path, embeddings_path: after the base URL; `{model}` is replaced by the
    model, quoted. Whether a service has the older completions at all is no part of this.
    max_tokens_field: its name for the most tokens to write.
    system_role: "asked" writes "system" or "developer" as the client did, "system" always that.
    one_system_message: texts before the first turn are joined by an empty line into one, since the
    model's template takes no second.
    late_system: a system message may stand between turns; else it is given as the user's.
    thoughts: the field of an assistant's message that takes back what it thought.
    thoughts_with_calls: it must be there, if only empty, where tools were called.
    effort_style: how thinking is asked for. efforts: those it has; others become the nearest.
    effort_takes_budget: whether that has a place for a number of tokens.
    stream_usage: whether it understands `stream_options.include_usage`.
    done_mark: whether every stream ends in [DONE]; where not, finished choices are an end too.
    takes: see `OPENAI`. refuses: further top-level fields that it does not take.
    cache_marks: the field of a content part that marks the end of what is to be cached.
    google_signatures: tool calls carry Google's `extra_content`.
    gap_is_thoughts: the total of the usage has thoughts that no other line has.
    base64_embeddings: vectors may be asked for as base64. embedding_task_field: name of the field
    for what an embedding is for.
    """

    name: str
    chat_path: str = "/chat/completions"
    completions_path: str = "/completions"
    embeddings_path: str = "/embeddings"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    system_role: Literal["asked", "system"] = "system"
    one_system_message: bool = False
    late_system: bool = True
    thoughts: ThoughtsField = "none"
    thoughts_with_calls: bool = False
    effort_style: EffortStyle = "none"
    efforts: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh")
    effort_takes_budget: bool = False
    stream_usage: bool = True
    done_mark: bool = False
    takes: frozenset[str] = OPENAI
    refuses: frozenset[str] = frozenset()
    cache_marks: Literal["cache_control", "prompt_cache_breakpoint", "none"] = "none"
    google_signatures: bool = False
    gap_is_thoughts: bool = False
    base64_embeddings: bool = False
    embedding_task_field: str | None = None
