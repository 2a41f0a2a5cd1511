"""What statements of several programs share: sizes of blocks and groups, lists of modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.weights.model_config.config_reader import MAX_SIZE, ConfigReader
from headrace.weights.storage.module_names import ModuleNames
from headrace.weights.storage.quantisation import KEY
from headrace.weights.storage.storage import Activations

# Keys that list what is left as it was, by program.
_UNQUANTISED = (
    "modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules",
    "llm_int8_skip_modules",
)  # fmt: skip

MOST_GROUPS = 1 << 16
"""Groups of modules, at most; modelopt lists each of a model's modules, some thousands."""


def changes_of(stated: ConfigReader, key: str, module: str, changes: Any) -> ConfigReader:
    """What is stated of one module, or of those of an expression, in an object under `key`."""
    name = f"{key}.{module[:80]}"
    if not isinstance(changes, Mapping):
        stated.refuse(name, changes, "objects")
    return ConfigReader(changes, prefix=f"{KEY}.{name}.")


def scope_of(stated: ConfigReader, columns: Any) -> dict[str, Any]:
    """`scope` and `columns` of a format by a size of groups; -1 is a whole row."""
    if type(columns) is not int or columns == 0 or not -1 <= columns <= MAX_SIZE:
        stated.refuse("group_size", columns, f"1 to {MAX_SIZE}, or -1 for a whole row")
    if columns == -1:
        return {"scope": "channel", "columns": 0}
    return {"scope": "group", "columns": columns}


def block_of(stated: ConfigReader, key: str) -> tuple[int, int] | None:
    """Rows and columns of a block; None where none is stated."""
    value = stated.raw(key)
    if value is None:
        return None
    if isinstance(value, str):
        value = [int(part) if part.isdecimal() else part for part in value[:40].split("x")]
    is_pair = isinstance(value, list) and [*map(type, value)] == [int, int]
    if not is_pair or not all(1 <= size <= MAX_SIZE for size in value):
        stated.refuse(key, value, f"two whole numbers from 1 to {MAX_SIZE}, rows and columns")
    return value[0], value[1]


def activations_of(stated: ConfigReader) -> Activations:
    """When activations are rounded; dynamically where nothing is stated."""
    value = stated.expect("activation_scheme", str, ("dynamic", "static"), "dynamic")
    return "static" if value == "static" else "dynamic"


def cache_of(stated: ConfigReader) -> str:
    """What the KV cache is calibrated for; it does not change a weight."""
    scheme = stated.raw("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        return f"{scheme.get('type', '')}{scheme.get('num_bits', '')}"[:20]
    return str(scheme or stated.raw("kv_cache_quant_algo") or "")[:20]


def unquantised(stated: ConfigReader) -> ModuleNames:
    """The modules that are listed as left at 16 bits."""
    names = []
    for key in _UNQUANTISED:
        names += strings(stated, key)
    return ModuleNames(names)


def strings(stated: ConfigReader, key: str) -> list[str]:
    """A list of names; empty where there is none."""
    value = stated.raw(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        stated.refuse(key, value, "lists of names of modules")
    return list(value)
