"""GGUF files as checkpoints: names, config, conventions; every key kept, known or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from headrace.errors import CheckpointError, HeadraceError, UnsupportedModelError
from headrace.weights.architectures import ARCHITECTURES, architecture_of_config
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.gguf.values import Typed, ValueType
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.open import open_checkpoint
from headrace.weights.tensors.rope_rows import heads_to_half
from headrace.weights.tensors.source import source_of_array

from .builders import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    VOCAB,
    gguf_arrays,
    hf_arrays,
    write_gguf_with_library,
)


def base_metadata(arch: str = "llama") -> dict[str, Any]:
    return {
        "general.architecture": arch,
        f"{arch}.context_length": 128,
        f"{arch}.embedding_length": HIDDEN,
        f"{arch}.block_count": LAYERS,
        f"{arch}.feed_forward_length": 96,
        f"{arch}.attention.head_count": HEADS,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-6,
    }


def opened(tmp_path: Path, changes: dict[str, Any], arch: str = "llama") -> Checkpoint:
    """A file with `changes` to its metadata (... removes a key), opened."""
    entries = base_metadata(arch) | changes
    entries = {key: value for key, value in entries.items() if value is not ...}
    arrays = gguf_arrays(hf_arrays(arch), arch)
    path = tmp_path / "m.gguf"
    write_gguf_file(path, entries, [source_of_array(a, name) for name, a in arrays.items()])
    return open_checkpoint(path)


def test_a_llama_file_of_gguf_py(tmp_path: Path) -> None:
    arrays = hf_arrays(bias=True)
    path = write_gguf_with_library(
        tmp_path / "m.gguf", arrays, quantize=gguf.GGMLQuantizationType.Q8_0
    )
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "gguf" and checkpoint.path == path
    assert checkpoint.conventions.rope_layout == "interleaved"
    assert dict(checkpoint.config) == {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": 128,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "vocab_size": VOCAB,
        "tie_word_embeddings": False,
        "eos_token_id": 7,
    }
    assert set(checkpoint.tensors) == set(arrays)
    assert checkpoint.eos_token_ids == (7,)
    assert checkpoint.nbytes == sum(t.data.nbytes for t in checkpoint.tensors.values())
    embedding = checkpoint.tensors["model.embed_tokens.weight"]
    assert embedding.codec.name == "Q8_0" and embedding.shape == (VOCAB, HIDDEN)
    assert embedding.name == "model.embed_tokens.weight"


@pytest.mark.parametrize(("module", "heads"), [("q_proj", HEADS), ("k_proj", KV_HEADS)])
def test_rows_of_q_and_k_come_back_in_order(tmp_path: Path, module: str, heads: int) -> None:
    """K has its own number of heads: using Q's is the classic fault."""
    arrays = hf_arrays(bias=True)
    checkpoint = open_checkpoint(write_gguf_with_library(tmp_path / "m.gguf", arrays))
    name = f"model.layers.1.self_attn.{module}"
    stored = checkpoint.tensors[f"{name}.weight"]
    order = heads_to_half(heads, HEAD_DIM)
    assert not np.array_equal(stored.to_f32(), arrays[f"{name}.weight"])
    assert np.array_equal(stored.select_rows(order).to_f32(), arrays[f"{name}.weight"])
    bias = checkpoint.tensors[f"{name}.bias"].to_f32()
    assert np.array_equal(bias[order], arrays[f"{name}.bias"])


def test_a_qwen3_file_stores_rows_as_hugging_face_does(tmp_path: Path) -> None:
    arrays = hf_arrays("qwen3")
    del arrays["lm_head.weight"]
    checkpoint = open_checkpoint(write_gguf_with_library(tmp_path / "m.gguf", arrays, "qwen3"))
    assert checkpoint.conventions.rope_layout == "half"
    assert checkpoint.config["model_type"] == "qwen3"
    assert checkpoint.config["tie_word_embeddings"] is True
    assert set(checkpoint.tensors) == set(arrays)
    for name, values in arrays.items():
        assert np.array_equal(checkpoint.tensors[name].to_f32(), values), name


