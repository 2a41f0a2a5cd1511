"""Tiny random checkpoints, built on the fly, with a byte-level tokenizer.

Ids 0 to 255 are the bytes, 256 to 259 the special tokens below; rows of the vocabulary past those
are padding without a token, as real models have. Weights are a function of (seed, tensor name),
so the same seed gives the same model in every codec, container and shape of call.
"""

from __future__ import annotations

import json
import zlib
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headrace.weights.architectures import known_architecture
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.codecs import get_codec
from headrace.weights.conversion.convert import write_gguf
from headrace.weights.gguf.values import StringArray
from headrace.weights.hugging_face.forms import folder_sources
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.tensors.expert_stacks import Stacks, unstacked_folder
from headrace.weights.tensors.latent_heads import JOINED, with_split_heads
from headrace.weights.tensors.source import TensorSource
from headrace.weights.tensors.tensor import Tensor
from tests.tiny_families import tiny_family

BOS, EOS, IM_START, IM_END = 256, 257, 258, 259
SPECIAL_TOKENS = ("<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>")
NUM_TOKENS = 256 + len(SPECIAL_TOKENS)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Family = str
"""A `model_type` of tests.tiny_families."""

_NORMS = ("norm.weight", "norm_1.weight", "norm_2.weight", ".ln_1.weight", ".ln_2.weight",
          ".ln_f.weight", ".ln_attn.weight", ".ln_mlp.weight")  # fmt: skip
_KEPT = ("norm.weight", "wpe.weight", "mlp.gate.weight", "block_sparse_moe.gate.weight",
         "moe.gate.weight", "router.layer.weight", "router.weight", "router.proj.weight",
         "shared_expert_gate.weight", "gate.wg.weight", "e_score_correction_bias")  # fmt: skip
"""Matrices that GGUF files keep in F32: norms of heads, learned positions, routers."""
_TABLES = ("embed_tokens.weight", "embed_in.weight", "wte.weight", "word_embeddings.weight")


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


_SHORT = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "intermediate": "intermediate_size",
    "vocab": "vocab_size",
    "max_positions": "max_position_embeddings",
    "tied": "tie_word_embeddings",
}
"""Shorter words for keys of config.json that most families have."""


def tiny_config(family: Family = "llama", **overrides: Any) -> dict[str, Any]:
    """config.json of a tiny model. overrides: keys of it, or the shorter words of `_SHORT`."""
    named = {_SHORT.get(key, key): value for key, value in overrides.items()}
    return tiny_family(family).config(**named)


