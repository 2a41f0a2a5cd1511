"""The text of Qwen3-VL: published configs, axes of positions, stacks of experts, and its files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import DecoderConfig, Model, load_model, read_config
from headrace.ops.experts import Routing
from headrace.ops.interface import Ops
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.gguf.metadata import metadata_of_config
from headrace.weights.model_config.text_part import text_config
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.file import read_safetensors
from tests.models.cases import CASES, Session, prompt
from tests.models.make_goldens import COLUMN_STEP
from tests.models.test_parity import golden
from tests.models.whole_folders import write_whole
from tests.tiny import tiny_checkpoint, tiny_config, write_tiny_hf
from tests.tiny_families import tiny_family

DENSE, EXPERTS = "qwen3_vl_text", "qwen3_vl_moe_text"


def read(config: dict[str, Any]) -> DecoderConfig:
    stated = text_config(config)
    return read_config(
        Checkpoint(Path("x"), "safetensors", stated, Conventions(), {}, TokenizerData("none"))
    )


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "heads", "tied", "routing"),
    [
        ("2B-Instruct", 28, 2048, (16, 8), True, None),
        ("4B-Instruct", 36, 2560, (32, 8), True, None),
        ("8B-Instruct", 36, 4096, (32, 8), False, None),
        ("32B-Instruct", 64, 5120, (64, 8), False, None),
        ("32B-Thinking", 64, 5120, (64, 8), False, None),
        ("30B-A3B-Instruct", 48, 2048, (32, 4), False, Routing(128, 8, "softmax", True)),
        ("235B-A22B-Instruct", 94, 4096, (64, 4), False, Routing(128, 8, "softmax", True)),
    ],
)
def test_published_configs_are_read(
    shared_assets: Path, name: str, layers: int, hidden: int, heads: tuple[int, int], tied: bool,
    routing: Routing | None,
) -> None:  # fmt: skip
    path = shared_assets / "model-configs" / "hf-config" / f"Qwen--Qwen3-VL-{name}_config.json"
    stated = json.loads(path.read_text(encoding="utf-8"))
    config = read(stated)
    assert (config.num_layers, config.hidden_size, config.max_positions) == (layers, hidden, 262144)
    shape = config.attention
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim) == (*heads, 128)
    assert config.tied is tied
    assert (config.experts.routing if config.experts else None) == routing
    assert config.rope is not None and config.rope.theta == 5e6
    text = text_config(stated)
    entries = metadata_of_config(text, ARCHITECTURES[text["model_type"]]).entries
    arch = "qwen3vl" if routing is None else "qwen3vlmoe"
    assert entries[f"{arch}.rope.dimension_sections"] == [24, 20, 20, 0]


def test_axes_of_positions_change_no_text() -> None:
    """Goldens of these cases are transformers', which computes the axes one by one."""
    config = tiny_config(DENSE)
    stated = CASES["qwen3-vl"].shape["rope_scaling"]
    for axes in (stated, {**stated, "mrope_section": [2, 7, 7], "mrope_interleaved": False}):
        assert read({**config, "rope_scaling": axes}) == read(config)


