"""Writes GGUF files of real mixtures of experts, cut to some layers, with random weights, to time
what does not depend on values: `python benchmarks/shaped_experts.py OUT.gguf [--shape NAME]`.

Each shape has the kinds of weights in which the model is usually had: Q4_K_M for Qwen3-30B-A3B and
DeepSeek-V2-Lite, MXFP4 experts among Q8_0 for gpt-oss-20b. Routers are F32, as converters write
them; their rows are alike in length, so that each expert is about as likely as any other. Embedding
and output are whole and apart, as the models have them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.random_rows import random_rows
from benchmarks.shaped_model import Mixture, mixture, tokenizer
from headrace.weights.codecs import Codec, get_codec
from headrace.weights.gguf.values import FILE_TYPES
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.tensors.source import TensorSource, source_of_array

# Values drawn at a time.
CHUNK_VALUES = 1 << 23


class Mixed(NamedTuple):
    """Sizes of a model with experts in every layer."""

    architecture: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    experts: int
    experts_per_token: int
    expert_width: int
    codec: str
    """Of the matrices: a codec's name, or Q4_K_M."""
    expert_codec: str | None = None
    """Of the experts where theirs is another."""
    shared_experts: int = 0
    """Each as wide as one of the others."""
    dense_layers: int = 0
    """The first ones, whose MLP has no experts."""
    dense_width: int = 0
    latent: int = 0
    """Values that K and V of all heads are made of; 0 where each head has its own."""
    query_latent: int = 0
    """The same for queries. V2-Lite makes them by one product of 6.3 M values, which llama.cpp
    reads of models with 27 layers alone; two products of 6.6 M stand for it."""
    rotated: int = 0
    """Of a key, beside what comes from the latent."""


SHAPES = {
    "qwen3-30b-a3b": Mixed("qwen3moe", 2048, 8, 32, 4, 128, 151936, 128, 8, 768, "Q4_K_M"),
    "gpt-oss-20b": Mixed(
        "gpt-oss", 2880, 6, 64, 8, 64, 201088, 32, 4, 2880, "Q8_0", expert_codec="MXFP4"
    ),
    "deepseek-v2-lite": Mixed(
        "deepseek2",
        2048,
        6,
        16,
        1,
        128,
        102400,
        64,
        6,
        1408,
        "Q4_K_M",
        shared_experts=2,
        dense_layers=1,
        dense_width=10944,
        latent=512,
        query_latent=1280,
        rotated=64,
    ),
    "small": Mixed("qwen3moe", 256, 2, 4, 2, 64, 512, 8, 2, 256, "Q8_0"),
}


