"""What a folder says of how its weights are quantised, in the word of the program that made it.

config.json states it under `quantization_config`; modelopt writes a file of its own, which some
folders have alone. Either way it is then in the config, so that no such folder is taken for one
whose tensors are plain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BESIDE = "hf_quant_config.json"
"""modelopt's file."""

KEY = "quantization_config"


def with_quantisation(config: Mapping[str, Any], beside: Mapping[str, Any]) -> dict[str, Any]:
    """The config with what `beside`, modelopt's file, states where it states nothing itself."""
    if stated_quantisation(config) or not beside:
        return dict(config)
    return {**config, KEY: dict(beside)}


def stated_quantisation(config: Mapping[str, Any]) -> Any:
    """What a config, or the part of it that is the text model's, states; None where nothing."""
    inner = config.get("text_config")
    return config.get(KEY) or (inner.get(KEY) if isinstance(inner, Mapping) else None)


def quantisation_kind(stated: Any) -> Any:
    """The kind that a `quantization_config` names ("fp8", "NVFP4"); all that it says where it
    does not.
    """
    if not isinstance(stated, Mapping):
        return stated
    inner = stated.get("quantization")
    of_modelopt = inner if isinstance(inner, Mapping) else stated
    return of_modelopt.get("quant_algo") or stated.get("quant_method") or dict(stated)
