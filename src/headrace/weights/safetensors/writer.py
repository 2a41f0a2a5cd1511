"""Writing one safetensors file, streamed, complete or not at all.

Source: the safetensors format (README of huggingface/safetensors).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.atomic_file import atomic_file
from headrace.errors import CheckpointError
from headrace.weights.tensors.source import TensorSource

# transformers refuses a file that does not say it came from a framework it knows.
_DEFAULT_METADATA = {"format": "pt"}
_HEADER_ALIGNMENT = 8
_LENGTH_BYTES = 8


def write_safetensors_file(
    path: Path | str,
    tensors: Sequence[TensorSource],
    metadata: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Write `path` and return its size in bytes; metadata is added to {"format": "pt"}.
    progress: called after every tensor with bytes done and in all.

    Tensors are laid out by falling element size and then name, so that each starts at a multiple of
    its own element size. Raises CheckpointError naming a tensor the format has no dtype for.
    """
    path = Path(path)
    ordered = sorted(tensors, key=lambda tensor: (-tensor.codec.block_bytes, tensor.name))
    header: dict[str, Any] = {"__metadata__": {**_DEFAULT_METADATA, **(metadata or {})}}
    offset = 0
    for tensor in ordered:
        if tensor.codec.safetensors_dtype is None:
            raise CheckpointError(
                f"tensor {tensor.name!r} is {tensor.codec.name}, which safetensors cannot hold; "
                "write it as F32, F16 or BF16"
            )
        if tensor.name in header:
            raise CheckpointError(f"{path}: two tensors are called {tensor.name!r}")
        header[tensor.name] = {
            "dtype": tensor.codec.safetensors_dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    raw = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    raw += b" " * (-len(raw) % _HEADER_ALIGNMENT)
    with atomic_file(path) as file:
        file.write(struct.pack("<Q", len(raw)))
        file.write(raw)
        for tensor in ordered:
            tensor.write_to(file)
            progress(file.tell() - len(raw) - _LENGTH_BYTES, offset)
        return file.tell()
