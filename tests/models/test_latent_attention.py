"""Latent attention: published configs, what the cache holds, rules, and what stops a load."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.limits import Limits
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.errors import (
    CheckpointError,
    ConfigError,
    ContextLengthError,
    UnsupportedModelError,
)
from headrace.models import DecoderConfig, Model, load_model, read_config
from headrace.models.latent_attention import LatentConfig
from headrace.models.layer_cache import cache_layout
from headrace.models.rope import rotation
from headrace.ops.experts import Routes, Routing
from headrace.ops.interface import Ops
from headrace.ops.kv import KVCodec
from headrace.ops.reference import ReferenceOps
from headrace.plan.memory.kv_cache import KvCache, KvKind
from headrace.plan.model.model_shape import shape_of_layers
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.gguf.metadata import metadata_of_config
from headrace.weights.model_config.text_part import text_config
from tests.models.cases import CASES, Session, prompt
from tests.models.make_goldens import COLUMN_STEP
from tests.models.test_parity import golden
from tests.tiny import tiny_checkpoint, tiny_config, to_tensor
from tests.tiny_families import tiny_family

KIMI_SCALE = float(np.float32(2.827))
LATENT = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_k2")

YARN = {
    "type": "yarn", "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707,
    "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096,
}  # fmt: skip
V2_LITE = {
    "model_type": "deepseek_v2", "attention_bias": False, "aux_loss_alpha": 0.001,
    "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048,
    "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840,
    "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64,
    "n_shared_experts": 2, "norm_topk_prob": False, "num_attention_heads": 16,
    "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16,
    "pretraining_tp": 1, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-06, "rope_scaling": YARN, "rope_theta": 10000,
    "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": True,
    "tie_word_embeddings": False, "topk_group": 1, "topk_method": "greedy", "v_head_dim": 128,
    "vocab_size": 102400,
}  # fmt: skip


def read(config: dict[str, Any]) -> DecoderConfig:
    return read_config(
        Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
    )


def published(assets: Path, name: str) -> dict[str, Any]:
    """A config as published, without what it says of its quantisation."""
    path = assets / "model-configs" / "hf-config" / f"{name}_config.json"
    stated: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for part in (stated, stated.get("text_config", {})):
        part.pop("quantization_config", None)
    return stated


@pytest.mark.parametrize(
    ("name", "heads", "routing", "layers", "positions", "mscale"),
    [
        ("deepseek-ai--DeepSeek-V3", 128,
         Routing(256, 8, "sigmoid", True, 1e-20, 2.5, 8, 4, "top2"), 61, 163840, 40),
        ("deepseek-ai--DeepSeek-V3.2", 128,
         Routing(256, 8, "sigmoid", True, 1e-20, 2.5, 8, 4, "top2"), 61, 2048, 40),
        ("moonshotai--Kimi-K2-Instruct", 64,
         Routing(384, 8, "sigmoid", True, 1e-20, KIMI_SCALE, 1, 1, "top2"), 61, 131072, 32),
        ("moonshotai--Kimi-K2.5", 64,
         Routing(384, 8, "sigmoid", True, 1e-20, KIMI_SCALE, 1, 1, "top2"), 61, 262144, 64),
        ("nvidia--Kimi-K2.6-NVFP4", 64,
         Routing(384, 8, "sigmoid", True, 1e-20, KIMI_SCALE, 1, 1, "top2"), 61, 262144, 64),
        ("zai-org--GLM-5", 64,
         Routing(256, 8, "sigmoid", True, 1e-20, 2.5, 1, 1, "top2"), 78, 2048, 1),
        ("zai-org--GLM-5.2", 64,
         Routing(256, 8, "sigmoid", True, 1e-20, 2.5, 1, 1, "top2"), 78, 2048, 1),
        # Its layer_types have the name that transformers gave such layers before.
        ("nvidia--GLM-5.2-NVFP4", 64,
         Routing(256, 8, "sigmoid", True, 1e-20, 2.5, 1, 1, "top2"), 78, 2048, 1),
    ],
)  # fmt: skip
def test_published_configs_are_read(
    shared_assets: Path, name: str, heads: int, routing: Routing, layers: int, positions: int,
    mscale: int,
) -> None:  # fmt: skip
    stated = text_config(published(shared_assets, name))
    config = read(stated)
    shape = config.attention
    assert (shape.num_heads, shape.num_kv_heads) == (heads, 1)
    assert (shape.head_dim, shape.value_dim, shape.latent) == (576, 512, True)
    width = stated["qk_nope_head_dim"] + 64
    assert shape.scale == pytest.approx(width**-0.5 * (0.1 * math.log(mscale) + 1) ** 2)
    assert config.rotary_dim == 64 and config.max_positions == positions
    assert config.experts is not None and config.experts.routing == routing
    dense = stated["first_k_dense_replace"]
    assert config.experts.layers == (False,) * dense + (True,) * (layers - dense)
    entries = metadata_of_config(stated, ARCHITECTURES[stated["model_type"]]).entries
    of = {key.partition(".")[2]: value for key, value in entries.items()}
    assert (of["attention.key_length"], of["attention.value_length"]) == (576, 512)
    assert of["attention.key_length_mla"] == width
    assert of["expert_gating_func"] == 2 and of["rope.dimension_count"] == 64


def test_the_lite_model_is_read() -> None:
    config = read(V2_LITE)
    assert isinstance(config, LatentConfig) and config.widths.query is None
    assert config.experts is not None
    assert config.experts.routing == Routing(64, 6, "softmax", False)
    assert config.experts.shared_size == 2 * 1408
    scale = 192**-0.5 * (0.1 * 0.707 * math.log(40) + 1) ** 2
    assert config.attention.scale == pytest.approx(scale, rel=1e-6)
    assert config.rope is not None and config.rope.attention_factor == 1.0
    entries = metadata_of_config(V2_LITE, ARCHITECTURES["deepseek_v2"]).entries
    assert "deepseek2.attention.q_lora_rank" not in entries
    assert entries["deepseek2.rope.scaling.yarn_log_multiplier"] == pytest.approx(0.0707)


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("deepseek-ai--DeepSeek-V3", 61), ("deepseek-ai--DeepSeek-V3.2", 61),
        ("moonshotai--Kimi-K2-Instruct", 61), ("moonshotai--Kimi-K2.5", 61),
        ("zai-org--GLM-5", 78), ("zai-org--GLM-5.2", 78),
    ],
)  # fmt: skip
@pytest.mark.parametrize("codecs", [("f32", "f32"), ("bf16", "bf16"), ("f32", "bf16")])
def test_the_cache_holds_576_values_a_token_as_the_planner_says(
    shared_assets: Path, codecs: tuple[KVCodec, KVCodec], name: str, layers: int
) -> None:
    """One row of latent and rotated key in the kind of keys; no values beside it."""
    stated = published(shared_assets, name)
    taken = cache_layout(read(text_config(stated)).layer_caches)
    spec = taken.spec(16, 1, *codecs)
    bytes_of_value = {"f32": 4, "bf16": 2}
    block_bytes = taken.num_tables * spec.block_bytes
    assert block_bytes == 16 * layers * 576 * bytes_of_value[codecs[0]]
    keys, values = (KvKind(codec, 8 * bytes_of_value[codec], "") for codec in codecs)
    planned = KvCache(shape_of_layers(stated, name, "a config"), keys, values)
    assert planned.bytes_per_token * 16 == block_bytes
    # And what two requests of 100 and of 17 tokens take, in whole blocks.
    assert planned.request_bytes(100) + planned.request_bytes(17) == (7 + 2) * block_bytes


def test_glm_5_2_as_nvidia_states_it_is_the_vendors(shared_assets: Path) -> None:
    """It has the kinds of layers by their older name, and the experts under two names."""
    stated = published(shared_assets, "nvidia--GLM-5.2-NVFP4")
    assert read(stated) == read(published(shared_assets, "zai-org--GLM-5.2"))
    entries = metadata_of_config(stated, ARCHITECTURES["glm_moe_dsa"]).entries
    assert entries["glm-dsa.expert_count"] == 256


def test_quantised_folders_are_read_and_others_refused_by_the_name_of_the_kind(
    shared_assets: Path,
) -> None:
    path = shared_assets / "model-configs" / "hf-config" / "deepseek-ai--DeepSeek-V3_config.json"
    stated = json.loads(path.read_text(encoding="utf-8"))
    assert read(stated).num_layers == 61
    stated["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    assert read(stated).num_layers == 61
    stated["quantization_config"]["quant_algo"] = "INT4_AWQ"
    with pytest.raises(UnsupportedModelError, match="quantization_config = 'INT4_AWQ'"):
        read(stated)


def test_kinds_of_layers_that_no_version_names_are_refused() -> None:
    kinds = ["indexed_attention", "deepseek_sparse_attention", "full_attention"]
    with pytest.raises(UnsupportedModelError, match="layer_types"):
        read(tiny_config("glm_moe_dsa", layer_types=kinds))
    kinds[-1] = "indexed_attention"
    assert read(tiny_config("glm_moe_dsa", layer_types=kinds)).num_layers == 3


@pytest.mark.parametrize("family", ["deepseek_v32", "glm_moe_dsa"])
def test_requests_beyond_index_topk_are_refused_by_name(family: str, reference: Ops) -> None:
    checkpoint = tiny_checkpoint(family, index_topk=100)
    assert load_model(checkpoint, reference).max_positions == 100
    with pytest.raises(ConfigError, match=r"index_topk.*sparse attention is not run"):
        load_model(checkpoint, reference, max_positions=101)
    assert read(tiny_config(family, index_topk=4096)).max_positions == 512
    assert read(tiny_config(family, index_topk=4096)).length_cause == ""


@pytest.mark.parametrize(("asked", "named"), [(None, True), (100, True), (64, False)])
def test_a_long_request_is_refused_by_what_keeps_it_short(
    asked: int | None, named: bool, reference: Ops
) -> None:
    model = load_model(tiny_checkpoint("deepseek_v32", index_topk=100), reference)
    config = EngineConfig(max_model_len=asked, num_gpu_blocks_override=32, block_size=16)
    core = EngineCore(model, reference, config, num_tokens=200)
    with pytest.raises(ContextLengthError, match="maximum context length is") as refused:
        core.submit(Submit("long", [1] * 101, SamplingParams(max_tokens=4)))
    assert ("beyond 100 tokens (index_topk)" in str(refused.value)) == named
    assert Limits.of(core.info(), 5).length_cause == core.limits.length_cause


@pytest.mark.parametrize(
    ("family", "change", "words"),
    [
        ("deepseek_v3", {"num_key_value_heads": 2}, "num_key_value_heads = 2"),
        ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func = 'softmax'"),
        ("deepseek_v3", {"topk_method": "greedy"}, "topk_method = 'greedy'"),
        ("deepseek_v3", {"moe_layer_freq": 2}, "moe_layer_freq = 2"),
        ("deepseek_v3", {"qk_rope_head_dim": 15}, "qk_rope_head_dim = 15"),
        ("deepseek_v3", {"qk_head_dim": 40}, "qk_head_dim = 40"),
        ("deepseek_v3", {"n_group": 3}, "n_group = 3"),
        ("deepseek_v3", {"topk_group": 3}, "topk_group = 3"),
        ("deepseek_v3", {"first_k_dense_replace": 4}, "first_k_dense_replace = 4"),
        ("deepseek_v3", {"n_shared_experts": 99}, "n_shared_experts = 99"),
        ("deepseek_v3", {"num_nextn_predict_layers": 17}, "num_nextn_predict_layers = 17"),
        ("deepseek_v3", {"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ("deepseek_v3", {"kv_lora_rank": 2**30}, "kv_lora_rank = 1073741824"),
        ("deepseek_v3", {"q_lora_rank": 0}, "q_lora_rank is 0"),
        ("deepseek_v3", {"n_routed_experts": 10**9}, "n_routed_experts = 1000000000"),
        ("deepseek_v3", {"index_topk": 64}, "index_topk"),
        ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob = True"),
        ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method = 'noaux_tc'"),
        ("deepseek_v2", {"scoring_func": "sigmoid"}, "scoring_func = 'sigmoid'"),
        ("deepseek_v32", {"rope_interleave": False}, "rope_interleave = False"),
        ("deepseek_v32", {"index_topk": 0}, "index_topk is 0"),
        ("deepseek_v32", {"layer_types": ["full_attention"] * 3}, "layer_types"),
        ("glm_moe_dsa", {"mlp_layer_types": ["sparse"] * 3}, "mlp_layer_types"),
        ("glm_moe_dsa", {"indexer_rope_interleave": False}, "indexer_rope_interleave = False"),
        ("glm_moe_dsa", {"index_colour": 1}, "index_colour"),
        ("glm_moe_dsa", {"num_experts": 3}, "num_experts = 3"),
    ],
)
def test_what_is_not_implemented_stops_the_load(
    family: str, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config(family), **change})


def test_widths_that_no_tensor_has_take_no_memory(reference: Ops) -> None:
    """Neither an order of rows nor a table of rotations is made of it."""
    checkpoint = tiny_checkpoint("deepseek_v3")
    hostile = replace(checkpoint, config={**checkpoint.config, "qk_nope_head_dim": 2**28})
    with pytest.raises(UnsupportedModelError, match=r"qk_nope_head_dim = .*1 to 8192"):
        load_model(hostile, reference)
    wide = replace(checkpoint, config={**checkpoint.config, "qk_nope_head_dim": 8000})
    with pytest.raises(CheckpointError, match=r"q_b_proj.weight has shape \[192, 32\]"):
        load_model(wide, reference)


@pytest.mark.parametrize("family", LATENT)
def test_layers_of_drafts_and_indexers_are_set_aside(family: str, reference: Ops) -> None:
    """Known by name, not loaded; a name that no such layer has stops the load."""
    config = tiny_config(family, num_nextn_predict_layers=1)
    deeper = tiny_family(family).shapes({**config, "num_hidden_layers": 4})
    plain = tiny_checkpoint(family, num_nextn_predict_layers=1)
    extra = {
        name: to_tensor(name, np.zeros(shape, np.float32), "F32")
        for name, shape in deeper.items()
        if name.startswith("model.layers.3.")
    }
    at = "model.layers.3"
    for name, shape in {"eh_proj": (64, 128), "enorm": (64,), "shared_head.norm": (64,)}.items():
        extra[f"{at}.{name}.weight"] = to_tensor(
            f"{at}.{name}.weight", np.zeros(shape, np.float32), "F32"
        )
    model = load_model(replace(plain, tensors={**plain.tensors, **extra}), reference)
    alone = load_model(tiny_checkpoint(family), reference)
    assert model.weight_bytes == alone.weight_bytes
    ids = prompt(0)[:12]
    assert (Session(model, reference).feed(ids) == Session(alone, reference).feed(ids)).all()
    strange = to_tensor(f"{at}.strange.weight", np.zeros((4,), np.float32), "F32")
    tensors = {**plain.tensors, **extra, strange.name: strange}
    with pytest.raises(UnsupportedModelError, match="strange"):
        load_model(replace(plain, tensors=tensors), reference)


def far_from_the_golden(name: str, model: Model, ops: Ops) -> bool:
    expected: dict[str, Any] = dict(golden(name))
    ids = prompt(int(expected["seed"])) + expected["greedy"].tolist()[:-1]
    logits = Session(model, ops).feed(ids)[:, ::COLUMN_STEP]
    return bool(np.abs(logits - expected["logits"]).max() > 0.01 * float(expected["scale"]))


def golden_model(name: str, ops: Ops) -> Model:
    case = CASES[name]
    return load_model(
        tiny_checkpoint(case.family, seed=int(golden(name)["seed"]), **case.shape), ops
    )


def test_the_scale_is_of_a_head_as_trained_and_not_of_a_row_of_the_cache(reference: Ops) -> None:
    model = golden_model("deepseek-v3-plain", reference)
    assert not far_from_the_golden("deepseek-v3-plain", model, reference)
    for layer in model._layers:
        attention = layer.attention  # type: ignore[attr-defined]
        attention.shape = replace(attention.shape, scale=attention.shape.head_dim**-0.5)
    assert far_from_the_golden("deepseek-v3-plain", model, reference)


def test_the_latent_is_not_rotated(reference: Ops) -> None:
    model = golden_model("deepseek-v3-plain", reference)
    config = model.config
    assert config.rope is not None and config.rotary_dim == 16
    wider = replace(config, rope=replace(config.rope, partial=1.0))
    assert wider.rotary_dim == 80
    table = model._rope.full
    assert table is not None
    turning = rotation(replace(config.rope, partial=1.0), 80)
    table._make = lambda positions: reference.rope_table(
        turning.frequencies, positions, attention_factor=turning.attention_factor
    )
    assert far_from_the_golden("deepseek-v3-plain", model, reference)


class BiasedOps(ReferenceOps):
    """A backend that weighs experts by what they are chosen by."""

    def route(
        self, logits: Any, routing: Routing, *, bias: Any = None, factors: Any = None
    ) -> Routes:
        routes = super().route(logits, routing, bias=bias, factors=factors)
        scores = 1 / (1 + np.exp(-logits)) + bias
        weights = np.take_along_axis(scores, routes.experts, axis=1)
        if routing.normalised:
            weights = weights / weights.sum(axis=1, keepdims=True)
        return Routes(routes.experts, (weights * routing.scale).astype(np.float32))


def test_the_bias_chooses_and_does_not_weigh() -> None:
    ops = BiasedOps()
    assert far_from_the_golden("deepseek-v3", golden_model("deepseek-v3", ops), ops)


@pytest.mark.parametrize("family", LATENT)
@pytest.mark.parametrize(
    "scaling",
    [
        {"type": "linear", "factor": 4.0},
        {"type": "dynamic", "factor": 4.0},
        {"type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        {"type": "longrope", "factor": 4.0, "short_factor": [1.0] * 8, "long_factor": [1.0] * 8},
    ],
)
def test_a_scale_of_scores_beside_another_rope_than_yarn_is_refused_by_name(
    family: str, scaling: dict[str, Any]
) -> None:
    """transformers multiplies scores by it beside every kind; no published config has it there."""
    config = tiny_config(family)
    config.pop("rope_parameters", None)
    if scaling["type"] in ("llama3", "longrope"):
        scaling = {**scaling, "original_max_position_embeddings": 64}
    assert read({**config, "rope_scaling": scaling}).rope.kind == scaling["type"]
    with pytest.raises(UnsupportedModelError, match=r"rope_scaling.mscale_all_dim = 0.5"):
        read({**config, "rope_scaling": {**scaling, "mscale_all_dim": 0.5}})
