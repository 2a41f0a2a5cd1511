"""Statements of GPTQ, AWQ, AutoRound and bitsandbytes: one format, and modules with another.

Sources: transformers utils/quantization_config.py (GPTQConfig, AwqConfig), GPTQModel and AutoGPTQ
quantization/config.py, vLLM layers/quantization (auto_gptq.py, auto_awq.py, auto_round.py),
published configs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.storage.module_names import ModuleNames, check_patterns
from headrace.weights.storage.reading import (
    MOST_GROUPS,
    changes_of,
    scope_of,
    strings,
    unquantised,
)
from headrace.weights.storage.storage import Layout, Number, Storage, WeightFormat

# Of GPTQ, AWQ and AutoRound: the same, and which kernels their own engines take.
_GPTQ_MAKING = (
    "true_sequential", "static_groups", "damp_percent", "damp_auto_increment", "dataset",
    "tokenizer", "batch_size", "model_name_or_path", "model_file_base_name", "meta", "quantizer",
    "cache_block_outputs", "module_name_preceding_first_block", "pad_token_id", "use_cuda_fp16",
    "use_exllama", "disable_exllama", "exllama_config", "max_input_length", "model_seqlen",
    "backend", "mse", "adapter", "act_group_aware", "method",
)  # fmt: skip

# What GPTQ and AWQ pack into; others would be another layout.
_WORDS = ("int32", "torch.int32")

_AWQ_MAKING = (
    "do_fuse", "fuse_max_seq_len", "modules_to_fuse", "exllama_config", "backend", "desc_act",
    "sym", "meta", "method",
)  # fmt: skip

_ROUND_MAKING = (
    "amp", "autoround_version", "batch_size", "dataset", "enable_minmax_tuning",
    "enable_norm_bias_tuning", "enable_quanted_input", "gradient_accumulate_steps", "iters",
    "low_gpu_mem_usage", "lr", "minmax_lr", "nsamples", "scale_dtype", "seqlen", "train_bs",
    "block_name_to_quantize", "to_quant_block_names", "quant_block_list", "backend", "desc_act",
    "true_sequential", "damp_percent", "quant_lm_head", "super_bits", "super_group_size",
    "act_data_type", "act_dynamic", "act_group_size", "act_sym",
)  # fmt: skip

_ROUND_LAYOUTS: dict[str, Layout] = {
    "auto_round": "gptq_v2", "auto_round:gptqmodel": "gptq_v2", "auto_round:gptq": "gptq",
    "auto_round:auto_gptq": "gptq", "auto_round:awq": "awq", "auto_round:auto_awq": "awq",
    "auto_gptq": "gptq", "auto_awq": "awq",
}  # fmt: skip
"""By `packing_format`. AutoRound's own kernels store zero points as they are
(GPTQ_FORMAT_NO_ZP in auto_round/utils), those of AutoGPTQ less one."""


def gptq(stated: ConfigReader, method: str) -> Storage:
    """Of GPTQ and GPTQModel.

    Raises UnsupportedModelError for a value that is not known.
    """
    stated.unused(*_GPTQ_MAKING, "block_name_to_quantize", "quant_method")
    layout: Layout = "gptq"
    # GPTQModel's name of it is `format`, which older versions and others do not know.
    for key in ("format", "checkpoint_format"):
        if stated.expect(key, str, ("gptq", "gptq_v2"), "gptq") == "gptq_v2":
            layout = "gptq_v2"
    stated.expect("pack_dtype", str, _WORDS, "int32")
    stated.expect("is_marlin_format", bool, (False,), False)
    stated.expect("lm_head", bool, (False, True), False)
    only = stated.raw("modules_in_block_to_quantize")
    named: list[str] = []
    if only:
        nested = only if isinstance(only, list) else [only]
        for names in nested:
            named += names if isinstance(names, list) else [names]
        if not all(isinstance(name, str) for name in named):
            stated.refuse("modules_in_block_to_quantize", only, "lists of modules")
    stored = _whole_numbers(
        stated, stated.size("bits", 4, most=8), layout,
        symmetric=stated.get("sym", bool, True), act_order=stated.get("desc_act", bool, False),
    )  # fmt: skip
    plain, groups = _dynamic(stated, stored)
    if named:
        groups = (*groups, (ModuleNames(named), stored))
    return Storage(method, None if named else stored, groups, unquantised=plain)


def _dynamic(
    stated: ConfigReader, stored: WeightFormat
) -> tuple[ModuleNames, tuple[tuple[ModuleNames, WeightFormat | None], ...]]:
    """GPTQModel's `dynamic`: expressions of modules with other bits ("+:…"), or none ("-:…")."""
    entries = stated.raw("dynamic") or {}
    if not isinstance(entries, Mapping) or len(entries) > MOST_GROUPS:
        stated.refuse("dynamic", entries, f"an object of at most {MOST_GROUPS} expressions")
    plain = strings(stated, "modules_to_not_convert")
    groups = []
    check_patterns(f"re:{name}" for name in entries)
    for name, changes in entries.items():
        expression = f"re:{name.removeprefix('+:').removeprefix('-:')}"
        if name.startswith("-:"):
            plain.append(expression)
            continue
        changed = changes_of(stated, "dynamic", name, changes)
        bits, columns = changed.size("bits", stored.bits, most=8), changed.raw("group_size")
        other: dict[str, Any] = {
            "bits": bits,
            "symmetric": changed.get("sym", bool, stored.symmetric),
            "act_order": changed.get("desc_act", bool, stored.act_order),
        }
        if isinstance(columns, int):
            other |= scope_of(changed, columns)
        changed.unused(*_GPTQ_MAKING)
        changed.finish()
        groups.append((ModuleNames([expression]), replace(stored, **other)))
    return ModuleNames(plain), tuple(groups)


