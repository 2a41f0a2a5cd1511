"""What drafts were measured to cost: between sizes, beside a plan, in a simulation, of a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import __version__
from headrace.engine.scheduling.step_budget import StepLoad, pairs_of
from headrace.errors import ConfigError
from headrace.plan.calibration.measurements import joined
from headrace.plan.calibration.recorded_steps import (
    is_recording,
    read_recorded,
    with_recorded,
)
from headrace.plan.calibration.stored import Calibration, Found, calibrate
from headrace.plan.simulation.draft_times import DraftTimes
from headrace.plan.speed.speed import Load
from headrace.plan.speed.speed_plan import Draft, speed_plan
from headrace.plan.step.latency_model import LatencyModel
from headrace.plan.step.measured_steps import DraftPasses, MeasuredSteps, PassSize, StepSize
from headrace.telemetry.machine import this_machine
from tests.plan.calibrations import SMALL, measured
from tests.plan.test_calibration_speed import replica

STEPS = MeasuredSteps(
    measured_at="2026-11-22T08:00:00+00:00",
    context_tokens=100,
    steps=(
        StepSize(1, 1, 0.010), StepSize(1, 3, 0.012), StepSize(1, 5, 0.016),
        StepSize(4, 4, 0.013), StepSize(4, 8, 0.020), StepSize(4, 20, 0.040),
    ),
    drafts=(DraftPasses(draft="small", passes=(PassSize(1, 0.001), PassSize(4, 0.002))),),
)  # fmt: skip
LINE = LatencyModel(
    step_s=0.01, prefill_token_s=1e-3, prefill_pair_s=1e-7, decode_request_s=1e-3,
    decode_context_token_s=1e-7,
)  # fmt: skip


def test_between_sizes_a_step_is_on_a_line_and_beyond_them_for_a_while() -> None:
    assert STEPS.seconds(1, 2) == pytest.approx(0.011)
    assert STEPS.seconds(1, 7) == pytest.approx(0.020)
    # Two requests: a third of the way from one to four, with as many drafts.
    assert STEPS.seconds(2, 4) == pytest.approx((2 * 0.012 + 0.0165) / 3)
    assert STEPS.step_ratio(1, 5) == pytest.approx(1.6)
    assert STEPS.knows(1, 9) and not STEPS.knows(1, 10) and not STEPS.knows(5, 10)
    assert STEPS.pass_ratio("small", 4) == pytest.approx(2 / 13)
    assert STEPS.pass_ratio("small", 5) is None and STEPS.pass_ratio("other", 1) is None


@given(
    st.dictionaries(st.integers(1, 15), st.floats(0.1, 9.0), max_size=6),
    st.floats(0.1, 9.0),
    st.integers(2, 40),
)
def test_more_tokens_never_take_less_than_one_each(
    seconds: dict[int, float], plain: float, tokens: int
) -> None:
    sizes = [StepSize(1, 1 + drafts, one) for drafts, one in sorted(seconds.items())]
    steps = MeasuredSteps(measured_at="", context_tokens=1, steps=(StepSize(1, 1, plain), *sizes))
    assert steps.step_ratio(1, tokens) >= 1
    assert steps.added_s(1, tokens, lambda context: 2.0 * context) >= 0


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ((), "no measured steps"),
        ((StepSize(1, 2, 1.0),), "lack the one of a token each"),
        ((StepSize(1, 1, 0.0),), "takes no time"),
        ((StepSize(1, 1, 1.0), StepSize(1, 1, 2.0)), "a size twice"),
    ],
)
def test_what_was_not_measured_is_refused(steps: tuple[StepSize, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        MeasuredSteps(measured_at="", context_tokens=1, steps=steps)


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    return msgspec.structs.replace(
        calibrate([msgspec.structs.replace(measured(noise=0.01), draft_steps=STEPS)]),
        version=__version__,
    )


def test_a_calibration_keeps_them_and_speed_takes_them(calibration: Calibration) -> None:
    again = msgspec.json.decode(msgspec.json.encode(calibration), type=Calibration)
    assert again.models[0].draft_steps == STEPS
    one = replica(Found(again, Path("calibration.json")))
    model = one.model
    plain = model.decode_step(4, 1000).seconds
    added = model.decode_step(4, 1000, 5).seconds - plain
    assert added == pytest.approx(model.decode_step(4, 100).seconds * (40 / 13 - 1))
    # More requests than were measured take what is computed.
    computed = replace(model.setup, measured_steps=None)
    assert model.decode_step(8, 1000, 5) == type(model)(computed).decode_step(8, 1000, 5)

    load = Load(prompt_tokens=64, output_tokens=16, batch=1)
    draft = Draft(name="small", acceptance=0.5, tokens=4, passes="small")
    found = speed_plan(one, load, draft=draft)
    at = found.speculation
    assert at is not None
    plain_here = model.decode_step(1, load.middle_context_tokens).seconds
    share = model.decode_step(1, 100).seconds / plain_here
    assert at.at_batch.verify_ratio == pytest.approx(1 + share * 0.6)
    assert at.at_batch.draft_ratio == pytest.approx(share * 0.1)
    assert at.step_cost.startswith("measured on 2026-11-22 of 1 to 4 requests")
    assert at.draft_cost == at.step_cost
    figures = {one.id: one for one in found.quantities}
    cost, tokens = figures["speed.speculation.cost"], figures["speed.speculation.tokens"]
    assert figures["speed.speculation"].value == pytest.approx(tokens.value / cost.value)
    assert {one.basis for one in cost.inputs if "/ step" in one.name} == {"measured"}
    assert cost.band[0] < cost.value < cost.band[1]


def test_without_a_measurement_the_plan_says_so() -> None:
    found = speed_plan(
        replica(None),
        Load(prompt_tokens=64, output_tokens=16),
        draft=Draft(name="n-grams", acceptance=0.5, tokens=4),
    )
    assert found.speculation is not None
    assert found.speculation.step_cost.startswith("predicted")
    assert found.speculation.draft_cost == "takes no time"
    # Nor does it say that places of drafts are free, as the roofline has it.
    figures = {figure.id: figure for figure in found.quantities}
    cost, gain = figures["speed.speculation.cost"], figures["speed.speculation"]
    assert cost.band[0] <= cost.value and cost.band[1] >= cost.value + 4 * 0.12
    assert gain.band[0] <= gain.value / 1.4


def test_later_results_of_a_model_keep_what_drafts_cost() -> None:
    first = msgspec.structs.replace(measured(), draft_steps=STEPS)
    (both,) = joined([first, measured(seed=1)])
    assert both.draft_steps == STEPS


def test_a_simulated_step_takes_what_drafts_add_and_passes() -> None:
    # Two rows of 3 drafts at a context of 50 each, beside 7 tokens of a prompt.
    load = StepLoad(2, 6, 100, 7, pairs_of(0, 7), 2 * pairs_of(50, 3))
    without = StepLoad(2, 0, 100, 7, pairs_of(0, 7))
    plain = LINE.seconds(StepLoad(2, 0, 200))
    added = plain * (STEPS.step_ratio(2, 8) - 1)
    alone = DraftTimes(steps=STEPS).seconds(LINE, load)
    assert alone == pytest.approx(LINE.seconds(without) + added)
    ratio = STEPS.pass_ratio("small", 2)
    assert ratio is not None
    passes = DraftTimes(steps=STEPS, draft="small").seconds(LINE, load) - alone
    assert passes == pytest.approx(3 * ratio * plain)
    assert DraftTimes(steps=STEPS).seconds(LINE, without) == LINE.seconds(without)
    beyond = StepLoad(9, 9, 900, 0, 0, 9 * pairs_of(100, 1))
    assert DraftTimes(steps=STEPS).seconds(LINE, beyond) == LINE.seconds(beyond)


def recording(**changes: Any) -> str:
    cpu, cpus, memory_bytes = this_machine()
    on = {"cpu": cpu, "cpus": cpus, "memory_bytes": memory_bytes, "version": __version__,
          "date": "2026-11-29"}  # fmt: skip
    said = {
        "model": SMALL, "draft": "models/small", "context": 64, "on": on,
        "steps": [
            {"batch": 1, "tokens": 1, "seconds": [0.2, 0.1, 9.0]},
            {"batch": 1, "tokens": 2, "seconds": [0.3]},
        ],
        "passes": [{"tokens": 1, "seconds": [0.02]}],
    }  # fmt: skip
    return json.dumps(said | changes)


def test_a_recording_is_added_to_its_model(calibration: Calibration, tmp_path: Path) -> None:
    path = tmp_path / "recorded.json"
    path.write_text(recording(model="elsewhere/" + calibration.models[0].model), "utf-8")
    assert is_recording(path)
    found = with_recorded(calibration, [read_recorded(path)]).models[0].draft_steps
    assert found is not None and found.day == "2026-11-29" and found.context_tokens == 64
    assert found.step_ratio(1, 2) == pytest.approx(1.5)
    assert found.pass_ratio("small", 1) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"on": {"cpu": "other", "cpus": 1, "memory_bytes": 1, "version": __version__,
                 "date": ""}}, "another machine"),
        ({"steps": []}, "no measured steps"),
        ({"steps": [{"batch": 1, "tokens": 1, "seconds": []}]}, "is not a recording"),
        ({"model": "unknown"}, "not calibrated"),
    ],
)  # fmt: skip
def test_a_recording_of_something_else_is_refused(
    calibration: Calibration, tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    path = tmp_path / "recorded.json"
    path.write_text(recording(**changes), "utf-8")
    with pytest.raises(ConfigError, match=says):
        with_recorded(calibration, [read_recorded(path)])
