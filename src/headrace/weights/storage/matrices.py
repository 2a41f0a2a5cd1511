"""Every format of quantised folders that is read: which ones, and matrices put together of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from headrace.weights.codecs import RAW
from headrace.weights.storage.eight_bits import is_eight_bits, with_bytes
from headrace.weights.storage.float8 import is_float8, with_scales
from headrace.weights.storage.four_bits import is_four_bits, with_groups
from headrace.weights.storage.normal_float import is_normal_float, with_normal_floats
from headrace.weights.storage.storage import Storage, WeightFormat
from headrace.weights.tensors.tensor import Tensor

WORDS_FOR_READ = (
    "fp8", "compressed-tensors, gptq and awq of 4 and 8 bits", "NVFP4", "bitsandbytes' nf4",
)  # fmt: skip
"""The formats that every family reads, for the refusal of any other."""


def is_read(stored: WeightFormat) -> bool:
    """Whether matrices of this format are read, in every family."""
    return is_float8(stored) or _is_packed(stored)


def packed_dtypes(storage: Storage | None) -> Collection[str]:
    """Dtypes of tensors that matrices are put together of; none where they need no other."""
    return RAW if storage is not None and any(map(_is_packed, storage.formats)) else ()


def with_joined_matrices(
    folder: Path, tensors: Mapping[str, Tensor], storage: Storage | None
) -> Mapping[str, Tensor]:
    """The tensors of a folder, those of each matrix put together under the name of the weight.

    Raises CheckpointError where a part is missing or damaged, UnsupportedModelError for what is
    not read.
    """
    for join in (with_normal_floats, with_bytes, with_groups, with_scales):
        tensors = join(folder, tensors, storage)
    return tensors


def _is_packed(stored: WeightFormat) -> bool:
    return is_four_bits(stored) or is_eight_bits(stored) or is_normal_float(stored)
