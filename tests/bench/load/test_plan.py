"""Plans and schedules without a clock: shares add up to the whole, and turns follow one another."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bench.arrivals import RampShape
from headrace.bench.load.client_run import ClientJob
from headrace.bench.load.conversations import (
    Conversation,
    Supply,
    conversations,
    share,
    with_answers,
)
from headrace.bench.load.load_options import (
    LoadOptions,
    at_once,
    at_rate,
    load_text,
    make_plan,
    with_trace,
)
from headrace.bench.load.plan import LoadPlan, closed_plan, open_plan, trace_plan
from headrace.bench.load.schedule import FAILED_PAUSE_NS, make_schedules
from headrace.errors import ConfigError
from tests.bench.load.helpers import MS, endpoint, items, singles, talk
from tests.bench.streams import unhurried


@unhurried
@given(
    requests=st.integers(1, 60),
    warmup=st.integers(0, 20),
    workers=st.integers(1, 7),
    closed=st.booleans(),
)
def test_shares_of_a_plan_add_up_to_it(
    requests: int, warmup: int, workers: int, closed: bool
) -> None:
    whole = (
        closed_plan(workers, requests=requests, warmup_requests=warmup)
        if closed
        else open_plan(10, random.Random(1), requests=requests, warmup_requests=warmup)
    )
    sent = [
        taken.number
        for worker in range(workers)
        for supply in [
            supply_of(singles(requests), whole.first_conversation(worker, workers), workers)
        ]
        for _ in range(whole.share(worker, workers).requests or 0)
        if (taken := supply.take())
    ]
    assert sorted(sent) == list(range(requests))  # no prompt twice, none left out
    shares = [whole.share(worker, workers) for worker in range(workers)]
    assert sum(one.requests or 0 for one in shares) == requests
    assert sum(one.warmup_requests for one in shares) == warmup
    assert sorted(at for one in shares for at in one.times_ns) == list(whole.times_ns)
    if not closed:  # every time of a share has a request
        assert all(len(one.times_ns) == (one.requests or 0) + one.warmup_requests for one in shares)


def supply_of(workload: list[Conversation], worker: int, workers: int) -> Supply:
    own = share(workload, worker, workers)
    return Supply(own, worker=worker, workers=workers, in_all=len(workload))


def test_clients_take_different_conversations_and_start_again_at_the_end() -> None:
    workload = singles(5)
    first, second = supply_of(workload, 0, 2), supply_of(workload, 1, 2)
    taken = [supply.take() for _ in range(3) for supply in (first, second)]
    assert [one.number for one in taken if one] == [0, 1, 2, 3, 4, 5]
    assert not first.repeats
    assert second.repeats  # number 5 is the first one of its own again
    assert taken[5] is not None
    assert taken[5].turns == workload[1]
    assert Supply([]).take() is None


def test_a_client_is_handed_its_share_and_no_more() -> None:
    workload = singles(7)
    shares = [share(workload, worker, 3) for worker in range(3)]
    assert [len(one) for one in shares] == [3, 2, 2]
    assert [one[0] for one in shares] == workload[:3]
    assert share(workload, 0, 1) is workload
    assert share([], 1, 2) == []
    # Two conversations for three clients: the third sends one that another sends, and says so.
    few = supply_of(workload[:2], 2, 3)
    assert few.take() == (2, workload[0])
    assert few.repeats
    whole = ClientJob(
        endpoint=endpoint("http://127.0.0.1:1"),
        plan=open_plan(10, random.Random(1), requests=7, warmup_requests=2),
        conversations=tuple(workload),
        warmup=tuple(singles(2, "warm")),
    )
    jobs = [whole.share(worker, 3) for worker in range(3)]
    assert sorted(len(one.conversations) for one in jobs) == [2, 2, 3]
    # The third request, after two that warm up, is the first measured one.
    assert jobs[2].conversations[0] == workload[0]
    assert [len(one.warmup) for one in jobs] == [1, 1, 1]
    assert {one.in_all for one in jobs} == {7}


def test_turns_of_a_session_stay_together_wherever_they_stand() -> None:
    one, two = talk(1, 2), talk(2, 2)
    mixed = [one[0], *items(1), two[0], one[1], two[1]]
    found = conversations(mixed)
    assert [len(turns) for turns in found] == [2, 1, 2]
    assert [item.turn for item in found[0]] == [0, 1]


def test_answers_stand_where_they_belong() -> None:
    last = talk(1, 3)[2]
    filled = with_answers(last, ["first", "second"])
    assert [m["content"] for m in filled.prompt.messages or () if m["role"] == "assistant"] == [
        "first",
        "second",
    ]
    plain = items(1)[0]
    assert with_answers(plain, ["x"]) is plain


def test_a_closed_loops_users_go_on_when_theirs_has_ended() -> None:
    plan = closed_plan(2, requests=4, ramp_s=1.0)
    (schedule,) = make_schedules(plan, Supply(singles(4)), Supply([]))
    begun = list(schedule.begin())
    assert [one.at_ns for one in begun] == [0, 500 * MS]
    after = schedule.after(begun[0], 30 * MS, failed=False)
    assert after is not None
    assert (after.at_ns, after.conversation) == (30 * MS, 2)
    late = schedule.after(begun[1], 40 * MS, failed=True)
    assert late is not None
    assert late.at_ns == 40 * MS + FAILED_PAUSE_NS
    assert schedule.after(after, 50 * MS, failed=False) is None


def test_a_warm_up_takes_one_turn_of_its_own_prompts() -> None:
    plan = closed_plan(1, requests=1, warmup_requests=1)
    (schedule,) = make_schedules(plan, Supply(singles(1)), Supply(conversations(talk(1, 3))))
    (first,) = schedule.begin()
    assert not first.measured
    assert not first.has_next
    second = schedule.after(first, 5, failed=False)
    assert second is not None
    assert second.measured


@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_think_times_of_a_trace_go_with_its_speed(speed: float) -> None:
    plan = trace_plan([0], speed=speed)
    workload = conversations(talk(1, 2, think_ms=200))
    (schedule,) = make_schedules(plan, Supply(workload), Supply([]))
    (first,) = schedule.begin()
    after = schedule.after(first, 10 * MS, failed=False)
    assert after is not None
    assert after.at_ns == 10 * MS + round(200 * MS / speed)
    assert schedule.after(after, 20 * MS, failed=False) is None


def test_a_trace_ends_with_the_duration_or_the_requests() -> None:
    times = [0, 1000 * MS, 2000 * MS, 3000 * MS]
    assert trace_plan(times, speed=2, duration_s=1.0).times_ns == (0, 500 * MS, 1000 * MS)
    assert trace_plan(times, requests=2).times_ns == (0, 1000 * MS)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_warm_up_leaves_the_rate_of_what_is_measured_as_it_was_asked(seed: int) -> None:
    plan = open_plan(8, random.Random(seed), requests=40, warmup_requests=5)
    warm, measured = plan.times_ns[:5], plan.times_ns[5:]
    assert warm[-1] == 625 * MS
    assert measured[-1] - warm[-1] == 5000 * MS
    rising = open_plan(
        8, random.Random(seed), requests=40, warmup_requests=4, ramp_from=2, burstiness=math.inf
    )
    assert rising.times_ns[3] == 2000 * MS  # at the rate at the start
    assert rising.times_ns[-1] - rising.times_ns[3] == 8000 * MS


def test_a_rate_rises_in_a_straight_line_or_by_equal_factors() -> None:
    def rates(shape: RampShape) -> list[float]:
        plan = plan_of(
            rate=64.0, ramp_from=1.0, ramp_shape=shape, duration_s=60.0, arrivals="constant"
        )
        assert plan.times_ns[-1] == pytest.approx(60e9, rel=0.01)
        third = plan.times_ns[-1] / 3
        return [
            sum(at <= third * part for at in plan.times_ns) / (third * part / 1e9)
            for part in (1, 2, 3)
        ]

    # Of 1 + 63t/60: means up to 20, 40 and 60 s. Of 64^(t/60): its integral over the time.
    assert rates("linear") == pytest.approx([11.5, 22.0, 32.5], rel=0.02)
    means = [(64 ** (s / 60) - 1) / math.log(64) * 60 / s for s in (20, 40, 60)]
    assert rates("exponential") == pytest.approx(means, rel=0.05)


def test_only_an_open_loop_stops_when_saturated() -> None:
    assert plan_of(rate=4.0, requests=5, stop_when_saturated=True).stop_when_saturated
    assert not plan_of(requests=5, stop_when_saturated=True).stop_when_saturated
    assert not plan_of(rate=4.0, requests=5).stop_when_saturated


def test_a_trace_with_a_rate_gives_its_lengths() -> None:
    rated = with_trace(LoadOptions(rate=4.0), (0, 5, 9), 3)
    assert rated.requests == 3
    plan = make_plan(rated, random.Random(1), (0, 5, 9))
    assert plan.times_ns[-1] == 750 * MS
    assert with_trace(LoadOptions(rate=4.0), (), 3).requests == 3
    assert with_trace(LoadOptions(rate=4.0, duration_s=2.0), (0,), 3).requests is None
    assert with_trace(LoadOptions(), (0, 5), 2).requests is None
    with pytest.raises(ConfigError, match="lengths but no times; add --rate"):
        with_trace(LoadOptions(), (), 3)


def test_of_a_trace_no_more_is_read_than_the_duration_needs() -> None:
    assert LoadOptions(duration_s=30.0, speed=10.0).trace_s == 300.0
    assert LoadOptions(duration_s=30.0, rate=2.0).trace_s is None  # its times do not count
    assert LoadOptions(requests=3).trace_s is None


def plan_of(**options: object) -> LoadPlan:
    return make_plan(LoadOptions(**options), random.Random(1), ())  # type: ignore[arg-type]


def test_options_say_how_requests_arrive() -> None:
    constant = plan_of(rate=4.0, arrivals="constant", requests=4)
    assert constant.times_ns == tuple(250 * MS * at for at in range(1, 5))
    drawn = plan_of(rate=4.0, requests=100)
    assert drawn.times_ns[-1] == 25_000 * MS  # rescaled to the rate
    assert plan_of(rate=4.0, duration_s=10.0).requests == 40
    assert plan_of(rate=math.inf, requests=7).times_ns == (0,) * 7
    assert plan_of(rate=math.inf, concurrency=2, requests=7).times_ns == (0, 0)
    assert plan_of(rate=4.0, requests=3, concurrency=2).max_in_flight == 2
    rising = plan_of(rate=9.0, ramp_from=1.0, requests=10, arrivals="constant")
    gaps = [b - a for a, b in zip(rising.times_ns, rising.times_ns[1:], strict=False)]
    assert gaps == sorted(gaps, reverse=True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"requests": 3, "ramp_from": 2.0}, "needs --rate"),
        ({"concurrency": 2}, "has no end"),
        ({"rate": 2.0, "requests": 3, "ramp_shape": "linear"}, "add --ramp-from"),
        ({"rate": 0.1, "duration_s": 1.0}, "sends nothing"),
        ({"concurrency": 100_000, "requests": 1}, "--concurrency 100000"),
        ({"requests": 10**8}, "--requests 100000000"),
    ],
)
def test_loads_that_cannot_be_are_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        plan_of(**options)


def test_a_load_in_words() -> None:
    told = load_text(LoadOptions(rate=2.0, concurrency=9, requests=5), trace=False)
    assert told == "poisson arrivals, 2/s, at most 9 in flight, 5 requests"
    rising = LoadOptions(
        rate=20.0, ramp_from=2.0, ramp_shape="exponential", duration_s=9.0, stop_when_saturated=True
    )
    assert load_text(rising, trace=False) == (
        "poisson arrivals, 2 to 20/s exponentially, 9 s, until saturated"
    )


def test_runs_of_a_sweep_have_nothing_of_each_others_load() -> None:
    asked = LoadOptions(
        concurrency=4, rate=9.0, ramp_from=1.0, ramp_shape="exponential", ramp_s=2.0, processes=8,
        requests=50,
    )  # fmt: skip
    closed, alone, opened = at_once(asked, 16), at_once(asked, 1), at_rate(asked, 3.0)
    assert (closed.is_closed, closed.users, closed.ramp_s, closed.processes) == (True, 16, 2.0, 8)
    assert (alone.users, alone.ramp_s, alone.processes, alone.requests) == (1, 0.0, 1, 50)
    assert (opened.rate, opened.concurrency, opened.ramp_s, opened.processes) == (3.0, None, 0.0, 8)
    for one in (closed, alone, opened):
        assert (one.ramp_from, one.ramp_shape) == (None, None)
        make_plan(one, random.Random(1), ())
