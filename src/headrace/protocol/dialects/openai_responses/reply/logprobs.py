"""Log probabilities: those of chat completions but for the bytes, which deltas never have."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.openai_responses.values import objects


def read_logprobs(value: Any) -> list[dict[str, Any]]:
    """Log probabilities in the form of chat completions; bytes are null if missing."""
    return [
        {
            "token": entry.get("token"),
            "logprob": entry.get("logprob"),
            "bytes": entry.get("bytes"),
            "top_logprobs": [
                {
                    "token": top.get("token"),
                    "logprob": top.get("logprob"),
                    "bytes": top.get("bytes"),
                }
                for top in objects(entry.get("top_logprobs"))
            ],
        }
        for entry in objects(value)
    ]


def delta_logprob(one: dict[str, Any]) -> dict[str, Any]:
    """A log probability as in events."""
    return {
        "token": one.get("token", ""),
        "logprob": one.get("logprob", 0.0),
        "top_logprobs": [
            {"token": top.get("token"), "logprob": top.get("logprob")}
            for top in objects(one.get("top_logprobs"))
        ],
    }


def part_logprob(one: dict[str, Any]) -> dict[str, Any]:
    """A log probability as in a whole output_text."""
    return {
        "token": one.get("token", ""),
        "logprob": one.get("logprob", 0.0),
        "bytes": _bytes(one),
        "top_logprobs": [
            {
                "token": top.get("token", ""),
                "logprob": top.get("logprob", 0.0),
                "bytes": _bytes(top),
            }
            for top in objects(one.get("top_logprobs"))
        ],
    }


def _bytes(one: dict[str, Any]) -> list[int]:
    given = one.get("bytes")
    if isinstance(given, list):
        return given
    token = one.get("token")
    return list(token.encode("utf-8", "surrogatepass")) if isinstance(token, str) else []
