"""Tensors that folders of a family hold in another form than the canonical one, and the way back.

    another name        embed_out is lm_head (GPT-NeoX)
    Q, K and V as one   wqkv, heads of Q with those of K and V that they share (InternLM 2); the
                        canonical names are those of three matrices, which GGUF files hold
    one vector a head   norms.0, norms.1, ... (StableLM 2); the canonical form is a row for each,
                        which GGUF files hold

Which tensors these are an architecture declares (`folder_modules`, `folder_qkv`, `folder_heads`).
Rows are put in order by number, so blocks of no codec are touched.

Source: llama.cpp conversion/internlm.py, stablelm.py; transformers conversion_mapping.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.weights.architectures import Architecture
from headrace.weights.gguf.metadata import head_dim_of
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.tensors.fused_rows import grouped_to_joined, joined_to_grouped
from headrace.weights.tensors.source import TensorSource
from headrace.weights.tensors.tensor import Tensor

_PARTS = ("attn_q", "attn_k", "attn_v")


def canonical_tensors(
    folder: Path, tensors: Mapping[str, Tensor], architecture: Architecture, config: dict[str, Any]
) -> Mapping[str, Tensor]:
    """The tensors of a folder by canonical name and in canonical form.

    Raises CheckpointError for one that is there twice, a matrix of Q, K and V of another number of
    rows than the config states, and heads that are missing.
    """
    if not architecture.has_folder_forms:
        return tensors
    found: dict[str, Tensor] = {}
    heads: dict[str, dict[int, Tensor]] = {}
    for tensor in tensors.values():
        if place := architecture.folder_head(tensor.name):
            heads.setdefault(place[0], {})[place[1]] = tensor
            continue
        for part in _parts(folder, tensor, architecture, config):
            if part.name in found:
                raise CheckpointError(
                    f"{folder}: tensors {found[part.name].name!r} and {tensor.name!r} are the same "
                    f"one, {part.name}; remove one of them"
                )
            found[part.name] = part
    for name, members in heads.items():
        found[name] = _stacked(folder, name, members)
    return found


def _parts(
    folder: Path, tensor: Tensor, architecture: Architecture, config: dict[str, Any]
) -> Iterator[Tensor]:
    name = architecture.from_folder(tensor.name)
    place = architecture.in_layer(name)
    if architecture.folder_qkv is None or place is None:
        yield tensor.renamed(name)
        return
    if place[1] != f"{architecture.folder_qkv}.weight":
        yield tensor.renamed(name)
        return
    counts, head_dim = _heads(architecture, config)
    order = grouped_to_joined(counts[0], counts[1], head_dim)
    if len(tensor.shape) != 2 or tensor.shape[0] != len(order):
        raise CheckpointError(
            f"{folder}: tensor {tensor.name!r} has shape {list(tensor.shape)}; Q, K and V as the "
            f"config has them need {len(order)} rows"
        )
    start = 0
    for gguf, count in zip(_PARTS, counts, strict=True):
        rows = order[start : start + count * head_dim]
        start += count * head_dim
        part = f"{architecture.layers}.{place[0]}.{architecture.block[gguf]}.weight"
        yield tensor.select_rows(rows).renamed(part)


def _stacked(folder: Path, name: str, members: Mapping[int, Tensor]) -> Tensor:
    first, vectors = members[min(members)], [members[head] for head in sorted(members)]
    for vector in vectors:
        if len(vector.shape) != 1 or (vector.shape, vector.codec) != (first.shape, first.codec):
            raise CheckpointError(
                f"{folder}: tensor {vector.name!r} is {vector.codec.name} {list(vector.shape)} and "
                f"{first.name!r} {first.codec.name} {list(first.shape)}; heads must be alike"
            )
    if max(members) >= len(members):
        missing = min(set(range(len(members))) - set(members))
        raise CheckpointError(
            f"{folder}: head {missing} of {name!r} is missing; fetch the folder again"
        )
    data = np.concatenate([vector.data.reshape(1, -1) for vector in vectors])
    return Tensor(name, (len(vectors), *first.shape), first.codec, data)


def folder_sources(
    sources: Iterable[TensorSource], architecture: Architecture, config: Mapping[str, Any]
) -> list[TensorSource]:
    """Tensors by canonical name as a folder of the family holds them."""
    if not architecture.has_folder_forms:
        return list(sources)
    written: list[TensorSource] = []
    joined: dict[int, dict[str, TensorSource]] = {}
    for source in sources:
        place = architecture.in_layer(source.name)
        module = place and place[1].removesuffix(".weight")
        gguf = next((part for part in _PARTS if architecture.block.get(part) == module), None)
        if place and architecture.folder_qkv is not None and gguf is not None:
            joined.setdefault(place[0], {})[gguf] = source
        elif place and (names := architecture.folder_heads.get(str(module))):
            written += _split(source, f"{architecture.layers}.{place[0]}.{names}.weight")
        else:
            written.append(replace(source, name=architecture.to_folder(source.name)))
    for layer, parts in joined.items():
        name = f"{architecture.layers}.{layer}.{architecture.folder_qkv}.weight"
        written.append(_joined(architecture.to_folder(name), parts, architecture, config))
    return written


def _joined(
    name: str,
    parts: Mapping[str, TensorSource],
    architecture: Architecture,
    config: Mapping[str, Any],
) -> TensorSource:
    if missing := [part for part in _PARTS if part not in parts]:
        raise CheckpointError(f"tensor {name!r} cannot be written: {missing[0]} is missing")
    counts, head_dim = _heads(architecture, config)
    ordered = [parts[part] for part in _PARTS]
    first = ordered[0]
    if other := next((part for part in ordered if part.codec is not first.codec), None):
        raise CheckpointError(
            f"tensor {other.name!r} is {other.codec.name} and {first.name!r} {first.codec.name}; "
            f"{name!r} holds both and needs them alike: name a codec to write them in"
        )
    order = joined_to_grouped(counts[0], counts[1], head_dim)

    def pieces() -> list[npt.NDArray[np.uint8]]:
        rows = [piece for part in ordered for piece in part.pieces()]
        return [np.concatenate(rows)[order]]

    return TensorSource(name, (len(order), *first.shape[1:]), first.codec, pieces)


def _split(source: TensorSource, names: str) -> list[TensorSource]:
    @cache
    def rows() -> npt.NDArray[np.uint8]:
        return np.concatenate(list(source.pieces()))

    def row(head: int) -> list[npt.NDArray[np.uint8]]:
        return [rows()[head : head + 1]]

    return [
        TensorSource(names.format(head), source.shape[1:], source.codec, partial(row, head))
        for head in range(source.shape[0])
    ]


def _heads(
    architecture: Architecture, config: Mapping[str, Any]
) -> tuple[tuple[int, int, int], int]:
    reader = ConfigReader(config)
    heads = reader.size(architecture.config_key("attention.head_count"))
    kv_heads = reader.size(architecture.config_key("attention.head_count_kv"), heads)
    if heads % kv_heads:
        reader.refuse("num_key_value_heads", kv_heads, f"divisors of num_attention_heads {heads}")
    return (heads, kv_heads, kv_heads), head_dim_of(config, architecture, reader)
