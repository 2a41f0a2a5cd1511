"""The shapes of the family, and how to read one back from a checkpoint. Needs no PyTorch.

Every row length is a multiple of 256, so that any GGUF codec can hold every matrix.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from training.data.tokenizer import END_OF_TEXT_ID, TURN_END_ID


@dataclass(frozen=True)
class ModelConfig:
    """A dense Qwen3: grouped-query attention with normed queries and keys, SwiGLU, tied output."""

    vocab_size: int = 8192
    hidden_size: int = 512
    intermediate_size: int = 768
    num_hidden_layers: int = 5
    num_attention_heads: int = 8
    num_key_value_heads: int = 2
    head_dim: int = 64
    max_position_embeddings: int = 2048
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6

    def to_hugging_face(self) -> dict[str, object]:
        """The contents of config.json."""
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            **asdict(self),
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "initializer_range": 0.02,
            "tie_word_embeddings": True,
            "bos_token_id": END_OF_TEXT_ID,
            "eos_token_id": TURN_END_ID,
            "torch_dtype": "float32",
        }


BASE = ModelConfig()
# 1.2 M parameters beside the table of tokens, which at 8,192 rows of 256 is 2.1 M by itself.
DRAFT = ModelConfig(
    hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4
)

CHECKPOINT_NAME = "checkpoint.safetensors"
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
            f"{path.name} has no metadata key {NOTE_KEY!r}: it was not written by training"
        )
    note: dict[str, dict[str, Any]] = json.loads(metadata[NOTE_KEY])
    return note
