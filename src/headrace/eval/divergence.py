"""How far a checkpoint's distributions are from another's: KL divergence over the same text.

KL(base || other) = sum p (log p - log q) per scored position, natural logarithm, over every logit.
What is reported follows llama.cpp's --kl-divergence (tools/perplexity/perplexity.cpp): mean and
quantiles, how often both name the same most likely token, how much the probability of the text's
own token moved, and the ratio of perplexities. Figures are the same for the same logits, but for
the 16 bits in which llama.cpp's base file holds log probabilities. Standard errors are not: they
count blocks of the text and not tokens (`block_errors`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.config.settings import EngineConfig
from headrace.errors import ConfigError
from headrace.eval.block_errors import block_lengths, mean_error, quantile_errors
from headrace.eval.windows import WindowRunner, exp_or_inf
from headrace.models import Model
from headrace.ops.interface import Ops

QUANTILES = (0.01, 0.05, 0.5, 0.9, 0.95, 0.99, 0.999)
SEED = 20
"""Of the blocks that are drawn for the errors of quantiles, where no other is given."""

Floats = npt.NDArray[np.float64]


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The divergence of a checkpoint from a base over a text."""

    kl_mean: float
    """Mean over the scored positions, in nats, as all `kl_*`."""
    kl_error: float
    """Standard error of the mean, as all `*_error`."""
    kl_median: float
    kl_median_error: float
    kl_max: float
    kl_max_error: float
    """How much the largest hangs on single blocks; more text may show a larger one."""
    kl_quantiles: dict[str, float]
    kl_quantile_errors: dict[str, float]
    same_top: float
    """Share of positions where both have the same most likely token."""
    same_top_error: float
    p_change_mean: float
    """Mean change of the probability of the text's token: the checkpoint's minus the base's."""
    p_change_rms: float
    """Root mean square of the same changes."""
    base_perplexity: float
    perplexity: float
    perplexity_ratio: float
    """The checkpoint's over the base's."""
    perplexity_ratio_error: float
    """From the differences of log probabilities token by token, in which the text cancels."""
    windows: int
    context: int
    tokens: int
    blocks: int
    """Parts of the text that count as samples in the errors."""


def divergence(
    base: Model,
    other: Model,
    ops: Ops,
    windows: Sequence[Sequence[int]],
    *,
    cache: EngineConfig | None = None,
    base_cache: EngineConfig | None = None,
    seed: int = SEED,
    progress: Callable[[int, int], None] | None = None,
) -> Divergence:
    """Of `other` from `base` over `windows`, all of one length; both read the same token ids.

    cache: as in WindowRunner, of both; base_cache: of the base, where it is another, which shows
    what a cache in few bits changes. seed: of the errors of quantiles.
    Raises ConfigError where the vocabularies differ in size.
    """
    if base.vocab_size != other.vocab_size:
        raise ConfigError(
            f"the base has {base.vocab_size} tokens, the other checkpoint {other.vocab_size}: "
            "their distributions cannot be compared; use checkpoints of the same model"
        )
    context = len(windows[0])
    other_runner = WindowRunner(other, ops, context, cache=cache)
    base_runner = WindowRunner(base, ops, context, cache=base_cache or cache)
    tally = DivergenceTally()
    for index, window in enumerate(windows):
        pieces = zip(base_runner.run(index, window), other_runner.run(index, window), strict=True)
        for of_base, of_other in pieces:
            tally.add(of_base.values, of_other.values, of_base.targets)
        tally.end_window()
        if progress is not None:
            progress(index + 1, len(windows))
    return tally.result(context, seed)


class DivergenceTally:
    """Figures of scored positions, added piece by piece and window by window."""

    def __init__(self) -> None:
        self._kl: list[Floats] = []
        self._same: list[npt.NDArray[np.bool_]] = []
        self._p_log: list[Floats] = []
        self._q_log: list[Floats] = []
        self._windows: list[int] = []
        self._in_window = 0

    def add(
        self,
        base: npt.NDArray[np.float32],
        other: npt.NDArray[np.float32],
        targets: npt.NDArray[np.int32],
    ) -> None:
        """Logits f32[n, vocab] of both over the same positions, and the tokens that follow."""
        p, q = log_softmax(base), log_softmax(other)
        self._kl.append(row_divergences(p, q))
        self._same.append(p.argmax(axis=1) == q.argmax(axis=1))
        rows = np.arange(len(targets))
        self._p_log.append(p[rows, targets])
        self._q_log.append(q[rows, targets])
        self._in_window += len(targets)

    def end_window(self) -> None:
        """What is added from here on is of the next window."""
        if self._in_window:
            self._windows.append(self._in_window)
        self._in_window = 0

    def result(self, context: int, seed: int = SEED) -> Divergence:
        """Of all windows that have ended; context: tokens of each, as reported."""
        kl = np.concatenate(self._kl)
        same = np.concatenate(self._same).astype(np.float64)
        p_log, q_log = np.concatenate(self._p_log), np.concatenate(self._q_log)
        change = np.exp(q_log) - np.exp(p_log)
        blocks = block_lengths(self._windows)
        *errors, max_error = quantile_errors(kl, blocks, (*QUANTILES, 1.0), seed)
        quantiles = {f"{q:g}": float(np.quantile(kl, q)) for q in QUANTILES}
        quantile_error = dict(zip(quantiles, errors, strict=True))
        ratio = exp_or_inf(float((p_log - q_log).mean()))
        return Divergence(
            kl_mean=float(kl.mean()),
            kl_error=mean_error(kl, blocks),
            kl_median=quantiles["0.5"],
            kl_median_error=quantile_error["0.5"],
            kl_max=float(kl.max()),
            kl_max_error=max_error,
            kl_quantiles=quantiles,
            kl_quantile_errors=quantile_error,
            same_top=float(same.mean()),
            same_top_error=mean_error(same, blocks),
            p_change_mean=float(change.mean()),
            p_change_rms=float(np.sqrt((change * change).mean())),
            base_perplexity=exp_or_inf(-float(p_log.mean())),
            perplexity=exp_or_inf(-float(q_log.mean())),
            perplexity_ratio=ratio,
            perplexity_ratio_error=ratio * mean_error(p_log - q_log, blocks),
            windows=len(self._windows),
            context=context,
            tokens=len(kl),
            blocks=len(blocks),
        )


def row_divergences(base: Floats, other: Floats) -> Floats:
    """sum p (log p - log q) of each row of log probabilities float64[n, vocab], at least 0."""
    sums: Floats = (np.exp(base) * (base - other)).sum(axis=1)
    return np.maximum(0.0, sums)


def log_softmax(logits: npt.NDArray[np.float32]) -> Floats:
    """Log probabilities of every row of f32[n, vocab], in float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return wide
