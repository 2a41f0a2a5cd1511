"""What both directions of conversion share: the result, order and values of tensors, what is left
out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.weights.architectures import Architecture
from headrace.weights.checkpoint import Checkpoint, Conventions
from headrace.weights.codecs import F32, OF_FOLDERS, Codec
from headrace.weights.gguf.metadata import head_dim_of
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.no_effect import is_derived
from headrace.weights.model_config.rope_config import RopeConfig
from headrace.weights.storage.quantisation import KEY
from headrace.weights.storage.statement import read_storage
from headrace.weights.tensors.fused_rows import grouped_to_joined, joined_to_grouped
from headrace.weights.tensors.pieces import SplitTensor
from headrace.weights.tensors.rope_rows import heads_to_half, heads_to_interleaved
from headrace.weights.tensors.scaled_tensor import ScaledTensor
from headrace.weights.tensors.source import TensorSource, source_of_array, source_of_tensor
from headrace.weights.tensors.tensor import Tensor

_LM_HEAD = "lm_head.weight"


@dataclass(frozen=True)
class ConversionResult:
    """The result of a conversion."""

    path: Path
    """The file or folder written."""
    nbytes: int
    """Size of the weights file."""
    codecs: Mapping[str, int]
    """Tensors written per codec name."""
    notes: tuple[str, ...]
    """What differs from the request, or was lost without changing a result; one sentence each."""


class Reordering:
    """Tensors of one checkpoint as another container's conventions have them."""

    def __init__(
        self, checkpoint: Checkpoint, architecture: Architecture, target: Conventions
    ) -> None:
        self._architecture = architecture
        self._norm_offset = checkpoint.conventions.norm_offset - target.norm_offset
        self._transposed = checkpoint.conventions.transposed != target.transposed
        self._permute = _permutation(checkpoint.conventions, target)
        self._heads: Mapping[str, int] = {}
        if self._permute is not None:
            config = checkpoint.config
            self._head_dim = head_dim_of(config, architecture)
            self._rotary_dim = RopeConfig.read(
                ConfigReader(config), default_partial=architecture.partial
            ).rotary_dim(self._head_dim)
            num_heads = config[architecture.config_key("attention.head_count")]
            kv_heads = num_heads
            if not architecture.layers_differ:
                kv_key = architecture.config_key("attention.head_count_kv")
                kv_heads = config.get(kv_key) or num_heads
            modules = {gguf: architecture.block.get(gguf) for gguf in ("attn_q", "attn_k")}
            counts = {"attn_q": num_heads, "attn_k": kv_heads}
            self._heads = {name: counts[gguf] for gguf, name in modules.items() if name}

        self._fused = _fused_order(checkpoint, architecture, target)

    def source(self, tensor: Tensor, name: str, codec: Codec) -> TensorSource:
        """`tensor` under another name and in another codec, as the target stores it."""
        place = self._architecture.in_layer(tensor.name)
        if self._norm_offset and tensor.name.endswith("norm.weight"):
            return source_of_array(tensor.to_f32() + np.float32(self._norm_offset), name, codec)
        if self._transposed and place is not None and len(tensor.shape) == 2:
            return source_of_array(np.ascontiguousarray(tensor.to_f32().T), name, codec)
        return source_of_tensor(tensor, name, codec, self._order(tensor))

    def codec(self, tensor: Tensor) -> Codec:
        """The codec the tensor can keep: transposed blocks are other blocks, so they become F32.
        So do FP8 and the kinds of folders alone, whose scales no other file has a place for.
        """
        if _is_folders_own(tensor):
            return F32
        blocks = tensor.codec.block_elements > 1
        in_layer = self._architecture.in_layer(tensor.name) is not None
        return F32 if self._transposed and in_layer and blocks else tensor.codec

    def width(self, tensor: Tensor) -> int:
        """Values in a row of the tensor as the target stores it."""
        in_layer = self._architecture.in_layer(tensor.name) is not None
        return tensor.shape[0] if self._transposed and in_layer else tensor.shape[-1]

    def _order(self, tensor: Tensor) -> npt.NDArray[np.int32] | None:
        place = self._architecture.in_layer(tensor.name)
        if place is None:
            return None
        module = place[1].rpartition(".")[0]
        if self._fused is not None and module == self._architecture.block.get("attn_qkv"):
            if tensor.shape[0] != len(self._fused):
                raise CheckpointError(
                    f"tensor {tensor.name!r} has {tensor.shape[0]} rows; Q, K and V as the config "
                    f"has them need {len(self._fused)}"
                )
            return self._fused
        if self._permute is None:
            return None
        count = self._heads.get(module)
        if count is None:
            return None
        if self._architecture.layers_differ:
            count = tensor.shape[0] // self._head_dim
        if tensor.shape[0] != count * self._head_dim:
            raise CheckpointError(
                f"tensor {tensor.name!r} has {tensor.shape[0]} rows; {count} heads of "
                f"{self._head_dim} need {count * self._head_dim}"
            )
        return self._permute(count, self._head_dim, self._rotary_dim)


def _permutation(
    source: Conventions, target: Conventions
) -> Callable[[int, int, int], npt.NDArray[np.int32]] | None:
    if source.rope_layout == target.rope_layout:
        return None
    return heads_to_half if target.rope_layout == "half" else heads_to_interleaved


def _fused_order(
    checkpoint: Checkpoint, architecture: Architecture, target: Conventions
) -> npt.NDArray[np.int32] | None:
    """Order of rows in a matrix of Q, K and V, where source and target differ in it."""
    if architecture.fused_heads is None:
        return None
    if checkpoint.conventions.qkv_layout == target.qkv_layout:
        return None
    heads, kv_heads = architecture.fused_heads(ConfigReader(checkpoint.config))
    order = grouped_to_joined if target.qkv_layout == "joined" else joined_to_grouped
    return order(heads, kv_heads, head_dim_of(checkpoint.config, architecture))


def unscaled(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with a config that fits what is written of it: numbers, where it holds FP8 or
    a kind of folders alone.

    Raises UnsupportedModelError for a key of its quantization_config that is not known: what was
    read may be other numbers.
    """
    tensors = checkpoint.tensors.values()
    if not any(_is_folders_own(tensor) or isinstance(tensor, SplitTensor) for tensor in tensors):
        return checkpoint
    stated = ConfigReader({KEY: checkpoint.config.get(KEY)})
    read_storage(stated)
    stated.finish()
    config = {key: value for key, value in checkpoint.config.items() if key != KEY}
    return replace(checkpoint, config=config)


def _is_folders_own(tensor: Tensor) -> bool:
    return isinstance(tensor, ScaledTensor) or tensor.codec.name in OF_FOLDERS


def is_redundant(checkpoint: Checkpoint, name: str, notes: list[str]) -> bool:
    """Whether a tensor is left out, which `notes` are told."""
    if is_derived(name):
        notes.append(f"{name} was left out: it follows from the config")
        return True
    if name == _LM_HEAD and checkpoint.config.get("tie_word_embeddings"):
        notes.append(f"{name} was left out: the config ties it to the embedding")
        return True
    return False


def count_codecs(sources: list[TensorSource]) -> dict[str, int]:
    """Tensors per codec."""
    return dict(Counter(source.codec.name for source in sources))
