"""Fuzzes opening of GGUF files: `python -m tools.fuzz.gguf --seed 1 --seconds 600`.

Half of the inputs are damaged as bytes, by a map of the header's fields; half are first given other
keys and values that are well formed, which reaches what comes after the header: the config, the
tokenizer's data, names of tensors. Opening either works or raises CheckpointError or
UnsupportedModelError, in bounded time and memory.
"""

from __future__ import annotations

import random
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.weights.codecs import CODECS, get_codec
from headrace.weights.gguf.file import read_gguf
from headrace.weights.gguf.values import NUMBER_DTYPES, Typed, ValueType
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.open import open_checkpoint
from headrace.weights.tensors.source import source_of_rows, source_of_tensor
from tools.fuzz.harness import Target, main
from tools.fuzz.mutations import Span, damage

WIDTH, FFN, VOCABULARY, HEADS = 256, 256, 40, 4
MAX_ERROR_CHARACTERS = 4000
# Most of the tensors' bytes are the same to the reader; seeds stay small so that inputs are many.
_KINDS = ("F32", "F16", "Q8_0", "Q4_K", "Q6_K", "MXFP4", "IQ4_XS", "IQ2_XXS", "TQ1_0", "NVFP4")
_WORDS = (
    "llama", "qwen3", "qwen2", "gemma2", "gemma3", "phi3", "cohere2", "glm4", "gpt2", "falcon",
    "starcoder", "olmo2", "smollm3", "granite", "none", "linear", "yarn", "longrope", "llama3",
    "model", "adapter", "mmproj", "gpt-2", "qwen2", "bert", "", "\x00", "ä" * 50, "9" * 5000,
)  # fmt: skip
_ENDINGS = (
    "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.value_length", "attention.sliding_window", "attention.sliding_window_pattern",
    "attention.layer_norm_epsilon", "attn_logit_softcapping", "final_logit_softcapping",
    "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor", "rope.freq_base",
    "rope.scaling.original_context_length", "rope.scaling.attn_factor", "logit_scale",
    "embedding_scale", "residual_scale", "attention.scale", "expert_count", "vocab_size",
    "expert_used_count", "expert_group_count", "expert_group_used_count", "expert_shared_count",
    "expert_feed_forward_length", "expert_weights_scale", "expert_weights_norm",
    "expert_gating_func", "leading_dense_block_count", "attention.kv_lora_rank",
    "attention.q_lora_rank", "attention.key_length_mla", "attention.value_length_mla",
    "attention.chunk_size", "interleave_moe_layer_step", "nextn_predict_layers",
    "block_count", "embedding_length", "feed_forward_length", "context_length",
)  # fmt: skip


def make_target() -> Target:
    """The target, with a file of its own that inputs are written to."""
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "input.gguf"

    def attempt(data: bytes) -> str:
        # In a closure, so that the folder lives as long as the target.
        assert folder.name
        path.write_bytes(data)
        return try_file(path)

    return Target(seeds(Path(folder.name)), _mutate, attempt)


def try_file(path: Path) -> str:
    """Open `path`, look at everything in it, and say how it ended."""
    try:
        checkpoint = open_checkpoint(path)
        for key in checkpoint.metadata:
            checkpoint.metadata[key]
        for tensor in checkpoint.tensors.values():
            if tensor.data.nbytes > path.stat().st_size:
                raise AssertionError(f"{tensor.name} is larger than its file")
            tensor.to_f32()
    except (CheckpointError, UnsupportedModelError) as error:
        if len(str(error)) > MAX_ERROR_CHARACTERS:
            raise AssertionError(f"an error of {len(str(error))} characters") from error
        return type(error).__name__
    return "opened"


def seeds(folder: Path) -> list[bytes]:
    """Small valid files: three families, with all kinds of values and tensors of many codecs."""
    files = []
    for index, arch in enumerate(("llama", "qwen3", "gemma2")):
        rng = np.random.default_rng(index)
        kinds = [_KINDS[(index + step) % len(_KINDS)] for step in range(len(_KINDS))]
        sources = []
        for number, (name, shape) in enumerate(_shapes(arch).items()):
            codec = get_codec("F32" if len(shape) == 1 else kinds[number % len(kinds)])
            n_rows = shape[0] if len(shape) == 2 else 1
            rows = rng.integers(0, 256, (n_rows, codec.row_bytes(shape[-1])), np.uint8)
            sources.append(source_of_rows(rows, shape, f"{name}.weight", codec))
        path = folder / f"seed-{arch}.gguf"
        write_gguf_file(path, _metadata(arch), sources)
        files.append(path.read_bytes())
    return files


def _shapes(arch: str) -> dict[str, tuple[int, ...]]:
    # Two rows at most of what a real matrix has would not be opened; one narrow layer is.
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (VOCABULARY, WIDTH), "output_norm": (WIDTH,), "blk.0.attn_norm": (WIDTH,),
        "blk.0.ffn_norm": (WIDTH,), "blk.0.attn_q": (HEADS * 4, WIDTH),
        "blk.0.attn_k": (8, WIDTH), "blk.0.attn_v": (8, WIDTH),
        "blk.0.ffn_gate": (16, WIDTH), "blk.0.ffn_up": (16, WIDTH),
    }  # fmt: skip
    if arch == "qwen3":
        shapes |= {"blk.0.attn_q_norm": (4,), "blk.0.attn_k_norm": (4,)}
    if arch == "llama":
        shapes |= {"output": (VOCABULARY, WIDTH), "rope_freqs": (2,)}
    if arch == "gemma2":
        shapes |= {"blk.0.post_attention_norm": (WIDTH,), "blk.0.post_ffw_norm": (WIDTH,)}
    return shapes


