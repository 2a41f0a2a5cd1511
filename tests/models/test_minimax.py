"""MiniMax-M2: published configs, what stops a load, and what its norms and choice change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import UnsupportedModelError
from headrace.models import DecoderConfig, Model, load_model, read_config
from headrace.models.blocks import ColumnNormAttention
from headrace.ops.experts import Routing
from headrace.ops.interface import Ops
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.gguf.metadata import metadata_of_config
from tests.models.cases import Session, prompt
from tests.models.make_goldens import COLUMN_STEP
from tests.models.test_parity import golden
from tests.tiny import tiny_checkpoint, tiny_config


def read(config: dict[str, Any]) -> DecoderConfig:
    return read_config(
        Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
    )


@pytest.mark.parametrize("name", ["M2.5", "M2.7"])
def test_published_configs_are_read(shared_assets: Path, name: str) -> None:
    path = shared_assets / "model-configs" / "hf-config" / f"MiniMaxAI--MiniMax-{name}_config.json"
    stated = json.loads(path.read_text(encoding="utf-8"))
    config = read(stated)
    assert stated.pop("quantization_config")["quant_method"] == "fp8"
    shape = config.attention
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim) == (48, 8, 128)
    assert (config.num_layers, config.hidden_size, config.rotary_dim) == (62, 3072, 64)
    assert config.experts is not None and config.experts.routing == Routing(256, 8, "sigmoid", True)
    assert config.experts.intermediate_size == 1536 and config.experts.layers == (True,) * 62
    entries = metadata_of_config(stated, ARCHITECTURES["minimax_m2"]).entries
    assert entries["minimax-m2.rope.dimension_count"] == 64
    assert entries["minimax-m2.expert_gating_func"] == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"use_qk_norm": False}, "use_qk_norm = False"),
        ({"qk_norm_type": "per_head"}, "qk_norm_type = 'per_head'"),
        ({"use_routing_bias": False}, "use_routing_bias = False"),
        ({"scoring_func": "softmax"}, "scoring_func = 'softmax'"),
        ({"shared_intermediate_size": 64}, "shared_intermediate_size = 64"),
        ({"attn_type_list": [1, 0]}, "attn_type_list"),
        ({"rotary_dim": 0}, "rotary_dim is 0"),
        ({"rotary_dim": 48}, "partial_rotary_factor = 1.5"),
        ({"partial_rotary_factor": 0.25}, "rotary_dim = 16"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok = 9"),
        ({"norm_topk_prob": True}, "norm_topk_prob = True"),
    ],
)
def test_what_is_not_implemented_stops_the_load(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config("minimax_m2"), **change})


def far_from_the_golden(name: str, model: Model, ops: Ops) -> bool:
    expected = golden(name)
    ids = prompt(int(expected["seed"])) + expected["greedy"].tolist()[:-1]
    logits = Session(model, ops).feed(ids)[:, ::COLUMN_STEP]
    return bool(np.abs(logits - expected["logits"]).max() > 0.01 * float(expected["scale"]))


def test_norms_are_over_all_heads_at_once(reference: Ops) -> None:
    seed = int(golden("minimax-m2")["seed"])
    model = load_model(tiny_checkpoint("minimax_m2", seed=seed), reference)
    assert not far_from_the_golden("minimax-m2", model, reference)

    class PerHead(ColumnNormAttention):
        """Attention whose norms are taken over each head."""

        per_head = True

    for layer in model._layers:
        layer.attention.__class__ = PerHead  # type: ignore[attr-defined]
    assert far_from_the_golden("minimax-m2", model, reference)
