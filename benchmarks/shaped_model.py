"""Writes a GGUF file of a real model's shape with random weights, to time what does not depend on
values: `python benchmarks/shaped_model.py OUT.gguf [--shape qwen3-0.6b] [--codec Q4_K_M]`.

`--codec` is any codec, or the mixture Q4_K_M: Q6_K for the embedding, the output, and V and the
down projection in those layers that llama.cpp gives more bits; Q4_K elsewhere. With `--untied` the
output is a matrix of its own, so that logits tell tokens apart as a trained model's do.

With `--vocabulary FOLDER` (vocab.json and merges.txt of a Qwen2 tokenizer) the file carries that
tokenizer, so that loading it costs what it costs for the real model; otherwise one of 256 bytes and
numbered fillers. Weights are drawn in the codec's own bytes: a file of 0.6 GB takes seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.random_rows import random_rows
from headrace.weights.codecs import CODECS, Codec, get_codec
from headrace.weights.gguf.values import FILE_TYPES
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.tensors.source import TensorSource, source_of_array

CHUNK_ROWS = 4096
# Beyond those of any layer.
OUTPUT_SEED = 1 << 20


class Shape(NamedTuple):
    """Sizes of a model, which is written as one of Qwen3's architecture."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int


SHAPES = {
    "small": Shape(256, 4, 8, 4, 64, 512, 512),
    "small-152k": Shape(256, 4, 8, 4, 64, 512, 151936),
    "qwen3-0.6b": Shape(1024, 28, 16, 8, 128, 3072, 151936),
    "llama-3.2-1b": Shape(2048, 16, 32, 8, 64, 8192, 128256),
    "llama-3.1-8b": Shape(4096, 32, 32, 8, 128, 14336, 128256),
    "qwen3-1.7b": Shape(2048, 28, 16, 8, 128, 6144, 151936),
    "0.8b": Shape(1024, 40, 16, 8, 128, 3072, 151936),  # Qwen3-0.6B with 12 layers more: a draft
    "qwen3-4b": Shape(2560, 36, 32, 8, 128, 9728, 151936),
    "qwen3-8b": Shape(4096, 36, 32, 8, 128, 12288, 151936),
}


class Mixture(NamedTuple):
    """Which codec each matrix has. file_type: llama.cpp's number for it."""

    most: Codec
    fine: Codec
    file_type: int

    def codec(self, name: str, layer: int, layers: int) -> Codec:
        """The codec of `name` ("attn_v", "token_embd") in `layer` of `layers`."""
        if name in ("token_embd", "output"):
            return self.fine
        if name in ("attn_v", "ffn_down") and _has_more_bits(layer, layers):
            return self.fine
        return self.most


def _has_more_bits(layer: int, layers: int) -> bool:
    """llama.cpp's use_more_bits (llama-quant.cpp): both ends, and every third layer between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def mixture(name: str) -> Mixture:
    """The mixture `name`: "Q4_K_M", or a codec's name for that codec throughout."""
    if name == "Q4_K_M":
        return Mixture(get_codec("Q4_K"), get_codec("Q6_K"), FILE_TYPES["Q4_K"])
    return Mixture(get_codec(name), get_codec(name), FILE_TYPES[name])


def _matrix(name: str, rows: int, width: int, codec: Codec, seed: int) -> TensorSource:
    def pieces() -> Iterator[np.ndarray]:
        rng = np.random.default_rng(seed)
        for begin in range(0, rows, CHUNK_ROWS):
            yield random_rows(codec, rng, min(CHUNK_ROWS, rows - begin), width, width**-0.5)

    return TensorSource(f"{name}.weight", (rows, width), codec, pieces)


def _vector(name: str, width: int) -> TensorSource:
    return source_of_array(np.ones(width, np.float32), name)


def tensors(shape: Shape, kinds: Mixture, untied: bool = False) -> Iterator[TensorSource]:
    """Every tensor of the model; `untied` adds an output matrix unlike the embedding."""
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    vocabulary = (shape.vocabulary, shape.hidden)
    yield _matrix("token_embd", *vocabulary, kinds.codec("token_embd", 0, shape.layers), 0)
    if untied:
        yield _matrix("output", *vocabulary, kinds.codec("output", 0, shape.layers), OUTPUT_SEED)
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
            yield _matrix(prefix + name, rows, width, kinds.codec(name, layer, shape.layers), seed)


def _printable_bytes() -> list[str]:
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in kept]
    table = {byte: chr(byte) for byte in kept}
    table |= {byte: chr(256 + index) for index, byte in enumerate(rest)}
    return [table[byte] for byte in range(256)]


def tokenizer(
    vocabulary_size: int, folder: Path | None, added: Sequence[str] = ()
) -> dict[str, Any]:
    """`tokenizer.ggml.*` metadata. added: further tokens that text is split at, not special."""
    if folder is None:
        tokens, merges = [*_printable_bytes(), "ĠĠ"], ["Ġ Ġ"]
    else:
        vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        tokens = sorted(vocabulary, key=vocabulary.__getitem__)
        lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
        merges = [line for line in lines if line and not line.startswith("#version")]
    normal = len(tokens)
    tokens = [*tokens, "<|endoftext|>", "<|im_start|>", "<|im_end|>", *added]
    kinds = [1] * normal + [3] * 3 + [4] * len(added) + [5] * (vocabulary_size - len(tokens))
    tokens += [f"[PAD{index}]" for index in range(len(tokens), vocabulary_size)]
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
    parser.add_argument("--codec", choices=[*CODECS, "Q4_K_M"], default="Q8_0")
    parser.add_argument("--untied", action="store_true", help="an output matrix of its own")
    parser.add_argument("--vocabulary", type=Path, help="folder with vocab.json and merges.txt")
    parser.add_argument(
        "--added", nargs="*", default=[], help="further tokens, such as <think> of Qwen3"
    )
    options = parser.parse_args()
    shape, kinds = SHAPES[options.shape], mixture(options.codec)
    metadata = {
        "general.architecture": "qwen3",
        "general.name": f"random weights of the shape {options.shape}",
        "general.file_type": kinds.file_type,
        "general.quantization_version": 2,
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
        **tokenizer(shape.vocabulary, options.vocabulary, options.added),
    }
    sources = list(tensors(shape, kinds, options.untied))
    size = write_gguf_file(options.out, metadata, sources)
    print(f"{options.out}: {size / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
