"""A Llama of transformers whose layers differ as `block_configs` says. Needs torch, transformers.

transformers has no class for it: each layer is its Llama layer, of a config with that layer's heads
and width, and what a layer lacks adds nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer


class NoAttention(torch.nn.Module):
    """An attention that adds nothing."""

    def forward(self, hidden_states: Any, **_: Any) -> tuple[Any, None]:
        return torch.zeros_like(hidden_states), None


class NoMLP(torch.nn.Module):
    """An MLP that adds nothing."""

    def forward(self, hidden_states: Any) -> Any:
        return torch.zeros_like(hidden_states)


def llama_of_blocks(
    stated: dict[str, Any], weights: dict[str, npt.NDArray[np.float32]]
) -> LlamaForCausalLM:
    """The model of this config.json with these weights."""
    plain = {
        key: value
        for key, value in stated.items()
        if key not in ("block_configs", "model_type", "architectures")
    }
    hidden, heads = stated["hidden_size"], stated["num_attention_heads"]
    whole = LlamaConfig(**plain | {"num_key_value_heads": heads, "intermediate_size": 32})
    whole._attn_implementation = "eager"
    model = LlamaForCausalLM(whole)
    for index, block in enumerate(stated["block_configs"]):
        group = block["attention"]["n_heads_in_group"]
        multiplier = block["ffn"]["ffn_mult"]
        # As the vendor's code has it: two thirds, cut to a whole number, up to the next 256.
        width = 256 * (-(-int(2 * (multiplier or 0) * hidden / 3) // 256))
        sizes = {"num_key_value_heads": heads // (group or heads), "intermediate_size": width or 32}
        config = LlamaConfig(**plain | sizes)
        config._attn_implementation = "eager"
        layer = LlamaDecoderLayer(config, index)
        if group is None:
            layer.self_attn, layer.input_layernorm = NoAttention(), torch.nn.Identity()
        if multiplier is None:
            layer.mlp, layer.post_attention_layernorm = NoMLP(), torch.nn.Identity()
        model.model.layers[index] = layer
    state = {name: torch.tensor(values) for name, values in weights.items()}
    missing = model.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys
    assert set(missing.missing_keys) <= {"lm_head.weight"}, missing.missing_keys
    model.tie_weights()
    return model.eval()
