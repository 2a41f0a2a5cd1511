"""GGUF metadata of an architecture as a Hugging Face config, every key accounted for.

A key is read, known to say nothing that changes results (the table below, with the reason), or kept
as "gguf.<key>" so that the model's own check refuses it by name. Nothing is dropped silently.
The way back is `gguf_metadata`.

Sources: gguf-py constants.py (keys), llama.cpp llama-hparams and llama-model.cpp (defaults).
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headrace.errors import CheckpointError
from headrace.weights.gguf_file import GGUFFile
from headrace.weights.gguf_names import UNKNOWN_PREFIX, Architecture
from headrace.weights.tensor import Tensor

SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
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
# llama.cpp's default (hparams.rope_freq_base_train) where a file says nothing.
DEFAULT_ROPE_THETA = 10000.0

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
    file: GGUFFile, architecture: Architecture, tensors: Mapping[str, Tensor]
) -> dict[str, Any]:
    """config.json's keys for `file`; `tensors` are its tensors by canonical name.

    Raises CheckpointError naming the key where one is missing, of the wrong type or out of range.
    """
    return _ConfigReader(file, architecture, tensors).read()


def generation_config_of_gguf(file: GGUFFile) -> dict[str, Any]:
    """generation_config.json's keys from `general.sampling.*`, where the file has any."""
    keys = {f"general.sampling.{key}": name for key, name in SAMPLING.items()}
    return {
        name: _shortest(file.metadata.scalar(key))
        for key, name in keys.items()
        if key in file.metadata
    }


