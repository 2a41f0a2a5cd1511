"""Statements of compressed-tensors and modelopt: groups of modules, each with its format.

Sources: compressed-tensors quantization/quant_config.py, quant_args.py and config/base.py,
modelopt's hf_quant_config.json, vLLM layers/quantization/modelopt.py (algorithms).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.weights.model_config.config_reader import MAX_SIZE, ConfigReader
from headrace.weights.storage.module_names import ModuleNames, check_patterns
from headrace.weights.storage.reading import (
    MOST_GROUPS,
    block_of,
    cache_of,
    strings,
    unquantised,
)
from headrace.weights.storage.storage import Activations, Layout, Number, Storage, WeightFormat

_BLOCK = (128, 128)
_MIXTURE = "MIXED_PRECISION"

# Of compressed-tensors and modelopt: how weights were made, not what they are.
_HOW_MADE = ("observer", "observer_kwargs", "block_structure", "dynamic")

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


def compressed(stated: ConfigReader, method: str) -> Storage:
    """Of compressed-tensors: groups of modules, linear ones by default.

    Raises UnsupportedModelError for a value that is not known.
    """
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


def modelopt(stated: ConfigReader, method: str) -> Storage:
    """Of modelopt: an algorithm for all, one for each module listed, or groups.

    Raises UnsupportedModelError for a value that is not known.
    """
    stated.unused("producer", "kv_cache_quant_algo", "fmt", "scale_fmt", "activation_scheme")
    algorithm = stated.optional("quant_algo", str) or ""
    # Where experts were converted further, the others are what `weight_block_size` says.
    block = block_of(stated, "weight_block_size")
    around = None if block is None else WeightFormat("e4m3", 8, "block", *block)
    layers = stated.raw("quantized_layers")
    groups: tuple[tuple[list[str], WeightFormat], ...] = tuple(_groups(stated, None, "modelopt"))
    # Either changes what a weight is: zero points beside the scales, inputs that are multiplied.
    for key in ("has_zero_point", "pre_quant_scale"):
        stated.expect(key, bool, (False,), False)
    stated.unused("group_size")
    if layers:
        listed = tuple(_listed(stated, layers))
        _check_algorithms(stated, algorithm, [stored for _, stored in listed])
        return Storage(
            method, around, listed, unquantised=unquantised(stated), cache=cache_of(stated)
        )
    if groups:
        _check_algorithms(stated, algorithm, [stored for _, stored in groups])
        return _grouped(stated, method, groups, around)
    if (of_experts := stated.raw("moe_quant_algo")) not in (None, algorithm):
        stated.refuse("moe_quant_algo", of_experts, "null, or with config_groups")
    stored = _algorithm(stated, "quant_algo", algorithm, stated.optional("group_size", int))
    return Storage(method, stored, unquantised=unquantised(stated), cache=cache_of(stated))


def _check_algorithms(
    stated: ConfigReader, algorithm: str, formats: Sequence[WeightFormat | None]
) -> None:
    """An algorithm for all, stated beside formats of modules, is that of one of them or a mixture.

    Raises UnsupportedModelError otherwise.
    """
    for key, name in (("quant_algo", algorithm), ("moe_quant_algo", stated.raw("moe_quant_algo"))):
        if not name or name == _MIXTURE:
            continue
        of_all = _algorithm(stated, key, str(name), None)
        found = [stored for stored in formats if stored is not None]
        if all((stored.number, stored.bits) != (of_all.number, of_all.bits) for stored in found):
            kinds = sorted({f"{stored.number} of {stored.bits} bits" for stored in found})
            stated.refuse(key, name, f"{_MIXTURE}, or what the modules have: {', '.join(kinds)}")


def _listed(stated: ConfigReader, layers: Any) -> Iterator[tuple[ModuleNames, WeightFormat | None]]:
    """modelopt's `quantized_layers`: an algorithm for each module, put together by algorithm."""
    if not isinstance(layers, Mapping) or len(layers) > MOST_GROUPS:
        stated.refuse("quantized_layers", layers, f"an object of at most {MOST_GROUPS} modules")
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
    is_size = type(columns) is int and 1 <= columns <= MAX_SIZE
    if not is_size or (stored.number == "e2m1" and columns != stored.columns):
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
    if len(names) > MOST_GROUPS:
        stated.refuse("config_groups", len(names), f"at most {MOST_GROUPS} groups")
    for name in names:
        group = groups.section(name)
        weights = None if group is None else group.section("weights")
        if group is None or weights is None:
            groups.refuse(name, groups.raw(name), "objects with 'weights'")
        group.unused("output_activations")
        packing = group.optional("format", str) or outer
        stored = _weights(weights, group.section("input_activations"), packing, layout)
        yield strings(group, "targets") or ["Linear"], stored


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
    block = block_of(weights, "block_structure")
    if scope is None:
        # A size of -1 is a whole row.
        scope = "group" if columns > 0 else "channel" if columns == -1 else "tensor"
    if scope == "tensor_group":
        scope = "group"
    if scope not in ("tensor", "channel", "group", "block"):
        weights.refuse("strategy", scope, "tensor, channel, group, tensor_group or block")
    if scope == "group" and not 1 <= columns <= MAX_SIZE:
        limits = f"1 to {MAX_SIZE}, where the strategy is group"
        weights.refuse("group_size", columns, limits)
    rows, columns = block or _BLOCK if scope == "block" else (0, columns)
    if scope in ("tensor", "channel"):
        columns = 0
    number = _number(weights, kind, bits)
    symmetric = weights.get("symmetric", bool, True)
    if number != "int" and not symmetric:
        weights.refuse("symmetric", symmetric, "true, where the type is float")
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
        symmetric=symmetric,
        layout=layout,
        act_order=order in ("group", "dynamic", True),
        activations=_input_activations(inputs),
        rounds_rows=_rounds_rows(inputs),
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


def _rounds_rows(inputs: ConfigReader | None) -> bool:
    """Whether activations are whole numbers around zero with a scale for each token, or for all."""
    if inputs is None or inputs.raw("type") not in (None, "int") or inputs.raw("num_bits") != 8:
        return False
    of_rows = inputs.raw("strategy") in (None, "token", "tensor")
    return of_rows and inputs.raw("symmetric") is not False


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
    check_patterns(target for targets, _ in groups for target in targets)
    for targets, stored in groups:
        if "Linear" in targets and default is None:
            default = stored
        if modules := [target for target in targets if target != "Linear"]:
            named.append((ModuleNames(modules), stored))
        elif default is not stored:
            # All linear modules that are not listed as left at 16 bits.
            named.append((ModuleNames(["re:.*"]), stored))
    return Storage(
        method, default, tuple(named), unquantised=unquantised(stated), cache=cache_of(stated)
    )
