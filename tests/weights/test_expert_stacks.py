"""Experts in GGUF: one tensor for all of a layer, from and to one for each; GLM-4.5's words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.codecs import get_codec
from headrace.weights.conversion.convert import write_gguf, write_hf_folder
from headrace.weights.gguf.metadata import metadata_of_config
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.open import open_checkpoint
from headrace.weights.tensors.expert_stacks import MAX_EXPERTS
from headrace.weights.tensors.source import source_of_array, source_of_tensor
from headrace.weights.tensors.tensor import Tensor
from tests.tiny import (
    tiny_checkpoint,
    tiny_config,
    tiny_shapes,
    write_tiny_gguf,
)
from tests.tiny_families.glm4_moe import CASES, NOT_IN_GGUF

FAMILY = "glm4_moe"
GLM4_MOE = ARCHITECTURES[FAMILY]
EXPERT = "model.layers.1.mlp.experts.{}.down_proj.weight"


def test_names_are_gguf_py_s() -> None:
    arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == GLM4_MOE.name)
    table = gguf.get_tensor_name_map(arch, 3)
    stored = {gguf.TENSOR_NAMES[kind] for kind in gguf.MODEL_TENSORS[arch]}
    known = {pattern.format(bid=bid) for pattern in stored for bid in range(3)}
    for name in tiny_shapes(tiny_config(FAMILY)):
        place = GLM4_MOE.expert_place(name)
        if place is None:
            ours = GLM4_MOE.gguf_name(name)
            assert GLM4_MOE.canonical_name(ours) == name
            asked = name.replace("e_score_correction_bias", "e_score_correction.bias")
        else:
            ours, index = place
            names = GLM4_MOE.expert_names(ours)
            assert [part.format(index) for part in names] == [name]
            asked = name.replace(f".experts.{index}.", ".experts.")
        assert table.get_name(asked, try_suffixes=(".weight", ".bias")) == ours
        assert ours.rsplit(".", 1)[0] in known


def test_what_a_file_says_is_what_llama_cpp_s_converter_says() -> None:
    entries = metadata_of_config(tiny_config(FAMILY), GLM4_MOE).entries
    stated = {
        key.removeprefix("glm4moe."): value
        for key, value in entries.items()
        if "expert" in key or "leading" in key or "rope" in key
    }
    assert stated == {
        "expert_count": 4,
        "expert_used_count": 2,
        "expert_shared_count": 1,
        "expert_feed_forward_length": 32,
        "expert_weights_scale": 1.5,
        "expert_weights_norm": True,
        "expert_gating_func": gguf.ExpertGatingFuncType.SIGMOID,
        "expert_group_count": 1,
        "expert_group_used_count": 1,
        "leading_dense_block_count": 1,
        "rope.dimension_count": 8,
        "rope.freq_base": 10000.0,
    }
    known = set(vars(gguf.Keys.LLM).values())
    assert {f"{{arch}}.{key}" for key in stated if "rope" not in key} <= known


@pytest.mark.parametrize("case", [name for name in CASES if name not in NOT_IN_GGUF])
def test_a_folder_comes_back_from_gguf_bit_for_bit(case: str, tmp_path: Path) -> None:
    first = tiny_checkpoint(FAMILY, **CASES[case])
    middle = open_checkpoint(write_tiny_gguf(tmp_path, FAMILY, **CASES[case]))
    write_hf_folder(middle, tmp_path / "out")
    back = open_checkpoint(tmp_path / "out")
    assert set(back.tensors) == set(first.tensors)
    for name, tensor in back.tensors.items():
        assert np.array_equal(tensor.to_f32(), first.tensors[name].to_f32()), name
    told = {key: value for key, value in back.config.items() if key in first.config}
    assert told == {key: first.config[key] for key in told}
    missing = set(first.config) - set(told)
    assert not {key for key in missing if "expert" in key or "moe" in key or "first_k" in key}


def test_a_stack_is_the_experts_one_after_another(tmp_path: Path) -> None:
    """By gguf-py's reader, which knows nothing of ours."""
    first = tiny_checkpoint(FAMILY)
    path = write_tiny_gguf(tmp_path, FAMILY, "Q8_0")
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    codec = get_codec("Q8_0")
    down = stored["blk.1.ffn_down_exps.weight"]
    assert list(down.shape) == [32, 64, 4]
    expected = [codec.encode(first.tensors[EXPERT.format(index)].to_f32()) for index in range(4)]
    assert np.array_equal(np.asarray(down.data).reshape(4, 64, -1), np.stack(expected))
    kinds = {name: tensor.tensor_type.name for name, tensor in stored.items()}
    assert kinds["blk.1.ffn_gate_inp.weight"] == kinds["blk.1.exp_probs_b.bias"] == "F32"
    assert kinds["blk.1.ffn_up_exps.weight"] == kinds["blk.1.ffn_up_shexp.weight"] == "Q8_0"
    assert "blk.0.ffn_gate_inp.weight" not in stored and kinds["blk.0.ffn_up.weight"] == "Q8_0"


