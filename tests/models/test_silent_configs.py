"""What a config that leaves keys out, or has null for them, means: transformers' own defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import UnsupportedModelError
from headrace.models import DecoderConfig, read_config
from headrace.models.latent_attention import LatentConfig, LatentWidths
from headrace.models.query_scaling import QueryScaling
from headrace.models.rope import RopeConfig
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.gguf.metadata import metadata_of_config

LAYERS = 7
SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": LAYERS,
    "num_attention_heads": 32,
}  # fmt: skip


def read(config: dict[str, Any]) -> DecoderConfig:
    return read_config(
        Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
    )


@pytest.mark.parametrize(
    ("model_type", "kv_heads", "head_dim", "positions", "eps", "theta"),
    [
        ("arcee", 32, 2, 4096, 1e-5, 1e4),
        ("cohere", 32, 2, 8192, 1e-5, 5e5),
        ("cohere2", 32, 2, 8192, 1e-5, 1e4),
        ("ernie4_5", 2, 128, 131072, 1e-5, 5e5),
        ("gemma", 16, 256, 8192, 1e-6, 1e4),
        ("gemma2", 4, 256, 8192, 1e-6, 1e4),
        ("gemma3_text", 4, 256, 131072, 1e-6, 1e6),
        ("glm", 2, 128, 131072, 1.5625e-7, 1e4),
        ("glm4", 2, 128, 131072, 1.5625e-7, 1e4),
        ("granite", 32, 2, 2048, 1e-6, 1e4),
        ("internlm2", 32, 2, 2048, 1e-6, 1e4),
        ("internlm3", 2, 128, 32768, 1e-5, 1e4),
        ("llama", 32, 2, 2048, 1e-6, 1e4),
        ("mistral", 8, 2, 131072, 1e-6, 1e4),
        ("olmo2", 32, 2, 2048, 1e-5, 1e4),
        ("olmo3", 32, 2, 2048, 1e-5, 5e5),
        ("qwen2", 32, 2, 32768, 1e-6, 1e4),
        ("qwen3", 32, 128, 32768, 1e-6, 1e4),
        ("seed_oss", 8, 128, 524288, 1e-6, 1e4),
        ("smollm3", 4, 2, 32768, 1e-6, 2e6),
    ],
)
def test_silence_means_the_defaults_of_transformers_classes(
    model_type: str, kv_heads: int, head_dim: int, positions: int, eps: float, theta: float
) -> None:
    config = read({"model_type": model_type, **SIZES})
    shape = config.attention
    assert (shape.num_kv_heads, shape.head_dim) == (kv_heads, head_dim)
    assert config.max_positions == positions
    assert config.norm_eps == pytest.approx(eps, rel=1e-6)
    assert config.rope == RopeConfig(theta, partial=0.5 if model_type.startswith("glm") else 1.0)
    assert shape.scale == (1.0 if model_type == "granite" else head_dim**-0.5)
    caps = (50.0, 30.0) if model_type == "gemma2" else (0.0, 0.0)
    assert (shape.softcap, config.logit_softcap) == caps
    assert config.logit_scale == (0.0625 if model_type.startswith("cohere") else 1.0)


FULL_EVERY = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4, "olmo3": 4}
"""Of so many layers one sees all positions, and the others the last 4096."""


@pytest.mark.parametrize(
    "model_type",
    [*FULL_EVERY, "arcee", "cohere", "ernie4_5", "gemma", "glm", "glm4", "internlm2", "internlm3",
     "llama", "mistral", "olmo2", "qwen2", "qwen3", "seed_oss", "smollm3"],
)  # fmt: skip
def test_windows_and_their_rope_where_nothing_is_said(model_type: str) -> None:
    config = read({"model_type": model_type, **SIZES})
    every = FULL_EVERY.get(model_type, 0)
    if every:
        expected = tuple(0 if at % every == 0 else 4096 for at in range(1, LAYERS + 1))
    else:
        expected = (4096,) * LAYERS if model_type == "mistral" else ()
    # Of some families a config may have windows: then each layer has an entry.
    assert config.windows == expected or not any((*config.windows, *expected))
    local = {"gemma3_text": RopeConfig(1e4), "olmo3": RopeConfig(5e5)}
    assert config.local_rope == local.get(model_type)


@pytest.mark.parametrize(
    "model_type", ["arcee", "ernie4_5", "gemma", "internlm2", "internlm3", "olmo3", "seed_oss"]
)
def test_a_width_of_heads_that_is_null_is_a_share_of_the_hidden_size(model_type: str) -> None:
    config = read({"model_type": model_type, **SIZES, "head_dim": None})
    assert config.attention.head_dim == 2


@pytest.mark.parametrize("model_type", ["mistral", "qwen2", "smollm3", "granite"])
def test_a_number_of_kv_heads_that_is_null_is_that_of_all_heads(model_type: str) -> None:
    config = read({"model_type": model_type, **SIZES, "num_key_value_heads": None})
    assert config.attention.num_kv_heads == 32


def test_what_a_silent_ministral3_means() -> None:
    """As transformers' class has it, the keys of rope all together."""
    config = read({"model_type": "ministral3", **SIZES})
    assert (config.attention.head_dim, config.attention.num_kv_heads) == (128, 8)
    assert (config.max_positions, config.windows) == (262144, ())
    assert config.norm_eps == pytest.approx(1e-5, rel=1e-6)
    assert config.rope == RopeConfig(1e6, "yarn", 16.0, original_max_positions=16384)
    assert config.query_scaling == QueryScaling(0.1, 16384)
    null = read({"model_type": "ministral3", **SIZES, "head_dim": None})
    assert null.attention.head_dim == 2


