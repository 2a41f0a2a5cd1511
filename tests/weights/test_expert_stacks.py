"""Experts: one tensor for all of a layer in GGUF, one for each in folders; GLM-4.5's words."""

from __future__ import annotations

import json
import re
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
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.codecs import get_codec
from headrace.weights.convert import write_gguf, write_hf_folder
from headrace.weights.expert_stacks import MAX_EXPERTS
from headrace.weights.gguf_metadata import metadata_of_config
from headrace.weights.gguf_writer import write_gguf_file
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors_file import read_safetensors
from headrace.weights.safetensors_writer import write_safetensors_file
from headrace.weights.source import source_of_array, source_of_tensor
from headrace.weights.tensor import Tensor
from tests.tiny import (
    tiny_checkpoint,
    tiny_config,
    tiny_shapes,
    to_tensor,
    write_tiny_gguf,
    write_tiny_hf,
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


DRAFT = {
    "eh_proj": (64, 128), "enorm": (64,), "hnorm": (64,), "embed_tokens": (288, 64),
    "shared_head.head": (288, 64), "shared_head.norm": (64,),
}  # fmt: skip


def with_draft_layer(tmp_path: Path) -> Path:
    """A folder whose third layer predicts one more token, as GLM-4.5's last one does."""
    folder = write_tiny_hf(tmp_path, FAMILY)
    tensors = dict(open_checkpoint(folder).tensors)
    for name, shape in DRAFT.items():
        full = f"model.layers.2.{name}.weight"
        tensors[full] = to_tensor(full, np.ones(shape, np.float32), "F32")
    config = json.loads((folder / "config.json").read_text())
    config |= {"num_hidden_layers": 2, "num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))
    sources = [source_of_tensor(tensor, name, tensor.codec) for name, tensor in tensors.items()]
    write_safetensors_file(folder / "model.safetensors", sources)
    return folder


def test_layers_that_predict_further_tokens_are_kept_and_not_run(tmp_path: Path) -> None:
    """In both containers, and back; llama.cpp counts them among the layers of a file."""
    folder = with_draft_layer(tmp_path / "a")
    write_gguf(open_checkpoint(folder), tmp_path / "m.gguf", None)
    stored = {tensor.name for tensor in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    [arch] = [kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == GLM4_MOE.name]
    drafts = [kind for kind in gguf.MODEL_TENSORS[arch] if kind.name.startswith("NEXTN_")]
    assert len(drafts) == len(DRAFT)
    assert {f"{gguf.TENSOR_NAMES[kind].format(bid=2)}.weight" for kind in drafts} <= stored
    file = open_checkpoint(tmp_path / "m.gguf")
    assert file.metadata["glm4moe.block_count"] == 3
    assert file.metadata["glm4moe.nextn_predict_layers"] == 1
    assert file.config["num_hidden_layers"] == 2
    write_hf_folder(file, tmp_path / "out")
    back = open_checkpoint(tmp_path / "out")
    first = open_checkpoint(folder)
    assert set(back.tensors) == set(file.tensors) == set(first.tensors)
    draft_bytes = sum(t.nbytes for n, t in first.tensors.items() if ".layers.2." in n)
    for checkpoint in (first, file, back):
        model = load_model(checkpoint, make_ops("reference"))
        assert model.config.num_layers == 2
        assert model.weight_bytes == first.nbytes - draft_bytes


def test_a_tensor_of_a_draft_layer_that_nobody_knows_stops_the_load(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(with_draft_layer(tmp_path))
    name = "model.layers.2.other.weight"
    strange = {name: to_tensor(name, np.ones((4, 4), np.float32), "F32")}
    with pytest.raises(UnsupportedModelError, match=name):
        load_model(
            replace(checkpoint, tensors={**checkpoint.tensors, **strange}), make_ops("reference")
        )


def as_fused(checkpoint: Checkpoint) -> dict[str, Any]:
    """Names and values as transformers has them in memory: gate and up of all experts as one."""
    names: dict[str, dict[int, Any]] = {}
    plain: dict[str, Any] = {}
    architecture = ARCHITECTURES[checkpoint.config["model_type"]]
    for name, tensor in checkpoint.tensors.items():
        match = re.fullmatch(r"(model\.layers\.\d+)\.(.+\.experts)\.(\d+)\.(.+)\.weight", name)
        if match is None:
            plain[name] = tensor.to_f32()
            continue
        layer, experts, number, module = match.groups()
        for fused, parts in architecture.folder_experts.items():
            part = f"{experts}.{{}}.{module}.weight"
            if part in parts:
                members = names.setdefault(f"{layer}.{fused}", {})
                members[int(number) * len(parts) + parts.index(part)] = tensor.to_f32()
    for name, members in names.items():
        matrices = [members[place] for place in sorted(members)]
        parts = 2 if "gate_up" in name or "input" in name else 1
        rows, columns = matrices[0].shape
        stack = np.concatenate(matrices).reshape(len(matrices) // parts, parts * rows, columns)
        plain[name] = stack
    return plain


@pytest.mark.parametrize(
    "family", ["glm4_moe", "qwen3_moe", "qwen2_moe", "olmoe", "mixtral", "granitemoe"]
)
def test_a_folder_with_all_experts_as_one_tensor_is_the_same_model(
    family: str, tmp_path: Path
) -> None:
    folder = write_tiny_hf(tmp_path, family)
    first = open_checkpoint(folder)
    tensors = {name: t.to_f32() for name, t in first.tensors.items()}
    fused = as_fused(first)
    assert sum(array.ndim == 3 for array in fused.values()) >= 4
    sources = [source_of_array(array, name) for name, array in fused.items()]
    write_safetensors_file(folder / "model.safetensors", sources)
    back = open_checkpoint(folder)
    assert set(back.tensors) == set(tensors)
    for name, tensor in back.tensors.items():
        assert np.array_equal(tensor.to_f32(), tensors[name]), name
        assert tensor.data.base is not None, name


def test_folders_of_granite_hold_all_experts_as_one_tensor(tmp_path: Path) -> None:
    """The published form, which is written again."""
    write_hf_folder(tiny_checkpoint("granitemoe"), tmp_path / "out")
    stored = read_safetensors(tmp_path / "out" / "model.safetensors").tensors
    shapes = tiny_shapes(tiny_config("granitemoe"))
    assert {name: tensor.shape for name, tensor in stored.items()} == shapes


@pytest.mark.parametrize("shape", [(4, 63, 64), (256, 64), (MAX_EXPERTS + 1, 2, 1)])
def test_stacks_of_a_folder_that_are_none(tmp_path: Path, shape: tuple[int, ...]) -> None:
    folder = write_tiny_hf(tmp_path, FAMILY)
    name = "model.layers.1.mlp.experts.gate_up_proj"
    sources = [source_of_array(np.zeros(shape, np.float32), name)]
    write_safetensors_file(folder / "model.safetensors", sources)
    with pytest.raises(CheckpointError, match=r"mlp\.experts\.gate_up_proj' has shape"):
        open_checkpoint(folder)


def test_an_expert_that_is_in_a_stack_and_apart_is_refused(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path, FAMILY)
    tensors = {name: t.to_f32() for name, t in open_checkpoint(folder).tensors.items()}
    name = "model.layers.1.mlp.experts.down_proj"
    tensors[name] = np.zeros((4, 64, 32), np.float32)
    sources = [source_of_array(array, key) for key, array in tensors.items()]
    write_safetensors_file(folder / "model.safetensors", sources)
    with pytest.raises(CheckpointError, match=r"experts\.0\.down_proj\.weight' is there twice"):
        open_checkpoint(folder)


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


@pytest.mark.torch
@pytest.mark.parametrize(
    "family",
    ["glm4_moe", "qwen3_moe", "qwen2_moe", "olmoe", "mixtral", "granitemoe", "phimoe", "gpt_oss"],
)
def test_a_folder_s_tensors_are_what_transformers_loads(family: str, tmp_path: Path) -> None:
    """Its own code joins single experts; ours went through a GGUF file before."""
    torch = pytest.importorskip("torch", reason="transformers needs torch to read models")
    transformers = pytest.importorskip("transformers", reason="compares with transformers")
    folder = write_tiny_hf(tmp_path, family)
    write_gguf(open_checkpoint(folder), tmp_path / "m.gguf", "F32")
    write_hf_folder(open_checkpoint(tmp_path / "m.gguf"), tmp_path / "out")
    models = [
        transformers.AutoModelForCausalLM.from_pretrained(
            path, local_files_only=True, dtype="float32"
        )
        for path in (folder, tmp_path / "out")
    ]
    one, two = (dict(model.state_dict()) for model in models)
    assert set(one) == set(two)
    assert all(torch.equal(one[name], two[name]) for name in one)
    with torch.no_grad():
        logits = [model(torch.arange(40)[None]).logits for model in models]
    assert torch.equal(*logits)
