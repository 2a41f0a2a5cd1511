"""Tiny random checkpoints, built on the fly, with a byte-level tokenizer.

Ids 0 to 255 are the bytes, 256 to 259 the special tokens below; rows of the vocabulary past those
are padding without a token, as real models have. Weights are a function of (seed, tensor name),
so the same seed gives the same model in every codec, container and shape of call.
"""

from __future__ import annotations

import json
import zlib
from array import array
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.codecs import get_codec
from headrace.weights.gguf_names import architecture_of_config
from headrace.weights.gguf_values import StringArray
from headrace.weights.gguf_writer import write_gguf_file
from headrace.weights.rope_rows import llama3_factors
from headrace.weights.safetensors_writer import write_safetensors_file
from headrace.weights.source import TensorSource
from headrace.weights.tensor import Tensor

BOS, EOS, IM_START, IM_END = 256, 257, 258, 259
SPECIAL_TOKENS = ("<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>")
NUM_TOKENS = 256 + len(SPECIAL_TOKENS)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Family = Literal["llama", "qwen3"]


def byte_characters() -> list[str]:
    """The printable character that stands for each byte in byte-level BPE (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = (byte for byte in range(256) if byte not in printable)
    stand_ins = {byte: chr(256 + index) for index, byte in enumerate(moved)}
    return [chr(byte) if byte in printable else stand_ins[byte] for byte in range(256)]


def tokenizer_json() -> dict[str, Any]:
    """tokenizer.json of the byte tokenizer: byte-level BPE without merges."""
    byte_level = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True,
    }  # fmt: skip
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": 256 + index, "content": content, "single_word": False, "lstrip": False,
                "rstrip": False, "normalized": False, "special": True,
            }
            for index, content in enumerate(SPECIAL_TOKENS)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {character: byte for byte, character in enumerate(byte_characters())},
            "merges": [],
        },
    }  # fmt: skip


def tokenizer_config() -> dict[str, Any]:
    """tokenizer_config.json, without the chat template."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>", "eos_token": "<|eos|>",
        "add_bos_token": False, "clean_up_tokenization_spaces": False,
    }  # fmt: skip


def gguf_tokenizer(vocab: int = NUM_TOKENS) -> dict[str, Any]:
    """`tokenizer.ggml.*` entries without their prefix, padded to `vocab` with unused tokens."""
    padding = vocab - NUM_TOKENS
    return {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": [*byte_characters(), *SPECIAL_TOKENS, *(f"[PAD{i}]" for i in range(padding))],
        "token_type": [1] * 256 + [3] * len(SPECIAL_TOKENS) + [5] * padding,
        "merges": [],
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "eot_token_id": IM_END,
        "add_bos_token": False,
    }


def tiny_config(
    family: Family = "llama",
    *,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int | None = None,
    intermediate: int = 96,
    vocab: int = 288,
    max_positions: int = 512,
    tied: bool | None = None,
    attention_bias: bool = False,
    mlp_bias: bool = False,
    rope_scaling: dict[str, Any] | None = None,
    rope_theta: float = 10000.0,
) -> dict[str, Any]:
    """config.json of a tiny model. Qwen3 has tied embeddings and head_dim != hidden / heads."""
    if head_dim is None:
        head_dim = 32 if family == "qwen3" else hidden // heads
    config: dict[str, Any] = {
        "model_type": family,
        "architectures": ["Qwen3ForCausalLM" if family == "qwen3" else "LlamaForCausalLM"],
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": max_positions,
        "rms_norm_eps": 1e-5,
        "rope_theta": rope_theta,
        "rope_scaling": rope_scaling,
        "tie_word_embeddings": family == "qwen3" if tied is None else tied,
        "attention_bias": attention_bias,
        "attention_dropout": 0.0,
        "use_cache": True,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "torch_dtype": "float32",
    }
    if family == "llama":
        config["mlp_bias"] = mlp_bias
        config["pretraining_tp"] = 1
    else:
        config["use_sliding_window"] = False
        config["sliding_window"] = None
        config["max_window_layers"] = layers
    return config


def tiny_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a model with this config."""
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    width = config["num_attention_heads"] * config["head_dim"]
    kv_width = config["num_key_value_heads"] * config["head_dim"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    projections = {
        "self_attn.q_proj": (width, hidden),
        "self_attn.k_proj": (kv_width, hidden),
        "self_attn.v_proj": (kv_width, hidden),
        "self_attn.o_proj": (hidden, width),
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
    }
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "input_layernorm.weight"] = (hidden,)
        shapes[prefix + "post_attention_layernorm.weight"] = (hidden,)
        if config["model_type"] == "qwen3":
            shapes[prefix + "self_attn.q_norm.weight"] = (config["head_dim"],)
            shapes[prefix + "self_attn.k_norm.weight"] = (config["head_dim"],)
        for name, shape in projections.items():
            shapes[f"{prefix}{name}.weight"] = shape
            key = "attention_bias" if name.startswith("self_attn") else "mlp_bias"
            if config.get(key):
                shapes[f"{prefix}{name}.bias"] = shape[:1]
    return shapes


def tiny_weights(
    config: dict[str, Any], seed: int = 0, *, logit_scale: float = 1.0
) -> dict[str, npt.NDArray[np.float32]]:
    """float32 weights by name. `logit_scale` widens the logits (the table that makes them)."""
    weights = {}
    head = "model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"
    for name, shape in tiny_shapes(config).items():
        draw = np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(shape)
        if name.endswith("norm.weight"):
            values = np.round(1 + 0.1 * draw, 2)
        elif name.endswith(".bias"):
            values = 0.1 * draw
        elif name == "model.embed_tokens.weight":
            # Small where tied, or every token would mostly predict itself.
            values = draw * (0.25 if config["tie_word_embeddings"] else 1.0)
        else:
            # sqrt(3) keeps attention and the MLP visible beside the residual stream.
            values = draw * (3.0 / shape[-1]) ** 0.5
        weights[name] = (values * (logit_scale if name == head else 1.0)).astype(np.float32)
    return weights


def to_tensor(name: str, values: npt.NDArray[np.float32], codec: str) -> Tensor:
    """An in-memory tensor; vectors stay F32 as in quantised files."""
    kind = get_codec(codec if values.ndim == 2 else "F32")
    rows = kind.encode(values.reshape(-1, values.shape[-1]))
    return Tensor(name, values.shape, kind, rows)


def to_interleaved(values: npt.NDArray[np.float32], num_heads: int) -> npt.NDArray[np.float32]:
    """Rows of Q or K (or their bias) as GGUF's converter orders them for the llama family."""
    half = values.reshape(num_heads, 2, -1, *values.shape[1:])
    return np.ascontiguousarray(half.swapaxes(1, 2)).reshape(values.shape)


