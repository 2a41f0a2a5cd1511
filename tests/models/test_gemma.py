"""Gemma 2 and 3: what is easily lost in them, and what their configs may not say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import UnsupportedModelError
from headrace.models import load_model
from headrace.models.families.gemma2 import Gemma2
from headrace.models.families.gemma3 import Gemma3
from headrace.models.layer_cache import cache_layout
from headrace.ops.interface import Ops
from headrace.ops.operands import EmbeddingWeight
from headrace.ops.reference.backend import ReferenceOps
from headrace.weights.architectures import ARCHITECTURES, GGUFKeys
from headrace.weights.gguf.values import Metadata
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.open import open_checkpoint
from tests.models.cases import CASES, Session, prompt
from tests.tiny import tiny_checkpoint, tiny_config, write_tiny_gguf

GEMMA_2_2B = {
    "architectures": ["Gemma2ForCausalLM"],
    "attention_bias": False, "attention_dropout": 0.0, "attn_logit_softcapping": 50.0,
    "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": [1, 107],
    "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "initializer_range": 0.02,
    "intermediate_size": 9216, "max_position_embeddings": 8192, "model_type": "gemma2",
    "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4,
    "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0, "sliding_window": 4096, "torch_dtype": "bfloat16",
    "transformers_version": "4.42.4", "use_cache": True, "vocab_size": 256000,
}  # fmt: skip
GEMMA_3_1B = {
    "architectures": ["Gemma3ForCausalLM"],
    "attention_bias": False, "attention_dropout": 0.0, "attn_logit_softcapping": None,
    "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": [1, 106],
    "final_logit_softcapping": None, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1152, "initializer_range": 0.02, "intermediate_size": 6912,
    "max_position_embeddings": 32768, "model_type": "gemma3_text", "num_attention_heads": 4,
    "num_hidden_layers": 26, "num_key_value_heads": 1, "pad_token_id": 0,
    "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
    "rope_scaling": None, "rope_theta": 1000000, "sliding_window": 512,
    "sliding_window_pattern": 6, "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
    "use_cache": True, "vocab_size": 262144,
}  # fmt: skip
GEMMA_3_4B_TEXT = {
    "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
    "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "sliding_window": 1024,
}  # fmt: skip


def read(config: Mapping[str, Any]) -> Any:
    """The config as its family reads it, all keys accounted for."""
    reader = ConfigReader(config)
    family = {"gemma2": Gemma2, "gemma3_text": Gemma3}[reader.required("model_type", str)]
    found = family.read_config(reader)
    reader.finish()
    return found


def test_the_config_of_gemma_2_2b() -> None:
    config = read(GEMMA_2_2B)
    assert config.windows == (4096, 0) * 13
    assert config.attention.scale == 1 / 16
    assert (config.attention.softcap, config.logit_softcap) == (50.0, 30.0)
    assert config.embedding_scale == 48.0
    assert config.activation == "gelu_tanh"


def test_the_config_of_gemma_3_1b() -> None:
    config = read(GEMMA_3_1B)
    assert config.windows == ((512,) * 5 + (0,)) * 4 + (512, 512)
    assert (config.rope.theta, config.rope.kind) == (1e6, "default")
    assert config.local_rope.theta == 1e4
    assert (config.attention.softcap, config.logit_softcap) == (0.0, 0.0)
    assert (config.attention.num_kv_heads, config.max_positions) == (1, 32768)


def test_what_the_config_of_gemma_3_4b_leaves_out() -> None:
    config = read(GEMMA_3_4B_TEXT)
    shape = config.attention
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim) == (8, 4, 256)
    assert (config.rope.theta, config.rope.kind, config.rope.factor) == (1e6, "linear", 8.0)
    assert (config.local_rope.theta, config.local_rope.kind) == (1e4, "default")
    assert (config.max_positions, config.norm_eps) == (131072, pytest.approx(1e-6))
    assert config.windows[:7] == (1024,) * 5 + (0, 1024)


@pytest.mark.parametrize(
    ("base", "change", "named"),
    [
        (GEMMA_2_2B, {"hidden_activation": "gelu"}, "hidden_activation = 'gelu'"),
        (GEMMA_2_2B, {"hidden_act": "silu"}, "hidden_act = 'silu'"),
        (GEMMA_2_2B, {"sliding_window_pattern": 3}, "sliding_window_pattern = 3"),
        (GEMMA_2_2B, {"layer_types": ["full_attention"]}, "layer_types"),
        (GEMMA_2_2B, {"layer_types": ["linear_attention"] * 26}, "layer_types"),
        (GEMMA_2_2B, {"use_bidirectional_attention": True}, "use_bidirectional_attention = True"),
        (GEMMA_2_2B, {"rope_local_base_freq": 500.0}, "rope_local_base_freq"),
        (GEMMA_3_1B, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50.0"),
        (GEMMA_3_1B, {"_sliding_window_pattern": 2}, "_sliding_window_pattern = 2"),
        (GEMMA_3_1B, {"use_bidirectional_attention": True}, "use_bidirectional_attention = True"),
        (GEMMA_3_1B, {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar"),
    ],
)
def test_values_that_are_not_implemented_are_named(
    base: dict[str, Any], change: dict[str, Any], named: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        read(base | change)


def test_a_softcap_that_is_null_is_none_and_one_left_out_is_the_usual() -> None:
    without = {key: value for key, value in GEMMA_2_2B.items() if "softcapping" not in key}
    assert (read(without).attention.softcap, read(without).logit_softcap) == (50.0, 30.0)
    null = GEMMA_2_2B | {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    assert (read(null).attention.softcap, read(null).logit_softcap) == (0.0, 0.0)


class ScaleOps(ReferenceOps):
    """Notes by what embeddings are multiplied."""

    scales: tuple[float, ...] = ()

    def embedding(self, weight: EmbeddingWeight, token_ids: Any, **options: Any) -> Any:
        self.scales = (*self.scales, options["scale"])
        return super().embedding(weight, token_ids, **options)


@pytest.mark.parametrize("family", ["gemma2", "gemma3_text"])
@pytest.mark.parametrize(
    ("codec", "scale"),
    # sqrt(96) = 9.7979...; bfloat16 has steps of 1/16 there.
    [("F32", float(np.float32(96**0.5))), ("BF16", 9.8125), ("F16", 9.8125), ("Q8_0", 9.8125)],
)
def test_the_embedding_scale_has_the_type_of_the_weights(
    family: str, codec: str, scale: float
) -> None:
    ops = ScaleOps()
    model = load_model(tiny_checkpoint(family, codec, hidden_size=96, head_dim=32), ops)
    Session(model, ops).feed([1, 2, 3])
    assert ops.scales == (scale,)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("gemma2-windows", {"sliding_window": 512}),
        ("gemma2-caps", {"attn_logit_softcapping": None}),
        ("gemma2-scalar", {"query_pre_attn_scalar": 16}),
        ("gemma3-windows", {"sliding_window": 512}),
        ("gemma3-windows", {"rope_scaling": None}),
        ("gemma3-windows", {"rope_local_base_freq": 1e6}),
        ("gemma3-scalar", {"query_pre_attn_scalar": 16}),
        ("gemma3-linear", {"final_logit_softcapping": None}),
    ],
)
def test_no_feature_is_lost_in_the_tolerance(
    name: str, change: dict[str, Any], reference: Ops
) -> None:
    """Without it the logits are a thousand tolerances away, so the cases do test it."""
    family, shape = CASES[name]
    one, other = (
        Session(load_model(tiny_checkpoint(family, **keys), reference), reference).feed(prompt(0))
        for keys in (shape, shape | change)
    )
    assert np.abs(one - other).max() > 0.01 * np.abs(one).max()


def test_norms_are_stored_less_one_in_folders_alone(tmp_path: Path, reference: Ops) -> None:
    folder = tiny_checkpoint("gemma2")
    file = open_checkpoint(write_tiny_gguf(tmp_path, "gemma2"))
    name = "model.layers.0.post_feedforward_layernorm.weight"
    assert (folder.conventions.norm_offset, file.conventions.norm_offset) == (1.0, 0.0)
    stored = folder.tensors[name].to_f32()
    assert np.array_equal(file.tensors[name].to_f32(), stored + np.float32(1))
    right, wrong = (
        Session(load_model(item, reference), reference).feed(prompt(0)[:20])
        for item in (file, replace(file, conventions=folder.conventions))
    )
    assert np.abs(right - wrong).max() > 0.1


@pytest.mark.parametrize(("family", "layers"), [("gemma2", 46), ("gemma3_text", 62)])
def test_the_largest_gguf_has_another_attention_scale(family: str, layers: int) -> None:
    """llama.cpp takes it from the number of layers; GGUF has no key for it."""
    architecture = ARCHITECTURES[family]
    assert architecture.reads is not None
    for count, scalar in ((layers, 168), (layers - 1, 128)):
        config = {
            "num_hidden_layers": count, "hidden_size": 5376, "num_attention_heads": 32,
            "head_dim": 128, "sliding_window": 1024,
        }  # fmt: skip
        keys = GGUFKeys(Metadata(Path("x"), {}, {}), architecture.name)
        architecture.reads(keys, config)
        assert config["query_pre_attn_scalar"] == scalar


def test_only_layers_that_see_everything_keep_all_blocks(reference: Ops) -> None:
    config = tiny_config("gemma2")
    window, count = config["sliding_window"], config["num_hidden_layers"]
    model = load_model(tiny_checkpoint("gemma2"), reference)
    assert model.config.windows == (window, 0) * (count // 2)
    assert [(group.window, len(group.layers)) for group in model.cache_layout.groups] == [
        (window, count // 2), (0, count // 2),
    ]  # fmt: skip
    types = ["sliding_attention"] * count
    model = load_model(tiny_checkpoint("gemma2", layer_types=types), reference)
    assert [group.window for group in model.cache_layout.groups] == [window]


def test_layers_of_each_window_keep_their_own_blocks(reference: Ops) -> None:
    model = load_model(tiny_checkpoint("mistral", sliding_window=24), reference)
    layout = cache_layout(replace(model.config, windows=(8, 24)).layer_caches)
    assert [(group.window, group.layers) for group in layout.groups] == [(8, (0,)), (24, (1,))]
