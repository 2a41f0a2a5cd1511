"""Log probabilities of pieces of text, in OpenAI's form."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.json_values import number, text


def read_logprob(item: dict[str, Any]) -> dict[str, Any] | None:
    """One piece. It may consist of several tokens: its log probability is then their sum.

    None if there is no text or no number in it. Cohere reports no alternatives.
    """
    piece = text(item.get("text")) or text(item.get("token"))
    values = item.get("logprobs")
    told = values if isinstance(values, list) else [item.get("logprob")]
    numbers = [number(value) for value in told]
    known = [value for value in numbers if value is not None]
    if not piece or not known or len(known) != len(numbers):
        return None
    return {
        "token": piece,
        "logprob": sum(known),
        "bytes": list(piece.encode()),
        "top_logprobs": [],
    }
