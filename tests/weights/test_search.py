"""The search for scales: native and NumPy give the same bits, and errors stay below ggml's."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from headrace.errors import CheckpointError
from headrace.weights.codecs import get_codec
from headrace.weights.codecs._search import levels
from headrace.weights.codecs.search import SEARCHED, search
from headrace.weights.codecs.search_definition import find

KINDS = tuple(SEARCHED)
Floats = npt.NDArray[np.float32]


def values_of(shape: str, rows: int, width: int, scale: float = 0.02) -> Floats:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((rows, width)).astype(np.float32)
    if shape == "heavy":
        x = rng.standard_t(3, (rows, width)).astype(np.float32)
    elif shape == "positive":
        x = np.abs(x)
    elif shape == "negative":
        x = -np.abs(x)
    elif shape == "grid":
        x = np.round(x * 4) / 4
    elif shape == "sparse":
        x[:, ::3] = 0
        x[0] = 0
    elif shape == "constant":
        x[:] = -1
    return (x * np.float32(scale)).astype(np.float32)


def importance_of(width: int) -> Floats:
    return np.random.default_rng(8).standard_normal(width, np.float32) ** 2


def assert_same(kind: str, values: Floats, weights: Floats | None) -> None:
    expected = find(kind, values, weights)
    for level in levels():
        for name, want, got in zip(
            expected._fields, expected, search(kind, values, weights, level), strict=True
        ):
            assert np.array_equal(want, got), f"{name} at {level}"


@pytest.mark.proves("made", "its definition in NumPy, every bit", of="kind")
@pytest.mark.parametrize("kind", KINDS)
def test_native_and_definition_give_the_same_bits(kind: str) -> None:
    elements = SEARCHED[kind].elements
    for rows in (1, 5):
        values = values_of("normal", rows, elements)
        assert_same(kind, values, None)
        assert_same(kind, values, np.broadcast_to(importance_of(elements), values.shape).copy())


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "shape", ["normal", "heavy", "positive", "negative", "grid", "sparse", "constant"]
)
def test_native_and_definition_give_the_same_bits_of_odd_values(kind: str, shape: str) -> None:
    elements = SEARCHED[kind].elements
    for scale in (1e-20, 1e-9, 1e-5, 1.0, 1e6):
        values = values_of(shape, 19, elements, scale)
        assert_same(kind, values, None)
        assert_same(kind, values, np.abs(values_of("heavy", 19, elements, 1.0)) + np.float32(1e-6))


@pytest.mark.proves("elsewhere", "gguf-py", of="kind")
@pytest.mark.parametrize("kind", KINDS)
def test_gguf_py_reads_what_is_encoded(kind: str) -> None:
    codec, values = get_codec(kind), values_of("heavy", 6, 512)
    stored = codec.encode(values, importance_of(512))
    read = gguf.dequantize(stored, gguf.GGMLQuantizationType[kind])
    assert np.array_equal(codec.decode(stored), read)


# Relative errors of standard normal values, beyond which a change has made the search worse.
ERRORS = {
    "Q2_K": 0.270, "Q3_K": 0.148, "Q4_K": 0.072, "Q5_K": 0.0355, "Q6_K": 0.0174, "IQ4_NL": 0.0755,
    "IQ4_XS": 0.0765,
}  # fmt: skip


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_of_normal_values_stay_as_small(kind: str) -> None:
    values = values_of("normal", 32, 1024)
    off = get_codec(kind).decode(get_codec(kind).encode(values)) - values
    assert np.sqrt((off**2).sum() / (values**2).sum()) < ERRORS[kind]


# Of IQ4_XS no bytes of ggml's are recorded; it is held by ERRORS.
@pytest.mark.proves("made", "ggml's error of the same values", of="kind")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "IQ4_XS"])
def test_errors_are_not_above_those_of_ggml(shared_assets: Path, kind: str) -> None:
    folder = shared_assets / "quant-groundtruth" / "ggml_quants"
    codec = get_codec(kind)
    width = 64 if codec.block_elements == 32 else 512
    stem = f"{kind.lower()}_{width}"
    for variant in ("im",) if kind in ("Q4_0", "Q5_0", "Q4_1", "Q5_1") else ("im", "noim"):
        values = np.fromfile(folder / f"{stem}_{variant}_input.bin", np.float32)
        theirs = np.fromfile(folder / f"{stem}_{variant}_expected.bin", np.uint8)
        weights = mulberry_importance(width) if variant == "im" else np.ones(width, np.float32)
        values = values.reshape(-1, width)
        ours = codec.encode(values, weights if variant == "im" else None)
        errors = [
            float((weights * (codec.decode(stored.reshape(len(values), -1)) - values) ** 2).sum())
            for stored in (ours, theirs)
        ]
        assert errors[0] <= 1.02**2 * errors[1], (variant, errors)


def mulberry_importance(width: int) -> Floats:
    """The importance the recorded bytes were made with (the README beside them)."""
    state, mask = 2, 0xFFFFFFFF
    out = []
    for _ in range(width):
        state = (state + 0x6D2B79F5) & mask
        t = ((state ^ (state >> 15)) * (state | 1)) & mask
        t ^= (t + (((t ^ (t >> 7)) * (t | 61)) & mask)) & mask
        number = (t ^ (t >> 14)) / 2**32 * 2 - 1
        out.append(abs(number) + 1e-3)
    return np.array(out, np.float32)


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K", "Q4_1", "Q5_1"])
def test_values_far_from_zero_are_told_apart_as_well(kind: str) -> None:
    codec, values = get_codec(kind), values_of("normal", 4, 256, 0.01) - np.float32(1)
    off = codec.decode(codec.encode(values, np.ones(256, np.float32))) - values
    # A step is about a fifteenth or a thirty-first of six deviations; dmin has six bits in K kinds.
    assert np.abs(off).max() < (0.02 if kind.endswith("K") else 0.004)


@pytest.mark.parametrize("kind", KINDS)
def test_importance_moves_the_error_to_what_matters_less(kind: str) -> None:
    codec, values, importance = get_codec(kind), values_of("normal", 8, 512), importance_of(512)

    def error(stored: npt.NDArray[np.uint8]) -> float:
        return float((importance * (codec.decode(stored) - values) ** 2).sum())

    assert error(codec.encode(values, importance)) < 0.9 * error(codec.encode(values))


@pytest.mark.parametrize("kind", KINDS)
def test_importance_that_is_zero_everywhere_weighs_nothing(kind: str) -> None:
    codec, values = get_codec(kind), values_of("normal", 2, 256)
    none = codec.encode(values, np.zeros(256, np.float32))
    assert np.array_equal(none, codec.encode(values, np.ones(256, np.float32)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e9])
def test_values_that_cannot_be_held_are_refused(kind: str, value: float) -> None:
    values = values_of("normal", 2, 256)
    values[1, 77] = value
    with pytest.raises(CheckpointError, match=f"cannot be {kind}: values must be finite"):
        get_codec(kind).encode(values, np.ones(256, np.float32))


def test_arrays_of_a_wrong_shape_or_type_are_refused() -> None:
    values = values_of("normal", 2, 256)
    with pytest.raises(ValueError, match="dimension 1 is 255, must be 256"):
        search("Q4_K", np.ascontiguousarray(values[:, :255]), None)
    with pytest.raises(ValueError, match="weights: dimension 0 is 1, must be 2"):
        search("Q4_K", values, values[:1].copy())
    with pytest.raises(ValueError, match="float32 array of 2 dimensions"):
        search("Q4_K", values.astype(np.float64), None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="level 'avx1024' is not available"):
        search("Q4_K", values, None, "avx1024")
