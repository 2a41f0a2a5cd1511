"""gpt-oss: published configs, and what each of its rules changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.memory.expert_memory import plan_weights
from headrace.errors import ConfigError, UnsupportedModelError
from headrace.models import DecoderConfig, Model, load_model, read_config
from headrace.ops.experts import Routing
from headrace.ops.interface import Ops
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.gguf.metadata import metadata_of_config
from headrace.weights.open import open_checkpoint
from tests.models.cases import CASES, Session, prompt
from tests.models.make_goldens import COLUMN_STEP
from tests.models.test_parity import golden
from tests.tiny import tiny_checkpoint, tiny_config, write_tiny_gguf


def read(config: dict[str, Any]) -> DecoderConfig:
    return read_config(
        Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
    )


@pytest.mark.parametrize(("size", "layers", "experts"), [("20b", 24, 32), ("120b", 36, 128)])
def test_published_configs_are_read(
    shared_assets: Path, size: str, layers: int, experts: int
) -> None:
    path = shared_assets / "model-configs" / "hf-config" / f"openai--gpt-oss-{size}_config.json"
    stated = json.loads(path.read_text(encoding="utf-8"))
    config = read(stated)
    assert (config.num_layers, config.hidden_size, config.max_positions) == (layers, 2880, 131072)
    shape = config.attention
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim) == (64, 8, 64)
    assert config.windows == (128, 0) * (layers // 2)
    assert config.experts is not None and config.experts.intermediate_size == 2880
    assert config.experts.routing == Routing(experts, 4, "softmax_of_chosen", False)
    assert config.activation == "swiglu_clamped"
    rope = config.rope
    assert rope is not None and (rope.kind, rope.factor, rope.truncate) == ("yarn", 32.0, False)
    entries = metadata_of_config(stated, ARCHITECTURES["gpt_oss"]).entries
    assert entries["gpt-oss.attention.sliding_window"] == 128
    assert "gpt-oss.attention.sliding_window_pattern" not in entries


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"swiglu_limit": 5.0}, "swiglu_limit = 5.0"),
        ({"swiglu_alpha": 1.5}, "swiglu_alpha = 1.5"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"experts_per_token": 2}, "experts_per_token = 2"),
        ({"initial_context_length": 128}, "initial_context_length = 128"),
        ({"layer_types": ["full_attention", "chunked_attention"]}, "layer_types"),
        ({"layer_types": ["sliding_attention"] * 2, "sliding_window": None}, "layer_types"),
        ({"num_local_experts": 1 << 30}, "num_local_experts = 1073741824"),
        ({"num_experts_per_tok": 7}, "num_experts_per_tok = 7"),
        ({"rope_scaling": None}, "rope_scaling = None"),
        ({"quantization_config": {"quant_method": "hqq"}}, "quantization_config = 'hqq'"),
        (
            {"quantization_config": {"quant_method": "mxfp4", "bits": 8}},
            r"quantization_config\.bits = 8",
        ),
        ({"norm_topk_prob": True}, "norm_topk_prob = True"),
    ],
)
def test_what_is_not_implemented_stops_the_load(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config("gpt_oss"), **change})


def test_silence_means_what_transformers_means() -> None:
    sizes = {
        "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 8,
        "num_hidden_layers": 3, "rope_scaling": tiny_config("gpt_oss")["rope_scaling"],
    }  # fmt: skip
    config = read({"model_type": "gpt_oss", **sizes})
    assert (config.attention.num_kv_heads, config.attention.head_dim) == (8, 64)
    assert config.windows == (128, 0, 128)
    assert config.experts is not None and config.experts.routing.num_experts == 128
    assert config.experts.routing.experts_per_token == 4
    assert config.rope is not None and config.rope.theta == 150000.0


def far_from_the_golden(model: Model, ops: Ops) -> bool:
    expected = golden("gpt-oss")
    ids = prompt(int(expected["seed"])) + expected["greedy"].tolist()[:-1]
    logits = Session(model, ops).feed(ids)[:, ::COLUMN_STEP]
    return bool(np.abs(logits - expected["logits"]).max() > 0.01 * float(expected["scale"]))


def test_sinks_and_the_clamped_activation_are_not_lost_in_the_tolerance(reference: Ops) -> None:
    checkpoint = tiny_checkpoint("gpt_oss", seed=int(golden("gpt-oss")["seed"]))
    assert not far_from_the_golden(load_model(checkpoint, reference), reference)
    without_sinks = load_model(checkpoint, reference)
    for layer in without_sinks._layers:
        layer.attention.sinks = None  # type: ignore[attr-defined]
    assert far_from_the_golden(without_sinks, reference)
    unclamped = load_model(checkpoint, reference)
    for layer in unclamped._layers:
        mlp = layer.mlp  # type: ignore[attr-defined]
        mlp.mlp = replace(mlp.mlp, activation="silu")
    assert far_from_the_golden(unclamped, reference)


def test_rows_of_gate_and_up_lie_in_turn(reference: Ops) -> None:
    """A reader that took the rows of gate first, as other families have them, would be far off."""
    checkpoint = tiny_checkpoint("gpt_oss", seed=int(golden("gpt-oss")["seed"]))
    tensors = dict(checkpoint.tensors)
    for name, gate in checkpoint.tensors.items():
        if not name.endswith("gate_proj.weight"):
            continue
        up = checkpoint.tensors[name.replace("gate_proj", "up_proj")]
        in_turn = np.stack([gate.data, up.data], axis=1).reshape(2 * len(gate.data), -1)
        halves = np.split(in_turn, 2)
        tensors[name] = replace(gate, data=halves[0])
        tensors[up.name] = replace(up, data=halves[1])
    changed = load_model(replace(checkpoint, tensors=tensors), reference)
    assert far_from_the_golden(changed, reference)


@pytest.mark.torch
@pytest.mark.parametrize("change", [{"limit": 6.0}, {"alpha": 1.5}])
def test_limit_and_slope_of_the_activation_are_not_lost_in_the_tolerance(
    change: dict[str, float],
) -> None:
    """In transformers, which has them as numbers; here they are the activation's own."""
    pytest.importorskip("torch", reason="changes a model of transformers")
    pytest.importorskip("transformers", reason="changes a model of transformers")
    from tests.models.hf import full_logits, hf_model

    expected = golden("gpt-oss")
    seed = int(expected["seed"])
    model = hf_model(CASES["gpt-oss"], seed)
    for layer in model.model.layers:
        for name, value in change.items():
            assert hasattr(layer.mlp.experts, name)
            setattr(layer.mlp.experts, name, value)
    logits = full_logits(model, prompt(seed) + expected["greedy"].tolist()[:-1])
    difference = np.abs(logits[:, ::COLUMN_STEP] - expected["logits"]).max()
    assert difference > 0.01 * float(expected["scale"])


