"""Tiny random draft heads: layers for further tokens beside a model, folders of heads."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.weights.checkpoint import Checkpoint
from headrace.weights.codecs.raw import BYTES, LONG_WORDS, SIGNED_BYTES
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.tensors.source import TensorSource
from headrace.weights.tensors.tensor import Tensor
from tests.tiny import tiny_checkpoint, tiny_config, to_tensor
from tests.tiny_families import tiny_family


class Around(NamedTuple):
    """What a layer for further tokens has beside one of the model, and where it is."""

    norms: tuple[str, ...] = ("enorm", "hnorm", "shared_head.norm")
    join: str = "eh_proj"
    place: str = "model.layers.{behind}."
    apart: str = "{place}{name}"
    """Where norms and join are, by {place}, {name} and {index}."""
    head: str | None = None
    like: int = -1
    """The layer of the model that it is like."""
    renamed: tuple[tuple[str, str], ...] = ()
    config: Mapping[str, Any] = {}
    """Of the model, so that it has such layers."""
    key: str | None = "num_nextn_predict_layers"
    """Of their number; None where configs do not say it."""


AROUND: Mapping[str, Around] = {
    "mimo": Around(
        ("token_layernorm", "hidden_layernorm", "final_layernorm"), "input_proj",
        "model.mtp_layers.{index}.",
    ),
    "mimo_v2_flash": Around(
        ("enorm", "hnorm", "final_layernorm"), place="model.mtp.layers.{index}.",
        renamed=(("post_attention_layernorm", "pre_mlp_layernorm"),),
        config={"mlp_layer_types": ["dense", "sparse", "dense"]}, key=None,
    ),
    "step3p7": Around(
        ("enorm", "hnorm", "transformer.shared_head.norm"), like=0,
        head="transformer.shared_head.output",
        config={"num_nextn_predict_layers": 3, "swiglu_limits": [0.0, 1.0, 1.5, 0.0, 0.0, 0.0],
                "swiglu_limits_shared": [1.0, 0.0, 1.5, 0.0, 0.5, 0.25]},
    ),
    "ernie4_5_moe": Around(
        ("mtp_emb_norm", "mtp_hidden_norm"), "mtp_linear_proj", "model.mtp_block.{index}.",
        apart="model.{name}.{index}", like=0,
    ),
    "qwen3": Around(
        ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"), "fc", "model.mtp.layers.{index}.",
        apart="model.mtp.{name}", key="mtp_num_hidden_layers",
    ),
}  # fmt: skip
"""Of families whose layers are not like DeepSeek-V3's."""


def drawn(name: str, shape: tuple[int, ...], seed: int = 0) -> npt.NDArray[np.float32]:
    """Weights that follow from their name: about 1 of norms, spread like a layer's of matrices."""
    values = np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(shape)
    if len(shape) == 1:
        return (1 + 0.1 * values if "norm" in name else 0.1 * values).astype(np.float32)
    return (values * (3.0 / shape[-1]) ** 0.5).astype(np.float32)


def mtp_checkpoint(
    family: str = "mimo", codec: str = "F32", *, count: int = 1, **shape: Any
) -> Checkpoint:
    """A tiny model with so many layers for further tokens, named as its folders name them."""
    around = AROUND.get(family, Around())
    own_count = {} if around.key is None else {around.key: count}
    stated = {**own_count, **around.config, **shape}
    checkpoint = tiny_checkpoint(family, codec, **stated)
    config = checkpoint.config
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    own = {key: value for key, value in stated.items() if key != "logit_scale"}
    at = f"model.layers.{around.like % layers}."
    alike = {
        name.removeprefix(at): shape
        for name, shape in tiny_family(family).shapes(tiny_config(family, **own)).items()
        if name.startswith(at)
    }
    shapes: dict[str, tuple[int, ...]] = {}
    for index in range(count):
        place = around.place.format(index=index, behind=layers + index)
        for name, shape in alike.items():
            for before, after in around.renamed:
                name = name.replace(before, after)
            shapes[place + name] = shape
        more: dict[str, tuple[int, ...]] = dict.fromkeys(around.norms, (hidden,))
        more[around.join] = (hidden, 2 * hidden)
        if around.head is not None:
            more[around.head] = (config["vocab_size"], hidden)
        for name, shape in more.items():
            own_place = around.apart.format(place=place, name=name, index=index)
            shapes[f"{own_place}.weight"] = shape
    tensors = {name: to_tensor(name, drawn(name, each), codec) for name, each in shapes.items()}
    return replace(checkpoint, tensors={**checkpoint.tensors, **tensors})


