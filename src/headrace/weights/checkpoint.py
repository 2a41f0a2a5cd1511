"""A checkpoint: config, conventions, tensors, tokenizer data and chat templates of one model.

What kind of file it came from is known here and nowhere above: models read `conventions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headrace.weights.tensors.tensor import Tensor
from headrace.weights.tokenizer.data import TokenizerData

__all__ = ["Checkpoint", "Conventions", "TokenizerData"]


@dataclass(frozen=True)
class Conventions:
    """The conventions of a file that differ between formats."""

    rope_layout: Literal["half", "interleaved"] = "half"
    """How rows of Q and K are ordered within a head. "half": dimension i is rotated with i +
    head_dim/2 (Hugging Face); "interleaved": 2i with 2i + 1 (GGUF files of the llama family, whose
    converter permuted the rows)."""
    norm_offset: float = 0.0
    """What has to be added to stored norm weights: 1.0 for Gemma's safetensors, which store w - 1
    (its GGUF files store w)."""
    transposed: bool = False
    """Whether matrices of layers are stored (in, out), as GPT-2's safetensors have them."""
    qkv_layout: Literal["joined", "grouped"] = "joined"
    """Order of rows in a matrix that holds Q, K and V; see `weights.tensors.fused_rows`."""


@dataclass(frozen=True)
class Checkpoint:
    """An opened model. Tensors are views of mapped files and stay valid while this lives."""

    path: Path
    format: Literal["gguf", "safetensors"]
    config: Mapping[str, Any]
    """Keys as in Hugging Face's config.json, also for GGUF files (only keys the file states)."""
    conventions: Conventions
    tensors: Mapping[str, Tensor]
    """By canonical Hugging Face name ("model.layers.0.self_attn.q_proj.weight", ...)."""
    tokenizer: TokenizerData
    chat_templates: Mapping[str, str] = field(default_factory=dict)
    """By name; the usual one is "default"."""
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    eos_token_ids: tuple[int, ...] = ()
    """Every id the file names as an end of turn or text, in ascending order."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    cache_scales: Mapping[str, Tensor] = field(default_factory=dict)
    """Scales of K and V in FP8 by the folder's names of them; no part of `tensors`."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many tensors of each module of the folder are not part of the model that is loaded (the
    image encoder)."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def left_out_words(self) -> str:
        """`left_out` in words: "multi_modal_projector (2 tensors), vision_tower (437 tensors)"."""
        return left_out_words(self.left_out)


def left_out_words(left_out: Mapping[str, int]) -> str:
    """`Checkpoint.left_out` in words; "" where nothing was."""
    return ", ".join(
        f"{module} ({count} tensor{'s' if count > 1 else ''})" for module, count in left_out.items()
    )
