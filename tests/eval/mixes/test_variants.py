"""Variants of a model on a disk that takes no more."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.errors import CheckpointError
from headrace.eval.mixes.candidates import Group
from headrace.eval.mixes.variants import Variants
from headrace.ops import make_ops
from headrace.weights.codecs import get_codec
from headrace.weights.gguf.split import read_gguf_model
from tests.tiny import write_tiny_gguf

pytest.importorskip("headrace.ops.cpu._native", exc_type=ImportError)

NAME = "blk.0.attn_q.weight"


@contextmanager
def largest_file(nbytes: int) -> Iterator[None]:
    """Files of this process end there, by the system's own error (EFBIG)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_without_room_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    """Of the logits before a page of them is written, which would end the process."""
    folder = tmp_path / "full"
    folder.mkdir()
    model = write_tiny_gguf(tmp_path, "llama", "F32", layers=1, hidden_size=256)
    file, ops = read_gguf_model(model), make_ops("cpu", threads=1)
    windows = [list(range(32)), list(range(32, 64))]
    message = f"{folder}: the model's logits cannot be kept there .*: File too large; make room"
    with largest_file(4096), pytest.raises(CheckpointError, match=message):
        Variants(file, ops, windows, None, folder=folder, threads=1)
    with Variants(file, ops, windows, None, folder=folder, threads=1) as variants:
        group = Group(NAME, (NAME,), (get_codec("Q8_0"),), (0,), (0.0,))
        message = rf"{folder}: '{NAME}' in Q8_0 cannot be kept there .*: File too large; make room"
        with largest_file(4096), pytest.raises(CheckpointError, match=message):
            variants.divergences([group], group.kinds, [0])
        assert variants.divergences([group], group.kinds, [0]).shape == (15,)
