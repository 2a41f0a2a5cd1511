"""From the words of a config to `Storage`: one reader for every program that makes folders.

    fp8                   e4m3, scales of blocks or of whole matrices (DeepSeek, Qwen, AutoFP8)
    fbgemm_fp8            e4m3, a scale for each row
    mxfp4                 experts of gpt-oss
    compressed-tensors    groups of modules, each with number type, bits and scope
    modelopt              an algorithm for all modules or one for each, or groups as above
    gptq, awq, auto-round whole numbers of 2 to 8 bits in groups along a row
    bitsandbytes          NF4, FP4 or INT8

Every key is read by name: those that say how weights are stored decide, those that say how they
were made or how activations and caches are rounded are marked as of no effect, and any other is
left for `ConfigReader.finish` to stop the load.

Sources: transformers utils/quantization_config.py (GPTQConfig, AwqConfig, FineGrainedFP8Config),
compressed-tensors quantization/quant_config.py and quant_args.py, GPTQModel and AutoGPTQ
quantization/config.py, vLLM layers/quantization (auto_gptq.py, auto_awq.py, auto_round.py,
modelopt.py), modelopt's hf_quant_config.json, published configs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from headrace.weights.config_reader import ConfigReader
from headrace.weights.quantisation import KEY
from headrace.weights.storage.module_names import ModuleNames
from headrace.weights.storage.storage import Activations, Layout, Number, Storage, WeightFormat

# Keys that list what is left as it was, by program.
_UNQUANTISED = (
    "modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules",
    "llm_int8_skip_modules",
)  # fmt: skip
_MOST_GROUPS = 1 << 16
"""Groups of modules, at most; modelopt lists each of a model's modules, some thousands."""

_BLOCK = (128, 128)
_E4M3 = ("e4m3", "float8_e4m3fn")
# What GPTQ and AWQ pack into; others would be another layout.
_WORDS = ("int32", "torch.int32")
# Of compressed-tensors and modelopt: how weights were made, not what they are.
_HOW_MADE = ("observer", "observer_kwargs", "block_structure", "dynamic")
# Of GPTQ, AWQ and AutoRound: the same, and which kernels their own engines take.
_GPTQ_MAKING = (
    "true_sequential", "static_groups", "damp_percent", "damp_auto_increment", "dataset",
    "tokenizer", "batch_size", "model_name_or_path", "model_file_base_name", "meta", "quantizer",
    "cache_block_outputs", "module_name_preceding_first_block", "pad_token_id", "use_cuda_fp16",
    "use_exllama", "disable_exllama", "exllama_config", "max_input_length", "model_seqlen",
    "backend", "mse", "adapter", "act_group_aware", "method",
)  # fmt: skip
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
# `quant_algo`, modelopt's word for all modules or for one.
_ALGORITHMS: Mapping[str, WeightFormat] = {
    "FP8": WeightFormat("e4m3", 8, "tensor", activations="static"),
    "FP8_PER_CHANNEL_PER_TOKEN": WeightFormat("e4m3", 8, "channel", activations="dynamic"),
    "FP8_PB_WO": WeightFormat("e4m3", 8, "block", *_BLOCK),
    "NVFP4": WeightFormat(
        "e2m1", 4, "group", columns=16, scale="e4m3", layout="modelopt", activations="dynamic"
    ),
    "NVFP4_AWQ": WeightFormat(
        "e2m1", 4, "group", columns=16, scale="e4m3", layout="modelopt", activations="dynamic"
    ),
    "W4A16_NVFP4": WeightFormat(
        "e2m1", 4, "group", columns=16, scale="e4m3", layout="modelopt"
    ),
    "W4A16_AWQ": WeightFormat("int", 4, "group", columns=128, layout="modelopt"),
    "INT4_AWQ": WeightFormat("int", 4, "group", columns=128, layout="modelopt"),
}  # fmt: skip


def read_storage(reader: ConfigReader) -> Storage | None:
    """How the weights are stored of the model with this config; None for plain numbers.

    Raises UnsupportedModelError naming a method or a value that is not known here. Keys that are
    not known stay unread in `reader`.
    """
    stated = reader.section(KEY)
    if stated is None or not reader.raw(KEY):
        return None
    inner = stated.section("quantization")
    if inner is not None:
        # modelopt's own file has what config.json states one level deeper.
        stated.unused("producer")
        stated = inner
    method = _method(reader, stated)
    return _READERS[method](stated, method)


