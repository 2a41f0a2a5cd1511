"""The shape of the mixture of experts, in the layout of GLM-4.5. Needs no PyTorch.

Three parts of a dense feed-forward become one shared expert and two routed ones: a token passes
through as many weights as in the dense model, chosen from almost twice as many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from training.models.config import ModelConfig


@dataclass(frozen=True)
class MoEConfig(ModelConfig):
    """A dense model whose layers from `first_k_dense_replace` on have experts; GLM-4.5's names.

    A router scores the routed experts by a sigmoid, takes the best `num_experts_per_tok`, makes
    their scores add up to `routed_scaling_factor`, and adds the shared experts, which see all.
    """

    first_k_dense_replace: int = 1
    moe_intermediate_size: int = 256
    n_routed_experts: int = 8
    num_experts_per_tok: int = 2
    n_shared_experts: int = 1
    routed_scaling_factor: float = 2.0

    def __post_init__(self) -> None:
        if not 1 <= self.num_experts_per_tok <= self.n_routed_experts:
            raise ValueError(
                f"num_experts_per_tok is {self.num_experts_per_tok}, of {self.n_routed_experts} "
                "n_routed_experts: give a number between 1 and that"
            )

    def to_hugging_face(self) -> dict[str, object]:
        """The contents of config.json."""
        return {
            **super().to_hugging_face(),
            "architectures": ["Glm4MoeForCausalLM"],
            "model_type": "glm4_moe",
            "use_qk_norm": True,
            "partial_rotary_factor": 1.0,
            "norm_topk_prob": True,
            "n_group": 1,
            "topk_group": 1,
            # GLM-4.5's own models carry a layer that guesses the token after the next.
            "num_nextn_predict_layers": 0,
        }


MOE = MoEConfig()


def config_of_shape(shape: Mapping[str, Any]) -> ModelConfig:
    """The config that a checkpoint's note holds as `model`, dense or with experts."""
    return MoEConfig(**shape) if "n_routed_experts" in shape else ModelConfig(**shape)


def n_active_parameters(config: MoEConfig) -> int:
    """Weights that one token passes through, the table of tokens counted once."""
    heads = config.num_attention_heads + config.num_key_value_heads
    attention = 2 * heads * config.head_dim * config.hidden_size + 2 * config.head_dim
    n_sparse = config.num_hidden_layers - config.first_k_dense_replace
    used = config.num_experts_per_tok + config.n_shared_experts
    widths = (
        config.first_k_dense_replace * config.intermediate_size
        + n_sparse * used * config.moe_intermediate_size
    )
    routers = n_sparse * config.n_routed_experts * (config.hidden_size + 1)
    norms = (2 * config.num_hidden_layers + 1) * config.hidden_size
    return (
        config.vocab_size * config.hidden_size
        + config.num_hidden_layers * attention
        + 3 * config.hidden_size * widths
        + routers
        + norms
    )


def shape_of(config: ModelConfig) -> dict[str, object]:
    """What a checkpoint's note says of the model."""
    return asdict(config)
