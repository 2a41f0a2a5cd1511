"""Samples behind the plots, worked out by hand."""

from __future__ import annotations

import pytest

from headrace.bench.definitions import DEFINITIONS, Clock
from headrace.bench.record import Failure
from headrace.bench.report.samples import RunSamples
from headrace.bench.summary import summarize
from tests.bench.report.synthetic import simulated
from tests.bench.streams import MS, run, steady, stream

PAIR = run(
    steady(3, 100, 100, start_ms=0, index=0),
    steady(3, 50, 100, start_ms=500, intended_ms=200, index=1),
    stream((5, "text", "a"), end_ms=60, failure=Failure("truncated", "gone"), index=2),
    steady(2, 9, 9, index=3, measured=False),
)


def test_values_from_both_clocks() -> None:
    got = RunSamples(PAIR)
    assert values(got, "ttft") == [50, 100] and values(got, "ttft", "intended") == [100, 350]
    assert values(got, "itl_chunk") == [100] * 4
    assert [value for _, value in got.by_request("e2e", "intended")] == [300, 550]
    assert got.by_request("itl_chunk", "sent") == [] and got.values_ms("tps_user", "sent") is None
    assert got.has_two_clocks() and [one.index for one in got.failures] == [2]


def values(of: RunSamples, canonical: str, clock: Clock = "sent") -> list[float]:
    found = of.values_ms(canonical, clock)
    assert found is not None
    return [round(float(one), 6) for one in found.ordered]


def test_a_microsecond_makes_no_second_clock() -> None:
    late = [steady(2, 10, 10, sent_ms=at / 1000, index=at) for at in (0, 3, 4999)]
    assert not RunSamples(run(*late)).has_two_clocks()
    assert RunSamples(run(*late, steady(2, 10, 10, sent_ms=5.1, index=3))).has_two_clocks()


def test_the_span_and_what_ran_beside() -> None:
    got = RunSamples(PAIR)
    assert (got.began_s, got.ended_s) == (0, 0.75)
    # In flight: 0 to 300 and the failed one 0 to 60, then 500 to 750.
    assert got.in_flight_at([0, 30 * MS, 60 * MS, 400 * MS, 501 * MS]) == [0, 2, 1, 0, 1]


def test_gaps_and_tokens_have_their_time() -> None:
    at, gaps = RunSamples(PAIR).gaps
    assert list(at) == pytest.approx([0.2, 0.3, 0.65, 0.75]) and list(gaps) == [100] * 4
    moments, tokens = RunSamples(PAIR).token_moments
    assert len(moments) == 7 and tokens.sum() == 7


def test_steady_seconds_agree_with_the_summary() -> None:
    made = simulated(requests=150, rate=8, failing=0, metrics=False)
    summary = summarize(made)
    seconds = RunSamples(made).steady_tokens_per_s()
    assert summary.steady is not None
    assert seconds.size == int(summary.steady.end_s - summary.steady.start_s)
    assert seconds.mean() == pytest.approx(summary.steady.tokens_per_s)


@pytest.mark.parametrize("name", list(DEFINITIONS))
def test_distributions_are_of_these_samples(name: str) -> None:
    made = simulated(requests=40, metrics=False)
    under = DEFINITIONS[name]
    summary, samples = summarize(made, definition=under), RunSamples(made, under)
    for metric in under.metrics:
        if (
            metric.canonical is None
            or metric.each == "rate"
            or metric.name not in summary.from_sent
        ):
            continue
        most = values(samples, metric.canonical)[-1]
        assert most == pytest.approx(summary.from_sent[metric.name].distribution.most)


def test_an_empty_run() -> None:
    got = RunSamples(run())
    assert (got.began_s, got.ended_s) == (0, 0) and got.in_flight_at([1]) == [0]
    assert got.gaps[0].size == 0 and got.steady_tokens_per_s().size == 0
