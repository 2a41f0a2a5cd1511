"""Bytes that codecs make of values, against gguf-py and against bytes ggml itself wrote."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from benchmarks.random_rows import random_rows
from headrace.errors import CheckpointError
from headrace.weights.codecs import CODECS, OF_FOLDERS, get_codec
from headrace.weights.codecs.points import POINTED

FITTED = ("Q1_0", "Q2_0", "NVFP4")
SEARCHED_ALWAYS = (
    "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", *FITTED, *POINTED
)  # fmt: skip
# Kinds whose bytes follow from a formula; what is searched for is in test_search.py, test_points.py
# and test_fitted.py.
NAMES = tuple(
    name for name, codec in CODECS.items() if codec.can_encode and name not in SEARCHED_ALWAYS
)
DECODED_ONLY = tuple(name for name, codec in OF_FOLDERS.items() if not codec.can_encode)
BLOCKS = tuple(name for name in NAMES if CODECS[name].block_elements > 1)
SPECIAL = np.array(
    [0.0, -0.0, 1e-45, -1e-45, 1.17e-38, 5.96e-8, 2.98e-8, 6.1e-5, 65504.0, -65504.0, 0.5, -0.5,
     1.5, 2.5, 0.49999997, 1.0, 127.0, -127.0, 3.4e38, 1e-30, 63.5, -63.5],
    np.float32,
)  # fmt: skip
# The largest magnitude at which no scale leaves F16's range; None where there is none.
LIMITS = {
    "F16": 65504.0, "Q8_0": 8e6, "Q4_0": 5e5, "Q5_0": 1e6, "Q4_1": 65504.0, "Q5_1": 65504.0,
    "MXFP4": 3e38, "TQ1_0": 65504.0, "TQ2_0": 65504.0,
}  # fmt: skip


def library_bytes(values: npt.NDArray[np.float32], name: str) -> npt.NDArray[np.uint8]:
    with np.errstate(all="ignore"):
        stored = gguf.quantize(values.copy(), gguf.GGMLQuantizationType[name])
    return np.ascontiguousarray(stored).view(np.uint8)


def has_defined_casts(name: str, values: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Per block: whether gguf-py's result is defined (no infinite 1 / scale, no negative uint8)."""
    blocks = values.reshape(-1, get_codec(name).block_elements).astype(np.float32)
    peak = np.abs(blocks).max(axis=1)
    if name == "MXFP4":
        return (peak == 0) | (peak >= np.float32(2.0**-125))
    steps = {"Q8_0": 127, "Q4_0": 8, "Q5_0": 16, "Q4_1": 15, "Q5_1": 31, "TQ1_0": 1, "TQ2_0": 1}
    span = blocks.max(axis=1) - blocks.min(axis=1) if name.endswith("1") else peak
    with np.errstate(divide="ignore", over="ignore"):
        return (span == 0) | np.isfinite(np.float32(1) / (span / np.float32(steps[name])))


def assert_encodes_as_library(name: str, values: npt.NDArray[np.float32]) -> None:
    got, expected = get_codec(name).encode(values), library_bytes(values, name)
    if name in BLOCKS:
        sane = has_defined_casts(name, values)
        n_bytes = get_codec(name).block_bytes
        got, expected = got.reshape(-1, n_bytes)[sane], expected.reshape(-1, n_bytes)[sane]
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_values_encode_as_gguf_py(name: str, data: st.DataObject) -> None:
    check_encoding(name, data)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_more_values_encode_as_gguf_py(name: str, data: st.DataObject) -> None:
    check_encoding(name, data)


def check_encoding(name: str, data: st.DataObject) -> None:
    limit = LIMITS.get(name)
    numbers = st.floats(
        width=32, allow_nan=limit is None, allow_infinity=limit is None,
        min_value=None if limit is None else -float(np.float32(limit)),
        max_value=None if limit is None else float(np.float32(limit)),
    )  # fmt: skip
    special = st.sampled_from([float(v) for v in SPECIAL if limit is None or abs(v) <= limit])
    shape = (2, max(64, get_codec(name).block_elements))
    assert_encodes_as_library(name, data.draw(hnp.arrays(np.float32, shape, elements=numbers)))
    mixed = data.draw(hnp.arrays(np.float32, shape, elements=numbers | special))
    assert_encodes_as_library(name, mixed)


@pytest.mark.proves("made", "gguf-py, every byte", of="name")
@pytest.mark.proves("elsewhere", "gguf-py", of="name")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [1e-30, 1e-7, 1e-3, 0.02, 1.0, 1e3])
def test_many_values_encode_as_gguf_py(name: str, scale: float) -> None:
    rng = np.random.default_rng(4)
    values = (rng.standard_normal((300, 256)) * scale).astype(np.float32)
    assert_encodes_as_library(name, values)
    # Values on a coarse grid, so that many fall halfway between two codes.
    assert_encodes_as_library(name, (np.round(values / scale * 8) / 8 * scale).astype(np.float32))