class _ConfigReader:
    """Takes keys one after another; what is left at the end is what nobody knew."""

    def __init__(
        self, file: GGUFFile, architecture: Architecture, tensors: Mapping[str, Tensor]
    ) -> None:
        self.path: Path = file.path
        self.metadata = file.metadata
        self.architecture = architecture
        self.prefix = f"{architecture.name}."
        self.tensors = tensors
        self.left = {
            key.removeprefix(self.prefix) for key in file.metadata if key.startswith(self.prefix)
        }

    def read(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "model_type": self.architecture.model_type,
            "architectures": [self.architecture.hf_class],
        }
        for key, name in SIZES.items():
            config[name] = self.size(key)
        n_layers = config["num_hidden_layers"]
        if n_layers > len(self.tensors):
            limit = f"the file has only {len(self.tensors)} tensors"
            raise self.error("block_count", n_layers, limit)
        config["num_key_value_heads"] = self.size(
            "attention.head_count_kv", config["num_attention_heads"]
        )
        config["head_dim"] = self.head_dim(config["hidden_size"], config["num_attention_heads"])
        config["rms_norm_eps"] = self.positive("attention.layer_norm_rms_epsilon")
        config["rope_theta"] = self.positive("rope.freq_base", DEFAULT_ROPE_THETA)
        if scaling := self.rope_scaling():
            config["rope_scaling"] = scaling
        rotary = self.size("rope.dimension_count", config["head_dim"])
        if rotary != config["head_dim"]:
            config["partial_rotary_factor"] = rotary / config["head_dim"]
        config["vocab_size"] = self.vocab_size()
        config["tie_word_embeddings"] = "lm_head.weight" not in self.tensors
        for key, name in SPECIAL_IDS.items():
            token = self.metadata.scalar(f"tokenizer.ggml.{key}")
            if _is_int(token) and 0 <= token < config["vocab_size"]:
                config[name] = token
        for key in sorted(self.left):
            self.keep(key, config)
        return config

    def take(self, key: str) -> Any:
        self.left.discard(key)
        return self.metadata.get(self.prefix + key)

    def error(self, key: str, value: object, required: str) -> CheckpointError:
        return CheckpointError(
            f"{self.path}: metadata {self.prefix + key!r} is {reprlib.repr(value)}; {required}"
        )

    def size(self, key: str, default: int = 0) -> int:
        """A positive integer; required without a default.

        An array with one value per layer stands when all are equal.
        """
        value = self.take(key)
        if value is None and default:
            return default
        if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iu":
            if (value != value[0]).any():
                raise self.error(key, value.tolist(), "sizes that differ by layer: not supported")
            value = int(value[0])
        if not _is_int(value) or not 0 < value < 1 << 31:
            raise self.error(key, value, "a positive integer below 2**31 is required")
        return int(value)

    def positive(self, key: str, default: float = 0.0) -> float:
        value = self.take(key)
        if value is None and default:
            return default
        if not isinstance(value, float) or not 0 < value < math.inf:
            raise self.error(key, value, "a positive number is required")
        return float(_shortest(value))

    def head_dim(self, hidden_size: int, num_heads: int) -> int:
        """attention.key_length; else embedding_length / head_count, as llama.cpp does.

        rope.dimension_count is how much of a head is rotated and says nothing of its width.
        """
        if "attention.key_length" not in self.left and hidden_size % num_heads:
            raise self.error(
                "attention.head_count", num_heads,
                f"it does not divide embedding_length {hidden_size}, so "
                f"'{self.prefix}attention.key_length' must be given",
            )  # fmt: skip
        head_dim = self.size("attention.key_length", max(1, hidden_size // num_heads))
        value_dim = self.size("attention.value_length", head_dim)
        if value_dim != head_dim:
            raise self.error(
                "attention.value_length", value_dim,
                f"it must equal attention.key_length {head_dim}; other widths are not supported",
            )  # fmt: skip
        return head_dim

    def rope_scaling(self) -> dict[str, Any] | None:
        """rope_scaling as config.json has it; a kind nobody knows keeps its name, to be refused."""
        kind = self.take("rope.scaling.type")
        factor = self.factor("rope.scaling.factor")
        legacy = self.factor("rope.scale_linear")
        original = self.take("rope.scaling.original_context_length")
        if factor is None:
            factor = legacy
        if kind is None:
            # llama.cpp takes an absent kind for linear.
            kind = "none" if factor is None else "linear"
        if not isinstance(kind, str):
            raise self.error("rope.scaling.type", kind, "a string is required")
        if kind == "none" or (kind == "linear" and factor in (None, 1.0)):
            return None
        scaling: dict[str, Any] = {"rope_type": kind}
        if factor is not None:
            scaling["factor"] = factor
        if original is not None:
            if not _is_int(original) or original < 1:
                raise self.error(
                    "rope.scaling.original_context_length", original, "a positive integer"
                )
            scaling["original_max_position_embeddings"] = original
        return scaling

    def factor(self, key: str) -> float | None:
        """A scaling factor; 0 stands for "not scaled", as llama.cpp reads it."""
        value = self.take(key)
        if value is None or (isinstance(value, float) and value == 0):
            return None
        if not isinstance(value, float) or not 0 < value < math.inf:
            raise self.error(key, value, "a positive number is required")
        return float(_shortest(value))

    def vocab_size(self) -> int:
        """Rows of the embedding: what the logits have, padding included."""
        embedding = self.tensors.get("model.embed_tokens.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise CheckpointError(
                f"{self.path}: tensor 'token_embd.weight' is missing or no matrix"
            )
        rows = embedding.shape[0]
        stated = self.size("vocab_size", rows)
        if stated != rows:
            raise self.error("vocab_size", stated, f"'token_embd.weight' has {rows} rows")
        n_tokens = self.metadata.length("tokenizer.ggml.tokens")
        if n_tokens is not None and n_tokens > rows:
            raise CheckpointError(
                f"{self.path}: metadata 'tokenizer.ggml.tokens' has {n_tokens} entries but "
                f"'token_embd.weight' has only {rows} rows"
            )
        return rows

    def keep(self, key: str, config: dict[str, Any]) -> None:
        """Put what is left into the config under a name the model does not know."""
        value = self.take(key)
        if key in _INFORMATIONAL:
            return
        if key in _NEUTRAL and type(value) is type(_NEUTRAL[key]) and value == _NEUTRAL[key]:
            return
        plain = value.tolist() if isinstance(value, np.ndarray) else _shortest(value)
        config[_NAMED.get(key, UNKNOWN_PREFIX + self.prefix + key)] = plain


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shortest(value: Any) -> Any:
    """The shortest decimal that gives the same float32: 1e-05 and not 9.999999747378752e-06.

    GGUF stores these as float32 what config.json writes in decimal; both sides then agree.
    """
    if isinstance(value, float) and np.float32(value) == value:
        return float(str(np.float32(value)))
    return value
