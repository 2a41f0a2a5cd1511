"""Models whose layers differ (`block_configs`): the published config, files, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import DecoderConfig, load_model, read_config
from headrace.models.layer_cache import LayerKV
from headrace.ops.interface import Ops
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.conversion.convert import write_hf_folder
from headrace.weights.gguf.metadata import metadata_of_config
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.model_config.block_configs import multiplier_of, width_of
from headrace.weights.open import open_checkpoint
from headrace.weights.tensors.source import source_of_tensor
from tests.models.cases import CASES, Session, prompt
from tests.tiny import tiny_checkpoint, tiny_config, write_tiny_gguf
from tests.tiny_families.nemotron_nas import BLOCKS, block

FAMILY = "nemotron-nas"


def read(config: dict[str, Any]) -> DecoderConfig:
    return read_config(
        Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
    )


def test_the_published_config_is_read(shared_assets: Path) -> None:
    folder = shared_assets / "model-configs" / "hf-config"
    path = folder / "nvidia--Llama-3_3-Nemotron-Super-49B-v1_config.json"
    stated = json.loads(path.read_text(encoding="utf-8"))
    config = read(stated)
    assert (config.num_layers, config.hidden_size, config.max_positions) == (80, 8192, 131072)
    shape = config.attention
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim) == (64, 8, 128)
    assert sum(config.attends) == 49
    assert [kept is not None for kept in config.layer_caches] == list(config.attends)
    counted = {width: config.mlp_widths.count(width) for width in set(config.mlp_widths)}
    assert counted == {28672: 49, 14336: 6, 7168: 10, 5632: 8, 2816: 6, 17920: 1}
    entries = metadata_of_config(stated, ARCHITECTURES[FAMILY]).entries
    assert entries["deci.feed_forward_length"] == list(config.mlp_widths)
    assert entries["deci.attention.head_count"] == [64 * attends for attends in config.attends]
    assert entries["deci.attention.head_count_kv"] == [8 * attends for attends in config.attends]


def test_a_layer_without_attention_keeps_nothing() -> None:
    config = read(tiny_config(FAMILY))
    assert config.layer_caches == (LayerKV(2, 16), None, LayerKV(2, 16))


def test_a_layer_without_attention_reads_no_cache(reference: Ops) -> None:
    model = load_model(tiny_checkpoint(FAMILY), reference)
    cost = model.cost(model.cache_layout.spec(1, 1, "f32", "f32"))
    longer, shorter = (cost.of([(start, 1, True)]).bytes for start in (11, 10))
    # K and V of one more position in two layers of the three.
    assert longer - shorter == 2 * 2 * (2 * 16) * 4


@pytest.mark.parametrize(
    ("width", "hidden"), [(256, 64), (512, 64), (28672, 8192), (5632, 8192), (53248, 16384)]
)
def test_a_multiplier_gives_its_width(width: int, hidden: int) -> None:
    assert width_of(float(np.float32(multiplier_of(width, hidden))), hidden) == width


def changed(part: str, **keys: Any) -> dict[str, Any]:
    """A config whose second block says this."""
    other = {**BLOCKS[1], part: {**BLOCKS[1][part], **keys}}
    return {"block_configs": [BLOCKS[0], other, BLOCKS[2]]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"block_configs": BLOCKS[:2]}, "block_configs = "),
        ({"block_configs": None}, "block_configs = None"),
        ({"block_configs": [BLOCKS[0], 7, BLOCKS[2]]}, r"block_configs\.1\.attention = 7"),
        ({"block_configs": [block(3, 1.0)] * 3}, "n_heads_in_group that divide 4"),
        ({"block_configs": [block(None, 1.0)] * 3}, "n_heads_in_group that divide 4"),
        (changed("attention", replace_with_linear=True), r"1\.attention\.replace_with_linear"),
        (changed("ffn", replace_with_linear=True), r"block_configs\.1\.ffn\.replace_with_linear"),
        (
            changed("attention", window_length=64),
            r"1\.attention\.window_length = 64",
        ),
        (changed("attention", num_sink_tokens=4), r"1\.attention\.num_sink_tokens = 4"),
        (changed("attention", unshifted_sink=True), r"1\.attention\.unshifted_sink = True"),
        (changed("attention", no_op=False), r"1\.attention\.n_heads_in_group is missing"),
        (changed("ffn", sparsify=["x"]), r"1\.ffn\.sparsify"),
        (changed("ffn", ffn_mult=0), r"1\.ffn\.ffn_mult is 0"),
        (changed("ffn", ffn_mult=1e30), r"1\.ffn\.ffn_mult = 1e\+30"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"hidden_size": 68}, "hidden_size = 68"),
    ],
)
def test_what_is_not_implemented_stops_the_load(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config(FAMILY), **change})


def test_a_tensor_of_a_part_that_a_layer_lacks_stops_the_load(reference: Ops) -> None:
    checkpoint = tiny_checkpoint(FAMILY)
    extra = checkpoint.tensors["model.layers.0.self_attn.q_proj.weight"]
    name = "model.layers.1.self_attn.q_proj.weight"
    tensors = {**checkpoint.tensors, name: replace(extra, name=name)}
    with pytest.raises(UnsupportedModelError, match=name):
        load_model(replace(checkpoint, tensors=tensors), reference)


def test_a_folder_of_a_file_has_its_blocks(tmp_path: Path, reference: Ops) -> None:
    shape = CASES["nemotron-nas-no-mlp"].shape
    file = open_checkpoint(write_tiny_gguf(tmp_path, FAMILY, **shape))
    write_hf_folder(file, tmp_path / "out")
    folder = open_checkpoint(tmp_path / "out")
    first = tiny_checkpoint(FAMILY, **shape)
    configs = [read_config(item) for item in (first, file, folder)]
    assert {config.mlp_widths for config in configs} == {(256, 0, 0, 256)}
    assert {config.attends for config in configs} == {(True, True, False, True)}
    logits = [
        Session(load_model(item, reference), reference).feed(prompt(0)[:20])
        for item in (first, file, folder)
    ]
    assert np.array_equal(logits[0], logits[1]) and np.array_equal(logits[1], logits[2])


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("attention.head_count", [4, 4, 4], "heads of K and V to them"),
        ("attention.head_count", [4, 0, 3], "0 or 4"),
        ("attention.head_count", [4, 0], "3 whole numbers"),
        ("attention.head_count_kv", [3, 0, 3], "a divisor of 4"),
        ("feed_forward_length", [512, 100, 512], "a multiple of 256"),
        ("feed_forward_length", [512, -256, 512], "3 whole numbers"),
    ],
)
def test_numbers_of_a_gguf_file_that_are_none(
    key: str, value: list[int], words: str, tmp_path: Path
) -> None:
    """Heads of Q without any of K and V are a matrix in the place of attention."""
    file = open_checkpoint(write_tiny_gguf(tmp_path, FAMILY))
    entries = {name: file.metadata.typed(name) for name in file.metadata}  # type: ignore[attr-defined]
    names = ARCHITECTURES[FAMILY]
    tensors = [source_of_tensor(t, names.gguf_name(n), t.codec) for n, t in file.tensors.items()]
    write_gguf_file(tmp_path / "other.gguf", {**entries, f"deci.{key}": value}, tensors)
    with pytest.raises(CheckpointError, match=words):
        open_checkpoint(tmp_path / "other.gguf")
