"""Folders of FP8: matrices of F8_E4M3 put together with the scales that stand beside them.

    NAME.weight             F8_E4M3 [rows, columns]; a stack of experts [experts, rows, columns],
                            whose scales have one dimension more in front
    NAME.weight_scale_inv   of blocks, [rows / R, columns / C] rounded up (DeepSeek, Qwen, MiniMax)
    NAME.weight_scale       one, [] or [1]; of rows, [rows] or [rows, 1]; of blocks (compressed-
                            tensors, modelopt, AutoFP8); modelopt's of blocks may be
                            [rows / R, 1, columns / C, 1]

Whatever the name, values are multiplied by the scale. Which shape there is to be the folder's
config states. Scales of activations and of the KV cache are left out: nothing here is rounded by
them.

Sources: DeepSeek-V3's weight documentation (README_WEIGHTS.md), transformers
integrations/finegrained_fp8.py, compressed-tensors compressors (naive_quantized), modelopt
export/quant_utils.py, vLLM layers/quantization (fp8.py, modelopt.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from headrace.errors import CheckpointError, UnsupportedModelError, shown
from headrace.weights.codecs import F8_E4M3
from headrace.weights.storage.storage import Storage, WeightFormat
from headrace.weights.tensors.scaled_tensor import F32, ScaledTensor
from headrace.weights.tensors.tensor import Tensor

WEIGHT = ".weight"
SCALES = (".weight_scale_inv", ".weight_scale")
STACK_SCALES = ("_scale_inv", "_scale")
"""Of a stack whose name does not end in ".weight"."""
ACTIVATION_SCALES = (
    ".input_scale", ".output_scale", ".k_scale", ".v_scale", ".q_scale", ".prob_output_scale",
    ".kv_scale",
)  # fmt: skip

LEAST_SCALE, MOST_SCALE = 2.0**-117, 2.0**119
"""Between them every product with a code is a normal float32, so that kernels which read denormals
as zero have it exactly."""

RUN = 128
"""Columns that share a scale in the kernels; blocks are multiples of it, or whole rows."""


def is_float8(stored: WeightFormat) -> bool:
    """Whether matrices of this format are read here."""
    return stored.number == "e4m3" and stored.layout == "plain"


def with_scales(
    folder: Path, tensors: Mapping[str, Tensor], storage: Storage | None
) -> Mapping[str, Tensor]:
    """The tensors of a folder, those of F8_E4M3 with their scales.

    Raises CheckpointError where a scale is missing, has another shape than the config states, or
    is not a number that a weight can be multiplied by; UnsupportedModelError for tensors of
    F8_E4M3 that are no matrices, that no config explains, or whose blocks have other columns.
    """
    if not any(tensor.codec is F8_E4M3 for tensor in tensors.values()):
        return tensors
    joined: dict[str, Tensor] = {}
    used: set[str] = set()
    for name, tensor in tensors.items():
        if tensor.codec is F8_E4M3:
            joined[name], scale = _scaled(folder, tensor, tensors, storage)
            used.add(scale)
        elif not name.endswith(ACTIVATION_SCALES):
            joined[name] = tensor
    for name in used:
        del joined[name]
    return joined


def _scaled(
    folder: Path, tensor: Tensor, tensors: Mapping[str, Tensor], storage: Storage | None
) -> tuple[ScaledTensor, str]:
    """The matrix with its scales, and the name of their tensor."""
    name = tensor.name
    if storage is None or not any(map(is_float8, storage.formats)):
        raise UnsupportedModelError(
            f"{folder}: tensor {shown(name)} is F8_E4M3, and config.json has no "
            "quantization_config that states how FP8 is scaled; fetch the whole folder again"
        )
    if len(tensor.shape) not in (2, 3):
        raise UnsupportedModelError(
            f"{folder}: tensor {shown(name)} is F8_E4M3 of shape {list(tensor.shape)}; matrices "
            "and stacks of them are read. Use the folder in BF16, or a GGUF file of the model"
        )
    # A stack of experts may be a parameter of its own, its scales beside it.
    module = name.removesuffix(WEIGHT)
    endings = SCALES if name.endswith(WEIGHT) else STACK_SCALES
    there = [module + ending for ending in endings if module + ending in tensors]
    if len(there) != 1:
        names = " and ".join(repr(module + ending) for ending in endings)
        problem = "both are" if there else "neither is"
        raise CheckpointError(
            f"{folder}: tensor {shown(name)} is F8_E4M3 and needs one tensor of scales; of {names} "
            f"{problem} there. The folder is incomplete or damaged, fetch it again"
        )
    stored = _format_of(folder, tensor, module, storage)
    scale = tensors[there[0]]
    block = _block(folder, tensor, scale, stored)
    scales = scale.to_f32()
    if len(tensor.shape) == 3 and tensor.shape[1] % block[0]:
        raise UnsupportedModelError(
            f"{folder}: tensor {shown(name)} has {tensor.shape[1]} rows for each expert, which are "
            f"not whole blocks of {block[0]}. Use a folder with a tensor for each expert"
        )
    scales = scales.reshape(-1, -(-tensor.shape[-1] // block[1]))
    _check(folder, scale, scales)
    return ScaledTensor(
        name, tensor.shape, F8_E4M3, tensor.data, scales=scales, block=block,
        scale_bytes=scale.nbytes,
    ), scale.name  # fmt: skip


def _format_of(folder: Path, tensor: Tensor, module: str, storage: Storage) -> WeightFormat:
    stored, known = storage.format_of(module), tuple(filter(is_float8, storage.formats))
    if stored is None and len(known) == 1:
        # Listed as left at 16 bits, and FP8 all the same: there is one way to read it.
        return known[0]
    if stored is None or not is_float8(stored):
        what = "16 bits" if stored is None else f"{stored.number} of {stored.bits} bits"
        raise CheckpointError(
            f"{folder}: tensor {shown(tensor.name)} is F8_E4M3, and quantization_config states "
            f"{what} of this module. The files are not of one model, fetch the folder again"
        )
    return stored


def _block(folder: Path, tensor: Tensor, scale: Tensor, stored: WeightFormat) -> tuple[int, int]:
    """Rows and columns of a block, after the shape of the scales was looked at."""
    *stack, rows, columns = tensor.shape
    if scale.codec.name not in ("F32", "BF16", "F16"):
        raise CheckpointError(
            f"{folder}: tensor {shown(scale.name)} is {scale.codec.name}; scales are F32, BF16 or "
            "F16"
        )
    if stored.scope == "block":
        if stored.columns % RUN and stored.columns < columns:
            raise UnsupportedModelError(
                f"{folder}: quantization_config states blocks of {stored.rows} x "
                f"{stored.columns}; the columns of a block have to be a multiple of {RUN}, or all "
                f"{columns} of tensor {shown(tensor.name)}. Use another checkpoint of the model"
            )
        count = -(-rows // stored.rows), -(-columns // stored.columns)
        expected = [[*stack, *count], [*stack, count[0], 1, count[1], 1]]
        block = stored.rows, stored.columns
    else:
        expected = [stack, [*stack, 1], [*stack, 1, 1]] if stored.scope == "tensor" else []
        block = max(1, rows), max(1, columns)
        by_row = [[*stack, rows], [*stack, rows, 1]]
        if stored.scope == "channel" or (list(scale.shape) in by_row and rows > 1):
            expected += by_row
            block = 1, max(1, columns)
    if list(scale.shape) not in expected:
        wanted = " or ".join(map(str, expected))
        raise CheckpointError(
            f"{folder}: tensor {shown(scale.name)} has shape {list(scale.shape)}; of "
            f"{list(tensor.shape)} weights with a scale for each {_in_words(stored)}, as "
            f"quantization_config states, it has to be {wanted}. The files are not of one "
            "model, fetch the folder again"
        )
    return block


def _in_words(stored: WeightFormat) -> str:
    if stored.scope == "block":
        return f"block of {stored.rows} x {stored.columns}"
    return {"tensor": "matrix", "channel": "row"}.get(stored.scope, stored.scope)


def _check(folder: Path, scale: Tensor, scales: F32) -> None:
    with np.errstate(invalid="ignore"):
        wrong = np.argwhere(~((scales >= LEAST_SCALE) & (scales <= MOST_SCALE)))
    if len(wrong):
        place = tuple(int(index) for index in wrong[0])
        raise CheckpointError(
            f"{folder}: tensor {shown(scale.name)} holds {scales[place]:g} at {list(place)}; a "
            f"scale has to be a number from {LEAST_SCALE:.3g} to {MOST_SCALE:.3g}. The file is "
            "damaged, or was made with an error: fetch it again, or quantise the model again"
        )
