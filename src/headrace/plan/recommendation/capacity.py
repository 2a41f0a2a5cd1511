"""How many requests/s a replica takes within an SLO, and what they see at a rate below that.

Requests decode together; prefills take their share of the time between. At a rate λ of a replica,
ρ = λ · prefill is that share: a prompt waits as in a queue of constant service times (M/D/1), and
tokens come slower by 1 / (1 − ρ).

Of TTFT that is only a part: a served request also waits for the step that runs, for the host and
for the network. So a limit on TTFT excludes what prefill alone misses, and no option counts as
keeping it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headrace.plan.recommendation.question import Limit, Metric, Question
from headrace.plan.speed.speed import Load, SpeedModel

LARGEST_BATCH = 512
_ROUNDS = 12


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Seconds, under load. batch: requests that decode together."""

    ttft_s: float
    """Prefill and the wait for other prompts: TTFT is at least this."""
    tpot_s: float
    e2e_s: float
    batch: int
    prefill_share: float

    def of(self, metric: Metric) -> float:
        """By the name of the metric."""
        return {"ttft": self.ttft_s, "tpot": self.tpot_s, "e2e": self.e2e_s}[metric]


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """The capacity of one replica."""

    batch: int
    requests_per_s: float
    """Maximum rate, at the largest batch that fits and keeps the SLO."""
    alone: Latency
    missed: tuple[tuple[Limit, float], ...]
    """Limits that not even a single request keeps, with its value."""


def capacity_of(model: SpeedModel, question: Question, most_batch: int) -> Capacity:
    """The largest batch up to `most_batch` that keeps the limits on TPOT and E2E, and its rate."""
    alone = _at_batch(model, question, 1)
    missed = tuple(
        (limit, value)
        for limit in question.slo
        if (value := _seen(model, question, alone, limit, 0.0)) > limit.seconds
    )

    def keeps(batch: int) -> bool:
        here = _at_batch(model, question, batch)
        rate = rate_of(model, question, batch)
        return all(
            _seen(model, question, here, limit, rate) <= limit.seconds
            for limit in question.slo
            if limit.metric != "ttft"
        )

    low, high = 1, min(most_batch, LARGEST_BATCH) + 1
    if not missed and keeps(high - 1):
        low = high - 1
    elif not missed:
        while high - low > 1:  # latency only grows with the batch
            middle = (low + high) // 2
            low, high = (middle, high) if keeps(middle) else (low, middle)
    return Capacity(
        batch=low, requests_per_s=rate_of(model, question, low), alone=alone, missed=missed
    )


def latency_at(model: SpeedModel, question: Question, rate: float) -> Latency:
    """What requests see, on the mean, where a replica gets `rate` requests/s below its capacity."""
    prefill_s = _prefill_s(model, question)
    busy = min(0.99, rate * prefill_s)
    batch = 1
    for _ in range(_ROUNDS):  # the batch follows from TPOT (Little), and TPOT from the batch
        tpot = model.decode_step(batch, _context(question)).seconds / (1 - busy)
        after = max(1, math.ceil(rate * (question.output_tokens - 1) * tpot))
        if after == batch or after > LARGEST_BATCH:
            break
        batch = after
    return _latency(model, question, batch, busy)


def quantile_of(latency: Latency, prefill_s: float, quantile: float) -> float:
    """TTFT that a share `quantile` of requests does not exceed; the wait's tail is exponential."""
    share = latency.prefill_share
    if share <= 0 or quantile <= 1 - share:
        return prefill_s
    wait = latency.ttft_s - prefill_s
    return prefill_s + wait / share * math.log(share / (1 - quantile))


def _seen(
    model: SpeedModel, question: Question, latency: Latency, limit: Limit, rate: float
) -> float:
    if limit.quantile is None:
        return latency.of(limit.metric)
    prefill_s = _prefill_s(model, question)
    # Only the wait varies in this model: requests are alike and their steps are too.
    late = quantile_of(latency, prefill_s, limit.quantile) - latency.ttft_s
    return latency.of(limit.metric) + (0.0 if limit.metric == "tpot" else late)


def _at_batch(model: SpeedModel, question: Question, batch: int) -> Latency:
    busy = 0.0 if batch == 1 else rate_of(model, question, batch) * _prefill_s(model, question)
    return _latency(model, question, batch, busy)


def _latency(model: SpeedModel, question: Question, batch: int, busy: float) -> Latency:
    prefill_s = _prefill_s(model, question)
    ttft = prefill_s + busy * prefill_s / (2 * (1 - busy))
    tpot = model.decode_step(batch, _context(question)).seconds / (1 - busy)
    e2e = ttft + tpot * (question.output_tokens - 1)
    return Latency(ttft_s=ttft, tpot_s=tpot, e2e_s=e2e, batch=batch, prefill_share=busy)


def rate_of(model: SpeedModel, question: Question, batch: int) -> float:
    """Requests/s when `batch` are always in flight: each is prefilled once and then decoded."""
    tpot = model.decode_step(batch, _context(question)).seconds
    prefill_s = _prefill_s(model, question)
    return batch / (batch * prefill_s + (question.output_tokens - 1) * tpot)


def load_of(question: Question, batch: int = 1) -> Load:
    """The load of `batch` such requests together."""
    return Load(
        prompt_tokens=question.prompt_tokens, output_tokens=question.output_tokens, batch=batch,
        cached_prompt_share=question.cached_prompt_share,
    )  # fmt: skip


def _context(question: Question) -> int:
    return load_of(question).middle_context_tokens


def _prefill_s(model: SpeedModel, question: Question) -> float:
    return model.prefill(question.prompt_tokens, load_of(question).cached_tokens).seconds
