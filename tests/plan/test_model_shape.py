"""Shapes from rows, configs and headers, against totals that others counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.catalog import Catalog
from headrace.errors import ConfigError
from headrace.models import load_model
from headrace.ops.reference import ReferenceOps
from headrace.plan.header import parameters_by_part
from headrace.plan.model.model_shape import (
    shape_of_catalog,
    shape_of_checkpoint,
    shape_of_config,
)
from headrace.plan.step.step import StepCounter, Storage
from headrace.weights.gguf.file import read_gguf
from tests.tiny import tiny_checkpoint, tiny_config, write_tiny_hf
from tests.tiny_families import tiny_family, tiny_family_names

CATALOG = Catalog.load()
OPEN = [row for row in CATALOG.models if row.num_layers is not None]

LLAMA_3_1_8B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128_256,
    "tie_word_embeddings": False,
    "max_position_embeddings": 131_072,
}


def test_a_config_gives_the_weights_that_were_counted() -> None:
    shape = shape_of_config(LLAMA_3_1_8B)
    layer = 4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14336 + 2 * 4096
    assert shape.parameters.total == 2 * 128_256 * 4096 + 32 * layer + 4096 == 8_030_261_248
    assert shape.parameters.active == shape.parameters.total
    assert shape.attention[0].kind == "gqa" and shape.attention[0].values_per_token == 2048
    assert shape.dense[0].count == 32 and not shape.moe and not shape.states


@pytest.mark.parametrize("row", OPEN, ids=lambda row: row.id)
def test_every_open_row_has_a_shape_whose_parts_add_up(row: object) -> None:
    assert hasattr(row, "id")
    shape = shape_of_catalog(CATALOG.models[row.id])
    parts = shape.parameters
    counted = parts.embedding + parts.head + parts.attention + parts.ffn + parts.experts
    assert counted + parts.other == parts.total
    assert 0 < parts.active <= parts.total
    assert shape.hidden_size > 0 and shape.layers


@pytest.mark.parametrize(
    "row",
    [row for row in OPEN if row.facts.get("total_parameters") is not None
     and row.facts["total_parameters"].source == "counted"],
    ids=lambda row: row.id,
)  # fmt: skip
def test_shapes_give_what_the_catalog_counted(row: object) -> None:
    """Within a thousandth: biases and sinks are left out."""
    assert hasattr(row, "id")
    stated = CATALOG.models[row.id]
    shape = shape_of_catalog(stated)
    assert shape.parameters.total == stated.total_parameters
    assert abs(shape.parameters.other - shape.hidden_size) < 1e-3 * shape.parameters.total


def test_configs_and_rows_have_one_shape(shared_assets: Path) -> None:
    compared = 0
    for path in sorted((shared_assets / "model-configs" / "hf-config").glob("*_config.json")):
        name = path.name.removesuffix("_config.json").replace("--", "/")
        row = CATALOG.models.find(name)
        if row is None or "hf_quant" in path.name:
            continue
        shape = shape_of_config(json.loads(path.read_text(encoding="utf-8")), name)
        of_row = shape_of_catalog(row)
        cached = [layer.count * layer.values_per_token for layer in shape.attention]
        assert cached == [layer.count * layer.values_per_token for layer in of_row.attention], name
        assert sum(one.state_values for one in shape.states) == sum(
            one.state_values for one in of_row.states
        ), name
        assert shape.parameters.total == pytest.approx(of_row.parameters.total, rel=0.03), name
        compared += 1
    assert compared >= 38


@pytest.mark.parametrize("name", ["llama-2-tiny-random", "stories260K"])
def test_weights_of_a_header_are_those_of_the_file(name: str, shared_assets: Path) -> None:
    path = shared_assets / "models" / name / f"{name}.gguf"
    shape = shape_of_checkpoint(path)
    file = read_gguf(path)
    # What is no tensor is the header: the first tensor begins where it ends.
    first = min(tensor.data.__array_interface__["data"][0] for tensor in file.tensors.values())
    last = max(
        tensor.data.__array_interface__["data"][0] + tensor.nbytes
        for tensor in file.tensors.values()
    )
    assert shape.total_weight_bytes == pytest.approx(last - first, rel=0.01)
    assert 0 < path.stat().st_size - (shape.total_weight_bytes or 0) < path.stat().st_size
    assert shape.source == "GGUF header"
    counted = shape_of_config(
        {
            "num_hidden_layers": shape.num_layers,
            "hidden_size": shape.hidden_size,
            "num_attention_heads": shape.attention[0].heads,
            "num_key_value_heads": shape.attention[0].kv_heads,
            "intermediate_size": shape.dense[0].width,
            "vocab_size": shape.vocabulary_tokens,
            "tie_word_embeddings": shape.tied_embeddings,
        }
    )
    assert shape.parameters.total == counted.parameters.total


@pytest.mark.parametrize("family", tiny_family_names())
def test_a_config_counts_the_matrices_that_the_engine_takes(family: str) -> None:
    """Vectors aside, and without what is not run: indexers, layers that predict further tokens."""
    for overrides in tiny_family(family).CASES.values():
        checkpoint = tiny_checkpoint(family, **overrides)
        taken = load_model(checkpoint, ReferenceOps()).weight_bytes // 4
        shape = shape_of_config(tiny_config(family, **overrides))
        tensors = checkpoint.tensors.values()
        vectors = sum(tensor.num_values for tensor in tensors if len(tensor.shape) == 1)
        assert shape.parameters.total == pytest.approx(taken, abs=vectors)


@pytest.mark.parametrize(("family", "case"), [("gemma4_text", "gemma4-inputs"), ("gpt2", "gpt2")])
def test_tables_that_are_only_looked_up_are_no_bytes_of_a_step(family: str, case: str) -> None:
    overrides = tiny_family(family).CASES[case]
    checkpoint = tiny_checkpoint(family, **overrides)
    shape = shape_of_config(tiny_config(family, **overrides))
    assert parameters_by_part(checkpoint.tensors.values()).tables == shape.parameters.tables > 0
    read = StepCounter(shape, Storage(bytes_per_weight=4)).decode(1, 0).weight_bytes
    model = load_model(checkpoint, ReferenceOps())
    vectors = sum(item.nbytes for item in checkpoint.tensors.values() if len(item.shape) == 1)
    # And a row of the embedding.
    row = 4 * shape.hidden_size
    assert read == pytest.approx(model.step_weight_bytes + row, abs=vectors)


def test_a_folder_gives_its_header(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path / "tiny", "qwen3")
    shape = shape_of_checkpoint(folder)
    file = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    assert shape.source == "safetensors header"
    assert shape.total_weight_bytes is not None
    assert shape.total_weight_bytes < file < shape.total_weight_bytes + 100_000
    assert shape.parameters.other < shape.parameters.total * 0.2


def test_experts_of_a_hybrid_are_told_from_its_active_weights() -> None:
    gemma = shape_of_catalog(CATALOG.models["gemma-4-26b-a4b"])
    assert gemma.moe[0].experts_per_token in (8, 9)
    assert gemma.parameters.active < 5e9
    assert [layer.window_tokens for layer in gemma.attention] == [1024, None]
    assert gemma.attention[1].kv_heads == 2 and gemma.attention[1].head_dim == 512


def test_states_of_mamba_and_of_linear_attention() -> None:
    nemotron = shape_of_catalog(CATALOG.models["nemotron-3-nano-30b-a3b"])
    assert [one.count for one in nemotron.states] == [23]
    assert nemotron.states[0].state_values == 64 * 64 * 128
    assert nemotron.states[0].conv_values == (64 * 64 + 2 * 8 * 128) * 3
    qwen = shape_of_catalog(CATALOG.models["qwen3.5-27b"])
    assert qwen.states[0].state_values == 48 * 128 * 128
    assert sum(layer.count for layer in qwen.attention) == 16


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({}, "num_hidden_layers"),
        ({**LLAMA_3_1_8B, "hidden_size": -1}, "hidden_size"),
        ({**LLAMA_3_1_8B, "hidden_size": "4096"}, "hidden_size"),
        ({**LLAMA_3_1_8B, "num_key_value_heads": True}, "num_key_value_heads"),
        ({**LLAMA_3_1_8B, "layer_types": ["odd"]}, "layer_types"),
        ({**LLAMA_3_1_8B, "block_configs": [{}]}, "block_configs"),
        ({**LLAMA_3_1_8B, "num_attention_heads": None}, "num_attention_heads"),
        ({**LLAMA_3_1_8B, "num_hidden_layers": 10**30}, "num_hidden_layers.*at most 2147483648"),
        ({**LLAMA_3_1_8B, "intermediate_size": [[1], [2]]}, "intermediate_size"),
        ({**LLAMA_3_1_8B, "layer_types": "full"}, "layer_types.*must be a list"),
        ({**LLAMA_3_1_8B, "model_type": ["llama"], "num_experts": 8}, "model_type"),
        (
            {**LLAMA_3_1_8B, "sliding_window": 1024, "sliding_window_pattern": 0},
            "sliding_window_pattern",
        ),
        ({**LLAMA_3_1_8B, "global_head_dim": -1}, "global_head_dim"),
        ({**LLAMA_3_1_8B, "num_experts": 8, "first_k_dense_replace": {"a": 1}}, "first_k_dense"),
        ({**LLAMA_3_1_8B, "num_experts": 8, "first_k_dense_replace": 99}, "there are 32"),
        ({**LLAMA_3_1_8B, "num_experts": 8, "mlp_only_layers": 1.5}, "mlp_only_layers"),
        ({**LLAMA_3_1_8B, "num_experts": 8, "expert_layer_period": 0}, "expert_layer_period"),
        (
            {**LLAMA_3_1_8B, "linear_attn_config": {"kda_layers": None, "num_heads": "x"}},
            "num_heads",
        ),
    ],
)
def test_a_faulty_config_is_refused_by_key(config: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        shape_of_config(config)


def test_a_model_behind_an_api_has_no_shape() -> None:
    with pytest.raises(ConfigError, match="does not publish"):
        shape_of_catalog(CATALOG.models["gpt-5"])
