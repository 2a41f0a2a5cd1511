"""What a token sees of its request, and what its softmax has besides: chunks, masks, sinks, slopes.

Both backends are held against a softmax over one row of scores in float64, written down here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ops.cpu import CpuOps
from headrace.ops.interface import Ops
from headrace.ops.kv import AttentionShape, KVCodec
from headrace.ops.reference import ReferenceOps
from tests.ops.cpu.attention_cases import bound, new_cache, packed
from tests.ops.cpu.cases import (
    FLOAT_CODECS,
    KV_CODECS,
    LEVELS,
    UNIT,
    Request,
    batch_of,
    by_level,
    named,
    row_width,
    shape_of,
    shuffled_blocks,
)

LENGTH = 150
F32 = npt.NDArray[np.float32]


class Terms(NamedTuple):
    """The arguments of paged_attention that most models do without."""

    sinks: F32 | None = None
    slopes: F32 | None = None
    masks: npt.NDArray[np.uint64] | None = None

    def of(self, start: int, stop: int) -> dict[str, Any]:
        masks = self.masks if self.masks is None else self.masks[start:stop]
        return {"sinks": self.sinks, "slopes": self.slopes, "masks": masks}


def shown_at_random(seed: int, share: float = 0.3) -> npt.NDArray[np.bool_]:
    """Some positions for each token, whole spans left out for some; its own always."""
    rng = np.random.default_rng(seed)
    shown = rng.random((LENGTH, LENGTH)) < share
    shown[rng.random(LENGTH) < 0.3, 64:128] = False
    np.fill_diagonal(shown, True)
    return shown


def attend(
    ops: Ops, shape: AttentionShape, terms: Terms, codecs: tuple[KVCodec, KVCodec],
    chunk: int = LENGTH, block_size: int = 16,
) -> np.ndarray:  # fmt: skip
    """A request of LENGTH tokens, so many of them at once."""
    (table,) = shuffled_blocks(chunk, [LENGTH], block_size)
    kv = new_cache(ops, shape, len(table), block_size, *codecs)
    parts = []
    for start in range(0, LENGTH, chunk):
        request = Request(5, start, min(chunk, LENGTH - start), table)
        rows, batch = request.rows(shape), batch_of([request])
        ops.kv_write(rows, shape, kv, 1, batch)
        own = terms.of(start, start + request.count)
        parts.append(ops.paged_attention(rows, shape, kv, 1, batch, **own))
    return np.concatenate(parts)


def expected(shape: AttentionShape, terms: Terms, shown: npt.NDArray[np.bool_]) -> np.ndarray:
    """softmax([sink, q.K scale + slope (k - q)]) . [0, V] over what is shown, in float64."""
    rows = Request(5, 0, LENGTH, np.zeros(0, np.int32)).rows(shape).astype(np.float64)
    heads, kv_heads = shape.num_heads, shape.num_kv_heads
    by_head = rows.reshape(LENGTH, heads + 2 * kv_heads, shape.head_dim)
    k, q = np.arange(LENGTH), np.arange(LENGTH)[:, None]
    seen = (k <= q) & shown
    if shape.window:
        seen &= k > q - shape.window
    if shape.chunk:
        seen &= k // shape.chunk == q // shape.chunk
    out = np.empty((LENGTH, heads, shape.head_dim))
    for head in range(heads):
        of_kv = head // (heads // kv_heads)
        keys, values = by_head[:, heads + of_kv], by_head[:, heads + kv_heads + of_kv]
        scores = by_head[:, head] @ keys.T * shape.scale
        if terms.slopes is not None:
            scores = scores + float(terms.slopes[head]) * (k - q)
        weights = np.exp(np.where(seen, scores, -np.inf))
        sink = 0.0 if terms.sinks is None else np.exp(float(terms.sinks[head]))
        out[:, head] = weights @ values / (weights.sum(axis=1, keepdims=True) + sink)
    return out.reshape(LENGTH, -1)


ALL = np.ones((LENGTH, LENGTH), np.bool_)
SINKS, SLOPES = (
    np.array([1.5, -3.0, 0.25, 6.0], np.float32),
    np.array([0.5, 0.25, 0.125, 0.0625], np.float32),
)
SOME = shown_at_random(1)
CASES = {
    "chunks": (0, 48, Terms(), ALL),
    "chunks of a span": (0, 64, Terms(), ALL),
    "a window and chunks": (20, 50, Terms(), ALL),
    "sinks": (0, 0, Terms(sinks=SINKS), ALL),
    "sinks and a window": (33, 0, Terms(sinks=SINKS), ALL),
    "slopes": (0, 0, Terms(slopes=SLOPES), ALL),
    "masks": (0, 0, Terms(masks=packed(SOME)), SOME),
    "everything": (70, 100, Terms(SINKS, SLOPES, packed(SOME)), SOME),
}
"""Window, chunk, terms, what the masks show."""


@pytest.mark.parametrize(
    "level,cases", by_level(FLOAT_CODECS, tuple(CASES), others=pytest.mark.matrix)
)
def test_is_the_softmax_over_what_a_token_sees(level: str, cases: list[Any]) -> None:
    for codecs, name in cases:
        window, chunk, terms, shown = CASES[name]
        shape = replace(shape_of(2, 2, 48), window=window, chunk=chunk)
        rows = Request(5, 0, LENGTH, np.zeros(0, np.int32)).rows(shape)
        limit = bound(shape, rows, codecs, level) + np.abs(rows).max() * 2 * 8 * UNIT * LENGTH
        if codecs[0] == "bf16":  # q and K are rounded, which moves a score by 2^-8 of its terms
            norms = np.sqrt((rows.reshape(LENGTH, -1, 48) ** 2).sum(axis=2))
            limit += np.abs(rows).max() * 2 * 2.0**-8 * norms.max() ** 2 * shape.scale
        if codecs[1] == "bf16":
            limit += np.abs(rows).max() * 2.0**-7
        with named(codecs=codecs, case=name):
            for ops in (CpuOps(level, 2), ReferenceOps()):
                got = attend(ops, shape, terms, codecs)
                assert np.abs(got - expected(shape, terms, shown)).max() <= limit


@pytest.mark.parametrize(
    "level,cases", by_level(KV_CODECS, tuple(CASES), others=pytest.mark.matrix)
)
def test_chunks_of_prompts_blocks_and_threads_do_not_show(level: str, cases: list[Any]) -> None:
    for codecs, name in cases:
        window, chunk, terms, _ = CASES[name]
        shape = replace(shape_of(2, 2, 32), window=window, chunk=chunk)
        whole = attend(CpuOps(level, 1), shape, terms, codecs)
        for step, threads, block_size in ((1, 2, 16), (37, 3, 32), (64, 2, 64)):
            cut = attend(CpuOps(level, threads), shape, terms, codecs, step, block_size)
            with named(codecs=codecs, case=name, step=step):
                assert (cut == whole).all()


@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=25, deadline=None)
@given(window=st.integers(1, 160), codecs=st.sampled_from(KV_CODECS), group=st.sampled_from([1, 3]))
def test_a_mask_of_an_interval_is_that_interval(
    level: str, window: int, codecs: tuple[KVCodec, KVCodec], group: int
) -> None:
    """To the bit: p of what a mask hides is zero, and spans it hides whole are passed over."""
    shape, ops = shape_of(1, group, 16), CpuOps(level, 2)
    k, q = np.arange(LENGTH), np.arange(LENGTH)[:, None]
    interval = packed((k <= q) & (k > q - window))
    for sinks in (None, SINKS[:group]):
        masked = attend(ops, shape, Terms(sinks, masks=interval), codecs)
        own = attend(ops, replace(shape, window=window), Terms(sinks), codecs)
        assert (masked == own).all()
    everything = attend(ops, shape, Terms(masks=packed(ALL)), codecs)
    assert (everything == attend(ops, shape, Terms(), codecs)).all()


@pytest.mark.parametrize("level", LEVELS)
def test_a_sink_that_is_nothing_changes_nothing(level: str) -> None:
    """A score of -inf, and slopes of zero."""
    shape, ops = shape_of(2, 2, 32), CpuOps(level, 1)
    plain = attend(ops, shape, Terms(), ("bf16", "bf16"))
    for terms in (
        Terms(sinks=np.full(4, -np.inf, np.float32)),
        Terms(slopes=np.zeros(4, np.float32)),
    ):
        assert (attend(ops, shape, terms, ("bf16", "bf16")) == plain).all()


def test_the_last_position_there_is_has_a_distance() -> None:
    """Beyond 2^24 positions are no float32 one by one; distances to them stay what they are."""
    shape = replace(shape_of(1, 1, 16), window=2)
    start = 2**24
    (table,) = shuffled_blocks(1, [64], 16)
    wide = np.zeros((1, start // 16 + 1), np.int32)
    wide[0, -2:] = table[:2]
    for ops in (CpuOps(threads=1), ReferenceOps()):
        kv = new_cache(ops, shape, len(table), 16, "f32", "f32")
        rows = Request(5, 0, 3, table).rows(shape)
        batch = replace(
            batch_of([Request(5, 0, 3, wide[0])]),
            positions=np.arange(start - 1, start + 2, dtype=np.int32),
            block_tables=(wide,),
        )
        ops.kv_write(rows, shape, kv, 1, batch)
        got = ops.paged_attention(rows, shape, kv, 1, batch, slopes=np.array([100.0], np.float32))
        # Each token sees itself, and the one before it with exp(-100).
        assert np.abs(got - rows[:, 32:]).max() <= 1e-6


def test_what_means_nothing_is_refused() -> None:
    shape = shape_of(1, 2, 16)
    request = Request(1, 0, 70, np.arange(5, dtype=np.int32))
    batch, rows = batch_of([request]), request.rows(shape)
    blind = packed(np.ones((70, 70), np.bool_))
    blind[69] = [0, 1 << 6]  # position 70, which is not there
    for backend in (CpuOps(threads=1), ReferenceOps()):
        kv = new_cache(backend, shape, 5, 16, "f32", "f32")
        for bad, terms, message in (
            (replace(shape, chunk=-1), Terms(), "chunk -1 is negative"),
            (shape, Terms(sinks=SINKS), "sinks"),
            (shape, Terms(slopes=SLOPES), "slopes"),
            (shape, Terms(masks=packed(ALL)), "masks"),
            (shape, Terms(masks=blind[:, :1].copy()), "masks of token 64 have 1 spans"),
            (shape, Terms(masks=blind), "masks of token 69 show it nothing"),
        ):
            with pytest.raises(ValueError, match=message):
                backend.paged_attention(rows, bad, kv, 0, batch, **terms._asdict())
    assert row_width(shape) == rows.shape[1]
