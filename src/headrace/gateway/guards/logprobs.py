"""The places where an answer repeats its text by tokens, with likely alternatives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.protocol.json_spans import Path


def logprobs(value: Any, path: Path = ()) -> Iterator[Path]:
    """Their paths in an answer, or in an event of a stream. path: leads to `value`."""
    if isinstance(value, list | dict):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if key == "logprobs" and inner:
                yield (*path, key)
            else:
                yield from logprobs(inner, (*path, key))
