"""Which layers have a window, in both containers: every one but each n-th, or as a list says.

GGUF has an array of flags or n itself, config.json `layer_types` or n; both sides may leave it out,
and then mean the family's own n.

Source: llama.cpp llama-model.cpp (load_swa_pattern), transformers configurations.
"""

from __future__ import annotations

from typing import Any

from headrace.weights.architectures.gguf_keys import GGUFKeys, is_whole
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.rope_config import FULL, WINDOWED

PATTERN = "attention.sliding_window_pattern"


def read_layer_types(keys: GGUFKeys, config: dict[str, Any]) -> None:
    """Put `layer_types` into the config where the file says which layers have a window."""
    count = config["num_hidden_layers"]
    if is_whole(keys.peek(PATTERN)):
        flags = windows_but_each(keys.required_size(PATTERN), count)
    else:
        flags = keys.flags(PATTERN, count) or []
    if flags:
        config["layer_types"] = [WINDOWED if flag else FULL for flag in flags]


def write_layer_types(config: ConfigReader, entries: dict[str, Any], full_every: int) -> None:
    """Put flags into the entries where layers differ from what llama.cpp takes by itself.

    full_every: the family's own n. Raises UnsupportedModelError for kinds that are neither.
    """
    count = config.size("num_hidden_layers")
    kinds = config.raw("layer_types")
    if kinds is None:
        flags = windows_but_each(config.size("sliding_window_pattern", full_every), count)
    elif not (
        isinstance(kinds, list)
        and len(kinds) == count
        and all(kind in (WINDOWED, FULL) for kind in kinds)
    ):
        config.refuse("layer_types", kinds, f"{count} of {WINDOWED} or {FULL}")
    else:
        flags = [kind == WINDOWED for kind in kinds]
    config.unused("sliding_window_pattern", "_sliding_window_pattern")
    if flags != windows_but_each(full_every, count):
        entries[PATTERN] = flags


def windows_but_each(full_every: int, count: int) -> list[bool]:
    """Flags of `count` layers of which each n-th sees everything."""
    return [index % full_every != 0 for index in range(1, count + 1)]
