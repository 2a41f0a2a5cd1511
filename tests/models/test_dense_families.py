"""Dense families: what their configs say, and what of it stops a load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import UnsupportedModelError
from headrace.models import DecoderConfig, load_model, read_config
from headrace.models.query_scaling import QueryScaling
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
    ],
)
def test_what_is_not_implemented_stops_the_load(
    family: str, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config(family), **change})


def test_what_a_silent_ministral3_means() -> None:
    """As transformers' class has it, the keys of rope all together."""
    config = read({"model_type": "ministral3", **SIZES})
    assert (config.attention.head_dim, config.attention.num_kv_heads) == (128, 8)
    assert (config.max_positions, config.windows) == (262144, ())
    assert config.norm_eps == pytest.approx(1e-5, rel=1e-6)
    assert config.rope == RopeConfig(1e6, "yarn", 16.0, original_max_positions=16384)
    assert config.query_scaling == QueryScaling(0.1, 16384)
    null = read({"model_type": "ministral3", **SIZES, "head_dim": None})
    assert null.attention.head_dim == 4


def test_queries_before_the_length_are_not_scaled(reference: Ops) -> None:
    """Bit for bit, with company beyond it or without: a factor of 1 changes nothing."""
    checkpoint = tiny_checkpoint("ministral3")
    model = load_model(checkpoint, reference)
    alone = Session(model, reference).feed(prompt(0)[:24])
    assert np.array_equal(Session(model, reference).feed(prompt(0)[:60])[:24], alone)