@pytest.mark.parametrize("arch", ["llama", "qwen3"])
def test_names_agree_with_gguf_py_both_ways(arch: str) -> None:
    architecture = ARCHITECTURES[arch]
    for name in hf_arrays(arch, bias=True):
        stored = architecture.gguf_name(name)
        assert stored in gguf_arrays(hf_arrays(arch, bias=True), arch)
        assert architecture.canonical_name(stored) == name
    assert architecture.canonical_name("rope_freqs.weight") == "rope_freqs.weight"
    assert architecture.gguf_name("rope_freqs.weight") == "rope_freqs.weight"


def test_unknown_names() -> None:
    llama = ARCHITECTURES["llama"]
    for name in ("blk.0.attn_sinks.weight", "blk.0.attn_q_norm.weight", "blk.x.attn_q.weight",
                 "cls.weight", "blk.0.attn_q.scale", "blk.١.attn_q.weight"):  # fmt: skip
        assert llama.canonical_name(name) == f"gguf.{name}"
    with pytest.raises(UnsupportedModelError, match=r"'model.layers.0.self_attn.q_norm.weight'"):
        llama.gguf_name("model.layers.0.self_attn.q_norm.weight")
    with pytest.raises(UnsupportedModelError, match=r"'gpt9'.*qwen3"):
        architecture_of_config("gpt9")


def test_defaults_are_llama_cpp_s(tmp_path: Path) -> None:
    config = opened(tmp_path, {"llama.attention.head_count_kv": KV_HEADS}).config
    assert config["rope_theta"] == 10000.0
    assert config["head_dim"] == HIDDEN // HEADS
    assert "rope_scaling" not in config and "partial_rotary_factor" not in config
    assert config["rms_norm_eps"] == 1e-6
    assert opened(tmp_path, {}).config["num_key_value_heads"] == HEADS


def test_head_dim_is_the_key_length_and_not_the_rotated_part(tmp_path: Path) -> None:
    config = opened(
        tmp_path,
        {"llama.attention.key_length": 32, "llama.attention.value_length": 32,
         "llama.rope.dimension_count": 16},
    ).config  # fmt: skip
    assert config["head_dim"] == 32
    assert config["partial_rotary_factor"] == 0.5


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"type": "none", "factor": 4.0}, None),
        ({"type": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        ({"factor": 2.5}, {"rope_type": "linear", "factor": 2.5}),
        ({"type": "linear", "factor": 1.0}, None),
        ({"type": "linear", "factor": 0.0}, None),
        (
            {"type": "yarn", "factor": 4.0, "original_context_length": 64},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        ),
        ({"type": "spiral"}, {"rope_type": "spiral"}),
    ],
)
def test_rope_scaling(
    tmp_path: Path, changes: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    entries = {f"llama.rope.scaling.{key}": value for key, value in changes.items()}
    assert opened(tmp_path, entries).config.get("rope_scaling") == expected


def test_old_linear_scale_key(tmp_path: Path) -> None:
    config = opened(tmp_path, {"llama.rope.scale_linear": 8.0}).config
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 8.0}


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("expert_used_count", 2, "num_experts_per_tok"),
        ("attention.sliding_window", 4096, "sliding_window"),
        ("attention.layer_norm_epsilon", 1e-5, "layer_norm_eps"),
        ("attention.causal", False, "gguf.llama.attention.causal"),
        ("rope.scaling.attn_factor", 1.5, "gguf.llama.rope.scaling.attn_factor"),
        ("final_logit_softcapping", 30.0, "gguf.llama.final_logit_softcapping"),
        ("use_parallel_residual", True, "gguf.llama.use_parallel_residual"),
        ("never.heard.of", "x", "gguf.llama.never.heard.of"),
        ("attention.sliding_window_pattern", [True, False],
         "gguf.llama.attention.sliding_window_pattern"),
    ],
)  # fmt: skip
def test_keys_that_change_results_reach_the_config(
    tmp_path: Path, key: str, value: Any, name: str
) -> None:
    config = opened(tmp_path, {f"llama.{key}": value}).config
    assert config[name] == value


