"""Writing a checkpoint into the other container, or the same one with another codec.

Values change only by the codec asked for. What a container cannot say is refused by name; what is
lost without changing a result is told in the notes of the result.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.weights.atomic_file import atomic_file
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.codecs import F16, F32, Codec, get_codec
from headrace.weights.gguf_metadata import FILE_TYPES, metadata_of_config, sampling_metadata
from headrace.weights.gguf_names import (
    ROPE_FACTORS,
    UNKNOWN_PREFIX,
    Architecture,
    architecture_of_config,
)
from headrace.weights.gguf_tokenizer import END_KEYS, TEMPLATE_KEY, TOKENIZER_PREFIX
from headrace.weights.gguf_values import Metadata
from headrace.weights.gguf_writer import write_gguf_file
from headrace.weights.hf_tokenizer import tokenizer_arrays
from headrace.weights.json_file import read_json_object, read_text
from headrace.weights.open import open_checkpoint
from headrace.weights.rope_rows import heads_to_half, heads_to_interleaved, llama3_scaling_of
from headrace.weights.safetensors_writer import write_safetensors_file
from headrace.weights.source import TensorSource, source_of_array, source_of_tensor
from headrace.weights.tensor import Tensor

_LM_HEAD = "lm_head.weight"
# Old Llama folders carry the rotary table, which follows from the config.
_DERIVED_SUFFIX = ".rotary_emb.inv_freq"


@dataclass(frozen=True)
class ConversionResult:
    """path: the file or folder written. nbytes: size of the weights file.

    codecs: tensors written per codec name. notes: what differs from what was asked, or was lost
    without changing a result; one sentence each.
    """

    path: Path
    nbytes: int
    codecs: Mapping[str, int]
    notes: tuple[str, ...]


def convert_to_gguf(
    hf_folder: Path | str,
    out_path: Path | str,
    codec: str = "Q8_0",
    metadata: Mapping[str, Any] | None = None,
    pre: str | None = None,
) -> ConversionResult:
    """Write the Hugging Face folder `hf_folder` as one complete GGUF file; see `write_gguf`."""
    return write_gguf(open_checkpoint(hf_folder), out_path, codec, metadata=metadata, pre=pre)


def write_gguf(
    checkpoint: Checkpoint,
    path: Path | str,
    codec: str | None = None,
    *,
    metadata: Mapping[str, Any] | None = None,
    pre: str | None = None,
) -> ConversionResult:
    """Write `checkpoint` as GGUF version 3.

    codec: kind of the matrices; None keeps each as it is. Vectors are always F32 (llama.cpp
    computes norms in nothing else). A matrix whose rows are not whole blocks becomes F16, which
    the notes say. metadata: further entries, such as "general.name"; they win over derived ones.
    pre: name of the pre-tokenizer where tokenizer.json has an unusual one.
    Raises UnsupportedModelError or CheckpointError naming what GGUF cannot hold.
    """
    path = Path(path)
    target = None if codec is None else get_codec(codec)
    architecture = architecture_of_config(checkpoint.config.get("model_type"))
    _check_conventions(checkpoint)
    notes: list[str] = []
    factors = None
    if checkpoint.format == "gguf" and isinstance(checkpoint.metadata, Metadata):
        kept = checkpoint.metadata
        entries: dict[str, Any] = {
            key: kept.typed(key) for key in kept if key != "general.alignment"
        }
    else:
        entries, factors = _entries_of_folder(checkpoint, architecture, pre, notes)
    orders = _row_orders(checkpoint, architecture.rope_layout)
    sources = []
    for name, tensor in checkpoint.tensors.items():
        if _is_redundant(checkpoint, name, notes):
            continue
        chosen = _gguf_codec(tensor, target, notes)
        sources.append(
            source_of_tensor(tensor, _gguf_name(architecture, name), chosen, orders.get(name))
        )
    if factors is not None:
        sources.append(source_of_array(factors, ROPE_FACTORS))
    entries["general.file_type"] = _file_type(sources)
    entries["general.quantization_version"] = 2
    entries |= dict(metadata or {})
    nbytes = write_gguf_file(path, entries, sources)
    return ConversionResult(path, nbytes, _count(sources), tuple(notes))


def write_hf_folder(
    checkpoint: Checkpoint,
    folder: Path | str,
    codec: str | None = None,
    *,
    tokenizer_json: str | None = None,
) -> ConversionResult:
    """Write `checkpoint` as config.json, model.safetensors and what lies beside them.

    codec: "F32", "F16" or "BF16" for all tensors; None keeps each as it is, and makes Q8_0 F32,
    the only kind of safetensors that holds its values exactly. tokenizer_json: text of that file
    where the checkpoint has only GGUF arrays (`headrace.text` makes it). `folder` is created.
    Raises UnsupportedModelError or CheckpointError naming what such a folder cannot hold.
    """
    folder = Path(folder)
    target = None if codec is None else get_codec(codec)
    _check_conventions(checkpoint)
    notes: list[str] = []
    config = _config_json(checkpoint)
    orders = _row_orders(checkpoint, "half")
    sources = []
    for name, tensor in checkpoint.tensors.items():
        if name == ROPE_FACTORS or _is_redundant(checkpoint, name, notes):
            continue
        if name.startswith(UNKNOWN_PREFIX):
            raise UnsupportedModelError(f"tensor {name!r} has no name in Hugging Face folders")
        chosen = target or (tensor.codec if tensor.codec.safetensors_dtype else F32)
        sources.append(source_of_tensor(tensor, name, chosen, orders.get(name)))
    folder.mkdir(parents=True, exist_ok=True)
    nbytes = write_safetensors_file(folder / "model.safetensors", sources)
    if tokenizer_json is None and checkpoint.tokenizer.json_path is not None:
        tokenizer_json = read_text(checkpoint.tokenizer.json_path)
    if tokenizer_json is not None:
        _write(folder / "tokenizer.json", tokenizer_json)
    else:
        notes.append("no tokenizer.json was given, so the folder has none")
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(checkpoint))
    generation = dict(checkpoint.generation_config)
    if checkpoint.eos_token_ids:
        generation["eos_token_id"] = list(checkpoint.eos_token_ids)
    if generation:
        _write_json(folder / "generation_config.json", generation)
    # Last, because a folder without config.json is not opened.
    _write_json(folder / "config.json", config)
    return ConversionResult(folder, nbytes, _count(sources), tuple(notes))


def _check_conventions(checkpoint: Checkpoint) -> None:
    conventions = checkpoint.conventions
    for name, plain in (("norm_offset", 0.0), ("fused_qkv", False), ("fused_gate_up", False)):
        if getattr(conventions, name) != plain:
            raise UnsupportedModelError(
                f"{checkpoint.path}: convention {name} is {getattr(conventions, name)}; "
                f"only {plain} can be written"
            )


def _row_orders(checkpoint: Checkpoint, layout: str) -> dict[str, npt.NDArray[np.int32]]:
    """How rows of Q and K have to be taken to be stored in `layout`; {} when they already are."""
    if checkpoint.conventions.rope_layout == layout:
        return {}
    config = checkpoint.config
    num_heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // num_heads
    permute = heads_to_half if layout == "half" else heads_to_interleaved
    counts = {"q_proj": num_heads, "k_proj": config.get("num_key_value_heads") or num_heads}
    orders = {}
    for name, tensor in checkpoint.tensors.items():
        for module, count in counts.items():
            if f".self_attn.{module}." in name:
                if tensor.shape[0] != count * head_dim:
                    raise CheckpointError(
                        f"tensor {name!r} has {tensor.shape[0]} rows; {count} heads of {head_dim} "
                        f"need {count * head_dim}"
                    )
                orders[name] = permute(count, head_dim)
    return orders


def _is_redundant(checkpoint: Checkpoint, name: str, notes: list[str]) -> bool:
    if name.endswith(_DERIVED_SUFFIX):
        notes.append(f"{name} was left out: it follows from the config")
        return True
    if name == _LM_HEAD and checkpoint.config.get("tie_word_embeddings"):
        notes.append(f"{name} was left out: the config ties it to the embedding")
        return True
    return False


def _gguf_name(architecture: Architecture, name: str) -> str:
    if name.startswith(UNKNOWN_PREFIX):
        return name.removeprefix(UNKNOWN_PREFIX)
    return architecture.gguf_name(name)


def _gguf_codec(tensor: Tensor, target: Codec | None, notes: list[str]) -> Codec:
    if len(tensor.shape) < 2:
        return F32
    if target is None:
        return tensor.codec
    if tensor.shape[-1] % target.block_elements:
        notes.append(
            f"{tensor.name} is F16: its rows of {tensor.shape[-1]} are not whole blocks of "
            f"{target.block_elements} for {target.name}"
        )
        return F16
    return target


def _file_type(sources: list[TensorSource]) -> int:
    matrices = Counter(source.codec.name for source in sources if len(source.shape) > 1)
    return FILE_TYPES[matrices.most_common(1)[0][0]] if matrices else FILE_TYPES["F32"]


def _count(sources: list[TensorSource]) -> dict[str, int]:
    return dict(Counter(source.codec.name for source in sources))


def _entries_of_folder(
    checkpoint: Checkpoint, architecture: Architecture, pre: str | None, notes: list[str]
) -> tuple[dict[str, Any], npt.NDArray[np.float32] | None]:
    model = metadata_of_config(checkpoint.config, architecture)
    vocab_size = checkpoint.config["vocab_size"]
    embedding = checkpoint.tensors.get("model.embed_tokens.weight")
    if embedding is None or embedding.shape[0] != vocab_size:
        rows = 0 if embedding is None else embedding.shape[0]
        raise CheckpointError(
            f"{checkpoint.path}: vocab_size is {vocab_size} but model.embed_tokens.weight has "
            f"{rows} rows"
        )
    entries = {
        **model.entries,
        "general.type": "model",
        "general.name": checkpoint.path.resolve().name,
        **sampling_metadata(checkpoint.generation_config),
    }
    if checkpoint.tokenizer.json_path is not None:
        arrays = tokenizer_arrays(
            read_json_object(checkpoint.tokenizer.json_path),
            checkpoint.tokenizer.config,
            vocab_size,
            checkpoint.eos_token_ids,
            pre,
        )
        entries |= {TOKENIZER_PREFIX + key: value for key, value in arrays.entries.items()}
        notes.extend(arrays.notes)
    else:
        entries[f"{TOKENIZER_PREFIX}model"] = "none"
        ends = zip(END_KEYS, checkpoint.eos_token_ids, strict=False)
        entries |= {TOKENIZER_PREFIX + key: token for key, token in ends}
        notes.append("the folder has no tokenizer.json, so the file has no tokens")
    # tokenizer_config.json wins; a folder without it names the first token in config.json only.
    first = checkpoint.config.get("bos_token_id")
    if isinstance(first, int) and 0 <= first < vocab_size:
        entries.setdefault(f"{TOKENIZER_PREFIX}bos_token_id", first)
    named = []
    for name, template in checkpoint.chat_templates.items():
        if name == "default":
            entries[TEMPLATE_KEY] = template
        else:
            entries[f"{TEMPLATE_KEY}.{name}"] = template
            named.append(name)
    if named:
        entries["tokenizer.chat_templates"] = named
    return entries, model.rope_factors


def _config_json(checkpoint: Checkpoint) -> dict[str, Any]:
    config = dict(checkpoint.config)
    for key in config:
        if key.startswith(UNKNOWN_PREFIX):
            raise UnsupportedModelError(f"config key {key!r} has no name in config.json")
    factors = checkpoint.tensors.get(ROPE_FACTORS)
    if factors is not None:
        theta, head_dim = config["rope_theta"], config["head_dim"]
        scaling = llama3_scaling_of(factors.to_f32().reshape(-1), head_dim, theta)
        if scaling is None or config.get("rope_scaling"):
            raise UnsupportedModelError(
                f"tensor {ROPE_FACTORS!r} holds factors that no rope_scaling of config.json gives"
            )
        config["rope_scaling"] = scaling
    return config


def _tokenizer_config(checkpoint: Checkpoint) -> dict[str, Any]:
    config = dict(checkpoint.tokenizer.config)
    gguf = checkpoint.tokenizer.gguf
    for key, name in (("bos_token_id", "bos_token"), ("eos_token_id", "eos_token")):
        token = gguf.get(key)
        if isinstance(token, int) and 0 <= token < len(gguf["tokens"]):
            config[name] = gguf["tokens"][token]
    templates = checkpoint.chat_templates
    if set(templates) == {"default"}:
        config["chat_template"] = templates["default"]
    elif templates:
        config["chat_template"] = [
            {"name": name, "template": template} for name, template in templates.items()
        ]
    return config


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as file:
        file.write(text.encode())


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    _write(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
