"""What ships against the things it was read from, where those are at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.catalog import Catalog
from headrace.weights.codecs import CODECS

# Field of a row -> keys of a config.json that say it.
SAID = {
    "num_layers": ("num_hidden_layers",),
    "hidden_size": ("hidden_size",),
    "num_attention_heads": ("num_attention_heads",),
    "num_kv_heads": ("swa_num_key_value_heads", "num_key_value_heads"),
    "head_dim": ("head_dim",),
    "vocabulary_tokens": ("vocab_size",),
    "num_experts": ("num_experts", "n_routed_experts", "num_local_experts"),
    "experts_per_token": ("num_experts_per_tok", "num_experts_per_token"),
    "kv_lora_rank": ("kv_lora_rank",),
    "q_lora_rank": ("q_lora_rank",),
    "qk_rope_head_dim": ("qk_rope_head_dim",),
    "qk_nope_head_dim": ("qk_nope_head_dim",),
    "tied_embeddings": ("tie_word_embeddings",),
    "architecture": ("model_type",),
}
PEAKS = {
    "dense_bf16_flops": "bfloat16_tc_flops",
    "dense_fp8_flops": "fp8_tc_flops",
    "dense_fp4_flops": "fp4_tc_flops",
    "dense_int8_flops": "int8_tc_flops",
    "bandwidth_bytes_per_s": "mem_bw",
    "power_w": "power",
}


@pytest.fixture(scope="module")
def known() -> Catalog:
    return Catalog.load()


def _configs(folder: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for path in sorted(folder.glob("*_config.json")):
        if "hf_quant" not in path.name:
            config = json.loads(path.read_text(encoding="utf-8"))
            found[path.name.removesuffix("_config.json").replace("--", "/")] = config
    return found


def test_models_are_as_their_configs_say(known: Catalog, shared_assets: Path) -> None:
    configs = _configs(shared_assets / "model-configs" / "hf-config")
    compared = 0
    for name, config in configs.items():
        row = known.models.find(name)
        if row is None:
            continue
        compared += 1
        text = config.get("text_config") or config.get("llm_config") or config
        for field, keys in SAID.items():
            value = getattr(row, field)
            said = next((text[key] for key in keys if text.get(key) is not None), None)
            if said is not None and value is not None:
                assert value == said, f"{name}: {field}"
        if row.family != "Qwen3":
            assert row.context_tokens == text["max_position_embeddings"], name
    assert compared >= 40


def test_hardware_is_as_its_system_files_say(known: Catalog, shared_assets: Path) -> None:
    compared = 0
    for path in sorted((shared_assets / "hardware" / "systems").glob("*.yaml")):
        row = known.hardware.find(path.stem)
        said = yaml.safe_load(path.read_text(encoding="utf-8"))
        if row is None or "gpu" not in said:
            continue
        compared += 1
        gpu, node = said["gpu"], said["node"]
        for field, key in PEAKS.items():
            value = getattr(row, field)
            if value is not None and key in gpu:
                assert value == pytest.approx(gpu[key], rel=6e-4), f"{path.stem}: {field}"
        memory = row.usable_memory_bytes or row.memory_bytes
        assert memory == pytest.approx(gpu["mem_capacity"], rel=1e-3), path.stem
        assert row.link_bytes_per_s == node["intra_node_bw"], path.stem
        assert row.devices_per_machine == node["num_gpus_per_node"], path.stem
    assert compared == 14


def test_prices_are_as_the_table_says(known: Catalog, shared_assets: Path) -> None:
    path = shared_assets / "api-specs" / "prices" / "litellm-full-2026-07-24.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    compared = 0
    for price in known.prices:
        fact = price.facts.get("input_usd_per_million_tokens")
        for key in (price.model.replace(".", "-"), price.model):
            entry = table.get(key)
            if entry is None or fact is None or fact.source != "litellm-prices":
                continue
            compared += 1
            assert fact.value == pytest.approx(entry["input_cost_per_token"] * 1e6), price.id
            output = price.output_usd_per_million_tokens
            assert output == pytest.approx(entry["output_cost_per_token"] * 1e6), price.id
            break
    assert compared > 12


def test_kinds_have_the_bits_of_their_codecs(known: Catalog) -> None:
    codecs = {row.codec: row for row in known.quantizations if row.codec is not None}
    assert set(codecs) == set(CODECS)
    for name, row in codecs.items():
        assert row.bits_per_weight == CODECS[name].bits_per_weight, name
        if row.block_weights is not None:
            assert row.block_weights == CODECS[name].block_elements, name


def test_kinds_have_the_bits_of_ggml(known: Catalog) -> None:
    sizes = pytest.importorskip("gguf.constants", reason="needs gguf").GGML_QUANT_SIZES
    by_name = {kind.name: pair for kind, pair in sizes.items()}
    compared = 0
    for row in known.quantizations:
        if row.family in ("gguf", "float"):
            if row.id == "q2-0":
                assert row.name not in by_name  # newer than gguf-py; tests/weights has its sizes
                continue
            compared += 1
            elements, size = by_name[row.name]
            assert row.bits_per_weight == 8 * size / elements, row.id
            assert row.block_weights in (None, elements), row.id
    assert compared == 25


def test_sizes_are_weights_times_bits(known: Catalog) -> None:
    """A file has a little beside its weights; more than 2 % would be another model."""
    compared = 0
    for row in known.quantizations:
        for model, size in row.size_bytes.items():
            bits = row.file_bits_per_weight.get(model)
            weights = known.models[model].total_parameters
            if bits is not None and weights is not None:
                compared += 1
                assert size == pytest.approx(weights * bits / 8, rel=0.02), f"{row.id} {model}"
    assert compared > 20
