"""What a soak sends: random requests, and what happens to each on the way."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal

Fate = Literal["finish", "cancel", "leave", "timeout"]
"""finish: read to the end. cancel: closed after some tokens. leave: closed right after it was
sent, while queued or prefilling. timeout: has a deadline that it may not meet."""

BYTES = 256
PREFIXES = 6
PREFIX_TOKENS = 96
MAX_TOKENS = 96
MAX_PROMPT_TOKENS = PREFIX_TOKENS + 80


@dataclass(frozen=True)
class Planned:
    """One request. give_up_after: tokens after which a "cancel" closes its stream."""

    body: dict[str, Any]
    fate: Fate
    give_up_after: int
    delay_s: float


class Planner:
    """Draws requests; the same seed draws the same ones."""

    def __init__(self, seed: int, model: str) -> None:
        self._rng = random.Random(seed)
        self._model = model
        self._count = 0
        self._prefixes = [
            [self._rng.randrange(BYTES) for _ in range(PREFIX_TOKENS)] for _ in range(PREFIXES)
        ]

    def draw(self) -> Planned:
        """The next request."""
        rng = self._rng
        self._count += 1
        body = self._body()
        fate: Fate = "finish"
        chance = rng.random()
        if chance < 0.12:
            fate = "cancel"
        elif chance < 0.2:
            fate = "leave"
        elif chance < 0.26:
            fate = "timeout"
            body["timeout_s"] = rng.choice([0.02, 0.1, 0.5])
        return Planned(body, fate, rng.randint(1, 12), rng.random() * 0.02)

    def _body(self) -> dict[str, Any]:
        rng = self._rng
        own = [rng.randrange(BYTES) for _ in range(rng.randint(1, 80))]
        prefix = rng.choice(self._prefixes)[: rng.choice([0, 40, PREFIX_TOKENS, PREFIX_TOKENS])]
        body: dict[str, Any] = {
            "model": self._model,
            "prompt": prefix + own,
            "max_tokens": rng.randint(1, MAX_TOKENS),
            "seed": self._count,
            "temperature": rng.choice([0.0, 0.7, 1.0, 1.3]),
            "ignore_eos": rng.random() < 0.5,
            "priority": rng.choice([0, 0, 0, -1, 1, 5]),
            "stream": rng.random() < 0.8,
            "return_token_ids": True,
        }
        for chance, name, values in (
            (0.3, "top_p", [0.5, 0.9, 0.95]),
            (0.3, "top_k", [1, 20, 100]),
            (0.2, "min_p", [0.02, 0.2]),
            (0.2, "repetition_penalty", [1.1, 1.5, 0.8]),
            (0.2, "frequency_penalty", [0.5, -0.5, 2.0]),
            (0.2, "presence_penalty", [0.5, -1.0]),
            (0.1, "logit_bias", [{"65": 5.0, "66": -100.0}, {"10": 100.0}]),
            (0.1, "allowed_token_ids", [list(range(32, 127))]),
            (0.1, "min_tokens", [1, 8]),
            (0.1, "stop_token_ids", [[10, 32]]),
            (0.1, "stop", [["a", "b"], "e"]),
            (0.1, "bad_words", [["a"], ["the", "!"]]),
            (0.3, "logprobs", [0, 2, 5]),
            (0.1, "prompt_logprobs", [0, 2]),
            (0.1, "echo", [True]),
            (0.15, "n", [2, 3]),
            (0.1, "cache_salt", ["one", "two"]),
            (0.1, "truncate_prompt_tokens", [30]),
        ):
            if rng.random() < chance:
                body[name] = rng.choice(values)
        if "min_tokens" in body:
            body["max_tokens"] = max(body["max_tokens"], body["min_tokens"])
        return body


def alone(planned: Planned, salt: str) -> dict[str, Any]:
    """The same request as it is sent to a server that does nothing else.

    salt: a fresh one, so that nothing cached by others can help.
    """
    body = {**planned.body, "cache_salt": salt, "priority": 0}
    body.pop("timeout_s", None)
    return body
