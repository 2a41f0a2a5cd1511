"""Steps that are repeated beside steps that are computed anew."""

from __future__ import annotations

import json

import pytest

from benchmarks import repeated_steps
from benchmarks.speculation.decoding import Decoded
from tests.tiny import write_tiny_gguf


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    model = write_tiny_gguf(tmp_path_factory.mktemp("tiny"), max_positions=2048)
    return [str(model), "--streams", "1", "2", "--pairs", "1", "--tokens", "8", "--json"]


def test_both_engines_give_the_same_answers(
    few: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert repeated_steps.main(few) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [cell["streams"] for cell in cells] == [1, 2]
    for cell in cells:
        anew, repeated = cell["tokens_per_s"]
        assert anew > 0 and cell["ratios"] == [pytest.approx(repeated / anew)]


def test_another_answer_is_told(few: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(range(100))

    def other(*_: object, **__: object) -> Decoded:
        return Decoded(((next(answers),),), 1.0, 1, 1.0, 0, 0, 0)

    monkeypatch.setattr(repeated_steps, "decode", other)
    with pytest.raises(AssertionError, match="changed an answer"):
        repeated_steps.main(few)