def test_a_number_of_experts_makes_a_file_of_llama_s_name_a_mixtral(tmp_path: Path) -> None:
    stated = {"llama.expert_count": 8, "llama.expert_used_count": 2}
    config = opened(tmp_path, stated).config
    assert (config["num_local_experts"], config["num_experts_per_tok"]) == (8, 2)
    assert config["model_type"] == "mixtral"
    with pytest.raises(CheckpointError, match=r"'llama\.expert_used_count' is None"):
        opened(tmp_path, {"llama.expert_count": 8})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("expert_count", 0),
        ("expert_used_count", 0),
        ("attention.causal", True),
        ("use_parallel_residual", False),
        ("attention.sliding_window", 0),
        ("tensor_data_layout", "Meta AI original pth"),
        ("rope.scaling.finetuned", True),
        ("rope.scaling.attn_factor", 1.0),
    ],
)
def test_keys_that_say_nothing_do_not(tmp_path: Path, key: str, value: Any) -> None:
    plain = opened(tmp_path, {}).config
    assert opened(tmp_path, {f"llama.{key}": value}).config == plain


def test_keys_of_another_architecture_and_general_ones_are_no_config(tmp_path: Path) -> None:
    plain = opened(tmp_path, {}).config
    extra = {"general.name": "x", "quantize.imatrix.file": "y", "qwen2.expert_count": 9}
    assert opened(tmp_path, extra).config == plain


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"llama.embedding_length": ...}, "'llama.embedding_length' is None"),
        ({"llama.embedding_length": "64"}, "'llama.embedding_length' is '64'"),
        ({"llama.embedding_length": True}, "'llama.embedding_length' is True"),
        ({"llama.attention.head_count": 0}, "'llama.attention.head_count' is 0"),
        ({"llama.attention.head_count": 5}, "does not divide embedding_length 64"),
        ({"llama.attention.head_count": [4, 2]}, "differ by layer"),
        ({"llama.attention.value_length": 8}, "must equal attention.key_length 16"),
        ({"llama.attention.layer_norm_rms_epsilon": 0.0}, "is 0.0; a positive number"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "is nan"),
        ({"llama.rope.freq_base": [1.0, 2.0]}, "'llama.rope.freq_base' is array"),
        ({"llama.rope.scaling.factor": [1.0, 2.0]}, "'llama.rope.scaling.factor' is array"),
        ({"llama.rope.scaling.type": 3}, "'llama.rope.scaling.type' is 3"),
        ({"llama.block_count": 2**30}, "'llama.block_count' is 1073741824; the file has only"),
        ({"llama.vocab_size": 299}, "'llama.vocab_size' is 299; 'token_embd.weight' has 300"),
        ({"tokenizer.ggml.tokens": ["t"] * 301}, "has 301 entries .* only 300 rows"),
        ({"general.type": "adapter"}, "general.type is 'adapter'"),
        ({"general.type": ["model"]}, "'general.type' is an array"),
        ({"split.count": 3}, "one of 3 pieces .* llama-gguf-split --merge"),
        ({"general.architecture": "gpt9"}, "'gpt9'; supported: llama, .*qwen3"),
        ({"general.architecture": ...}, "general.architecture is None"),
        ({"tokenizer.chat_template": 5}, "'tokenizer.chat_template' is 5"),
    ],
)
def test_values_out_of_range_are_named(
    tmp_path: Path, changes: dict[str, Any], pattern: str
) -> None:
    with pytest.raises(HeadraceError, match=pattern) as caught:
        opened(tmp_path, changes)
    assert str(tmp_path) in str(caught.value)


def test_equal_sizes_for_every_layer_are_one_size(tmp_path: Path) -> None:
    config = opened(tmp_path, {"llama.attention.head_count_kv": [2, 2]}).config
    assert config["num_key_value_heads"] == 2


