"""Wrong input raises and names what is wrong; it never reaches a kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from headrace.errors import ConfigError
from headrace.ops.cpu import CpuOps, _native
from headrace.ops.kv import AttentionShape, KVCacheSpec, LayerPlace, RaggedBatch
from headrace.ops.operands import Norm
from headrace.ops.reference import ReferenceOps
from headrace.ops.sampling_rows import SamplingRows
from tests.ops.cpu.cases import matrix, normal, row_width, shape_of, vector

OPS = CpuOps(threads=2)


def test_levels_and_threads() -> None:
    assert CpuOps.levels()[-1] == "portable"
    assert CpuOps("auto").level == CpuOps.levels()[0]
    with pytest.raises(ConfigError, match=r"level 'sse9'.*portable"):
        CpuOps("sse9")
    for threads in (0, -1, 5000):
        with pytest.raises(ConfigError, match="threads"):
            CpuOps(threads=threads)


def test_linear() -> None:
    weight = OPS.linear_weight([matrix(1, 20, 64)])
    x = normal(1, 3, 64)
    assert OPS.linear(x, weight).shape == (3, 20)
    for bad in (normal(1, 3, 63), x.astype(np.float64), x[:, ::2], x.astype(np.float16), x[0]):
        with pytest.raises((ValueError, IndexError)):
            OPS.linear(bad, weight)
    with pytest.raises(ValueError, match="residual"):
        OPS.linear(x, weight, residual=normal(1, 2, 20))
    with pytest.raises(ValueError, match="norm weight"):
        OPS.linear(x, weight, norm=Norm(normal(1, 1, 63)[0], 1e-5))
    with pytest.raises(TypeError):
        OPS.linear(x, replace(weight, packed=x))


def test_weights() -> None:
    with pytest.raises(ValueError, match="cannot be fused"):
        OPS.linear_weight([matrix(1, 20, 64), matrix(1, 20, 96)])
    with pytest.raises(ValueError, match="cannot be fused"):
        OPS.linear_weight([matrix(1, 20, 64), matrix(1, 20, 64, "F16")])
    with pytest.raises(ValueError, match="at least one input"):
        OPS.linear_weight([replace(matrix(1, 20, 64), shape=(20, 0))])
    with pytest.raises(ValueError):
        OPS.linear_weight([])
    with pytest.raises(ValueError, match="shape"):
        OPS.linear_weight([vector(1, 64)])
    with pytest.raises(ValueError):
        OPS.linear_weight([matrix(1, 20, 64)], bias=[vector(1, 19)])
    with pytest.raises(ValueError):
        OPS.linear_weight([matrix(1, 20, 64)], bias=[vector(1, 20), None])
    with pytest.raises(ValueError, match="shape"):
        OPS.vector(matrix(1, 2, 32))
    good = matrix(1, 20, 64)
    with pytest.raises(ValueError, match="row_order 20"):
        OPS.linear_weight([replace(good, row_order=np.arange(1, 21, dtype=np.int32))])
    with pytest.raises(ValueError, match="data"):
        OPS.embedding_weight(replace(good, shape=(20, 60)))


def test_embedding_and_rows() -> None:
    table = OPS.embedding_weight(matrix(1, 20, 64))
    for bad in (-1, 20):
        with pytest.raises(ValueError, match=f"token id {bad}"):
            OPS.embedding(table, np.array([3, bad], np.int32))
    with pytest.raises(ValueError):
        OPS.embedding(table, np.array([3], np.int64))
    with pytest.raises(ValueError, match="row 3"):
        OPS.take_rows(normal(1, 3, 4), np.array([3], np.int32))
    for ops in (OPS, ReferenceOps()):
        for columns in (-1, 5):
            with pytest.raises(ValueError, match="columns"):
                ops.scale_rows(normal(1, 3, 4), normal(2, 1, 3)[0], columns=columns)
        with pytest.raises(ValueError, match="factors"):
            ops.scale_rows(normal(1, 3, 4), normal(2, 1, 2)[0], columns=4)
        with pytest.raises(ValueError, match="gates of 3 heads do not fit rows of 4"):
            ops.gate_heads(normal(1, 3, 4), normal(2, 3, 3))
        with pytest.raises(ValueError, match="gates"):
            ops.gate_heads(normal(1, 3, 4), normal(2, 2, 2))


def test_kv_cache() -> None:
    good = {
        "num_layers": 1, "num_kv_heads": 1, "head_dim": 64, "block_size": 16, "num_blocks": 4,
        "k_codec": "f32", "v_codec": "f32",
    }  # fmt: skip
    for change in (
        {"block_size": 8}, {"block_size": 128}, {"block_size": 24}, {"head_dim": 63},
        {"head_dim": 0}, {"num_blocks": 0}, {"num_layers": -1}, {"num_kv_heads": 0},
        {"k_codec": "q5_0"}, {"v_codec": "f16"}, {"head_dim": 2**60}, {"num_blocks": 2**62},
        {"num_blocks": 2**50, "num_layers": 4}, {"num_kv_heads": 2**54, "num_blocks": 2**10},
        {"value_dim": -1}, {"value_dim": 2**60}, {"value_dim": 65, "latent": True},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=next(iter(change))):
            OPS.kv_cache(KVCacheSpec.uniform(**{**good, **change}))  # type: ignore[arg-type]
    places = (LayerPlace(0, 0, 2, 64), LayerPlace(0, 0, 1, 64))
    for ops in (OPS, ReferenceOps()):
        with pytest.raises(ValueError, match="layers in one place of a KV cache differ"):
            ops.kv_cache(KVCacheSpec(places, 16, 4, "f32", "f32"))
        for table in (-1, -(2**62)):
            with pytest.raises(ValueError, match=f"table {table} of a layer .* at least 0"):
                before = LayerPlace(table, 0, 2, 64)
                ops.kv_cache(KVCacheSpec((places[0], before), 16, 4, "f32", "f32"))


def test_ragged_batches() -> None:
    shape = shape_of(2, 2, 16)
    kv = OPS.kv_cache(KVCacheSpec.uniform(2, 2, 16, 16, 4, "f32", "f32"))
    rows = normal(1, 5, row_width(shape))
    good = RaggedBatch(
        token_ids=np.zeros(5, np.int32),
        positions=np.array([0, 1, 2, 30, 31], np.int32),
        query_start=np.array([0, 3, 5], np.int32),
        block_tables=(np.array([[0, 0], [1, 2]], np.int32),),
        logit_rows=np.array([2, 4], np.int32),
    )

    def both(batch: RaggedBatch, qkv: np.ndarray = rows, layer: int = 0) -> None:
        for call in (OPS.kv_write, OPS.paged_attention):
            with pytest.raises((ValueError, TypeError)):
                call(qkv, shape, kv, layer, batch)

    OPS.kv_write(rows, shape, kv, 0, good)
    assert OPS.paged_attention(rows, shape, kv, 0, good).shape == (5, 64)
    int32 = np.int32
    for change in (
        {"positions": np.array([0, 1, 2, 31, 32], int32)},  # past its block table
        {"positions": np.array([0, 1, 2, 31, 31], int32)},  # twice the same
        {"positions": np.array([-1, 0, 1, 30, 31], int32)},
        {"positions": np.array([0, 1, 2, 30], int32)},
        {"positions": np.array([0, 1, 2, 30, 31], np.int64)},
        {"query_start": np.array([0, 3, 4], int32)},
        {"query_start": np.array([0, 6, 5], int32)},
        {"query_start": np.array([0, -1, 5], int32)},
        {"query_start": np.array([1, 3, 5], int32)},
        {"query_start": np.array([0, 5], int32)},
        {"query_start": np.array([], int32)},
        {"block_tables": (np.array([[0, 0], [1, 4]], int32),)},
        {"block_tables": (np.array([[0, 0], [-1, 2]], int32),)},
        {"block_tables": (np.array([[0], [1]], int32),)},
        {"block_tables": ()},
    ):
        both(replace(good, **change))
    both(good, normal(1, 4, row_width(shape)))
    both(good, normal(1, 5, row_width(shape) - 1))
    both(good, layer=2)
    both(good, layer=-1)
    with pytest.raises(ValueError, match="the cache holds"):
        OPS.kv_write(normal(1, 5, 96), shape_of(1, 4, 16), kv, 0, good)
    # An unused entry of a table is never read.
    unused = replace(good, block_tables=(np.array([[0, 99], [1, 2]], int32),))
    OPS.kv_write(rows, shape, kv, 0, unused)


@pytest.mark.parametrize("window", [2**31, 2**40 + 1, 2**63 - 1])
def test_a_window_beyond_every_position_is_none(window: int) -> None:
    shape = shape_of(1, 2, 16)
    kv = OPS.kv_cache(KVCacheSpec.uniform(1, 1, 16, 16, 2, "f32", "f32"))
    rows = normal(1, 20, row_width(shape))
    batch = RaggedBatch(
        token_ids=np.zeros(20, np.int32),
        positions=np.arange(20, dtype=np.int32),
        query_start=np.array([0, 20], np.int32),
        block_tables=(np.array([[0, 1]], np.int32),),
        logit_rows=np.array([19], np.int32),
    )
    wide = replace(shape, window=window)
    OPS.kv_write(rows, wide, kv, 0, batch)
    got = OPS.paged_attention(rows, wide, kv, 0, batch)
    assert (got == OPS.paged_attention(rows, shape, kv, 0, batch)).all()


def test_the_last_position_there_is() -> None:
    """Position 2^31 - 1, through a window: the next one is no int32."""
    shape = replace(shape_of(1, 1, 16), window=1)
    kv = OPS.kv_cache(KVCacheSpec.uniform(1, 1, 16, 64, 2, "f32", "f32"))
    table = np.zeros((1, 2**25), np.int32)
    table[0, -1] = 1
    batch = RaggedBatch(
        token_ids=np.zeros(1, np.int32),
        positions=np.array([2**31 - 1], np.int32),
        query_start=np.array([0, 1], np.int32),
        block_tables=(table,),
        logit_rows=np.zeros(1, np.int32),
    )
    rows = normal(1, 1, 48)
    OPS.kv_write(rows, shape, kv, 0, batch)
    assert (OPS.paged_attention(rows, shape, kv, 0, batch) == rows[:, 32:]).all()


@pytest.mark.parametrize(
    "heads,kv_heads", [(-1, 1), (0, 1), (10, -2), (2**58, 1), (200002, -99998)]
)
def test_numbers_of_heads(heads: int, kv_heads: int) -> None:
    """Some of these multiply to the width of the rows."""
    native = _native.Backend("auto", 1)
    width = (heads + 2 * kv_heads) * 16 % 2**64
    rows = np.zeros((1, width if width < 10000 else 96), np.float32)
    table = np.ones((4, 8), np.float32)
    zero = np.zeros(1, np.int32)
    place = (0, 0, 1, 16, 16, False, "f32", "f32", -1, 0, 1.0, 1.0)
    cache = _native.KvCache([place], 16, 1)
    shape = AttentionShape(heads, kv_heads, 16, 1.0)
    batch = _native.BoundBatch(cache, zero, np.array([0, 1], np.int32), [zero[None]])
    with pytest.raises(ValueError, match=r"num_(kv_)?heads .* is not in \[1, 65536\]"):
        native.rope(rows, shape, table, table, zero, None, 0.0, None, 0.0)
    with pytest.raises(ValueError, match="heads"):
        native.kv_write(batch, 0, rows, shape)
    with pytest.raises(ValueError, match="heads"):
        native.attention(batch, 0, rows, rows, shape, None, None, None)


def test_stored_rows() -> None:
    native = _native.Backend("auto", 1)
    nothing = np.zeros((4, 0), np.uint8)
    for width in (-4, 2**62, 2**40 + 32):
        with pytest.raises(ValueError, match=f"width {width}"):
            _native.Rows("F32", width, nothing, None)
    with pytest.raises(ValueError, match="None"):
        native.pack([None], None)  # type: ignore[list-item]
    # No outputs, no inputs and no rows are no mistake.
    for out, width, rows in ((0, 32, 3), (4, 0, 3), (4, 32, 0), (0, 0, 0)):
        stored = _native.Rows("Q8_0", width, np.zeros((out, width // 32 * 34), np.uint8), None)
        y = np.ones((rows, out), np.float32)
        weight = native.pack([stored], None)
        x = np.ones((rows, width), np.float32)
        native.linear(weight, x, y, None, None, 0.0, False, None, 1.0)
        assert (y == 0).all()


def test_rope() -> None:
    shape = shape_of(1, 1, 16)
    table = OPS.rope_table(np.ones(8), 10)
    rows = normal(1, 2, row_width(shape))
    for positions in ([0, 10], [-1, 0], [0]):
        with pytest.raises(ValueError, match="position"):
            OPS.rope(rows, shape, table, np.array(positions, np.int32))
    with pytest.raises(ValueError, match="rotary_dim 18"):
        OPS.rope(rows, shape, OPS.rope_table(np.ones(9), 10), np.zeros(2, np.int32))
    frozen = rows.copy()
    frozen.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        OPS.rope(frozen, shape, table, np.zeros(2, np.int32))
    with pytest.raises(ValueError, match="positions"):
        OPS.rope_table(np.ones(8), 0)


@pytest.mark.parametrize(
    "field,value",
    [
        ("temperature", -1), ("temperature", np.nan), ("temperature", np.inf), ("top_k", -1),
        ("top_p", 0), ("top_p", 1.5), ("min_p", -0.1), ("min_p", 2), ("uniform", 1.0),
        ("uniform", -0.1),
    ],
)  # fmt: skip
def test_sampling_parameters(field: str, value: float) -> None:
    rows = SamplingRows(
        np.ones(2, np.float32), np.zeros(2, np.int32), np.ones(2, np.float32),
        np.zeros(2, np.float32), np.zeros(2),
    )  # fmt: skip
    logits = np.zeros((2, 8), np.float32)
    assert (OPS.sample(logits, rows, 8) == 0).all()
    getattr(rows, field)[1] = value
    with pytest.raises(ValueError, match=field):
        OPS.sample(logits, rows, 8)
    short = replace(rows, **{field: getattr(rows, field)[:1]})
    with pytest.raises(ValueError, match=field):
        OPS.sample(logits, short, 8)
    for num_tokens in (0, 9):
        with pytest.raises(ValueError, match="num_tokens"):
            OPS.sample(logits, rows, num_tokens)
    for chosen, k in (([0, 8], 1), ([-1, 0], 1), ([0, 0], 9), ([0, 0], -1), ([0], 1)):
        with pytest.raises(ValueError):
            OPS.top_logprobs(logits, np.array(chosen, np.int32), k, 8)


@pytest.mark.parametrize(
    ("index", "value", "words"),
    [
        (0, np.zeros((2, 4), np.int32), "stages: dimension 1 is 4, must be 5"),
        (0, np.full((1, 5), -1, np.int32), "stages: dimension 0 is 1, must be 2"),
        (0, np.array([[5, -1, -1, -1, -1]] * 2, np.int32), "stage 5"),
        (0, np.array([[-2, -1, -1, -1, -1]] * 2, np.int32), "stage -2"),
        (0, np.array([[3, 1, 3, -1, -1]] * 2, np.int32), "stage 3 comes twice"),
        (0, np.zeros((2, 5), np.float32), "stages must be a C-contiguous int32"),
        (1, np.zeros((2, 3), np.float32), "repetition 0.0"),
        (1, np.array([[1, np.inf, 0]] * 2, np.float32), "frequency inf"),
        (1, np.array([[1, 0, np.nan]] * 2, np.float32), "presence nan"),
        (1, np.ones((2, 2), np.float32), "strengths: dimension 1"),
        (2, np.array([0, 1], np.int32), "penalties_start: dimension 0"),
        (2, np.array([0, 2, 1], np.int32), "penalties_start does not ascend"),
        (2, np.array([0, 1, 3], np.int32), "penalties_start does not ascend"),
        (2, np.array([-1, 1, 2], np.int32), "penalties_start does not ascend"),
        (3, np.array([0, 8], np.int32), "penalised id 8"),
        (3, np.array([0, -1], np.int32), "penalised id -1"),
        (4, np.array([0, -1], np.int32), "counts -1"),
        (4, np.array([0], np.int32), "counts: dimension 0"),
    ],
)
def test_chains(index: int, value: npt.NDArray[np.generic], words: str) -> None:
    """Handed to the native side past `CpuOps`, which checks what people hand in."""
    native = _native.Backend("auto", 1)
    ids = np.empty(2, np.int32)

    def sample(*chains: npt.NDArray[np.generic]) -> None:
        native.sample(
            np.zeros((2, 8), np.float32), 8, np.ones(2, np.float32), np.zeros(2, np.int32),
            np.ones(2, np.float32), np.zeros(2, np.float32), np.zeros(2), ids, chains,
        )  # fmt: skip

    good = [
        np.array([[0, 1, 2, 3, 4], [3, -1, -1, -1, -1]], np.int32),
        np.ones((2, 3), np.float32),
        np.array([0, 2, 2], np.int32),
        np.array([7, 1], np.int32),
        np.array([0, 3], np.int32),
    ]
    sample(*good)
    with pytest.raises(ValueError, match="five arrays"):
        sample(*good[:4])
    good[index] = value  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=words):
        sample(*good)