@pytest.mark.parametrize("name", BLOCKS)
def test_magnitudes_too_small_for_a_scale_decode_to_almost_nothing(name: str) -> None:
    values = np.full((1, get_codec(name).block_elements), 1e-44, np.float32)
    values[0, ::2] *= -1
    decoded = get_codec(name).decode(get_codec(name).encode(values))
    assert np.abs(decoded).max() < 1e-37


def test_long_input_is_cut_into_slices_without_a_seam() -> None:
    values = np.random.default_rng(1).standard_normal((9, 1 << 16), np.float32)
    for name in NAMES:
        assert np.array_equal(get_codec(name).encode(values), library_bytes(values, name))


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_blocks_are_the_bytes_ggml_gives(shared_assets: Path, name: str) -> None:
    folder = shared_assets / "quant-groundtruth" / "ggml_quants"
    codec = get_codec(name)
    # With an importance matrix ggml searches for the scale, but for Q8_0 there is nothing to find.
    for variant in ("im", "noim") if name == "Q8_0" else ("noim",):
        stem = f"{name.lower()}_64_{variant}"
        values = np.fromfile(folder / f"{stem}_input.bin", "<f4").reshape(2, 64)
        expected = np.fromfile(folder / f"{stem}_expected.bin", np.uint8)
        assert np.array_equal(codec.encode(values).reshape(-1), expected)


def test_halves_round_away_from_zero_in_q8_0() -> None:
    values = np.zeros((1, 32), np.float32)
    values[0, :6] = [127, 0.5, -0.5, 1.5, -2.5, 0.49999997]
    quants = get_codec("Q8_0").encode(values)[0, 2:].view(np.int8)
    assert quants[:6].tolist() == [127, 1, -1, 2, -3, 0]


def test_bf16_rounds_to_nearest_even_and_keeps_nan() -> None:
    bits = np.array(
        [0x3F808000, 0x3F818000, 0x3F808001, 0x7F800001, 0xFFFFFFFF, 0x7F7FFFFF, 0x7F800000],
        np.uint32,
    )
    stored = get_codec("BF16").encode(bits.view(np.float32)).view(np.uint16)
    assert [hex(v) for v in stored] == [
        "0x3f80", "0x3f82", "0x3f81", "0x7fc0", "0xffff", "0x7f80", "0x7f80"
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "Q8_0"])
def test_encoding_what_was_decoded_changes_nothing(name: str) -> None:
    codec = get_codec(name)
    rows = codec.encode(np.random.default_rng(0).standard_normal((50, 96), np.float32))
    assert np.array_equal(codec.encode(codec.decode(rows)), rows)


@pytest.mark.parametrize("name", ["F16", *BLOCKS])
def test_what_a_kind_cannot_hold_is_refused(name: str) -> None:
    for bad in (np.nan, np.inf, -np.inf, 1e20):
        values = np.ones(max(32, get_codec(name).block_elements), np.float32)
        values[3] = bad
        if (name == "F16" and not np.isfinite(bad)) or (name == "MXFP4" and bad == 1e20):
            continue
        with pytest.raises(CheckpointError, match=f"cannot be {name}"):
            get_codec(name).encode(values)
    with pytest.raises(CheckpointError, match="70000 cannot be F16: its limit is 65504"):
        get_codec("F16").encode(np.full(4, 7e4, np.float32))


def test_a_span_too_wide_for_f32_is_refused() -> None:
    values = np.ones(32, np.float32)
    values[:2] = 3e38, -3e38
    with pytest.raises(CheckpointError, match="3e\\+38 cannot be Q4_1"):
        get_codec("Q4_1").encode(values)


@pytest.mark.parametrize("name", DECODED_ONLY)
def test_kinds_without_an_encoder_say_so(name: str) -> None:
    with pytest.raises(CheckpointError, match=f"{name} cannot be encoded: .* choose Q8_0"):
        OF_FOLDERS[name].encode(np.ones((1, 256), np.float32))


def test_every_kind_that_gguf_py_makes_is_made() -> None:
    made = set()
    for name in sorted(set(CODECS) & set(gguf.GGMLQuantizationType.__members__)):
        try:
            library_bytes(np.ones((1, 256), np.float32), name)
        except NotImplementedError:
            continue
        made.add(name)
    assert made == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_random_rows_survive_a_round_trip_closely(name: str) -> None:
    """Encoding what random bits decode to stays within a step of the largest value."""
    codec = get_codec(name)
    rows = random_rows(codec, np.random.default_rng(0), 4, 256, 1.0)
    if name == "TQ2_0":
        # Its fourth code, twice the scale, is in no file: an encoder takes that for the scale.
        codes = rows.view(codec.layout)["qs"]
        codes &= ~(codes >> 1 & 0x55)
    values = codec.decode(rows)
    again = codec.decode(codec.encode(values))
    assert np.abs(again - values).max() <= np.abs(values).max() / 4
