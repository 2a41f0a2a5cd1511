"""From logits to tokens on the device: only ids and the log probabilities asked for come back.

Weights are float64 and then whole numbers of 2^-42, so that their sums are exact in any order and a
row's token does not depend on the batch or the device; docs/kernels.md has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headrace.ops.adjustment import (
    check_chains,
    check_chosen,
    check_edits,
    check_masks,
    check_parameters,
    check_width,
)
from headrace.ops.sampling_rows import (
    Chain,
    LogitsEdit,
    Penalties,
    SamplingRows,
    TopLogprobs,
    UnusableLogitsError,
)
from headrace.ops.torch.matrices import on_device

ONE = float(1 << 42)
"""What the likeliest token's weight counts as; sums of 2^20 of them fit 63 bits."""


def adjust(logits: torch.Tensor, adjustments: Sequence[LogitsEdit]) -> None:
    """`Ops.adjust` for rows of logits on a device."""
    check_edits(tuple(logits.shape), adjustments)
    device = logits.device
    for edit in adjustments:
        row = logits[edit.row]
        if len(edit.bias_ids):
            row[_ids(edit.bias_ids, device)] += on_device(edit.bias, device)
        if edit.allowed is not None:
            allowed = _ids(edit.allowed, device)
            kept = row[allowed]
            row.fill_(-torch.inf)
            row[allowed] = kept
        if len(edit.masked):
            row[_ids(edit.masked, device)] = -torch.inf
        if edit.penalties is not None:
            _penalise(row, edit.penalties)


def sample(logits: torch.Tensor, rows: SamplingRows, num_tokens: int) -> npt.NDArray[np.int32]:
    """One token id per row. ValueError for parameters, UnusableLogitsError for logits."""
    width, device = logits.shape[-1], logits.device
    check_width(tuple(logits.shape), num_tokens)
    check_parameters(rows, len(logits))
    check_chains(rows, len(logits), width)
    check_masks(rows, len(logits), width)
    if not len(logits):
        return np.empty(0, np.int32)
    if rows.masks:
        logits = _masked(logits, rows.masks)
    scores = logits[:, :num_tokens]
    _check_rows(scores)
    drawn = rows.temperature != 0
    if rows.chains:
        scores = scores.clone()
        for index, chain in enumerate(rows.chains):
            if chain is not None:
                drawn[index] |= "temperature" not in chain.stages
                scores[index] = _chained(scores[index], rows, index, chain)
    ids = scores.argmax(dim=1)  # the first of equal maxima
    at = np.flatnonzero(drawn)
    if len(at):
        plain = np.array([not rows.chains or rows.chains[row] is None for row in at])
        ids[_ids(at, device)] = _drawn(scores[_ids(at, device)], rows, at, plain)
    found: npt.NDArray[np.int32] = ids.int().cpu().numpy()
    return found


def _drawn(
    scores: torch.Tensor,
    rows: SamplingRows,
    at: npt.NDArray[np.int64],
    plain: npt.NDArray[np.bool_],
) -> torch.Tensor:
    """Ids int64[n] of the rows `at`. plain: which go through the filters in the usual order; of the
    others `scores` are what their chains left."""
    device = scores.device

    def column(values: npt.NDArray[Any], otherwise: float, kind: Any) -> torch.Tensor:
        chosen = np.where(plain, values[at], otherwise).astype(kind)
        return on_device(chosen, device)[:, None]

    weights = _weights(scores.double() / column(rows.temperature, 1.0, np.float64))
    if (rows.min_p[at] * plain).any():
        weights = torch.where(weights < column(rows.min_p, 0.0, np.float64), 0.0, weights)
    top_k = np.where(plain, rows.top_k[at], 0)
    if ((top_k > 0) & (top_k < scores.shape[1])).any():
        weights = _largest(weights, on_device(top_k.astype(np.int64), device)[:, None])
    counts = (weights * ONE).round().long()
    top_p = np.where(plain, rows.top_p[at], 1.0)
    if (top_p < 1).any():
        counts = _likeliest(scores, counts, on_device(top_p.astype(np.float64), device)[:, None])
    sums = counts.cumsum(dim=1)
    wanted = sums[:, -1:].double() * on_device(rows.uniform[at], device)[:, None]
    chosen = torch.searchsorted(sums.double(), wanted, right=True)[:, 0]
    # Rounding may carry the product up to the last sum; the last kept token is then meant.
    numbers = torch.arange(scores.shape[1], device=device)
    last = torch.where(counts > 0, numbers, 0).amax(dim=1)
    return torch.minimum(chosen, last)


def _weights(scaled: torch.Tensor) -> torch.Tensor:
    """Unnormalised probabilities float64; the most likely token of a row has weight 1."""
    return torch.exp(scaled - scaled.amax(dim=-1, keepdim=True))


