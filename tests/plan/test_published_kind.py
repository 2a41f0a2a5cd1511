"""The storage kind that a checkpoint is published in, by its config or its row of the catalog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.catalog import Catalog
from headrace.cli.plan.options import storage_of
from headrace.errors import ConfigError
from headrace.plan.machine.hardware_memory import place_of
from headrace.plan.memory.fit import fit
from headrace.plan.memory.memory import Load
from headrace.plan.memory.weights_memory import default_kind, weights_quantity
from headrace.plan.model.model_shape import ModelShape, shape_of_catalog, shape_of_config
from headrace.plan.model.published_kind import PublishedKind, kind_of_checkpoints, kind_of_config

CATALOG = Catalog.load()
GB = 1e9


def kind(**stated: Any) -> PublishedKind | None:
    config = {"num_hidden_layers": 4, "quantization_config": stated}
    return kind_of_config(config, config)


@pytest.mark.parametrize(
    ("stated", "id"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "gptq", "bits": 3}, ""),
        ({"quant_method": "auto-round", "bits": 4}, "int4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "quanto", "bits": 2}, ""),
    ],
)
def test_methods_have_the_catalogs_kind(stated: dict[str, Any], id: str) -> None:
    found = kind(**stated)
    assert found is not None and found.id == id
    assert not id or CATALOG.quantizations[id].bits_per_weight is not None


def group(bits: int, number_type: str, *targets: str, **more: Any) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": number_type, **more}
    return {"weights": weights, "targets": list(targets) or ["Linear"]}


@pytest.mark.parametrize(
    ("bits", "number_type", "more", "id"),
    [
        (8, "float", {}, "fp8"),
        (8, "int", {}, "int8"),
        (4, "int", {"group_size": 32}, "int4"),
        (4, "float", {"group_size": 16}, "nvfp4"),
        (4, "float", {"group_size": 32}, "mxfp4"),
        (6, "float", {}, ""),
    ],
)
def test_groups_of_compressed_tensors_and_modelopt(
    bits: int, number_type: str, more: dict[str, Any], id: str
) -> None:
    groups = {"group_0": group(bits, number_type, **more)}
    found = kind(quant_method="compressed-tensors", config_groups=groups)
    assert found is not None and (found.id, found.wide) == (id, frozenset())


def test_of_groups_that_differ_the_wider_parts_are_counted_at_16_bits() -> None:
    wide = [f"model.layers.{layer}.linear_attn.in_proj_qkv" for layer in range(3)]
    groups = {"a": group(8, "float", *wide), "b": group(4, "float", group_size=16)}
    found = kind(quant_method="modelopt", config_groups=groups)
    assert found is not None and found.id == "nvfp4" and set(found.wide) == {"attention"}


@pytest.mark.parametrize(
    ("names", "wide"),
    [
        (["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"], {"attention"}),
        (["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"], {"attention", "ffn"}),
        ([r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"], {"ffn"}),
        (["*.attn.*", "*.ffn.shared_experts.*", "head"], {"attention", "ffn"}),
        # Two of four layers are enough, one is not.
        (["model.layers.0.self_attn*", "model.layers.1.self_attn*"], {"attention"}),
        (["model.layers.0.self_attn*", "model.layers.0.mlp*"], set()),
        # Norms, gates and routers are small, and are at 16 bits everywhere.
        (["model.layers.*.self_attn.kv_a_layernorm", "gate", "model.layers.*.mlp.gate"], set()),
        (["model.layers.*.self_attn.indexers_proj", "re:.*vision_tower.*attn"], set()),
    ],
)
def test_what_a_config_does_not_convert_stays_at_16_bits(names: list[str], wide: set[str]) -> None:
    for key in ("modules_to_not_convert", "ignore"):
        found = kind(quant_method="fp8", **{key: names})
        assert found is not None and found.wide == wide


def test_what_states_nothing_has_16_bits() -> None:
    assert (
        kind_of_config({}, {}) is None and kind_of_config({"quantization_config": {}}, {}) is None
    )
    inner = {"quantization_config": {"quant_method": "fp8"}}
    found = kind_of_config({"text_config": inner}, inner)
    assert found is not None and found.id == "fp8"
    with pytest.raises(ConfigError, match=r"quantization_config.*must be an object"):
        kind_of_config({"quantization_config": "fp8"}, {})


def test_of_a_row_with_several_checkpoints() -> None:
    assert kind_of_checkpoints({}, True) is None
    assert kind_of_checkpoints({"fp8": "a/b-FP8", "bf16": "a/b"}, True) is None
    found = kind_of_checkpoints({"fp8": "a/b", "nvfp4": "a/b-NVFP4"}, True)
    assert found == PublishedKind("fp8", "a/b")
    assert kind_of_checkpoints({"mxfp4": "a/b"}, False) == PublishedKind("mxfp4", "a/b")


def planned(shape: ModelShape, hardware: str, count: int = 1) -> tuple[str, float, str]:
    """The verdict for one user at 8,192 tokens, the bytes of the weights, and their kind."""
    found = fit(
        CATALOG, shape, place_of(CATALOG, hardware, count),
        storage_of(CATALOG, shape, None, "F16", 16), Load(8192),
    )  # fmt: skip
    return found.verdict, found.memory.all_weights.value, found.memory.all_weights.name


def test_gpt_oss_and_deepseek_fit_where_they_are_served() -> None:
    """Repositories of 65.25 GB and 13.76 GB; of DeepSeek-V3's 688.6 GB without its draft layer."""
    big = shape_of_catalog(CATALOG.models["gpt-oss-120b"])
    verdict, size, name = planned(big, "h100-sxm")
    assert (verdict, name) == ("fits", "weights, MXFP4")
    assert size == pytest.approx(65.25 * GB, rel=0.005)
    small = shape_of_catalog(CATALOG.models["gpt-oss-20b"])
    verdict, size, _ = planned(small, "rtx-4090")
    assert verdict == "fits" and size == pytest.approx(13.76 * GB, rel=0.005)
    deepseek = shape_of_catalog(CATALOG.models["deepseek-v3"])
    verdict, size, _ = planned(deepseek, "h200-sxm", 8)
    assert verdict == "fits" and size == pytest.approx(673 * GB, rel=0.005)
    assert any("published in fp8 (deepseek-ai/DeepSeek-V3)" in note for note in deepseek.notes)
    llama = shape_of_catalog(CATALOG.models["llama-3.1-8b"])
    assert default_kind(llama) == "bf16" and llama.published is None


