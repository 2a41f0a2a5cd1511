"""The shapes of the heads (heads.py), and their config.json. Needs no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from training.models.config import ModelConfig

HeadKind = Literal["eagle3", "mtp"]
NORMED = -1
"""Among the layers that a head reads: the last one, behind the base's final norm."""


@dataclass(frozen=True)
class HeadConfig:
    """A head of the base. Its widths keep both heads together, in 8 bits, below 6 MB."""

    kind: HeadKind = "eagle3"
    feature_layers: tuple[int, ...] = (1, 3, 5)
    """How many layers of the base have come before what it reads, or NORMED."""
    vocab_size: int = 2048
    """The commonest tokens, which are most of what the base says."""
    intermediate_size: int = 256
    num_attention_heads: int = 4
    num_key_value_heads: int = 2

    @classmethod
    def of_note(cls, stated: Mapping[str, Any]) -> HeadConfig:
        """Of what the note of a run's checkpoint says of its head."""
        return cls(**{**stated, "feature_layers": tuple(stated["feature_layers"])})

    def layer(self, base: ModelConfig) -> ModelConfig:
        """The shape of its one layer."""
        return replace(
            base,
            intermediate_size=self.intermediate_size,
            num_hidden_layers=1,
            num_attention_heads=self.num_attention_heads,
            num_key_value_heads=self.num_key_value_heads,
        )

    def to_hugging_face(self, base: ModelConfig) -> dict[str, object]:
        """The contents of config.json: in the form of EAGLE's repositories, or that of the base
        with the widths of this layer."""
        layer = self.layer(base).to_hugging_face()
        kept = (
            "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "head_dim", "max_position_embeddings", "rope_theta",
            "rms_norm_eps", "hidden_act", "attention_bias", "vocab_size",
        )  # fmt: skip
        shape = {key: layer[key] for key in kept} | {"draft_vocab_size": self.vocab_size}
        if self.kind == "mtp":
            return {
                "architectures": ["Qwen3MTP"],
                "model_type": layer["model_type"],
                **shape,
                "num_hidden_layers": base.num_hidden_layers,
                "mtp_num_hidden_layers": 1,
                "tie_word_embeddings": layer["tie_word_embeddings"],
            }
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            **shape,
            "eagle_aux_hidden_state_layer_ids": list(self.feature_layers),
            "tie_word_embeddings": False,
        }


HEADS: Mapping[str, HeadConfig] = {
    "head": HeadConfig(),
    # Where a pass reads its weights in 4 bits, a layer as wide as the base's costs little more.
    "mtp": HeadConfig(
        kind="mtp", feature_layers=(NORMED,), intermediate_size=512, num_attention_heads=8
    ),
}
"""By their runs."""
