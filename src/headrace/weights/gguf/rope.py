"""Rotary embeddings between GGUF and config.json, both ways.

GGUF states linear and yarn by keys, llama3 by a tensor of divisors alone, longrope by two tensors
and a factor of attention; dynamic it cannot state. A file with these two
tensors that names no kind is longrope, as llama.cpp takes it.

Sources: gguf-py constants.py, llama.cpp llama-model.cpp and llama-context.cpp (defaults, which
tensors are used when), convert_hf_to_gguf.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.weights.architectures import LONGROPE_FACTORS, ROPE_FACTORS, Architecture, GGUFKeys
from headrace.weights.architectures.gguf_keys import is_whole, shortest
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.rope_config import (
    FULL,
    WINDOWED,
    RopeConfig,
    yarn_attention_factor,
)
from headrace.weights.tensors.rope_rows import llama3_factors
from headrace.weights.tensors.tensor import Tensor

# llama.cpp's default (hparams.rope_freq_base_train) where a file says nothing.
DEFAULT_THETA = 10000.0

_LOCAL_THETA = "rope.freq_base_swa"
_LOCAL_DIMS = "rope.dimension_count_swa"
_UNTURNED = np.float32(1e30)
"""What llama.cpp's converter divides frequencies by that are to be nothing."""
_HALVED = ("default", "llama3")
"""Kinds of which half of a head may be rotated, and all of it in layers with a window."""
_ORIGINAL = "rope.scaling.original_context_length"
_ATTENTION = "rope.scaling.attn_factor"
_LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"
_YARN = {
    "rope.scaling.yarn_attn_factor": "attention_factor",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
}

Vectors = Mapping[str, npt.NDArray[np.float32]]


def read_rope(
    keys: GGUFKeys,
    config: dict[str, Any],
    head_dim: int,
    architecture: Architecture,
    tensors: Mapping[str, Tensor],
) -> None:
    """Put what a file says of its rope into `config`, in config.json's words."""
    config["rope_theta"] = keys.positive("rope.freq_base") or DEFAULT_THETA
    if architecture.local_theta is not None:
        config["rope_local_base_freq"] = keys.positive(_LOCAL_THETA) or DEFAULT_THETA
    rotary = keys.size("rope.dimension_count") or head_dim
    if rotary != head_dim or architecture.partial is not None:
        config["partial_rotary_factor"] = rotary / head_dim
    if architecture.full_head_dim is not None:
        _read_proportional(keys, config, tensors)
    elif architecture.halved_rope:
        _read_halved(keys, config, head_dim)
    kind, factor, original = _stated(keys)
    scaling: dict[str, Any] = {"rope_type": kind}
    has_lists = all(name in tensors for name in LONGROPE_FACTORS)
    if has_lists and factor is None and kind in ("none", "linear", "longrope"):
        config["rope_scaling"] = _longrope(keys, config, tensors, original, rotary)
        return
    if kind == "none" or (kind == "linear" and factor in (None, 1.0)):
        return
    if factor is not None:
        scaling["factor"] = factor
    if original is not None:
        scaling["original_max_position_embeddings"] = original
    if kind == "yarn":
        for key, name in _YARN.items():
            if (value := keys.positive(key)) is not None:
                scaling[name] = value
        # llama.cpp's converter writes either of two keys of config.json here: one that replaces
        # yarn's own factor, and one that multiplies it, which published models have to undo it.
        stated, own = scaling.get("attention_factor"), yarn_attention_factor(factor or 1.0)
        if architecture.latent:
            _read_mscale(keys, scaling)
        elif stated is not None and math.isclose(stated * own, 1.0, rel_tol=1e-4):
            scaling["attn_factor"] = scaling.pop("attention_factor")
        if keys.says("rope.scaling.yarn_ext_factor", 1.0):
            keys.take("rope.scaling.yarn_ext_factor")
        if not architecture.yarn_truncates:
            scaling["truncate"] = False
    config["rope_scaling"] = scaling


def _read_mscale(keys: GGUFKeys, scaling: dict[str, Any]) -> None:
    """DeepSeek's two factors, of which a file states the second, a tenth of it; as in all published
    models the first is equal where nothing else is stated.
    """
    tenth = keys.positive(_LOG_MULTIPLIER)
    if tenth is not None:
        scaling["mscale_all_dim"] = shortest(float(np.float32(tenth / 0.1)))
        if "attention_factor" not in scaling:
            scaling["mscale"] = scaling["mscale_all_dim"]


