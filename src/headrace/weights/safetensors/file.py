"""Reading safetensors files: a header of JSON, then the tensors, over a memory map.

The header is read here rather than by the safetensors library, because that hands out copies (and
knows BF16 only through other frameworks), while a tensor here is a view of the mapped bytes. The
rules are the library's: sizes match shapes, and the tensors cover the data without gap or overlap.
Tensors may start at any byte address: the format aligns nothing but the header.

Source: the safetensors format (README of huggingface/safetensors).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, shown
from headrace.weights.codecs import F8_E4M3, RAW, Codec, codec_of_safetensors_dtype
from headrace.weights.files.json_file import parse_json
from headrace.weights.files.mapped import map_file
from headrace.weights.model_config.no_effect import is_derived
from headrace.weights.tensors.tensor import Tensor

# The library's own limit (100 MB); the header of a model of 100 000 tensors is a tenth of it.
MAX_HEADER_BYTES = 100_000_000
MAX_DIMENSIONS = 8
_LENGTH_BYTES = 8


@dataclass(frozen=True)
class SafetensorsFile:
    """One file: its tensors in the order of their bytes, and its `__metadata__`."""

    path: Path
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]


def read_safetensors(path: Path | str, *, raw: Collection[str] = ()) -> SafetensorsFile:
    """Map `path` and read its header.

    raw: dtypes of tensors that are taken although nobody can compute with them, of `RAW`.
    Those of F8_E4M3 always are: whoever opens the folder has to find their scales.

    Raises CheckpointError naming the file, the tensor, the value and the limit where the header is
    damaged, sizes do not match, ranges overlap, or a dtype has no codec. Tensors that follow from
    the config are left out where they have none (GPT-2's mask in booleans).
    """
    path = Path(path)
    data = map_file(path)
    header, base = _read_header(path, data)
    metadata = header.pop("__metadata__", {})
    if not _is_strings(metadata):
        raise CheckpointError(f"{path}: __metadata__ must map strings to strings")
    entries = [_read_entry(path, name, entry, raw) for name, entry in header.items()]
    entries.sort(key=lambda entry: (entry[2], entry[3]))
    tensors, expected = {}, 0
    for name, tensor, begin, end in entries:
        if begin != expected:
            raise CheckpointError(
                f"{path}: tensor {shown(name)} begins at byte {begin} of the data; "
                f"{expected} is required, since tensors follow one another without gap or overlap"
            )
        if end > len(data) - base:
            raise CheckpointError(
                f"{path}: tensor {shown(name)} ends at byte {end} of the data but the file "
                f"has {len(data) - base}: it is damaged or was cut short; fetch it again"
            )
        if tensor is not None:
            tensors[name] = _with_data(tensor, data[base + begin : base + end])
        expected = end
    if expected != len(data) - base:
        raise CheckpointError(
            f"{path}: the tensors end at byte {expected} of the data but the file has "
            f"{len(data) - base}: bytes that belong to no tensor"
        )
    return SafetensorsFile(path, tensors, metadata)


def _read_header(path: Path, data: npt.NDArray[np.uint8]) -> tuple[dict[str, Any], int]:
    if len(data) < _LENGTH_BYTES:
        raise CheckpointError(f"{path}: {len(data)} bytes; a safetensors file has at least 8")
    n_bytes = int.from_bytes(data[:_LENGTH_BYTES].tobytes(), "little")
    limit = min(MAX_HEADER_BYTES, len(data) - _LENGTH_BYTES)
    if n_bytes > limit:
        raise CheckpointError(
            f"{path}: the header claims to be {n_bytes} bytes long; the limit for this file "
            f"is {limit}: it is damaged, was cut short, or is not a safetensors file"
        )
    base = _LENGTH_BYTES + n_bytes
    try:
        header = parse_json(data[_LENGTH_BYTES:base].tobytes())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: the header is not valid JSON: {error}") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{path}: the header is not a JSON object")
    return header, base


def _is_strings(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _read_entry(
    path: Path, name: str, entry: object, raw: Collection[str]
) -> tuple[str, Tensor | None, int, int]:
    """The name, the tensor without its bytes (None: left out), and where they lie."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(
            f"{path}: tensor {shown(name)} is {shown(entry)}; "
            "an object of dtype, shape and data_offsets is required"
        )
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _is_sizes(shape) or len(shape) > MAX_DIMENSIONS:
        raise CheckpointError(
            f"{path}: tensor {shown(name)} has shape {shown(shape)}; "
            f"a list of at most {MAX_DIMENSIONS} sizes is required"
        )
    if not _is_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CheckpointError(
            f"{path}: tensor {shown(name)} has data_offsets {shown(offsets)}; "
            "[begin, end] with begin <= end is required"
        )
    try:
        dtype = str(entry["dtype"])
        codec: Codec
        if dtype == F8_E4M3.safetensors_dtype:
            codec = F8_E4M3
        else:
            codec = RAW[dtype] if dtype in raw else codec_of_safetensors_dtype(dtype)
    except CheckpointError as error:
        if is_derived(name):
            return name, None, offsets[0], offsets[1]
        raise CheckpointError(f"{path}: tensor {shown(name)}: {error}") from error
    n_bytes, extent = codec.block_bytes, 4
    for size in shape:
        n_bytes *= size
        extent *= max(1, size)
    if offsets[1] - offsets[0] != n_bytes:
        raise CheckpointError(
            f"{path}: tensor {shown(name)} is {codec.name} of shape {shape}, so {n_bytes} bytes, "
            f"but its data_offsets {offsets} hold {offsets[1] - offsets[0]}"
        )
    # A size of 0 hides what others beside it multiply to; no array of that shape can be made.
    if extent >= 1 << 63:
        raise CheckpointError(
            f"{path}: tensor {shown(name)} has shape {shape}; its sizes, zeros left out, multiply "
            "to more than memory has addresses"
        )
    empty = np.empty((0, 0), np.uint8)
    return name, Tensor(name, tuple(shape), codec, empty), offsets[0], offsets[1]


def _is_sizes(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 1 << 63
        for size in value
    )


def _with_data(tensor: Tensor, data: npt.NDArray[np.uint8]) -> Tensor:
    width = tensor.shape[-1] if tensor.shape else 1
    n_rows = 1
    for size in tensor.shape[:-1]:
        n_rows *= size
    rows = data.reshape(n_rows, tensor.codec.row_bytes(width))
    return Tensor(tensor.name, tensor.shape, tensor.codec, rows)
