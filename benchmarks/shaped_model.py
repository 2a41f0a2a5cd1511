"""Writes a GGUF file of a real model's shape with random weights, to time what does not depend on
values: `python benchmarks/shaped_model.py OUT.gguf [--shape qwen3-0.6b] [--codec Q8_0]`.

With `--vocabulary FOLDER` (vocab.json and merges.txt of a Qwen2 tokenizer) the file carries that
tokenizer, so that loading it costs what it costs for the real model; otherwise one of 256 bytes and
numbered fillers. Weights are drawn in the codec's own bytes: a file of 0.6 GB takes seconds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headrace.weights.codecs import Codec, get_codec
from headrace.weights.gguf_writer import write_gguf_file
from headrace.weights.source import TensorSource, source_of_array

CHUNK_ROWS = 4096


class Shape(NamedTuple):
    """Sizes of a Qwen3 model."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int


SHAPES = {
    "qwen3-0.6b": Shape(1024, 28, 16, 8, 128, 3072, 151936),
    "qwen3-1.7b": Shape(2048, 28, 16, 8, 128, 6144, 151936),
}


def _random_rows(rng: np.random.Generator, codec: Codec, rows: int, width: int) -> np.ndarray:
    """Encoded rows whose values have a standard deviation near width^-1/2."""
    if codec.name == "Q8_0":
        blocks = np.empty((rows, width // 32, 34), np.uint8)
        scale = np.float16(width**-0.5 / 73)  # 73: deviation of uniform int8
        blocks[:, :, :2] = np.frombuffer(scale.tobytes(), np.uint8)
        blocks[:, :, 2:] = rng.integers(0, 256, (rows, width // 32, 32), np.uint8)
        return blocks.reshape(rows, -1)
    return codec.encode((rng.standard_normal((rows, width)) * width**-0.5).astype(np.float32))


def _matrix(name: str, rows: int, width: int, codec: Codec, seed: int) -> TensorSource:
    def pieces() -> Iterator[np.ndarray]:
        rng = np.random.default_rng(seed)
        for begin in range(0, rows, CHUNK_ROWS):
            yield _random_rows(rng, codec, min(CHUNK_ROWS, rows - begin), width)

    return TensorSource(name, (rows, width), codec, pieces)


def _vector(name: str, width: int) -> TensorSource:
    return source_of_array(np.ones(width, np.float32), name)


def tensors(shape: Shape, codec: Codec) -> Iterator[TensorSource]:
    """Every tensor of the model, embeddings tied."""
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield _matrix("token_embd.weight", shape.vocabulary, shape.hidden, codec, 0)
    yield _vector("output_norm.weight", shape.hidden)
    for layer in range(shape.layers):
        prefix = f"blk.{layer}."
        yield _vector(prefix + "attn_norm.weight", shape.hidden)
        yield _vector(prefix + "ffn_norm.weight", shape.hidden)
        yield _vector(prefix + "attn_q_norm.weight", shape.head_dim)
        yield _vector(prefix + "attn_k_norm.weight", shape.head_dim)
        sizes = {
            "attn_q": (query, shape.hidden), "attn_k": (key, shape.hidden),
            "attn_v": (key, shape.hidden), "attn_output": (shape.hidden, query),
            "ffn_gate": (shape.intermediate, shape.hidden),
            "ffn_up": (shape.intermediate, shape.hidden),
            "ffn_down": (shape.hidden, shape.intermediate),
        }  # fmt: skip
        for index, (name, (rows, width)) in enumerate(sizes.items()):
            seed = 1 + layer * len(sizes) + index
            yield _matrix(f"{prefix}{name}.weight", rows, width, codec, seed)


def _printable_bytes() -> list[str]:
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in kept]
    table = {byte: chr(byte) for byte in kept}
    table |= {byte: chr(256 + index) for index, byte in enumerate(rest)}
    return [table[byte] for byte in range(256)]


def tokenizer(shape: Shape, folder: Path | None) -> dict[str, Any]:
    """`tokenizer.ggml.*` metadata."""
    if folder is None:
        tokens, merges = _printable_bytes(), ["Ġ Ġ"]
    else:
        vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        tokens = sorted(vocabulary, key=vocabulary.__getitem__)
        lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
        merges = [line for line in lines if line and not line.startswith("#version")]
    normal = len(tokens)
    tokens = [*tokens, "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens += [f"[PAD{index}]" for index in range(len(tokens), shape.vocabulary)]
    kinds = [1] * normal + [3] * 3 + [5] * (shape.vocabulary - normal - 3)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": normal + 2,
        "tokenizer.ggml.add_bos_token": False,
    }


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-0.6b")
    parser.add_argument("--codec", choices=["F32", "F16", "BF16", "Q8_0"], default="Q8_0")
    parser.add_argument("--vocabulary", type=Path, help="folder with vocab.json and merges.txt")
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    metadata = {
        "general.architecture": "qwen3",
        "general.name": f"random weights of the shape {options.shape}",
        "qwen3.block_count": shape.layers,
        "qwen3.context_length": 40960,
        "qwen3.embedding_length": shape.hidden,
        "qwen3.feed_forward_length": shape.intermediate,
        "qwen3.attention.head_count": shape.heads,
        "qwen3.attention.head_count_kv": shape.kv_heads,
        "qwen3.attention.key_length": shape.head_dim,
        "qwen3.attention.value_length": shape.head_dim,
        "qwen3.attention.layer_norm_rms_epsilon": 1e-6,
        "qwen3.rope.freq_base": 1_000_000.0,
        **tokenizer(shape, options.vocabulary),
    }
    size = write_gguf_file(options.out, metadata, list(tensors(shape, get_codec(options.codec))))
    print(f"{options.out}: {size / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