def _method(reader: ConfigReader, stated: ConfigReader) -> str:
    method = str(stated.optional("quant_method", str) or "").lower().replace("_", "-")
    method = _OTHER_NAMES.get(method, method)
    if stated.states("quant_algo") and method in ("", "fp8"):
        # Folders of FP8 whose experts modelopt converted further say both.
        method = "modelopt"
    if method not in _READERS:
        stated_method = stated.raw("quant_method")
        reader.refuse(
            KEY,
            reader.raw(KEY) if stated_method is None else stated_method,
            f"{', '.join(_READERS)}, null, or a GGUF file of the same model",
        )
    return method


def _fp8(stated: ConfigReader, method: str) -> Storage:
    stated.unused("dequantize")
    stated.expect("fmt", str, _E4M3, "e4m3")
    stated.expect("scale_fmt", str, ("float", "ue8m0"), "float")
    activations = _activations(stated)
    block = _block(stated, "weight_block_size")
    if block is None:
        # One scale, or one for each row: the tensor of scales has as many.
        stored = WeightFormat("e4m3", 8, "tensor", activations=activations)
    else:
        stored = WeightFormat("e4m3", 8, "block", *block, activations=activations)
    return Storage(method, stored, unquantised=_unquantised(stated), cache=_cache(stated))


def _fbgemm(stated: ConfigReader, method: str) -> Storage:
    stated.unused("activation_scale_ub")
    stored = WeightFormat("e4m3", 8, "channel", activations="dynamic")
    return Storage(method, stored, unquantised=_unquantised(stated))


def _mxfp4(stated: ConfigReader, method: str) -> Storage:
    stated.unused("dequantize")
    stored = WeightFormat("e2m1", 4, "group", columns=32, scale="e8m0", layout="mxfp4")
    return Storage(method, stored, unquantised=_unquantised(stated))


def _compressed(stated: ConfigReader, method: str) -> Storage:
    stated.unused(
        "quantization_status", "global_compression_ratio", "version", "producer", "run_compressed"
    )
    # Weights that are sparse, or rotated, would be other weights.
    for key in ("sparsity_config", "transform_config"):
        if value := stated.raw(key):
            stated.refuse(key, value, "null or {}")
    layout = stated.optional("format", str)
    groups = tuple(_groups(stated, layout, "compressed"))
    return _grouped(stated, method, groups)


def _modelopt(stated: ConfigReader, method: str) -> Storage:
    stated.unused("producer", "kv_cache_quant_algo", "fmt", "scale_fmt", "activation_scheme")
    algorithm = stated.optional("quant_algo", str) or ""
    # Where experts were converted further, the others are what `weight_block_size` says.
    block = _block(stated, "weight_block_size")
    around = None if block is None else WeightFormat("e4m3", 8, "block", *block)
    layers = stated.raw("quantized_layers")
    groups = tuple(_groups(stated, None, "modelopt"))
    stated.unused("moe_quant_algo", "group_size", "has_zero_point", "pre_quant_scale")
    if layers:
        listed = tuple(_listed(stated, layers))
        return Storage(
            method, around, listed, unquantised=_unquantised(stated), cache=_cache(stated)
        )
    if groups:
        return _grouped(stated, method, groups, around)
    stored = _algorithm(stated, "quant_algo", algorithm, stated.optional("group_size", int))
    return Storage(method, stored, unquantised=_unquantised(stated), cache=_cache(stated))


def _listed(stated: ConfigReader, layers: Any) -> Iterator[tuple[ModuleNames, WeightFormat | None]]:
    """modelopt's `quantized_layers`: an algorithm for each module, put together by algorithm."""
    if not isinstance(layers, Mapping) or len(layers) > _MOST_GROUPS:
        stated.refuse("quantized_layers", layers, f"an object of at most {_MOST_GROUPS} modules")
    modules: dict[WeightFormat, list[str]] = {}
    for module, entry in layers.items():
        key = f"quantized_layers.{module[:80]}"
        if not isinstance(entry, Mapping) or not set(entry) <= {"quant_algo", "group_size"}:
            stated.refuse(key, entry, "objects of quant_algo and group_size")
        stored = _algorithm(stated, key, str(entry.get("quant_algo")), entry.get("group_size"))
        modules.setdefault(stored, []).append(module)
    for stored, names in modules.items():
        yield ModuleNames(names), stored