@pytest.mark.parametrize(
    ("family", "change", "words"),
    [
        (DENSE, {"rope_scaling": {"mrope_section": "8"}}, r"rope_scaling\.mrope_section = '8'"),
        (DENSE, {"rope_scaling": {"mrope_section": [4, -1, 5]}}, "mrope_section"),
        (DENSE, {"rope_scaling": {"mrope_section": [[1], 1.5]}}, "mrope_section"),
        (DENSE, {"rope_scaling": {"mrope_interleaved": "yes"}}, "mrope_interleaved is 'yes'"),
        (DENSE, {"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        (DENSE, {"deepstack_layers": 3}, "deepstack_layers = 3"),
        (EXPERTS, {"norm_topk_prob": False}, "norm_topk_prob = False"),
        (EXPERTS, {"num_experts": 1 << 30}, "num_experts = 1073741824"),
        (EXPERTS, {"shared_expert_intermediate_size": 8}, "shared_expert_intermediate_size = 8"),
    ],
)
def test_what_is_not_implemented_stops_the_load(
    family: str, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config(family), **change})


def test_silence_means_what_transformers_means() -> None:
    sizes = {
        "hidden_size": 2048, "intermediate_size": 96, "num_attention_heads": 32,
        "num_hidden_layers": 3,
    }  # fmt: skip
    dense, experts = (read({"model_type": name, **sizes}) for name in (DENSE, EXPERTS))
    assert (dense.attention.num_kv_heads, dense.attention.head_dim) == (32, 128)
    assert (experts.attention.num_kv_heads, experts.attention.head_dim) == (16, 64)
    assert dense.max_positions == experts.max_positions == 128000
    assert dense.rope == experts.rope and dense.rope is not None and dense.rope.theta == 5e5
    assert experts.experts is not None
    assert experts.experts.routing == Routing(60, 4, "softmax", True)


def far_from_the_golden(name: str, model: Model, ops: Ops) -> bool:
    expected = golden(name)
    ids = prompt(int(expected["seed"])) + expected["greedy"].tolist()[:-1]
    logits = Session(model, ops).feed(ids)[:, ::COLUMN_STEP]
    return bool(np.abs(logits - expected["logits"]).max() > 0.01 * float(expected["scale"]))


def test_rows_of_gate_and_up_are_joined(reference: Ops) -> None:
    """A reader that took them in turn, as gpt-oss has them, would be far off."""
    seed = int(golden("qwen3-vl-moe")["seed"])
    checkpoint = tiny_checkpoint(EXPERTS, seed=seed, **CASES["qwen3-vl-moe"].shape)
    tensors = dict(checkpoint.tensors)
    for name, gate in checkpoint.tensors.items():
        if not name.endswith("gate_proj.weight"):
            continue
        up = checkpoint.tensors[name.replace("gate_proj", "up_proj")]
        joined = np.concatenate([gate.data, up.data])
        tensors[name] = replace(gate, data=np.ascontiguousarray(joined[::2]))
        tensors[up.name] = replace(up, data=np.ascontiguousarray(joined[1::2]))
    changed = load_model(replace(checkpoint, tensors=tensors), reference)
    assert far_from_the_golden("qwen3-vl-moe", changed, reference)


def test_a_folder_s_stacks_are_turned(tmp_path: Path) -> None:
    """The published form, written from single experts and read again."""
    folder = write_tiny_hf(tmp_path, EXPERTS)
    stored = read_safetensors(folder / "model.safetensors").tensors
    at = "model.layers.1.mlp.experts"
    assert stored[f"{at}.gate_up_proj"].shape == (8, 64, 192)
    assert stored[f"{at}.down_proj"].shape == (8, 96, 64)
    first = tiny_checkpoint(EXPERTS).tensors
    gate_up = stored[f"{at}.gate_up_proj"].to_f32()
    for place, part in enumerate(("gate_proj", "up_proj")):
        expected = first[f"{at}.5.{part}.weight"].to_f32().T
        assert np.array_equal(gate_up[5, :, 96 * place : 96 * (place + 1)], expected)
    back = open_checkpoint(folder).tensors
    assert set(back) == set(first)
    assert all(np.array_equal(back[name].to_f32(), first[name].to_f32()) for name in first)


@pytest.mark.parametrize("family", [DENSE, EXPERTS])
def test_a_whole_folder_is_its_text_and_names_what_is_left_out(
    family: str, tmp_path: Path, reference: Ops
) -> None:
    outer = tiny_family(family).OUTER  # type: ignore[attr-defined]
    path = write_whole(tmp_path, family, 0, outer, {"visual.patch_embed.proj.weight": (2, 3)})
    whole = open_checkpoint(path)
    assert whole.config["model_type"] == family
    assert whole.left_out == {"visual": 1}
    models = [load_model(item, reference) for item in (whole, tiny_checkpoint(family))]
    one, other = (Session(model, reference).feed(prompt(0)[:20]) for model in models)
    assert np.array_equal(one, other)


def test_the_outer_config_says_whether_lm_head_is_tied() -> None:
    """transformers 5 writes its class's default into text_config, and goes by the outer one."""
    whole = {"model_type": "qwen3_vl", "tie_word_embeddings": False}
    text = {**tiny_config(DENSE), "tie_word_embeddings": True}
    assert read({**whole, "text_config": text}).tied is False


@pytest.mark.parametrize("shares", [None, [24, 20], 24, [24.0, 20.0, 20.0]])
def test_axes_of_a_gguf_file_are_checked(shares: Any, tmp_path: Path) -> None:
    from headrace.weights.gguf.writer import write_gguf_file
    from headrace.weights.tensors.source import source_of_tensor
    from tests.tiny import write_tiny_gguf

    file = open_checkpoint(write_tiny_gguf(tmp_path, DENSE))
    key = "qwen3vl.rope.dimension_sections"
    entries = {name: file.metadata.typed(name) for name in file.metadata}  # type: ignore[attr-defined]
    del entries[key]
    if shares is not None:
        entries[key] = shares
    names = ARCHITECTURES[DENSE]
    tensors = [source_of_tensor(t, names.gguf_name(n), t.codec) for n, t in file.tensors.items()]
    write_gguf_file(tmp_path / "other.gguf", entries, tensors)
    with pytest.raises(CheckpointError, match=key):
        open_checkpoint(tmp_path / "other.gguf")