def test_published_configs_are_planned_in_the_kind_they_state(shared_assets: Path) -> None:
    """Every config that states a quantization_config has a kind, and no other config has one."""
    kinds: dict[str, str] = {}
    for path in sorted((shared_assets / "model-configs" / "hf-config").glob("*_config.json")):
        config = json.loads(path.read_text(encoding="utf-8"))
        stated = "quantization_config" in path.read_text(encoding="utf-8")
        try:
            shape = shape_of_config(config, path.name)
        except ConfigError:
            continue
        assert (shape.published is not None) == stated, path.name
        if shape.published is not None:
            kinds[path.name.removesuffix("_config.json")] = default_kind(shape)
    assert len(kinds) >= 35 and set(kinds.values()) == {"fp8", "int4", "mxfp4", "nvfp4"}
    assert kinds["openai--gpt-oss-120b"] == "mxfp4" and kinds["deepseek-ai--DeepSeek-V3"] == "fp8"
    assert kinds["moonshotai--Kimi-K2.5"] == "int4" and kinds["Qwen--Qwen3-32B-FP8"] == "fp8"
    assert kinds["nvidia--Qwen3.6-27B-NVFP4"] == "nvfp4"


def test_a_config_and_the_row_of_a_model_have_the_same_weights(shared_assets: Path) -> None:
    for file, row in (
        ("openai--gpt-oss-120b", "gpt-oss-120b"),
        ("openai--gpt-oss-20b", "gpt-oss-20b"),
        ("deepseek-ai--DeepSeek-V3", "deepseek-v3"),
        ("moonshotai--Kimi-K2.5", "kimi-k2.5"),
    ):
        path = shared_assets / "model-configs" / "hf-config" / f"{file}_config.json"
        of_config = shape_of_config(json.loads(path.read_text(encoding="utf-8")), file)
        of_row = shape_of_catalog(CATALOG.models[row])
        sizes = [planned(shape, "h200-sxm", 8)[1] for shape in (of_config, of_row)]
        assert sizes[0] == pytest.approx(sizes[1], rel=0.01), file


def test_a_chosen_kind_wins_and_has_no_parts_of_the_published_one() -> None:
    shape = shape_of_catalog(CATALOG.models["gpt-oss-120b"])
    chosen = storage_of(CATALOG, shape, "fp8", "F16", 16).weights
    assert chosen is not None and chosen.id == "fp8"
    parts = shape.parameters
    ends = parts.embedding + parts.head
    assert weights_quantity(shape, chosen).value == parts.total - ends + 2 * ends


def test_a_kind_that_is_not_known_is_refused_with_the_remedy() -> None:
    config = {
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 100,
        "num_attention_heads": 4, "intermediate_size": 128,
        "quantization_config": {"quant_method": "quanto"},
    }  # fmt: skip
    shape = shape_of_config(config, "mine")
    with pytest.raises(ConfigError, match=r"quanto.*--quantization"):
        storage_of(CATALOG, shape, None, "F16", 16)
    chosen = storage_of(CATALOG, shape, "awq", "F16", 16).weights
    assert chosen is not None and chosen.id == "awq"