def _algorithm(stated: ConfigReader, key: str, name: str, columns: Any) -> WeightFormat:
    stored = _ALGORITHMS.get(name.upper())
    if stored is None:
        stated.refuse(key, name, ", ".join(_ALGORITHMS))
    if columns is None or stored.scope != "group":
        return stored
    if type(columns) is not int or columns < 1 or (stored.number == "e2m1" and columns != 16):
        stated.refuse("group_size", columns, f"{stored.columns}")
    return replace(stored, columns=columns)


def _groups(
    stated: ConfigReader, outer: str | None, layout: Layout
) -> Iterator[tuple[list[str], WeightFormat]]:
    """Modules and format of each of the `config_groups` of compressed-tensors and modelopt.

    outer: the layout that is stated for all of them.
    """
    groups = stated.section("config_groups")
    if groups is None:
        return
    names = list(stated.raw("config_groups"))
    if len(names) > _MOST_GROUPS:
        stated.refuse("config_groups", len(names), f"at most {_MOST_GROUPS} groups")
    for name in names:
        group = groups.section(name)
        weights = None if group is None else group.section("weights")
        if group is None or weights is None:
            groups.refuse(name, groups.raw(name), "objects with 'weights'")
        group.unused("output_activations")
        packing = group.optional("format", str) or outer
        stored = _weights(weights, group.section("input_activations"), packing, layout)
        yield _strings(group, "targets") or ["Linear"], stored


# What compressed-tensors calls the ways in which numbers lie.
_PLAIN = ("float-quantized", "int-quantized", "naive-quantized", "dense")
_PACKED = ("pack-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision")


def _weights(
    weights: ConfigReader, inputs: ConfigReader | None, packing: str | None, layout: Layout
) -> WeightFormat:
    weights.unused(*_HOW_MADE, "zp_dtype")
    bits = weights.size("num_bits", most=16)
    kind = weights.expect("type", str, ("int", "float"), "int")
    scope = weights.optional("strategy", str)
    columns = weights.optional("group_size", int) or 0
    block = _block(weights, "block_structure")
    if scope is None:
        # A size of -1 is a whole row.
        scope = "group" if columns > 0 else "channel" if columns == -1 else "tensor"
    if scope == "tensor_group":
        scope = "group"
    if scope not in ("tensor", "channel", "group", "block"):
        weights.refuse("strategy", scope, "tensor, channel, group, tensor_group or block")
    if scope == "group" and columns < 1:
        weights.refuse("group_size", columns, "1 or more, where the strategy is group")
    rows, columns = block or _BLOCK if scope == "block" else (0, columns)
    if scope in ("tensor", "channel"):
        columns = 0
    number = _number(weights, kind, bits)
    order = weights.raw("actorder")
    if order not in (None, False, "static", "weight", "group", "dynamic", True):
        weights.refuse("actorder", order, "null, weight, static, group or dynamic")
    if packing is not None and packing not in _PLAIN + _PACKED:
        weights.refuse("format", packing, ", ".join(_PLAIN + _PACKED))
    if packing in _PLAIN or number == "e4m3" or (number == "int" and bits == 8 and not packing):
        layout = "plain"
    scale = weights.optional("scale_dtype", str)
    is_mx = number == "e2m1" and (packing == "mxfp4-pack-quantized" or columns == 32)
    known = (None, "torch.uint8", "torch.float8_e4m3fn", "torch.bfloat16", "torch.float16",
             "torch.float32")  # fmt: skip
    if scale not in known:
        weights.refuse("scale_dtype", scale, ", ".join(str(name) for name in known))
    return WeightFormat(
        number,
        bits,
        scope,  # type: ignore[arg-type]  # one of the four by now
        rows,
        columns,
        scale="e8m0" if is_mx else "e4m3" if number == "e2m1" else "float",
        symmetric=weights.get("symmetric", bool, True),
        layout=layout,
        act_order=order in ("group", "dynamic", True),
        activations=_input_activations(inputs),
    )


