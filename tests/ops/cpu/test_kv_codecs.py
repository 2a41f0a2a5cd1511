"""The codecs of K and V: one table in native/kv_codecs.h, which what Python says of them equals."""

from __future__ import annotations

from typing import get_args, get_type_hints

import ml_dtypes
import numpy as np
import pytest

from headrace.cli.eval import options as eval_options
from headrace.config.settings import EngineConfig
from headrace.ops import make_ops
from headrace.ops.cpu import CpuOps, _native
from headrace.ops.kv import KV_CODECS, AttentionShape, KVCacheSpec, KVCodec, LayerPlace
from headrace.ops.reference import ReferenceOps
from headrace.ops.reference.arithmetic import F32
from headrace.ops.reference.kv_codecs import encode, rotated
from tests.ops.cpu.attention_cases import goes_by_pairs, new_cache
from tests.ops.cpu.cases import KV_CODECS as PAIRS
from tests.ops.cpu.cases import LEVELS, Request, batch_of, named, normal

OPS = CpuOps("auto", 1)


def test_python_knows_the_codecs_of_the_native_table() -> None:
    native = {name: facts for name, *facts in _native.kv_codecs()}
    sizes = {
        name: [size.value_bits, size.scale_bytes, size.rotated] for name, size in KV_CODECS.items()
    }
    assert native == sizes
    assert tuple(native) == get_args(KVCodec)
    settings = get_type_hints(EngineConfig)
    assert get_args(settings["kv_cache_dtype"]) == ("auto", *native)
    assert get_args(settings["kv_cache_dtype_v"]) == ("auto", *native)
    assert tuple(native) == eval_options.KV_CODECS
    # K and V have readers of their own, each compiled once: native/tests has every pair.
    assert {k for k, _ in PAIRS} == {v for _, v in PAIRS} == set(native)


@pytest.mark.parametrize(("k", "v"), PAIRS)
def test_blocks_are_as_long_as_the_spec_counts(k: KVCodec, v: KVCodec) -> None:
    places = (LayerPlace(0, 0, 2, 32, 16), LayerPlace(1, 0, 1, 80, 64, latent=True))
    spec = KVCacheSpec(places, 16, 3, k, v)
    assert OPS.kv_cache(spec).arrays.nbytes == 3 * spec.block_bytes


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("field", ["k_codec", "v_codec"])
def test_an_unknown_codec_is_refused_with_those_there_are(backend: str, field: str) -> None:
    ops = make_ops(backend, threads=1)
    codecs = {"k_codec": "f32", "v_codec": "f32", field: "q9"}
    spec = KVCacheSpec((LayerPlace(0, 0, 1, 16),), 16, 1, **codecs)  # type: ignore[arg-type]
    names = ", ".join(KV_CODECS)
    with pytest.raises(ValueError, match=f"{field} 'q9' is unknown; choose one of {names}$"):
        ops.kv_cache(spec)


def spoilt_rows(shape: AttentionShape, count: int) -> F32:
    """Rows whose heads are of every size: large, tiny, zero, with outliers, with ties to round."""
    rows = normal(11, count, shape.row_width)
    rows[0] = 0
    rows[1] *= 1e-30
    rows[2] = rows[2] * 2.0**-9
    rows[3] = np.round(rows[3] * 4) / 2
    rows[4] *= 1000
    rows[5, ::16] *= 50
    rows[6] = np.where(rows[6] > 0, 1.5, -1.5)
    rows[7] = np.float32(1e-41)
    return rows


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_stored_is_what_the_reference_stores_to_the_last_bit(level: str) -> None:
    """A token that sees itself alone reads its own value: nothing else is in its sums."""
    ops, reference = CpuOps(level, 1), ReferenceOps()
    for v in KV_CODECS:
        for shape in (
            AttentionShape(2, 2, 48, 1.0, window=1),
            AttentionShape(1, 1, 32, 1.0, window=1, value_dim=18),
            AttentionShape(2, 1, 40, 1.0, window=1, value_dim=24, latent=True),
        ):
            rows = spoilt_rows(shape, 40)
            batch = batch_of([Request(0, 0, 40, np.array([2, 0, 1], np.int32))])
            found = []
            for backend in (ops, reference):
                kv = new_cache(backend, shape, 3, 16, v, v)
                backend.kv_write(rows, shape, kv, 0, batch)
                found.append(np.asarray(backend.paged_attention(rows, shape, kv, 0, batch)))
            with named(codec=v, shape=shape):
                # A denormal is zero for one of them.
                expected = np.where(np.abs(found[1]) < 2.0**-126, 0, found[1])
                if goes_by_pairs(level) and KV_CODECS[v].scale_bytes > 0:
                    # The scale of a token is in p, which is a bfloat16 there; H rounds after it.
                    size = np.abs(expected)
                    limit = 2.0**-8 * size + 2.0**-20 * size.max(axis=1, keepdims=True)
                    assert (np.abs(found[0] - expected) <= limit).all()
                else:
                    assert (expected == found[0]).all()


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_fp8_is_e4m3_with_a_scale_of_one(backend: str) -> None:
    ops = make_ops(backend, threads=1)
    shape = AttentionShape(1, 1, 32, 1.0, window=1)
    values = np.array([448, 463, 1e9, np.inf, -np.inf, 2.0**-9, 2.0**-10, -0.3, 17, 19], np.float32)
    rows = np.zeros((1, shape.row_width), np.float32)
    rows[0, 64 : 64 + len(values)] = values
    rows[0, 95] = np.nan
    batch = batch_of([Request(0, 0, 1, np.zeros(1, np.int32))])
    kv = new_cache(ops, shape, 1, 16, "fp8", "fp8")
    ops.kv_write(rows, shape, kv, 0, batch)
    read = np.asarray(ops.paged_attention(rows, shape, kv, 0, batch))[0]
    expected = [448, 448, 448, 448, -448, 2.0**-9, 0, -0.3125, 16, 20]
    assert read[: len(values)].tolist() == expected
    assert read[95 - 64] == 480, "NaN has a code, which is read as a number"


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_fp8_may_have_scales_of_a_layer(backend: str) -> None:
    """x / s to the nearest code, read times s; K shows in the scores of two tokens."""
    ops = make_ops(backend, threads=1)
    shape = AttentionShape(1, 1, 32, 1.0)
    place = LayerPlace(0, 0, 1, 32, k_scale=0.5, v_scale=16.0)
    kv = ops.kv_cache(KVCacheSpec((place,), 16, 1, "fp8", "fp8"))
    rows = np.zeros((2, shape.row_width), np.float32)
    rows[:, 0] = 1.0  # q
    rows[0, 32], rows[1, 32] = 2.21, 0.03
    rows[0, 64], rows[1, 64] = 4000, 17 * 16
    batch = batch_of([Request(0, 0, 2, np.zeros(1, np.int32))])
    ops.kv_write(rows, shape, kv, 0, batch)
    read = np.asarray(ops.paged_attention(rows, shape, kv, 0, batch))
    assert read[0, 0] == 256 * 16
    k = [np.float64(ml_dtypes.float8_e4m3fn(x / 0.5)) * 0.5 for x in (2.21, 0.03)]
    p = np.exp(np.array(k) - max(k))
    # p is a bfloat16 where attention goes by pairs.
    rtol = 2.0**-8 if goes_by_pairs(getattr(ops, "level", "")) else 1e-6
    np.testing.assert_allclose(read[1, 0], (p @ [256 * 16, 16 * 16]) / p.sum(), rtol=rtol)
    for bad in (0.0, np.nan, 2.0**61):
        spec = KVCacheSpec((LayerPlace(0, 0, 1, 32, k_scale=bad),), 16, 1, "fp8", "fp8")
        with pytest.raises(ValueError, match=r"scale .* of a KV cache is not in \[2\^-60, 2\^60\]"):
            ops.kv_cache(spec)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("codec", ["int8", "q8_0", "q4_0"])
