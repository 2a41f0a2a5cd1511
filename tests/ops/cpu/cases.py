"""Inputs the tests of the cpu backend share: tensors, ragged batches over shuffled blocks.

Values depend on the seed alone, so the same rows can be asked for in any batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.random_rows import random_rows
from headrace.ops.cpu import CpuOps
from headrace.ops.kv import AttentionShape, KVCodec, RaggedBatch
from headrace.weights.codecs import F8_E4M3, Codec, get_codec
from headrace.weights.tensors.scaled_tensor import ScaledTensor
from headrace.weights.tensors.tensor import Tensor

F32 = npt.NDArray[np.float32]

LEVELS = CpuOps.levels()
QUANTISED = (
    "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
    "IQ4_XS", "MXFP4", "NVFP4", "Q1_0", "Q2_0", "TQ1_0", "TQ2_0", "IQ3_S", "IQ3_XXS", "IQ2_S",
    "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S",
)  # fmt: skip
CODECS = ("F32", "F16", "BF16", "F8_E4M3", *QUANTISED)
TABLES = ("F32", "F16", "BF16", *QUANTISED)
"""Codecs of tables that are looked up."""

UNIT = 2.0**-24
"""Largest relative error of one float32 rounding."""


@contextmanager
def named(**case: object) -> Iterator[None]:
    """A failure inside is reported with these values: which case of a loop it was."""
    try:
        yield
    except Exception as error:
        error.add_note("case: " + ", ".join(f"{key}={value}" for key, value in case.items()))
        raise


def by_level(
    first: Sequence[Any],
    second: Sequence[Any] | None = None,
    *,
    others: pytest.MarkDecorator | None = None,
) -> list[Any]:
    """Parameters `level, cases`: per level the pairs (first, second) to loop over.

    A test runs twice for each level. Once, in every run of the tests, over a cover of the pairs:
    each value of the longer list once for each level, the other list's values in turn, so that each
    of those too meets each level. Once, marked `others`, over all the other pairs. Without `second`
    there is one list of single values, and no others. The mark is the caller's: that a module has
    tests of another tier is seen in its text.
    """
    assert (second is None) == (others is None), "others are of two lists"
    if second is None:
        return [pytest.param(level, list(first), id=level) for level in LEVELS]
    few: list[list[tuple[Any, Any]]] = []
    for shift in range(len(LEVELS)):
        if len(first) >= len(second):
            few.append([(a, second[(i + shift) % len(second)]) for i, a in enumerate(first)])
        else:
            few.append([(first[(i + shift) % len(first)], b) for i, b in enumerate(second)])
    every = [(a, b) for a in first for b in second]
    covers = [
        pytest.param(level, cover, id=f"{level}-cover")
        for level, cover in zip(LEVELS, few, strict=True)
    ]
    rests = [
        pytest.param(
            level, [pair for pair in every if pair not in cover], id=f"{level}-others",
            marks=others or (),
        )
        for level, cover in zip(LEVELS, few, strict=True)
    ]  # fmt: skip
    return covers + rests


@lru_cache(maxsize=1024)
def _sixteen_rows(seed: int, start: int, shape: tuple[int, ...]) -> F32:
    rows = [np.random.default_rng([seed, start + i]).standard_normal(shape) for i in range(16)]
    return np.array(rows, np.float32)


def normal(seed: int, *shape: int) -> F32:
    """Standard normal values, row i the same whatever the number of rows."""
    parts = [_sixteen_rows(seed, start, shape[1:]) for start in range(0, shape[0], 16)]
    return np.concatenate(parts)[: shape[0]] if parts else np.empty(shape, np.float32)


@lru_cache(maxsize=256)
def matrix(seed: int, out: int, width: int, codec: str = "F32") -> Tensor:
    """Random rows in the codec's own bytes, of standard deviation 1 / sqrt(width)."""
    if codec == F8_E4M3.name:
        return _scaled(seed, out, width)
    kind = get_codec(codec)
    data = random_rows(kind, np.random.default_rng(seed), out, width, width**-0.5)
    data.flags.writeable = False
    return Tensor(f"matrix{seed}", (out, width), kind, data)


