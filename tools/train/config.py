"""The model's shape, and how to read it back from a checkpoint. Needs no PyTorch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open


@dataclass(frozen=True)
class ModelConfig:
    """The shape. Every row length is a multiple of 256, so that any GGUF codec can hold it."""

    vocab_size: int = 4096
    hidden_size: int = 256
    intermediate_size: int = 768
    num_hidden_layers: int = 6
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    max_position_embeddings: int = 1024
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5

    def to_hugging_face(self) -> dict[str, object]:
        """The contents of config.json."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            **asdict(self),
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "attention_dropout": 0.0,
            "initializer_range": 0.02,
            "tie_word_embeddings": True,
            "bos_token_id": 0,
            "eos_token_id": 0,
            "torch_dtype": "float32",
        }


# safetensors allows only strings as metadata: this key holds one JSON object.
NOTE_KEY = "headrace"


def read_note(path: Path) -> dict[str, dict[str, Any]]:
    """The JSON note of a checkpoint: `progress`, `settings` and `model`.

    Raises ValueError when `path` is a safetensors file of something else.
    """
    with safe_open(path, framework="np") as file:
        metadata = file.metadata() or {}
    if NOTE_KEY not in metadata:
        raise ValueError(
            f"{path.name} has no metadata key {NOTE_KEY!r}: it was not written by tools.train.train"
        )
    note: dict[str, dict[str, Any]] = json.loads(metadata[NOTE_KEY])
    return note