class _Draw:
    """Matrices of random weights, each of a seed of its own."""

    def __init__(self) -> None:
        self._seed = 0

    def matrix(self, name: str, shape: tuple[int, ...], codec: Codec) -> TensorSource:
        """One of `shape`, out and in last.

        A width that the codec does not hold takes the kind that llama.cpp puts in its place.
        """
        self._seed += 1
        seed, width = self._seed, shape[-1]
        if width % codec.block_elements:
            codec = get_codec({"Q4_K": "Q5_0", "Q6_K": "Q8_0"}[codec.name])
        rows = int(np.prod(shape[:-1]))
        step = max(1, CHUNK_VALUES // width)

        def pieces() -> Iterator[np.ndarray]:
            rng = np.random.default_rng(seed)
            for begin in range(0, rows, step):
                yield random_rows(codec, rng, min(step, rows - begin), width, width**-0.5)

        return TensorSource(f"{name}.weight", shape, codec, pieces)

    def bias(self, name: str, shape: tuple[int, ...]) -> TensorSource:
        """Random values, small beside what they are added to."""
        self._seed += 1
        values = np.random.default_rng(self._seed).standard_normal(shape, np.float32)
        return source_of_array(values * np.float32(0.02), f"{name}.bias")


def _vector(name: str, width: int) -> TensorSource:
    return source_of_array(np.ones(width, np.float32), f"{name}.weight")


def tensors(shape: Mixed, kinds: Mixture) -> Iterator[TensorSource]:
    """Every tensor of the model."""
    draw, layers = _Draw(), shape.layers
    vocabulary = (shape.vocabulary, shape.hidden)
    yield draw.matrix("token_embd", vocabulary, kinds.codec("token_embd", 0, layers))
    yield draw.matrix("output", vocabulary, kinds.codec("output", 0, layers))
    yield _vector("output_norm", shape.hidden)
    for layer in range(layers):
        yield _vector(f"blk.{layer}.attn_norm", shape.hidden)
        latent = shape.latent > 0
        yield from (_latent_attention if latent else _attention)(shape, kinds, layer, draw)
        if layer < shape.dense_layers:
            yield from _mlp(shape, kinds, layer, draw, "", shape.dense_width)
            continue
        yield from _experts(shape, kinds, layer, draw)
        if shape.shared_experts:
            width = shape.shared_experts * shape.expert_width
            yield from _mlp(shape, kinds, layer, draw, "_shexp", width)


def _latent_attention(
    shape: Mixed, kinds: Mixture, layer: int, draw: _Draw
) -> Iterator[TensorSource]:
    at, heads, dim, latent = f"blk.{layer}.", shape.heads, shape.head_dim, shape.latent
    sizes = {
        "attn_q_a": (shape.query_latent, shape.hidden),
        "attn_q_b": (heads * (dim + shape.rotated), shape.query_latent),
        "attn_kv_a_mqa": (latent + shape.rotated, shape.hidden),
        "attn_k_b": (heads, latent, dim), "attn_v_b": (heads, dim, latent),
        "attn_output": (shape.hidden, heads * dim),
    }  # fmt: skip
    for name, size in sizes.items():
        yield draw.matrix(at + name, size, kinds.codec(name, layer, shape.layers))
    yield _vector(at + "attn_q_a_norm", shape.query_latent)
    yield _vector(at + "attn_kv_a_norm", latent)
    yield _vector(at + "ffn_norm", shape.hidden)


def _mlp(
    shape: Mixed, kinds: Mixture, layer: int, draw: _Draw, suffix: str, width: int
) -> Iterator[TensorSource]:
    sizes = {
        "ffn_gate": (width, shape.hidden), "ffn_up": (width, shape.hidden),
        "ffn_down": (shape.hidden, width),
    }  # fmt: skip
    for name, size in sizes.items():
        codec = kinds.codec(name, layer, shape.layers)
        yield draw.matrix(f"blk.{layer}.{name}{suffix}", size, codec)


def _attention(shape: Mixed, kinds: Mixture, layer: int, draw: _Draw) -> Iterator[TensorSource]:
    at = f"blk.{layer}."
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    sizes = {
        "attn_q": (query, shape.hidden), "attn_k": (key, shape.hidden),
        "attn_v": (key, shape.hidden), "attn_output": (shape.hidden, query),
    }  # fmt: skip
    for name, size in sizes.items():
        yield draw.matrix(at + name, size, kinds.codec(name, layer, shape.layers))
        if shape.architecture == "gpt-oss":
            yield draw.bias(at + name, size[:1])
    if shape.architecture == "gpt-oss":
        yield _vector(at + "post_attention_norm", shape.hidden)
        yield _vector(at + "attn_sinks", shape.heads)
    else:
        yield _vector(at + "ffn_norm", shape.hidden)
        yield _vector(at + "attn_q_norm", shape.head_dim)
        yield _vector(at + "attn_k_norm", shape.head_dim)


def _experts(shape: Mixed, kinds: Mixture, layer: int, draw: _Draw) -> Iterator[TensorSource]:
    at, count, width = f"blk.{layer}.", shape.experts, shape.expert_width
    yield draw.matrix(at + "ffn_gate_inp", (count, shape.hidden), get_codec("F32"))
    if shape.architecture == "gpt-oss":
        yield draw.bias(at + "ffn_gate_inp", (count,))
    sizes = {
        "ffn_gate": (count, width, shape.hidden), "ffn_up": (count, width, shape.hidden),
        "ffn_down": (count, shape.hidden, width),
    }  # fmt: skip
    for name, size in sizes.items():
        codec = kinds.codec(name, layer, shape.layers)
        if shape.expert_codec is not None:
            codec = get_codec(shape.expert_codec)
        yield draw.matrix(f"{at}{name}_exps", size, codec)
        if shape.architecture == "gpt-oss":
            yield draw.bias(f"{at}{name}_exps", size[:2])


def metadata(name: str, shape: Mixed, file_type: int) -> dict[str, Any]:
    """What the file says of the model."""
    own: dict[str, Any] = {
        "block_count": shape.layers,
        "context_length": 40960,
        "embedding_length": shape.hidden,
        "feed_forward_length": shape.expert_width,
        "expert_feed_forward_length": shape.expert_width,
        "expert_count": shape.experts,
        "expert_used_count": shape.experts_per_token,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1_000_000.0,
    }
    if shape.architecture == "gpt-oss":
        own |= {
            "context_length": 131072,
            "attention.sliding_window": 128,
            "rope.freq_base": 150_000.0,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0,
            "rope.scaling.original_context_length": 4096,
        }
    if shape.latent:
        own |= {
            "context_length": 163840,
            "feed_forward_length": shape.dense_width,
            "leading_dense_block_count": shape.dense_layers,
            "expert_shared_count": shape.shared_experts,
            "expert_weights_scale": 1.0,
            "expert_weights_norm": False,
            "expert_gating_func": 1,  # softmax
            "vocab_size": shape.vocabulary,
            "attention.q_lora_rank": shape.query_latent,
            "attention.kv_lora_rank": shape.latent,
            "attention.key_length": shape.latent + shape.rotated,
            "attention.value_length": shape.latent,
            "attention.key_length_mla": shape.head_dim + shape.rotated,
            "attention.value_length_mla": shape.head_dim,
            "rope.dimension_count": shape.rotated,
            "rope.freq_base": 10_000.0,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 40.0,
            "rope.scaling.original_context_length": 4096,
            "rope.scaling.yarn_log_multiplier": 0.0707,
        }
    return {
        "general.architecture": shape.architecture,
        "general.name": f"random weights of the shape {name}, {shape.layers} layers",
        "general.file_type": file_type,
        "general.quantization_version": 2,
        **{f"{shape.architecture}.{key}": value for key, value in own.items()},
    }


def write(path: Path, name: str) -> int:
    """Write the file and return its bytes."""
    shape = SHAPES[name]
    kinds = mixture(shape.codec)
    entries = metadata(
        name, shape, kinds.file_type if shape.codec != "Q8_0" else FILE_TYPES["Q8_0"]
    )
    entries |= tokenizer(shape.vocabulary, None)
    return write_gguf_file(path, entries, list(tensors(shape, kinds)))


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-30b-a3b")
    options = parser.parse_args()
    print(f"{options.out}: {write(options.out, options.shape) / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