def eagle3_weights(config: dict[str, Any], vocab: int) -> dict[str, npt.NDArray[np.float32]]:
    """Weights of a head by the names of EAGLE's folders."""
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    heads, kv_heads = (config[f"num_{name}_heads"] * head_dim for name in _HEADS)
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, 3 * config.get("target_hidden_size", hidden)),
        **{f"midlayer.{name}.weight": (hidden,) for name in _NORMS},
        "midlayer.self_attn.q_proj.weight": (heads, 2 * hidden),
        "midlayer.self_attn.k_proj.weight": (kv_heads, 2 * hidden),
        "midlayer.self_attn.v_proj.weight": (kv_heads, 2 * hidden),
        "midlayer.self_attn.o_proj.weight": (hidden, heads),
        "midlayer.mlp.gate_proj.weight": (ffn, hidden),
        "midlayer.mlp.up_proj.weight": (ffn, hidden),
        "midlayer.mlp.down_proj.weight": (hidden, ffn),
        "norm.weight": (hidden,),
        "lm_head.weight": (config.get("draft_vocab_size", vocab), hidden),
    }
    return {name: drawn(name, shape) for name, shape in shapes.items()}


_HEADS = ("attention", "key_value")
_NORMS = ("input_layernorm", "hidden_norm", "post_attention_layernorm")


def eagle3_config(target: dict[str, Any], **change: Any) -> dict[str, Any]:
    """config.json of a head for a target with this config."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": target["hidden_size"],
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "vocab_size": target["vocab_size"],
        "draft_vocab_size": target["vocab_size"] // 2,
        "tie_word_embeddings": False,
        **change,
    }


def dflash_config(target: dict[str, Any], **change: Any) -> dict[str, Any]:
    """config.json of a DFlash head for a target with this config, in z-lab's words."""
    layers = target["num_hidden_layers"]
    return {
        "architectures": ["DFlashDraftModel"],
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        "model_type": "qwen3",
        "block_size": 5,
        "dflash_config": {"mask_token_id": 270, "target_layer_ids": [0, layers - 1]},
        "num_target_layers": layers,
        "hidden_size": target["hidden_size"],
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "num_hidden_layers": 2,
        "attention_bias": False,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "hidden_act": "silu",
        "vocab_size": target["vocab_size"],
        "use_sliding_window": False,
        "sliding_window": None,
        "tie_word_embeddings": False,
        **change,
    }


def dflash_weights(config: dict[str, Any]) -> dict[str, npt.NDArray[np.float32]]:
    """Weights of a head by the names of z-lab's folders, for as many features as z-lab's or
    speculators' words name."""
    hidden, ffn, head_dim = (config[key] for key in _DFLASH_SIZES)
    heads, kv_heads = (config[f"num_{name}_heads"] * head_dim for name in _HEADS)
    read = config.get("aux_hidden_state_layer_ids") or config["dflash_config"]["target_layer_ids"]
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, len(read) * config.get("target_hidden_size", hidden)),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    for layer in range(config["num_hidden_layers"]):
        own = {
            "input_layernorm.weight": (hidden,),
            "post_attention_layernorm.weight": (hidden,),
            "self_attn.q_norm.weight": (head_dim,),
            "self_attn.k_norm.weight": (head_dim,),
            "self_attn.q_proj.weight": (heads, hidden),
            "self_attn.k_proj.weight": (kv_heads, hidden),
            "self_attn.v_proj.weight": (kv_heads, hidden),
            "self_attn.o_proj.weight": (hidden, heads),
            "mlp.gate_proj.weight": (ffn, hidden),
            "mlp.up_proj.weight": (ffn, hidden),
            "mlp.down_proj.weight": (hidden, ffn),
        }
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in own.items()}
    return {name: drawn(name, shape) for name, shape in shapes.items()}


_DFLASH_SIZES = ("hidden_size", "intermediate_size", "head_dim")