def _largest(values: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """Values [n, V] with 0 for what is below the k-th largest; k of [n, 1], 0 for all."""
    width = values.shape[1]
    k = torch.where((top_k > 0) & (top_k < width), top_k, width)
    ordered = values.sort(dim=1, descending=True).values
    return torch.where(values < ordered.gather(1, k - 1), 0.0, values)


def _likeliest(scores: torch.Tensor, counts: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Counts [n, V] with 0 for those before which the likelier ones have reached top_p."""
    order = scores.masked_fill(counts == 0, -torch.inf).sort(dim=1, descending=True, stable=True)
    of_order = counts.gather(1, order.indices)
    ahead = of_order.cumsum(dim=1) - of_order
    total = counts.sum(dim=1, keepdim=True).double()
    dropped = (ahead.double() >= top_p * total) & (top_p < 1)
    return counts.masked_fill(torch.zeros_like(dropped).scatter(1, order.indices, dropped), 0)


def _chained(scores: torch.Tensor, rows: SamplingRows, index: int, chain: Chain) -> torch.Tensor:
    """The scores f32[V] that the stages of `chain` leave of a row, in their order."""
    scores = scores.clone()
    temperature, min_p = float(rows.temperature[index]), float(rows.min_p[index])
    top_k, top_p = int(rows.top_k[index]), float(rows.top_p[index])
    for stage in chain.stages:
        if stage == "penalties" and chain.penalties is not None:
            _penalise(scores, chain.penalties)
        elif stage == "temperature" and temperature > 0:
            scores = scores / temperature
        elif stage == "min_p" and min_p > 0:
            scores = scores.masked_fill(_weights(scores.double()) < min_p, -torch.inf)
        elif stage == "top_k" and 0 < top_k < len(scores):
            least = scores.sort(descending=True).values[top_k - 1]
            scores = scores.masked_fill(scores < least, -torch.inf)
        elif stage == "top_p" and top_p < 1:
            counts = (_weights(scores.double()) * ONE).round().long()[None]
            limit = torch.full((1, 1), top_p, dtype=torch.float64, device=scores.device)
            kept = _likeliest(scores[None], counts, limit)[0]
            scores = scores.masked_fill(kept == 0, -torch.inf)
        _check_rows(scores[None], index)
    return scores


def top_logprobs(
    logits: torch.Tensor, chosen: npt.NDArray[np.int32], k: int, num_tokens: int
) -> TopLogprobs:
    """Log softmax over ids below num_tokens, of `chosen` and of the k largest."""
    check_chosen(tuple(logits.shape), chosen, k, num_tokens)
    if not len(logits):
        none = np.empty((0, k), np.float32)
        return TopLogprobs(none[:, 0:0].ravel(), np.empty(0, np.int32), none.astype(np.int32), none)
    scores = logits[:, :num_tokens]
    _check_rows(scores)
    wide = scores.double()
    most = wide.amax(dim=1, keepdim=True)
    total = (torch.exp(wide - most) * ONE).round().long().sum(dim=1, keepdim=True)
    logprobs = wide - (most + torch.log(total.double() / ONE))
    own = _ids(chosen, logits.device)[:, None]
    score = scores.gather(1, own)
    numbers = torch.arange(num_tokens, device=logits.device)
    rank = 1 + ((scores > score) | ((scores == score) & (numbers < own))).sum(dim=1)
    best = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return TopLogprobs(
        logprobs.gather(1, own)[:, 0].float().cpu().numpy(),
        rank.int().cpu().numpy(),
        best.int().cpu().numpy(),
        logprobs.gather(1, best).float().cpu().numpy(),
    )


def _penalise(scores: torch.Tensor, penalties: Penalties) -> None:
    """Penalise f32[n] in place; ids at n and above are of no token and are passed over."""
    within = penalties.ids < len(scores)
    ids = _ids(penalties.ids[within], scores.device)
    counts = on_device(penalties.counts[within], scores.device)
    values = scores[ids]
    if penalties.repetition != 1:
        by = penalties.repetition
        values = torch.where(values > 0, values / by, values * by)
    if penalties.frequency or penalties.presence:
        taken = values - penalties.frequency * counts.float() - penalties.presence
        values = torch.where(counts > 0, taken, values)
    scores[ids] = values


def _masked(logits: torch.Tensor, masks: Sequence[npt.NDArray[np.uint32] | None]) -> torch.Tensor:
    """A copy, with -inf where a row's mask has no bit."""
    masked, width = logits.clone(), logits.shape[1]
    at = [row for row, mask in enumerate(masks) if mask is not None]
    if not at:
        return masked
    words = np.stack([mask for mask in masks if mask is not None]).astype("<u4")
    packed = on_device(words.view(np.uint8), logits.device)
    shifts = torch.arange(8, device=logits.device, dtype=torch.uint8)
    bits = ((packed[..., None] >> shifts) & 1).flatten(1)[:, :width]
    rows = _ids(np.array(at), logits.device)
    masked[rows] = masked[rows].masked_fill(bits == 0, -torch.inf)
    return masked


def _check_rows(scores: torch.Tensor, first: int = 0) -> None:
    """Raise UnusableLogitsError for the first row without a distribution; row 0 is `first`."""
    wrong = scores.isnan().any(dim=1) | (scores == torch.inf).any(dim=1)
    empty = (scores == -torch.inf).all(dim=1)
    bad = (wrong | empty).cpu().numpy()
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        what = (
            "holds NaN or +inf"
            if bool(wrong[row])
            else ("is -inf everywhere: its mask allows no token")
        )
        raise UnusableLogitsError(first + row, what)


def _ids(ids: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """int64, to index with."""
    return on_device(ids, device).long()
