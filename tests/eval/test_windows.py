"""Windows of a text: how they are cut, and which positions are scored against what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import ConfigError, HeadraceError
from headrace.eval.text import windows_of_file
from headrace.eval.windows import PIECE_TOKENS, WindowRunner, cut_windows
from headrace.models import Model, load_model
from headrace.ops import make_ops
from headrace.ops.kv import RaggedBatch
from tests.models.cases import Session
from tests.tiny import tiny_checkpoint


def test_windows_are_whole_and_begin_with_bos() -> None:
    assert cut_windows(range(10), 4, bos=None) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert cut_windows(range(10), 4, bos=99) == [[99, 1, 2, 3], [99, 5, 6, 7]]
    assert cut_windows(range(10), 4, bos=None, limit=1) == [[0, 1, 2, 3]]
    with pytest.raises(ConfigError, match="3 tokens, fewer than one window of 4"):
        cut_windows(range(3), 4, bos=None)
    with pytest.raises(ConfigError, match="at least 4"):
        cut_windows(range(10), 3, bos=None)


@pytest.mark.parametrize("context", [4, 30, PIECE_TOKENS + 1, 3 * PIECE_TOKENS])
def test_the_second_half_is_scored_against_what_follows(context: int) -> None:
    ops = make_ops("reference")
    model = load_model(tiny_checkpoint(), ops)
    window = [int(i) for i in np.random.default_rng(0).integers(0, 256, context)]
    pieces = list(WindowRunner(model, ops, context).run(3, window))
    assert {piece.window for piece in pieces} == {3}
    logits = np.concatenate([piece.logits for piece in pieces])
    targets = np.concatenate([piece.targets for piece in pieces])
    assert targets.tolist() == window[context // 2 + 1 :]
    whole = Session(model, ops).feed(window)
    assert np.array_equal(logits, whole[context // 2 : -1])


class Broken:
    """A model whose logits become NaN at position 5."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, batch: RaggedBatch, kv: Any) -> Any:
        logits = np.array(self._model.forward(batch, kv))
        logits[batch.positions[batch.logit_rows] == 5, 3] = np.nan
        return logits


def test_logits_that_are_no_numbers_are_an_error() -> None:
    ops = make_ops("reference")
    model: Any = Broken(load_model(tiny_checkpoint(), ops))
    assert list(WindowRunner(model, ops, 6).run(0, [1] * 6)), "position 5 of 6 is not scored"
    with pytest.raises(HeadraceError, match=r"window 2: .* is NaN or infinite"):
        list(WindowRunner(model, ops, 8).run(2, [1] * 8))


def test_a_window_longer_than_the_model_is_refused() -> None:
    ops = make_ops("reference")
    model = load_model(tiny_checkpoint(max_positions=64), ops)
    with pytest.raises(ConfigError, match="--context 65 is more than the 64 tokens"):
        WindowRunner(model, ops, 65)


def test_a_file_is_read_as_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("ab<|eos|>c" * 3, encoding="utf-8")
    (window,) = windows_of_file(tiny_checkpoint(), path, 30)
    assert window == list(path.read_bytes()), "control tokens in a text are text"
    path.write_bytes(b"a\r\nb")
    (window,) = windows_of_file(tiny_checkpoint(), path, 4)
    assert window == list(b"a\r\nb"), "ends of lines are tokens too"
    path.write_bytes(b"ab\xff")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 2"):
        windows_of_file(tiny_checkpoint(), path, 4)
    with pytest.raises(ConfigError, match="No such file"):
        windows_of_file(tiny_checkpoint(), tmp_path / "absent", 4)
