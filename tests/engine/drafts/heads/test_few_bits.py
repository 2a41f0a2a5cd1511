"""A head in few bits: what it is stored in, and what is told of it before."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from headrace.engine.drafts.heads import few_bits
from headrace.engine.drafts.heads.few_bits import check_finite, few_bits_bytes, in_few_bits
from headrace.errors import CheckpointError
from headrace.weights.hugging_face.head_folder import HeadFolder, open_head_folder
from tests.tiny import tiny_config, to_tensor
from tests.tiny_heads import eagle3_config, write_eagle3


def folder_in(path: Path, **tensors: np.ndarray) -> HeadFolder:
    return open_head_folder(write_eagle3(path, eagle3_config(tiny_config("llama")), **tensors))


def test_matrices_are_near_what_they_were_and_vectors_are_the_same(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    made = in_few_bits(folder, 2)
    assert list(made.tensors) == list(folder.tensors)
    assert made.checkpoint.nbytes == few_bits_bytes(folder) < 0.4 * folder.checkpoint.nbytes
    for name, tensor in made.tensors.items():
        before, after = folder.tensors[name].to_f32(), tensor.to_f32()
        if len(tensor.shape) < 2:
            assert np.array_equal(after, before)
        else:
            assert tensor.codec.name == "Q8_0"  # rows of 64 hold no block of 256
            assert np.abs(after - before).max() <= np.abs(before).max() / 200


@pytest.mark.parametrize("order", [None, np.array([3, 8, 0], np.int32)])
def test_values_are_looked_at_in_pieces(
    order: npt.NDArray[np.int32] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row that a tensor has, and no other."""
    monkeypatch.setattr(few_bits, "PIECE_VALUES", 128)  # two rows
    checkpoint = folder_in(tmp_path).checkpoint
    check_finite(checkpoint, 2)
    for row in range(9):
        values = np.ones((9, 64), np.float32)
        values[row, 5] = np.inf
        tensor = to_tensor("x", values, "F32")
        tensor = tensor if order is None else tensor.select_rows(order)
        spoiled = replace(checkpoint, tensors={**checkpoint.tensors, "x": tensor})
        has_it = order is None or row in order
        with pytest.raises(CheckpointError, match="x holds") if has_it else nullcontext():
            check_finite(spoiled, 1)


def test_a_tensor_that_is_not_finite_is_named(tmp_path: Path) -> None:
    spoiled = folder_in(tmp_path, **{"norm.weight": np.full(64, np.inf, np.float32)})
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight holds NaN or infinity"):
        in_few_bits(spoiled, 1)
