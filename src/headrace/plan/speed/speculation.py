"""Speculative decoding: what drafts gain, how many are best, and from which batch they cost.

Leviathan, Kalman, Matias: Fast Inference from Transformers via Speculative Decoding (ICML 2023),
formula S3: with acceptance α of each drafted token, drafts K and a draft step that costs c steps
of the model,

    tokens of a pass = (1 − α^(K+1)) / (1 − α)        speedup = tokens of a pass / (K·c + v)

v is the time of a pass over K + 1 tokens against that over one. It is 1 while the pass is bound by
bandwidth, and grows to K + 1 where it is bound by compute. Acceptance is taken as the same at each
position and independent of what was accepted before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.errors import ConfigError, shown
from headrace.plan.validation import above_zero, not_below, share

_LONGEST_DRAFT_TOKENS = 16
"""Longer drafts are not searched: no proposer in use goes beyond."""

StepSeconds = Callable[[int, int], float]
"""Seconds of a step, by requests in the batch and tokens of each."""


@dataclass(frozen=True)
class DraftChoice:
    """The best draft length. draft_tokens: 0 where no draft pays, and speedup is 1 then."""

    draft_tokens: int
    expected_tokens_per_pass: float
    speedup: float


@dataclass(frozen=True)
class BatchSpeedup:
    """The speedup of a batch by speculation; above 1 it pays."""

    batch: int
    draft_tokens: int
    speedup: float
    tokens_per_step: float
    """Of each request."""
    draft_ratio: float
    """A draft step over a step of the model."""
    verify_ratio: float
    """A step of K + 1 tokens over one of a token each."""

    @property
    def cost_ratio(self) -> float:
        """A step with drafts, and making them, over a step without."""
        return self.draft_tokens * self.draft_ratio + self.verify_ratio


@dataclass(frozen=True)
class PayingBatches:
    """Speedup by batch. stops_at_batch: from it on no batch gains; None: all that were asked do."""

    points: tuple[BatchSpeedup, ...]
    stops_at_batch: int | None


def expected_tokens_per_pass(acceptance: float, draft_tokens: int) -> float:
    """Tokens that one pass of the model yields: 1 where nothing is accepted, K + 1 where all is."""
    share("acceptance", acceptance, "it is the share of drafted tokens that are accepted")
    _draft_length(draft_tokens)
    if acceptance == 1:
        return float(draft_tokens + 1)
    return float((1 - acceptance ** (draft_tokens + 1)) / (1 - acceptance))


def speedup(
    acceptance: float, draft_tokens: int, cost_ratio: float, verify_ratio: float = 1.0
) -> float:
    """How many times faster decoding is with drafts; below 1 they cost.

    cost_ratio: a draft step against a step of the model. verify_ratio: a pass over K + 1 tokens
    against one over one token; 1 while it is bound by bandwidth.
    """
    not_below("cost_ratio", cost_ratio, 0, "it is draft step / model step, as 0.05")
    above_zero("verify_ratio", verify_ratio, "it is 1 while a pass is bound by bandwidth")
    tokens = expected_tokens_per_pass(acceptance, draft_tokens)
    return tokens / (draft_tokens * cost_ratio + verify_ratio)


def best_draft_length(
    acceptance: float, cost_ratio: float, longest: int = _LONGEST_DRAFT_TOKENS
) -> DraftChoice:
    """The shortest draft of the greatest speedup, of 0 to `longest` tokens."""
    _draft_length(longest)
    lengths = range(longest + 1)
    gains = [speedup(acceptance, length, cost_ratio) for length in lengths]
    best = max(lengths, key=gains.__getitem__)
    return DraftChoice(best, expected_tokens_per_pass(acceptance, best), gains[best])


def acceptance_for(wanted_speedup: float, draft_tokens: int, cost_ratio: float) -> float:
    """The acceptance at which drafts of that length and cost gain `wanted_speedup`.

    Raises ConfigError where not even accepting everything does.
    """
    above_zero("wanted_speedup", wanted_speedup, "1 means no gain")
    most = speedup(1.0, draft_tokens, cost_ratio)
    if wanted_speedup > most:
        raise ConfigError(
            f"wanted_speedup is {wanted_speedup:g}; {draft_tokens} drafts that cost "
            f"{cost_ratio:g} of a step each gain at most {most:.3g}: use a lower speedup, or "
            "a cheaper draft"
        )
    low, high = 0.0, 1.0
    for _ in range(60):  # halves the interval to below the spacing of floats
        middle = (low + high) / 2
        if speedup(middle, draft_tokens, cost_ratio) < wanted_speedup:
            low = middle
        else:
            high = middle
    return high


def batch_speedup(
    acceptance: float,
    draft_tokens: int,
    batch: int,
    model_step_s: StepSeconds,
    draft_step_s: StepSeconds,
) -> BatchSpeedup:
    """Speculation at one batch, with times of both models: model_step_s(batch, K + 1) verifies."""
    not_below("batch", batch, 1, "a step has at least one request")
    plain = above_zero("model_step_s", model_step_s(batch, 1), "a step takes time")
    ratio = draft_step_s(batch, 1) / plain
    verify = model_step_s(batch, draft_tokens + 1) / plain
    return BatchSpeedup(
        batch=batch,
        draft_tokens=draft_tokens,
        speedup=speedup(acceptance, draft_tokens, ratio, verify),
        tokens_per_step=expected_tokens_per_pass(acceptance, draft_tokens),
        draft_ratio=ratio,
        verify_ratio=verify,
    )


def paying_batches(
    acceptance: float,
    draft_tokens: int,
    largest_batch: int,
    model_step_s: StepSeconds,
    draft_step_s: StepSeconds,
) -> PayingBatches:
    """Speedup at each batch from 1 to `largest_batch`, and where it stops paying.

    It need not fall all the way: a mixture of experts loses at small batches, where more tokens
    touch more experts, and long contexts keep a step bound by bandwidth at large ones. The end is
    therefore searched from the largest batch down.
    """
    not_below("largest_batch", largest_batch, 1, "a step has at least one request")
    points = tuple(
        batch_speedup(acceptance, draft_tokens, batch, model_step_s, draft_step_s)
        for batch in range(1, largest_batch + 1)
    )
    last = max((point.batch for point in points if point.speedup > 1), default=0)
    return PayingBatches(points, None if last == largest_batch else last + 1)


def _draft_length(draft_tokens: int) -> None:
    if draft_tokens < 0:
        raise ConfigError(
            f"draft_tokens is {shown(draft_tokens)}; it must be at least 0: 0 means no speculation"
        )
