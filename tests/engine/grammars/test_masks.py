"""Where masks are made: before the pass where that is quick, else beside it, with the same bits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.engine.grammars import masks
from headrace.engine.grammars.masks import MaskMaker
from tests.engine.drafts.test_drafts import check_same, run
from tests.engine.drafts.test_forced_spans import core_of, made
from tests.engine.grammars.test_grammars import regex
from tests.engine.mock import drain, submit
from tests.engine.plans import prompt


def test_masks_made_in_the_thread_are_those_made_before_the_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submits = made(10, 4)
    before = core_of(scheduling_policy="priority")
    expected = run(before, submits)
    assert before._runner._masks._executor is None
    monkeypatch.setattr(masks, "AT_ONCE_S", -1.0)
    beside = core_of(scheduling_policy="priority")
    check_same(run(beside, submits), expected)
    assert beside._runner._masks._executor is not None


def ticks(each_s: float) -> Iterator[float]:
    now_s = 0.0
    while True:
        yield now_s
        now_s += each_s


def test_masks_that_take_long_go_to_the_thread_and_come_back_to_be_measured() -> None:
    core = core_of(speculative_config="none")
    clock = ticks(0.05)
    core._runner._masks = maker = MaskMaker(lambda: next(clock))
    core.submit(submit("r", prompt(5), grammar=regex("[a-d]{200}"), max_tokens=200))
    for _ in range(1000):  # it is compiled in a thread of its own
        if maker._mask_s:
            break
        core.step()
    # The first took 50 ms by that clock, of which a tenth is believed.
    assert maker._mask_s == pytest.approx(0.005)
    assert maker._executor is None
    core.step()
    assert maker._executor is not None
    drain(core)
    # 80 steps later a mask is expected to take 1 ms, is made before the pass, and is slow again.
    assert 0.001 < maker._mask_s < 0.01
