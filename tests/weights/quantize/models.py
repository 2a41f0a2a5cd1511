"""A small Llama of normal values for quantising."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headrace.weights.codecs import BF16, F32, Codec
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.tensors.source import TensorSource, source_of_array

WIDTH, FFN, VOCAB = 256, 512, 128
LAYERS = 4


def sources(codec: Codec = BF16) -> list[TensorSource]:
    rng = np.random.default_rng(5)

    def matrix(name: str, rows: int, width: int) -> TensorSource:
        values = (rng.standard_normal((rows, width)) * 0.05).astype(np.float32)
        return source_of_array(values, name, codec)

    made = [matrix("token_embd.weight", VOCAB, WIDTH), matrix("output.weight", VOCAB, WIDTH)]
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        made += [matrix(f"{at}attn_{part}.weight", WIDTH, WIDTH) for part in "qkv"]
        made.append(matrix(f"{at}attn_output.weight", WIDTH, WIDTH))
        made += [matrix(f"{at}ffn_{part}.weight", FFN, WIDTH) for part in ("gate", "up")]
        made.append(matrix(f"{at}ffn_down.weight", WIDTH, FFN))
        made += [
            source_of_array(np.ones(WIDTH, np.float32), f"{at}{part}_norm.weight", F32)
            for part in ("attn", "ffn")
        ]
    return [*made, source_of_array(np.ones(WIDTH, np.float32), "output_norm.weight", F32)]


METADATA = {
    "general.architecture": "llama", "general.name": "small", "llama.block_count": LAYERS,
    "llama.context_length": 128, "llama.embedding_length": WIDTH,
    "llama.feed_forward_length": FFN, "llama.attention.head_count": 4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.model": "none",
}  # fmt: skip


def write_model(path: Path, codec: Codec = BF16) -> Path:
    """The model in one file."""
    write_gguf_file(path, METADATA, sources(codec))
    return path
