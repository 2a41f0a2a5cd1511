"""Fuzzes statements of how weights are stored:
`python -m tools.fuzz.quantization_config --seed 1 --seconds 600`.

An input is a `quantization_config`, changed as a value from one that a program writes. Reading it,
and looking a module up in what was read, either works or raises UnsupportedModelError, in bounded
time and memory, with a message of bounded length.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from headrace.errors import UnsupportedModelError
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.storage.quantisation import KEY
from headrace.weights.storage.statement import read_storage
from tools.fuzz.harness import Target, main
from tools.fuzz.json_values import change_json

MAX_ERROR_CHARACTERS = 4000
MODULES = (
    "lm_head", "model.layers.0.mlp.gate_proj", "model.layers.10.self_attn.q_proj",
    "a" * 300, "model." + "layers." * 40,
)  # fmt: skip
_GROUP = {
    "targets": ["Linear", "re:.*down_proj.*"],
    "input_activations": {"num_bits": 8, "type": "float", "dynamic": True},
    "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32,
                "symmetric": True, "actorder": None, "observer": "minmax"},
}  # fmt: skip
STATEMENTS: tuple[dict[str, Any], ...] = (
    {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
     "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head", "gate"]},
    {"quant_method": "compressed-tensors", "format": "pack-quantized",
     "config_groups": {"group_0": _GROUP}, "kv_cache_scheme": None,
     "ignore": ["lm_head", r"re:.*mlp\.(gate|up)_proj.*", "model.layers.0*"]},
    {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "exclude_modules": ["mtp*"],
     "quantized_layers": {"a.b": {"quant_algo": "NVFP4", "group_size": 16}}},
    {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}},
    {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": False,
     "dynamic": {"-:.*lm_head": {}, r"+:.*\d+.*": {"bits": 8}}},
    {"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": True},
    {"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_awq",
     "extra_config": {"lm_head": {"bits": 16}}},
    {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    {"quant_method": "w8a8_int8", "is_dynamic": True, "ignore": ["lm_head"]},
    {"quant_method": "blockwise_int8", "weight_block_size": [128, 128], "ignored_layers": ["gate"]},
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 8, 16, 2**31, 2**63, 10**30, 0.5, float("nan"), "", "x", "e4m3",
    "x" * 5000, "re:(a+)+$", "re:" + "(" * 60, "re:[", "*" * 400, "re:" + ".*a" * 100, [], {}, [[]],
    [128, 128], [0, 0], ["re:.*", "*.*.*.*"], {"a": {}}, {"a": [1]}, ["a"] * 300,
)  # fmt: skip


def make_target() -> Target:
    """The target; it needs no files."""

    def attempt(data: bytes) -> str:
        try:
            reader = ConfigReader({KEY: json.loads(data)})
            storage = read_storage(reader)
            reader.finish()
        except UnsupportedModelError as error:
            if len(str(error)) > MAX_ERROR_CHARACTERS:
                raise AssertionError(f"an error of {len(str(error))} characters") from error
            return type(error).__name__
        if storage is not None:
            for module in MODULES:
                storage.format_of(module)
        return "read"

    return Target(seeds(), mutate, attempt)


def seeds() -> list[bytes]:
    """Every statement as it is."""
    return [json.dumps(statement).encode() for statement in STATEMENTS]


def mutate(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """A statement with some values changed."""
    return change_json(rng.choice(seeds), rng, VALUES)


if __name__ == "__main__":
    main(make_target, __doc__)