def _read_proportional(
    keys: GGUFKeys, config: dict[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Put both ropes as transformers 5 has them in the place of the older words: divisors of 1, and
    then of more than any position, are a share of the pairs.
    """
    full: dict[str, Any] = {"rope_type": "default", "rope_theta": config.pop("rope_theta")}
    if (stored := tensors.get(ROPE_FACTORS)) is not None:
        divisors = stored.to_f32().reshape(-1)
        turning = int(np.count_nonzero(divisors == 1))
        if (divisors[:turning] != 1).any() or (divisors[turning:] < _UNTURNED).any():
            raise CheckpointError(
                f"{keys.path}: tensor {ROPE_FACTORS!r} holds other numbers than 1 and, behind "
                f"these, {_UNTURNED}; headrace knows no rope of this architecture with them"
            )
        share = turning / max(1, len(divisors))
        full |= {"rope_type": "proportional", "partial_rotary_factor": share}
    local: dict[str, Any] = {"rope_type": "default"}
    local["rope_theta"] = config.pop("rope_local_base_freq")
    if config.pop("partial_rotary_factor", 1.0) != 1.0:
        raise keys.error(
            "rope.dimension_count", keys.peek("rope.dimension_count"),
            "all dimensions of a head are required",
        )  # fmt: skip
    width = config["head_dim"]
    local["partial_rotary_factor"] = (keys.size(_LOCAL_DIMS) or width) / width
    config["rope_parameters"] = {FULL: full, WINDOWED: local}


def _read_halved(keys: GGUFKeys, config: dict[str, Any], head_dim: int) -> None:
    """Put both ropes as transformers 5 has them in the place of the older words."""
    if config.pop("partial_rotary_factor") != 1.0:
        dims = keys.peek("rope.dimension_count")
        raise keys.error("rope.dimension_count", dims, f"all {head_dim} of a head are required")
    theta, local = config.pop("rope_theta"), config.pop("rope_local_base_freq")
    if _LOCAL_THETA not in keys:
        local = theta
    config["rope_parameters"] = {
        FULL: {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": 0.5},
        WINDOWED: {"rope_type": "default", "rope_theta": local, "partial_rotary_factor": 1.0},
    }


def _stated(keys: GGUFKeys) -> tuple[str, float | None, int | None]:
    """Kind, factor and original length. A kind nobody knows keeps its name, to be refused."""
    kind = keys.take("rope.scaling.type")
    factor = _factor(keys, "rope.scaling.factor")
    legacy = _factor(keys, "rope.scale_linear")
    original = keys.take(_ORIGINAL)
    if original is not None and (not is_whole(original) or original < 1):
        raise keys.error(_ORIGINAL, original, "a positive integer is required")
    factor = legacy if factor is None else factor
    if kind is None:
        # llama.cpp takes an absent kind for linear.
        kind = "none" if factor is None else "linear"
    if not isinstance(kind, str):
        raise keys.error("rope.scaling.type", kind, "a string is required")
    return kind, factor, original


def _longrope(
    keys: GGUFKeys,
    config: dict[str, Any],
    tensors: Mapping[str, Tensor],
    original: int | None,
    rotary: int,
) -> dict[str, Any]:
    # At the top, where Phi-3 has it: transformers gives that place precedence.
    config["original_max_position_embeddings"] = original or config["max_position_embeddings"]
    for name in LONGROPE_FACTORS:
        if tensors[name].shape != (rotary // 2,):
            raise CheckpointError(
                f"{keys.path}: tensor {name!r} has shape {list(tensors[name].shape)}; {rotary} "
                f"rotated dimensions need [{rotary // 2}]"
            )
    lists = (tensors[name].to_f32() for name in LONGROPE_FACTORS)
    short, long = ([shortest(float(value)) for value in values] for values in lists)
    attention = keys.positive(_ATTENTION) or 1.0
    return {
        "rope_type": "longrope",
        "short_factor": short,
        "long_factor": long,
        "attention_factor": attention,
    }


def _factor(keys: GGUFKeys, key: str) -> float | None:
    """A scaling factor; 0 stands for "not scaled", as llama.cpp reads it."""
    if keys.says(key, 0.0):
        keys.take(key)
        return None
    return keys.positive(key)


def write_rope(
    config: ConfigReader,
    entries: dict[str, Any],
    head_dim: int,
    architecture: Architecture,
    *,
    local_head_dim: int,
) -> Vectors:
    """Put a config's rope into `entries`; what GGUF has as tensors, float32 by name.

    local_head_dim: width of heads in layers with a window.

    Raises UnsupportedModelError for what a GGUF file cannot state.
    """
    if architecture.local_theta is None:
        rope = RopeConfig.read(
            config,
            default_theta=architecture.rope_theta,
            default_partial=architecture.partial,
            rotary_dim_of=head_dim if architecture.rotary_dim_key else None,
            with_alpha=architecture.rope_alpha,
            top_keys=architecture.rope_keys,
        )
    else:
        if architecture.ropes is not None:
            rope, local = architecture.ropes(config)
        else:
            rope, local = RopeConfig.read_pair(
                config,
                default_theta=architecture.rope_theta,
                default_local_theta=architecture.local_theta,
                default_partial=architecture.partial,
                local_key=architecture.local_theta_key,
            )
        if local != RopeConfig(local.theta, partial=local.partial):
            raise _unsayable(f"{local.kind} for layers with a window")
        if architecture.full_head_dim is not None:
            entries[_LOCAL_DIMS] = local.rotary_dim(local_head_dim)
        elif architecture.halved_rope:
            if (rope.partial, local.partial) != (0.5, 1.0) or rope.kind not in _HALVED:
                raise UnsupportedModelError(
                    f"config key 'rope_parameters': kind {rope.kind}, {rope.partial} of a head "
                    f"and, in layers with a window, {local.partial} cannot be stated in a GGUF "
                    "file, where this architecture turns 0.5 and 1.0. Use the Hugging Face folder"
                )
        elif local.rotary_dim(local_head_dim) != rope.rotary_dim(head_dim):
            raise _unsayable(f"{local.kind} of another share of a head for layers with a window")
        entries[_LOCAL_THETA] = local.theta
    dims = rope.rotary_dim(head_dim)
    entries["rope.dimension_count"] = head_dim if architecture.halved_rope else dims
    entries["rope.freq_base"] = rope.grown_theta(dims)
    if rope.kind in ("linear", "yarn"):
        entries["rope.scaling.type"] = rope.kind
        entries["rope.scaling.factor"] = rope.factor
    if rope.kind == "yarn":
        _write_yarn(rope, entries, architecture)
    elif rope.kind == "longrope":
        return _write_longrope(rope, entries)
    elif rope.kind == "llama3":
        divisors = np.ones(entries["rope.dimension_count"] // 2, np.float32)
        divisors[: dims // 2] = llama3_factors(dims, rope.theta, rope.llama3())
        return {ROPE_FACTORS: divisors}
    elif rope.kind == "proportional" and rope.factor == 1 and architecture.full_head_dim:
        turning = rope.turning_pairs(head_dim)
        divisors = np.full(head_dim // 2, _UNTURNED, np.float32)
        divisors[:turning] = 1
        return {ROPE_FACTORS: divisors}
    elif rope.kind in ("dynamic", "proportional"):
        raise _unsayable(rope.kind)
    return {}


def _write_yarn(rope: RopeConfig, entries: dict[str, Any], architecture: Architecture) -> None:
    if rope.truncate is not architecture.yarn_truncates:
        raise _unsayable(f"yarn with truncate {str(rope.truncate).lower()}")
    entries[_ORIGINAL] = rope.original_max_positions
    entries["rope.scaling.yarn_beta_fast"] = rope.beta_fast
    entries["rope.scaling.yarn_beta_slow"] = rope.beta_slow
    own = yarn_attention_factor(rope.factor)
    if architecture.latent and rope.mscale_all_dim:
        # A tenth of the decimal that config.json has, as the converter writes it.
        entries[_LOG_MULTIPLIER] = 0.1 * float(shortest(rope.mscale_all_dim))
        own = 1.0
    if rope.attention_factor != own:
        entries["rope.scaling.yarn_attn_factor"] = rope.attention_factor


def _write_longrope(rope: RopeConfig, entries: dict[str, Any]) -> Vectors:
    entries["rope.scaling.type"] = "longrope"
    entries[_ORIGINAL] = rope.original_max_positions
    entries[_ATTENTION] = rope.attention_factor
    lists = (rope.short_factor, rope.long_factor)
    return {
        name: np.array(values, np.float32)
        for name, values in zip(LONGROPE_FACTORS, lists, strict=True)
    }


def _unsayable(what: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"rope of kind {what} cannot be stated in a GGUF file; written are: default, linear, "
        "llama3, yarn, longrope. Use the Hugging Face folder"
    )
