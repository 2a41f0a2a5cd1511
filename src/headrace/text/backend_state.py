"""The steps that a normalizer or a pre-tokenizer of the `tokenizers` library consists of."""

from __future__ import annotations

import json
from typing import Any


def steps(part: Any, key: str) -> list[dict[str, Any]]:
    """The steps of a normalizer or a pre-tokenizer, nested sequences laid flat.

    part: None has no steps, a lone step is a sequence of itself. key: what a sequence calls them.
    """
    return [] if part is None else _flat(json.loads(part.__getstate__()), key)


def _flat(state: dict[str, Any], key: str) -> list[dict[str, Any]]:
    if state["type"] != "Sequence":
        return [state]
    return [step for part in state[key] for step in _flat(part, key)]
