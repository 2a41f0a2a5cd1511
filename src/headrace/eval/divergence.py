"""How far a checkpoint's distributions are from another's: KL divergence over the same text.

KL(base || other) = sum p (log p - log q) per scored position, natural logarithm, over every logit.
What is reported follows llama.cpp's --kl-divergence: mean and quantiles, how often both name the
same most likely token, and how much the probability of the text's own token moved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.errors import ConfigError
from headrace.eval.windows import WindowRunner, exp_or_inf
from headrace.models import Model
from headrace.ops.interface import Ops
from headrace.ops.kv import KVCodec

QUANTILES = (0.01, 0.05, 0.5, 0.9, 0.95, 0.99, 0.999)


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The divergence of a checkpoint from a base over a text."""

    kl_mean: float
    """Mean over the scored positions, in nats, as all `kl_*`."""
    kl_error: float
    """Standard error of the mean."""
    kl_max: float
    kl_quantiles: dict[str, float]
    same_top: float
    """Share of positions where both have the same most likely token."""
    p_change_mean: float
    """Mean change of the probability of the text's token: the checkpoint's minus the base's."""
    p_change_rms: float
    """Root mean square of the same changes."""
    base_perplexity: float
    perplexity: float
    windows: int
    context: int
    tokens: int


def divergence(
    base: Model,
    other: Model,
    ops: Ops,
    windows: Sequence[Sequence[int]],
    *,
    kv_codec: KVCodec | None = None,
    v_codec: KVCodec | None = None,
    base_kv_codec: KVCodec | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Divergence:
    """Of `other` from `base` over `windows`, all of one length; both read the same token ids.

    kv_codec, v_codec: as in WindowRunner, of both; base_kv_codec: of K and V of the base, where it
    is another, which shows what a cache in few bits changes. Raises ConfigError where the
    vocabularies differ in size.
    """
    if base.vocab_size != other.vocab_size:
        raise ConfigError(
            f"the base has {base.vocab_size} tokens, the other checkpoint {other.vocab_size}: "
            "their distributions cannot be compared; use checkpoints of the same model"
        )
    context = len(windows[0])
    other_runner = WindowRunner(other, ops, context, kv_codec=kv_codec, v_codec=v_codec)
    if base_kv_codec is not None:
        kv_codec = v_codec = base_kv_codec
    base_runner = WindowRunner(base, ops, context, kv_codec=kv_codec, v_codec=v_codec)
    kl: list[npt.NDArray[np.float64]] = []
    same: list[npt.NDArray[np.bool_]] = []
    p_log: list[npt.NDArray[np.float64]] = []
    q_log: list[npt.NDArray[np.float64]] = []
    for index, window in enumerate(windows):
        pieces = zip(base_runner.run(index, window), other_runner.run(index, window), strict=True)
        for one, two in pieces:
            p, q = _log_softmax(np.asarray(one.logits)), _log_softmax(np.asarray(two.logits))
            kl.append(np.maximum(0.0, (np.exp(p) * (p - q)).sum(axis=1)))
            same.append(p.argmax(axis=1) == q.argmax(axis=1))
            rows = np.arange(len(one.targets))
            p_log.append(p[rows, one.targets])
            q_log.append(q[rows, one.targets])
        if progress is not None:
            progress(index + 1, len(windows))
    divergences = np.concatenate(kl)
    of_base, of_other = np.concatenate(p_log), np.concatenate(q_log)
    change = np.exp(of_other) - np.exp(of_base)
    count = len(divergences)
    return Divergence(
        kl_mean=float(divergences.mean()),
        kl_error=float(divergences.std() / math.sqrt(max(1, count - 1))),
        kl_max=float(divergences.max()),
        kl_quantiles={f"{q:g}": float(np.quantile(divergences, q)) for q in QUANTILES},
        same_top=float(np.concatenate(same).mean()),
        p_change_mean=float(change.mean()),
        p_change_rms=float(np.sqrt((change * change).mean())),
        base_perplexity=exp_or_inf(-float(of_base.mean())),
        perplexity=exp_or_inf(-float(of_other.mean())),
        windows=len(windows),
        context=context,
        tokens=count,
    )


def _log_softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Log probabilities of every row, in float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return wide