def test_a_stack_is_read_as_views_and_written_as_it_was(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path, FAMILY, "Q8_0")
    checkpoint = open_checkpoint(path)
    assert checkpoint.tensors[EXPERT.format(2)].data.base is not None
    write_gguf(checkpoint, tmp_path / "again.gguf", None)
    one, two = (
        {tensor.name: tensor.data.tobytes() for tensor in gguf.GGUFReader(file).tensors}
        for file in (path, tmp_path / "again.gguf")
    )
    assert one == two


def test_folders_keep_the_correction_in_f32(tmp_path: Path) -> None:
    """A rounded one would choose other experts; transformers keeps it too."""
    first = tiny_checkpoint(FAMILY)
    write_hf_folder(first, tmp_path / "out", "BF16")
    back = open_checkpoint(tmp_path / "out").tensors
    name = "model.layers.1.mlp.gate.e_score_correction_bias"
    assert np.array_equal(back[name].to_f32(), first.tensors[name].to_f32())
    assert back["model.layers.1.mlp.gate.weight"].codec.name == "BF16"


def changed(checkpoint: Checkpoint, change: Callable[[dict[str, Tensor]], None]) -> Checkpoint:
    tensors = dict(checkpoint.tensors)
    change(tensors)
    return replace(checkpoint, tensors=tensors)


def drop_one(tensors: dict[str, Tensor]) -> None:
    del tensors[EXPERT.format(1)]


def round_one(tensors: dict[str, Tensor]) -> None:
    values, kind = tensors[EXPERT.format(1)].to_f32(), get_codec("BF16")
    tensors[EXPERT.format(1)] = Tensor(EXPERT.format(1), values.shape, kind, kind.encode(values))


def shorten_one(tensors: dict[str, Tensor]) -> None:
    one = tensors[EXPERT.format(3)]
    tensors[EXPERT.format(3)] = replace(one, shape=(63, 32), data=one.data[:63])


def name_one_twice(tensors: dict[str, Tensor]) -> None:
    tensors[EXPERT.format("01")] = replace(tensors[EXPERT.format(1)], name=EXPERT.format("01"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (drop_one, r"expert 1 of GGUF's tensor 'blk\.1\.ffn_down_exps\.weight' is missing"),
        (round_one, r"experts\.1\.down_proj\.weight' is BF16 .* name a codec"),
        (shorten_one, r"experts\.3\.down_proj\.weight' is F32 \[63, 32\]"),
        (name_one_twice, r"are the same expert's"),
    ],
)
def test_experts_that_make_no_stack(
    tmp_path: Path, change: Callable[[dict[str, Tensor]], None], told: str
) -> None:
    with pytest.raises(CheckpointError, match=told):
        write_gguf(changed(tiny_checkpoint(FAMILY), change), tmp_path / "m.gguf", None)
    assert not (tmp_path / "m.gguf").exists()


def opened(
    tmp_path: Path, entries: dict[str, Any], stack: tuple[int, ...] | None = None
) -> Checkpoint:
    """A tiny file with changes to its metadata (... removes a key), and one stack of this shape."""
    source = write_tiny_gguf(tmp_path, FAMILY)
    metadata = open_checkpoint(source).metadata
    stated = {key: metadata.typed(key) for key in metadata}  # type: ignore[attr-defined]
    stated |= {f"glm4moe.{key}": value for key, value in entries.items()}
    stated = {key: value for key, value in stated.items() if value is not ...}
    tensors = []
    for tensor in gguf.GGUFReader(source).tensors:
        values = np.array(tensor.data, np.float32).reshape([int(n) for n in tensor.shape[::-1]])
        if stack is not None and tensor.name == "blk.1.ffn_up_exps.weight":
            values = np.zeros(stack, np.float32)
        tensors.append(source_of_array(values, tensor.name))
    write_gguf_file(tmp_path / "changed.gguf", stated, tensors)
    return open_checkpoint(tmp_path / "changed.gguf")


@pytest.mark.parametrize(
    ("stack", "count"), [((5, 32, 64), 4), ((128, 64), ...), ((MAX_EXPERTS + 1, 1, 1), ...)]
)
def test_stacks_that_are_none(tmp_path: Path, stack: tuple[int, ...], count: Any) -> None:
    with pytest.raises(CheckpointError, match=r"'blk\.1\.ffn_up_exps\.weight' has shape"):
        opened(tmp_path, {"expert_count": count}, stack)


