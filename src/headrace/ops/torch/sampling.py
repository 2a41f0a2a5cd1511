"""From logits to tokens on the device: only ids and the log probabilities asked for come back.

A draw is begun, and read when the host needs it: on the way nothing waits for the device.

Weights are float64 and then whole numbers of 2^-42, so that their sums are exact in any order and a
row's token does not depend on the batch or the device; docs/kernels.md has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from headrace.ops.adjustment import (
    check_chains,
    check_chosen,
    check_edits,
    check_masks,
    check_parameters,
    check_rivals,
    check_width,
)
from headrace.ops.sampling_rows import (
    Chain,
    DrawResult,
    LogitsEdit,
    LogprobQuery,
    Penalties,
    SamplingRows,
    TopLogprobs,
    UnusableLogitsError,
)
from headrace.ops.torch.transfer import HostCopy, staged

ONE = float(1 << 42)
"""What the likeliest token's weight counts as; sums of 2^20 of them fit 63 bits."""


def adjust(logits: torch.Tensor, adjustments: Sequence[LogitsEdit]) -> None:
    """`Ops.adjust` for rows of logits on a device."""
    check_edits(tuple(logits.shape), adjustments)
    device = logits.device
    for edit in adjustments:
        row = logits[edit.row]
        if len(edit.bias_ids):
            row[_ids(edit.bias_ids, device)] += staged(edit.bias, device)
        if edit.allowed is not None:
            allowed = _ids(edit.allowed, device)
            kept = row[allowed]
            row.fill_(-torch.inf)
            row[allowed] = kept
        if len(edit.masked):
            row[_ids(edit.masked, device)] = -torch.inf
        if edit.penalties is not None:
            _penalise(row, edit.penalties)


class TorchDraw:
    """A draw on the device. ids: int64[R], each some token's."""

    def __init__(self, ids: torch.Tensor, faults: torch.Tensor, logprobs: _Logprobs | None) -> None:
        """faults: int32[R], of `_FAULTS`."""
        self.ids = ids
        self._landing = HostCopy([ids.int()[:, None], faults.int()[:, None]])
        self._logprobs = logprobs

    def read(self) -> DrawResult:
        """Wait for it."""
        ids, faults = (values[:, 0] for values in self._landing.read())
        unusable = {row: _FAULTS[faults[row]] for row in np.flatnonzero(faults).tolist()}
        if self._logprobs is None:
            return DrawResult(ids, unusable)
        rows, pending = self._logprobs
        logprobs, raw_faults = pending.read()
        for at in np.flatnonzero(raw_faults).tolist():
            unusable.setdefault(int(rows[at]), _FAULTS[raw_faults[at]])
        return DrawResult(ids, unusable, logprobs)


_FAULTS = ("", "holds NaN or +inf", "is -inf everywhere: its mask allows no token")
"""What is wrong with a row, by its number; 0 for nothing."""


def begin(
    logits: torch.Tensor,
    rows: SamplingRows,
    num_tokens: int,
    wanted: LogprobQuery | None = None,
) -> TorchDraw:
    """Begin to draw a token id per row. ValueError for parameters."""
    width, device = logits.shape[-1], logits.device
    check_width(tuple(logits.shape), num_tokens)
    check_parameters(rows, len(logits))
    check_chains(rows, len(logits), width)
    check_masks(rows, len(logits), width)
    logprobs = None
    if wanted is not None and len(wanted.rows):
        check_rivals(tuple(wanted.logits.shape), wanted.k, num_tokens)
    if rows.masks:
        logits = _masked(logits, rows.masks)
    scores = logits[:, :num_tokens]
    faults = _faults(scores)
    drawn = rows.temperature != 0
    if rows.chains:
        scores = scores.clone()
        for index, chain in enumerate(rows.chains):
            if chain is not None:
                drawn[index] |= "temperature" not in chain.stages
                scores[index], fault = _chained(scores[index], rows, index, chain)
                faults[index] = torch.where(faults[index] > 0, faults[index], fault)
    ids = scores.argmax(dim=1)  # the first of equal maxima
    at = np.flatnonzero(drawn)
    if len(at):
        plain = np.array([not rows.chains or rows.chains[row] is None for row in at])
        places = _ids(at, device)
        ids[places] = _drawn(scores[places], rows, at, plain)
    if wanted is not None and len(wanted.rows):
        own = ids[_ids(wanted.rows, device)]
        pending = _PendingLogprobs(wanted.logits, own, wanted.k, num_tokens)
        logprobs = _Logprobs(wanted.rows, pending)
    return TorchDraw(ids, faults, logprobs)


