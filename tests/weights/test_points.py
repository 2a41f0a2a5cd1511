"""The search for points of books: native and NumPy give the same bits, and errors are small."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from headrace.errors import CheckpointError
from headrace.weights.codecs import get_codec
from headrace.weights.codecs._search import levels
from headrace.weights.codecs.code_books import code_book
from headrace.weights.codecs.codec import Bytes
from headrace.weights.codecs.points import (
    POINTED,
    PointCodes,
    Signs,
    encoded_points,
    find_points,
    search_points,
)
from headrace.weights.codecs.search import weights_of
from tests.weights.test_search import Floats, importance_of, values_of

KINDS = tuple(POINTED)


def assert_same(kind: str, values: Floats, weights: Floats | None) -> None:
    expected = find_points(kind, values, weights)
    for level in levels():
        for name, want, got in zip(
            expected._fields, expected, search_points(kind, values, weights, level), strict=True
        ):
            assert np.array_equal(want, got), f"{name} at {level}"


@pytest.mark.proves("made", "its definition in NumPy, every bit", of="kind")
@pytest.mark.parametrize("kind", KINDS)
def test_native_and_definition_give_the_same_bits(kind: str) -> None:
    values = values_of("heavy", 3, 256)
    assert_same(kind, values, np.broadcast_to(importance_of(256), values.shape).copy())


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "shape", ["normal", "heavy", "positive", "negative", "grid", "sparse", "constant"]
)
def test_native_and_definition_give_the_same_bits_of_odd_values(kind: str, shape: str) -> None:
    for scale in (1e-20, 1e-9, 1e-5, 1.0, 1e5):
        values = values_of(shape, 2, 256, scale)
        assert_same(kind, values, None)
        assert_same(kind, values, np.abs(values_of("heavy", 2, 256, 1.0)) + np.float32(1e-6))


@pytest.mark.proves("elsewhere", "gguf-py", of="kind")
@pytest.mark.parametrize("kind", KINDS)
def test_gguf_py_reads_what_is_encoded(kind: str) -> None:
    codec, values = get_codec(kind), values_of("heavy", 3, 512)
    stored = codec.encode(values, importance_of(512))
    read = gguf.dequantize(stored, gguf.GGMLQuantizationType[kind])
    assert np.array_equal(codec.decode(stored), read)


def values_of_codes(kind: str, found: PointCodes) -> Floats:
    """What the codes stand for, without the layout of a block."""
    facts = POINTED[kind]
    points = np.array(facts.levels, np.float32)[code_book(facts.book)][found.points]
    values = points.reshape(-1, 32, 8)
    if facts.signs in (Signs.EVEN, Signs.FREE):
        negative = np.unpackbits(found.signs, axis=1, bitorder="little").reshape(values.shape)
        values = np.where(negative, -values, values)
    else:
        values = values + np.where(found.signs, np.float32(-0.125), np.float32(0.125))[..., None]
    scales = found.d[:, None] * np.float32(facts.unit) * (2 * found.scales.astype(np.float32) + 1)
    groups = values.reshape(-1, facts.groups, facts.width)
    return (scales[..., None] * groups).reshape(-1, 256)


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_holds_the_codes_that_were_found(kind: str) -> None:
    codec, values = get_codec(kind), values_of("normal", 2, 256)
    decoded = codec.decode(codec.encode(values))
    found = search_points(kind, values, weights_of(values, None))
    stretched = (found.d * np.float32(POINTED[kind].stretch)).astype(np.float16)
    found = found._replace(d=stretched.astype(np.float32))
    assert np.array_equal(decoded, values_of_codes(kind, found))


@pytest.mark.parametrize("kind", [kind for kind, facts in POINTED.items() if facts.stretch > 1])
def test_stretched_values_are_less_too_small_and_their_error_little_larger(kind: str) -> None:
    values = values_of("normal", 4, 1024)
    blocks = values.reshape(-1, 256)
    best = values_of_codes(kind, search_points(kind, blocks, weights_of(blocks, None)))
    codes = encoded_points(kind, blocks, None)
    shares, errors = [], []
    for decoded in (best, values_of_codes(kind, codes)):
        of = decoded.reshape(values.shape)
        shares.append(float((of * values).sum() / (values**2).sum()))
        errors.append(float(np.sqrt(((of - values) ** 2).sum())))
    assert shares[0] < shares[1] < 1
    assert errors[1] < 1.03 * errors[0]


@pytest.mark.parametrize("kind", KINDS)
def test_points_of_the_book_are_found_again(kind: str) -> None:
    facts, rng = POINTED[kind], np.random.default_rng(3)
    even = np.array([bits for bits in range(256) if bits.bit_count() % 2 == 0], np.uint8)
    signs = rng.choice(even, (2, 32)) if facts.signs in (Signs.EVEN, Signs.FREE) else None
    found = PointCodes(
        rng.integers(0, len(code_book(facts.book)), (2, 256 // facts.length)).astype(np.uint16),
        np.ones((2, 32), np.uint8) if signs is None else signs,
        np.full((2, facts.groups), facts.codes, np.uint8),
        np.full(2, 0.25, np.float32),
    )
    values = values_of_codes(kind, found)
    # A group whose points lack the last level may be held, nearly as well, by others at another
    # scale.
    off = values_of_codes(kind, search_points(kind, values, None)) - values
    assert np.sqrt((off**2).sum() / (values**2).sum()) < 0.02


# Relative errors of standard normal values, beyond which a change has made the search worse.
ERRORS = {
    "IQ3_S": 0.165, "IQ3_XXS": 0.205, "IQ2_S": 0.31, "IQ2_XS": 0.33, "IQ2_XXS": 0.38,
    "IQ1_M": 0.47, "IQ1_S": 0.50,
}  # fmt: skip


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_of_normal_values_stay_as_small(kind: str) -> None:
    values = values_of("normal", 4, 1024)
    off = get_codec(kind).decode(get_codec(kind).encode(values)) - values
    assert np.sqrt((off**2).sum() / (values**2).sum()) < ERRORS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_importance_moves_the_error_to_what_matters_less(kind: str) -> None:
    codec, values, importance = get_codec(kind), values_of("normal", 4, 512), importance_of(512)

    def error(stored: Bytes) -> float:
        return float((importance * (codec.decode(stored) - values) ** 2).sum())

    assert error(codec.encode(values, importance)) < 0.9 * error(codec.encode(values))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e9])
def test_values_that_cannot_be_held_are_refused(kind: str, value: float) -> None:
    values = values_of("normal", 2, 256)
    values[1, 77] = value
    with pytest.raises(CheckpointError, match=f"cannot be {kind}: values must be finite"):
        get_codec(kind).encode(values)


def test_arrays_of_a_wrong_shape_are_refused() -> None:
    values = values_of("normal", 2, 256)
    with pytest.raises(ValueError, match="dimension 1 is 255, must be 256"):
        search_points("IQ3_S", np.ascontiguousarray(values[:, :255]), None)
    with pytest.raises(ValueError, match="level 'avx1024' is not available"):
        search_points("IQ3_S", values, None, "avx1024")
