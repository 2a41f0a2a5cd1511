"""GGUF metadata of an architecture as a Hugging Face config, every key accounted for.

A key is read as the architecture declares, known to say nothing that changes results (the tables
below, with the reason), or kept as "gguf.<key>" so that the model's own check refuses it by name.
Nothing is dropped silently. The way back is `gguf_metadata`.

Sources: gguf-py constants.py (keys), llama.cpp llama-hparams and llama-model.cpp (defaults).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.errors import CheckpointError
from headrace.weights.architectures import (
    LEFT_OUT,
    REFUSED,
    UNKNOWN_PREFIX,
    Architecture,
    GGUFKeys,
    Key,
)
from headrace.weights.architectures.gguf_keys import is_whole, shortest
from headrace.weights.gguf.file import GGUFFile
from headrace.weights.gguf.rope import read_rope
from headrace.weights.tensors.tensor import Tensor

SPECIAL_IDS = {
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
    "padding_token_id": "pad_token_id",
}
SAMPLING = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
# Keys that are read and then say nothing further, or never change a result.
_INFORMATIONAL = {
    "tensor_data_layout": "where the converter's input came from; the rows are permuted either way",
    "rope.scaling.finetuned": "whether training saw the scaling; the arithmetic is the same",
}
# Keys under which one value is the default and any other must be refused by name.
_NEUTRAL = {
    "attention.causal": True,
    "use_parallel_residual": False,
    "expert_count": 0,
    "expert_used_count": 0,
    "attention.sliding_window": 0,
    "rope.scaling.attn_factor": 1.0,
    "logit_scale": 0.0,
    "attention.scale": 0.0,
    "attention.clamp_kqv": 0.0,
    "attention.max_alibi_bias": 0.0,
}
# Where Hugging Face has a name for a key the model has to know or refuse.
_NAMED = {
    "expert_count": "num_local_experts",
    "expert_used_count": "num_experts_per_tok",
    "attention.sliding_window": "sliding_window",
    "attention.layer_norm_epsilon": "layer_norm_eps",
}


def config_of_gguf(
    file: GGUFFile, architecture: Architecture, keys: GGUFKeys, tensors: Mapping[str, Tensor]
) -> dict[str, Any]:
    """config.json's keys for `file`; `tensors` are its tensors by canonical name.

    Raises CheckpointError naming the key where one is missing, of the wrong type or out of range.
    """
    config: dict[str, Any] = {
        "model_type": architecture.model_type,
        "architectures": [architecture.hf_class],
        **architecture.implied,
    }
    for key in architecture.keys:
        _read_key(key, keys, config)
    num_layers = config[architecture.config_key("block_count")]
    if num_layers > len(tensors):
        limit = f"the file has only {len(tensors)} tensors"
        raise keys.error("block_count", num_layers, limit)
    if architecture.latent:
        head_dim = int(config["qk_rope_head_dim"])
    else:
        head_dim = _head_dim(architecture, keys, config)
    if architecture.full_head_dim is not None:
        config[architecture.full_head_dim] = head_dim
        config["head_dim"] = _windowed_head_dim(keys)
    elif architecture.head_dim:
        config["head_dim"] = head_dim
    if architecture.rope:
        read_rope(keys, config, head_dim, architecture, tensors)
    config["vocab_size"] = _vocab_size(file, architecture, keys, tensors)
    config["tie_word_embeddings"] = "lm_head.weight" not in tensors
    for key_name, name in SPECIAL_IDS.items():
        token = file.metadata.scalar(f"tokenizer.ggml.{key_name}")
        if is_whole(token) and 0 <= token < config["vocab_size"]:
            config[name] = token
    if architecture.reads is not None:
        architecture.reads(keys, config)
    for name, (there, lacking) in architecture.absences.items():
        at = [f"{architecture.layers}.{layer}." for layer in range(config["num_hidden_layers"])]
        config[name] = any(
            f"{layer}{there}.weight" in tensors and f"{layer}{lacking}.weight" not in tensors
            for layer in at
        )
    for left in sorted(keys.left):
        _keep(left, architecture, keys, config)
    return config


def generation_config_of_gguf(file: GGUFFile) -> dict[str, Any]:
    """generation_config.json's keys from `general.sampling.*`, where the file has any."""
    keys = {f"general.sampling.{key}": name for key, name in SAMPLING.items()}
    return {
        name: shortest(file.metadata.scalar(key))
        for key, name in keys.items()
        if key in file.metadata
    }


