"""Rates and latency models are found again from what they gave, noise and all."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from headrace.errors import ConfigError
from headrace.plan.calibration.errors import checked, self_checked, spread
from headrace.plan.calibration.fitting import fit, observed, predict
from headrace.plan.calibration.latency_fit import fit_latency, terms_of
from headrace.plan.calibration.measurements import EngineTest, MeasurementSet
from headrace.plan.step.latency_model import LatencyModel
from headrace.plan.step.step import StepWork
from headrace.plan.step.step_rates import StepRates
from tests.plan.calibrations import BF16, LARGE, SMALL, TESTS, TRUE, measured, of_all_kinds

WORK = StepWork(
    weight_bytes=10.0, kv_bytes=2.0, state_bytes=1.0, weight_operations=100.0,
    attention_operations=20.0, state_operations=4.0, head_bytes=4.0, head_operations=10.0,
    product_values=7.0, scores=1.0, logits=5.0, layers=3,
)  # fmt: skip


def mean_error(sets: list[MeasurementSet], rates: dict[str, StepRates]) -> float:
    found = spread(row.error for row in checked(rates, sets))
    assert found is not None
    return found.mean


def test_a_step_by_hand() -> None:
    rates = StepRates(
        bandwidth_bytes_per_s=2.0, operations_per_s=30.0, overlap=2.0, kv_bytes_per_s=1.0,
        attention_operations_per_s=14.0, value_s=0.1, logit_s=0.01, layer_s=1.0, step_s=0.5,
    )  # fmt: skip
    # Layers: 3 s to read, 3 s to multiply; head: 2 s and a third; attention: 3 s, 56/14 = 4 s.
    joined = 18**0.5 + (4 + 1 / 9) ** 0.5 + 5.0
    assert rates.time(WORK).seconds == pytest.approx(joined + 0.7 + 0.05 + 3.5)
    assert rates.time(WORK, communication_s=1.0, devices=2).seconds == pytest.approx(
        (joined + 0.75) / 2 + 3.5 + 1.0
    )
    assert rates.slowed(2).time(WORK).seconds == pytest.approx(2 * rates.time(WORK).seconds)


@pytest.mark.parametrize("overlap", [1.0, 1e300])
def test_overlap_goes_from_one_after_the_other_to_the_roofline(overlap: float) -> None:
    rates = StepRates(
        bandwidth_bytes_per_s=1.0, operations_per_s=1.0, overlap=overlap, kv_bytes_per_s=1.0,
        attention_operations_per_s=1.0, value_s=0.0, logit_s=0.0, layer_s=0.0, step_s=0.0,
    )  # fmt: skip
    work = StepWork(
        weight_bytes=3.0, kv_bytes=0.0, state_bytes=0.0, weight_operations=4.0,
        attention_operations=0.0, state_operations=0.0,
    )  # fmt: skip
    assert rates.time(work).seconds == pytest.approx(7.0 if overlap == 1 else 4.0)


def test_rates_are_found_again() -> None:
    sets = of_all_kinds(SMALL) + of_all_kinds(LARGE)
    found = fit(observed(sets))
    for kind, true in TRUE.items():
        one = found.rates[kind]
        for name in ("bandwidth_bytes_per_s", "operations_per_s", "kv_bytes_per_s",
                     "attention_operations_per_s"):  # fmt: skip
            assert getattr(one, name) == pytest.approx(getattr(true, name), rel=0.05), name
        assert one.overlap == pytest.approx(true.overlap, abs=0.2)
    assert mean_error(sets, found.rates) < 0.005
    assert found.seconds == pytest.approx(predict(found.rates, observed(sets)))


@pytest.mark.parametrize("seed", [1, 2])
def test_noise_stays_noise(seed: int) -> None:
    sets = of_all_kinds(SMALL, noise=0.05, seed=seed) + of_all_kinds(LARGE, noise=0.05, seed=seed)
    found = fit(observed(sets))
    rows = self_checked(sets, found)
    errors = [spread(getattr(row, name) for row in rows)
              for name in ("error", "left_out_error", "other_model_error")]  # fmt: skip
    assert all(one is not None and one.rows == len(rows) for one in errors)
    means = [one.mean for one in errors if one is not None]
    # Noise of 5 % is 4 % on average; a test alone is predicted hardly worse than among all.
    assert means[0] < 0.05 and means[0] <= means[1] < 0.06 and means[2] < 0.07
    exact = of_all_kinds(SMALL) + of_all_kinds(LARGE)
    assert mean_error(exact, found.rates) < 0.03


@pytest.mark.parametrize(("known", "other"), [(SMALL, LARGE), (LARGE, SMALL)])
def test_one_model_predicts_the_other(known: str, other: str) -> None:
    rates = fit(observed(of_all_kinds(known, noise=0.03))).rates
    assert mean_error(of_all_kinds(other), rates) < 0.06


def test_a_disturbed_test_does_not_bend_the_rest() -> None:
    clean = measured()
    slow = msgspec.structs.replace(clean.rows[7], tokens_per_s=clean.rows[7].tokens_per_s / 3)
    rows = (*clean.rows[:7], slow, *clean.rows[8:])
    found = fit(observed([msgspec.structs.replace(clean, rows=rows)]))
    assert mean_error([clean], found.rates) < 0.03


def test_an_unknown_kind_is_refused() -> None:
    rates = fit(observed([measured()])).rates
    with pytest.raises(ConfigError, match=r"no measurements of BF16 .* only of Q8_0"):
        checked(rates, [measured(kind="BF16")])
    with pytest.raises(ConfigError, match="nothing to fit"):
        fit(())


def test_a_kind_with_one_test_has_no_error_without_it() -> None:
    sets = [measured(), measured(kind="BF16", tests=TESTS[:1])]
    rows = self_checked(sets, fit(observed(sets)))
    assert rows[-1].left_out_error is None and rows[0].left_out_error is not None
    assert {row.other_model_error for row in rows} == {None}


LINE = LatencyModel(
    step_s=0.01,
    prefill_token_s=1e-3,
    prefill_pair_s=1e-7,
    decode_request_s=1e-3,
    decode_context_token_s=2e-6,
)


def test_a_latency_model_is_found_again() -> None:
    base = measured()
    draw = np.random.default_rng(0)
    rows = []
    for row in base.rows:
        seconds = sum(
            a * b
            for a, b in zip(
                terms_of(row.test, base.step_tokens),
                (LINE.step_s, LINE.prefill_token_s, LINE.prefill_pair_s, LINE.decode_request_s,
                 LINE.decode_context_token_s), strict=True,
            )
        )  # fmt: skip
        rate = float(row.test.tokens / seconds * np.exp(draw.normal(0, 0.02)))
        rows.append(msgspec.structs.replace(row, tokens_per_s=rate))
    found = fit_latency(msgspec.structs.replace(base, rows=tuple(rows)))
    assert found is not None
    for name in ("step_s", "prefill_token_s", "prefill_pair_s", "decode_request_s",
                 "decode_context_token_s"):  # fmt: skip
        assert getattr(found.model, name) == pytest.approx(getattr(LINE, name), rel=0.1), name
    assert max(map(abs, found.errors)) < 0.08
    assert "Qwen3 0.6B Q8_0, 2026-11-22" in found.model.source


def test_a_latency_model_s_terms_are_its_own_steps() -> None:
    # 700 tokens after 64, in steps of 512, then 3 decodes of 2 requests.
    terms = terms_of(EngineTest(700, 3, 2, 64), 512)
    prefill = LINE.step([(64, 700), (64, 700)], 0, 0) + 2 * LINE.step_s
    decode = sum(LINE.step((), 2, 2 * (764 + at)) for at in range(3))
    values = (LINE.step_s, LINE.prefill_token_s, LINE.prefill_pair_s, LINE.decode_request_s,
              LINE.decode_context_token_s)  # fmt: skip
    total = sum(a * b for a, b in zip(terms, values, strict=True))
    assert total == pytest.approx(prefill + decode)


def test_too_few_tests_give_no_latency_model() -> None:
    assert fit_latency(measured(tests=TESTS[:4])) is None


def test_steps_add_up_to_the_test() -> None:
    for test in TESTS:
        steps = [one for row in measured(tests=(test,)).rows for one in row.steps]
        if test.prompt and not test.new:
            assert sum(one.count for one in steps) == -(-test.tokens // 512)
        if not test.prompt:
            (one,) = steps
            assert one.count == test.new and one.work.logits == test.batch * 151_936
    assert BF16.time(WORK).seconds > 0
