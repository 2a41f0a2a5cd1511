"""Folders of 8 bits and of NF4: their values to the last bit, their runs, their bytes, and what is
refused.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import LLM, SamplingParams
from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.ops.interface import Ops
from headrace.plan.header import bytes_by_codec
from headrace.weights.codecs import F16, OF_FOLDERS, RAW
from headrace.weights.conversion.convert import write_gguf, write_hf_folder
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.tensors.source import TensorSource, source_of_array
from tests.models.cases import Session, greedy, prompt
from tests.models.eight_bit_folders import (
    LAYOUTS,
    compressed,
    gptq,
    nf4,
    of_bytes,
    signed,
    write_eight_bits,
)
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
STATE = f"{Q_PROJ}weight.quant_state.bitsandbytes__nf4"


@pytest.mark.proves("read", "its formula, every bit", of="name", group="8 bits and NF4")
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("hidden", [192, 256])
def test_every_layout_has_the_values_of_its_formats_formula(
    name: str, hidden: int, tmp_path: Path
) -> None:
    layout = LAYOUTS[name]
    made = write_eight_bits(tmp_path, "qwen3", layout, **WIDE | {"hidden": hidden})
    checkpoint = open_checkpoint(made.small)
    assert set(checkpoint.tensors) == set(open_checkpoint(made.plain).tensors)
    for tensor_name, values in made.values.items():
        tensor = checkpoint.tensors[tensor_name]
        assert tensor.codec.name in OF_FOLDERS
        assert tensor.codec.name.partition("_")[0] == layout.held
        assert np.array_equal(tensor.to_f32(), values), tensor_name
        order = np.array([3, 0, 3], np.int32)
        assert np.array_equal(tensor.select_rows(order).to_f32(), values[order])


@pytest.mark.proves(
    "run", "the reference backend, and the same numbers in F32", of="name", group="8 bits and NF4"
)  # fmt: skip
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_runs_near_the_same_numbers(
    name: str, tmp_path: Path, reference: Ops, kernels: Ops
) -> None:
    """Activations are rounded to 8 bits, but for NF4; both backends."""
    made = write_eight_bits(tmp_path, "llama", LAYOUTS[name], **WIDE)
    plain = Session(load_model(open_checkpoint(made.plain), reference), reference).feed(IDS[:8])
    small = Session(load_model(open_checkpoint(made.small), reference), reference).feed(IDS[:8])
    if LAYOUTS[name].kind == "nf4":
        assert np.array_equal(small, plain)
    else:
        assert 0 < apart(small, plain)[0] < 0.1
    native = Session(load_model(open_checkpoint(made.small), kernels), kernels).feed(IDS[:8])
    assert apart(native, small)[0] < 0.03


@pytest.mark.parametrize("family", EXPERTS)
@pytest.mark.parametrize("name", ["W8A8", "NF4 nested"])
def test_experts_and_latent_attention_run_too(
    family: str, name: str, tmp_path: Path, reference: Ops, kernels: Ops
) -> None:
    widths = {"hidden": 128, "intermediate": 128, **EXPERTS[family]}
    made = write_eight_bits(tmp_path, family, LAYOUTS[name], **widths)
    checkpoint = open_checkpoint(made.small)
    model, other = load_model(checkpoint, kernels), load_model(checkpoint, reference)
    small = Session(model, kernels).feed(IDS)
    assert apart(small, Session(other, reference).feed(IDS))[0] < 0.03
    assert np.array_equal(small, Session(model, kernels).feed_in_chunks(IDS, 5))


@pytest.mark.parametrize("name", ["W8A8", "NF4 nested"])
def test_a_folder_is_served_end_to_end(name: str, tmp_path: Path, kernels: Ops) -> None:
    del kernels
    made = write_eight_bits(tmp_path, "qwen3", LAYOUTS[name], **WIDE)
    ops = make_ops("cpu")
    # Fewer than bring an id beyond the tokenizer, which only a session takes.
    expected = greedy(Session(load_model(open_checkpoint(made.small), ops), ops), IDS, 5)
    llm = LLM(made.small, backend="cpu", num_gpu_blocks_override=16, kv_cache_dtype="f32")
    params = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True)
    (result,) = llm.generate([IDS], params)
    assert list(result.token_ids) == expected


@pytest.mark.parametrize("name", LAYOUTS)
def test_bytes_are_those_of_the_file(name: str, tmp_path: Path, kernels: Ops) -> None:
    """For the planner; the kernels hold numbers at the width that the format has."""
    layout = LAYOUTS[name]
    made = write_eight_bits(tmp_path, "qwen3", layout, **WIDE)
    checkpoint = open_checkpoint(made.small)
    tensors = read_safetensors(made.small / "model.safetensors", raw=RAW).tensors
    beside = ("g_idx", "weight_shape", "input_scale", ".quant_map", "bitsandbytes__nf4")
    stored = sum(tensor.nbytes for name, tensor in tensors.items() if not name.endswith(beside))
    assert sum(bytes_by_codec(checkpoint.tensors.values()).values()) == stored
    linear = kernels.linear_weight([checkpoint.tensors[f"{Q_PROJ}weight"]])
    most = 5 if layout.bits == 4 or layout.kind == "nf4" else 9.25
    assert linear.nbytes * 8 <= most * made.values[f"{Q_PROJ}weight"].size


@pytest.mark.parametrize("name", ["W8A16 asymmetric", "NF4 nested"])
def test_it_is_written_as_numbers(name: str, tmp_path: Path) -> None:
    """Other containers have no place for the scales; F32 holds the values exactly."""
    made = write_eight_bits(tmp_path, "qwen3", LAYOUTS[name], **WIDE)
    checkpoint = open_checkpoint(made.small)
    write_hf_folder(checkpoint, tmp_path / "back")
    write_gguf(checkpoint, tmp_path / "m.gguf", None)
    back, file = open_checkpoint(tmp_path / "back"), open_checkpoint(tmp_path / "m.gguf")
    assert "quantization_config" not in back.config
    for tensor_name, values in made.values.items():
        assert np.array_equal(back.tensors[tensor_name].to_f32(), values)
        assert file.tensors[tensor_name].codec.name == "F32"


def state_of(**changes: object) -> TensorSource:
    state: dict[str, Any] = {
        "quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [256, 192],
        "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.1, **changes,
    }  # fmt: skip
    return of_bytes(STATE, np.frombuffer(json.dumps(state).encode(), np.uint8))


ONES = np.ones((3, 3), np.float32)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("W8A8", {f"{Q_PROJ}weight_scale": None}, r"q_proj\.weight_scale' is missing; \[\d+\] or"),
        ("W8A8", {f"{Q_PROJ}weight_scale": source_of_array(ONES, f"{Q_PROJ}weight_scale")},
         r"is F32 of shape \[3, 3\]; as quantization_config states"),
        ("W8A8", {f"{Q_PROJ}weight_zero_point":
                  signed(f"{Q_PROJ}weight_zero_point", np.ones((4, 1), np.int64), (4, 1))},
         "zero points that are not 0"),
        ("blockwise_int8", {f"{Q_PROJ}weight_scale_inv": None}, "weight_scale_inv' is missing"),
        ("GPTQ", {f"{Q_PROJ}qzeros": raw(f"{Q_PROJ}qzeros", np.zeros((1, 4), np.uint8), (1,),
                                         "I32")}, r"qzeros' is I32 of shape \[1\]"),
        ("GPTQ", {f"{Q_PROJ}g_idx": raw(f"{Q_PROJ}g_idx", np.ones((1, 768), np.uint8), (192,),
                                        "I32")}, "in an order of their own"),
        ("GPTQ", {f"{Q_PROJ}qweight": None}, "part of no matrix"),
        ("NF4 nested", {f"{Q_PROJ}weight.absmax": None}, r"weight\.absmax' is missing"),
        ("NF4 nested", {f"{Q_PROJ}weight.nested_absmax": None}, r"nested_absmax' is missing"),
        ("NF4 nested", {STATE: None}, "part of no matrix"),
        ("NF4 nested", {STATE: state_of(blocksize=32)}, "states blocksize 32, which is not read"),
        ("NF4 nested", {STATE: state_of(shape=[1 << 40, 64])}, "states shape"),
        ("NF4 nested", {STATE: state_of(quant_type="fp4")}, "states quant_type 'fp4'"),
        ("NF4 nested", {STATE: state_of(nested_dtype="bfloat16")}, "states nested_dtype"),
        ("NF4 nested", {STATE: state_of(nested_offset="1")}, "states nested_offset"),
        ("NF4 nested", {STATE: state_of(tail=1)}, "states 'tail', which is not known"),
        ("NF4 nested", {STATE: of_bytes(STATE, np.frombuffer(b"[1", np.uint8))}, "is not JSON"),
        ("NF4 nested", {STATE: state_of(shape=[1, 64])}, "1, 64. values of 4 bits are 32"),
        ("NF4 nested", {f"{Q_PROJ}weight.quant_map":
                        source_of_array(np.ones(16, np.float32), f"{Q_PROJ}weight.quant_map")},
         "other numbers than NF4"),
    ],
)  # fmt: skip
def test_what_does_not_fit_stops_the_load(
    name: str, change: dict[str, TensorSource | None], words: str, tmp_path: Path
) -> None:
    made = write_eight_bits(tmp_path, "qwen3", LAYOUTS[name], **WIDE)
    with pytest.raises((CheckpointError, UnsupportedModelError), match=words):
        open_checkpoint(changed(made, change))


def test_values_that_no_weight_can_have_are_errors_by_name(tmp_path: Path) -> None:
    made = write_eight_bits(tmp_path / "a", "qwen3", LAYOUTS["NF4"], **WIDE)
    name = f"{Q_PROJ}weight.absmax"
    scales = read_safetensors(made.small / "model.safetensors", raw=RAW).tensors[name].to_f32()
    scales[5] = np.nan
    folder = changed(made, {name: source_of_array(scales, name)})
    with pytest.raises(CheckpointError, match=r"q_proj\.weight: the scale of block 5 is nan"):
        open_checkpoint(folder).tensors[f"{Q_PROJ}weight"].to_f32()
    made = write_eight_bits(tmp_path / "b", "qwen3", LAYOUTS["W4A8"], **WIDE)
    name = f"{Q_PROJ}weight"
    shape = made.values[name].shape
    folder = changed(made, {name: signed(name, np.full(shape, 9), shape)})
    with pytest.raises(CheckpointError, match="a number is 9; of 4 bits they are from -8 to 7"):
        open_checkpoint(folder).tensors[name].to_f32()


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        (nf4(bnb_4bit_quant_type="fp4"), "bitsandbytes"),
        (nf4(load_in_4bit=False, _load_in_4bit=False, load_in_8bit=True), "bitsandbytes"),
        (nf4(bnb_4bit_blocks=128), "bnb_4bit_blocks"),
        (compressed("int-quantized", strategy="channel", rounding="up"), "rounding"),
        (compressed("pack-quantized", num_bits=6, strategy="channel"), "compressed-tensors"),
        (compressed("pack-quantized", strategy="group", group_size=24), "compressed-tensors"),
        (gptq(bits=3), "gptq"),
        (gptq(widths=[8]), "widths"),
        ({"quant_method": "w8a8_int8", "quant_description": {"a": "FLOAT"}}, "quant_description"),
        ({"quant_method": "blockwise_int8"}, "weight_block_size"),
    ],
)
def test_what_is_stated_and_not_read_is_refused_by_name(
    stated: dict[str, Any], words: str, tmp_path: Path, kernels: Ops
) -> None:
    made = write_eight_bits(tmp_path, "qwen3", LAYOUTS["W8A8"], **WIDE)
    model = open_checkpoint(made.plain)
    model.config["quantization_config"] = stated  # type: ignore[index]  # a dict of the file
    with pytest.raises((CheckpointError, UnsupportedModelError), match=words):
        load_model(model, kernels)


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("W8A16", LAYOUTS["GPTQ"].stated),
        ("W8A8", LAYOUTS["W8A16 rows"].stated),
        ("GPTQ", LAYOUTS["blockwise_int8"].stated),
        ("AWQ", LAYOUTS["W8A16 asymmetric"].stated),
    ],
)
def test_numbers_lie_as_the_config_states_and_not_as_they_are_named(
    name: str, stated: dict[str, Any], tmp_path: Path
) -> None:
    made = write_eight_bits(tmp_path, "qwen3", LAYOUTS[name], **WIDE)
    path = made.small / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "quantization_config": stated}), encoding="utf-8")
    with pytest.raises(
        CheckpointError, match=r"weight.*' is not named as quantization_config|qwei"
    ):
        open_checkpoint(made.small)


SCALES = {
    "W8A8": "weight_scale", "blockwise_int8": "weight_scale_inv", "W8A16": "weight_scale",
    "W4A8": "weight_scale", "GPTQ": "scales", "AWQ": "scales", "NF4": "weight.absmax",
    "NF4 nested": "weight.nested_absmax",
}  # fmt: skip


@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e-40])
def test_a_scale_that_no_group_has_is_an_error_by_name(
    name: str, value: float, tmp_path: Path
) -> None:
    made = write_eight_bits(tmp_path, "qwen3", LAYOUTS[name], hidden=64, intermediate=64, layers=1)
    tensor_name = f"{Q_PROJ}{SCALES[name]}"
    stored = read_safetensors(made.small / "model.safetensors", raw=RAW).tensors[tensor_name]
    scales = stored.to_f32()
    scales.reshape(-1)[0] = value
    if name == "NF4 nested" and value == 1e-40:
        scales[:] = value
    folder = changed(made, {tensor_name: source_of_array(scales, tensor_name, stored.codec)})
    weight = open_checkpoint(folder).tensors[f"{Q_PROJ}weight"]
    if (name == "NF4 nested" or stored.codec is F16) and value == 1e-40:
        # Rounded to 0, or beside the offset that is added, it is a scale like any other.
        assert np.isfinite(weight.to_f32()).all()
        return
    with pytest.raises(
        CheckpointError, match=r"tensor model\.layers\.0\.self_attn\.q_proj\.weight"
    ):
        weight.to_f32()


@pytest.mark.parametrize("name", LAYOUTS)
def test_headers_that_were_changed_are_read_or_refused(name: str, tmp_path: Path) -> None:
    made = write_eight_bits(tmp_path, "qwen3", LAYOUTS[name], hidden=64, intermediate=64, layers=1)
    check_changed_headers(made, random.Random(name))
