"""MiMo: published configs, what stops a load, and layers that predict further tokens."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import DecoderConfig, load_model, read_config
from headrace.ops.interface import Ops
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.conversion.convert import write_gguf
from tests.models.cases import Session, prompt
from tests.tiny import tiny_checkpoint, tiny_config, to_tensor

HIDDEN, KV_WIDTH, FFN = 64, 32, 96
DRAFT = {
    **{f"{name}_layernorm.weight": (HIDDEN,)
       for name in ("token", "hidden", "final", "input", "post_attention")},
    "input_proj.weight": (HIDDEN, 2 * HIDDEN),
    **{f"self_attn.{letter}_proj.weight": (HIDDEN if letter in "qo" else KV_WIDTH, HIDDEN)
       for letter in "qkvo"},
    **{f"self_attn.{letter}_proj.bias": (HIDDEN if letter == "q" else KV_WIDTH,)
       for letter in "qkv"},
    "mlp.gate_proj.weight": (FFN, HIDDEN),
    "mlp.up_proj.weight": (FFN, HIDDEN),
    "mlp.down_proj.weight": (HIDDEN, FFN),
}  # fmt: skip
"""Tensors of the first layer that predicts, as the published folders name them."""


def read(config: dict[str, Any]) -> DecoderConfig:
    return read_config(
        Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
    )


def with_draft(prefix: str, **more: tuple[int, ...]) -> Checkpoint:
    checkpoint = tiny_checkpoint("mimo")
    tensors = dict(checkpoint.tensors)
    for name, shape in (DRAFT | more).items():
        tensors[f"{prefix}.{name}"] = to_tensor(f"{prefix}.{name}", np.ones(shape, "f4"), "F32")
    return replace(checkpoint, tensors=tensors)


def test_the_published_config_is_read(shared_assets: Path) -> None:
    folder = shared_assets / "model-configs" / "hf-config"
    stated = json.loads((folder / "XiaomiMiMo--MiMo-7B-Base_config.json").read_text("utf-8"))
    config = read(stated)
    shape = config.attention
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim) == (32, 8, 128)
    assert (config.num_layers, config.hidden_size, config.draft_layers) == (36, 4096, 1)
    assert not any(config.windows) and config.attention_bias and config.output_bias is False


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"attention_bias": False}, "attention_bias = False"),
        ({"use_mrope": True}, "use_mrope = True"),
        ({"num_nextn_predict_layers": 1 << 30}, "num_nextn_predict_layers = 1073741824"),
        ({"num_nextn_predict_layers": -1}, "num_nextn_predict_layers = -1"),
        ({"mtp_loss": 0.1}, "mtp_loss = 0.1"),
    ],
)
def test_what_is_not_implemented_stops_the_load(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config("mimo"), **change})


def test_layers_that_predict_are_known_by_name_and_not_run(reference: Ops) -> None:
    plain = load_model(tiny_checkpoint("mimo"), reference)
    whole = load_model(with_draft("model.mtp_layers.0"), reference)
    assert whole.weight_bytes == plain.weight_bytes
    ids = prompt(0)[:20]
    logits = [Session(model, reference).feed(ids) for model in (plain, whole)]
    assert np.array_equal(*logits)


@pytest.mark.parametrize(
    ("checkpoint", "words"),
    [
        (with_draft("model.mtp_layers.1"), r"mtp_layers\.1\."),
        (with_draft("model.layers.2"), r"layers\.2\."),
        (with_draft("model.mtp_layers.0", **{"gate.weight": (4, 4)}), r"mtp_layers\.0\.gate"),
    ],
)
def test_other_tensors_stop_the_load(checkpoint: Checkpoint, words: str, reference: Ops) -> None:
    with pytest.raises((CheckpointError, UnsupportedModelError), match=words):
        load_model(checkpoint, reference)


def test_gguf_has_no_names_for_layers_that_predict(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"mtp_layers\.0\.\w+.* has no name in GGUF"):
        write_gguf(with_draft("model.mtp_layers.0"), tmp_path / "m.gguf")
