"""Summaries worked out by hand, and what must hold of any run."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bench.cost import Prices
from headrace.bench.definitions import DEFINITIONS
from headrace.bench.record import ClientHealth, Failure, RequestRecord, RunRecord, Usage
from headrace.bench.slo import parse_slo
from headrace.bench.summary import Summary, summarize
from tests.bench.streams import MS, records, run, steady, stream, unhurried
from tests.bench.test_server_history import reading


def p50(summary: Summary, name: str, clock: str = "sent") -> float:
    side = summary.from_intended if clock == "intended" else summary.from_sent
    return round(side[name].distribution.p50, 6)


# Two slots: 0 to 300, 0 to 500, 300 to 600 and, wanted at 300 but sent at 500, 500 to 800 ms.
LOOP = run(
    steady(3, 100, 100, start_ms=0, index=0),
    steady(5, 100, 100, start_ms=0, index=1),
    steady(3, 100, 100, start_ms=300, index=2),
    steady(3, 100, 100, start_ms=500, intended_ms=300, index=3),
)


def test_a_closed_loop_of_two_slots() -> None:
    got = summarize(LOOP)
    assert (got.duration_s, got.rps, got.tps_system) == (0.8, 5.0, 17.5)  # 4 and 14 in 0.8 s
    assert p50(got, "ttft") == 100 and p50(got, "tpot") == 100
    assert got.from_intended["ttft"].distribution.most == pytest.approx(300)
    assert p50(got, "tps_user") == 10 and got.from_sent["tps_user"].unit == "tokens/s"
    assert got.from_sent["itl_chunk"].distribution.count == 10
    assert got.concurrency.mean == 1.75
    assert got.concurrency.little == pytest.approx(1.75), "nothing failed, nothing came after"
    assert got.concurrency.peak == 2
    assert got.steady is not None
    assert (got.steady.start_s, got.steady.end_s) == (0.3, 0.5)
    # Request 1 at 400 and 500 ms, request 2 at 400 and 500 ms.
    assert got.steady.tokens_per_s == pytest.approx(20)
    assert got.steady.requests_per_s == pytest.approx(5) and got.steady.in_flight == 2
    assert got.offered_per_s == pytest.approx(3 / 0.3)
    assert got.goodput is None


def test_errors_are_counted_by_class_and_in_no_latency() -> None:
    got = summarize(
        run(
            steady(2, 100, 10, index=0, finish_reason="stop"),
            stream(end_ms=1, failure=Failure("http", "429"), status=429, index=1),
            stream(end_ms=1, failure=Failure("http", "503"), status=503, index=2),
            stream((5, "text", "a"), failure=Failure("truncated", "gone"), status=200, index=3),
            stream(sent_ms=None, failure=Failure("connect", "refused"), index=4),
            stream(end_ms=50, failure=Failure("cancelled", "the run ended"), index=5),
            steady(2, 9, 9, index=6, measured=False),
        ),
        slo=parse_slo("ttft:500"),
    )
    of = got.requests
    assert (of.measured, of.completed, of.failed, of.cancelled, of.warmup) == (6, 1, 4, 1, 1)
    assert of.errors == {"http": 2, "truncated": 1, "connect": 1}
    assert of.statuses == {"429": 1, "503": 1, "200": 1} and of.finish_reasons == {"stop": 1}
    assert got.from_sent["ttft"].distribution.count == 1 and p50(got, "ttft") == 100
    assert got.goodput is not None and got.goodput.fraction == 1 / 5
    assert got.goodput.undecided == 1


def test_one_run_under_every_definition() -> None:
    mixed = run(
        stream(
            (10, "role", ""),
            (100, "reasoning", "h"),
            (160, "text", "ab"),
            (165, "other", ""),
            end_ms=200,
            tokens=3,
            counted=3,
        )
    )
    found = {name: summarize(mixed, definition=one) for name, one in DEFINITIONS.items()}
    first = {"headrace": "ttft", "vllm": "ttft", "vllm-0.32": "ttft", "llmperf": "ttft_s"}
    assert {
        name: p50(one, first.get(name, "time_to_first_token")) for name, one in found.items()
    } == {
        "headrace": 100,
        "vllm": 100,
        "vllm-0.32": 10,
        "aiperf": 100,
        "guidellm": 100,
        "llmperf": 160,
    }
    assert p50(found["headrace"], "tpot") == 30
    assert p50(found["vllm"], "tpot") == 30
    assert p50(found["guidellm"], "time_per_output_token") == pytest.approx(160 / 3, abs=1e-5)
    assert p50(found["llmperf"], "inter_token_latency_s") == 40
    assert found["guidellm"].from_sent["inter_token_latency"].distribution.count == 2
    assert found["guidellm"].from_sent["request_latency"].distribution.interpolation == "nearest"
    for name, one in found.items():
        assert one.definition == name and one.source and one.table
        assert set(one.from_sent) <= {row.name for row in one.table}


def test_guidellm_weighs_requests_by_their_tokens() -> None:
    two = run(steady(2, 10, 10, index=0), steady(11, 10, 50, index=1))
    got = summarize(two, definition=DEFINITIONS["guidellm"])
    mean = got.from_sent["inter_token_latency"].distribution.mean
    assert mean == pytest.approx((1 * 10 + 10 * 50) / 11)
    assert summarize(two).from_sent["tpot"].distribution.mean == pytest.approx(30)


CUT = Failure("cancelled", "the run ended")


def test_what_the_end_of_a_run_cuts_off_was_made_all_the_same() -> None:
    """Two users, always at 10 tokens/s each, 10-token answers, cut off at 2.5 s."""
    whole = [
        steady(10, 100, 100, start_ms=1000 * turn, index=2 * turn + user)
        for turn in range(2)
        for user in range(2)
    ]
    cut = [
        steady(5, 100, 100, start_ms=2000, index=4 + at, failure=CUT, tokens=None)
        for at in range(2)
    ]
    more = steady(4, 100, 100, start_ms=2400, index=6, end_ms=2500, failure=CUT, tokens=None)
    got = summarize(run(*whole, *cut, more)).steady
    assert got is not None and (got.start_s, got.end_s) == (1.0, 2.4)
    # From 1.0 to 2.4 s: 20 tokens of whole answers, and 4 each of the two that were cut off.
    assert got.tokens_per_s == pytest.approx(28 / 1.4)
    assert got.requests_per_s == pytest.approx(2 / 1.4)


def test_a_cut_stream_that_nobody_counted_has_tokens_as_its_characters_are() -> None:
    """Five tokens a chunk; and what was told before the cut is not believed."""
    packed = [
        stream(
            *((start + 100 * at, "text", "abcdefghij") for at in range(1, 5)),
            sent_ms=start,
            index=index,
            tokens=20,
        )
        for index, start in enumerate((0, 400))
    ]
    cut = stream(
        (900, "text", "abcdefghij"),
        (1000, "text", "abcdefghij"),
        sent_ms=800,
        index=2,
        tokens=1,
        failure=CUT,
    )
    last = stream(sent_ms=1000, end_ms=1001, index=3, failure=CUT)
    got = summarize(run(*packed, cut, last)).steady
    assert got is not None and (got.start_s, got.end_s) == (0.4, 1.0)
    assert got.tokens_per_s == pytest.approx((20 + 10) / 0.6)


def test_a_refusal_does_not_open_the_steady_window() -> None:
    refused = stream(end_ms=2, failure=Failure("http", "429"), status=429, index=9)
    got = summarize(run(*LOOP.requests, refused)).steady
    assert got is not None and got.start_s == 0.3


def test_a_closed_loop_is_steady_once_all_users_are_there() -> None:
    """The second of two users begins at 400 ms, when the first has had two answers."""
    ramped = run(
        *(steady(2, 100, 100, start_ms=200 * at, index=at) for at in range(4)),
        *(steady(2, 100, 100, start_ms=400 + 200 * at, index=4 + at) for at in range(3)),
    )
    opened = summarize(ramped).steady
    assert opened is not None and opened.start_s == 0.2
    closed = summarize(msgspec.structs.replace(ramped, about={"open_loop": False})).steady
    assert closed is not None and closed.start_s == 0.4


def test_ten_requests_are_no_thousand_gaps() -> None:
    got = summarize(run(*(steady(129, 10, 10 + at, index=at) for at in range(10))))
    gaps = got.from_sent["itl_chunk"].distribution
    assert gaps.count == 1280 and gaps.p99_marked
    assert gaps.p50_interval == gaps.mean_interval == (None, None)
    many = summarize(run(*(steady(3, 10, 10 + at % 7, index=at) for at in range(1000))))
    assert not many.from_sent["itl_chunk"].distribution.p99_marked


def test_gaps_are_the_same_by_either_clock() -> None:
    late = run(*(steady(5, 10, 10 + at, index=at, intended_ms=-50) for at in range(40)))
    got = summarize(late)
    assert got.from_intended["itl_chunk"] == got.from_sent["itl_chunk"]
    assert got == summarize(late), "chance is the same each time"


def test_what_the_server_said_of_the_measured_span() -> None:
    told = tuple(reading(at, **more) for at, more in TOLD.items())
    answered = steady(2, 500, 500, start_ms=1000)
    got = summarize(msgspec.structs.replace(run(answered), server_metrics=told)).server
    assert got is not None and (got.from_s, got.to_s, got.readings) == (1.0, 2.0, 3)
    assert got.kv_use_most == 0.75 and got.preemptions == 4
    assert got.prefix_hit_share == pytest.approx(300 / 1200)
    # 15.75 GB in one second of steps of 21 GB/s, 55 of 220 G operations.
    assert got.mbu == pytest.approx(0.75) and got.mfu == pytest.approx(0.25)
    assert summarize(run(answered)).server is None


# The warm-up before 1 s and what came after 2 s are not of the span.
TOLD = {
    0.0: {"kv": 0.99, "prompt": 0, "hits": 0, "preempted": 0, "bytes": 0, "ops": 0, "busy": 0},
    1.0: {"kv": 0.5, "prompt": 1000, "hits": 900, "preempted": 7, "bytes": 50e9, "busy": 2},
    1.5: {"kv": 0.75, "prompt": 1000, "hits": 900, "preempted": 9, "bytes": 50e9, "busy": 2},
    2.0: {
        "kv": 0.6, "prompt": 2200, "hits": 1200, "preempted": 11, "bytes": 65.75e9,
        "ops": 1e10 + 55e9, "busy": 3,
    },
    3.0: {"kv": 0.98, "prompt": 9000, "hits": 9000, "preempted": 99, "busy": 9},
}  # fmt: skip


def test_the_longest_stall_says_where() -> None:
    got = summarize(
        run(
            steady(3, 10, 10, index=0),
            stream((10, "text", "a"), (40, "role", ""), (90, "text", "b"), index=1),
        )
    )
    assert got.longest_stall is not None
    assert (got.longest_stall.request, got.longest_stall.gap_ms) == (1, 80)
    assert got.longest_stall.at_s == 0.01


def test_what_the_server_told_of_waiting_and_of_prompts() -> None:
    told = Usage(prompt_tokens=30, completion_tokens=2, cached_tokens=10)
    got = summarize(run(steady(2, 10, 10, usage=told, queue_ns=7 * MS)))
    assert got.queue is not None and got.queue.distribution.p50 == pytest.approx(7)
    assert got.prompt_tokens is not None and got.prompt_tokens.distribution.mean == 30
    assert got.tokens.cached_share == pytest.approx(1 / 3)
    assert got.tps_system == pytest.approx(2 / 0.02) and got.tps_total == pytest.approx(32 / 0.02)


def test_the_client_is_judged_by_the_ttft_from_the_actual_send() -> None:
    slow = ClientHealth(schedule_lag_ns=(12 * MS,) * 9, loop_lag_ns=(), cpu_share=(0.2,))
    assert summarize(run(steady(2, 100, 1), health=slow)).client.client_bound is True
    assert summarize(run(steady(2, 130, 1), health=slow)).client.client_bound is False


def test_what_a_run_cost_is_of_what_was_completed() -> None:
    told = Usage(prompt_tokens=1000, completion_tokens=500, cached_tokens=400)
    failed = steady(2, 10, 10, usage=told, failure=Failure("stream", "gone"))
    warm = steady(2, 10, 10, usage=told, measured=False)
    of = run(*[steady(2, 10, 10, usage=told, index=at) for at in range(4)], failed, warm)
    got = summarize(of, prices=Prices(input_usd=1, output_usd=10, cached_usd=0.25)).cost
    # Of each: 600 + 400 / 4 + 5,000 dollars by the million.
    assert got.run_usd == pytest.approx(4 * 5700e-6)
    assert got.per_million_output == pytest.approx(11.4)
    hourly = summarize(of, prices=Prices(hour_usd=3.6)).cost
    assert hourly.run_usd == pytest.approx(0.001 * 0.02)
    assert hourly.tokens_per_s_per_usd == pytest.approx(2000 / 0.02 / 3.6)
    assert summarize(of).cost.basis == "unknown"


def test_a_price_holds_up_to_a_length_of_the_prompt() -> None:
    told = Usage(prompt_tokens=1000, completion_tokens=500)
    of = run(steady(2, 10, 10, usage=told))
    tiered = Prices(input_usd=1, output_usd=10, prompt_tokens_most=1000)
    assert summarize(of, prices=tiered).cost.run_usd == pytest.approx(6000e-6)
    short = msgspec.structs.replace(tiered, prompt_tokens_most=999)
    got = summarize(of, prices=short).cost
    assert got.run_usd is None and got.why is not None and "more than 999 tokens" in got.why


def test_tokens_that_nobody_counted_have_no_price() -> None:
    silent = run(steady(2, 10, 10, tokens=None), steady(2, 10, 10, tokens=2, index=1))
    got = summarize(silent, prices=Prices(input_usd=1, output_usd=1)).cost
    assert got.run_usd is None and got.why == "the tokens of 2 requests were not counted"
    embedding = run(steady(1, 10, 10, usage=Usage(prompt_tokens=500_000)))
    assert summarize(embedding, prices=Prices(input_usd=1)).cost.run_usd == pytest.approx(0.5)


def test_a_run_that_outgrows_its_server_says_so() -> None:
    """20 a second come, 10 a second are answered one after another."""
    full = run(*[steady(2, 50 * at + 90, 10, start_ms=50 * at, index=at) for at in range(600)])
    got = summarize(full).saturation
    assert got is not None and got.saturated
    assert got.completed_per_s == pytest.approx(10, rel=0.02)
    room = run(*[steady(2, 20, 10, start_ms=50 * at, index=at) for at in range(600)])
    found = summarize(room).saturation
    assert found is not None and found.saturated is False
    closed = msgspec.structs.replace(full, about={"open_loop": False})
    assert summarize(closed).saturation is None


def test_a_run_without_any_request() -> None:
    got = summarize(run(), slo=parse_slo("ttft:500"), prices=Prices(hour_usd=1))
    assert got.saturation is None and got.cost.per_million is None
    assert got.rps is got.duration_s is got.offered_per_s is got.steady is None
    assert got.from_sent == {} and got.concurrency.peak == 0
    assert got.goodput is not None and got.goodput.fraction is None


def _finite(value: object) -> bool:
    if isinstance(value, dict):
        return all(_finite(one) for one in value.values())
    if isinstance(value, list):
        return all(_finite(one) for one in value)
    return not isinstance(value, float) or math.isfinite(value)


@pytest.mark.long
@unhurried
@given(
    st.lists(st.tuples(records(), st.booleans()), max_size=5),
    st.sampled_from(sorted(DEFINITIONS)),
)
def test_any_run_gives_a_summary_that_can_be_written_and_read(
    drawn: list[tuple[RequestRecord, bool]], name: str
) -> None:
    failure = Failure("stream", "overloaded")
    of: RunRecord = run(
        *(
            msgspec.structs.replace(record, index=at, failure=failure if failed else None)
            for at, (record, failed) in enumerate(drawn)
        )
    )
    got = summarize(of, definition=DEFINITIONS[name], slo=parse_slo("ttft:500 e2e:p95<2s"))
    written = msgspec.json.encode(got)
    assert msgspec.json.decode(written, type=Summary) == got
    assert _finite(msgspec.to_builtins(got))
    counts = got.requests
    assert counts.completed + counts.failed + counts.cancelled == counts.measured == len(drawn)
    if got.concurrency.mean is not None and got.concurrency.little is not None:
        assert got.concurrency.little <= got.concurrency.mean + 1e-9
        assert got.concurrency.mean <= got.concurrency.peak
    assert got.goodput is not None
    if got.goodput.requests_per_s is not None and got.rps is not None:
        assert got.goodput.requests_per_s <= got.rps
