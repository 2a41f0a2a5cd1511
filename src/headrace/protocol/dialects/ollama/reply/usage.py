"""Ollama's counts and times, which are in the last line of an answer."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.protocol.dialects.token_count import reported_tokens
from headrace.protocol.neutral.usage import TokenUsage

DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


class Durations(NamedTuple):
    """Nanoseconds, as Ollama counts them: in all, loading, reading the prompt, writing."""

    total_ns: int = 0
    load_ns: int = 0
    prompt_eval_ns: int = 0
    eval_ns: int = 0


NO_DURATIONS = Durations()


def read_usage(done: dict[str, Any]) -> TokenUsage | None:
    """The usage; None if no plausible count was reported. Thoughts are part of eval_count and not
    counted separately.

    A prompt that was completely cached has no prompt_eval_count in older versions.
    """
    counts = reported_tokens(done, "prompt_eval_count", "eval_count")
    if counts is None:
        return None
    return TokenUsage(input_tokens=counts[0], output_tokens=counts[1])


def write_usage(usage: TokenUsage | None) -> dict[str, int]:
    """All that was read and all that was written; {} if it is not known."""
    if usage is None:
        return {}
    return {"prompt_eval_count": usage.prompt_tokens, "eval_count": usage.completion_tokens}


def write_durations(durations: Durations, own: dict[str, Any]) -> dict[str, int]:
    """The durations. own: fields of an Ollama server's own answer, whose times are more "
    "accurate."""
    return {
        name: own[name] if _count(own.get(name)) is not None else value
        for name, value in zip(DURATIONS, durations, strict=True)
    }


def _count(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and isinstance(value, int) and value >= 0 else None
