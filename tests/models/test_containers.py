"""The same weights from GGUF, from safetensors and in memory are the same model, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.errors import UnsupportedModelError
from headrace.models import load_model
from headrace.ops.interface import Ops
from headrace.weights.conversion.convert import write_hf_folder
from headrace.weights.open import open_checkpoint
from tests.models.cases import CASES, FIRST_OF_FAMILY, IN_GGUF, NOT_IN_GGUF, Session, prompt
from tests.tiny import tiny_checkpoint, write_tiny_gguf, write_tiny_hf
from tests.tiny_families import tiny_family_names

FILE_CODECS = ("F32", "F16", "BF16")


def check_files(name: str, codec: str, ops: Ops, folder: Path) -> None:
    """The folder, and the GGUF file if it can state the case, are the model in memory."""
    family, shape = CASES[name]
    memory = tiny_checkpoint(family, codec, **shape)
    files = [write_tiny_hf(folder, family, codec, **shape)]
    if name in IN_GGUF:
        files.append(write_tiny_gguf(folder, family, codec, **shape))
    models = [load_model(item, ops) for item in (memory, *map(open_checkpoint, files))]
    expected, *logits = (Session(model, ops).feed(prompt(0)) for model in models)
    for found in logits:
        assert np.array_equal(found, expected), codec
    assert {model.weight_codec for model in models} == {codec}
    assert len({model.max_positions for model in models}) == 1


def codec_in_turn(name: str) -> str:
    return FILE_CODECS[list(CASES).index(name) % 3]


@pytest.mark.parametrize("name", CASES)
def test_gguf_and_safetensors_agree(name: str, kernels: Ops, tmp_path: Path) -> None:
    """Each case with one codec, in turn, on the kernels: what is read of a file is no backend's
    concern."""
    check_files(name, codec_in_turn(name), kernels, tmp_path)


@pytest.mark.matrix
@pytest.mark.parametrize("name", FIRST_OF_FAMILY)
def test_gguf_and_safetensors_agree_in_every_codec(name: str, kernels: Ops, tmp_path: Path) -> None:
    """A case of each family with the codecs that are not its own in the test above: what the other
    cases have of their own is in the names and shapes of tensors, which no codec changes."""
    for codec in FILE_CODECS:
        if codec != codec_in_turn(name):
            check_files(name, codec, kernels, tmp_path)


def test_what_gguf_has_no_word_for_is_not_written(tmp_path: Path) -> None:
    assert NOT_IN_GGUF
    for name in NOT_IN_GGUF:
        family, shape = CASES[name]
        with pytest.raises(UnsupportedModelError, match=r"config key '?\w+"):
            write_tiny_gguf(tmp_path / name, family, **shape)


@pytest.mark.parametrize(
    # A GGUF file has llama3's divisors alone; only the published numbers are found again in them.
    "name",
    [name for name in IN_GGUF if not name.endswith("llama3")],
)
def test_a_folder_written_from_a_file_is_the_same_model(
    name: str, kernels: Ops, tmp_path: Path
) -> None:
    family, shape = CASES[name]
    file = open_checkpoint(write_tiny_gguf(tmp_path, family, **shape))
    write_hf_folder(file, tmp_path / "out")
    models = [load_model(item, kernels) for item in (file, open_checkpoint(tmp_path / "out"))]
    of_file, of_folder = (Session(model, kernels).feed(prompt(0)) for model in models)
    assert np.array_equal(of_file, of_folder)
    assert models[0].config.windows == models[1].config.windows


@pytest.mark.parametrize("family", tiny_family_names())
def test_a_q8_0_file_is_the_model_in_memory(
    family: str, every_ops: list[Ops], tmp_path: Path
) -> None:
    checkpoint = tiny_checkpoint(family, "Q8_0")
    path = write_tiny_gguf(tmp_path, family, "Q8_0")
    for ops in every_ops:
        models = [load_model(c, ops) for c in (checkpoint, open_checkpoint(path))]
        in_memory, of_file = (Session(model, ops).feed(prompt(0)) for model in models)
        assert np.array_equal(in_memory, of_file), ops
        assert models[1].weight_codec == "Q8_0", ops


def test_the_tokenizer_of_both_files_is_the_byte_tokenizer(tmp_path: Path) -> None:
    from headrace.weights.checkpoint import Checkpoint

    folder: Checkpoint = open_checkpoint(write_tiny_hf(tmp_path))
    file: Checkpoint = open_checkpoint(write_tiny_gguf(tmp_path))
    assert folder.eos_token_ids == file.eos_token_ids == (257, 259)
    assert folder.chat_templates == file.chat_templates
    assert folder.tokenizer.kind == "tokenizer.json"
    assert file.tokenizer.kind == "gguf"
    assert len(file.tokenizer.gguf["tokens"]) == 288
