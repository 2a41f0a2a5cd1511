"""Q1_0, Q2_0 and NVFP4: what is encoded has the least error, and no more than ggml's way has."""

from __future__ import annotations

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from headrace.errors import CheckpointError
from headrace.weights.codecs import _search, get_codec
from headrace.weights.codecs.few_bits import find_q2_0
from headrace.weights.codecs.tables import E2M1_DOUBLED, E4M3_HALVED, find_nvfp4
from tests.weights.test_search import importance_of, values_of

KINDS = ("Q1_0", "Q2_0", "NVFP4")
SHAPES = ("normal", "heavy", "positive", "negative", "grid", "sparse", "constant")
Floats = npt.NDArray[np.float32]


def error_of(kind: str, values: Floats, weights: Floats | None) -> npt.NDArray[np.float64]:
    """Weighed squared errors of each block."""
    codec = get_codec(kind)
    off = codec.decode(codec.encode(values, weights)).astype(np.float64) - values
    spread = np.ones_like(values) if weights is None else np.broadcast_to(weights, values.shape)
    errors = (spread * off**2).reshape(-1, codec.block_elements).sum(axis=1)
    return np.asarray(errors, np.float64)


def ggml_values(kind: str, values: Floats) -> Floats:
    """What ggml-quants.c makes of values (quantize_row_q1_0_ref, _q2_0_ref, _nvfp4_ref), decoded;
    it heeds no importance. Its halves are rounded by NumPy."""
    blocks = values.reshape(-1, get_codec(kind).block_elements)
    if kind == "Q1_0":
        d = np.abs(blocks).mean(axis=1, keepdims=True).astype(np.float16).astype(np.float32)
        return np.asarray(np.where(blocks >= 0, d, -d).reshape(values.shape), np.float32)
    if kind == "Q2_0":
        peak = np.abs(blocks).max(axis=1, keepdims=True)
        ratio = np.divide(blocks, peak, out=np.zeros_like(blocks), where=peak > 0)
        levels = np.clip(np.trunc(ratio + np.copysign(np.float32(0.5), ratio)), -1, 2)
        halves = peak.astype(np.float16).astype(np.float32)
        return np.asarray((levels * halves).reshape(values.shape), np.float32)
    runs = values.reshape(-1, 16)
    wanted = np.abs(runs).max(axis=1, keepdims=True) / np.float32(12)
    nearest = np.abs(E4M3_HALVED[:127] - wanted).argmin(axis=1)
    scaled = E4M3_HALVED[nearest][:, None, None] * E2M1_DOUBLED
    chosen = np.abs(scaled - runs[:, :, None]).argmin(axis=2)
    return np.take_along_axis(scaled[:, 0], chosen, axis=1).reshape(values.shape)


@pytest.mark.proves("made", "ggml's error of the same values", of="kind")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_not_above_those_of_ggml(kind: str, shape: str) -> None:
    for scale in (0.02, 1.0):
        values = values_of(shape, 16, 256, scale)
        weights = importance_of(256) + np.float32(1e-3)
        off = (ggml_values(kind, values).astype(np.float64) - values) ** 2
        for importance in (None, weights):
            spread = np.ones_like(values) if importance is None else importance
            theirs = float((spread * off).sum())
            ours = float(error_of(kind, values, importance).sum())
            # Rounding of d to a half, which either may win by.
            assert ours <= theirs * (1 + 1e-5) + 1e-12, (scale, ours, theirs)


def test_no_scale_explains_more_than_that_of_two_bits() -> None:
    values = np.concatenate([values_of("heavy", 4, 64), values_of("negative", 2, 64)])
    weights = importance_of(64) + np.float32(1e-3)
    found = error_of("Q2_0", values, weights)
    for block, error in zip(values, found, strict=True):
        peak = float(np.abs(block).max())
        tried = np.linspace(-2 * peak, 2 * peak, 4001)
        tried = tried[tried != 0][:, None]
        levels = np.clip(np.rint(block / tried), -1, 2)
        least = (weights * (levels * tried - block) ** 2).sum(axis=1).min()
        # d is a half: off by at most 2^-11 of itself.
        assert error <= least * (1 + 1e-4)


def test_no_scale_explains_more_than_that_of_one_bit() -> None:
    values, weights = values_of("heavy", 4, 128), importance_of(128) + np.float32(1e-3)
    found = error_of("Q1_0", values, weights)
    for block, error in zip(values, found, strict=True):
        tried = np.linspace(0, float(np.abs(block).max()), 4001)[:, None]
        least = (weights * (tried - np.abs(block)) ** 2).sum(axis=1).min()
        assert error <= least * (1 + 1e-4)


