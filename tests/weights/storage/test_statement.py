"""Statements of how weights are stored, in the words of every program that makes folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import UnsupportedModelError
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.storage.quantisation import stated_quantisation, with_quantisation
from headrace.weights.storage.statement import read_storage
from headrace.weights.storage.storage import Storage, WeightFormat
from tools.count_models import published_configs
from tools.fuzz import harness, quantization_config

NVFP4 = WeightFormat(
    "e2m1", 4, "group", columns=16, scale="e4m3", layout="modelopt", activations="dynamic"
)


def read(**stated: Any) -> Storage:
    """Also that every key was read."""
    reader = ConfigReader({"quantization_config": stated})
    storage = read_storage(reader)
    reader.finish()
    assert storage is not None
    return storage


def group(targets: list[str] | None = None, **weights: Any) -> dict[str, Any]:
    return {"targets": targets or ["Linear"], "weights": {"num_bits": 8, **weights}}


def test_plain_numbers_state_nothing() -> None:
    for config in ({}, {"quantization_config": None}, {"quantization_config": {}}):
        assert read_storage(ConfigReader(config)) is None


def test_fp8_in_blocks_in_one_piece_and_by_row() -> None:
    block = read(
        quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[128, 128],
        scale_fmt="ue8m0", modules_to_not_convert=["lm_head", "gate"],
    )  # fmt: skip
    assert block.default == WeightFormat("e4m3", 8, "block", 128, 128, activations="dynamic")
    assert block.format_of("model.layers.0.mlp.gate") is None
    assert block.format_of("model.layers.0.mlp.gate_proj") is block.default
    whole = read(quant_method="fp8", activation_scheme="static", ignored_layers=["lm_head"])
    assert whole.default == WeightFormat("e4m3", 8, "tensor", activations="static")
    rows = read(quant_method="fbgemm_fp8", activation_scale_ub=1200.0)
    assert rows.default == WeightFormat("e4m3", 8, "channel", activations="dynamic")


def test_compressed_tensors_groups_of_modules() -> None:
    storage = read(
        quant_method="compressed-tensors", format="mixed-precision", kv_cache_scheme=None,
        quantization_status="compressed", ignore=["lm_head"],
        config_groups={
            "a": group(["re:.*self_attn.*"], type="float", strategy="channel", observer="minmax")
            | {"input_activations": {"num_bits": 8, "type": "float", "dynamic": True}},
            "b": group(num_bits=4, type="int", strategy="group", group_size=32, symmetric=False,
                       actorder="group"),
        },
    )  # fmt: skip
    attention = storage.format_of("model.layers.0.self_attn.q_proj")
    assert attention == WeightFormat("e4m3", 8, "channel", activations="dynamic")
    assert storage.default == WeightFormat(
        "int", 4, "group", columns=32, symmetric=False, layout="compressed", act_order=True
    )
    assert storage.format_of("model.layers.0.mlp.up_proj") is storage.default
    assert storage.format_of("lm_head") is None


@pytest.mark.parametrize(
    ("stated", "format", "expected"),
    [
        ({"type": "float", "strategy": "tensor"}, "float-quantized",
         WeightFormat("e4m3", 8, "tensor")),
        ({"type": "float", "strategy": "block", "block_structure": [128, 128]}, "float-quantized",
         WeightFormat("e4m3", 8, "block", 128, 128)),
        ({"type": "int", "strategy": "channel"}, "int-quantized",
         WeightFormat("int", 8, "channel")),
        ({"type": "float", "num_bits": 4, "strategy": "tensor_group", "group_size": 16},
         "nvfp4-pack-quantized",
         WeightFormat("e2m1", 4, "group", columns=16, scale="e4m3", layout="compressed")),
        ({"type": "float", "num_bits": 4, "strategy": "group", "group_size": 32,
          "scale_dtype": "torch.uint8"}, "mxfp4-pack-quantized",
         WeightFormat("e2m1", 4, "group", columns=32, scale="e8m0", layout="compressed")),
    ],
)  # fmt: skip
def test_formats_of_compressed_tensors(
    stated: dict[str, Any], format: str, expected: WeightFormat
) -> None:
    groups = {"group_0": group(**stated)}
    storage = read(quant_method="compressed-tensors", format=format, config_groups=groups)
    assert storage.formats == (expected,)


INT8 = {"num_bits": 8, "type": "int", "strategy": "token", "symmetric": True, "dynamic": True}


@pytest.mark.parametrize(
    ("inputs", "rounds_rows"),
    [
        (None, False),
        (INT8, True),
        (INT8 | {"strategy": "tensor", "dynamic": False}, True),
        (INT8 | {"symmetric": False}, False),
        (INT8 | {"type": "float"}, False),
        (INT8 | {"strategy": "group", "group_size": 128}, False),
        (INT8 | {"num_bits": 4}, False),
    ],
)
def test_activations_of_whole_numbers_around_zero_by_row_are_rounded_so(
    inputs: dict[str, Any] | None, rounds_rows: bool
) -> None:
    groups = {"group_0": group(type="int", strategy="channel") | {"input_activations": inputs}}
    storage = read(quant_method="compressed-tensors", format="int-quantized", config_groups=groups)
    assert storage.default is not None
    assert (storage.default.bits, storage.default.scope) == (8, "channel")
    assert storage.default.rounds_rows is rounds_rows


def test_int8_in_sglangs_words() -> None:
    rows = read(quant_method="w8a8_int8", is_dynamic=True, ignore=["lm_head"])
    assert rows.default == WeightFormat(
        "int", 8, "channel", activations="dynamic", rounds_rows=True
    )
    assert rows.format_of("lm_head") is None
    blocks = read(
        quant_method="blockwise_int8", activation_scheme="dynamic", weight_block_size=[128, 64],
        ignored_layers=["gate"],
    )  # fmt: skip
    assert blocks.default == WeightFormat("int", 8, "block", 128, 64, activations="dynamic")


def test_modelopt_by_algorithm_by_module_and_in_a_file_of_its_own() -> None:
    one = read(quant_algo="NVFP4", group_size=16, exclude_modules=["lm_head"])
    assert (one.method, one.formats) == ("modelopt", (NVFP4,))
    own = read(producer={"name": "modelopt"}, quantization={"quant_algo": "FP8",
               "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]})  # fmt: skip
    assert own.formats == (WeightFormat("e4m3", 8, "tensor", activations="static"),)
    assert own.cache == "FP8" and own.format_of("lm_head") is None
    mixed = read(
        quant_method="modelopt", quant_algo="MIXED_PRECISION",
        quantized_layers={"a.b": {"quant_algo": "FP8"},
                          "a.c": {"quant_algo": "NVFP4", "group_size": 16}},
    )  # fmt: skip
    assert mixed.format_of("a.c") == NVFP4 and mixed.format_of("a.d") is None
    stored = mixed.format_of("a.b")
    assert stored is not None and stored.number == "e4m3"


def test_whole_numbers_of_gptq_awq_and_auto_round() -> None:
    gptq = read(
        quant_method="gptq", bits=4, group_size=-1, desc_act=True, sym=False, damp_percent=0.1,
        checkpoint_format="gptq_v2", true_sequential=True,
        dynamic={r"-:.*lm_head.*": {}, r"+:.*down_proj.*": {"bits": 8, "group_size": 32}},
    )  # fmt: skip
    assert gptq.default == WeightFormat(
        "int", 4, "channel", symmetric=False, layout="gptq_v2", act_order=True
    )
    down = gptq.format_of("model.layers.0.mlp.down_proj")
    assert down is not None and (down.bits, down.scope, down.columns) == (8, "group", 32)
    assert gptq.format_of("lm_head") is None
    awq = read(quant_method="awq", w_bit=4, q_group_size=64, zero_point=True, version="GEMM",
               modules_to_not_convert=["visual"])  # fmt: skip
    assert awq.default == WeightFormat("int", 4, "group", columns=64, symmetric=False, layout="awq")
    rounded = read(
        quant_method="auto-round", bits=4, group_size=128, sym=True, iters=200, seqlen=2048,
        packing_format="auto_round:auto_gptq",
        extra_config={"model.layers.0.mlp.gate": {"bits": 16}, "lm_head": {"bits": 8}},
    )  # fmt: skip
    assert rounded.default == WeightFormat("int", 4, "group", columns=128, layout="gptq")
    head = rounded.format_of("lm_head")
    assert head is not None and head.bits == 8
    assert rounded.format_of("model.layers.0.mlp.gate") is None


def test_what_makers_write_beside_is_read_too() -> None:
    """The words of transformers, GPTQModel and AutoRound, as their own classes save them."""
    gptq = read(
        quant_method="gptq", bits=4, group_size=128, desc_act=False, act_group_aware=True, sym=True,
        format="gptq", checkpoint_format="gptq", pack_dtype="int32", lm_head=False, method="gptq",
        meta={"quantizer": ["gptqmodel:5.0"]}, dynamic={"+:.*v_proj": {"bits": 8, "mse": 2.4}},
    )  # fmt: skip
    assert gptq.default == WeightFormat("int", 4, "group", columns=128, layout="gptq")
    awq = read(
        quant_method="awq", bits=4, group_size=128, zero_point=True, version="gemm", format="gemm",
        sym=False, desc_act=False, lm_head=False, pack_dtype="int32", meta={},
        dynamic={"-:.*router.*": {}},
    )  # fmt: skip
    assert awq.default == WeightFormat(
        "int", 4, "group", columns=128, symmetric=False, layout="awq"
    )
    assert awq.format_of("model.layers.0.router") is None
    rounded = read(
        quant_method="auto-round", bits=4, group_size=128, sym=True, act_bits=16,
        act_data_type="float", act_dynamic=True, act_group_size=128, act_sym=True,
        packing_format="auto_round:auto_awq", block_name_to_quantize="model.layers",
    )  # fmt: skip
    assert rounded.default is not None and rounded.default.layout == "awq"
    rows = read(quant_method="compressed-tensors", run_compressed=True,
                config_groups={"a": group(group_size=-1)})  # fmt: skip
    assert rows.default is not None and rows.default.scope == "channel"
    whole = read(quant_method="fp8", weight_block_size=[128, 128], dequantize=False)
    assert whole.default is not None and whole.default.scope == "block"


def test_auto_rounds_own_layout_stores_zero_points_as_they_are() -> None:
    words = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": False}
    layouts = {
        "auto_round": "gptq_v2", "auto_round:gptqmodel": "gptq_v2", "auto_round:auto_gptq": "gptq",
        "auto_round:awq": "awq",
    }  # fmt: skip
    for packing, layout in layouts.items():
        stored = read(**words, packing_format=packing).default
        assert stored is not None and stored.layout == layout, packing
    with pytest.raises(UnsupportedModelError, match="packing_format"):
        read(**words)


def test_auto_round_names_modules_by_expressions_too() -> None:
    stored = read(
        quant_method="auto-round", bits=4, group_size=128,
        extra_config={r".*\.mlp\.down_proj.*": {"sym": False}, "lm_head": {"group_size": 32}},
    )  # fmt: skip
    down, head = stored.format_of("model.layers.0.mlp.down_proj"), stored.format_of("lm_head")
    assert down is not None and not down.symmetric
    assert head is not None and head.symmetric and head.columns == 32
    with pytest.raises(UnsupportedModelError, match="group_size"):
        read(quant_method="auto-round", bits=4, group_size=128,
             extra_config={"lm_head": {"group_size": "32"}})  # fmt: skip


def test_bitsandbytes_tables_and_bytes() -> None:
    four = read(quant_method="bitsandbytes", load_in_4bit=True, bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True, llm_int8_skip_modules=["lm_head"])  # fmt: skip
    assert four.default == WeightFormat("nf4", 4, "group", columns=64, layout="bitsandbytes")
    eight = read(quant_method="bitsandbytes", load_in_8bit=True)
    assert eight.default is not None and (eight.default.number, eight.default.bits) == ("int", 8)


@pytest.mark.parametrize(
    ("stated", "name"),
    [
        ({"quant_method": "hqq"}, "quantization_config = 'hqq'"),
        ({"quant_method": "torchao"}, "supported: fp8, fbgemm-fp8, mxfp4"),
        ({"producer": "x"}, "quantization_config = {'producer'"),
        ({"quant_method": "fp8", "fmt": "e5m2"}, "quantization_config.fmt = 'e5m2'"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": "big"}, "weight_block_size"),
        ({"quant_method": "fp8", "new_field": 1}, "quantization_config.new_field = 1"),
        ({"quant_method": "fp8", "modules_to_not_convert": "a"}, "modules_to_not_convert"),
        ({"quant_method": "awq", "version": "gemv"}, "version = 'gemv'"),
        ({"quant_method": "gptq", "checkpoint_format": "marlin"}, "checkpoint_format"),
        ({"quant_method": "gptq", "format": "marlin"}, "format = 'marlin'"),
        ({"quant_method": "gptq", "pack_dtype": "int16"}, "pack_dtype = 'int16'"),
        ({"quant_method": "awq", "format": "llm-awq"}, "format = 'llm-awq'"),
        ({"quant_method": "auto-round", "data_type": "mx_fp"}, "data_type = 'mx_fp'"),
        ({"quant_method": "gptq", "group_size": 0}, "group_size = 0"),
        ({"quant_method": "gptq", "dynamic": {"+:a": 3}}, "dynamic.+:a = 3"),
        ({"quant_method": "gptq", "dynamic": {"+:a": {"odd": 3}}}, "dynamic.+:a.odd = 3"),
        ({"quant_algo": "NVFP5"}, "quant_algo = 'NVFP5'"),
        ({"quant_algo": "NVFP4", "group_size": 8}, "group_size = 8"),
        ({"quant_algo": "X", "quantized_layers": {"a": {"quant_algo": "Y"}}},
         "quantized_layers.a = 'Y'"),
        ({"quant_algo": "INT4_AWQ", "pre_quant_scale": True}, "pre_quant_scale = True"),
        ({"quant_algo": "INT4_AWQ", "has_zero_point": True}, "has_zero_point = True"),
        ({"quant_algo": "NVFP5", "config_groups": {"a": group(type="float")}},
         "quant_algo = 'NVFP5'"),
        ({"quant_algo": "NVFP4", "config_groups": {"a": group(type="float")}},
         "quant_algo = 'NVFP4'"),
        ({"quant_algo": "MIXED_PRECISION", "moe_quant_algo": "NVFP4",
          "config_groups": {"a": group(type="float")}}, "moe_quant_algo = 'NVFP4'"),
        ({"quant_algo": "FP8", "moe_quant_algo": "NVFP4"}, "moe_quant_algo = 'NVFP4'"),
        ({"quant_algo": "FP9", "quantized_layers": {"a": {"quant_algo": "FP8"}}},
         "quant_algo = 'FP9'"),
        ({"quant_method": "fp8", "weight_block_size": [128, 2**63]}, "weight_block_size"),
        ({"quant_method": "gptq", "group_size": 2**63}, "group_size"),
        ({"quant_method": "gptq", "dynamic": {"+:a": {"group_size": 2**40}}}, "group_size"),
        ({"quant_algo": "INT4_AWQ", "group_size": 2**63}, "group_size"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": group(num_bits=4,
          strategy="group", group_size=2**63)}}, "weights.group_size"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": group(type="float",
          num_bits=4, strategy="group", group_size=16, symmetric=False)}},
         "weights.symmetric = False"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": group(type="float",
          symmetric=False)}}, "weights.symmetric = False"),
        ({"quant_method": "gptq", "dynamic": {f"+:{'a.*' * 100}{n}": {} for n in range(400)}},
         "patterns of modules of"),
        ({"quant_method": "auto-round", "extra_config":
          {f"{'a.*' * 100}{n}": {"bits": 8} for n in range(400)}}, "patterns of modules of"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": 1}}, "config_groups.a"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": group(strategy="x")}},
         "weights.strategy = 'x'"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": group(newer=True)}},
         "config_groups.a.weights.newer = True"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": group(num_bits=6,
          type="float")}}, "num_bits = 6"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": group()},
          "sparsity_config": {"format": "sparse-24"}}, "sparsity_config"),
    ],
)  # fmt: skip
def test_what_is_not_known_stops_by_its_name(stated: dict[str, Any], name: str) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        read(**stated)
    assert name in str(caught.value)


def test_every_published_statement_is_read_whole(shared_assets: Path) -> None:
    """Those of config.json and of modelopt's file; no key is left, no module list is refused."""
    folder, found = shared_assets / "model-configs" / "hf-config", dict[str, Storage]()
    for name, config, beside in published_configs(folder):
        stated = stated_quantisation(with_quantisation(config, beside))
        if stated:
            found[name] = read(**stated)
    assert len(found) == 49
    kinds = [storage.formats[0].number for storage in found.values()]
    assert kinds.count("e4m3") >= 20 and kinds.count("e2m1") >= 20
    kimi = found["moonshotai--Kimi-K2.5"]
    assert kimi.format_of("model.layers.3.mlp.experts.7.up_proj") is kimi.default
    assert kimi.format_of("model.layers.3.mlp.shared_experts.up_proj") is None
    oss = found["openai--gpt-oss-20b"]
    assert oss.format_of("model.layers.0.self_attn.q_proj") is None
    assert oss.format_of("model.layers.0.mlp.experts") is oss.default


def test_the_fuzzer_of_statements_finds_nothing_in_a_short_run() -> None:
    report = harness.run(quantization_config.make_target(), seed=3, iterations=300, limit_s=5)
    assert not report.findings, next(iter(report.findings.values())).text
    assert {"UnsupportedModelError", "read"} <= set(report.outcomes)