def test_what_a_silent_file_means(tmp_path: Path) -> None:
    """llama.cpp then has no dense layer, leaves weights as they are, and takes a sigmoid."""
    silent = ("leading_dense_block_count", "expert_weights_norm", "expert_weights_scale",
              "expert_gating_func", "expert_group_count")  # fmt: skip
    config = opened(tmp_path, dict.fromkeys(silent, ...)).config
    assert config["first_k_dense_replace"] == 0 and config["norm_topk_prob"] is False
    assert config["routed_scaling_factor"] == 1.0
    assert not [key for key in config if key.startswith("gguf.")]


@pytest.mark.parametrize(
    ("key", "value"),
    [("expert_gating_func", 1), ("expert_group_count", 2)],
)
def test_what_nobody_here_computes_is_kept_by_name(tmp_path: Path, key: str, value: int) -> None:
    assert opened(tmp_path, {key: value}).config[f"gguf.glm4moe.{key}"] == value


@pytest.mark.parametrize(
    ("key", "value"),
    [("leading_dense_block_count", "1"), ("expert_weights_norm", 1), ("expert_count", 0),
     ("expert_count", np.array([4, 5], np.int32)), ("expert_count", "4"),
     ("nextn_predict_layers", 3), ("nextn_predict_layers", "1")],
)  # fmt: skip
def test_values_of_another_type(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(CheckpointError, match=key):
        opened(tmp_path, {key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [("n_group", 2), ("num_nextn_predict_layers", -1), ("first_k_dense_replace", 9),
     ("hidden_act", "gelu")],
)  # fmt: skip
def test_what_gguf_cannot_state_is_refused(key: str, value: Any) -> None:
    with pytest.raises(UnsupportedModelError, match=key):
        metadata_of_config(tiny_config(FAMILY, **{key: value}), GLM4_MOE)


def test_another_family_with_experts_is_a_declaration(tmp_path: Path) -> None:
    """As Mixtral names them."""
    other = replace(GLM4_MOE, experts={"ffn_up_exps": "block_sparse_moe.experts.{}.w3"})
    name = "model.layers.7.block_sparse_moe.experts.11.w3.weight"
    assert other.expert_place(name) == ("blk.7.ffn_up_exps.weight", 11)
    names = other.expert_names("blk.7.ffn_up_exps.weight")
    assert [part.format(11) for part in names] == [name]
    assert other.expert_names("blk.7.ffn_down_exps.weight") == ()
    assert other.expert_place("model.layers.7.block_sparse_moe.gate.weight") is None


def test_showing_it_reads_no_weights(tmp_path: Path) -> None:
    from headrace.cli.show import show

    path = write_tiny_gguf(tmp_path, FAMILY, "Q8_0")
    shown = CliRunner().invoke(show, [str(path), "--json", "--tensors"])
    assert shown.exit_code == 0, shown.output
    facts = msgspec.json.decode(shown.stdout)
    assert facts["config"]["n_routed_experts"] == 4
    assert facts["parameters"] == sum(
        int(np.prod(shape)) for shape in tiny_shapes(tiny_config(FAMILY)).values()
    )


def test_old_files_hold_each_expert_apart(tmp_path: Path) -> None:
    """As llama.cpp wrote Mixtral until April 2024."""
    source = open_checkpoint(write_tiny_gguf(tmp_path, "mixtral"))
    architecture = ARCHITECTURES["mixtral"]
    tensors = []
    for name, tensor in source.tensors.items():
        place = architecture.expert_place(name)
        if place is None:
            old = architecture.gguf_name(name)
        else:
            old = place[0].replace("_exps", f".{place[1]}")
        tensors.append(source_of_tensor(tensor, old, tensor.codec))
    assert "blk.0.ffn_gate.3.weight" in {item.name for item in tensors}
    entries = {key: source.metadata.typed(key) for key in source.metadata}  # type: ignore[attr-defined]
    write_gguf_file(tmp_path / "old.gguf", entries, tensors)
    old_file = open_checkpoint(tmp_path / "old.gguf")
    assert old_file.config == source.config
    assert set(old_file.tensors) == set(source.tensors)
    for name, tensor in old_file.tensors.items():
        assert np.array_equal(tensor.data, source.tensors[name].data), name


def test_files_of_llama_s_name_with_experts_are_mixtral_s(tmp_path: Path) -> None:
    file = open_checkpoint(write_tiny_gguf(tmp_path, "mixtral"))
    assert file.metadata["general.architecture"] == "llama"
    assert file.config["model_type"] == "mixtral"
    assert file.conventions.rope_layout == "interleaved"


def test_the_gate_of_a_shared_expert_is_a_vector_in_gguf(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path, "qwen2_moe", "Q8_0")
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    gate = stored["blk.1.ffn_gate_inp_shexp.weight"]
    assert (list(gate.shape), gate.tensor_type.name) == ([64], "F32")
    name = "model.layers.1.mlp.shared_expert_gate.weight"
    assert open_checkpoint(path).tensors[name].shape == (1, 64)
