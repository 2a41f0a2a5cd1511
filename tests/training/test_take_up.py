"""A run taken up from its exported file: the same weights but for rounding, and the same note."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from headrace.weights.open import open_checkpoint
from tests.training.test_export import random_weights
from tests.training.toy_training import SHAPE, write_data
from training.export import export, write_gguf
from training.models.config import NOTE_KEY, read_note
from training.take_up import take_up, tokenizer_of

NOTE = {
    "progress": {"step": 12, "tokens": 123_456, "counted_s": 600.0},
    "settings": {"tokens": 123_000},
    "model": asdict(SHAPE),
}


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """`tmp_path` with a toy's run in base, and its export in hf and model.gguf."""
    write_data(tmp_path)
    (tmp_path / "base").mkdir()
    checkpoint = tmp_path / "base" / "checkpoint.safetensors"
    save_file(random_weights(SHAPE), checkpoint, metadata={NOTE_KEY: json.dumps(NOTE)})
    export(tmp_path / "base", tmp_path, tmp_path / "hf", tmp_path / "model.gguf", "toy", "A toy.")
    return tmp_path


def test_a_run_goes_on_from_its_file(exported: Path) -> None:
    first, again = exported / "base" / "checkpoint.safetensors", exported / "again.safetensors"
    take_up(exported / "model.gguf", again)
    before, after = load_file(first), load_file(again)
    assert before.keys() == after.keys()
    for name, weight in before.items():
        # Q8_0 has 127 steps for the largest value of a block: at most half a step is lost.
        assert np.abs(after[name] - weight).max() <= np.abs(weight).max() / 127
    progress = read_note(again)["progress"]
    assert progress == NOTE["progress"] | {"taken_up_tokens": [123_456]}
    assert read_note(again)["settings"] == NOTE["settings"]
    assert read_note(again)["model"] == NOTE["model"]


def test_exported_again_it_is_the_same_model(exported: Path) -> None:
    again = exported / "again" / "checkpoint.safetensors"
    take_up(exported / "model.gguf", again)
    export(again.parent, exported, exported / "hf2", exported / "again.gguf", "toy", "A toy.")
    third = exported / "third.safetensors"
    take_up(exported / "again.gguf", third)
    for name, weight in load_file(again).items():
        np.testing.assert_array_equal(load_file(third)[name], weight)
    assert read_note(third)["progress"]["taken_up_tokens"] == [123_456, 123_456]


def test_a_checkpoint_is_not_replaced(exported: Path) -> None:
    with pytest.raises(FileExistsError, match="move it away"):
        take_up(exported / "model.gguf", exported / "base" / "checkpoint.safetensors")


def test_a_file_that_does_not_say_how_it_was_trained_is_refused(exported: Path) -> None:
    write_gguf(exported / "hf", exported / "silent.gguf", {})
    with pytest.raises(ValueError, match=r"silent\.gguf has no metadata key 'headrace.training'"):
        take_up(exported / "silent.gguf", exported / "none.safetensors")


def test_the_tokenizer_is_the_one_that_was_trained(exported: Path) -> None:
    trained = Tokenizer.from_file(str(exported / "tokenizer" / "tokenizer.json"))
    again = tokenizer_of(open_checkpoint(exported / "model.gguf"))
    text = "def f(x):\n    return [x, 'é'] <|im_end|><think>  \t"
    assert again.encode(text).ids == trained.encode(text).ids
    assert again.get_vocab() == trained.get_vocab()
    assert again.decode(again.encode(text).ids) == trained.decode(trained.encode(text).ids)