def test_a_head_that_is_not_finite_spoils_what_is_read_of_its_token_alone(
    level: str, codec: KVCodec
) -> None:
    ops, shape = CpuOps(level, 1), AttentionShape(2, 2, 32, 1.0, window=1)
    for bad in (np.nan, np.inf, -np.inf):
        rows = normal(3, 20, shape.row_width)
        clean = rows.copy()
        rows[7, 4 * 32 + 5] = bad
        batch = batch_of([Request(0, 0, 20, np.arange(2, dtype=np.int32))])
        found = []
        for given in (rows, clean):
            kv = new_cache(ops, shape, 2, 16, codec, codec)
            ops.kv_write(given, shape, kv, 0, batch)
            found.append(np.asarray(ops.paged_attention(given, shape, kv, 0, batch)))
        assert not np.isfinite(found[0][7, :32]).any()
        assert (found[0][7, 32:] == found[1][7, 32:]).all()
        assert (np.delete(found[0], 7, 0) == np.delete(found[1], 7, 0)).all()


@pytest.mark.parametrize("width", [2, 18, 64, 80, 96, 128])
def test_the_rotation_is_a_hadamard_matrix_in_blocks(width: int) -> None:
    block = width & -width
    matrix = np.ones((1, 1))
    while len(matrix) < block:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    matrix = np.kron(np.eye(width // block), matrix) / np.sqrt(block)
    x = normal(width, 5, width)
    np.testing.assert_allclose(rotated(x), x @ matrix, rtol=0, atol=2e-6)
    np.testing.assert_allclose(rotated(rotated(x)), x, rtol=0, atol=2e-6)


def test_outliers_cost_fewer_bits_behind_the_rotation() -> None:
    """Keys with two dimensions ten times the others: the error of what is read."""
    x = normal(5, 200, 128)
    x[:, [3, 77]] *= 10
    errors = {}
    for codec, turn in (("int8", False), ("q8_0", True), ("q4_0", True), ("q4_0", False)):
        codes, scales = encode(codec, rotated(x) if turn else x)
        read = (codes.astype(np.float64) * scales[:, None]).astype(np.float32)
        errors[codec, turn] = np.square((rotated(read) if turn else read) - x).mean()
    assert errors["q8_0", True] < errors["int8", False] / 4
    assert errors["q4_0", True] < errors["q4_0", False] / 4
    # A step of an eighth of the largest of 128 normal numbers, uniform error within it.
    assert errors["q4_0", True] < np.square(x).mean() * 0.02


def test_heads_too_wide_to_rotate_are_refused_by_name() -> None:
    for place, fits in (
        (LayerPlace(0, 0, 1, 4096), True),
        (LayerPlace(0, 0, 1, 8192), False),
        (LayerPlace(0, 0, 1, 8192, 512, latent=True), True),
    ):
        spec = KVCacheSpec((place,), 16, 1, "q8_0", "q8_0")
        if fits:
            OPS.kv_cache(spec)
            continue
        with pytest.raises(ValueError, match="head_dim 8192 is above 4096, the widest that q8_0"):
            OPS.kv_cache(spec)