def _number(weights: ConfigReader, kind: str, bits: int) -> Number:
    if kind == "int":
        return "int"
    if bits not in (4, 8):
        weights.refuse("num_bits", bits, "4 or 8 of type float")
    return "e4m3" if bits == 8 else "e2m1"


def _input_activations(inputs: ConfigReader | None) -> Activations:
    """When they are rounded. How does not matter to a weight."""
    if inputs is None:
        return ""
    inputs.unused(
        *_HOW_MADE, "num_bits", "type", "symmetric", "strategy", "group_size", "actorder",
        "scale_dtype", "zp_dtype",
    )  # fmt: skip
    return "dynamic" if inputs.raw("dynamic") else "static"


def _grouped(
    stated: ConfigReader,
    method: str,
    groups: tuple[tuple[list[str], WeightFormat], ...],
    around: WeightFormat | None = None,
) -> Storage:
    """Groups that name modules, and the one of all linear modules as the default."""
    if not groups:
        stated.refuse("config_groups", stated.raw("config_groups"), "at least one group")
    default, named = around, []
    for targets, stored in groups:
        if "Linear" in targets and default is None:
            default = stored
        if modules := [target for target in targets if target != "Linear"]:
            named.append((ModuleNames(modules), stored))
        elif default is not stored:
            # All linear modules that are not listed as left at 16 bits.
            named.append((ModuleNames(["re:.*"]), stored))
    return Storage(
        method, default, tuple(named), unquantised=_unquantised(stated), cache=_cache(stated)
    )


def _gptq(stated: ConfigReader, method: str) -> Storage:
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
    if not isinstance(entries, Mapping) or len(entries) > _MOST_GROUPS:
        stated.refuse("dynamic", entries, f"an object of at most {_MOST_GROUPS} expressions")
    plain = _strings(stated, "modules_to_not_convert")
    groups = []
    for name, changes in entries.items():
        expression = f"re:{name.removeprefix('+:').removeprefix('-:')}"
        if name.startswith("-:"):
            plain.append(expression)
            continue
        changed = _changes(stated, "dynamic", name, changes)
        bits, columns = changed.size("bits", stored.bits, most=8), changed.raw("group_size")
        other: dict[str, Any] = {
            "bits": bits,
            "symmetric": changed.get("sym", bool, stored.symmetric),
            "act_order": changed.get("desc_act", bool, stored.act_order),
        }
        if isinstance(columns, int):
            other |= _scope(changed, columns)
        changed.unused(*_GPTQ_MAKING)
        changed.finish()
        groups.append((ModuleNames([expression]), replace(stored, **other)))
    return ModuleNames(plain), tuple(groups)


def _awq(stated: ConfigReader, method: str) -> Storage:
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


def _auto_round(stated: ConfigReader, method: str) -> Storage:
    stated.unused(*_ROUND_MAKING)
    stated.expect("data_type", str, ("int",), "int")
    stated.expect("act_bits", int, (16, 32), 16)
    packing = stated.get("packing_format", str, "auto_round:auto_gptq")
    layout: Layout = "awq" if "awq" in packing else "gptq"
    known = ("auto_round", "auto_round:gptq", "auto_round:auto_gptq", "auto_round:awq",
             "auto_round:auto_awq", "auto_gptq", "auto_awq")  # fmt: skip
    if packing not in known:
        stated.refuse("packing_format", packing, ", ".join(known))
    stored = _whole_numbers(
        stated, stated.size("bits", 4, most=8), layout, symmetric=stated.get("sym", bool, True)
    )
    groups = []
    entries = stated.raw("extra_config") or {}
    if not isinstance(entries, Mapping) or len(entries) > _MOST_GROUPS:
        stated.refuse("extra_config", entries, f"an object of at most {_MOST_GROUPS} modules")
    plain = _strings(stated, "modules_to_not_convert")
    for module, changes in entries.items():
        changed = _changes(stated, "extra_config", module, changes)
        changed.unused("data_type", "act_bits", "act_data_type", "act_dynamic", "act_group_size",
                       "act_sym", "scale_dtype", "super_bits", "super_group_size")  # fmt: skip
        bits = changed.size("bits", stored.bits, most=32)
        other: dict[str, Any] = {
            "bits": bits,
            "symmetric": changed.get("sym", bool, stored.symmetric),
        }
        if isinstance(columns := changed.raw("group_size"), int):
            other |= _scope(changed, columns)
        changed.finish()
        if bits > 8:
            plain.append(module)
        else:
            groups.append((ModuleNames([module]), replace(stored, **other)))
    return Storage(method, stored, tuple(groups), unquantised=ModuleNames(plain))


