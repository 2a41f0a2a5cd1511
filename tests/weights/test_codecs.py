"""Codecs against gguf-py and against bytes ggml itself wrote: every bit."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headrace.errors import CheckpointError
from headrace.weights.codecs import (
    CODECS,
    codec_of_gguf_type,
    codec_of_safetensors_dtype,
    get_codec,
)

NAMES = tuple(CODECS)
SPECIAL = np.array(
    [0.0, -0.0, 1e-45, -1e-45, 1.17e-38, 5.96e-8, 2.98e-8, 6.1e-5, 65504.0, -65504.0, 0.5, -0.5,
     1.5, 2.5, 0.49999997, 1.0, 127.0, -127.0, 3.4e38, 1e-30, 63.5, -63.5],
    np.float32,
)  # fmt: skip


def library_type(name: str) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[name]


def library_bytes(values: np.ndarray, name: str) -> np.ndarray:
    return np.ascontiguousarray(gguf.quantize(values, library_type(name))).view(np.uint8)


def library_floats(rows: np.ndarray, name: str) -> np.ndarray:
    return np.asarray(gguf.dequantize(rows, library_type(name)), np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_facts_match_gguf_py(name: str) -> None:
    codec = get_codec(name)
    elements, n_bytes = gguf.GGML_QUANT_SIZES[library_type(name)]
    assert (codec.block_elements, codec.block_bytes) == (elements, n_bytes)
    assert codec.gguf_type == library_type(name).value
    assert codec.bits_per_weight == 8 * n_bytes / elements
    assert codec_of_gguf_type(codec.gguf_type) is codec
    assert codec.row_bytes(64) == 64 // elements * n_bytes


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_bits_decode_as_gguf_py(name: str, data: st.DataObject) -> None:
    """Any bytes at all: NaN payloads, infinities, subnormals, negative zero."""
    codec = get_codec(name)
    rows = data.draw(hnp.arrays(np.uint8, (3, codec.row_bytes(64))))
    with np.errstate(invalid="ignore"):
        expected = library_floats(rows.copy(), name)
    got = codec.decode(rows)
    assert got.dtype == np.float32 and got.shape == (3, 64)
    # An infinite or NaN scale times a quant: which NaN comes out is the processor's choice.
    both_nan = np.isnan(got) & np.isnan(expected)
    same = got.view(np.uint32) == expected.view(np.uint32)
    assert (same | (both_nan if name == "Q8_0" else False)).all()


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_values_encode_as_gguf_py(name: str, data: st.DataObject) -> None:
    finite = name in ("F16", "Q8_0")
    limit = {"F16": 65504.0, "Q8_0": 8e6}.get(name)
    numbers = st.floats(
        width=32, allow_nan=not finite, allow_infinity=not finite,
        min_value=None if limit is None else -limit, max_value=limit,
    )  # fmt: skip
    special = st.sampled_from([float(v) for v in SPECIAL if limit is None or abs(v) <= limit])
    values = data.draw(hnp.arrays(np.float32, (2, 64), elements=numbers | special))
    got = get_codec(name).encode(values)
    if name == "Q8_0":
        # Where 1 / scale overflows gguf-py multiplies by infinity and casts the result to int8,
        # which is undefined; here those blocks are zeros, which they decode to in either case.
        with np.errstate(divide="ignore", over="ignore"):
            peak = np.abs(values.reshape(-1, 32)).max(axis=1)
            sane = (peak == 0) | np.isfinite(np.float32(1) / (peak / np.float32(127)))
        blocks = got.reshape(-1, 34)
        assert not blocks[~sane].any()
        with np.errstate(all="ignore"):
            expected = library_bytes(values, name).reshape(-1, 34)
        assert np.array_equal(blocks[sane], expected[sane])
    else:
        assert np.array_equal(got, library_bytes(values.copy(), name))


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


@pytest.mark.parametrize("name", NAMES)
def test_encoding_what_was_decoded_changes_nothing(name: str) -> None:
    codec = get_codec(name)
    rows = codec.encode(np.random.default_rng(0).standard_normal((50, 96), np.float32))
    assert np.array_equal(codec.encode(codec.decode(rows)), rows)


def test_long_input_is_cut_into_slices_without_a_seam() -> None:
    values = np.random.default_rng(1).standard_normal((9, 1 << 16), np.float32)
    for name in NAMES:
        assert np.array_equal(get_codec(name).encode(values), library_bytes(values, name))


def test_q8_0_gives_the_bytes_ggml_gives(shared_assets: Path) -> None:
    folder = shared_assets / "quant-groundtruth" / "ggml_quants"
    for variant in ("im", "noim"):
        values = np.fromfile(folder / f"q8_0_64_{variant}_input.bin", "<f4").reshape(2, 64)
        expected = np.fromfile(folder / f"q8_0_64_{variant}_expected.bin", np.uint8)
        codec = get_codec("Q8_0")
        assert np.array_equal(codec.encode(values).reshape(-1), expected)
        decoded = codec.decode(expected.reshape(2, -1))
        # Half a step from rounding, and 127 steps of a scale that F16 rounds to 11 bits.
        step = np.abs(values).max() / 127
        assert np.abs(decoded - values).max() <= step * (0.5 + 127 / 2048)


@pytest.mark.parametrize("name", NAMES)
def test_decode_gives_a_fresh_writable_array(name: str) -> None:
    codec = get_codec(name)
    rows = codec.encode(np.ones((2, 64), np.float32))
    rows.flags.writeable = False
    out = codec.decode(rows)
    before = out.copy()
    out[:] = 0
    assert np.array_equal(codec.decode(rows), before) and before.all()


def test_decode_takes_rows_with_gaps_and_odd_addresses() -> None:
    codec = get_codec("F32")
    raw = np.zeros(4 * 64 + 1, np.uint8)
    raw[1:] = codec.encode(np.arange(64, dtype=np.float32))
    assert np.array_equal(codec.decode(raw[1:]), np.arange(64))
    rows = codec.encode(np.arange(64, dtype=np.float32).reshape(8, 8))
    assert np.array_equal(codec.decode(rows[::2]), np.arange(64).reshape(8, 8)[::2])


def test_errors_name_width_block_and_value() -> None:
    with pytest.raises(CheckpointError, match=r"width 172 .* Q8_0.* block size 32"):
        get_codec("Q8_0").row_bytes(172)
    with pytest.raises(CheckpointError, match="multiple of its block of 34 bytes"):
        get_codec("Q8_0").decode(np.zeros((2, 35), np.uint8))
    with pytest.raises(CheckpointError, match="70000 cannot be F16: its limit is 65504"):
        get_codec("F16").encode(np.full(4, 7e4, np.float32))
    for bad in (np.nan, np.inf, 1e7):
        values = np.ones(32, np.float32)
        values[3] = bad
        with pytest.raises(CheckpointError, match="cannot be Q8_0"):
            get_codec("Q8_0").encode(values)
    with pytest.raises(CheckpointError, match="'Q5_X' is not supported; supported: F32, F16"):
        get_codec("Q5_X")
    with pytest.raises(CheckpointError, match=r"12 \(Q4_K\) is not supported"):
        codec_of_gguf_type(12)
    with pytest.raises(CheckpointError, match="999 is unknown"):
        codec_of_gguf_type(999)
    with pytest.raises(CheckpointError, match="'I64' is not supported"):
        codec_of_safetensors_dtype("I64")
