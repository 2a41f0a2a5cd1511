"""What codecs decode to, against gguf-py: every bit. Encoding is in test_codecs_encode.py."""

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
from headrace.weights.codecs import (
    CODECS,
    Codec,
    codec_of_gguf_type,
    codec_of_safetensors_dtype,
    get_codec,
)
from headrace.weights.codecs.code_books import code_book
from headrace.weights.tensors.tensor import Tensor

NAMES = tuple(CODECS)
WIDTH = 512
# Every F16 that is a corner of something: zeros, subnormals, ones, the largest, infinities, NaNs.
HALVES = np.array(
    [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF,
     0x7C00, 0xFC00, 0x7C01, 0x7E00, 0xFE55],
    "<u2",
)  # fmt: skip


# What ggml.h and ggml-common.h say of a kind that gguf-py lacks: type id, values and bytes a block.
NOT_IN_GGUF_PY = {"Q2_0": (42, 64, 18)}


def library_type(name: str) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[name]


def ggml_low_bits(rows: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.float32]:
    """Q1_0 and Q2_0 value by value, as ggml-quants.c's dequantize_row_q1_0 and _q2_0 do: gguf-py
    knows one by name and neither by value."""
    out = []
    for block in rows.reshape(-1, 18):
        d = block[:2].view("<f2").astype(np.float32)[0]
        for at in range(128 // bits):
            code = int(block[2 + at * bits // 8]) >> (at * bits % 8) & (1 << bits) - 1
            out.append((d if code else -d) if bits == 1 else np.float32(code - 1) * d)
    return np.array(out, np.float32).reshape(len(rows), -1)


def library_floats(rows: npt.NDArray[np.uint8], name: str) -> npt.NDArray[np.float32]:
    with np.errstate(all="ignore"):
        if name in ("Q1_0", "Q2_0"):
            return ggml_low_bits(rows, int(name[1]))
        return np.asarray(gguf.dequantize(rows.copy(), library_type(name)), np.float32)


def assert_same_bits(codec: Codec, rows: npt.NDArray[np.uint8]) -> None:
    got, expected = codec.decode(rows), library_floats(rows, codec.name)
    assert got.dtype == np.float32 and got.shape == expected.shape
    same = got.view(np.uint32) == expected.view(np.uint32)
    if codec.block_elements > 1:
        # Infinity times 0, or NaN times a quant: which NaN comes out is the processor's choice.
        same |= np.isnan(got) & np.isnan(expected)
    assert same.all(), f"{np.count_nonzero(~same)} of {same.size} values differ"


@pytest.mark.parametrize("name", NAMES)
def test_facts_match_gguf_py(name: str) -> None:
    codec = get_codec(name)
    if name in NOT_IN_GGUF_PY:
        type_id, elements, n_bytes = NOT_IN_GGUF_PY[name]
        assert name not in gguf.GGMLQuantizationType.__members__
    else:
        type_id = library_type(name).value
        elements, n_bytes = gguf.GGML_QUANT_SIZES[library_type(name)]
    assert (codec.block_elements, codec.block_bytes) == (elements, n_bytes)
    assert codec.gguf_type == type_id
    assert codec.bits_per_weight == 8 * n_bytes / elements
    assert codec_of_gguf_type(codec.gguf_type) is codec
    assert codec.row_bytes(WIDTH) == WIDTH // elements * n_bytes


@pytest.mark.proves(
    "read", "gguf-py, every bit", of="name",
    but=dict.fromkeys(("Q1_0", "Q2_0"), "what ggml's C code does, value by value"),
)  # fmt: skip
@pytest.mark.parametrize("name", NAMES)
def test_many_random_blocks_decode_as_gguf_py(name: str) -> None:
    codec = get_codec(name)
    rng = np.random.default_rng(len(name) + codec.gguf_type)
    rows = 100 if name in ("Q1_0", "Q2_0") else 2000  # whose reference goes value by value
    assert_same_bits(codec, rng.integers(0, 256, (rows, codec.row_bytes(WIDTH)), np.uint8))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_random_bits_decode_as_gguf_py(name: str, data: st.DataObject) -> None:
    """Any bytes at all: NaN payloads, infinities, subnormals, negative zero."""
    codec = get_codec(name)
    assert_same_bits(codec, data.draw(hnp.arrays(np.uint8, (2, codec.row_bytes(WIDTH)))))


@pytest.mark.parametrize("name", [name for name in NAMES if CODECS[name].block_elements > 1])
def test_every_byte_of_every_field_decodes_as_gguf_py(name: str) -> None:
    """Each byte of a block through its 256 values, and each F16 through its corners."""
    codec = get_codec(name)
    rng = np.random.default_rng(3)
    base = random_rows(codec, rng, 1, codec.block_elements, 1.0)
    for at in range(codec.block_bytes):
        rows = np.repeat(base, 256, axis=0)
        rows[:, at] = np.arange(256)
        assert_same_bits(codec, rows)
    halves = [key for key in codec.layout.names or () if codec.layout[key] == np.dtype("<f2")]
    for key in halves:
        rows = random_rows(codec, rng, len(HALVES), codec.block_elements, 1.0)
        rows.view(codec.layout)[key][:, 0] = HALVES.view("<f2")
        assert_same_bits(codec, rows)


@pytest.mark.parametrize("name", ["IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"])
def test_code_books_are_gguf_pys(name: str) -> None:
    """Every point of a book, in order; IQ1_M has that of IQ1_S."""
    kind = getattr(gguf.quants, name)
    kind.init_grid()
    points = kind.grid.reshape(kind.grid_shape)
    assert np.array_equal(np.array(kind.grid_map)[code_book(name)], points)


@pytest.mark.parametrize("name", NAMES)
def test_long_rows_decode_as_short_ones(name: str) -> None:
    """Decoding works in slices; no seam shows."""
    codec = get_codec(name)
    rows = random_rows(codec, np.random.default_rng(5), 3, 3 << 17, 0.02)
    step = codec.row_bytes(4096)
    pieces = [codec.decode(rows[:, at : at + step]) for at in range(0, rows.shape[1], step)]
    assert np.array_equal(codec.decode(rows), np.concatenate(pieces, axis=1))


@pytest.mark.parametrize("name", NAMES)
def test_random_rows_have_the_deviation_asked_for(name: str) -> None:
    codec = get_codec(name)
    values = codec.decode(random_rows(codec, np.random.default_rng(9), 64, 4096, 0.03))
    assert np.isfinite(values).all()
    low, high = (0.6, 1.6) if name == "MXFP4" else (0.93, 1.07)
    assert low < values.std() / 0.03 < high
    assert abs(values.mean()) < 0.003


@pytest.mark.parametrize("name", NAMES)
def test_tensors_of_every_codec_give_values_and_ordered_rows(name: str) -> None:
    codec = get_codec(name)
    rows = random_rows(codec, np.random.default_rng(2), 6, WIDTH, 1.0)
    tensor = Tensor("t", (6, WIDTH), codec, rows)
    values = codec.decode(rows)
    assert np.array_equal(tensor.to_f32(), values)
    order = np.array([5, 0, 3], np.int32)
    chosen = tensor.select_rows(order)
    assert chosen.shape == (3, WIDTH)
    assert np.array_equal(chosen.to_f32(), values[order])


@pytest.mark.parametrize(
    "name", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
)
@pytest.mark.parametrize("variant", ["im", "noim"])
def test_blocks_that_ggml_made_decode_to_what_it_was_given(
    shared_assets: Path, name: str, variant: str
) -> None:
    """Blocks of uniform values in -1..1: the mean error is that of the kind's steps."""
    codec = get_codec(name)
    width = 512 if codec.block_elements == 256 else 64
    stem = shared_assets / "quant-groundtruth" / "ggml_quants" / f"{name.lower()}_{width}_{variant}"
    values = np.fromfile(f"{stem}_input.bin", "<f4")
    rows = np.fromfile(f"{stem}_expected.bin", np.uint8).reshape(2, codec.row_bytes(width))
    assert_same_bits(codec, rows)
    error = codec.decode(rows).reshape(-1) - values
    levels = 1 << int(name[2] if name.startswith("I") else name[1])
    # A uniform step of 2 / levels has an error of step / sqrt(12); scales cost up to as much again.
    assert np.sqrt(np.mean(error**2)) < 2 * (2 / levels) / 12**0.5


@pytest.mark.parametrize("name", NAMES)
def test_decode_gives_a_fresh_writable_array(name: str) -> None:
    codec = get_codec(name)
    rows = random_rows(codec, np.random.default_rng(0), 2, WIDTH, 1.0)
    rows.flags.writeable = False
    out = codec.decode(rows)
    before = out.copy()
    out[:] = 0
    assert np.array_equal(codec.decode(rows), before) and before.any()


@pytest.mark.parametrize("name", NAMES)
def test_decode_takes_rows_with_gaps_and_odd_addresses(name: str) -> None:
    codec = get_codec(name)
    rows = random_rows(codec, np.random.default_rng(0), 8, WIDTH, 1.0)
    values = codec.decode(rows)
    raw = np.zeros(rows.size + 1, np.uint8)
    raw[1:] = rows.reshape(-1)
    assert np.array_equal(codec.decode(raw[1:]), values.reshape(-1))
    assert np.array_equal(codec.decode(rows[::2]), values[::2])
    assert codec.decode(rows[:0]).shape == (0, WIDTH)


def test_errors_name_width_block_and_value() -> None:
    with pytest.raises(CheckpointError, match=r"width 172 .* Q8_0.* block size 32"):
        get_codec("Q8_0").row_bytes(172)
    with pytest.raises(CheckpointError, match=r"width 128 .* Q4_K.* block size 256"):
        get_codec("Q4_K").row_bytes(128)
    with pytest.raises(CheckpointError, match="multiple of its block of 34 bytes"):
        get_codec("Q8_0").decode(np.zeros((2, 35), np.uint8))
    with pytest.raises(CheckpointError, match="'Q5_X' is not supported; supported: F32, F16"):
        get_codec("Q5_X")
    with pytest.raises(CheckpointError, match=r"15 \(Q8_K\) is not supported"):
        codec_of_gguf_type(15)
    with pytest.raises(CheckpointError, match="999 is unknown"):
        codec_of_gguf_type(999)
    with pytest.raises(CheckpointError, match="'I64' is not supported"):
        codec_of_safetensors_dtype("I64")