def test_quantization_version_matters_to_blocks_only(tmp_path: Path) -> None:
    assert opened(tmp_path, {"general.quantization_version": 3})
    extra = {"general.quantization_version": 3}
    path = write_gguf_with_library(
        tmp_path / "q.gguf", hf_arrays(), extra=extra, quantize=gguf.GGMLQuantizationType.Q8_0
    )
    with pytest.raises(CheckpointError, match="quantization_version is 3; supported: 2"):
        open_checkpoint(path)


def test_tokenizer_templates_ends_and_sampling(tmp_path: Path) -> None:
    checkpoint = opened(
        tmp_path,
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.tokens": ["a", "b"],
            "tokenizer.ggml.token_type": np.array([1, 3], np.int32),
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 9,
            "tokenizer.ggml.eot_token_id": 3,
            "tokenizer.ggml.eom_token_id": 9,
            "tokenizer.ggml.padding_token_id": 2**32 - 1,
            "tokenizer.chat_template": "plain",
            "tokenizer.chat_template.tool_use": "tools",
            "tokenizer.chat_templates": ["tool_use"],
            "general.sampling.temp": 0.6,
            "general.sampling.top_k": Typed(ValueType.INT32, 20),
        },
    )
    assert checkpoint.tokenizer.kind == "gguf"
    assert checkpoint.tokenizer.gguf["tokens"] == ["a", "b"]
    assert checkpoint.tokenizer.gguf["token_type"].tolist() == [1, 3]
    assert "chat_template" not in checkpoint.tokenizer.gguf
    assert checkpoint.chat_templates == {"default": "plain", "tool_use": "tools"}
    assert checkpoint.eos_token_ids == (3, 9)
    assert checkpoint.config["bos_token_id"] == 1 and "pad_token_id" not in checkpoint.config
    assert checkpoint.generation_config == {"temperature": 0.6, "top_k": 20}


def test_ids_outside_the_vocabulary_are_no_ends(tmp_path: Path) -> None:
    checkpoint = opened(
        tmp_path, {"tokenizer.ggml.eos_token_id": VOCAB, "tokenizer.ggml.eot_token_id": 2**32 - 1}
    )
    assert checkpoint.eos_token_ids == () and checkpoint.tokenizer.kind == "none"


@pytest.mark.parametrize(
    ("key", "value", "pattern"),
    [
        ("tokens", [1, 2], "'tokenizer.ggml.tokens' must be an array of strings"),
        ("merges", 5, "'tokenizer.ggml.merges' must be an array of strings"),
        ("scores", [1.0], "has 1 entries; one for each of the 2 tokens"),
        ("token_type", ["a", "b"], "must be an array of integers"),
    ],
)
def test_arrays_of_the_tokenizer_are_checked(
    tmp_path: Path, key: str, value: Any, pattern: str
) -> None:
    entries = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a", "b"]}
    with pytest.raises(CheckpointError, match=pattern):
        opened(tmp_path, entries | {f"tokenizer.ggml.{key}": value})


def test_tensors_nobody_knows_keep_their_name(tmp_path: Path) -> None:
    arrays = gguf_arrays(hf_arrays()) | {"blk.0.attn_sinks.weight": np.ones(4, np.float32)}
    path = tmp_path / "m.gguf"
    write_gguf_file(path, base_metadata(), [source_of_array(a, n) for n, a in arrays.items()])
    assert "gguf.blk.0.attn_sinks.weight" in open_checkpoint(path).tensors


def test_two_names_for_one_tensor_are_refused(tmp_path: Path) -> None:
    arrays = gguf_arrays(hf_arrays()) | {"blk.00.attn_norm.weight": np.ones(4, np.float32)}
    path = tmp_path / "m.gguf"
    write_gguf_file(path, base_metadata(), [source_of_array(a, n) for n, a in arrays.items()])
    with pytest.raises(CheckpointError, match=r"two tensors are .*'blk\.00\.attn_norm\.weight'"):
        open_checkpoint(path)
