"""StableLM 2 and StableLM-3B-4E1T.

llama.cpp goes by a layer's second norm: without it attention and MLP stand side by side, whatever
the file's key says. Norms of heads are a vector for each head in folders, one matrix in GGUF.

Source: llama.cpp models/stablelm.cpp, conversion/stablelm.py.
"""

from __future__ import annotations

from typing import Any

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.architectures.shared import (
    ATTENTION_BIAS,
    BLOCK,
    HEAD_NORMS,
    SILU,
    SIZES,
    TOP,
)
from headrace.weights.model_config.config_reader import ConfigReader

_PARALLEL = "use_parallel_residual"


def _read(keys: GGUFKeys, config: dict[str, Any]) -> None:
    """The tensors say it; the converter writes true where a folder's config was silent."""
    del config
    keys.take(_PARALLEL)


def _write(config: ConfigReader, entries: dict[str, Any]) -> None:
    entries[_PARALLEL] = config.get(_PARALLEL, bool, False)


STABLELM = Architecture(
    name="stablelm",
    model_type="stablelm",
    hf_class="StableLmForCausalLM",
    block={**BLOCK, **HEAD_NORMS},
    top=TOP,
    keys=(
        *SIZES,
        Key("attention.layer_norm_epsilon", "layer_norm_eps", "positive", in_config=1e-5),
    ),
    head_dim=False,
    partial=0.25,
    accepted=SILU,
    reads=_read,
    writes=_write,
    bias_keys={"use_qkv_bias": ATTENTION_BIAS[:3]},
    norm_keys={"qk_layernorm": tuple(HEAD_NORMS.values())},
    folder_heads={
        "self_attn.q_norm": "self_attn.q_layernorm.norms.{}",
        "self_attn.k_norm": "self_attn.k_layernorm.norms.{}",
    },
)
