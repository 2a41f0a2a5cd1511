"""Writing a checkpoint as a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.atomic_file import atomic_file
from headrace.errors import UnsupportedModelError
from headrace.weights.architectures import (
    ROPE_FACTOR_NAMES,
    ROPE_FACTORS,
    UNKNOWN_PREFIX,
    Architecture,
    architecture_of_config,
)
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.codecs import BF16, F16, F32, get_codec
from headrace.weights.conversion.both_ways import (
    ConversionResult,
    Reordering,
    count_codecs,
    is_redundant,
    unscaled,
)
from headrace.weights.files.json_file import read_text
from headrace.weights.hugging_face.forms import folder_sources
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.tensors.expert_stacks import Stacks
from headrace.weights.tensors.latent_heads import with_joined_heads
from headrace.weights.tensors.rope_rows import llama3_scaling_of

_NUMBERS = (F32, F16, BF16)
_SAMPLING = {"temperature", "top_k", "top_p", "min_p", "typical_p"}


def write_hf_folder(
    checkpoint: Checkpoint,
    folder: Path | str,
    codec: str | None = None,
    *,
    tokenizer_json: str | None = None,
    metadata: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ConversionResult:
    """Write `checkpoint` as config.json, model.safetensors and what lies beside them.

    codec: "F32", "F16" or "BF16" for all tensors; None keeps each of these as it is, and makes
    every other kind F32, the only one of safetensors that holds their values exactly.
    tokenizer_json: text of that file where the checkpoint has only GGUF arrays (`headrace.text`
    makes it). metadata: of the safetensors file. `folder` is created. progress: called after every
    tensor with bytes done and in all.
    Raises UnsupportedModelError or CheckpointError naming what such a folder cannot hold.
    """
    folder, checkpoint = Path(folder), unscaled(checkpoint)
    target = None if codec is None else get_codec(codec)
    architecture = architecture_of_config(checkpoint.config.get("model_type"))
    notes: list[str] = []
    config = _config_json(checkpoint, architecture)
    reordering = Reordering(checkpoint, architecture, architecture.hf)
    sources = []
    stacks = Stacks.of_folder(architecture)
    tensors = checkpoint.tensors.items()
    if architecture.latent:
        tensors = dict(with_joined_heads(checkpoint.tensors, checkpoint.config)).items()
    for name, tensor in tensors:
        if name in ROPE_FACTOR_NAMES or is_redundant(checkpoint, name, notes):
            continue
        place = architecture.in_layer(name)
        other = place is not None and place[1].rpartition(".")[0] in architecture.gguf_only
        if other or name.startswith(UNKNOWN_PREFIX):
            raise UnsupportedModelError(f"tensor {name!r} has no name in Hugging Face folders")
        chosen = target or (tensor.codec if tensor.codec in _NUMBERS else F32)
        if place is not None and place[1] in architecture.vectors.values():
            chosen = F32
        source = reordering.source(tensor, name, chosen)
        if stacks.takes(name):
            stacks.add(source)
        else:
            sources.append(source)
    sources = folder_sources(sources + stacks.sources(), architecture, checkpoint.config)
    folder.mkdir(parents=True, exist_ok=True)
    nbytes = write_safetensors_file(
        folder / "model.safetensors", sources, metadata, progress=progress
    )
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
        if checkpoint.format == "gguf" and _SAMPLING & generation.keys():
            # Without it transformers takes the others for a mistake, and saves no such model.
            generation["do_sample"] = True
        _write_json(folder / "generation_config.json", generation)
    # Last, because a folder without config.json is not opened.
    _write_json(folder / "config.json", config)
    return ConversionResult(folder, nbytes, count_codecs(sources), tuple(notes))


def _config_json(checkpoint: Checkpoint, architecture: Architecture) -> dict[str, Any]:
    config = dict(checkpoint.config)
    for key in config:
        if key.startswith(UNKNOWN_PREFIX):
            raise UnsupportedModelError(f"config key {key!r} has no name in config.json")
    if architecture.turned_stacks:
        # Experts that were MXFP4 are written as numbers.
        config.pop("quantization_config", None)
    for key, projections in architecture.bias_keys.items():
        config[key] = _has(checkpoint, architecture, projections, "bias")
    if architecture.head_bias_key is not None:
        config[architecture.head_bias_key] = "lm_head.bias" in checkpoint.tensors
    for key, norms in architecture.norm_keys.items():
        config[key] = _has(checkpoint, architecture, norms, "weight")
    # Those of proportional ropes are in the config already.
    proportional = architecture.full_head_dim is not None
    factors = None if proportional else checkpoint.tensors.get(ROPE_FACTORS)
    if factors is not None:
        scaling = None
        if not architecture.halved_rope:
            theta, head_dim = config["rope_theta"], config["head_dim"]
            scaling = llama3_scaling_of(factors.to_f32().reshape(-1), head_dim, theta)
        if scaling is None or config.get("rope_scaling"):
            raise UnsupportedModelError(
                f"tensor {ROPE_FACTORS!r} holds factors that no rope_scaling of config.json gives"
            )
        config["rope_scaling"] = scaling
    return config


def _has(
    checkpoint: Checkpoint, architecture: Architecture, modules: Sequence[str], kind: str
) -> bool:
    """Whether these modules have a `kind` ("bias" or "weight"): all in every layer, or none, for
    config.json has one key for them. GGUF says it by the tensors alone."""
    num_layers = checkpoint.config[architecture.config_key("block_count")]
    at = (f"{architecture.layers}.{i}." for i in range(num_layers))
    names = [f"{layer}{module}.{kind}" for layer in at for module in modules]
    missing = [name for name in names if name not in checkpoint.tensors]
    if 0 < len(missing) < len(names):
        raise UnsupportedModelError(
            f"{checkpoint.path}: tensor {missing[0]!r} is missing while others like it are there; "
            f"config.json can only say that all of {', '.join(modules)} have a {kind}, or none"
        )
    return not missing


def _tokenizer_config(checkpoint: Checkpoint) -> dict[str, Any]:
    config = dict(checkpoint.tokenizer.config)
    gguf = checkpoint.tokenizer.gguf
    if gguf:
        # Else transformers takes the class of the architecture, and some of these (Qwen2's) split
        # text by a rule of their own whatever tokenizer.json says.
        config.setdefault("tokenizer_class", "PreTrainedTokenizerFast")
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