def test_a_gguf_file_says_what_llama_cpp_s_converter_says(tmp_path: Path) -> None:
    entries = metadata_of_config(tiny_config("gpt_oss"), ARCHITECTURES["gpt_oss"]).entries
    stated = {key.removeprefix("gpt-oss."): value for key, value in entries.items()}
    assert stated == {
        "general.architecture": "gpt-oss",
        "context_length": 512,
        "embedding_length": 64,
        "block_count": 2,
        "feed_forward_length": 32,
        "expert_feed_forward_length": 32,
        "expert_count": 6,
        "expert_used_count": 3,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 32,
        "attention.value_length": 32,
        "attention.layer_norm_rms_epsilon": pytest.approx(1e-5),
        "attention.sliding_window": 24,
        "rope.dimension_count": 32,
        "rope.freq_base": 150000.0,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 8.0,
        "rope.scaling.original_context_length": 64,
        "rope.scaling.yarn_beta_fast": 32.0,
        "rope.scaling.yarn_beta_slow": 1.0,
        "vocab_size": 288,
    }
    stored = open_checkpoint(write_tiny_gguf(tmp_path, "gpt_oss"))
    assert stored.config["rope_scaling"]["truncate"] is False


def test_bounds_of_yarn_that_gguf_cannot_state_are_refused() -> None:
    truncated = {**tiny_config("gpt_oss")["rope_scaling"], "truncate": True}
    with pytest.raises(UnsupportedModelError, match="yarn with truncate true"):
        metadata_of_config(tiny_config("gpt_oss", rope_scaling=truncated), ARCHITECTURES["gpt_oss"])


def test_biases_are_in_no_cache_of_experts(tmp_path: Path) -> None:
    """The kernels hold those of all experts; what is cached are matrices, gate and up as one."""
    path = write_tiny_gguf(tmp_path, "gpt_oss")
    checkpoint = open_checkpoint(path)
    matrices = [
        tensor
        for name, tensor in checkpoint.tensors.items()
        if ".experts." in name and name.endswith(".weight")
    ]
    assert len(matrices) == 36
    plan = plan_weights(checkpoint, EngineConfig(model=str(path)))
    assert plan.expert_bytes == sum(tensor.nbytes for tensor in matrices)
    small = EngineConfig(model=str(path), expert_cache_memory_bytes=1)
    with pytest.raises(ConfigError, match=f"takes {64 * 64 * 4} bytes"):
        plan_weights(checkpoint, small)