@pytest.mark.parametrize("scale", [0.02, 1.0, 300.0])
def test_no_scale_of_e4m3_does_better(scale: float) -> None:
    values, weights = values_of("heavy", 8, 64, scale), importance_of(64) + np.float32(1e-3)
    values = np.clip(values, -2600, 2600)
    found = error_of("NVFP4", values, weights)
    units = E4M3_HALVED[:127][:, None, None, None]
    runs = values.reshape(-1, 16)
    off = np.abs(units * E2M1_DOUBLED - runs[:, :, None].astype(np.float64)).min(axis=3)
    least = (np.tile(weights.reshape(4, 16), (8, 1)) * off**2).sum(axis=2).min(axis=0)
    np.testing.assert_allclose(found, least.reshape(8, 4).sum(axis=1), rtol=1e-6)


def weights_like(values: Floats) -> list[Floats | None]:
    """None, some importance, and that with blocks of which nothing counts."""
    weights = np.broadcast_to(importance_of(values.shape[1]), values.shape).copy()
    sparse = weights.copy()
    sparse[::2] = 0
    sparse[1:, ::3] = 0
    return [None, weights, sparse]


@pytest.mark.proves("made", "its definition in NumPy, every bit", kinds=("NVFP4",))
@pytest.mark.parametrize("shape", SHAPES)
def test_native_nvfp4_gives_the_bits_of_its_definition(shape: str) -> None:
    for scale in (1e-4, 0.02, 300.0):
        values = np.clip(values_of(shape, 65, 16, scale), -2600, 2600)
        for weights in weights_like(values):
            scales, codes = np.empty(65, np.uint8), np.empty((65, 16), np.uint8)
            _search.nvfp4(values, weights, E4M3_HALVED[:127], scales, codes)
            for got, want in zip((scales, codes), find_nvfp4(values, weights), strict=True):
                assert np.array_equal(got, want)


@pytest.mark.proves("made", "its definition in NumPy, every bit", kinds=("Q2_0",))
@pytest.mark.parametrize("shape", SHAPES)
def test_native_q2_0_gives_the_bits_of_its_definition(shape: str) -> None:
    for scale in (1e-4, 0.02, 300.0):
        values = values_of(shape, 33, 64, scale)
        for weights in weights_like(values):
            found = np.empty(33, np.float32)
            _search.q2_0(values, weights, found)
            assert np.array_equal(found, find_q2_0(values, weights))


def test_arrays_of_other_shapes_are_refused() -> None:
    values, codes = np.zeros((2, 16), np.float32), np.empty((2, 16), np.uint8)
    units = E4M3_HALVED[:127]
    with pytest.raises(ValueError, match="units"):
        _search.nvfp4(values, None, units[:126], np.empty(2, np.uint8), codes)
    with pytest.raises(ValueError, match="scales"):
        _search.nvfp4(values, None, units, np.empty(3, np.uint8), codes)
    with pytest.raises(ValueError, match="values"):
        _search.q2_0(values, None, np.empty(2, np.float32))


@pytest.mark.proves("elsewhere", "gguf-py", of="kind")
@pytest.mark.parametrize("kind", ["NVFP4"])
def test_gguf_py_reads_what_is_encoded(kind: str) -> None:
    codec, values = get_codec(kind), values_of("heavy", 6, 512)
    stored = codec.encode(values, importance_of(512))
    read = gguf.dequantize(stored, gguf.GGMLQuantizationType[kind])
    assert np.array_equal(codec.decode(stored), read)


@pytest.mark.parametrize("kind", KINDS)
def test_importance_moves_the_error_to_what_matters_less(kind: str) -> None:
    values, importance = values_of("normal", 8, 512, 1.0), importance_of(512)
    codec = get_codec(kind)

    def error(stored: npt.NDArray[np.uint8]) -> float:
        return float((importance * (codec.decode(stored) - values) ** 2).sum())

    assert error(codec.encode(values, importance)) < error(codec.encode(values))
    none = codec.encode(values, np.zeros(512, np.float32))
    assert np.array_equal(none, codec.encode(values))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e9])
def test_values_that_cannot_be_held_are_refused(kind: str, value: float) -> None:
    values = values_of("normal", 2, 256)
    values[1, 77] = value
    with pytest.raises(CheckpointError, match=f"cannot be {kind}: values must be finite"):
        get_codec(kind).encode(values)


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_stay_zeros(kind: str) -> None:
    codec = get_codec(kind)
    assert not codec.decode(codec.encode(np.zeros((2, 256), np.float32))).any()