def tiny_checkpoint(
    family: Family = "llama",
    codec: str = "F32",
    seed: int = 0,
    *,
    layout: Literal["half", "interleaved"] = "half",
    logit_scale: float = 1.0,
    **shape: Any,
) -> Checkpoint:
    """A checkpoint in memory. `shape`: the keywords of tiny_config. Widths are multiples of 32.

    layout "interleaved" stores the rows of Q and K as GGUF files of the llama family do.
    """
    config = tiny_config(family, **shape)
    tensors = {}
    for name, values in tiny_weights(config, seed, logit_scale=logit_scale).items():
        if layout == "interleaved":
            if ".q_proj." in name:
                values = to_interleaved(values, config["num_attention_heads"])
            elif ".k_proj." in name:
                values = to_interleaved(values, config["num_key_value_heads"])
        tensors[name] = to_tensor(name, values, codec)
    return Checkpoint(
        path=Path(f"tiny-{family}-{codec}"),
        format="safetensors" if layout == "half" else "gguf",
        config=config,
        conventions=Conventions(rope_layout=layout),
        tensors=tensors,
        tokenizer=TokenizerData(kind="gguf", gguf=gguf_tokenizer(), config=tokenizer_config()),
        chat_templates={"default": CHAT_TEMPLATE},
        eos_token_ids=(EOS, IM_END),
    )


def write_tiny_hf(
    folder: Path, family: Family = "llama", codec: str = "F32", seed: int = 0, **options: Any
) -> Path:
    """A Hugging Face folder under `folder`, and its path. options: those of tiny_checkpoint."""
    checkpoint = tiny_checkpoint(family, codec, seed, **options)
    path = folder / f"tiny-{family}-{codec.lower()}"
    path.mkdir(parents=True, exist_ok=True)
    texts = {
        "config.json": dict(checkpoint.config),
        "generation_config.json": {"bos_token_id": BOS, "eos_token_id": [EOS, IM_END]},
        "tokenizer.json": tokenizer_json(),
        "tokenizer_config.json": {**tokenizer_config(), "chat_template": CHAT_TEMPLATE},
    }
    for name, content in texts.items():
        (path / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
    sources = [_source(tensor.name, tensor) for tensor in checkpoint.tensors.values()]
    write_safetensors_file(path / "model.safetensors", sources)
    return path


def write_tiny_gguf(
    folder: Path, family: Family = "llama", codec: str = "F32", seed: int = 0, **options: Any
) -> Path:
    """A GGUF file under `folder`, and its path. options: those of tiny_checkpoint, no layout."""
    architecture = architecture_of_config(family)
    checkpoint = tiny_checkpoint(family, codec, seed, layout=architecture.rope_layout, **options)
    config = checkpoint.config
    metadata: dict[str, Any] = {
        "general.architecture": family,
        "general.name": f"tiny {family}",
        f"{family}.context_length": config["max_position_embeddings"],
        f"{family}.embedding_length": config["hidden_size"],
        f"{family}.block_count": config["num_hidden_layers"],
        f"{family}.feed_forward_length": config["intermediate_size"],
        f"{family}.attention.head_count": config["num_attention_heads"],
        f"{family}.attention.head_count_kv": config["num_key_value_heads"],
        f"{family}.attention.key_length": config["head_dim"],
        f"{family}.attention.value_length": config["head_dim"],
        f"{family}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        f"{family}.rope.freq_base": config["rope_theta"],
        f"{family}.rope.dimension_count": config["head_dim"],
    }
    sources = [
        _source(architecture.gguf_name(tensor.name), tensor)
        for tensor in checkpoint.tensors.values()
    ]
    scaling = config["rope_scaling"] or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "linear":
        metadata[f"{family}.rope.scaling.type"] = "linear"
        metadata[f"{family}.rope.scaling.factor"] = float(scaling["factor"])
    elif kind == "llama3":
        factors = llama3_factors(config["head_dim"], config["rope_theta"], scaling)
        sources.append(_source("rope_freqs.weight", to_tensor("rope_freqs.weight", factors, "F32")))
    for key, value in gguf_tokenizer(config["vocab_size"]).items():
        metadata[f"tokenizer.ggml.{key}"] = value
    # An empty list has no type of its own; merges are strings.
    metadata["tokenizer.ggml.merges"] = StringArray(
        Path(), "tokenizer.ggml.merges", memoryview(b""), array("Q"), array("Q")
    )
    metadata["tokenizer.chat_template"] = CHAT_TEMPLATE
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"tiny-{family}-{codec.lower()}.gguf"
    write_gguf_file(path, metadata, sources)
    return path


def _source(name: str, tensor: Tensor) -> TensorSource:
    return TensorSource(name, tensor.shape, tensor.codec, lambda: [tensor.data])
