"""Changes to JSON as values: the text stays well formed, what it says does not."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any


def change_json(text: bytes, rng: random.Random, values: Sequence[Any]) -> bytes:
    """`text` with one to three changes at random depths; as it is where it is not JSON.

    values: what is put in place of others.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    for _ in range(rng.choice((1, 1, 2, 3))):
        value = change(value, rng, values)
    return json.dumps(value).encode()


def change(value: Any, rng: random.Random, values: Sequence[Any]) -> Any:
    """`value` with one change at a random depth."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        kind = rng.random()
        if kind < 0.15:
            return {name: entry for name, entry in value.items() if name != key}
        if kind < 0.3:
            return value | {rng.choice((key + "x", "", "a", "x" * 3000)): value[key]}
        return value | {key: change(value[key], rng, values)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], change(value[at], rng, values), *value[at + 1 :]]
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.5:
        return value + rng.choice((-4, -1, 1, 4, 2**32))
    return rng.choice(values)
