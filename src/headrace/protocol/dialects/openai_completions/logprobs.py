"""Log probabilities: columns over tokens as this API has them, and the list that chat has."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.json_values import mapping

_COLUMNS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


def read_columns(value: Any) -> list[dict[str, Any]]:
    """A choice's columns as OpenAI's chat lists them; [] without any.

    The first token of a prompt that is told again has no probability: null. Where a token begins
    stands beside it, since servers count from the answer's beginning or from the prompt's.
    """
    columns = mapping(value)
    tokens, own, others, offsets = (_listed(columns.get(name)) for name in _COLUMNS)
    found: list[dict[str, Any]] = []
    for at, token in enumerate(tokens):
        if not isinstance(token, str):
            return []
        likeliest = mapping(others[at]) if at < len(others) else {}
        offset = {"text_offset": offsets[at]} if at < len(offsets) else {}
        found.append(
            {
                **offset,
                "token": token,
                "logprob": own[at] if at < len(own) else None,
                "bytes": list(token.encode()),
                "top_logprobs": [
                    {"token": name, "logprob": logprob, "bytes": list(name.encode())}
                    for name, logprob in likeliest.items()
                ],
            }
        )
    return found


def write_columns(listed: list[dict[str, Any]], offset: int) -> dict[str, Any]:
    """offset: in characters, where the first token begins, unless that is told."""
    tokens = [str(entry.get("token", "")) for entry in listed]
    offsets = []
    for entry, token in zip(listed, tokens, strict=True):
        offset = entry.get("text_offset", offset)
        offsets.append(offset)
        offset += len(token)
    likeliest = [
        {str(other.get("token", "")): other.get("logprob") for other in entry["top_logprobs"]}
        if entry.get("top_logprobs")
        else None
        for entry in listed
    ]
    return {
        "text_offset": offsets,
        "token_logprobs": [entry.get("logprob") for entry in listed],
        "tokens": tokens,
        "top_logprobs": likeliest if any(likeliest) else None,
    }


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
