"""Perplexity: exp of the mean negative log-likelihood of the scored tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from headrace.config.settings import EngineConfig
from headrace.eval.windows import WindowRunner, exp_or_inf
from headrace.models import Model
from headrace.ops.interface import Ops


class Perplexity(msgspec.Struct, frozen=True, kw_only=True):
    """The perplexity of a checkpoint over a text."""

    perplexity: float
    error: float
    """Standard error of the perplexity, as llama.cpp states it."""
    nll: float
    """Mean negative log-likelihood of a token, in nats."""
    windows: int
    context: int
    tokens: int
    """Scored ones."""


def perplexity(
    model: Model,
    ops: Ops,
    windows: Sequence[Sequence[int]],
    *,
    cache: EngineConfig | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Perplexity:
    """Of `windows`, all of one length. cache: as in WindowRunner. progress: called with windows
    done and in all.

    Sums are float64; every logit counts, rows of padding included, as in llama.cpp.
    """
    runner = WindowRunner(model, ops, len(windows[0]), cache=cache)
    total = squares = 0.0
    count = 0
    for index, window in enumerate(windows):
        for scored in runner.run(index, window):
            found = ops.top_logprobs(scored.logits, scored.targets, 0, model.vocab_size)
            nll = -found.chosen.astype("float64")
            total += float(nll.sum())
            squares += float((nll * nll).sum())
            count += len(nll)
        if progress is not None:
            progress(index + 1, len(windows))
    mean = total / count
    variance = max(0.0, squares / count - mean * mean) / max(1, count - 1)
    return Perplexity(
        perplexity=exp_or_inf(mean),
        error=math.sqrt(variance) * exp_or_inf(mean) if variance else 0.0,
        nll=mean,
        windows=len(windows),
        context=len(windows[0]),
        tokens=count,
    )