def _metadata(arch: str) -> dict[str, Any]:
    entries: dict[str, Any] = {
        "general.architecture": arch, "general.name": "seed", "general.alignment": 32,
        "general.quantization_version": 2, f"{arch}.block_count": 1, f"{arch}.context_length": 64,
        f"{arch}.embedding_length": WIDTH, f"{arch}.feed_forward_length": 16,
        f"{arch}.attention.head_count": HEADS, f"{arch}.attention.head_count_kv": 2,
        f"{arch}.attention.key_length": 4, f"{arch}.attention.value_length": 4,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-6, f"{arch}.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [f"t{index}" for index in range(VOCABULARY)],
        "tokenizer.ggml.token_type": np.ones(VOCABULARY, np.int32),
        "tokenizer.ggml.merges": ["t 1", "t 2"], "tokenizer.ggml.eos_token_id": 3,
        "tokenizer.chat_template": "{{ messages }}", "tokenizer.chat_template.tool_use": "x",
        "general.sampling.temp": 0.5, "x.nested": [[1, 2], ["a"]], "x.bools": [True, False],
    }  # fmt: skip
    if arch == "gemma2":
        entries |= {
            "gemma2.attn_logit_softcapping": 50.0, "gemma2.final_logit_softcapping": 30.0,
            "gemma2.attention.sliding_window": 32, "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.scores": np.zeros(VOCABULARY, np.float32),
        }  # fmt: skip
    for kind, dtype in NUMBER_DTYPES.items():
        entries[f"x.{kind.name}"] = Typed(kind, np.zeros((), dtype)[()].item())
    return entries


def _mutate(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    data = rng.choice(seeds)
    if rng.random() < 0.5:
        data = _rewrite(data, rng)
        if rng.random() < 0.7:
            return data
    return damage(data, header_spans(data), seeds, rng)


def _rewrite(data: bytes, rng: random.Random) -> bytes:
    """The file with some keys and tensors changed, well formed; itself where it is not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.gguf"
        path.write_bytes(data)
        try:
            file = read_gguf(path)
        except CheckpointError:
            return data
        entries: dict[str, Any] = {key: file.metadata.typed(key) for key in file.metadata}
        arch = str(file.metadata.get("general.architecture", "llama"))
        for _ in range(rng.choice((1, 1, 2, 3))):
            if rng.random() < 0.3 or not entries:
                entries[f"{arch}.{rng.choice(_ENDINGS)}"] = _value(rng)
            elif rng.random() < 0.3:
                del entries[rng.choice(list(entries))]
            else:
                entries[rng.choice(list(entries))] = _value(rng)
        tensors = list(file.tensors.values())
        if rng.random() < 0.3 and tensors:
            del tensors[rng.randrange(len(tensors))]
        sources = [source_of_tensor(tensor, tensor.name, tensor.codec) for tensor in tensors]
        if rng.random() < 0.1:
            name = f"blk.{rng.choice((0, 1, 7, 10**9))}.{rng.choice(('attn_q', 'y', 'ffn_down'))}"
            codec = get_codec(rng.choice(list(CODECS)))
            rows = np.zeros((1, codec.row_bytes(256)), np.uint8)
            sources.append(source_of_rows(rows, (1, 256), f"{name}.weight", codec))
        try:
            write_gguf_file(path, entries, sources)
        except CheckpointError:
            return data
        return path.read_bytes()


def _value(rng: random.Random) -> Any:
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(
            (0, 1, 2, 3, 4, 5, 64, 255, 65536, 2**31 - 1, 2**31, 2**32 - 1, -1, 2**63)
        )
    if kind < 0.5:
        return rng.choice((0.0, -1.0, 1e-45, 1e38, float("inf"), float("nan"), 0.5))
    if kind < 0.7:
        return rng.choice(_WORDS)
    if kind < 0.75:
        return rng.random() < 0.5
    if kind < 0.85:
        return [rng.choice((0, 1, 2, 4, -1, 2**31)) for _ in range(rng.randrange(1, 6))]
    if kind < 0.9:
        return [rng.choice(_WORDS) for _ in range(rng.randrange(1, 60))]
    if kind < 0.95:
        return np.array([float("nan"), 1.0, -1.0], np.float32)
    return [[1, 2], [3]]


def header_spans(data: bytes) -> list[Span]:
    """The fields of a header, as far as it can be followed; never raises for damaged bytes."""
    spans: list[Span] = []
    at = 0

    def integer(width: int) -> int:
        nonlocal at
        raw = data[at : at + width]
        if len(raw) < width:
            raise struct.error("the end")
        spans.append(Span(at, at + width, True))
        at += width
        return int.from_bytes(raw, "little")

    def skip(n_bytes: int) -> None:
        nonlocal at
        if n_bytes > len(data) - at:
            raise struct.error("the end")
        spans.append(Span(at, at + n_bytes, False))
        at += n_bytes

    def value(kind: int, depth: int) -> None:
        if kind == ValueType.STRING:
            skip(integer(8))
        elif kind == ValueType.ARRAY and depth < 6:
            inner, count = integer(4), integer(8)
            for _ in range(min(count, 200)):
                value(inner, depth + 1)
        elif kind in NUMBER_DTYPES:
            integer(NUMBER_DTYPES[ValueType(kind)].itemsize)
        else:
            raise struct.error("no such type")

    try:
        skip(4)
        integer(4)
        n_tensors, n_keys = integer(8), integer(8)
        for _ in range(min(n_keys, 200)):
            skip(integer(8))
            value(integer(4), 0)
        for _ in range(min(n_tensors, 200)):
            skip(integer(8))
            for _ in range(min(integer(4), 8)):
                integer(8)
            integer(4)
            integer(8)
    except struct.error:
        return spans
    return spans


if __name__ == "__main__":
    main(make_target, __doc__)
