"""Step times of a real run, by requests and tokens: how they are recorded, kept and read.

A file is JSON: `model`, `draft`, `context`, `on` (the surroundings), `steps`, each with `batch`,
`tokens` and the `seconds` of several steps of that size, and `passes`, each with `tokens` and
`seconds`, of the draft where there was one. `headrace plan calibrate --from` reads it too.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.bench.draft_steps import (
    DRAFTS_OF_PASSES,
    FIRST_TURNS,
    WrongDrafts,
    time_passes,
    time_steps,
)
from headrace.config import EngineConfig
from headrace.engine.load import load_engine
from headrace.plan.step.measured_steps import MeasuredSteps, StepSize, line_at

BATCHES = (1, 2, 4, 8, 16, 32)
DRAFTS = (0, 1, 2, 3, 5, 8)
MOST_TOKENS = 160
"""Of a step: a step has no more places with logits for drafts than 128."""


class Recording:
    """Seconds of steps by (requests, tokens), and of passes of a draft model by tokens."""

    def __init__(
        self,
        steps: Mapping[tuple[int, int], Sequence[float]],
        passes: Mapping[int, Sequence[float]] | None = None,
        *,
        model: str = "",
        draft: str = "",
        context: int = 128,
        on: Mapping[str, Any] | None = None,
    ) -> None:
        """steps: with one request and one token at least. draft: whose passes they are. context:
        tokens of each request. Raises ValueError without such steps."""
        if not steps.get((1, 1)):
            raise ValueError("a recording needs steps of one request and one token")
        self.steps = {size: tuple(seconds) for size, seconds in sorted(steps.items())}
        self.passes = {size: tuple(seconds) for size, seconds in sorted((passes or {}).items())}
        self.model = model
        self.on = dict(on or {})
        self.draft = draft
        self.context = context
        self._steps = MeasuredSteps(
            measured_at="",
            context_tokens=context,
            steps=tuple(
                StepSize(batch, tokens, statistics.median(seconds))
                for (batch, tokens), seconds in self.steps.items()
            ),
        )
        self._pass_curve = [(size, statistics.median(of)) for size, of in self.passes.items()]

    def step_s(self, batch: int, tokens: int) -> float:
        """The median of steps of that size, a line between the sizes that were recorded."""
        return self._steps.seconds(batch, tokens)

    def pass_s(self, tokens: int) -> float:
        """The median of passes of so many tokens."""
        return line_at(self._pass_curve, tokens)

    def noise(self, batch: int, tokens: int, rng: random.Random) -> float:
        """A recorded step's time over the median of its size; of the size next to this one."""
        size = min(self.steps, key=lambda own: (abs(own[0] - batch), abs(own[1] - tokens)))
        seconds = self.steps[size]
        return rng.choice(seconds) / statistics.median(seconds)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "model": self.model,
            "draft": self.draft,
            "context": self.context,
            "on": self.on,
            "steps": [
                {"batch": batch, "tokens": tokens, "seconds": [round(each, 7) for each in seconds]}
                for (batch, tokens), seconds in self.steps.items()
            ],
            "passes": [
                {"tokens": tokens, "seconds": [round(each, 7) for each in seconds]}
                for tokens, seconds in self.passes.items()
            ],
        }


def read_recording(path: Path) -> Recording:
    """The recording of a file."""
    said = json.loads(path.read_text("utf-8"))
    return Recording(
        {(each["batch"], each["tokens"]): each["seconds"] for each in said["steps"]},
        {each["tokens"]: each["seconds"] for each in said["passes"]},
        model=said["model"],
        draft=said.get("draft", ""),
        context=said.get("context", 128),
        on=said["on"],
    )


def record(
    model: str, draft: str | None, *, context: int, rounds: int, on: Mapping[str, Any]
) -> Recording:
    """Record steps of a model, sizes taking turns; and passes of a draft, if there is one."""
    steps: dict[tuple[int, int], list[float]] = {}
    for batch in BATCHES:
        sizes = [count for count in DRAFTS if batch * (1 + count) <= MOST_TOKENS]
        for count, seconds in _steps_s(model, batch, sizes, context, rounds).items():
            steps[batch, batch * (1 + count)] = seconds
    passes = {} if draft is None else _passes_s(model, draft, context, rounds)
    return Recording(
        steps, passes, model=model or "headrace-base", draft=draft or "", context=context, on=on
    )


def _steps_s(
    model: str, batch: int, sizes: Sequence[int], context: int, rounds: int
) -> dict[int, list[float]]:
    drafts = WrongDrafts()
    tokens = 2 * (1 + len(sizes) * (rounds + FIRST_TURNS))
    config = EngineConfig(
        model=model, max_model_len=context + tokens + max(sizes) + 8, max_num_seqs=batch + 1,
        speculative_config="none",
    )  # fmt: skip
    core = load_engine(config, proposers=[drafts]).core
    return time_steps(core, drafts, batch=batch, sizes=sizes, context=context, rounds=rounds)


def _passes_s(model: str, draft: str, context: int, rounds: int) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    drafts = {"model": draft, "adaptive": False, "num_speculative_tokens": DRAFTS_OF_PASSES}
    for batch in BATCHES:
        config = EngineConfig(
            model=model, max_model_len=context + 6 * (rounds + batch + 10), max_num_seqs=batch + 1,
            speculative_config=json.dumps(drafts),
        )  # fmt: skip
        core = load_engine(config).core
        passes = time_passes(core, batch=batch, context=context, rounds=rounds)
        if passes:
            found[batch] = passes
    return found
