"""The program that times a step without a model: its steps compute, and none fails unseen."""

from __future__ import annotations

import pytest

from benchmarks.engine_overhead import GEMMA3_4B, NoModel, NoOps, decode_step_us, prefill_step_us


@pytest.mark.parametrize("model", [NoModel(), NoModel(GEMMA3_4B)], ids=["one", "34 tables"])
def test_decode_steps_are_timed(model: NoModel) -> None:
    assert decode_step_us(3, 40, model, steps=5, temperature=0.0) > 0


def test_prefill_steps_are_timed() -> None:
    assert prefill_step_us(2048) > 0


def test_a_request_that_fails_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise AttributeError("no such operation")

    monkeypatch.setattr(NoOps, "sample", broken)
    with pytest.raises(RuntimeError, match=r"request 0 ended while steps were timed: error"):
        decode_step_us(1, 40, steps=5, temperature=0.0)
