"""Mistral, Qwen2, SmolLM3 and Granite: what their configs say, and what of it stops a load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import UnsupportedModelError
from headrace.models import DecoderConfig, load_model, read_config
from headrace.ops.interface import Ops
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from tests.tiny import tiny_checkpoint, tiny_config

WIDTHS = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 32,
}  # fmt: skip


def read(config: dict[str, Any]) -> DecoderConfig:
    return read_config(
        Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
    )


@pytest.mark.parametrize(
    ("stated", "window"), [({}, 4096), ({"sliding_window": None}, 0), ({"sliding_window": 7}, 7)]
)
def test_a_mistral_that_is_silent_has_a_window(
    stated: dict[str, Any], window: int, reference: Ops
) -> None:
    config = {key: v for key, v in tiny_config("mistral").items() if key != "sliding_window"}
    read_as = read({**config, **stated})
    assert read_as.windows == ((window, window) if window else ())
    checkpoint = tiny_checkpoint("mistral", sliding_window=window or None)
    (group,) = load_model(checkpoint, reference).cache_layout.groups
    assert group.window == window


@pytest.mark.parametrize(
    ("stated", "windows"),
    [
        ({}, (0, 0, 0)),
        ({"use_sliding_window": False, "sliding_window": 24}, (0, 0, 0)),
        ({"use_sliding_window": True, "sliding_window": 24}, (0, 0, 0)),
        ({"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1}, (0, 24, 24)),
        ({"use_sliding_window": True, "sliding_window": None, "max_window_layers": 1}, (0, 0, 0)),
        ({"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 0,
          "layer_types": ["full_attention", "sliding_attention", "full_attention"]}, (0, 24, 0)),
    ],
)  # fmt: skip
def test_upper_layers_of_qwen2_have_windows_where_they_are_used(
    stated: dict[str, Any], windows: tuple[int, ...]
) -> None:
    config = tiny_config("qwen2", num_hidden_layers=3)
    assert read({**config, **stated}).windows == windows


def test_windows_of_a_qwen2_that_is_silent() -> None:
    config = {"model_type": "qwen2", **WIDTHS, "num_hidden_layers": 30}
    assert read({**config, "max_window_layers": 1}).windows == (0,) * 30
    assert read({**config, "use_sliding_window": True}).windows == (0,) * 28 + (4096,) * 2


def test_layers_of_qwen2_without_a_window_keep_everything(reference: Ops) -> None:
    """Blocks may go only when no layer of theirs reads them again."""
    some = tiny_checkpoint("qwen2", use_sliding_window=True, sliding_window=24, max_window_layers=1)
    every = tiny_checkpoint(
        "qwen2", use_sliding_window=True, sliding_window=24, max_window_layers=0
    )
    found = [
        [group.window for group in load_model(checkpoint, reference).cache_layout.groups]
        for checkpoint in (some, every)
    ]
    assert found == [[0, 24], [24]]


@pytest.mark.parametrize(
    ("stated", "rotates", "windows"),
    [
        ({}, (True, True, True, False, True), (0,) * 5),
        ({"no_rope_layer_interval": 2}, (True, False, True, False, True), (0,) * 5),
        ({"no_rope_layers": [0, 1, 1, 1, 0, 1, 1]}, (False, True, True, True, False), (0,) * 5),
        ({"use_sliding_window": True, "sliding_window": 9}, (True, True, True, False, True),
         (0, 0, 0, 9, 0)),
    ],
)  # fmt: skip
def test_layers_of_smollm3_without_positions(
    stated: dict[str, Any], rotates: tuple[bool, ...], windows: tuple[int, ...]
) -> None:
    config = read({**tiny_config("smollm3", num_hidden_layers=5), **stated})
    assert (config.rotates, config.windows) == (rotates, windows)


def test_the_scores_of_granite_are_scaled_by_its_multiplier() -> None:
    silent = read({"model_type": "granite", **WIDTHS})
    assert silent.attention.scale == 1.0
    scaled = read(tiny_config("granite", logits_scaling=8.0, attention_multiplier=0.015625))
    assert scaled.attention.scale == 0.015625
    assert scaled.logit_scale == 1 / 8
    assert (scaled.embedding_scale, scaled.residual_scale) == (0.5, pytest.approx(0.6))


def test_qwen2_5_reaches_as_far_as_its_yarn() -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    config = tiny_config("qwen2", max_position_embeddings=32768, rope_scaling=scaling)
    assert read(config).max_positions == 131072


# Keys of config.json as published, by the model they are of.
PUBLISHED: dict[str, dict[str, Any]] = {
    "Mistral-7B-v0.1": {
        "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "hidden_act": "silu", "max_position_embeddings": 32768, "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": False,
        "vocab_size": 32000, "use_cache": True, "initializer_range": 0.02,
        "transformers_version": "4.34.0.dev0", "torch_dtype": "bfloat16",
    },
    "Mistral-Nemo-Instruct-2407": {
        "model_type": "mistral", "hidden_size": 5120, "intermediate_size": 14336,
        "head_dim": 128, "num_hidden_layers": 40, "num_attention_heads": 32,
        "num_key_value_heads": 8, "hidden_act": "silu", "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": None,
        "tie_word_embeddings": False, "vocab_size": 131072, "attention_dropout": 0.0,
    },
    "Qwen2.5-7B-Instruct": {
        "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
        "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
        "hidden_act": "silu", "max_position_embeddings": 32768, "max_window_layers": 28,
        "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072,
        "use_sliding_window": False, "tie_word_embeddings": False, "vocab_size": 152064,
    },
    "SmolLM3-3B": {
        "model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008,
        "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
        "hidden_act": "silu", "max_position_embeddings": 65536, "max_window_layers": 28,
        "rms_norm_eps": 1e-06, "rope_theta": 5000000.0, "rope_scaling": None,
        "sliding_window": None, "use_sliding_window": False, "vocab_size": 128256,
        "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0] * 9, "pretraining_tp": 2,
        "layer_types": ["full_attention"] * 36, "attention_bias": False, "mlp_bias": False,
    },
    "granite-3.1-2b-instruct": {
        "model_type": "granite", "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
        "hidden_act": "silu", "max_position_embeddings": 131072, "rms_norm_eps": 1e-05,
        "rope_theta": 5000000.0, "rope_scaling": None, "attention_bias": False, "mlp_bias": False,
        "attention_multiplier": 0.015625, "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22, "logits_scaling": 8.0, "tie_word_embeddings": True,
        "vocab_size": 49155,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_configs_as_published_are_read(name: str) -> None:
    published = PUBLISHED[name]
    config = read(published)
    heads, hidden = published["num_attention_heads"], published["hidden_size"]
    assert config.attention.head_dim == published.get("head_dim", hidden // heads)
    assert config.num_layers == published["num_hidden_layers"]
    assert config.max_positions == published["max_position_embeddings"]


@pytest.mark.parametrize(
    ("family", "change", "words"),
    [
        ("mistral", {"attention_bias": True}, "attention_bias = True"),
        ("mistral", {"sliding_window": 0}, "sliding_window is 0"),
        ("mistral", {"layer_types": ["sliding_attention", "full_attention"]}, "layer_types"),
        ("mistral", {"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ("qwen2", {"attention_bias": False}, "attention_bias = False"),
        ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ("qwen2", {"use_mrope": True}, "use_mrope = True"),
        ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers"),
        ("smollm3", {"no_rope_layers": [1, 2]}, "no_rope_layers"),
        ("smollm3", {"layer_types": ["sliding_attention"] * 2}, "layer_types"),
        ("granite", {"residual_multiplier": 0.0}, "residual_multiplier is 0.0"),
        ("granite", {"num_local_experts": 4}, "num_local_experts = 4"),
    ],
)
def test_what_is_not_implemented_stops_the_load(
    family: str, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config(family), **change})
