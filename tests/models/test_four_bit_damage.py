"""Folders of 4 bits whose parts contradict each other or the config: refused, never guessed.

Each was read once, as numbers that nobody wrote.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import load_model
from headrace.ops.interface import Ops
from headrace.weights.codecs import BF16, BYTES, F8_E4M3, F16, RAW
from headrace.weights.conversion.convert import write_gguf, write_hf_folder
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.tensors.source import TensorSource, source_of_array, source_of_rows
from tests.models.four_bit_folders import E2M1, LAYOUTS, Layout, write_four_bits
from tests.models.packed_folders import WIDE, Folders, changed, raw
from tests.models.test_four_bit_folders import Q_PROJ

AWQ = LAYOUTS["AWQ"]
SYMMETRIC = {
    "GPTQ": LAYOUTS["GPTQ"],
    "GPTQ v2": Layout(
        {**LAYOUTS["GPTQ"].stated, "checkpoint_format": "gptq_v2"}, "gptq", 32
    ),
    "AWQ": Layout({**AWQ.stated, "zero_point": False}, "awq", 64),
}  # fmt: skip
"""Layouts with zero points that are all 8."""
WORDS_OF_8 = {"GPTQ": 0x77777777, "GPTQ v2": 0x88888888, "AWQ": 0x88888888}


def stored(made: Folders, name: str) -> np.ndarray:
    """The bytes of a tensor in rows of its last dimension."""
    return np.array(read_safetensors(made.small / "model.safetensors", raw=RAW).tensors[name].data)


def words_of(made: Folders, name: str) -> np.ndarray:
    return stored(made, name).view("<u4")


def as_words(name: str, values: np.ndarray) -> TensorSource:
    return raw(name, np.ascontiguousarray(values.astype("<u4")).view(np.uint8), values.shape, "I32")


def test_a_zero_point_of_15_that_gptq_stored_is_0_and_borrowed_from_its_neighbour(
    tmp_path: Path,
) -> None:
    """As GPTQModel adds 0x11111111 to the word: 0xF, less one of the next, is 0 and the next."""
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS["GPTQ asymmetric"], **WIDE)
    name = f"{Q_PROJ}qzeros"
    words = words_of(made, name)
    assert (words[0, 0] >> 12) & 15 == 15, "row 3 has a zero point of 0"
    words[0, 0] = 0x7777777F
    folder = changed(made, {name: as_words(name, words)})
    tensor = open_checkpoint(folder).tensors[f"{Q_PROJ}weight"]
    numbers = words_of(made, f"{Q_PROJ}qweight")
    scales = F16.decode(stored(made, f"{Q_PROJ}scales"))
    low = ((numbers[0, :8] >> 0) & 15).astype(np.float32)
    # 0x7777777F + 0x11111111 = 0x88888890: 0, then 9, then 8 six times.
    zeros = np.array([0, 9, 8, 8, 8, 8, 8, 8], np.float32)
    assert np.array_equal(tensor.to_f32()[:8, 0], (low - zeros) * scales[0, :8])


@pytest.mark.parametrize("name", SYMMETRIC)
def test_zero_points_of_symmetric_numbers_have_to_be_8(
    name: str, tmp_path: Path, reference: Ops
) -> None:
    made = write_four_bits(tmp_path, "qwen3", SYMMETRIC[name], **WIDE)
    tensor = open_checkpoint(made.small).tensors[f"{Q_PROJ}weight"]
    assert np.array_equal(tensor.to_f32(), made.values[f"{Q_PROJ}weight"])
    qzeros = f"{Q_PROJ}qzeros"
    words = words_of(made, qzeros)
    assert set(words.ravel()) == {WORDS_OF_8[name]}
    words[1, 2] ^= 0x100
    folder = changed(made, {qzeros: as_words(qzeros, words)})
    with pytest.raises(
        CheckpointError, match=r"q_proj\.weight: .*zero point is 8, and qzeros has "
    ):
        load_model(open_checkpoint(folder), reference)


NVFP4 = {"modelopt": "weight_scale_2", "compressed-tensors": "weight_global_scale"}


@pytest.mark.parametrize("program", NVFP4)
@pytest.mark.parametrize("value", [1e-40, 1e-37, 0.0, -1.0, 1e38, np.inf, np.nan])
def test_a_scale_of_the_whole_matrix_has_limits(program: str, value: float, tmp_path: Path) -> None:
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS[f"NVFP4 of {program}"], **WIDE)
    name = f"{Q_PROJ}{NVFP4[program]}"
    scale = source_of_array(np.array([value], np.float32), name)
    with pytest.raises(CheckpointError, match=rf"{NVFP4[program]}' is .*a number from [\d.e-]+ to"):
        open_checkpoint(changed(made, {name: scale}))


def with_block_scales(made: Folders, change: dict[tuple[int, int], int] | int) -> Path:
    name = f"{Q_PROJ}weight_scale"
    codes = stored(made, name)
    if isinstance(change, int):
        codes[:] = change
    else:
        for place, code in change.items():
            codes[place] = code
    return changed(made, {name: source_of_rows(codes, codes.shape, name, F8_E4M3)})


@pytest.mark.parametrize(("code", "shown"), [(0x7F, "nan"), (0xFF, "nan"), (0x80, "-0"),
                                             (0x81, "-0.0019"), (0xB8, "-1")])  # fmt: skip
def test_scales_of_blocks_are_numbers_above_0(
    code: int, shown: str, tmp_path: Path, reference: Ops
) -> None:
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS["NVFP4 of modelopt"], **WIDE)
    folder = with_block_scales(made, {(3, 4): code})
    words = rf"q_proj\.weight: the scale of row 3, group 4 is {shown}.*; .* from 0.00195 to 448"
    with pytest.raises(CheckpointError, match=words):
        load_model(open_checkpoint(folder), reference)


def test_blocks_that_were_rounded_to_0_are_zeros_and_a_whole_matrix_of_them_is_damage(
    tmp_path: Path, kernels: Ops
) -> None:
    """modelopt rounds the scale of a block far below the largest to 0, or to E4M3's subnormals."""
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS["NVFP4 of modelopt"], **WIDE)
    folder = with_block_scales(made, {(0, 0): 0, (1, 0): 1})
    checkpoint = open_checkpoint(folder)
    values = checkpoint.tensors[f"{Q_PROJ}weight"].to_f32()
    assert not values[0, :16].any() and values[0, 16:].any()
    whole = np.frombuffer(stored(made, f"{Q_PROJ}weight_scale_2").tobytes(), "<f4")[0]
    known = np.array(E2M1, np.float32) * (np.float32(2.0**-9) * whole)
    assert np.isin(np.abs(values[1, :16]), known).all() and values[1, :16].any()
    load_model(checkpoint, kernels)
    lost = open_checkpoint(with_block_scales(made, 0))
    with pytest.raises(CheckpointError, match=r"q_proj\.weight: all \d+ scales are 0"):
        load_model(lost, kernels)


