"""The GGUF reader against files gguf-py wrote, and against damaged headers made by hand."""

from __future__ import annotations

import struct
from array import array
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from headrace.errors import CheckpointError
from headrace.weights.gguf import _strings
from headrace.weights.gguf.file import MAX_ARRAY_DEPTH, read_gguf
from headrace.weights.gguf.values import StringArray

from .builders import hf_arrays, write_gguf_with_library

STRING, ARRAY, UINT8, UINT32, BOOL = 8, 9, 0, 4, 7


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str | bytes, kind: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + payload


def tensor_info(
    name: str, sizes: tuple[int, ...] = (4,), kind: int = 0, offset: int = 0, n: int | None = None
) -> bytes:
    dims = struct.pack(f"<I{len(sizes)}Q", len(sizes) if n is None else n, *sizes)
    return text(name) + dims + struct.pack("<IQ", kind, offset)


def file_of(
    path: Path,
    entries: list[bytes] | None = None,
    tensors: list[bytes] | None = None,
    data: bytes = bytes(64),
    *,
    version: int = 3,
    n_tensors: int | None = None,
    n_entries: int | None = None,
    alignment: int = 32,
) -> Path:
    entries, tensors = entries or [], tensors or []
    raw = b"GGUF" + struct.pack(
        "<IQQ",
        version,
        len(tensors) if n_tensors is None else n_tensors,
        len(entries) if n_entries is None else n_entries,
    )
    raw += b"".join(entries) + b"".join(tensors)
    raw += bytes(-len(raw) % alignment) + data
    path.write_bytes(raw)
    return path


def refused(path: Path, pattern: str) -> None:
    with pytest.raises(CheckpointError, match=pattern) as caught:
        read_gguf(path)
    assert str(path) in str(caught.value)


def test_reads_what_gguf_py_writes(tmp_path: Path) -> None:
    arrays = hf_arrays()
    path = write_gguf_with_library(tmp_path / "m.gguf", arrays)
    file = read_gguf(path)
    library = gguf.GGUFReader(path)
    assert file.version == 3
    for key, value in library.fields.items():
        if not key.startswith("GGUF."):
            got = file.metadata[key]
            assert (got.tolist() if isinstance(got, np.ndarray) else got) == value.contents()
    assert list(file.tensors) == [tensor.name for tensor in library.tensors]
    for tensor in library.tensors:
        got = file.tensors[tensor.name]
        assert got.shape == tuple(int(size) for size in reversed(tensor.shape))
        assert np.array_equal(got.to_f32(), tensor.data)


