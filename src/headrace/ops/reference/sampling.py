"""From logits to a token, and the log probabilities of the raw distribution.

Filters work on probabilities in float64, in vLLM's order (temperature, min_p, top_k, top_p) or in
that of a row's chain, whose scores are rounded to float32 after each stage.
A logit of -inf is a token that was masked out; NaN, +inf and rows without any finite logit are
refused, because sampling from them would look like a result.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.ops.adjustment import (
    check_chains,
    check_chosen,
    check_masks,
    check_parameters,
    check_width,
    penalise,
)
from headrace.ops.reference.arithmetic import F32, F64
from headrace.ops.sampling_rows import Chain, SamplingRows, TopLogprobs, UnusableLogitsError

U32 = npt.NDArray[np.uint32]


def sample(logits: F32, rows: SamplingRows, num_tokens: int) -> npt.NDArray[np.int32]:
    """One token id per row. ValueError for parameters, UnusableLogitsError for logits."""
    check_width(logits.shape, num_tokens)
    check_parameters(rows, len(logits))
    check_chains(rows, *logits.shape)
    check_masks(rows, *logits.shape)
    if rows.masks:
        logits = _masked(logits, rows.masks)
    usable = _usable(logits, num_tokens)
    out = np.empty(len(logits), np.int32)
    for index, row in enumerate(usable):
        chain = rows.chains[index] if rows.chains else None
        greedy = rows.temperature[index] == 0
        if chain is not None:
            greedy &= "temperature" in chain.stages
            row = _chained(row, rows, index, chain)
        if greedy:
            out[index] = np.argmax(row)  # the first of equal maxima
            continue
        if chain is not None:
            weights = _weights(row)
        else:
            weights = _filtered(
                row,
                float(rows.temperature[index]),
                float(rows.min_p[index]),
                int(rows.top_k[index]),
                float(rows.top_p[index]),
            )
        cumulative = np.cumsum(weights)
        chosen = np.searchsorted(cumulative, rows.uniform[index] * cumulative[-1], side="right")
        # Rounding may carry the product up to the last sum; the last kept token is then meant.
        out[index] = min(chosen, np.flatnonzero(weights)[-1])
    return out


def top_logprobs(
    logits: F32, chosen: npt.NDArray[np.int32], k: int, num_tokens: int
) -> TopLogprobs:
    """Log softmax over ids below num_tokens, of `chosen` and of the k largest."""
    check_chosen(logits.shape, chosen, k, num_tokens)
    usable = _usable(logits, num_tokens)
    count = len(logits)
    result = TopLogprobs(
        np.empty(count, np.float32),
        np.empty(count, np.int32),
        np.empty((count, k), np.int32),
        np.empty((count, k), np.float32),
    )
    for index, row in enumerate(usable):
        wide = row.astype(np.float64)
        logprobs = wide - wide.max()
        logprobs -= np.log(np.exp(logprobs).sum())
        order = np.argsort(-row, kind="stable")
        result.chosen[index] = logprobs[chosen[index]]
        result.rank[index] = 1 + int(np.flatnonzero(order == chosen[index])[0])
        result.ids[index] = order[:k]
        result.values[index] = logprobs[order[:k]]
    return result


def _masked(logits: F32, masks: tuple[U32 | None, ...]) -> F32:
    """A copy, with -inf where a row's mask has no bit."""
    masked = logits.copy()
    for row, mask in zip(masked, masks, strict=True):
        if mask is not None:
            bits = mask.astype("<u4").view(np.uint8)
            row[np.unpackbits(bits, count=len(row), bitorder="little") == 0] = -np.inf
    return masked


def _usable(logits: F32, num_tokens: int) -> F32:
    """The columns of real tokens, when every row can be sampled from."""
    usable = logits[:, :num_tokens]
    for index, row in enumerate(usable):
        _check_row(row, index)
    return usable


def _check_row(row: F32, index: int) -> None:
    if np.isnan(row).any() or np.isposinf(row).any():
        raise UnusableLogitsError(index, "holds NaN or +inf")
    if np.isneginf(row).all():
        raise UnusableLogitsError(index, "is -inf everywhere: its mask allows no token")


def _filtered(row: F32, temperature: float, min_p: float, top_k: int, top_p: float) -> F64:
    """Unnormalised probabilities with what the filters drop set to 0."""
    scaled = row.astype(np.float64) / temperature
    weights: F64 = np.exp(scaled - scaled.max())  # the most likely token has weight 1
    weights[weights < min_p] = 0
    if 0 < top_k < len(row):
        weights[weights < np.partition(weights, -top_k)[-top_k]] = 0
    if top_p < 1:
        order = np.argsort(-weights, kind="stable")
        ahead = np.cumsum(weights[order]) - weights[order]
        # A token stays while the likelier ones have not reached top_p; the first always does.
        weights[order[ahead >= top_p * weights.sum()]] = 0
    return weights


def _weights(scores: F32) -> F64:
    """Unnormalised probabilities; the most likely token has weight 1."""
    wide = scores.astype(np.float64)
    weights: F64 = np.exp(wide - wide.max())
    return weights


def _chained(row: F32, rows: SamplingRows, index: int, chain: Chain) -> F32:
    """The scores that the stages of `chain` leave of a row, in their order."""
    scores = row.copy()
    temperature, top_k, top_p = rows.temperature[index], rows.top_k[index], rows.top_p[index]
    for stage in chain.stages:
        if stage == "penalties" and chain.penalties is not None:
            penalise(scores, chain.penalties)
        elif stage == "temperature" and temperature > 0:
            with np.errstate(over="ignore"):  # looked for below
                scores /= temperature
        elif stage == "min_p" and rows.min_p[index] > 0:
            scores[_weights(scores) < rows.min_p[index]] = -np.inf
        elif stage == "top_k" and 0 < top_k < len(scores):
            scores[scores < np.partition(scores, -top_k)[-top_k]] = -np.inf
        elif stage == "top_p" and top_p < 1:
            order = np.argsort(-scores, kind="stable")
            weights = _weights(scores)[order]
            ahead = np.cumsum(weights) - weights
            scores[order[ahead >= float(top_p) * weights.sum()]] = -np.inf
        _check_row(scores, index)
    return scores
