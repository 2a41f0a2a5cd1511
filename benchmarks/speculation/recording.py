"""Step times of a real run, by requests and tokens: how they are recorded, kept and read.

A file is JSON: `model`, `on` (the surroundings), `steps`, each with `batch`, `tokens` and the
`seconds` of several steps of that size, and `passes`, each with `tokens` and `seconds`, of a draft
model where there was one.
"""

from __future__ import annotations

import json
import random
import statistics
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.speculation.step_rows import WrongDrafts, timed_step_s
from headrace.config import EngineConfig
from headrace.engine.load import load_engine
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams

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
        on: Mapping[str, Any] | None = None,
    ) -> None:
        """steps: with one request and one token at least. Raises ValueError without that."""
        if not steps.get((1, 1)):
            raise ValueError("a recording needs steps of one request and one token")
        self.steps = {size: tuple(seconds) for size, seconds in sorted(steps.items())}
        self.passes = {size: tuple(seconds) for size, seconds in sorted((passes or {}).items())}
        self.model = model
        self.on = dict(on or {})
        self._curves = {
            batch: [
                (tokens, statistics.median(seconds))
                for (other, tokens), seconds in self.steps.items()
                if other == batch
            ]
            for batch in sorted({batch for batch, _ in self.steps})
        }
        self._pass_curve = [(size, statistics.median(of)) for size, of in self.passes.items()]

    def step_s(self, batch: int, tokens: int) -> float:
        """The median of steps of that size, a line between the sizes that were recorded."""
        batches = list(self._curves)
        at = bisect_left(batches, batch)
        near = batches[max(0, at - 1) : at + 1] if batch not in self._curves else [batch]
        # Another number of requests costs the same drafts beside its own plain step.
        points = [(float(own), _line(self._curves[own], tokens - batch + own)) for own in near]
        return _line(points, batch)

    def pass_s(self, tokens: int) -> float:
        """The median of passes of so many tokens."""
        return _line(self._pass_curve, tokens)

    def noise(self, batch: int, tokens: int, rng: random.Random) -> float:
        """A recorded step's time over the median of its size; of the size next to this one."""
        size = min(self.steps, key=lambda own: (abs(own[0] - batch), abs(own[1] - tokens)))
        seconds = self.steps[size]
        return rng.choice(seconds) / statistics.median(seconds)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "model": self.model,
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
    return Recording(steps, passes, model=model or "headrace-base", on=on)


def _steps_s(
    model: str, batch: int, sizes: Sequence[int], context: int, rounds: int
) -> dict[int, list[float]]:
    drafts = WrongDrafts()
    tokens = 2 + len(sizes) * (rounds + 2)
    config = EngineConfig(
        model=model, max_model_len=context + tokens + max(sizes) + 8, max_num_seqs=batch,
        speculative_config="none",
    )  # fmt: skip
    core = load_engine(config, proposers=[drafts]).core
    params = SamplingParams(max_tokens=tokens + max(sizes), ignore_eos=True)
    for number in range(batch):
        prompt = [(at * 31 + number) % 200 + 1 for at in range(context)]
        core.submit(Submit(str(number), prompt, params))
    begun: set[str] = set()
    while len(begun) < batch:
        begun |= {output.request_id for output in core.step() if output.token_ids}
    rng = random.Random(batch)
    taken_s: dict[int, list[float]] = {size: [] for size in sizes}
    for turn in range(rounds + 2):
        for size in rng.sample(list(sizes), len(sizes)):
            drafts.count = size
            seconds = timed_step_s(core)
            if turn >= 2:  # the first ones meet cold caches and new shapes
                taken_s[size].append(seconds)
    return taken_s


def _passes_s(model: str, draft: str, context: int, rounds: int) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    text = json.dumps({"model": draft, "adaptive": False, "num_speculative_tokens": 4})
    for batch in BATCHES:
        config = EngineConfig(
            model=model, max_model_len=context + 8 * rounds + 32, max_num_seqs=batch,
            speculative_config=text,
        )  # fmt: skip
        core = load_engine(config).core
        drafter = core.scheduler.drafter
        assert drafter is not None and drafter.speculation is not None
        chain = drafter.speculation.model
        assert chain is not None
        params = SamplingParams(max_tokens=5 * rounds + 20, temperature=1.0, ignore_eos=True)
        for number in range(batch):
            prompt = [(at * 31 + number) % 200 + 1 for at in range(context)]
            core.submit(Submit(str(number), prompt, params))
        for turn in range(batch + 8 + rounds):
            core.step()
            for each in chain.passes:
                if turn >= batch + 8 and each.num_tokens == batch:
                    found.setdefault(batch, []).append(each.seconds)
    return found


def _line(points: Sequence[tuple[float, float]], at: float) -> float:
    """Through points by ascending place, and on beyond the last as before it."""
    if len(points) == 1 or at <= points[0][0]:
        return points[0][1]
    high = min(bisect_left(points, at, key=lambda point: point[0]), len(points) - 1)
    (left, below), (right, above) = points[high - 1], points[high]
    return below + (at - left) / (right - left) * (above - below)
