"""Folders of 4 bits: their values to the last bit, their runs, their bytes, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from headrace import LLM, SamplingParams
from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.ops.interface import Ops
from headrace.ops.operands import Norm
from headrace.plan.header import bytes_by_codec
from headrace.weights.codecs import GROUPED, MXFP4, RAW
from headrace.weights.conversion.convert import write_gguf, write_hf_folder
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.tensors.source import TensorSource, source_of_array, source_of_tensor
from headrace.weights.tensors.tensor import Tensor
from tests.models.cases import Session, greedy, prompt
from tests.models.four_bit_folders import LAYOUTS, write_four_bits
from tests.models.packed_folders import (
    EXPERTS,
    WIDE,
    changed,
    check_changed_headers,
    raw,
)
from tests.models.test_quantised import apart

IDS = prompt(0)[:24]
Q_PROJ = "model.layers.0.self_attn.q_proj."


@pytest.mark.proves("read", "its formula, every bit", of="name", group="4 bits")
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("hidden", [192, 256])
def test_every_layout_has_the_values_of_its_formats_formula(
    name: str, hidden: int, tmp_path: Path
) -> None:
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS[name], **WIDE | {"hidden": hidden})
    checkpoint = open_checkpoint(made.small)
    assert set(checkpoint.tensors) == set(open_checkpoint(made.plain).tensors)
    for tensor_name, values in made.values.items():
        tensor = checkpoint.tensors[tensor_name]
        assert tensor.codec.name in GROUPED or tensor.codec is MXFP4
        assert tensor.codec.name.partition("_")[0] == LAYOUTS[name].held
        assert np.array_equal(tensor.to_f32(), values), tensor_name
        order = np.array([3, 0, 3], np.int32)
        assert np.array_equal(tensor.select_rows(order).to_f32(), values[order])


@pytest.mark.proves(
    "run", "the reference backend, and the same numbers in F32", of="name", group="4 bits"
)  # fmt: skip
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_runs_near_the_same_numbers(
    name: str, tmp_path: Path, reference: Ops, kernels: Ops
) -> None:
    """Activations are rounded to 8 bits for each 32, as for every kind of 4 bits; both backends."""
    made = write_four_bits(tmp_path, "llama", LAYOUTS[name], **WIDE)
    plain = Session(load_model(open_checkpoint(made.plain), reference), reference).feed(IDS[:8])
    small = Session(load_model(open_checkpoint(made.small), reference), reference).feed(IDS[:8])
    assert 0 < apart(small, plain)[0] < 0.05
    native = Session(load_model(open_checkpoint(made.small), kernels), kernels).feed(IDS[:8])
    assert apart(native, small)[0] < 0.01


OF_EXPERTS = (
    "W4A16", "W4A16 asymmetric", "GPTQ", "GPTQ asymmetric", "AWQ", "NVFP4 of modelopt",
    "NVFP4 of compressed-tensors", "MXFP4 of compressed-tensors",
)  # fmt: skip


@pytest.mark.parametrize("family", EXPERTS)
@pytest.mark.parametrize("name", OF_EXPERTS)
def test_experts_and_latent_attention_run_too(
    family: str, name: str, tmp_path: Path, reference: Ops, kernels: Ops
) -> None:
    """As on the reference backend: with a plain twin they may choose other experts."""
    widths = {"hidden": 128, "intermediate": 128, **EXPERTS[family]}
    made = write_four_bits(tmp_path, family, LAYOUTS[name], **widths)
    checkpoint = open_checkpoint(made.small)
    model, other = load_model(checkpoint, kernels), load_model(checkpoint, reference)
    small = Session(model, kernels).feed(IDS)
    assert apart(small, Session(other, reference).feed(IDS))[0] < 0.01
    assert np.array_equal(small, Session(model, kernels).feed_in_chunks(IDS, 5))


STACKED: dict[str, dict[str, int]] = {
    "qwen3_vl_moe_text": {"moe_intermediate_size": 64},
    "llama4_text": {"intermediate_size_mlp": 128},
}
"""Families whose folders of 16 bits hold experts as stacks."""


@pytest.mark.parametrize("family", STACKED)
@pytest.mark.parametrize("name", ["AWQ", "NVFP4 of compressed-tensors"])
def test_experts_that_a_maker_took_out_of_their_stacks_are_read(
    family: str, name: str, tmp_path: Path, reference: Ops, kernels: Ops
) -> None:
    widths = {"hidden": 128, "intermediate": 128, **STACKED[family]}
    made = write_four_bits(tmp_path, family, LAYOUTS[name], single=True, **widths)
    checkpoint = open_checkpoint(made.small)
    experts = [tensor for tensor in made.values if ".experts." in tensor]
    assert experts
    for tensor_name in experts:
        tensor = checkpoint.tensors[tensor_name]
        assert tensor.codec.name in GROUPED
        assert np.array_equal(tensor.to_f32(), made.values[tensor_name])
    native = Session(load_model(checkpoint, kernels), kernels).feed(IDS)
    slow = Session(load_model(checkpoint, reference), reference).feed(IDS)
    assert apart(native, slow)[0] < 0.01


def test_columns_in_an_order_of_their_own_stay_at_four_bits(
    tmp_path: Path, kernels: Ops, reference: Ops
) -> None:
    """A product has the bits of the same matrix with its columns, and inputs, by their groups."""
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS["GPTQ in an order"], **WIDE)
    tensor = open_checkpoint(made.small).tensors[f"{Q_PROJ}weight"]
    order = tensor.column_order
    assert order is not None and tensor.codec.name == "U4_32"
    sorted_columns = Tensor(tensor.name, tensor.shape, tensor.codec, tensor.data)
    values = made.values[f"{Q_PROJ}weight"]
    assert np.array_equal(sorted_columns.to_f32(), values[:, order])
    x = np.random.default_rng(1).standard_normal((5, 192), np.float32)
    for ops in (kernels, reference):
        weight, plain = ops.linear_weight([tensor]), ops.linear_weight([sorted_columns])
        assert ops is reference or weight.nbytes == plain.nbytes
        assert np.array_equal(ops.linear(x, weight), ops.linear(x[:, order].copy(), plain))
        norm = Norm(np.linspace(0.5, 2, 192, dtype=np.float32), 1e-6)
        assert np.array_equal(
            ops.linear(x, weight, norm=norm), ops.linear(ops.norm(x, norm), weight)
        )
        with pytest.raises(ValueError, match="in other orders"):
            ops.linear_weight([tensor, sorted_columns])
    with pytest.raises(ValueError, match="rows of 191, must be 192"):
        kernels.linear(x[:, 1:].copy(), kernels.linear_weight([tensor]))


def test_projections_with_orders_of_their_own_are_computed_apart(
    tmp_path: Path, kernels: Ops, reference: Ops
) -> None:
    made = write_four_bits(tmp_path, "llama", LAYOUTS["GPTQ in an order"], **WIDE)
    name = f"{Q_PROJ}g_idx"
    tensors = read_safetensors(made.small / "model.safetensors", raw=RAW).tensors
    turned = tensors[name].data.view("<i4")[:, ::-1].copy()
    other = changed(made, {name: raw(name, turned.view(np.uint8), (192,), "I32")})
    models = [load_model(open_checkpoint(other), ops) for ops in (kernels, reference)]
    native, slow = (
        Session(model, ops).feed(IDS[:8])
        for model, ops in zip(models, (kernels, reference), strict=True)
    )
    assert apart(native, slow)[0] < 0.01


def test_experts_with_columns_in_an_order_are_refused(
    tmp_path: Path, kernels: Ops, reference: Ops
) -> None:
    widths = {"hidden": 128, "intermediate": 128, **EXPERTS["qwen3_moe"]}
    made = write_four_bits(tmp_path, "qwen3_moe", LAYOUTS["GPTQ in an order"], **widths)
    for ops in (kernels, reference):
        with pytest.raises(
            UnsupportedModelError, match=r"experts\.0\.\w+_proj\.weight has columns"
        ):
            load_model(open_checkpoint(made.small), ops)


def test_a_folder_is_served_end_to_end(tmp_path: Path, kernels: Ops) -> None:
    del kernels
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS["GPTQ"], **WIDE)
    ops = make_ops("cpu")
    expected = greedy(Session(load_model(open_checkpoint(made.small), ops), ops), IDS, 6)
    llm = LLM(made.small, backend="cpu", num_gpu_blocks_override=16, kv_cache_dtype="f32")
    params = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
    (result,) = llm.generate([IDS], params)
    assert list(result.token_ids) == expected


@pytest.mark.parametrize("name", LAYOUTS)
def test_bytes_are_those_of_the_file(name: str, tmp_path: Path, kernels: Ops) -> None:
    """For the planner; the kernels hold it at the same width, a float32 scale for a group."""
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS[name], **WIDE)
    checkpoint = open_checkpoint(made.small)
    tensors = read_safetensors(made.small / "model.safetensors", raw=RAW).tensors
    beside = ("g_idx", "weight_shape", "input_scale", "input_global_scale")
    stored = sum(tensor.nbytes for name, tensor in tensors.items() if not name.endswith(beside))
    assert sum(bytes_by_codec(checkpoint.tensors.values()).values()) == stored
    weights = sum(values.size for values in made.values.values())
    linear = kernels.linear_weight([checkpoint.tensors[f"{Q_PROJ}weight"]])
    assert linear.nbytes * 8 <= 5.3 * made.values[f"{Q_PROJ}weight"].size
    others = sum(
        tensor.nbytes
        for tensor_name, tensor in checkpoint.tensors.items()
        if tensor_name not in made.values
    )
    assert 4 * weights < 8 * (stored - others) < 5.3 * weights


@pytest.mark.parametrize("family", ["stablelm", "internlm2", "gpt_neox"])
def test_families_with_names_of_their_own_are_read(family: str, tmp_path: Path) -> None:
    """Tensors get canonical names, and matrices of Q, K and V are cut; values stay."""
    made = write_four_bits(tmp_path, family, LAYOUTS["GPTQ in an order"], hidden=128)
    small, plain = (open_checkpoint(path).tensors for path in (made.small, made.plain))
    assert set(small) == set(plain) and made.values
    for name, tensor in small.items():
        assert np.array_equal(tensor.to_f32(), plain[name].to_f32()), name


def test_a_folder_without_its_models_prefix_is_read(tmp_path: Path) -> None:
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS["AWQ"], **WIDE)
    file = made.small / "model.safetensors"
    sources = [
        source_of_tensor(tensor, name.removeprefix("model."), tensor.codec)
        for name, tensor in read_safetensors(file, raw=RAW).tensors.items()
    ]
    write_safetensors_file(file, sources)
    tensors = open_checkpoint(made.small).tensors
    for name, values in made.values.items():
        assert tensors[name].name == name and np.array_equal(tensors[name].to_f32(), values)


def test_it_is_written_as_numbers(tmp_path: Path) -> None:
    """Other containers have no place for the scales; F32 holds the values exactly."""
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS["AWQ"], **WIDE)
    checkpoint = open_checkpoint(made.small)
    write_hf_folder(checkpoint, tmp_path / "back")
    write_gguf(checkpoint, tmp_path / "m.gguf", None)
    back, file = open_checkpoint(tmp_path / "back"), open_checkpoint(tmp_path / "m.gguf")
    assert "quantization_config" not in back.config
    for name, values in made.values.items():
        assert np.array_equal(back.tensors[name].to_f32(), values)
        assert file.tensors[name].codec.name == "F32"


def order_of(columns: int, last: int) -> TensorSource:
    values = np.arange(columns, dtype="<i4") // 32
    values[-1] = last
    return raw(f"{Q_PROJ}g_idx", values.view(np.uint8)[None], (columns,), "I32")


@pytest.mark.parametrize(
    ("change", "stated", "words"),
    [
        ({f"{Q_PROJ}scales": None}, {}, r"q_proj\.scales' is missing; \[6, \d+\] of F16"),
        ({f"{Q_PROJ}qweight": None}, {}, r"is I32 and part of no matrix"),
        ({}, {"group_size": 64}, r"is F16 of shape \[(6|10), 192\].*it has to be \[(3|5), 192\]"),
        ({}, {"group_size": 96}, "groups of 96"),
        ({f"{Q_PROJ}g_idx": order_of(192, 0)}, {}, "does not have 32 columns of each of 6 groups"),
        ({f"{Q_PROJ}g_idx": order_of(192, -5)}, {}, "does not have 32 columns of each of 6 groups"),
        ({f"{Q_PROJ}g_idx": None}, {"desc_act": True}, r"q_proj\.g_idx', which has it, is missing"),
        ({f"{Q_PROJ}scales": source_of_array(np.ones((6, 8), np.float32), f"{Q_PROJ}scales")}, {},
         r"q_proj\.scales' is F32 of shape \[6, 8\]"),
    ],
)  # fmt: skip
def test_what_does_not_fit_stops_the_load(
    tmp_path: Path,
    change: dict[str, TensorSource | None],
    stated: dict[str, object],
    words: str,
) -> None:
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS["GPTQ"], **WIDE)
    with pytest.raises((CheckpointError, UnsupportedModelError), match=words):
        open_checkpoint(changed(made, change, **stated))


def test_scales_that_are_no_numbers_stop_the_load(tmp_path: Path, kernels: Ops) -> None:
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS["GPTQ"], **WIDE)
    rows = made.values[f"{Q_PROJ}weight"].shape[0]
    scales = np.full((6, rows), 0.01, np.float32)
    scales[4, 3] = np.nan
    source = source_of_array(scales, f"{Q_PROJ}scales")
    folder = changed(made, {f"{Q_PROJ}scales": source})
    with pytest.raises(CheckpointError, match=r"q_proj\.weight: the scale of row 3, group 4 is na"):
        load_model(open_checkpoint(folder), kernels)
    made = write_four_bits(tmp_path / "n", "qwen3", LAYOUTS["NVFP4 of modelopt"], **WIDE)
    name = f"{Q_PROJ}weight_scale_2"
    zero = source_of_array(np.zeros((), np.float32), name)
    with pytest.raises(CheckpointError, match=r"weight_scale_2' is 0; it has to be a number from"):
        open_checkpoint(changed(made, {name: zero}))


@pytest.mark.parametrize("name", LAYOUTS)
def test_headers_that_were_changed_are_read_or_refused(name: str, tmp_path: Path) -> None:
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS[name], hidden=64, intermediate=64, layers=1)
    check_changed_headers(made, random.Random(name))