def awq(stated: ConfigReader, method: str) -> Storage:
    """Of AWQ, as AutoAWQ and GPTQModel write it.

    Raises UnsupportedModelError for a value that is not known.
    """
    stated.unused(*_AWQ_MAKING)
    # Of gemv and of llm-awq the words lie otherwise.
    for key in ("version", "format", "checkpoint_format"):
        stated.expect(key, str, ("gemm", "GEMM"), "gemm")
    stated.expect("pack_dtype", str, _WORDS, "int32")
    stated.expect("lm_head", bool, (False, True), False)
    bits = stated.size("w_bit", 4, most=8) if stated.states("w_bit") else None
    stored = _whole_numbers(
        stated, bits or stated.size("bits", 4, most=8), "awq",
        symmetric=not stated.get("zero_point", bool, True), key="q_group_size",
    )  # fmt: skip
    plain, groups = _dynamic(stated, stored)
    return Storage(method, stored, groups, unquantised=plain)


def auto_round(stated: ConfigReader, method: str) -> Storage:
    """Of AutoRound in the layouts of GPTQ and of AWQ.

    Raises UnsupportedModelError for a value that is not known.
    """
    stated.unused(*_ROUND_MAKING)
    stated.expect("data_type", str, ("int",), "int")
    stated.expect("act_bits", int, (16, 32), 16)
    packing = stated.get("packing_format", str, "auto_round:auto_gptq")
    if packing not in _ROUND_LAYOUTS:
        stated.refuse("packing_format", packing, ", ".join(_ROUND_LAYOUTS))
    stored = _whole_numbers(
        stated, stated.size("bits", 4, most=8), _ROUND_LAYOUTS[packing],
        symmetric=stated.get("sym", bool, True),
    )  # fmt: skip
    if not stored.symmetric and stated.raw("packing_format") is None:
        # Older folders say it in `backend`, in words of several meanings.
        known = ", ".join(_ROUND_LAYOUTS)
        stated.refuse("packing_format", None, f"stated where sym is false: {known}")
    groups = []
    entries = stated.raw("extra_config") or {}
    if not isinstance(entries, Mapping) or len(entries) > MOST_GROUPS:
        stated.refuse("extra_config", entries, f"an object of at most {MOST_GROUPS} modules")
    plain = strings(stated, "modules_to_not_convert")
    check_patterns(map(_name_of, entries))
    for module, changes in entries.items():
        changed = changes_of(stated, "extra_config", module, changes)
        changed.unused("data_type", "act_bits", "act_data_type", "act_dynamic", "act_group_size",
                       "act_sym", "scale_dtype", "super_bits", "super_group_size")  # fmt: skip
        bits = changed.size("bits", stored.bits, most=32)
        other: dict[str, Any] = {
            "bits": bits,
            "symmetric": changed.get("sym", bool, stored.symmetric),
        }
        if (columns := changed.raw("group_size")) is not None:
            other |= scope_of(changed, columns)
        changed.finish()
        name = _name_of(module)
        if bits > 8:
            plain.append(name)
        else:
            groups.append((ModuleNames([name]), replace(stored, **other)))
    return Storage(method, stored, tuple(groups), unquantised=ModuleNames(plain))


def _name_of(module: str) -> str:
    """AutoRound takes a name with a mark of expressions as one."""
    return f"re:{module}" if set(module) & set("*+?^$()[]{}|\\") else module


def bitsandbytes(stated: ConfigReader, method: str) -> Storage:
    """Of bitsandbytes: tables of 4 bits, or bytes.

    Raises UnsupportedModelError for a value that is not known.
    """
    stated.unused(
        "bnb_4bit_compute_dtype", "bnb_4bit_quant_storage", "bnb_4bit_use_double_quant",
        "llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight", "llm_int8_threshold",
        "load_in_8bit", "_load_in_8bit",
    )  # fmt: skip
    kind = stated.expect("bnb_4bit_quant_type", str, ("nf4", "fp4"), "nf4")
    # Both are read: published configs have the older name too.
    older = stated.get("_load_in_4bit", bool, False)
    four = stated.get("load_in_4bit", bool, False) or older
    number: Number = "fp4" if kind == "fp4" else "nf4"
    stored = (
        WeightFormat(number, 4, "group", columns=64, layout="bitsandbytes")
        if four
        else WeightFormat("int", 8, "channel", layout="bitsandbytes", activations="dynamic")
    )
    return Storage(method, stored, unquantised=unquantised(stated))


def _whole_numbers(
    stated: ConfigReader,
    bits: int,
    layout: Layout,
    *,
    symmetric: bool,
    act_order: bool = False,
    key: str = "group_size",
) -> WeightFormat:
    """Whole numbers in groups along a row; -1 is the whole row. key: another name of the size."""
    columns = stated.raw(key) if stated.states(key) else stated.raw("group_size")
    shape = scope_of(stated, 128 if columns is None else columns)
    return WeightFormat(
        "int", bits, **shape, symmetric=symmetric, layout=layout, act_order=act_order
    )
