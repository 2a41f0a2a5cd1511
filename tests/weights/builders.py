"""Small checkpoints for these tests, made by the formats' own libraries, not by the code here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, LAYERS, VOCAB = 64, 4, 2, 16, 96, 2, 300

Arrays = dict[str, npt.NDArray[np.float32]]


def random_array(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.float32]:
    return rng.standard_normal(shape, dtype=np.float32)


def hf_arrays(model_type: str = "llama", seed: int = 0, bias: bool = False) -> Arrays:
    """Weights by canonical name, in Hugging Face order."""
    rng = np.random.default_rng(seed)
    arrays = {"model.embed_tokens.weight": random_array(rng, VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        arrays |= {
            f"{at}input_layernorm.weight": random_array(rng, HIDDEN),
            f"{at}self_attn.q_proj.weight": random_array(rng, HEADS * HEAD_DIM, HIDDEN),
            f"{at}self_attn.k_proj.weight": random_array(rng, KV_HEADS * HEAD_DIM, HIDDEN),
            f"{at}self_attn.v_proj.weight": random_array(rng, KV_HEADS * HEAD_DIM, HIDDEN),
            f"{at}self_attn.o_proj.weight": random_array(rng, HIDDEN, HEADS * HEAD_DIM),
            f"{at}post_attention_layernorm.weight": random_array(rng, HIDDEN),
            f"{at}mlp.gate_proj.weight": random_array(rng, FFN, HIDDEN),
            f"{at}mlp.up_proj.weight": random_array(rng, FFN, HIDDEN),
            f"{at}mlp.down_proj.weight": random_array(rng, HIDDEN, FFN),
        }
        if bias:
            arrays[f"{at}self_attn.q_proj.bias"] = random_array(rng, HEADS * HEAD_DIM)
            arrays[f"{at}self_attn.k_proj.bias"] = random_array(rng, KV_HEADS * HEAD_DIM)
            arrays[f"{at}self_attn.v_proj.bias"] = random_array(rng, KV_HEADS * HEAD_DIM)
            arrays[f"{at}self_attn.o_proj.bias"] = random_array(rng, HIDDEN)
        if model_type == "qwen3":
            arrays[f"{at}self_attn.q_norm.weight"] = random_array(rng, HEAD_DIM)
            arrays[f"{at}self_attn.k_norm.weight"] = random_array(rng, HEAD_DIM)
    arrays["model.norm.weight"] = random_array(rng, HIDDEN)
    arrays["lm_head.weight"] = random_array(rng, VOCAB, HIDDEN)
    return arrays


def hf_config(model_type: str = "llama", **changes: Any) -> dict[str, Any]:
    """config.json of `hf_arrays`, with `changes`; the value ... removes a key."""
    config = {
        "architectures": [f"{model_type.title()}ForCausalLM"],
        "model_type": model_type,
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "max_position_embeddings": 128,
        "vocab_size": VOCAB,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "eos_token_id": 1,
        "torch_dtype": "float32",
    }
    return {key: value for key, value in (config | changes).items() if value is not ...}


def byte_tokenizer() -> dict[str, Any]:
    """tokenizer.json of byte-level BPE with three merges and two added tokens."""
    from tokenizers import pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {"<|end|>": 0, "<|turn|>": 1} | {text: 2 + i for i, text in enumerate(alphabet)}
    merges = [["t", "h"], ["th", "e"], ["Ġ", "the"]]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    added = [
        {"id": 0, "content": "<|end|>", "special": True},
        {"id": 1, "content": "<|turn|>", "special": False},
    ]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "added_tokens": [entry | flags for entry in added],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True,
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True,
        },
        "model": {"type": "BPE", "vocab": vocab, "merges": merges, "byte_fallback": False},
    }  # fmt: skip


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def write_hf(
    folder: Path,
    arrays: Mapping[str, npt.NDArray[Any]],
    config: Mapping[str, Any],
    tokenizer: Mapping[str, Any] | None = None,
) -> Path:
    """A Hugging Face folder written by the safetensors library."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(dict(arrays), folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", config)
    if tokenizer is not None:
        write_json(folder / "tokenizer.json", tokenizer)
        write_json(
            folder / "tokenizer_config.json",
            {"eos_token": "<|end|>", "chat_template": "{{ messages[0]['content'] }}"},
        )
    return folder


def permuted(
    values: npt.NDArray[np.float32], heads: int, head_dim: int = HEAD_DIM
) -> npt.NDArray[np.float32]:
    """Rows as llama.cpp's converter stores them, by its formula."""
    shape = values.shape
    return values.reshape(heads, 2, head_dim // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def gguf_arrays(arrays: Mapping[str, npt.NDArray[Any]], arch: str = "llama") -> Arrays:
    """`arrays` as a GGUF converter names and orders them, by gguf-py's own name table."""
    model = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen3": gguf.MODEL_ARCH.QWEN3}[arch]
    names = gguf.get_tensor_name_map(model, LAYERS)
    out = {}
    for name, values in arrays.items():
        stored = values
        for module, heads in (("q_proj", HEADS), ("k_proj", KV_HEADS)):
            if arch == "llama" and f".{module}." in name:
                stored = permuted(values, heads)
        new = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert new is not None, name
        out[new] = stored
    return out


def write_gguf_with_library(
    path: Path,
    arrays: Mapping[str, npt.NDArray[Any]],
    arch: str = "llama",
    extra: Mapping[str, Any] | None = None,
    quantize: gguf.GGMLQuantizationType | None = None,
) -> Path:
    """A GGUF file written by gguf-py; `extra` are uint32, float32, bool or string entries."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{index}" for index in range(VOCAB)])
    writer.add_token_types([1] * VOCAB)
    writer.add_token_merges(["t 1", "t 2"])
    writer.add_eos_token_id(7)
    for key, value in (extra or {}).items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_string(key, value)
    for name, values in gguf_arrays(arrays, arch).items():
        if quantize is not None and values.ndim > 1:
            writer.add_tensor(name, gguf.quantize(values, quantize), raw_dtype=quantize)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