def test_every_value_type(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    expected: dict[str, Any] = {}
    for kind, value in (
        ("uint8", 255), ("int8", -128), ("uint16", 65535), ("int16", -32768), ("uint32", 2**32 - 1),
        ("int32", -(2**31)), ("uint64", 2**64 - 1), ("int64", -(2**63)), ("float32", 0.25),
        ("float64", 0.1), ("bool", True), ("string", "zwölf ▁"),
    ):  # fmt: skip
        getattr(writer, f"add_{kind}")(f"x.{kind}", value)
        expected[f"x.{kind}"] = value
    writer.add_array("x.ints", [1, -2, 3])
    writer.add_array("x.floats", [0.5, 1.5])
    writer.add_array("x.bools", [True, False])
    writer.add_array("x.strings", ["", "ä", "c"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata = read_gguf(path).metadata
    assert {key: metadata[key] for key in expected} == expected
    assert type(metadata["x.bool"]) is bool
    assert metadata["x.ints"].tolist() == [1, -2, 3]
    assert metadata["x.floats"].tolist() == [0.5, 1.5]
    assert metadata["x.bools"].tolist() == [True, False]
    assert metadata["x.strings"] == ["", "ä", "c"]


def test_nested_arrays_become_lists(tmp_path: Path) -> None:
    inner = struct.pack("<IQ", UINT8, 2) + b"\x01\x02"
    strings = struct.pack("<IQ", STRING, 1) + text("x")
    payload = struct.pack("<IQ", ARRAY, 2) + inner + strings
    file = read_gguf(file_of(tmp_path / "m.gguf", [entry("n", ARRAY, payload)]))
    assert [list(part) for part in file.metadata["n"]] == [[1, 2], ["x"]]


def test_version_2_is_read(tmp_path: Path) -> None:
    assert read_gguf(file_of(tmp_path / "m.gguf", version=2)).version == 2


def test_stated_alignment_is_used(tmp_path: Path) -> None:
    entries = [entry("general.alignment", UINT32, struct.pack("<I", 64))]
    tensors = [tensor_info("a", (4,)), tensor_info("b", (4,), offset=64)]
    data = np.arange(32, dtype="<f4").tobytes()
    path = file_of(tmp_path / "m.gguf", entries, tensors, data, alignment=64)
    assert read_gguf(path).tensors["b"].to_f32().tolist() == [16, 17, 18, 19]


def test_strings_are_decoded_on_first_use_only(tmp_path: Path) -> None:
    payload = struct.pack("<IQ", STRING, 2) + text("ok") + text(b"\xff")
    metadata = read_gguf(file_of(tmp_path / "m.gguf", [entry("k", ARRAY, payload)])).metadata
    assert metadata.length("k") == 2
    lazy = metadata.typed("k").value
    assert isinstance(lazy, StringArray) and lazy[0] == "ok" and lazy[:1] == ["ok"]
    with pytest.raises(CheckpointError, match="'k' holds a string that is not UTF-8"):
        metadata["k"]


def test_string_arrays_behave_as_sequences(tmp_path: Path) -> None:
    words = ["", "a", "▁bc", "😀"]
    payload = struct.pack("<IQ", STRING, 4) + b"".join(text(word) for word in words)
    metadata = read_gguf(file_of(tmp_path / "m.gguf", [entry("k", ARRAY, payload)])).metadata
    lazy = metadata.typed("k").value
    assert [lazy[index] for index in range(-4, 4)] == words + words
    assert lazy[1:3] == words[1:3] and list(lazy) == words and len(lazy) == 4
    assert lazy[::-1] == words[::-1] and lazy[3:0:-2] == words[3:0:-2]
    with pytest.raises(IndexError):
        lazy[4]
    assert metadata["k"] is metadata["k"]


def test_strings_are_cut_at_their_first_space(tmp_path: Path) -> None:
    words = ["a b", "", "alone", " ", "ä b c", "▁ 😀"]
    payload = struct.pack("<IQ", STRING, len(words)) + b"".join(map(text, words))
    metadata = read_gguf(file_of(tmp_path / "m.gguf", [entry("k", ARRAY, payload)])).metadata
    assert metadata.pairs("k") == [tuple(word.split(" ", 1)) for word in words]
    payload = struct.pack("<IQ", STRING, 1) + text(b"a \xff")
    damaged = read_gguf(file_of(tmp_path / "n.gguf", [entry("k", ARRAY, payload)])).metadata
    with pytest.raises(CheckpointError, match="'k' holds a string that is not UTF-8"):
        damaged.pairs("k")


def test_strings_outside_of_the_data_are_refused() -> None:
    data = memoryview(struct.pack("<Q", 2) + b"ab" + struct.pack("<Q", 1))
    starts, ends = array("Q", [0, 0]), array("Q", [0, 0])
    assert _strings.find(data, 0, starts, ends) == (1, 10)
    assert (starts[0], ends[0]) == (8, 10)
    assert _strings.find(data, len(data), starts, ends) == (0, len(data))
    with pytest.raises(ValueError, match="at is 19, must be in the data"):
        _strings.find(data, 19, starts, ends)
    with pytest.raises(ValueError, match="ends: dimension 0 is 1, must be 2"):
        _strings.find(data, 0, starts, ends[:1])
    for start, end in ((0, 19), (2, 1), (19, 2**64 - 1)):
        for read in (_strings.decode, _strings.pairs):
            with pytest.raises(ValueError, match="string 0 does not lie in the data"):
                read(data, array("Q", [start]), array("Q", [end]))


def test_a_large_vocabulary(tmp_path: Path) -> None:
    words = [f"token{index}" for index in range(151_936)]
    payload = struct.pack("<IQ", STRING, len(words)) + b"".join(map(text, words))
    file = read_gguf(file_of(tmp_path / "m.gguf", [entry("t", ARRAY, payload)]))
    assert file.metadata.length("t") == len(words)
    assert file.metadata.typed("t").value[-1] == words[-1]
    assert file.metadata["t"] == words


def test_arrays_stay_valid_when_the_file_object_is_gone(tmp_path: Path) -> None:
    path = file_of(tmp_path / "m.gguf", [], [tensor_info("a")], np.arange(4, dtype="<f4").tobytes())
    tensor = read_gguf(path).tensors["a"]
    path.unlink()
    assert tensor.to_f32().tolist() == [0, 1, 2, 3]
    assert not tensor.data.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        tensor.data[0, 0] = 1


def test_damaged_preambles(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"")
    refused(path, "the file is empty")
    path.write_bytes(b"GGML" + bytes(20))
    refused(path, r"is not a GGUF file: it starts with b'GGML', not with b'GGUF'.*at byte 0")
    refused(file_of(path, version=1), "version is 1; supported: 2 and 3: older than August 2023")
    refused(file_of(path, version=0x03000000), "big-endian")
    refused(file_of(path, n_tensors=2**63), r"tensor_count is 9223372036854775808; the limit")
    refused(file_of(path, n_entries=2**40), r"metadata_kv_count is 1099511627776; the limit")
    with pytest.raises(CheckpointError, match="no such file"):
        read_gguf(tmp_path / "absent.gguf")
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_gguf(tmp_path)


@pytest.mark.parametrize(
    ("entries", "pattern"),
    [
        ([entry("k", 13, b"")], "'k' has value type 13; types are 0 to 12"),
        ([entry("k", UINT8, b"\1"), entry("k", UINT8, b"\1")], "'k' appears twice"),
        ([entry("k" * 60_000, 13, b"")], r"'kkk.{100,120}\.\.\. \(60002 characters\) has value"),
        ([entry("k", BOOL, b"\2")], "'k' is a bool of value 2"),
        ([entry("k", ARRAY, struct.pack("<IQ", BOOL, 1) + b"\5")], "holds a bool of value 5"),
        ([entry("k", STRING, struct.pack("<Q", 2**62))], "needs 4611686018427387904 bytes"),
        ([entry("k", STRING, text(b"\xff"))], "'k' is not UTF-8"),
        ([entry(b"\xff\xfe", UINT8, b"\1")], "key 0 of the metadata is not UTF-8"),
        ([entry("k" * 70_000, UINT8, b"\1")], "is 70000 bytes long; the limit is 65536"),
        ([entry("k", ARRAY, struct.pack("<IQ", UINT32, 2**60))], "array of 1152921504606846976"),
        ([entry("k", ARRAY, struct.pack("<IQ", STRING, 2**61))], "array of 2305843009213693952"),
        ([entry("k", ARRAY, struct.pack("<IQQ", STRING, 1, 2**63))], "runs past the end"),
        ([entry("k", ARRAY, struct.pack("<IQQ", STRING, 1, 2**64 - 8))], "runs past the end"),
        (
            [entry("k", ARRAY, struct.pack("<IQQQ", STRING, 2, 2**64 - 8, 0))],
            "string 0 of 2 .* runs",
        ),
        (
            [entry("k", ARRAY, struct.pack("<IQ", ARRAY, 1) * 9 + bytes(12))],
            f"deeper than {MAX_ARRAY_DEPTH}",
        ),
        (
            [entry("k", ARRAY, struct.pack("<IQ", ARRAY, 70_000) + bytes(12 * 70_000))],
            "more than 65536 nested arrays",
        ),
        (
            [entry("general.alignment", UINT32, struct.pack("<I", 24))],
            "'general.alignment' is 24; a power of two",
        ),
        ([entry("general.alignment", STRING, text("32"))], "a power of two is required"),
        (
            [entry("general.alignment", ARRAY, struct.pack("<IQ", UINT8, 1) + b"\1")],
            "is an array; a single value",
        ),
    ],
)
def test_damaged_metadata(tmp_path: Path, entries: list[bytes], pattern: str) -> None:
    refused(file_of(tmp_path / "m.gguf", entries), pattern)


@pytest.mark.parametrize(
    ("tensors", "pattern"),
    [
        ([tensor_info("a"), tensor_info("a", offset=32)], "tensor 'a' appears twice"),
        ([tensor_info("a" * 65)], "is 65 bytes long; the limit is 64"),
        ([tensor_info("a", n=0)], "has 0 dimensions"),
        ([tensor_info("a", (1, 1, 1, 1, 1))], "has 5 dimensions"),
        ([tensor_info("a", n=2**31)], "dimensions; 1 to 4"),
        ([tensor_info("a", (4, 0))], "each must be at least 1"),
        ([tensor_info("a", kind=15)], r"'a': tensor type 15 \(Q8_K\) is not supported"),
        ([tensor_info("a", (128,), kind=12)], "'a': a row of width 128 cannot be Q4_K"),
        ([tensor_info("a", kind=77)], "'a': tensor type 77 is unknown"),
        ([tensor_info("a", (20,), kind=8)], "'a': a row of width 20 cannot be Q8_0"),
        (
            [tensor_info("a", offset=4)],
            "offset 4; it must be a multiple of .* alignment 32",
        ),
        ([tensor_info("a", (4,), offset=64)], "'a' lies at bytes .* but the file has"),
        ([tensor_info("a", (2**62, 2**62))], "'a' lies at bytes .* cut short"),
        ([tensor_info("a", (9,)), tensor_info("b", offset=32)], "'b' .* overlaps tensor 'a'"),
        ([tensor_info("a"), tensor_info("b")], "overlaps"),
    ],
)
def test_damaged_tensor_lists(tmp_path: Path, tensors: list[bytes], pattern: str) -> None:
    refused(file_of(tmp_path / "m.gguf", [], tensors), pattern)
