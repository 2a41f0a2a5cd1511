"""How sure a model was of an answer, from the probabilities of its tokens."""

from __future__ import annotations

import math
from typing import Any

from headrace.gateway.settings.cascade import LogprobSettings
from headrace.protocol.neutral.reply import ChatReply

# OpenAI returns -9999 for the all but impossible; one such token must not decide alone.
_LEAST = -30.0


def alternatives_wanted(settings: LogprobSettings) -> int:
    """How many of each token's likeliest alternatives the measure needs."""
    return 2 if settings.measure == "margin" else 1


def sureness(reply: ChatReply, settings: LogprobSettings) -> float | None:
    """The probability of the least sure choice; None where log probabilities are missing."""
    values = [_of_tokens(choice.logprobs, settings) for choice in reply.choices if choice.logprobs]
    known = [value for value in values if value is not None]
    return min(known) if known and len(known) == len(reply.choices) else None


def _of_tokens(tokens: list[dict[str, Any]], settings: LogprobSettings) -> float | None:
    if settings.measure == "margin":
        leads = [lead for token in tokens if (lead := _lead(token)) is not None]
        return sum(leads) / len(leads) if leads else None
    values = [value for token in tokens if (value := _logprob(token)) is not None]
    if not values:
        return None
    size = settings.window_tokens if settings.measure == "window" else len(values)
    size = min(size, len(values))
    total = lowest = sum(values[:size])
    for new, old in zip(values[size:], values, strict=False):
        total += new - old
        lowest = min(lowest, total)
    return math.exp(lowest / size)


def _lead(token: dict[str, Any]) -> float | None:
    listed = token.get("top_logprobs")
    each = listed if isinstance(listed, list) else []
    known = [_logprob(entry) for entry in each if isinstance(entry, dict)]
    likeliest = sorted((math.exp(value) for value in known if value is not None), reverse=True)
    return likeliest[0] - likeliest[1] if len(likeliest) > 1 else None


def _logprob(token: dict[str, Any]) -> float | None:
    value = token.get("logprob")
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        return None
    return max(_LEAST, min(0.0, float(value)))


def share_of(reply: ChatReply, words: tuple[str, ...]) -> float | None:
    """Among the first token's likely alternatives, the probability of the first of `words` relative
    to all of them; None without log probabilities or where none of the words is among them."""
    tokens = reply.choices[0].logprobs if reply.choices else None
    listed = (tokens[0].get("top_logprobs") if tokens else None) or []
    sums = [0.0] * len(words)
    for entry in listed if isinstance(listed, list) else []:
        token = str(entry.get("token", "")).strip().casefold() if isinstance(entry, dict) else ""
        value = _logprob(entry) if token else None
        begun = [at for at, word in enumerate(words) if word.casefold().startswith(token)]
        if value is not None and len(begun) == 1:
            sums[begun[0]] += math.exp(value)
    return sums[0] / sum(sums) if sum(sums) > 0 else None
