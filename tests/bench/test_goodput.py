"""Which requests are good: errors, one-token outputs, cut-off requests, both clocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bench.definitions import DEFINITIONS
from headrace.bench.goodput import Goodput, judge
from headrace.bench.record import Failure, RequestRecord
from headrace.bench.slo import parse_slo
from headrace.errors import ConfigError
from tests.bench.streams import records, steady, stream, unhurried

FAILED = Failure("http", "HTTP 503")
CUT_OFF = Failure("cancelled", "the run ended")


def under(slo: str, *of: RequestRecord, **how: object) -> Goodput:
    return judge(parse_slo(slo), of, 2.0, **how)  # type: ignore[arg-type]


def test_a_good_request_meets_every_limit() -> None:
    got = under(
        "ttft:100 tpot:20",
        steady(5, 100, 20),  # exactly at both limits
        steady(5, 101, 20),
        steady(5, 100, 21),
        steady(3, 10, 10),
    )
    assert (got.judged, got.good, got.fraction, got.undecided) == (4, 2, 0.5, 0)
    assert (got.requests_per_s, got.tokens_per_s) == (1.0, 4.0)  # 2 and 5 + 3 tokens in 2 s
    assert [one.share for one in got.conditions] == [0.75, 0.75]
    assert [one.met for one in got.conditions] == [False, False]
    assert got.met is None, "no condition of the whole run"


def test_failed_requests_are_in_the_denominator() -> None:
    got = under("ttft:500", steady(2, 10, 10), steady(2, 10, 10, failure=FAILED))
    assert (got.judged, got.good, got.fraction) == (2, 1, 0.5)
    # Of one in two nobody can say much: (1 - low)^2 = 0.975 and high^2 = 0.975.
    assert got.fraction_interval == pytest.approx((1 - 0.975**0.5, 0.975**0.5), abs=1e-9)
    nobody = under("ttft:500", steady(2, 10, 10, failure=FAILED))
    assert (nobody.fraction, nobody.requests_per_s) == (0.0, 0.0)


def test_waiting_to_be_sent_counts() -> None:
    late = stream((1050, "text", "a"), (1060, "text", "b"), sent_ms=1000, tokens=2)
    assert under("ttft:500", late).good == 0
    assert under("ttft:500", late, clock="sent").good == 1


def test_one_token_has_no_pace_to_miss_but_aiperf_says_it_has() -> None:
    one = steady(1, 50, 0)
    assert under("tpot:10", one).good == 1
    assert under("tps_user:1000", one).good == 1
    assert under("tpot:10", one, definition=DEFINITIONS["vllm"]).good == 1
    assert under("tpot:10", one, definition=DEFINITIONS["aiperf"]).good == 0


def test_without_a_count_of_tokens_nothing_is_decided() -> None:
    uncounted = stream((50, "text", "a"), (90, "text", "b"))
    got = under("tpot:10", uncounted)
    assert (got.judged, got.undecided, got.fraction) == (0, 1, None)
    assert under("ttft:10 tpot:10", uncounted).good == 0, "it missed the other limit"
    whole = stream((300, "text", "all"), tokens=9, streamed=False)
    assert under("ttft:500", whole).undecided == 1
    assert under("e2e:500", whole).good == 1


def test_an_answer_without_content_never_gave_a_first_token() -> None:
    empty = stream((10, "role", ""), end_ms=20)
    assert under("ttft:500", empty).good == 0
    got = under("ttft:max<500 e2e:max<500 tpot:max<500", empty, steady(2, 10, 10))
    assert [one.met for one in got.conditions] == [False, True, True]


def test_the_end_of_the_run_decides_only_what_was_late_by_then() -> None:
    waiting = stream(end_ms=600, failure=CUT_OFF)
    assert under("ttft:500", waiting).judged == 1
    assert under("ttft:700", waiting).undecided == 1
    begun = stream((100, "text", "a"), end_ms=600, failure=CUT_OFF)
    assert under("ttft:500", begun).undecided == 1
    assert under("ttft:50", begun).judged == 1
    assert under("ttft:500 e2e:550", begun).good == 0
    assert under("tpot:1", begun).undecided == 1
    unsent = stream(sent_ms=None, failure=CUT_OFF)
    assert under("ttft:1", unsent).undecided == 1
    assert under("ttft:1", unsent, clock="sent").undecided == 1


def test_percentiles_of_the_run_count_failures_as_never() -> None:
    hundred = [steady(2, 10 + at, 10) for at in range(95)]
    failed = [steady(2, 1, 1, failure=FAILED) for _ in range(5)]
    got = under("ttft:p95<105;ttft:p96<9s;ttft:mean<58", *hundred, *failed)
    p95, p96, mean = got.conditions
    assert (p95.value, p95.met) == (104, True)
    assert (p96.value, p96.met) == (None, False)
    assert (mean.value, mean.met) == (57, True)
    assert got.met is False
    assert got.good is None and got.fraction is None and got.requests_per_s is None
    slow = under("tps_user:p1>1", *hundred, *failed)
    assert slow.conditions[0].value == 0 and slow.met is False


def test_gaps_of_all_requests_are_pooled() -> None:
    even, uneven = steady(11, 10, 10), stream((10, "text", "a"), (110, "text", "b"), tokens=2)
    got = under("itl:p90<=10 itl:max<=99 tpot:mean<=55", even, uneven)
    assert [one.value for one in got.conditions] == [10, 100, 55]
    assert [one.met for one in got.conditions] == [True, False, True]


def test_nothing_measured_says_nothing() -> None:
    got = under("ttft:500 ttft:p95<1s")
    assert (got.judged, got.fraction, got.met) == (0, None, None)
    assert [one.met for one in got.conditions] == [None, None]
    instant = judge(parse_slo("ttft:1"), [], 0.0)
    assert instant.requests_per_s is instant.fraction_interval is None


def test_a_metric_that_the_definition_lacks() -> None:
    with pytest.raises(ConfigError, match="SLO stall:5: vllm has no such metric"):
        under("stall:5", definition=DEFINITIONS["vllm"])


@pytest.mark.long
@unhurried
@given(st.lists(st.tuples(records(), st.booleans()), min_size=1, max_size=6), st.integers(1, 5000))
def test_goodput_is_never_more_than_throughput(
    drawn: list[tuple[RequestRecord, bool]], limit_ms: int
) -> None:
    of = [stream(end_ms=5, failure=FAILED) if failed else record for record, failed in drawn]
    got = under(f"ttft:{limit_ms} e2e:{2 * limit_ms}", *of)
    sent = under(f"ttft:{limit_ms} e2e:{2 * limit_ms}", *of, clock="sent")
    assert got.good is not None and sent.good is not None and got.fraction is not None
    assert got.good <= sent.good <= sum(not failed for _, failed in drawn)
    assert got.judged == len(of) and got.fraction == got.good / len(of)
    assert all(one.share is not None and one.share >= got.fraction for one in got.conditions)
    looser = under(f"ttft:{2 * limit_ms} e2e:{4 * limit_ms}", *of)
    assert looser.good is not None and looser.good >= got.good
