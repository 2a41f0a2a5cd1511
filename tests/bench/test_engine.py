"""`bench engine` over the mock: what is computed while the clock runs, and what follows from it."""

from __future__ import annotations

import math

import pytest

from headrace.bench.engine import Case, check_fits, combined, run_case
from headrace.engine.core import EngineCore
from headrace.errors import ConfigError, HeadraceError
from headrace.telemetry.machine import Machine, PeakRate, ReadBandwidth
from tests.engine.mock import MockModel, make_core


class Clock:
    """Tells how many tokens the model has computed, as seconds."""

    def __init__(self, model: MockModel) -> None:
        self._model = model

    def __call__(self) -> float:
        return float(len(self._model.computed))


def engine(model: MockModel) -> EngineCore:
    return make_core(model, max_num_batched_tokens=64, max_num_seqs=8, num_gpu_blocks_override=200)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("depth", [0, 48])
@pytest.mark.parametrize(("prompt", "new"), [(100, 0), (0, 20), (100, 20)])
def test_only_what_is_asked_for_is_timed(prompt: int, new: int, batch: int, depth: int) -> None:
    model = MockModel()
    core = engine(model)
    case = Case(prompt, new, batch, depth)
    result = run_case(core, case, repeats=2, clock=Clock(model))
    assert result.tokens_per_s == pytest.approx(1.0), "a second a token: each timed token is one"
    assert (result.least_tokens_per_s, result.most_tokens_per_s) == (1.0, 1.0)
    assert (result.test, result.batch, result.repeats) == (case.name, batch, 2)
    assert result.bytes_per_s > 0 and result.ops_per_s > 0
    assert math.isclose(result.intensity, result.ops_per_s / result.bytes_per_s)
    assert result.mbu is None and result.mfu is None
    core.check()
    assert core.stats().blocks_owned == 0 and not core.has_work
    exact = make_core(
        MockModel(max_positions=case.positions),
        max_num_batched_tokens=64,
        max_num_seqs=8,
        num_gpu_blocks_override=200,
    )
    run_case(exact, case, repeats=1)


def test_nothing_of_a_prompt_is_in_the_cache_from_another_test() -> None:
    """Prompts of one seed that begin alike would be, and what is found there takes no time."""
    model = MockModel()
    core = engine(model)
    for case in (Case(32, 0, 1, 0), Case(100, 0, 1, 0), Case(100, 0, 2, 0), Case(100, 4, 1, 0)):
        for first in (0, 2):
            result = run_case(core, case, repeats=1, clock=Clock(model), first=first)
            assert result.tokens_per_s == pytest.approx(1.0), (case, first)


def test_decoding_takes_a_step_a_token() -> None:
    model = MockModel()
    result = run_case(engine(model), Case(0, 10, 4, 16), repeats=1, clock=Clock(model))
    sizes = [len(batch.token_ids) for batch in model.batches]
    assert sizes.count(4) >= 20, "two runs of ten steps, four requests in each"
    assert result.step_operations == pytest.approx(
        sum(4 * (2 * 10 + 2 + 4 * 2 * (17 + step + 1)) for step in range(10)) / 10, abs=1
    )


def test_what_the_cache_cannot_hold_at_once_is_refused() -> None:
    core = engine(MockModel())
    check_fits(core, Case(100, 20, 18, 48))
    with pytest.raises(ConfigError, match=r"--batch 19 needs 211 blocks .* memory for 200"):
        check_fits(core, Case(100, 20, 19, 48))
    with pytest.raises(ConfigError, match="smaller --batch"):
        run_case(core, Case(100, 20, 19, 48), repeats=1)


def test_decoding_that_no_step_computes_together_is_refused() -> None:
    """More requests than a step has tokens: early ones would be done before late ones begin."""
    core = make_core(
        MockModel(), max_num_batched_tokens=4, max_num_seqs=8, num_gpu_blocks_override=200
    )
    assert run_case(core, Case(0, 10, 4, 0), repeats=1).tokens_per_s > 0
    with pytest.raises(HeadraceError, match="of each of 5 requests"):
        run_case(core, Case(0, 10, 5, 0), repeats=1)


def test_a_request_that_fails_ends_the_test() -> None:
    model = MockModel()
    core = engine(model)
    model.raise_on_rows = 1
    with pytest.raises(HeadraceError, match=r"bench-0 failed: .*a fault of the batch"):
        run_case(core, Case(16, 0, 1, 0), repeats=1)


def test_shares_are_of_the_measured_limits() -> None:
    core = engine(MockModel())
    machine = Machine(
        "cpu",
        1,
        1,
        "",
        [ReadBandwidth("mock", 1, 1 << 30, 50.0)],
        [PeakRate("mock", 1, "f32", 8.0)],
    )
    core._machine = machine
    result = run_case(core, Case(32, 0, 1, 0), repeats=1)
    assert result.mbu == pytest.approx(result.bytes_per_s / 50)
    assert result.mfu == pytest.approx(result.ops_per_s / 8)


def test_operations_of_attention_are_held_against_their_own_limit() -> None:
    core = engine(MockModel(weight_codec="Q8_0"))
    peaks = [PeakRate("mock", 1, "f32", 8.0), PeakRate("mock", 1, "int8", 16.0)]
    core._machine = Machine("cpu", 1, 1, "", [ReadBandwidth("mock", 1, 1 << 30, 50.0)], peaks)
    apart = run_case(core, Case(32, 0, 1, 0), repeats=1)
    assert apart.step_attention_operations == sum(8 * (token + 1) for token in range(32))
    share = apart.step_attention_operations / apart.step_operations
    # At half the rate of products they take as long as twice as many.
    assert apart.mfu == pytest.approx(apart.ops_per_s * (1 + share) / 16)


def test_names_and_combinations() -> None:
    assert Case(512, 0, 1, 0).name == "pp512"
    assert Case(0, 128, 4, 4096).name == "tg128 @ d4096"
    assert Case(16, 8, 1, 0).name == "pp16+tg8"
    assert combined([512], [128], [1, 2], [0], together=False) == [
        Case(512, 0, 1, 0), Case(0, 128, 1, 0), Case(512, 0, 2, 0), Case(0, 128, 2, 0),
    ]  # fmt: skip
    assert combined([0], [128], [1], [0], together=False) == [Case(0, 128, 1, 0)]
    assert combined([16], [8], [1], [0], together=True) == [Case(16, 8, 1, 0)]
    assert combined([0], [0], [1], [0], together=True) == []