def _read_key(key: Key, keys: GGUFKeys, config: dict[str, Any]) -> None:
    if key.off is not None and keys.says(key.gguf, key.off):
        keys.take(key.gguf)
        return
    read = {"size": keys.size, "positive": keys.positive, "largest": keys.largest}[key.kind]
    value = read(key.gguf)
    if value is None and key.same_as is not None:
        value = config[key.same_as]
    if value is None:
        if key.in_gguf is REFUSED:
            number = "number" if key.kind == "positive" else "integer"
            raise keys.error(key.gguf, None, f"a positive {number} is required")
        if key.in_gguf is LEFT_OUT:
            return
        value = key.in_gguf
    config[key.config] = value


def _head_dim(architecture: Architecture, keys: GGUFKeys, config: dict[str, Any]) -> int:
    """attention.key_length; else embedding_length / head_count, as llama.cpp does.

    rope.dimension_count is how much of a head is rotated and says nothing of its width.
    """
    hidden = config[architecture.config_key("embedding_length")]
    heads = config[architecture.config_key("attention.head_count")]
    stated = keys.size("attention.key_length")
    if stated is None and hidden % heads:
        raise keys.error(
            "attention.head_count", heads,
            f"it does not divide embedding_length {hidden}, so "
            f"'{keys.prefix}attention.key_length' must be given",
        )  # fmt: skip
    head_dim = stated or max(1, hidden // heads)
    if not architecture.head_dim and head_dim * heads != hidden:
        raise keys.error(
            "attention.key_length", head_dim,
            f"it must be embedding_length / head_count, {hidden} / {heads}, in this architecture",
        )  # fmt: skip
    value_dim = keys.size("attention.value_length") or head_dim
    if architecture.value_dim_key is not None:
        config[architecture.value_dim_key] = value_dim
    elif value_dim != head_dim:
        raise keys.error(
            "attention.value_length", value_dim,
            f"it must equal attention.key_length {head_dim}; other widths are not supported",
        )  # fmt: skip
    return head_dim


def _windowed_head_dim(keys: GGUFKeys) -> int:
    """Width of heads in layers with a window, which values must have as well."""
    head_dim = keys.required_size("attention.key_length_swa")
    value_dim = keys.size("attention.value_length_swa")
    if value_dim not in (None, head_dim):
        raise keys.error(
            "attention.value_length_swa", value_dim,
            f"it must equal attention.key_length_swa {head_dim}; other widths are not supported",
        )  # fmt: skip
    return head_dim


def _vocab_size(
    file: GGUFFile, architecture: Architecture, keys: GGUFKeys, tensors: Mapping[str, Tensor]
) -> int:
    """Rows of the embedding: what the logits have, padding included."""
    embedding = tensors.get(architecture.embedding)
    if embedding is None or len(embedding.shape) != 2:
        raise CheckpointError(f"{file.path}: tensor 'token_embd.weight' is missing or not a matrix")
    rows = embedding.shape[0]
    stated = keys.size("vocab_size") or rows
    if stated != rows:
        raise keys.error("vocab_size", stated, f"'token_embd.weight' has {rows} rows")
    n_tokens = file.metadata.length("tokenizer.ggml.tokens")
    if n_tokens is not None and n_tokens > rows:
        raise CheckpointError(
            f"{file.path}: metadata 'tokenizer.ggml.tokens' has {n_tokens} entries but "
            f"'token_embd.weight' has only {rows} rows"
        )
    return rows


def _keep(key: str, architecture: Architecture, keys: GGUFKeys, config: dict[str, Any]) -> None:
    """Put what is left into the config under a name the model does not know."""
    value = keys.take(key)
    neutral = {**_NEUTRAL, **architecture.neutral}
    if key in neutral:
        if type(value) is type(neutral[key]) and value == neutral[key]:
            return
    elif key in _INFORMATIONAL:
        return
    plain = value.tolist() if isinstance(value, np.ndarray) else shortest(value)
    config[_NAMED.get(key, UNKNOWN_PREFIX + keys.prefix + key)] = plain