@pytest.mark.parametrize("value", [1e-38, 1e38, np.inf])
def test_scales_of_groups_have_limits(value: float, tmp_path: Path) -> None:
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS["W4A16"], **WIDE)
    name = f"{Q_PROJ}weight_scale"
    scales = BF16.decode(stored(made, name))
    scales[2, 1] = value
    folder = changed(made, {name: source_of_array(scales, name, BF16)})
    with pytest.raises(
        CheckpointError, match=r"the scale of row 2, group 1 is .*; .*from 6.02e-36"
    ):
        open_checkpoint(folder).tensors[f"{Q_PROJ}weight"].to_f32()
    scales[2, 1] = -0.5
    folder = changed(made, {name: source_of_array(scales, name, BF16)})
    assert open_checkpoint(folder).tensors[f"{Q_PROJ}weight"].to_f32().any()


def test_scales_of_groups_that_are_all_0_are_damage(tmp_path: Path) -> None:
    for name, scale in (("W4A16", "weight_scale"), ("AWQ", "scales")):
        made = write_four_bits(tmp_path / name, "qwen3", LAYOUTS[name], **WIDE)
        codec = LAYOUTS[name].codec
        zeros = np.zeros_like(codec.decode(stored(made, f"{Q_PROJ}{scale}")))
        source = source_of_array(zeros, f"{Q_PROJ}{scale}", codec)
        checkpoint = open_checkpoint(changed(made, {f"{Q_PROJ}{scale}": source}))
        with pytest.raises(CheckpointError, match=r"all \d+ scales are 0, and its numbers are not"):
            checkpoint.tensors[f"{Q_PROJ}weight"].to_f32()


