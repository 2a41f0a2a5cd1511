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
from tests.models.cases import CASES, IN_GGUF, NOT_IN_GGUF, PROMPT_TOKENS, Session, prompt
from tests.tiny import tiny_checkpoint, write_tiny_gguf, write_tiny_hf
from tests.tiny_families import tiny_family_names

FILE_CODECS = ("F32", "F16", "BF16")
SHORT_PROMPT_TOKENS = 40
PROMPT_LENGTHS = [
    SHORT_PROMPT_TOKENS,
    pytest.param(PROMPT_TOKENS, marks=pytest.mark.matrix, id="whole prompt"),
]
"""Cheap in every run; longer than an attention span in the matrix."""


def check_files(
    name: str, codec: str, backends: list[Ops], folder: Path, prompt_tokens: int = PROMPT_TOKENS
) -> None:
    """The folder, and the GGUF file if it can state the case, are the model in memory."""
    family, shape = CASES[name]
    memory = tiny_checkpoint(family, codec, **shape)
    files = [write_tiny_hf(folder, family, codec, **shape)]
    if name in IN_GGUF:
        files.append(write_tiny_gguf(folder, family, codec, **shape))
    for ops in backends:
        models = [load_model(item, ops) for item in (memory, *map(open_checkpoint, files))]
        expected, *logits = (
            Session(model, ops).feed(prompt(0)[:prompt_tokens]) for model in models
        )
        for found in logits:
            assert np.array_equal(found, expected), (codec, ops)
        assert {model.weight_codec for model in models} == {codec}, ops
        assert len({model.max_positions for model in models}) == 1, ops


@pytest.mark.parametrize("name", CASES)
def test_gguf_and_safetensors_agree(name: str, kernels: Ops, tmp_path: Path) -> None:
    """The codecs in turn, on a short prompt."""
    codec = FILE_CODECS[list(CASES).index(name) % 3]
    check_files(name, codec, [kernels], tmp_path, SHORT_PROMPT_TOKENS)


@pytest.mark.matrix
@pytest.mark.parametrize("name", CASES)
def test_gguf_and_safetensors_agree_in_every_codec(
    name: str, reference: Ops, kernels: Ops, tmp_path: Path
) -> None:
    """Every case in every codec on the kernels; on the slow reference in one, the codecs in turn.

    What is read of a file is no backend's concern, and each backend meets every codec.
    """
    for index, codec in enumerate(FILE_CODECS, list(CASES).index(name)):
        backends = [kernels, reference] if index % 3 == 0 else [kernels]
        check_files(name, codec, backends, tmp_path)


def test_what_gguf_has_no_word_for_is_not_written(tmp_path: Path) -> None:
    assert NOT_IN_GGUF
    for name in NOT_IN_GGUF:
        family, shape = CASES[name]
        with pytest.raises(UnsupportedModelError, match=r"config key '?\w+"):
            write_tiny_gguf(tmp_path / name, family, **shape)


@pytest.mark.parametrize("prompt_tokens", PROMPT_LENGTHS)
@pytest.mark.parametrize(
    # A GGUF file has llama3's divisors alone; only the published numbers are found again in them.
    "name",
    [name for name in IN_GGUF if not name.endswith("llama3")],
)
def test_a_folder_written_from_a_file_is_the_same_model(
    name: str, prompt_tokens: int, kernels: Ops, tmp_path: Path
) -> None:
    family, shape = CASES[name]
    file = open_checkpoint(write_tiny_gguf(tmp_path, family, **shape))
    write_hf_folder(file, tmp_path / "out")
    models = [load_model(item, kernels) for item in (file, open_checkpoint(tmp_path / "out"))]
    one, other = (Session(model, kernels).feed(prompt(0)[:prompt_tokens]) for model in models)
    assert np.array_equal(one, other)
    assert models[0].config.windows == models[1].config.windows


@pytest.mark.parametrize("prompt_tokens", PROMPT_LENGTHS)
@pytest.mark.parametrize("family", tiny_family_names())
def test_a_q8_0_file_is_the_model_in_memory(
    family: str, prompt_tokens: int, every_ops: list[Ops], tmp_path: Path
) -> None:
    checkpoint = tiny_checkpoint(family, "Q8_0")
    path = write_tiny_gguf(tmp_path, family, "Q8_0")
    for ops in every_ops:
        models = [load_model(c, ops) for c in (checkpoint, open_checkpoint(path))]
        one, other = (Session(model, ops).feed(prompt(0)[:prompt_tokens]) for model in models)
        assert np.array_equal(one, other), ops
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