def write_dflash(folder: Path, config: dict[str, Any], **change: npt.NDArray[Any] | None) -> Path:
    """The folder of a DFlash head. change: weights that are other ones, or None for none."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {**dflash_weights({**(config.get("transformer_layer_config") or {}), **config}),
               **change}  # fmt: skip
    tensors = [_stored(name, values) for name, values in weights.items() if values is not None]
    write_safetensors_file(
        folder / "model.safetensors",
        [TensorSource(item.name, item.shape, item.codec, lambda item=item: [item.data])  # type: ignore[misc]
         for item in tensors],
    )  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def medusa_weights(
    hidden: int, vocab: int, heads: int, blocks: int, *, own_heads: bool = True
) -> dict[str, npt.NDArray[np.float32]]:
    """Weights of Medusa heads by the names of its authors."""
    shapes: dict[str, tuple[int, ...]] = {}
    for head in range(heads):
        for block in range(blocks):
            shapes[f"{head}.{block}.linear.weight"] = (hidden, hidden)
            shapes[f"{head}.{block}.linear.bias"] = (hidden,)
        if own_heads:
            shapes[f"{head}.{blocks}.weight"] = (vocab, hidden)
    return {name: drawn(name, shape) for name, shape in shapes.items()}


def write_medusa(
    folder: Path, config: dict[str, Any], weights: Mapping[str, npt.NDArray[np.float32]]
) -> Path:
    """The folder of Medusa heads."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = [to_tensor(name, values, "F32") for name, values in weights.items()]
    write_safetensors_file(
        folder / "medusa_lm_head.safetensors",
        [TensorSource(item.name, item.shape, item.codec, lambda item=item: [item.data])  # type: ignore[misc]
         for item in tensors],
    )  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def whole_numbers(name: str, values: npt.NDArray[np.int64]) -> Tensor:
    """A tensor of I64, as `d2t` is."""
    rows = np.ascontiguousarray(values).view(np.uint8).reshape(values.size // values.shape[-1], -1)
    return Tensor(name, values.shape, LONG_WORDS, rows)


def _stored(name: str, values: npt.NDArray[Any]) -> Tensor:
    if values.dtype == np.int64:
        return whole_numbers(name, values)
    if values.dtype == np.int8:
        return Tensor(name, values.shape, SIGNED_BYTES, values.view(np.uint8))
    return to_tensor(name, values, "F32")


def write_eagle3(
    folder: Path,
    config: dict[str, Any],
    *,
    offsets: npt.NDArray[np.int64] | None = None,
    **change: npt.NDArray[Any],
) -> Path:
    """The folder of a head. offsets: d2t; by default every second of the target's ids.
    change: weights that are other ones."""
    folder.mkdir(parents=True, exist_ok=True)
    own, vocab = config["draft_vocab_size"], config["vocab_size"]
    if offsets is None:
        offsets = np.arange(own) * (vocab // own - 1)
    known = np.zeros(vocab, np.uint8)
    known[np.clip(np.arange(own) + offsets, 0, vocab - 1)] = 1
    weights = {**eagle3_weights(config, vocab), **change}
    tensors = [
        whole_numbers(name, values) if values.dtype == np.int64 else to_tensor(name, values, "F32")
        for name, values in weights.items()
    ]
    sources = [
        TensorSource(item.name, item.shape, item.codec, lambda item=item: [item.data])  # type: ignore[misc]
        for item in tensors
    ]
    rows = np.frombuffer(offsets.astype("<i8").tobytes(), np.uint8).reshape(1, -1)
    sources.append(TensorSource("d2t", (own,), LONG_WORDS, lambda: [rows]))
    sources.append(TensorSource("t2d", (vocab,), BYTES, lambda: [known.reshape(1, -1)]))
    write_safetensors_file(folder / "model.safetensors", sources)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def write_mtp_folder(
    folder: Path,
    checkpoint: Checkpoint,
    *,
    config: Mapping[str, Any] | None = None,
    offsets: npt.NDArray[np.int64] | None = None,
    **change: npt.NDArray[Any] | None,
) -> Path:
    """The layers for further tokens of a Qwen3, in a folder without all else.

    config: of config.json, which is not written without one. offsets: d2t. change: weights that are
    other ones, or missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights: dict[str, Any] = {
        name.removeprefix("model."): tensor.to_f32()
        for name, tensor in checkpoint.tensors.items()
        if name.startswith("model.mtp.")
    }
    weights |= change
    if offsets is not None:
        weights["d2t"] = offsets.reshape(1, -1)
    tensors = [
        _stored(name, values) for name, values in weights.items() if values is not None
    ]  # fmt: skip
    write_safetensors_file(
        folder / "model.safetensors",
        [
            TensorSource(
                item.name, item.shape[1:] if item.name == "d2t" else item.shape, item.codec,
                lambda item=item: [item.data],  # type: ignore[misc]
            )
            for item in tensors
        ],
    )  # fmt: skip
    if config is not None:
        (folder / "config.json").write_text(json.dumps(dict(config)), encoding="utf-8")
    return folder