def test_a_method_that_is_not_known_is_the_cause_that_is_named(tmp_path: Path) -> None:
    """And not what its tensors look like to a reader that does not know it."""
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS["GPTQ"], **WIDE)
    with pytest.raises(UnsupportedModelError, match="checkpoint_format = 'marlin'"):
        open_checkpoint(changed(made, {}, checkpoint_format="marlin"))
    with pytest.raises(UnsupportedModelError, match="quantization_config = 'hqq'"):
        open_checkpoint(changed(made, {}, checkpoint_format="gptq", quant_method="hqq"))


def test_a_folder_with_unknown_keys_is_not_converted(tmp_path: Path) -> None:
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS["GPTQ"], **WIDE)
    checkpoint = open_checkpoint(changed(made, {}, rotation="hadamard"))
    for write, path in ((write_gguf, tmp_path / "m.gguf"), (write_hf_folder, tmp_path / "back")):
        with pytest.raises(UnsupportedModelError, match=r"quantization_config\.rotation"):
            write(checkpoint, path)
        assert not path.exists()


def test_mxfp4_of_compressed_tensors_is_written_as_numbers_too(tmp_path: Path) -> None:
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS["MXFP4 of compressed-tensors"], **WIDE)
    write_hf_folder(open_checkpoint(made.small), tmp_path / "back")
    back = open_checkpoint(tmp_path / "back")
    assert "quantization_config" not in back.config
    for name, values in made.values.items():
        assert np.array_equal(back.tensors[name].to_f32(), values)


def test_modules_of_another_format_are_not_read_as_the_first_one(tmp_path: Path) -> None:
    """Two formats of 4 bits, and a module that neither is stated of: it cannot be known which."""
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS["GPTQ"], **WIDE)
    rules = {"+:.*gate_proj": {"sym": False}, "-:.*q_proj": {}}
    with pytest.raises(CheckpointError, match=r"q_proj\.qweight' holds 4 bits, .* states 16 bits"):
        open_checkpoint(changed(made, {}, dynamic=rules))
    rules = {"+:.*q_proj": {"bits": 8}}
    with pytest.raises(CheckpointError, match=r"q_proj\.scales' .* as quantization_config states"):
        open_checkpoint(changed(made, {}, dynamic=rules))
    folder = changed(made, {}, dynamic={"-:.*q_proj": {}})
    values = open_checkpoint(folder).tensors[f"{Q_PROJ}weight"].to_f32()
    assert np.array_equal(values, made.values[f"{Q_PROJ}weight"])


@pytest.mark.parametrize(
    ("stated", "held", "words"),
    [
        ("W4A16", "GPTQ", r"\.qweight' is not named .* the layout 'compressed' .*weight_packed'"),
        ("GPTQ", "W4A16", r"\.weight_packed' is not named .* the layout 'gptq' .*\.qweight'"),
        ("NVFP4 of modelopt", "NVFP4 of compressed-tensors", r"layout 'modelopt' .*proj\.weight'"),
        ("NVFP4 of compressed-tensors", "NVFP4 of modelopt", r"layout 'compressed' .*packed'"),
    ],
)
def test_numbers_lie_as_the_config_states_and_not_as_they_are_named(
    stated: str, held: str, words: str, tmp_path: Path
) -> None:
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS[held]._replace(stated=LAYOUTS[stated].stated),
                           **WIDE)  # fmt: skip
    with pytest.raises(CheckpointError, match=words):
        open_checkpoint(made.small)


def test_a_tensor_that_scales_inputs_is_refused_by_its_name(tmp_path: Path) -> None:
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS["NVFP4 of modelopt"], **WIDE)
    name = f"{Q_PROJ}pre_quant_scale"
    source = source_of_array(np.ones(192, np.float32), name)
    with pytest.raises(UnsupportedModelError, match=r"q_proj\.pre_quant_scale' multiplies"):
        open_checkpoint(changed(made, {name: source}))


def test_bytes_that_no_format_explains_stop_the_load(tmp_path: Path) -> None:
    made = write_four_bits(tmp_path, "qwen3", LAYOUTS["GPTQ"], **WIDE)
    name = "model.layers.0.mlp.extra.weight"
    odd = source_of_rows(np.zeros((8, 16), np.uint8), (8, 16), name, BYTES)
    with pytest.raises(CheckpointError, match=r"extra\.weight' is not named"):
        open_checkpoint(changed(made, {name: odd}))