def _scaled(seed: int, out: int, width: int) -> Tensor:
    """FP8 of any bits but NaN, with scales of blocks, of rows or of all of it, as the seed says."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, (out, width), np.uint8)
    codes[(codes & 0x7F) == 0x7F] = 1
    block = ((128, 128), (1, width), (out, width), (16, 256))[seed % 4]
    blocks = (-(-out // block[0]), -(-width // block[1]))
    # Codes alone have a standard deviation of about 106.
    scales = (rng.uniform(0.5, 2, blocks) / 106 * width**-0.5).astype(np.float32)
    codes.flags.writeable = False
    return ScaledTensor(
        f"matrix{seed}", (out, width), F8_E4M3, codes, scales=scales, block=block,
        scale_bytes=scales.nbytes,
    )  # fmt: skip


def kind_of(codec: str) -> Codec:
    """The codec of this name, those included that a file stores scales of elsewhere."""
    return F8_E4M3 if codec == F8_E4M3.name else get_codec(codec)


def whole_blocks(codec: str, width: int) -> int:
    """The least width from `width` on that is whole blocks of the codec."""
    block = kind_of(codec).block_elements
    return -(-width // block) * block


def vector(seed: int, size: int) -> Tensor:
    values = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    kind = get_codec("F32")
    return Tensor(f"vector{seed}", (size,), kind, kind.encode(values[None]))


def shape_of(kv_heads: int, group: int, head_dim: int) -> AttentionShape:
    return AttentionShape(kv_heads * group, kv_heads, head_dim, head_dim**-0.5)


def row_width(shape: AttentionShape) -> int:
    return shape.row_width


@dataclass(frozen=True)
class Request:
    """A request whose positions [start, start + count) are new; `blocks` covers all of them."""

    seed: int
    start: int
    count: int
    blocks: npt.NDArray[np.int32]

    def rows(self, shape: AttentionShape) -> F32:
        """The qkv rows of the new tokens."""
        return normal(self.seed, self.start + self.count, row_width(shape))[self.start :]


def batch_of(requests: list[Request]) -> RaggedBatch:
    widest = max(len(request.blocks) for request in requests)
    tables = np.zeros((len(requests), widest), np.int32)
    for index, request in enumerate(requests):
        tables[index, : len(request.blocks)] = request.blocks
    starts = np.cumsum([0] + [request.count for request in requests]).astype(np.int32)
    positions = np.concatenate(
        [np.arange(r.start, r.start + r.count, dtype=np.int32) for r in requests]
    )
    return RaggedBatch(
        token_ids=np.zeros(len(positions), np.int32),
        positions=positions,
        query_start=starts,
        block_tables=(tables,),
        logit_rows=starts[1:] - 1,
    )


def shuffled_blocks(seed: int, lengths: list[int], block_size: int) -> list[npt.NDArray[np.int32]]:
    """Block tables for requests of these lengths, the ids in no order."""
    counts = [-(-length // block_size) for length in lengths]
    ids = np.random.default_rng(seed).permutation(sum(counts)).astype(np.int32)
    return np.split(ids, np.cumsum(counts)[:-1])


FLOAT_CODECS: tuple[tuple[KVCodec, KVCodec], ...] = (
    ("f32", "f32"),
    ("bf16", "bf16"),
    ("f32", "bf16"),
    ("bf16", "f32"),
)
KV_CODECS: tuple[tuple[KVCodec, KVCodec], ...] = (
    *FLOAT_CODECS,
    ("int8", "fp8"),
    ("fp8", "q8_0"),
    ("q8_0", "q4_0"),
    ("q4_0", "int8"),
)
"""Of K and V: every codec of each, and of the floats every pair."""
