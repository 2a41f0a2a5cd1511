"""Dense families: what their configs say, and what of it stops a load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import UnsupportedModelError
from headrace.models import DecoderConfig, load_model, read_config
from headrace.models.rope import RopeConfig
from headrace.ops.interface import Ops
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from tests.models.cases import Session, prompt
from tests.tiny import tiny_checkpoint, tiny_config
from tests.tiny_families import ministral3

SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 16,
}  # fmt: skip


def read(config: dict[str, Any]) -> DecoderConfig:
    return read_config(
        Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
    )


def rope_with(**changes: Any) -> dict[str, Any]:
    """The rope of a tiny Ministral 3 with changes; ... removes a key."""
    stated = {**ministral3.config()["rope_parameters"], **changes}
    return {"rope_parameters": {key: value for key, value in stated.items() if value is not ...}}


@pytest.mark.parametrize(
    ("family", "change", "words"),
    [
        ("ministral3", rope_with(llama_4_scaling_beta=...), "llama_4_scaling_beta is missing"),
        ("ministral3", rope_with(llama_4_scaling_beta=0.0), "llama_4_scaling_beta is 0.0"),
        ("ministral3", rope_with(rope_type="linear"), "rope_type = 'linear'"),
        ("ministral3", rope_with(max_position_embeddings=64), "max_position_embeddings = 64"),
        ("ministral3", rope_with(spread=2), "rope_parameters.spread = 2"),
        ("ministral3", {"original_max_position_embeddings": 8}, "original_max_position_embeddings"),
        ("ministral3", {"attention_bias": True}, "attention_bias = True"),
        ("ministral3", {"layer_types": ["sliding_attention"] * 2}, "layer_types"),
        ("ministral3", {"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ("gemma", {"hidden_act": "silu"}, "hidden_act = 'silu'"),
        ("gemma", {"hidden_activation": "gelu"}, "hidden_activation = 'gelu'"),
        ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention = True"),
        ("gemma", {"sliding_window": 64}, "sliding_window = 64"),
        ("olmo3", {"rope_theta": 10000.0}, "rope_theta = 10000.0"),
        ("olmo3", {"rope_parameters": {"rope_type": "default"}}, "rope_parameters"),
        ("olmo3", {"sliding_window": None}, "sliding_window = None"),
        ("olmo3", {"layer_types": ["full_attention"]}, "layer_types"),
        ("olmo3", {"clip_qkv": 8.0}, "clip_qkv = 8.0"),
        ("seed_oss", {"hidden_act": "relu2"}, "hidden_act = 'relu2'"),
        ("seed_oss", {"sliding_window": 64}, "sliding_window = 64"),
        ("arcee", {"hidden_act": "silu"}, "hidden_act = 'silu'"),
        ("arcee", {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        ("ernie4_5", {"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ("ernie4_5", {"mlp_bias": True}, "mlp_bias = True"),
        ("ernie4_5", {"sliding_window": 64}, "sliding_window = 64"),
        ("gpt_neox", {"hidden_act": "relu"}, "hidden_act = 'relu'"),
        ("gpt_neox", {"rope_theta": 1e6}, "rope_theta = 1000000.0"),
        ("gpt_neox", {"rotary_pct": 1.5}, "partial_rotary_factor = 1.5"),
        ("gpt_neox", {"num_attention_heads": 3}, "hidden_size = 64"),
        ("stablelm", {"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ("stablelm", {"use_parallel_residual": 1}, "use_parallel_residual is 1"),
        ("internlm2", {"bias": True}, "bias = True"),
        ("internlm2", {"sliding_window": 64}, "sliding_window = 64"),
        ("internlm3", {"mlp_bias": True}, "mlp_bias = True"),
        ("internlm3", {"attention_bias": True}, "attention_bias = True"),
        ("internlm3", {"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
    ],
)
def test_what_is_not_implemented_stops_the_load(
    family: str, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config(family), **change})


def test_olmo3_has_windows_in_three_of_four_layers_and_scales_the_rope_of_the_others() -> None:
    """Keys as published for the 7B."""
    scaling = {
        "attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0,
        "original_max_position_embeddings": 8192, "rope_type": "yarn",
    }  # fmt: skip
    config = read(
        {"model_type": "olmo3", **SIZES, "num_hidden_layers": 8, "rope_scaling": scaling,
         "rope_theta": 500000, "sliding_window": 4096, "max_position_embeddings": 65536}
    )  # fmt: skip
    assert config.windows == (4096, 4096, 4096, 0) * 2
    assert config.local_rope == RopeConfig(5e5)
    assert config.rope is not None and config.rope.kind == "yarn"
    assert config.rope.attention_factor == pytest.approx(1.2079441541679836, rel=1e-6)


def test_biases_of_internlm3_and_seed_oss() -> None:
    both = read(tiny_config("internlm3", qkv_bias=True, bias=False))
    assert (both.attention_bias, both.output_bias, both.mlp_bias) == (True, False, False)
    theirs = read(tiny_config("internlm3", qkv_bias=None, bias=None, attention_bias=True))
    assert (theirs.attention_bias, theirs.mlp_bias) == (True, None)
    seed = read(tiny_config("seed_oss", attention_out_bias=None))
    assert (seed.attention_bias, seed.output_bias) == (True, False)
    silent = read(tiny_config("seed_oss", attention_bias=None, attention_out_bias=None))
    assert (silent.attention_bias, silent.output_bias) == (None, None)


def test_queries_before_the_length_are_not_scaled(reference: Ops) -> None:
    """Bit for bit, with company beyond it or without: a factor of 1 changes nothing."""
    checkpoint = tiny_checkpoint("ministral3")
    model = load_model(checkpoint, reference)
    alone = Session(model, reference).feed(prompt(0)[:24])
    assert np.array_equal(Session(model, reference).feed(prompt(0)[:60])[:24], alone)
