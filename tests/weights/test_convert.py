"""Conversion both ways: the same tensors bit for bit, nothing lost, nothing silently changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest

from headrace.errors import CheckpointError, HeadraceError, UnsupportedModelError
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.codecs import get_codec
from headrace.weights.conversion.convert import convert_to_gguf, write_gguf, write_hf_folder
from headrace.weights.open import open_checkpoint
from headrace.weights.tensors.rope_rows import heads_to_half

from .builders import (
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    byte_tokenizer,
    gguf_arrays,
    hf_arrays,
    hf_config,
    write_gguf_with_library,
    write_hf,
    write_json,
)

INFORMATIONAL = ("architectures", "hidden_act", "torch_dtype")


def half_order(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """All values as Hugging Face orders them, by the checkpoint's own conventions."""
    out = {}
    for name, tensor in checkpoint.tensors.items():
        values = tensor.to_f32()
        for module, heads in (("q_proj", HEADS), ("k_proj", KV_HEADS)):
            if f".{module}." in name and checkpoint.conventions.rope_layout == "interleaved":
                values = values[heads_to_half(heads, HEAD_DIM)]
        out[name] = values
    return out


@pytest.mark.parametrize("model_type", ["llama", "qwen3"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_to_gguf_and_back_is_the_same_bit_for_bit(
    tmp_path: Path, model_type: str, dtype: Any
) -> None:
    arrays = hf_arrays(model_type, bias=True)
    stored = {name: values.astype(dtype) for name, values in arrays.items()}
    folder = write_hf(tmp_path / "in", stored, hf_config(model_type), byte_tokenizer())
    result = convert_to_gguf(folder, tmp_path / "m.gguf", codec=None)
    assert result.notes == () and result.nbytes == (tmp_path / "m.gguf").stat().st_size
    middle = open_checkpoint(tmp_path / "m.gguf")
    expected = {name: values.astype(np.float32) for name, values in stored.items()}
    for name, values in half_order(middle).items():
        assert np.array_equal(values, expected[name]), name
        kind = {2: middle.tensors[name].codec.name, 4: "F32"}[np.dtype(dtype).itemsize]
        assert middle.tensors[name].codec.name == ("F32" if values.ndim == 1 else kind)
    config = hf_config(model_type)
    for key, value in config.items():
        if key not in INFORMATIONAL:
            assert middle.config[key] == value, key
    assert "attention_bias" not in middle.config, "what the file holds says it"
    assert not any(key.startswith("gguf.") for key in middle.config)
    result = write_hf_folder(middle, tmp_path / "out", tokenizer_json=json.dumps(byte_tokenizer()))
    assert result.notes == ()
    back = open_checkpoint(tmp_path / "out")
    assert set(back.tensors) == set(arrays)
    assert back.config["attention_bias"] is True and not back.config.get("mlp_bias")
    for name, values in half_order(back).items():
        assert np.array_equal(values, expected[name]), name
    assert back.eos_token_ids == middle.eos_token_ids == (1,)
    assert back.chat_templates == middle.chat_templates == open_checkpoint(folder).chat_templates


@pytest.mark.parametrize("arch", ["llama", "qwen3"])
def test_the_file_is_what_gguf_py_s_names_and_formulas_give(tmp_path: Path, arch: str) -> None:
    arrays = hf_arrays(arch)
    folder = write_hf(tmp_path, arrays, hf_config(arch), byte_tokenizer())
    convert_to_gguf(folder, tmp_path / "m.gguf", "Q8_0")
    library = gguf.GGUFReader(tmp_path / "m.gguf")
    expected = gguf_arrays(arrays, arch)
    assert {tensor.name for tensor in library.tensors} == set(expected)
    for tensor in library.tensors:
        values = expected[tensor.name]
        if values.ndim == 1:
            assert tensor.tensor_type is gguf.GGMLQuantizationType.F32
            assert np.array_equal(tensor.data, values)
        else:
            assert tensor.tensor_type is gguf.GGMLQuantizationType.Q8_0
            quantized = gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0)
            assert np.array_equal(tensor.data, quantized)
    fields = {key: field.contents() for key, field in library.fields.items()}
    assert fields["general.architecture"] == arch
    assert fields["general.type"] == "model"
    assert fields["general.file_type"] == gguf.LlamaFileType.MOSTLY_Q8_0
    assert fields[f"{arch}.attention.head_count_kv"] == KV_HEADS
    assert fields[f"{arch}.attention.key_length"] == HEAD_DIM
    assert fields[f"{arch}.rope.freq_base"] == 500000.0
    assert fields["tokenizer.ggml.model"] == "gpt2"
    assert fields["tokenizer.ggml.pre"] == "gpt-2"
    assert fields["tokenizer.ggml.eos_token_id"] == 1
    assert fields["tokenizer.chat_template"] == "{{ messages[0]['content'] }}"
    assert len(fields["tokenizer.ggml.tokens"]) == 300


def test_rows_that_are_no_whole_blocks_become_f16_with_a_note(tmp_path: Path) -> None:
    arrays = hf_arrays()
    down = "model.layers.0.mlp.down_proj.weight"
    arrays[down] = arrays[down][:, :81].copy()
    folder = write_hf(tmp_path, arrays, hf_config(), byte_tokenizer())
    result = convert_to_gguf(folder, tmp_path / "m.gguf", "Q8_0")
    assert result.notes == (f"{down} is F16: its rows of 81 are not whole blocks of 32 for Q8_0",)
    assert result.codecs == {"Q8_0": 15, "F16": 1, "F32": 5}
    tensor = open_checkpoint(tmp_path / "m.gguf").tensors[down]
    assert np.array_equal(tensor.to_f32(), arrays[down].astype(np.float16).astype(np.float32))


def test_metadata_is_added_and_wins(tmp_path: Path) -> None:
    folder = write_hf(tmp_path, hf_arrays(), hf_config(), byte_tokenizer())
    extra = {"general.name": "mine", "general.license": "apache-2.0", "x.y": [1, 2]}
    convert_to_gguf(folder, tmp_path / "m.gguf", "BF16", metadata=extra)
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    assert checkpoint.metadata["general.name"] == "mine"
    assert checkpoint.metadata["x.y"].tolist() == [1, 2]
    assert checkpoint.metadata["general.file_type"] == 32


def test_gguf_to_gguf_keeps_all_metadata_and_rows(tmp_path: Path) -> None:
    path = write_gguf_with_library(
        tmp_path / "a.gguf", hf_arrays(), extra={"llama.made_up": 3, "other.key": "x"}
    )
    source = open_checkpoint(path)
    result = write_gguf(source, tmp_path / "b.gguf", "Q8_0")
    copy = open_checkpoint(result.path)
    changed = {"general.file_type", "general.quantization_version"}
    assert set(source.metadata) | changed == set(copy.metadata)
    for key in set(source.metadata) - changed:
        assert source.metadata.typed(key).type == copy.metadata.typed(key).type
        same = source.metadata[key] == copy.metadata[key]
        assert np.all(same)
    assert copy.config["gguf.llama.made_up"] == 3
    codec = get_codec("Q8_0")
    for name, tensor in source.tensors.items():
        expected = tensor.to_f32()
        if expected.ndim == 2:
            expected = codec.decode(codec.encode(expected))
        assert np.array_equal(copy.tensors[name].to_f32(), expected)


def test_q8_0_to_hugging_face_is_exact_f32(tmp_path: Path) -> None:
    path = write_gguf_with_library(
        tmp_path / "a.gguf", hf_arrays(), quantize=gguf.GGMLQuantizationType.Q8_0
    )
    source = open_checkpoint(path)
    result = write_hf_folder(source, tmp_path / "out")
    assert result.codecs == {"F32": 21}
    assert result.notes == ("no tokenizer.json was given, so the folder has none",)
    back = half_order(open_checkpoint(tmp_path / "out"))
    for name, values in half_order(source).items():
        assert np.array_equal(back[name], values)


def test_tied_embeddings_both_ways(tmp_path: Path) -> None:
    arrays = hf_arrays()
    config = hf_config(tie_word_embeddings=True)
    folder = write_hf(tmp_path / "in", arrays, config, byte_tokenizer())
    result = convert_to_gguf(folder, tmp_path / "m.gguf", None)
    assert "ties it to the embedding" in result.notes[0]
    middle = open_checkpoint(tmp_path / "m.gguf")
    assert middle.config["tie_word_embeddings"] is True
    assert "lm_head.weight" not in middle.tensors
    write_hf_folder(middle, tmp_path / "out")
    assert open_checkpoint(tmp_path / "out").config["tie_word_embeddings"] is True


def test_derived_tables_of_old_folders_are_left_out(tmp_path: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    arrays = hf_arrays() | {name: np.ones(8, np.float32)}
    folder = write_hf(tmp_path, arrays, hf_config(), byte_tokenizer())
    notes = convert_to_gguf(folder, tmp_path / "m.gguf", None).notes
    assert notes == (f"{name} was left out: it follows from the config",)


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"model_type": "gpt9"}, "model_type is 'gpt9'; .* qwen3"),
        ({"hidden_act": "gelu"}, "'hidden_act' is 'gelu'"),
        ({"sliding_window": 4096}, "'sliding_window' is 4096"),
        ({"use_sliding_window": True}, "'use_sliding_window' is True"),
        ({"num_local_experts": 8}, "'num_local_experts' is 8"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        ({"layer_types": ["sliding_attention"]}, "'layer_types'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config = "),
        ({"attention_multiplier": 0.1}, "'attention_multiplier' is 0.1"),
        ({"use_rope": False}, "'use_rope' is False"),
        ({"pretraining_tp": 2}, "'pretraining_tp' is 2"),
        ({"max_window_layers": 1, "use_sliding_window": True}, "'use_sliding_window' is True"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, "rope of kind dynamic cannot"),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": False}},
            "yarn with truncate false",
        ),
        ({"rope_scaling": {"rope_type": "spiral"}}, "rope_type = 'spiral'"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling.factor is missing"),
        ({"rope_scaling": 5}, "must be an object or null"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "mscale": 1}}, "mscale' is 1"),
        ({"rope_scaling": {"type": "default", "factor": 2.0}}, "factor' is 2.0"),
        ({"rope_scaling": {"type": "default", "partial_rotary_factor": 0.5}}, "factor = 0.5"),
        ({"rope_parameters": {"rope_theta": 1.0}}, "states rope_theta more than once"),
        (
            {
                "rope_parameters": {"rope_type": "default"},
                "rope_scaling": {"type": "linear", "factor": 2.0},
            },
            "contradict each other",
        ),
        ({"hidden_size": ...}, "hidden_size is missing"),
        ({"rms_norm_eps": "x"}, "rms_norm_eps is 'x'"),
        ({"num_attention_heads": 5, "head_dim": ...}, "does not divide hidden_size 64"),
        ({"num_key_value_heads": 4}, "'model.layers.0.self_attn.k_proj.weight' has 32 rows; 4"),
        ({"vocab_size": 299}, "vocab_size is 299 but model.embed_tokens.weight has 300"),
    ],
)
def test_configs_gguf_cannot_state_are_refused(
    tmp_path: Path, changes: dict[str, Any], pattern: str
) -> None:
    folder = write_hf(tmp_path, hf_arrays(), hf_config(**changes), byte_tokenizer())
    with pytest.raises(HeadraceError, match=pattern):
        convert_to_gguf(folder, tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


def test_values_qwen3_configs_carry_without_meaning_are_known(tmp_path: Path) -> None:
    config = hf_config(
        "qwen3", sliding_window=None, use_sliding_window=False, max_window_layers=28,
        use_cache=True, attention_dropout=0.0, layer_types=["full_attention"] * 2,
        transformers_version="5.0", rope_scaling=None, bos_token_id=1,
    )  # fmt: skip
    folder = write_hf(tmp_path, hf_arrays("qwen3"), config, byte_tokenizer())
    assert convert_to_gguf(folder, tmp_path / "m.gguf").codecs["Q8_0"] == 16


def test_named_templates_sampling_and_ends(tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "in", hf_arrays(), hf_config(eos_token_id=[0, 1]))
    write_json(folder / "tokenizer.json", byte_tokenizer())
    templates = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    write_json(
        folder / "tokenizer_config.json", {"eos_token": "<|turn|>", "chat_template": templates}
    )
    write_json(folder / "generation_config.json", {"temperature": 0.6, "top_k": 20, "top_p": 0.95})
    convert_to_gguf(folder, tmp_path / "m.gguf")
    middle = open_checkpoint(tmp_path / "m.gguf")
    assert middle.metadata["tokenizer.ggml.eos_token_id"] == 1
    assert middle.metadata["tokenizer.ggml.eot_token_id"] == 0
    assert middle.eos_token_ids == (0, 1)
    assert middle.chat_templates == {"default": "d", "tool_use": "t"}
    assert middle.generation_config == {"temperature": 0.6, "top_k": 20, "top_p": 0.95}
    write_hf_folder(middle, tmp_path / "out")
    back = open_checkpoint(tmp_path / "out")
    assert back.chat_templates == middle.chat_templates
    assert back.eos_token_ids == (0, 1)
    assert back.generation_config["top_k"] == 20
    assert back.tokenizer.config["eos_token"] == "<|turn|>"


def test_another_name_of_silu_is_written(tmp_path: Path) -> None:
    folder = write_hf(tmp_path, hf_arrays(), hf_config(hidden_act="swish"), byte_tokenizer())
    convert_to_gguf(folder, tmp_path / "m.gguf")
    assert "hidden_act" not in open_checkpoint(tmp_path / "m.gguf").config


def test_biases_of_some_projections_stay_in_gguf(tmp_path: Path) -> None:
    arrays = {name: a for name, a in hf_arrays(bias=True).items() if "o_proj.bias" not in name}
    middle = open_checkpoint(write_gguf_with_library(tmp_path / "a.gguf", arrays))
    assert "attention_bias" not in middle.config
    write_gguf(middle, tmp_path / "b.gguf", "BF16")
    assert set(open_checkpoint(tmp_path / "b.gguf").tensors) == set(arrays)
    with pytest.raises(UnsupportedModelError, match=r"'model.layers.0.self_attn.o_proj.bias' is"):
        write_hf_folder(middle, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_bias_the_config_denies_is_not_written(tmp_path: Path) -> None:
    config = hf_config(attention_bias=False)
    folder = write_hf(tmp_path, hf_arrays(bias=True), config, byte_tokenizer())
    with pytest.raises(
        CheckpointError, match=r"attention_bias is false but .*self_attn.k_proj.bias"
    ):
        convert_to_gguf(folder, tmp_path / "m.gguf")


def test_tensors_that_follow_from_the_config_are_left_out(tmp_path: Path) -> None:
    derived = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}
    folder = write_hf(tmp_path, hf_arrays() | derived, hf_config(), byte_tokenizer())
    result = convert_to_gguf(folder, tmp_path / "m.gguf")
    assert [note for note in result.notes if "inv_freq was left out" in note]


def test_unknown_keys_and_tensors_do_not_reach_a_hugging_face_folder(tmp_path: Path) -> None:
    path = write_gguf_with_library(tmp_path / "a.gguf", hf_arrays(), extra={"llama.made_up": 3})
    with pytest.raises(UnsupportedModelError, match=r"'gguf.llama.made_up' has no name"):
        write_hf_folder(open_checkpoint(path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_value_the_codec_refuses_names_the_tensor(tmp_path: Path) -> None:
    arrays = hf_arrays()
    arrays["model.layers.1.mlp.up_proj.weight"][3, 4] = np.nan
    folder = write_hf(tmp_path, arrays, hf_config(), byte_tokenizer())
    with pytest.raises(CheckpointError, match=r"'model.layers.1.mlp.up_proj.weight': a block"):
        convert_to_gguf(folder, tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


def test_a_folder_without_tokenizer_is_noted(tmp_path: Path) -> None:
    folder = write_hf(tmp_path, hf_arrays(), hf_config())
    result = convert_to_gguf(folder, tmp_path / "m.gguf")
    assert "no tokenizer.json" in result.notes[0]
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    assert checkpoint.tokenizer.kind == "none" and checkpoint.eos_token_ids == (1,)
