"""Folders whose text model lies inside a larger config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import FAMILIES, load_model
from headrace.ops import make_ops
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.text_part import text_config
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.tensors.source import TensorSource
from headrace.weights.tensors.tensor import Tensor
from tests.models.cases import Session, prompt
from tests.tiny import Family, tiny_checkpoint, write_tiny_hf

OUTER = {"gemma3_text": "gemma3", "kimi_k2": "kimi_k25", "ministral3": "mistral3",
         "mistral": "mistral3"}  # fmt: skip
OLD_NAMES = {"model.": "language_model.model.", "lm_head.": "language_model.lm_head."}
NEW_NAMES = {"model.": "model.language_model."}
VISION = ("vision_tower.vision_model.post_layernorm.weight",
          "vision_tower.patch_conv.weight",
          "multi_modal_projector.mm_soft_emb_norm.weight")  # fmt: skip
# What these configs have around text_config, as published and as transformers writes them.
AROUND: dict[str, dict[str, Any]] = {
    "gemma3_text": {
        "boi_token_index": 255999, "eoi_token_index": 256000, "image_token_index": 262144,
        "initializer_range": 0.02, "mm_tokens_per_image": 256, "torch_dtype": "bfloat16",
    },
    "kimi_k2": {
        "ignore_index": -100, "media_placeholder_token_id": 163605, "dtype": "bfloat16",
        "use_unified_vision_chunk": True, "video_placeholder": "<|kimi_k25_video_placeholder|>",
    },
    "mistral": {
        "image_token_index": 10, "multimodal_projector_bias": False, "projector_hidden_act": "gelu",
        "spatial_merge_size": 2, "vision_feature_layer": -1, "torch_dtype": "bfloat16",
    },
}  # fmt: skip
AROUND["ministral3"] = AROUND["mistral"]


def source(name: str, tensor: Tensor) -> TensorSource:
    return TensorSource(name, tensor.shape, tensor.codec, lambda: [tensor.data])


def write_outer(
    folder: Path,
    names: dict[str, str],
    family: Family = "gemma3_text",
    vision: tuple[str, ...] = (),
    **outer: Any,
) -> Path:
    """A tiny model as the text part of a larger one.

    names: prefixes, old to new. vision: tensors of the other parts.
    """
    path = write_tiny_hf(folder, family)
    tensors = tiny_checkpoint(family).tensors
    sources = []
    for name, tensor in tensors.items():
        for old, new in names.items():
            if name.startswith(old):
                name = new + name.removeprefix(old)
                break
        sources.append(source(name, tensor))
    sources += [source(name, tensors["model.norm.weight"]) for name in vision]
    write_safetensors_file(path / "model.safetensors", sources)
    inner = json.loads((path / "config.json").read_text())
    config = {"model_type": OUTER[family], "text_config": inner, "eos_token_id": [257, 258]}
    (path / "config.json").write_text(json.dumps({**config, **AROUND[family], **outer}))
    return path


def logits(checkpoint: Any) -> Any:
    ops = make_ops("reference")
    return Session(load_model(checkpoint, ops), ops).feed(prompt(0)[:20])


@pytest.mark.parametrize("family", ["gemma3_text", "kimi_k2", "ministral3", "mistral"])
@pytest.mark.parametrize("names", [OLD_NAMES, NEW_NAMES, {}])
def test_the_text_part_is_the_text_model(
    tmp_path: Path, names: dict[str, str], family: Family
) -> None:
    part = open_checkpoint(write_outer(tmp_path, names, family))
    assert part.config["model_type"] == family
    assert part.conventions.norm_offset == (1.0 if family == "gemma3_text" else 0.0)
    assert (part.left_out, part.left_out_words) == ({}, "")
    assert np.array_equal(logits(part), logits(tiny_checkpoint(family)))


@pytest.mark.parametrize("family", ["gemma3_text", "mistral"])
@pytest.mark.parametrize(("names", "prefix"), [(OLD_NAMES, ""), (NEW_NAMES, "model.")])
def test_an_image_encoder_is_left_out_and_named(
    tmp_path: Path, names: dict[str, str], prefix: str, family: Family
) -> None:
    vision = tuple(prefix + name for name in VISION)
    path = write_outer(tmp_path, names, family, vision, vision_config={"hidden_size": 8})
    part = open_checkpoint(path)
    assert part.left_out == {"vision_tower": 2, "multi_modal_projector": 1}
    words = "multi_modal_projector (1 tensor), vision_tower (2 tensors)"
    assert part.left_out_words == words
    assert np.array_equal(logits(part), logits(tiny_checkpoint(family)))
    shown = CliRunner().invoke(cli, ["show", str(path)], catch_exceptions=False).stdout
    assert f"{words}; text alone is read" in shown
    facts = CliRunner().invoke(cli, ["show", str(path), "--json"], catch_exceptions=False).stdout
    assert json.loads(facts)["left_out"] == part.left_out


def test_what_kimi_puts_before_its_text_model_is_left_out(tmp_path: Path) -> None:
    vision = ("vision_tower.encoder.final_layernorm.weight", "mm_projector.pre_norm.weight")
    part = open_checkpoint(write_outer(tmp_path, OLD_NAMES, "kimi_k2", vision, vision_config={}))
    assert part.left_out == {"mm_projector": 1, "vision_tower": 1}
    assert np.array_equal(logits(part), logits(tiny_checkpoint("kimi_k2")))


def test_a_tensor_of_the_text_model_under_two_names(tmp_path: Path) -> None:
    """Half of a conversion, or two models in one folder: which of them counts is not known."""
    for names, more in ((OLD_NAMES, "model.language_model."), ({}, "language_model.model.")):
        path = write_outer(tmp_path, names, vision=(f"{more}norm.weight",))
        with pytest.raises(CheckpointError, match=f"{more}norm.weight' .* model.norm.weight;"):
            open_checkpoint(path)


def test_a_tensor_that_is_of_neither_part_still_stops_the_load(tmp_path: Path) -> None:
    path = write_outer(tmp_path, OLD_NAMES, vision=("speech_tower.conv.weight",))
    with pytest.raises(UnsupportedModelError, match=r"1 tensors are not part .* speech_tower"):
        load_model(open_checkpoint(path), make_ops("reference"))


def test_a_text_part_of_another_family_is_refused_by_its_name(tmp_path: Path) -> None:
    path = write_outer(tmp_path, {}, "mistral")
    config = json.loads((path / "config.json").read_text())
    config["text_config"]["model_type"] = "mistral4"
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match="'mistral4' is not implemented"):
        load_model(open_checkpoint(path), make_ops("reference"))


def test_what_lies_around_the_text_config_still_counts(tmp_path: Path) -> None:
    path = write_outer(tmp_path, {}, quantization_config={"quant_method": "hqq"})
    with pytest.raises(UnsupportedModelError, match="quantization_config"):
        load_model(open_checkpoint(path), make_ops("reference"))


def test_configs_as_published() -> None:
    """They leave out what is the default of the text model's class."""
    gemma_4b = {
        "model_type": "gemma3", **AROUND["gemma3_text"], "eos_token_id": [1, 106],
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152},
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
            "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
    }  # fmt: skip
    mistral_24b = {
        "model_type": "mistral3", **AROUND["mistral"],
        "vision_config": {"model_type": "pixtral", "hidden_size": 1024},
        "text_config": {
            "model_type": "mistral", "attention_dropout": 0.0, "head_dim": 128,
            "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02,
            "intermediate_size": 32768, "max_position_embeddings": 131072,
            "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
            "rms_norm_eps": 1e-05, "rope_theta": 1e9, "sliding_window": None, "use_cache": True,
            "vocab_size": 131072,
        },
    }  # fmt: skip
    ministral_8b = {
        "model_type": "mistral3", **AROUND["ministral3"],
        "vision_config": {"model_type": "pixtral", "hidden_size": 1024},
        "text_config": {
            "model_type": "ministral3", "attention_dropout": 0.0, "head_dim": 128,
            "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
            "intermediate_size": 14336, "max_position_embeddings": 262144,
            "num_attention_heads": 32, "num_hidden_layers": 34, "num_key_value_heads": 8,
            "rms_norm_eps": 1e-05, "sliding_window": None, "use_cache": True,
            "vocab_size": 131072,
            "rope_parameters": {
                "beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1,
                "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384,
                "rope_theta": 1000000.0, "rope_type": "yarn", "type": "yarn",
            },
        },
    }  # fmt: skip
    found = []
    for stated in (gemma_4b, mistral_24b, ministral_8b):
        reader = ConfigReader(text_config(stated))
        config = FAMILIES[str(reader.raw("model_type"))].read_config(reader)
        reader.finish()
        shape = config.attention
        found.append((config.num_layers, shape.num_heads, shape.num_kv_heads, shape.head_dim))
    assert found == [(34, 8, 4, 256), (40, 32, 8, 128), (34, 32, 8, 128)]


def test_a_chat_template_in_a_file_of_its_own_is_read(tmp_path: Path) -> None:
    """chat_template.json, where older folders of models that read images have it."""
    path = write_outer(tmp_path, OLD_NAMES, "mistral")
    config = json.loads((path / "tokenizer_config.json").read_text())
    own = config.pop("chat_template")
    (path / "chat_template.json").write_text('{"chat_template": "T"}')
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    assert open_checkpoint(path).chat_templates == {"default": "T"}
    (path / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": own}))
    assert open_checkpoint(path).chat_templates == {"default": own}
