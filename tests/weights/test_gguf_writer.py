"""The GGUF writer: gguf-py and the reader here get back what was written."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from benchmarks.random_rows import random_rows
from headrace.errors import CheckpointError
from headrace.weights.codecs import CODECS, get_codec
from headrace.weights.codecs.points import POINTED
from headrace.weights.codecs.search import SEARCHED
from headrace.weights.gguf.file import read_gguf
from headrace.weights.gguf.values import Typed, ValueType
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.tensors.source import (
    PIECE_ELEMENTS,
    TensorSource,
    source_of_array,
    source_of_rows,
)

METADATA = {
    "general.architecture": "llama",
    "a.int": 7,
    "a.negative": -7,
    "a.large": 1 << 40,
    "a.float": 0.5,
    "a.flag": False,
    "a.text": "▁ä",
    "a.typed": Typed(ValueType.UINT8, 9),
    "a.strings": ["x", "", "ÿ"],
    "a.no_strings": np.array([], np.str_),
    "a.ints": [1, -2],
    "a.floats": [0.5, 2],
    "a.bools": [True, False],
    "a.array": np.array([1, 2], np.uint16),
    "a.nested": [[1, 2], ["p"]],
}


def test_gguf_py_reads_what_is_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    known = {name: CODECS[name] for name in CODECS if name in gguf.GGMLQuantizationType.__members__}
    rows = {name: random_rows(codec, rng, 5, 512, 0.1) for name, codec in known.items()}
    path = tmp_path / "m.gguf"
    size = write_gguf_file(
        path,
        {key: value for key, value in METADATA.items() if key != "a.nested"},
        [source_of_rows(rows[name], (5, 512), name, codec) for name, codec in known.items()],
    )
    assert size == path.stat().st_size
    library = gguf.GGUFReader(path)
    assert library.fields["a.strings"].contents() == ["x", "", "ÿ"]
    assert library.fields["a.typed"].types == [gguf.GGUFValueType.UINT8]
    assert library.fields["a.int"].types == [gguf.GGUFValueType.UINT32]
    assert library.fields["a.negative"].contents() == -7
    ours = read_gguf(path).tensors
    assert [tensor.name for tensor in library.tensors] == list(known)
    for tensor in library.tensors:
        assert tensor.tensor_type.name == tensor.name
        assert tensor.shape.tolist() == [512, 5]
        stored = np.ascontiguousarray(tensor.data).view(np.uint8).reshape(5, -1)
        assert np.array_equal(stored, rows[tensor.name])
        assert np.array_equal(ours[tensor.name].data, rows[tensor.name])
        if tensor.name == "Q1_0":
            continue  # gguf-py has its sizes and not its values
        assert np.array_equal(
            ours[tensor.name].to_f32(), gguf.dequantize(tensor.data, tensor.tensor_type)
        )


FITTED = ("Q1_0", "Q2_0", "NVFP4")


def test_gguf_py_reads_values_encoded_on_the_way(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    # gguf-py has no encoders of kinds whose scales or points are searched for.
    searched = {*SEARCHED, *POINTED, *FITTED} - {"Q4_0", "Q5_0", "Q4_1", "Q5_1"}
    made = {
        name: codec for name, codec in CODECS.items() if codec.can_encode and name not in searched
    }
    values = {name: rng.standard_normal((5, 256), np.float32) for name in made}
    path = tmp_path / "m.gguf"
    sources = [source_of_array(values[name], name, codec) for name, codec in made.items()]
    write_gguf_file(path, {"general.architecture": "llama"}, sources)
    for tensor in gguf.GGUFReader(path).tensors:
        expected = gguf.quantize(values[tensor.name], tensor.tensor_type)
        assert np.array_equal(np.asarray(tensor.data).view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("alignment", [8, 32, 256])
def test_the_reader_gets_back_what_was_written(tmp_path: Path, alignment: int) -> None:
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape, np.float32) for shape in ((3,), (5, 7), (2, 3, 4, 5))]
    path = tmp_path / "m.gguf"
    sources = [source_of_array(array, f"t{index}") for index, array in enumerate(values)]
    write_gguf_file(path, METADATA, sources, alignment)
    file = read_gguf(path)
    assert file.alignment == alignment
    for key, value in METADATA.items():
        got = file.metadata[key]
        expected = value.value if isinstance(value, Typed) else value
        if key == "a.nested":
            got = [list(part) for part in got]
        if isinstance(expected, (list, np.ndarray)):
            got, expected = list(got), list(expected)
        assert got == expected, key
    for index, array in enumerate(values):
        assert np.array_equal(file.tensors[f"t{index}"].to_f32(), array)


def test_reading_and_writing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"
    write_gguf_file(first, METADATA, [source_of_array(np.ones((2, 4), np.float32), "t")])
    metadata = read_gguf(first).metadata
    assert metadata["a.strings"] == ["x", "", "ÿ"]
    typed = {key: metadata.typed(key) for key in metadata}
    write_gguf_file(second, typed, [source_of_array(np.ones((2, 4), np.float32), "t")])
    assert first.read_bytes() == second.read_bytes()


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"old")
    short = TensorSource("t", (4,), get_codec("F32"), lambda: [np.zeros(8, np.uint8)])
    with pytest.raises(CheckpointError, match=r"'t' gave 8 bytes; its shape .* needs 16"):
        write_gguf_file(path, {}, [short])
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_pieces_of_a_large_tensor_have_no_seam(tmp_path: Path) -> None:
    from headrace.weights.tensors.source import source_of_tensor
    from headrace.weights.tensors.tensor import Tensor

    values = np.random.default_rng(0).standard_normal((3000, PIECE_ELEMENTS // 1000), np.float32)
    f32, q8_0 = get_codec("F32"), get_codec("Q8_0")
    width = values.shape[1] // 32 * 32
    tensor = Tensor("t", (3000, width), f32, f32.encode(values[:, :width]))
    order = np.random.default_rng(1).permutation(3000).astype(np.int32)
    source = source_of_tensor(tensor, "u", q8_0, order)
    pieces = list(source.pieces())
    assert len(pieces) > 2
    assert np.array_equal(np.concatenate(pieces), q8_0.encode(values[order, :width]))


@pytest.mark.parametrize(
    ("metadata", "pattern"),
    [
        ({"k": []}, "'k' is an empty list"),
        ({"k": [1, "a"]}, "mixes types"),
        ({"k": ["a", 1]}, "mixes str and int"),
        ({"k": [None]}, "no array type"),
        ({"k": None}, "'k' is NoneType"),
        ({"k": 1 << 64}, "64 bits"),
        ({"k": Typed(ValueType.UINT8, 256)}, "'k' is 256; it does not fit UINT8"),
        ({"k": np.zeros((2, 2))}, r"float64\[2-d\]"),
        ({"k": np.zeros(2, np.float16)}, "float16"),
        ({"k": "\ud800"}, "UTF-8"),
        ({"k": [[[[[1]]]]]}, "deeper than 4"),
        ({"k" * 70_000: 1}, "the limit is 65535"),
    ],
)
def test_metadata_gguf_cannot_hold(
    tmp_path: Path, metadata: dict[str, object], pattern: str
) -> None:
    with pytest.raises(CheckpointError, match=pattern):
        write_gguf_file(tmp_path / "m.gguf", metadata, [])
    assert not list(tmp_path.iterdir())


def test_tensors_gguf_cannot_hold(tmp_path: Path) -> None:
    def write(*sources: TensorSource, alignment: int = 32) -> None:
        write_gguf_file(tmp_path / "m.gguf", {}, sources, alignment)

    ones = np.ones(4, np.float32)
    with pytest.raises(CheckpointError, match="64 bytes long; the limit is 63"):
        write(source_of_array(ones, "n" * 64))
    with pytest.raises(CheckpointError, match="same name"):
        write(source_of_array(ones, "t"), source_of_array(ones, "t"))
    with pytest.raises(CheckpointError, match=r"shape \(1, 1, 1, 1, 4\)"):
        write(source_of_array(ones.reshape(1, 1, 1, 1, 4), "t"))
    with pytest.raises(CheckpointError, match=r"shape \(\)"):
        write(source_of_array(np.float32(1).reshape(()), "t"))
    with pytest.raises(CheckpointError, match="width 4 cannot be Q8_0"):
        write(source_of_array(ones, "t", get_codec("Q8_0")))
    with pytest.raises(CheckpointError, match="alignment is 24"):
        write(alignment=24)
    assert not list(tmp_path.iterdir())
