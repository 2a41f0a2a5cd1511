"""Values of `tokenizer.ggml.*` whose type is wrong are refused where the file is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import CheckpointError
from headrace.weights.open import open_checkpoint

from .builders import hf_arrays, write_gguf_with_library


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("bos_token_id", "x", "an integer"),
        ("eot_token_id", True, "an integer"),
        ("fim_pre_token_id", 2.0, "an integer"),
        ("add_bos_token", "yes", "a bool"),
        ("add_space_prefix", 1, "a bool"),
    ],
)
def test_ids_are_integers_and_switches_are_bools(
    tmp_path: Path, key: str, value: Any, kind: str
) -> None:
    key = f"tokenizer.ggml.{key}"
    path = write_gguf_with_library(tmp_path / "m.gguf", hf_arrays(), extra={key: value})
    with pytest.raises(CheckpointError, match=f"metadata '{key}' is {value!r}; {kind} is required"):
        open_checkpoint(path)


def test_a_list_is_no_switch(tmp_path: Path) -> None:
    extra = {"tokenizer.ggml.add_eos_token": [True]}
    path = write_gguf_with_library(tmp_path / "m.gguf", hf_arrays(), extra=extra)
    with pytest.raises(CheckpointError, match="is an array; a single value is required"):
        open_checkpoint(path)