def sample(logits: torch.Tensor, rows: SamplingRows, num_tokens: int) -> npt.NDArray[np.int32]:
    """One token id per row. ValueError for parameters, UnusableLogitsError for logits."""
    if len(logits):
        drawn = begin(logits, rows, num_tokens).read()
        for row, what in drawn.unusable.items():
            raise UnusableLogitsError(row, what)
        return drawn.token_ids
    check_width(tuple(logits.shape), num_tokens)
    check_parameters(rows, 0)
    return np.empty(0, np.int32)


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
        return staged(chosen, device)[:, None]

    weights = _weights(scores.double() / column(rows.temperature, 1.0, np.float64))
    if (rows.min_p[at] * plain).any():
        weights = torch.where(weights < column(rows.min_p, 0.0, np.float64), 0.0, weights)
    top_k = np.where(plain, rows.top_k[at], 0)
    if ((top_k > 0) & (top_k < scores.shape[1])).any():
        weights = _largest(weights, staged(top_k.astype(np.int64), device)[:, None])
    counts = (weights * ONE).round().long()
    top_p = np.where(plain, rows.top_p[at], 1.0)
    if (top_p < 1).any():
        counts = _likeliest(scores, counts, staged(top_p.astype(np.float64), device)[:, None])
    sums = counts.cumsum(dim=1)
    wanted = sums[:, -1:].double() * staged(rows.uniform[at], device)[:, None]
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


def _chained(
    scores: torch.Tensor, rows: SamplingRows, index: int, chain: Chain
) -> tuple[torch.Tensor, torch.Tensor]:
    """The scores f32[V] that the stages of `chain` leave of a row, in their order, and the fault of
    the first stage that leaves no distribution: int32[]."""
    scores = scores.clone()
    fault = torch.zeros((), dtype=torch.int32, device=scores.device)
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
        fault = torch.where(fault > 0, fault, _faults(scores[None])[0])
    return scores, fault


def top_logprobs(
    logits: torch.Tensor, chosen: npt.NDArray[np.int32], k: int, num_tokens: int
) -> TopLogprobs:
    """Log softmax over ids below num_tokens, of `chosen` and of the k largest."""
    check_chosen(tuple(logits.shape), chosen, k, num_tokens)
    if not len(logits):
        none = np.empty((0, k), np.float32)
        return TopLogprobs(none[:, 0:0].ravel(), np.empty(0, np.int32), none.astype(np.int32), none)
    pending = _PendingLogprobs(logits, _ids(chosen, logits.device), k, num_tokens)
    logprobs, faults = pending.read()
    for row in np.flatnonzero(faults).tolist():
        raise UnusableLogitsError(row, _FAULTS[faults[row]])
    return logprobs


class _PendingLogprobs:
    """Log softmax over ids below num_tokens, on the device, of ids int64[W] and the k largest."""

    def __init__(self, logits: torch.Tensor, own: torch.Tensor, k: int, num_tokens: int) -> None:
        scores, own = logits[:, :num_tokens], own[:, None]
        wide = scores.double()
        most = wide.amax(dim=1, keepdim=True)
        total = (torch.exp(wide - most) * ONE).round().long().sum(dim=1, keepdim=True)
        logprobs = wide - (most + torch.log(total.double() / ONE))
        score = scores.gather(1, own)
        numbers = torch.arange(num_tokens, device=logits.device)
        rank = 1 + ((scores > score) | ((scores == score) & (numbers < own))).sum(dim=1)
        best = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
        self._landing = HostCopy(
            [
                logprobs.gather(1, own).float(),
                rank.int()[:, None],
                best.int(),
                logprobs.gather(1, best).float(),
                _faults(scores)[:, None],
            ]
        )

    def read(self) -> tuple[TopLogprobs, npt.NDArray[np.int32]]:
        """Wait for it; beside it the faults of rows, int32[W]."""
        own, rank, best, values, faults = self._landing.read()
        return TopLogprobs(own[:, 0], rank[:, 0], best, values), faults[:, 0]


class _Logprobs(NamedTuple):
    """Log probabilities of some rows of a draw."""

    rows: npt.NDArray[np.int32]
    pending: _PendingLogprobs


def _penalise(scores: torch.Tensor, penalties: Penalties) -> None:
    """Penalise f32[n] in place; ids at n and above are of no token and are passed over."""
    within = penalties.ids < len(scores)
    ids = _ids(penalties.ids[within], scores.device)
    counts = staged(penalties.counts[within], scores.device)
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
    packed = staged(words.view(np.uint8), logits.device)
    shifts = torch.arange(8, device=logits.device, dtype=torch.uint8)
    bits = ((packed[..., None] >> shifts) & 1).flatten(1)[:, :width]
    rows = _ids(np.array(at), logits.device)
    masked[rows] = masked[rows].masked_fill(bits == 0, -torch.inf)
    return masked


def _faults(scores: torch.Tensor) -> torch.Tensor:
    """Of each row, what keeps it from being a distribution: int32[R], a number of `_FAULTS`."""
    wrong = scores.isnan().any(dim=1) | (scores == torch.inf).any(dim=1)
    empty = (scores == -torch.inf).all(dim=1)
    return torch.where(wrong, 1, torch.where(empty, 2, 0)).int()


def _ids(ids: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """int64, to index with."""
    return staged(ids, device).long()
