"""Bias, masks and penalties on rows of logits, in NumPy: the arithmetic of every backend on a CPU.

A row costs what it changes: a look-up by ids, or one pass where most ids are masked. `Penalties`
and `LogitsEdit` in `interface` say what is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headrace.ops.sampling_rows import LogitsEdit, Penalties, SamplingRows, Stage

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]

STAGES: tuple[Stage, ...] = ("penalties", "temperature", "min_p", "top_k", "top_p")


def adjust(logits: F32, adjustments: Sequence[LogitsEdit]) -> None:
    """`Ops.adjust` for NumPy arrays."""
    check_edits(logits.shape, adjustments)
    for edit in adjustments:
        row = logits[edit.row]
        if len(edit.bias_ids):
            row[edit.bias_ids] += edit.bias
        if edit.allowed is not None:
            kept = row[edit.allowed]
            row.fill(-np.inf)
            row[edit.allowed] = kept
        if len(edit.masked):
            row[edit.masked] = -np.inf
        if edit.penalties is not None:
            penalise(row, edit.penalties)


def penalise(scores: F32, penalties: Penalties) -> None:
    """Penalise f32[n] in place; ids at n and above are of no token and are passed over."""
    ids, counts, repetition, frequency, presence = penalties
    if len(ids) and int(ids.max()) >= len(scores):
        within = ids < len(scores)
        ids, counts = ids[within], counts[within]
    values = scores[ids]
    by = np.float32(repetition)
    with np.errstate(over="ignore"):  # whoever samples refuses an infinity
        if by != 1:
            values = np.where(values > 0, values / by, values * by)
        if frequency or presence:
            said = counts > 0
            often = np.float32(frequency) * counts.astype(np.float32)
            np.subtract(values, often, values, where=said)
            np.subtract(values, np.float32(presence), values, where=said)
    scores[ids] = values


def check_penalties(penalties: Penalties, width: int) -> None:
    """ValueError where ids, counts or strengths are not what `Penalties` says."""
    ids, counts, repetition, frequency, presence = penalties
    _check_ids("penalised id", ids, width)
    if len(counts) != len(ids) or (len(counts) and counts.min() < 0):
        raise ValueError(f"counts of {len(ids)} penalised ids must be as many, and not negative")
    if not 0 < repetition < np.inf:
        raise ValueError(f"repetition {repetition} is not in (0, inf)")
    if not np.isfinite([frequency, presence]).all():
        raise ValueError(f"frequency {frequency} and presence {presence} must be finite")


def check_chains(rows: SamplingRows, count: int, width: int) -> None:
    """ValueError where chains are not one per row, or one is not what `Chain` says."""
    if rows.chains and len(rows.chains) != count:
        raise ValueError(f"{len(rows.chains)} chains for {count} rows of logits")
    for chain in rows.chains:
        if chain is None:
            continue
        stages = chain.stages
        if not stages or len(set(stages)) < len(stages) or not set(stages) <= set(STAGES):
            raise ValueError(f"stages {stages} must be of {STAGES}, each once, at least one")
        if chain.penalties is not None:
            if "penalties" not in stages:
                raise ValueError(f"penalties have no place among the stages {stages}")
            check_penalties(chain.penalties, width)


def check_masks(rows: SamplingRows, count: int, width: int) -> None:
    """ValueError where masks are not one per row, or one has not the bits of all ids."""
    if rows.masks and len(rows.masks) != count:
        raise ValueError(f"{len(rows.masks)} masks for {count} rows of logits")
    words = (width + 31) // 32
    for mask in rows.masks:
        if mask is not None and (mask.dtype != np.uint32 or mask.shape != (words,)):
            raise ValueError(
                f"masks have a {mask.dtype}{list(mask.shape)}; {width} ids take uint32[{words}]"
            )


def check_edits(shape: tuple[int, ...], adjustments: Sequence[LogitsEdit]) -> None:
    """ValueError where logits of this shape are not rows, or a change to them is not what
    `LogitsEdit` says."""
    if len(shape) != 2:
        raise ValueError(f"logits of shape {list(shape)} are not rows of logits")
    for edit in adjustments:
        _check(edit, *shape)


def check_width(shape: tuple[int, ...], num_tokens: int) -> None:
    """ValueError where logits of this shape are not rows of so many tokens."""
    if len(shape) != 2 or not 1 <= num_tokens <= shape[1]:
        raise ValueError(f"num_tokens {num_tokens} does not fit logits {list(shape)}")


def check_parameters(rows: SamplingRows, count: int) -> None:
    """ValueError where parameters are not one per row of so many, or out of range."""
    temperature, top_p, min_p = rows.temperature, rows.top_p, rows.min_p
    for name, values, valid, range_text in (
        ("temperature", temperature, (temperature >= 0) & np.isfinite(temperature), "[0, inf)"),
        ("top_k", rows.top_k, rows.top_k >= 0, "[0, inf)"),
        ("top_p", top_p, (top_p > 0) & (top_p <= 1), "(0, 1]"),
        ("min_p", min_p, (min_p >= 0) & (min_p <= 1), "[0, 1]"),
        ("uniform", rows.uniform, (rows.uniform >= 0) & (rows.uniform < 1), "[0, 1)"),
    ):
        if len(values) != count:
            raise ValueError(f"{len(values)} values of {name} for {count} rows of logits")
        if not valid.all():
            raise ValueError(f"{name} {values[~valid][0]} is not in {range_text}")


def check_chosen(
    shape: tuple[int, ...], chosen: npt.NDArray[np.int32], k: int, num_tokens: int
) -> None:
    """ValueError where `Ops.top_logprobs` cannot answer for logits of this shape."""
    check_rivals(shape, k, num_tokens)
    if len(chosen) != shape[0]:
        raise ValueError(f"{len(chosen)} chosen ids for {shape[0]} rows of logits")
    _check_ids("chosen id", chosen, num_tokens)


def check_rivals(shape: tuple[int, ...], k: int, num_tokens: int) -> None:
    """ValueError where the k likeliest of so many tokens cannot be had of logits of this shape."""
    check_width(shape, num_tokens)
    if not 0 <= k <= num_tokens:
        raise ValueError(f"k {k} is not in [0, {num_tokens}], the number of tokens")


def _check(one: LogitsEdit, count: int, width: int) -> None:
    if not 0 <= one.row < count:
        raise ValueError(f"row {one.row} is not in [0, {count})")
    if len(one.bias) != len(one.bias_ids):
        raise ValueError(f"{len(one.bias)} biases for {len(one.bias_ids)} ids")
    _check_ids("biased id", one.bias_ids, width)
    if one.allowed is not None:
        _check_ids("allowed id", one.allowed, width)
    _check_ids("masked id", one.masked, width)
    if one.penalties is not None:
        check_penalties(one.penalties, width)


def _check_ids(name: str, ids: I32, width: int) -> None:
    if len(ids) and not (ids.min() >= 0 and ids.max() < width):
        wrong = ids[(ids < 0) | (ids >= width)][0]
        raise ValueError(f"{name} {wrong} is not in [0, {width})")