def test_what_a_silent_glm5_means() -> None:
    """Its heads are wider than DeepSeek's, its indexers have fewer; in GGUF files too."""
    sizes = {**SIZES, "vocab_size": 32, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    config = read({"model_type": "glm_moe_dsa", **sizes})
    assert isinstance(config, LatentConfig)
    assert config.widths == LatentWidths(latent=512, nope=192, rope=64, value=256, query=2048)
    stated = metadata_of_config(sizes, ARCHITECTURES["glm_moe_dsa"]).entries
    entries = {key.removeprefix("glm-dsa.attention."): value for key, value in stated.items()}
    assert (entries["key_length_mla"], entries["value_length_mla"]) == (256, 256)
    assert (entries["q_lora_rank"], entries["indexer.head_count"]) == (2048, 32)


def test_a_silent_deepseek_v2_has_two_shared_experts() -> None:
    sizes = {**SIZES, "vocab_size": 32, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    sizes["num_experts_per_tok"] = 6
    config = read({"model_type": "deepseek_v2", **sizes})
    assert config.experts is not None and config.experts.shared_size == 2 * 1407
    entries = metadata_of_config(sizes, ARCHITECTURES["deepseek_v2"]).entries
    assert entries["deepseek2.expert_shared_count"] == 2


def test_a_minimax_m3_rotates_what_the_share_of_a_head_says() -> None:
    """transformers writes `rotary_dim` into every config, and does not read it."""
    silent: dict[str, Any] = {"model_type": "minimax_m3", **SIZES, "head_dim": 128}
    assert read(silent).rotary_dim == 128
    assert read({**silent, "rotary_dim": 64, "partial_rotary_factor": 0.5}).rotary_dim == 64
    other = {**silent, "rotary_dim": 64}
    with pytest.raises(UnsupportedModelError, match="rotary_dim = 64"):
        read(other)
    with pytest.raises(UnsupportedModelError, match="rotary_dim = 64"):
        metadata_of_config({**other, "vocab_size": 32}, ARCHITECTURES["minimax_m3"])


def test_what_silent_sisters_of_gpt2_mean() -> None:
    sizes = {"n_embd": 64, "n_head": 4, "n_layer": 1}
    gpt2, bigcode = (read({"model_type": name, **sizes}) for name in ("gpt2", "gpt_bigcode"))
    assert (gpt2.max_positions, gpt2.intermediate_size, gpt2.tied) == (1024, 256, True)
    assert (bigcode.attention.num_kv_heads, bigcode.activation) == (1, "gelu_tanh")


def test_what_a_silent_falcon_starcoder2_and_phi3_mean() -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1}
    falcon = read({"model_type": "falcon", **sizes})
    assert (falcon.attention.num_kv_heads, falcon.max_positions) == (1, 2048)
    assert (falcon.intermediate_size, falcon.tied, falcon.attention_bias) == (256, True, False)
    starcoder2 = read({"model_type": "starcoder2", **sizes, "intermediate_size": 96})
    assert (starcoder2.attention.num_kv_heads, starcoder2.max_positions) == (2, 4096)
    phi3 = read({"model_type": "phi3", **sizes, "intermediate_size": 96})
    assert (phi3.attention.num_kv_heads, phi3.max_positions) == (4, 4096)
    assert phi3.norm_eps == pytest.approx(1e-5, rel=1e-6)
