"""How sure a model was of an answer, from the probabilities of its tokens."""

from __future__ import annotations

import math
from typing import Any

from headrace.gateway.settings.cascade import LogprobSettings
from headrace.protocol.neutral.reply import ChatReply

# OpenAI writes -9999 for what was all but impossible; one such token must not decide alone.
_LEAST = -30.0


def alternatives_wanted(settings: LogprobSettings) -> int:
    """How many of each token's likeliest alternatives the measure looks at."""
    return 2 if settings.measure == "margin" else 1


def sureness(reply: ChatReply, settings: LogprobSettings) -> float | None:
    """A probability, of the least sure of its choices; None where there is nothing to tell by."""
    found = [_of_tokens(one.logprobs, settings) for one in reply.choices if one.logprobs]
    known = [one for one in found if one is not None]
    return min(known) if known and len(known) == len(reply.choices) else None


def _of_tokens(tokens: list[dict[str, Any]], settings: LogprobSettings) -> float | None:
    if settings.measure == "margin":
        leads = [lead for one in tokens if (lead := _lead(one)) is not None]
        return sum(leads) / len(leads) if leads else None
    values = [value for one in tokens if (value := _logprob(one)) is not None]
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
    known = [_logprob(one) for one in each if isinstance(one, dict)]
    likeliest = sorted((math.exp(one) for one in known if one is not None), reverse=True)
    return likeliest[0] - likeliest[1] if len(likeliest) > 1 else None


def _logprob(token: dict[str, Any]) -> float | None:
    value = token.get("logprob")
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        return None
    return max(_LEAST, min(0.0, float(value)))


def share_of(reply: ChatReply, words: tuple[str, ...]) -> float | None:
    """Of the first token's likely alternatives, the share that begin the first of `words` against
    those that begin any of them; None without log probabilities or where none does."""
    tokens = reply.choices[0].logprobs if reply.choices else None
    listed = (tokens[0].get("top_logprobs") if tokens else None) or []
    sums = [0.0] * len(words)
    for one in listed if isinstance(listed, list) else []:
        said = str(one.get("token", "")).strip().casefold() if isinstance(one, dict) else ""
        value = _logprob(one) if said else None
        begun = [at for at, word in enumerate(words) if word.casefold().startswith(said)]
        if value is not None and len(begun) == 1:
            sums[begun[0]] += math.exp(value)
    return sums[0] / sum(sums) if sum(sums) > 0 else None
