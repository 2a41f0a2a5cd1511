"""Matrices of heads in latent attention: as one matrix, or apart as the arithmetic takes them.

Folders hold `kv_b_proj` of shape [heads * (nope + value), latent]: of each head the rows that make
its keys, then those that make its values. GGUF files hold `k_b_proj` [heads, latent, nope], which
is turned, and `v_b_proj` [heads, value, latent]; older ones hold what folders hold. Turning is
exact in kinds without blocks; of others, and of FP8, the keys are decoded to F32, which is exact
too.

Source: llama.cpp conversion/deepseek.py (DeepseekV2Model.modify_tensors), models/deepseek2.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.errors import CheckpointError
from headrace.weights.codecs import F32
from headrace.weights.tensors.pieces import PiecedTensor
from headrace.weights.tensors.scaled_tensor import ScaledTensor
from headrace.weights.tensors.tensor import Tensor

JOINED, KEYS, VALUES = "kv_b_proj.weight", "k_b_proj.weight", "v_b_proj.weight"


def single_heads(stacked: Tensor) -> list[Tensor]:
    """The matrices (rows, columns) of a tensor [heads, rows, columns]. Copies nothing."""
    _, rows, columns = stacked.shape
    return [
        Tensor(stacked.name, (rows, columns), stacked.codec, stacked.data[at : at + rows])
        for at in range(0, len(stacked.data), rows)
    ]


def split(joined: Tensor, heads: int, nope: int, value: int) -> tuple[list[Tensor], list[Tensor]]:
    """Keys (latent, nope) and values (value, latent) of every head of `kv_b_proj`."""
    latent = joined.shape[1]
    if isinstance(joined, PiecedTensor):
        joined = joined.held()
    keys: list[Tensor] = []
    values: list[Tensor] = []
    if joined.column_order is not None:
        # Heads are computed without an order of columns.
        exact = F32.encode(joined.to_f32())
        joined = Tensor(joined.name, joined.shape, F32, exact)
    for head in range(heads):
        at = head * (nope + value)
        if isinstance(joined, ScaledTensor):
            # Scales stay with the rows as stored.
            order = np.arange(at, at + nope + value, dtype=np.int32)
            key = joined.select_rows(order[:nope])
            exact = F32.encode(key.to_f32())
            keys.append(Tensor(joined.name, key.shape, F32, exact).transposed())
            values.append(joined.select_rows(order[nope:]))
            continue
        key = replace(joined, shape=(nope, latent), data=joined.data[at : at + nope])
        if joined.codec.block_elements > 1:
            key = replace(key, codec=F32, data=F32.encode(key.to_f32()))
        keys.append(key.transposed())
        rows = joined.data[at + nope : at + nope + value]
        values.append(replace(joined, shape=(value, latent), data=rows))
    return keys, values


def with_split_heads(
    tensors: Mapping[str, Tensor], config: Mapping[str, Any]
) -> Iterator[tuple[str, Tensor]]:
    """Tensors with every `kv_b_proj` as GGUF files have it.

    Raises CheckpointError where its shape is not what the config says.
    """
    for name, tensor in tensors.items():
        if not name.endswith(JOINED):
            yield name, tensor
            continue
        heads, nope, value, latent = _sizes(config)
        if tensor.shape != (heads * (nope + value), latent):
            raise CheckpointError(
                f"tensor {name!r} has shape {list(tensor.shape)}, the config asks for "
                f"{[heads * (nope + value), latent]}"
            )
        at = name.removesuffix(JOINED)
        parts = split(tensor, heads, nope, value)
        for ending, matrices in zip((KEYS, VALUES), parts, strict=True):
            yield at + ending, _stacked(at + ending, matrices)


def with_joined_heads(
    tensors: Mapping[str, Tensor], config: Mapping[str, Any]
) -> Iterator[tuple[str, Tensor]]:
    """Tensors with keys and values of heads as folders have them.

    Raises CheckpointError where one of the two is missing, or has a shape the config does not ask
    for.
    """
    for name, tensor in tensors.items():
        if name.endswith(VALUES) and name.removesuffix(VALUES) + KEYS in tensors:
            continue
        if not name.endswith((KEYS, VALUES)):
            yield name, tensor
            continue
        heads, nope, value, latent = _sizes(config)
        at = name.removesuffix(KEYS).removesuffix(VALUES)
        keys, values = tensors.get(at + KEYS), tensors.get(at + VALUES)
        stated = [(heads, latent, nope), (heads, value, latent)]
        if keys is None or values is None or [keys.shape, values.shape] != stated:
            found = [[] if part is None else list(part.shape) for part in (keys, values)]
            raise CheckpointError(
                f"tensors {at + KEYS!r} and {at + VALUES!r} have shapes {found[0]} and "
                f"{found[1]}, the config asks for {[list(shape) for shape in stated]}"
            )
        rows = np.concatenate([keys.to_f32().swapaxes(1, 2), values.to_f32()], axis=1)
        joined = rows.reshape(heads * (nope + value), latent)
        same = keys.codec is values.codec and keys.codec.block_elements == 1
        codec = keys.codec if same else F32
        yield at + JOINED, Tensor(at + JOINED, joined.shape, codec, codec.encode(joined))


def _stacked(name: str, matrices: list[Tensor]) -> Tensor:
    if isinstance(matrices[0], ScaledTensor):
        matrices = [
            Tensor(name, matrix.shape, F32, F32.encode(matrix.to_f32())) for matrix in matrices
        ]
    first = matrices[0]
    data = np.concatenate([matrix.data for matrix in matrices])
    return Tensor(name, (len(matrices), *first.shape), first.codec, data)


def _sizes(config: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """Heads, and the widths of a key without position, a value and the latent."""
    keys = ("num_attention_heads", "qk_nope_head_dim", "v_head_dim", "kv_lora_rank")
    for key in keys:
        if type(config.get(key)) is not int:
            raise CheckpointError(f"config key {key} is {config.get(key)!r}; a number is required")
    heads, nope, value, latent = (config[key] for key in keys)
    return heads, nope, value, latent