def _bitsandbytes(stated: ConfigReader, method: str) -> Storage:
    stated.unused(
        "bnb_4bit_compute_dtype", "bnb_4bit_quant_storage", "bnb_4bit_use_double_quant",
        "llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight", "llm_int8_threshold",
        "load_in_8bit", "_load_in_8bit",
    )  # fmt: skip
    kind = stated.expect("bnb_4bit_quant_type", str, ("nf4", "fp4"), "nf4")
    four = stated.get("load_in_4bit", bool, False) or stated.get("_load_in_4bit", bool, False)
    number: Number = "fp4" if kind == "fp4" else "nf4"
    stored = (
        WeightFormat(number, 4, "group", columns=64, layout="bitsandbytes")
        if four
        else WeightFormat("int", 8, "channel", layout="bitsandbytes", activations="dynamic")
    )
    return Storage(method, stored, unquantised=_unquantised(stated))


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
    shape = _scope(stated, 128 if columns is None else columns)
    return WeightFormat(
        "int", bits, **shape, symmetric=symmetric, layout=layout, act_order=act_order
    )


def _changes(stated: ConfigReader, key: str, module: str, changes: Any) -> ConfigReader:
    """What is stated of one module, or of those of an expression, in an object under `key`."""
    name = f"{key}.{module[:80]}"
    if not isinstance(changes, Mapping):
        stated.refuse(name, changes, "objects")
    return ConfigReader(changes, prefix=f"{KEY}.{name}.")


def _scope(stated: ConfigReader, columns: Any) -> dict[str, Any]:
    if type(columns) is not int or columns == 0 or columns < -1:
        stated.refuse("group_size", columns, "1 or more, or -1 for a whole row")
    if columns == -1:
        return {"scope": "channel", "columns": 0}
    return {"scope": "group", "columns": columns}


def _block(stated: ConfigReader, key: str) -> tuple[int, int] | None:
    """Rows and columns of a block; None where none is stated."""
    value = stated.raw(key)
    if value is None:
        return None
    if isinstance(value, str):
        value = [int(part) if part.isdecimal() else part for part in value[:40].split("x")]
    if not isinstance(value, list) or [*map(type, value)] != [int, int] or min(value) < 1:
        stated.refuse(key, value, "two whole numbers above 0, rows and columns of a block")
    return value[0], value[1]


def _activations(stated: ConfigReader) -> Activations:
    value = stated.expect("activation_scheme", str, ("dynamic", "static"), "dynamic")
    return "static" if value == "static" else "dynamic"


def _cache(stated: ConfigReader) -> str:
    """What the KV cache is calibrated for; it does not change a weight."""
    scheme = stated.raw("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        return f"{scheme.get('type', '')}{scheme.get('num_bits', '')}"[:20]
    return str(scheme or stated.raw("kv_cache_quant_algo") or "")[:20]


def _unquantised(stated: ConfigReader) -> ModuleNames:
    names = []
    for key in _UNQUANTISED:
        names += _strings(stated, key)
    return ModuleNames(names)


def _strings(stated: ConfigReader, key: str) -> list[str]:
    value = stated.raw(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        stated.refuse(key, value, "lists of names of modules")
    return list(value)


_READERS: Mapping[str, Callable[[ConfigReader, str], Storage]] = {
    "fp8": _fp8,
    "fbgemm-fp8": _fbgemm,
    "mxfp4": _mxfp4,
    "compressed-tensors": _compressed,
    "modelopt": _modelopt,
    "gptq": _gptq,
    "awq": _awq,
    "auto-round": _auto_round,
    "bitsandbytes": _bitsandbytes,
}
_OTHER_NAMES = {"modelopt-fp4": "modelopt", "intel/auto-round": "auto-round"}
