"""A Hugging Face config as GGUF metadata: the way back of `gguf_config`.

Every key of the config is written, known to change no result, or refused by name, so that the file
cannot mean another model than the folder did.

Sources: gguf-py constants.py (keys), convert_hf_to_gguf.py (what is written for these families).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.weights.gguf_config import DEFAULT_ROPE_THETA, SAMPLING, SIZES
from headrace.weights.gguf_names import Architecture
from headrace.weights.gguf_values import Typed, ValueType
from headrace.weights.no_effect import is_harmless
from headrace.weights.rope_rows import LLAMA3_KEYS, llama3_factors

# general.file_type of llama.cpp (llama_ftype), by the codec of most matrices.
FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7, "BF16": 32}

# Keys that the architecture, the tensors or the tokenizer of a GGUF file say.
_SAID_ELSEWHERE = frozenset(
    {"model_type", "vocab_size", "tie_word_embeddings", "attention_bias", "mlp_bias"}
)
# Keys under which these values mean "not used"; any other is refused.
_NEUTRAL: Mapping[str, Callable[[Any], bool]] = {
    "hidden_act": lambda value: value in ("silu", "swish"),
    "partial_rotary_factor": lambda value: value == 1,
    "use_sliding_window": lambda value: not value,
    "layer_types": lambda value: not value or set(value) == {"full_attention"},
}
_ROPE_KEYS = {
    "default": frozenset({"rope_type"}),
    # The length a linear scaling was made from changes nothing: the factor says it all.
    "linear": frozenset({"rope_type", "factor", "original_max_position_embeddings"}),
    "llama3": frozenset({"rope_type", *LLAMA3_KEYS}),
}
"""What each kind of rope that can be written consists of; other kinds are refused as such."""


@dataclass(frozen=True)
class ModelMetadata:
    """entries: "<arch>.*" and "general.architecture". rope_factors: float32[head_dim/2] or None."""

    entries: dict[str, Any]
    rope_factors: npt.NDArray[np.float32] | None


def metadata_of_config(config: Mapping[str, Any], architecture: Architecture) -> ModelMetadata:
    """GGUF entries for `config`.

    Raises UnsupportedModelError naming a key whose value a GGUF file of this architecture cannot
    state, CheckpointError where one is missing or out of range.
    """
    left = dict(config)
    prefix = architecture.name
    entries: dict[str, Any] = {"general.architecture": prefix}
    for key, name in SIZES.items():
        entries[f"{prefix}.{key}"] = _size(left, name)
    heads = entries[f"{prefix}.attention.head_count"]
    hidden = entries[f"{prefix}.embedding_length"]
    if left.get("head_dim") is None and hidden % heads:
        raise CheckpointError(
            f"num_attention_heads is {heads}, which does not divide hidden_size {hidden}: "
            "head_dim must be given"
        )
    head_dim = _size(left, "head_dim", max(1, hidden // heads))
    entries[f"{prefix}.attention.head_count_kv"] = _size(left, "num_key_value_heads", heads)
    entries[f"{prefix}.attention.key_length"] = head_dim
    entries[f"{prefix}.attention.value_length"] = head_dim
    entries[f"{prefix}.rope.dimension_count"] = head_dim
    entries[f"{prefix}.attention.layer_norm_rms_epsilon"] = _number(left, "rms_norm_eps")
    entries[f"{prefix}.vocab_size"] = _size(dict(config), "vocab_size")
    theta, scaling = rope_parameters(left)
    entries[f"{prefix}.rope.freq_base"] = theta
    factors = None
    kind = scaling.get("rope_type", "default")
    if kind == "llama3":
        factors = llama3_factors(head_dim, theta, scaling)
    elif kind == "linear":
        entries[f"{prefix}.rope.scaling.type"] = "linear"
        entries[f"{prefix}.rope.scaling.factor"] = _number(dict(scaling), "factor")
    elif kind != "default":
        raise UnsupportedModelError(
            f"rope_scaling.rope_type is {kind!r}; written to GGUF are: default, linear, llama3"
        )
    for key, value in left.items():
        _check_left(key, value, config)
    return ModelMetadata(entries, factors)


def rope_parameters(left: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """(rope_theta, the scaling entry or {}), taken out of `left`.

    transformers 5 writes both into one object, rope_parameters; older ones rope_theta and
    rope_scaling, whose kind was once called "type". Raises UnsupportedModelError where they differ
    or hold a key that is not written.
    """
    parts = []
    for key in ("rope_parameters", "rope_scaling"):
        part = left.pop(key, None) or {}
        if not isinstance(part, dict):
            raise CheckpointError(f"{key} is not an object")
        parts.append({name: value for name, value in part.items() if value is not None})
    thetas = [part.pop("rope_theta") for part in parts if "rope_theta" in part]
    if left.get("rope_theta") is not None:
        thetas.append(left["rope_theta"])
    theta = _number({"rope_theta": thetas[0] if thetas else DEFAULT_ROPE_THETA}, "rope_theta")
    left.pop("rope_theta", None)
    for part in parts:
        if "type" in part:
            part.setdefault("rope_type", part.pop("type"))
    scaling = parts[0] or parts[1]
    if any(other != theta for other in thetas) or (parts[1] and parts[1] != scaling):
        raise UnsupportedModelError(
            f"rope is stated more than once, as rope_theta {thetas} and as {parts}; "
            "keep one of them"
        )
    known = _ROPE_KEYS.get(str(scaling.get("rope_type", "default")), frozenset(scaling))
    for name, value in scaling.items():
        if name not in known and not (name == "partial_rotary_factor" and value == 1):
            raise UnsupportedModelError(
                f"rope_scaling.{name} is {value!r}: a GGUF file cannot state it"
            )
    return theta, scaling


def sampling_metadata(generation: Mapping[str, Any]) -> dict[str, Any]:
    """`general.sampling.*` from generation_config.json."""
    entries: dict[str, Any] = {}
    for key, name in SAMPLING.items():
        value = generation.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            kind = ValueType.INT32 if key == "top_k" else ValueType.FLOAT32
            entries[f"general.sampling.{key}"] = Typed(kind, value)
    return entries


def _check_left(key: str, value: Any, config: Mapping[str, Any]) -> None:
    if key in _SAID_ELSEWHERE or is_harmless(key, value):
        return
    if key in _NEUTRAL and _NEUTRAL[key](value):
        return
    # Qwen3 states a window and, beside it, that it is not used.
    if key == "sliding_window" and config.get("use_sliding_window") is False:
        return
    if key == "max_window_layers" and not config.get("use_sliding_window"):
        return
    raise UnsupportedModelError(
        f"config key {key!r} is {value!r}: a GGUF file cannot state it, or nobody here knows what "
        "it changes; remove it from config.json if it changes nothing"
    )


def _size(left: dict[str, Any], name: str, default: int = 0) -> int:
    value = left.pop(name, None)
    if value is None and default:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 31:
        raise CheckpointError(f"{name} is {value!r}; a positive integer below 2**31 is required")
    return value


def _number(left: dict[str, Any], name: str) -> float:
    value = left.pop(name, None)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
        raise CheckpointError(f"{name} is {value!r}; a positive number is required")
    return float(value)
