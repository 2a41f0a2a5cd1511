"""A checkpoint: config, conventions, tensors, tokenizer data and chat templates of one model.

What kind of file it came from is known here and nowhere above: models read `conventions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headrace.weights.tensor import Tensor
from headrace.weights.tokenizer_data import TokenizerData

__all__ = ["Checkpoint", "Conventions", "TokenizerData"]


@dataclass(frozen=True)
class Conventions:
    """How this file stores what other files store differently.

    rope_layout: how rows of Q and K are ordered within a head. "half": dimension i is rotated with
        i + head_dim/2 (Hugging Face); "interleaved": 2i with 2i + 1 (GGUF files of the llama
        family, whose converter permuted the rows).
    norm_offset: what has to be added to stored norm weights: 1.0 for Gemma's safetensors, which
        store w - 1 (its GGUF files store w).
    transposed: whether matrices of layers are stored (in, out), as GPT-2's safetensors have them.
    qkv_layout: order of rows in a matrix that holds Q, K and V; see `weights.fused_rows`.
    """

    rope_layout: Literal["half", "interleaved"] = "half"
    norm_offset: float = 0.0
    transposed: bool = False
    qkv_layout: Literal["joined", "grouped"] = "joined"


@dataclass(frozen=True)
class Checkpoint:
    """An opened model. Tensors are views of mapped files and stay valid while this lives.

    config: keys as in Hugging Face's config.json, also for GGUF files (only keys the file states).
    tensors: by canonical Hugging Face name ("model.layers.0.self_attn.q_proj.weight", ...).
    chat_templates: by name; the usual one is "default".
    eos_token_ids: every id the file names as an end of turn or text, in ascending order.
    """

    path: Path
    format: Literal["gguf", "safetensors"]
    config: Mapping[str, Any]
    conventions: Conventions
    tensors: Mapping[str, Tensor]
    tokenizer: TokenizerData
    chat_templates: Mapping[str, str] = field(default_factory=dict)
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    eos_token_ids: tuple[int, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(tensor.nbytes for tensor in self.tensors.values())
