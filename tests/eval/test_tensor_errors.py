"""Errors of tensors against their formula, and files that cannot be compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.errors import CheckpointError
from headrace.eval.tensor_errors import TensorError, tensor_errors
from headrace.weights.codecs import F32, get_codec
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.quantize.importance import ColumnSums, ImportanceFile
from headrace.weights.tensors.source import source_of_array
from tests.weights.quantize.models import METADATA

ROWS, WIDTH = 8, 256
MATRIX, STACK, NORM = "blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight", "blk.0.attn_norm.weight"
Q4_K = get_codec("Q4_K")


def values() -> dict[str, np.ndarray]:
    random = np.random.default_rng(2)
    return {
        MATRIX: random.standard_normal((ROWS, WIDTH)).astype(np.float32),
        STACK: random.standard_normal((3, ROWS, WIDTH)).astype(np.float32),
        NORM: np.ones(WIDTH, np.float32),
    }


def written(path: Path, arrays: dict[str, np.ndarray], *, small: bool = False) -> Path:
    sources = [
        source_of_array(array, name, Q4_K if small and array.ndim > 1 else F32)
        for name, array in arrays.items()
    ]
    write_gguf_file(path, METADATA, sources)
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A file and its source."""
    return (
        written(tmp_path / "small.gguf", values(), small=True),
        written(tmp_path / "source.gguf", values()),
    )


def by_name(tensors: tuple[TensorError, ...]) -> dict[str, TensorError]:
    return {tensor.name: tensor for tensor in tensors}


def test_the_error_is_that_of_its_formula(pair: tuple[Path, Path]) -> None:
    got = tensor_errors(*pair)
    found = by_name(got.tensors)
    x = values()[MATRIX].astype(np.float64)
    y = Q4_K.decode(Q4_K.encode(values()[MATRIX]))
    expected = np.sqrt(((y - x) ** 2).sum() / (x**2).sum())
    assert found[MATRIX].relative_rmse == pytest.approx(expected)
    assert 0.03 < found[MATRIX].relative_rmse < 0.1, "what four bits do to normal values"
    assert found[MATRIX].largest == pytest.approx(np.abs(y - x).max())
    assert (found[MATRIX].base_kind, found[MATRIX].kind) == ("F32", "Q4_K")
    assert found[MATRIX].bits_per_weight == 4.5 and found[MATRIX].values == ROWS * WIDTH
    assert found[NORM].relative_rmse == 0.0 and got.exact == 1
    squares = [found[name].relative_rmse ** 2 * values()[name].size for name in found]
    count = sum(array.size for array in values().values())
    assert got.relative_rmse == pytest.approx(np.sqrt(sum(squares) / count))


def test_the_error_of_a_file_does_not_depend_on_the_units_of_importance(
    pair: tuple[Path, Path],
) -> None:
    """A matrix whose inputs are large says no more of the file, nor does one without importance."""

    def of_file(scale: float) -> float:
        columns = np.full((1, WIDTH), scale, np.float32)
        sums = {MATRIX: ColumnSums(columns, np.array([1], np.float32))}
        return tensor_errors(*pair, ImportanceFile(sums)).relative_rmse

    assert of_file(1e6) == pytest.approx(of_file(1.0)) == pytest.approx(of_file(1e-6))


def test_importance_weighs_columns_of_each_matrix_of_a_stack(pair: tuple[Path, Path]) -> None:
    random = np.random.default_rng(3)
    squares = (random.standard_normal((3, WIDTH)) ** 2).astype(np.float32)
    sums = {STACK: ColumnSums(squares, np.array([1, 2, 4], np.float32))}
    found = by_name(tensor_errors(*pair, ImportanceFile(sums)).tensors)
    x = values()[STACK].astype(np.float64)
    y = Q4_K.decode(Q4_K.encode(values()[STACK].reshape(-1, WIDTH))).reshape(x.shape)
    w = (squares / np.array([[1], [2], [4]]))[:, None, :]
    expected = np.sqrt((w * (y - x) ** 2).sum() / (w * x**2).sum())
    assert found[STACK].relative_rmse == pytest.approx(expected, rel=1e-5)
    assert found[STACK].weighted and not found[MATRIX].weighted


def test_files_of_other_models_are_refused(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    small, source = pair
    fewer = {name: array for name, array in values().items() if name != MATRIX}
    written(tmp_path / "fewer.gguf", fewer)
    with pytest.raises(CheckpointError, match=r"'blk.0.attn_q.weight' is missing, which"):
        tensor_errors(tmp_path / "fewer.gguf", source)
    extra = tensor_errors(source, tmp_path / "fewer.gguf")
    assert extra.extra == (MATRIX,) and extra.relative_rmse == 0.0
    wider = values() | {MATRIX: np.ones((ROWS, 2 * WIDTH), np.float32)}
    written(tmp_path / "wider.gguf", wider)
    with pytest.raises(CheckpointError, match=r"shape \(8, 512\), in .* \(8, 256\)"):
        tensor_errors(tmp_path / "wider.gguf", source)
    sums = {MATRIX: ColumnSums(np.ones((1, 3), np.float32), np.ones(1, np.float32))}
    with pytest.raises(CheckpointError, match="256 columns, its importance 1 of 3"):
        tensor_errors(small, source, ImportanceFile(sums))


def test_a_value_that_is_not_finite_is_named(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    damaged = values()
    damaged[MATRIX][5, 7] = np.nan
    path = written(tmp_path / "damaged.gguf", damaged)
    with pytest.raises(CheckpointError, match=r"attn_q.weight': rows 0 to 7 hold NaN"):
        tensor_errors(path, pair[1])
