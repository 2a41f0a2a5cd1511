"""Gemini's logprobsResult in OpenAI's form: one entry for each token that was chosen."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.json_values import mapping, objects, text

# A larger logarithm is not a probability's; also excludes NaN and numbers too long for a float.
_MOST = 1e9


def logprobs_of(result: Any) -> list[dict[str, Any]] | None:
    """The `content` list; None if no tokens are reported."""
    told = mapping(result)
    chosen = objects(told.get("chosenCandidates"))
    others = objects(told.get("topCandidates"))
    entries = []
    for at, one in enumerate(chosen):
        top = objects(others[at].get("candidates")) if at < len(others) else []
        entries.append({**_entry(one), "top_logprobs": [_entry(other) for other in top]})
    return entries or None


def _entry(told: dict[str, Any]) -> dict[str, Any]:
    token = text(told.get("token"))
    value = told.get("logProbability")
    # A probability of one has the logarithm 0, which protocol buffers leave out.
    known = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST
    return {
        "token": token,
        "logprob": value if known else 0.0,
        "bytes": list(token.encode("utf-8", errors="replace")),
    }