def tiny_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a model with this config."""
    return tiny_family(config["model_type"]).shapes(config)


def tiny_weights(
    config: dict[str, Any], seed: int = 0, *, logit_scale: float = 1.0
) -> dict[str, npt.NDArray[np.float32]]:
    """float32 weights by name, as a Hugging Face folder stores them.

    logit_scale: widens the logits (the table that makes them).
    """
    stored = known_architecture(config["model_type"])
    conventions = Conventions() if stored is None else stored.hf
    shapes = tiny_shapes(config)
    table = next(name for name in shapes if name.endswith(_TABLES))
    tied = "lm_head.weight" not in shapes
    spread = getattr(tiny_family(config["model_type"]), "SPREAD", {})
    weights = {}
    for name, shape in shapes.items():
        draw = np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(shape)
        if name.endswith(_NORMS):
            values = np.round(1 + 0.1 * draw, 2) - conventions.norm_offset
        elif name.endswith(".bias"):
            values = 0.1 * draw
        elif name == table:
            # Small where tied, or every token would mostly predict itself.
            values = draw * (0.25 if tied else 1.0)
        else:
            # sqrt(3) keeps attention and the MLP visible beside the residual stream.
            inputs = shape[0] if conventions.transposed and name != "lm_head.weight" else shape[-1]
            factor = next((more for end, more in spread.items() if name.endswith(end)), 1.0)
            values = draw * (3.0 / inputs) ** 0.5 * factor
        head = table if tied else "lm_head.weight"
        weights[name] = (values * (logit_scale if name == head else 1.0)).astype(np.float32)
    return weights


def to_tensor(name: str, values: npt.NDArray[np.float32], codec: str) -> Tensor:
    """An in-memory tensor; what quantised files keep in F32 stays so."""
    is_matrix = values.ndim >= 2 and not name.endswith(_KEPT)
    kind = get_codec(codec if is_matrix else "F32")
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
    layout: Literal["half", "interleaved"] | None = None,
    logit_scale: float = 1.0,
    **shape: Any,
) -> Checkpoint:
    """A checkpoint in memory. `shape`: the keywords of tiny_config. Widths are multiples of 32.

    Tensors are stored as a Hugging Face folder of the family has them; layout "interleaved" stores
    the rows of Q and K as GGUF files of the llama family do. Matrices that folders store (in, out)
    stand (out, in) in kinds with blocks, as in GGUF files.
    """
    config = tiny_config(family, **shape)
    stored = known_architecture(config["model_type"])
    conventions = Conventions() if stored is None else stored.hf
    if layout is not None:
        conventions = replace(conventions, rope_layout=layout)
    turned = conventions.transposed and get_codec(codec).block_elements > 1
    if turned:
        conventions = replace(conventions, transposed=False)
    tensors = {}
    weights = tiny_weights(config, seed, logit_scale=logit_scale)
    for name, values in weights.items():
        if layout == "interleaved":
            if ".q_proj." in name:
                values = to_interleaved(values, config["num_attention_heads"])
            elif ".k_proj." in name:
                values = to_interleaved(values, config["num_key_value_heads"])
        if turned and stored is not None and stored.in_layer(name) and values.ndim == 2:
            values = np.ascontiguousarray(values.T)
        tensors[name] = to_tensor(name, values, codec)
    if stored is not None and stored.latent and get_codec(codec).block_elements > 1:
        tensors = _split_heads(tensors, config, weights, codec)
    path = Path(f"tiny-{family}-{codec}")
    if stored is not None:
        tensors = unstacked_folder(path, tensors, stored)
    return Checkpoint(
        path=path,
        format="gguf" if layout == "interleaved" else "safetensors",
        config=config,
        conventions=conventions,
        tensors=tensors,
        tokenizer=TokenizerData(kind="gguf", gguf=gguf_tokenizer(), config=tokenizer_config()),
        chat_templates={"default": CHAT_TEMPLATE},
        eos_token_ids=(EOS, IM_END),
    )


def _split_heads(
    tensors: dict[str, Tensor],
    config: dict[str, Any],
    exact: dict[str, npt.NDArray[np.float32]],
    codec: str,
) -> dict[str, Tensor]:
    """Matrices of heads in latent attention as GGUF files have them: blocks do not turn."""
    joined = {
        name: to_tensor(name, exact[name], "F32") if name.endswith(JOINED) else tensor
        for name, tensor in tensors.items()
    }
    return {
        name: tensor if name in tensors else to_tensor(name, tensor.to_f32(), codec)
        for name, tensor in with_split_heads(joined, config)
    }


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
    sources = _folder_sources(checkpoint)
    write_safetensors_file(path / "model.safetensors", sources)
    return path


def write_tiny_gguf(
    folder: Path, family: Family = "llama", codec: str = "F32", seed: int = 0, **options: Any
) -> Path:
    """A GGUF file under `folder`, and its path. options: those of tiny_checkpoint, no layout."""
    checkpoint = tiny_checkpoint(family, "F32", seed, **options)
    vocab = checkpoint.config["vocab_size"]
    tokenizer = gguf_tokenizer(vocab)
    # An empty list has no type of its own; merges are strings.
    tokenizer["merges"] = StringArray(
        Path(), "tokenizer.ggml.merges", memoryview(b""), array("Q"), array("Q")
    )
    metadata = {
        "general.name": f"tiny {family}",
        **{f"tokenizer.ggml.{key}": value for key, value in tokenizer.items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"tiny-{family}-{codec.lower()}.gguf"
    write_gguf(checkpoint, path, codec, metadata=metadata)
    return path


def _folder_sources(checkpoint: Checkpoint) -> list[TensorSource]:
    """Tensors as folders of the family hold them: experts one by one, or all of a layer."""
    sources = []
    stored = known_architecture(checkpoint.config["model_type"])
    stacks = None if stored is None else Stacks.of_folder(stored)
    for tensor in checkpoint.tensors.values():
        source = _source(tensor.name, tensor)
        if stacks is not None and stacks.takes(tensor.name):
            stacks.add(source)
        else:
            sources.append(source)
    if stored is None or stacks is None:
        return sources
    return folder_sources(sources + stacks.sources(), stored, checkpoint.config)


def _source(name: str, tensor: Tensor) -> TensorSource:
    return TensorSource(name, tensor.shape, tensor.codec, lambda: [tensor.data])
