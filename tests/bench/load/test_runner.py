"""The runner against the mock: nothing is lost, and each request goes when it should."""

from __future__ import annotations

import asyncio
import itertools
import math
import random

import msgspec
import pytest

from headrace.bench.client.prompt import Prompt
from headrace.bench.load.conversations import conversations
from headrace.bench.load.plan import closed_plan, open_plan, trace_plan
from headrace.bench.mock.endpoint import MockEndpoint
from headrace.bench.mock.settings import MockSettings
from headrace.bench.record import RequestRecord, RunRecord
from headrace.bench.summary import summarize
from headrace.bench.workload import WorkItem
from headrace.errors import ConfigError
from tests.bench.load.helpers import MS, QUICK, make_runner, run_plan, singles, talk
from tests.bench.streams import IDLE


def bodies(mock: MockEndpoint) -> list[str]:
    return [msgspec.json.decode(one.body)["messages"][-1]["content"] for one in mock.received]


def peak(records: list[RequestRecord]) -> int:
    events = sorted(
        [(one.begun_ns or 0, 1) for one in records] + [(one.end_ns or 0, -1) for one in records]
    )
    now = most = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return most


async def test_a_closed_loop_keeps_its_users_busy_and_sends_each_prompt_once() -> None:
    async with (mock := MockEndpoint(MockSettings(**QUICK), keep_requests=100)) as url:
        records = await run_plan(url, closed_plan(4, requests=30), singles(30))
    assert sorted(bodies(mock)) == sorted(f"prompt {at}" for at in range(30))
    assert [one.index for one in records] == list(range(30))
    assert all(one.failure is None and one.measured for one in records)
    assert all(one.usage.completion_tokens == 3 for one in records)
    assert 2 <= peak(records) <= 4
    # A user's next request is wanted when the one before has ended, not when it was got ready.
    ends = {one.end_ns for one in records}
    assert sum(one.intended_ns in ends for one in records) >= 20


async def test_a_ramp_begins_users_one_after_another() -> None:
    plan = closed_plan(4, requests=4, ramp_s=0.4)
    async with MockEndpoint(MockSettings(**QUICK)) as url:
        records = await run_plan(url, plan, singles(4))
    wanted = sorted(one.intended_ns for one in records)
    assert wanted[0] == 0
    # A user who began early may have taken another's request; none is wanted before its time.
    assert all((one.begun_ns or 0) >= one.intended_ns for one in records)


async def test_an_open_loop_sends_at_its_times_whatever_comes_back() -> None:
    plan = open_plan(100, random.Random(1), burstiness=math.inf, requests=20)
    async with MockEndpoint(MockSettings(ttft_ms=300, tpot_ms=1)) as url:
        records = await run_plan(url, plan, singles(20))
    assert [one.intended_ns for one in records] == [10 * MS * at for at in range(1, 21)]
    assert all((one.begun_ns or 0) >= one.intended_ns for one in records)
    assert peak(records) > 4  # a reply takes 300 ms, a request comes every 10


async def test_a_limit_makes_requests_wait_and_leaves_their_intended_time() -> None:
    plan = open_plan(1000, random.Random(1), burstiness=math.inf, requests=12, max_in_flight=2)
    async with MockEndpoint(MockSettings(ttft_ms=40, tpot_ms=1)) as url:
        runner = make_runner(url, plan, singles(12))
        records = await runner.run()
        await runner.client.close()
    assert peak(records) <= 2
    assert [one.intended_ns for one in records] == [MS * at for at in range(1, 13)]
    late = [(one.begun_ns or 0) - one.intended_ns for one in records]
    assert late[-1] > 100 * MS  # five pairs went before
    # That wait is the server's; the lag of the client does not hold it, however slow this machine.
    assert sum(late) - sum(runner.begun_lag_ns) > 1000 * MS


async def test_warm_up_is_handed_over_with_prompts_of_its_own() -> None:
    plan = closed_plan(3, requests=9, warmup_requests=5)
    async with (mock := MockEndpoint(MockSettings(**QUICK), keep_requests=50)) as url:
        records = await run_plan(url, plan, singles(9), singles(5, "warm"))
    assert [one.measured for one in records] == [False] * 5 + [True] * 9
    # The first of what is measured may come before the last of the warm-up: three at a time.
    sent = [*(f"warm {at}" for at in range(5)), *(f"prompt {at}" for at in range(9))]
    assert sorted(bodies(mock)) == sorted(sent)
    assert sum(one.startswith("warm") for one in bodies(mock)[:7]) == 5
    assert peak(records) <= 3


async def test_a_traces_warm_up_has_ended_before_the_trace_begins() -> None:
    plan = trace_plan([500 * MS, 540 * MS, 700 * MS], speed=2, warmup_requests=3)
    async with MockEndpoint(MockSettings(**QUICK)) as url:
        records = await run_plan(url, plan, singles(3), singles(3, "warm"))
    warm, measured = records[:3], records[3:]
    assert not any(one.measured for one in warm)
    assert all(one.measured for one in measured)
    start = measured[0].intended_ns
    assert max(one.end_ns or 0 for one in warm) <= start
    assert [one.intended_ns - start for one in measured] == [0, 20 * MS, 100 * MS]


async def test_turns_follow_the_answers_that_they_hold() -> None:
    workload = conversations([*talk(7, 3, think_ms=30), *talk(8, 2)])
    async with (mock := MockEndpoint(MockSettings(**QUICK), keep_requests=50)) as url:
        records = await run_plan(url, closed_plan(1, requests=5), workload)
    assert len(records) == 5
    first = [one for one in records if one.session == 0]
    assert [one.turn for one in first] == [0, 1, 2]
    for before, after in itertools.pairwise(first):
        assert after.intended_ns == (before.end_ns or 0) + 30 * MS
    sent = [msgspec.json.decode(one.body)["messages"] for one in mock.received]
    last = next(one for one in sent if len(one) == 5)
    assert [one["role"] for one in last] == ["user", "assistant"] * 2 + ["user"]
    said = "".join(chunk.text for chunk in first[0].content)
    assert said
    assert last[1]["content"] == said


async def test_a_conversation_ends_with_a_turn_that_failed() -> None:
    workload = conversations(talk(1, 4))
    plan = trace_plan([0], requests=1)
    plan = msgspec.structs.replace(plan, requests=None)
    async with MockEndpoint(MockSettings(**QUICK, errors=(("500", 1.0),))) as url:
        records = await run_plan(url, plan, workload)
    assert [(one.turn, one.status) for one in records] == [(0, 500)]


async def test_a_duration_ends_the_run_and_the_grace_lets_requests_end() -> None:
    plan = closed_plan(2, duration_s=0.3, grace_s=20)
    async with MockEndpoint(MockSettings(ttft_ms=80, tpot_ms=1)) as url:
        runner = make_runner(url, plan, singles(3))
        records = await runner.run()
        await runner.client.close()
    assert runner.ending == "duration"
    assert runner.supply.repeats == (len(records) > 3)
    assert all(one.failure is None for one in records)
    assert all(one.intended_ns <= 300 * MS for one in records)


async def test_after_the_grace_what_is_left_is_cancelled_and_kept() -> None:
    plan = closed_plan(3, duration_s=0.2, grace_s=0.2)
    settings = MockSettings(ttft_ms=5, tpot_ms=1, errors=(("endless", 1.0),))
    async with MockEndpoint(settings) as url:
        records = await run_plan(url, plan, singles(3))
    assert [one.failure and one.failure.kind for one in records] == ["cancelled"] * 3
    assert any(len(one.content) > 1 for one in records)  # what came until then is there


async def test_an_interrupted_run_has_a_record_of_everything_that_was_due() -> None:
    plan = open_plan(1000, random.Random(1), burstiness=math.inf, requests=50_000, max_in_flight=3)
    endpoint = MockEndpoint(MockSettings(ttft_ms=600_000, tpot_ms=1))
    async with endpoint as url:
        runner = make_runner(url, plan, singles(10))
        running = asyncio.ensure_future(runner.run())
        # Three are on their way, and others have come to wait.
        while endpoint.running < 3 or runner.counts.waiting < 100:
            assert not running.done()
            await asyncio.sleep(0.01)
        runner.stop()
        records = await running
        await runner.client.close()
    assert runner.ending == "interrupted"
    assert {one.failure and one.failure.kind for one in records} == {"cancelled"}
    assert sum(one.sent_ns is not None for one in records) == 3
    wanted = [one.intended_ns for one in records]
    assert wanted == [MS * at for at in range(1, len(records) + 1)]  # none was left out
    assert len(records) > 100
    assert len(records) < 50_000


async def test_errors_end_the_run_when_there_are_too_many() -> None:
    plan = closed_plan(2, requests=1000, max_errors=5)
    for kind in ("429", "html"):
        async with MockEndpoint(MockSettings(**QUICK, errors=((kind, 1.0),))) as url:
            runner = make_runner(url, plan, singles(10))
            records = await runner.run()
            await runner.client.close()
        assert runner.ending == "max_errors"
        assert 6 <= len(records) <= 8
        assert all(one.failure is not None for one in records)


@pytest.mark.load
async def test_a_run_ends_when_the_server_does_not_keep_up() -> None:
    plan = open_plan(60, random.Random(1), burstiness=math.inf, duration_s=30.0, grace_s=0.0)
    plan = msgspec.structs.replace(plan, stop_when_saturated=True)
    async with MockEndpoint(MockSettings(ttft_ms=100, tpot_ms=1, capacity=1)) as url:
        runner = make_runner(url, plan, singles(1800))
        records = await runner.run()
        await runner.client.close()
    assert runner.ending == "saturated"
    assert len(records) < 1800
    assert sum(one.failure is None for one in records) >= 10
    summary = summarize(RunRecord(about={}, requests=tuple(records), health=IDLE))
    assert summary.saturation is not None and summary.saturation.saturated


async def test_a_closed_loop_does_not_storm_a_server_that_is_gone() -> None:
    async with MockEndpoint(MockSettings()) as url:
        pass
    records = await run_plan(url, closed_plan(2, duration_s=0.35), singles(2))
    assert {one.failure and one.failure.kind for one in records} == {"connect"}
    assert 2 <= len(records) <= 10


async def test_a_prompt_that_the_endpoint_cannot_take_ends_the_run_with_its_error() -> None:
    workload = conversations(
        [WorkItem(prompt=Prompt(text="good")), WorkItem(prompt=Prompt(token_ids=(1, 2)))]
    )
    async with MockEndpoint(MockSettings(**QUICK)) as url:
        with pytest.raises(ConfigError, match="text or messages"):
            await run_plan(url, closed_plan(1, requests=2), workload)


async def test_replies_are_shown_while_the_run_is_on_and_are_in_the_records_once() -> None:
    plan = closed_plan(2, requests=40)
    settings = MockSettings(**QUICK, errors=(("error-event", 0.5),), seed=3)
    async with MockEndpoint(settings) as url:
        runner = make_runner(url, plan, singles(40))
        run = asyncio.create_task(runner.run())
        read: list[RequestRecord] = []
        while not run.done():
            if (shown := runner.show()) is not None:
                read.append(shown)
            await asyncio.sleep(0.005)
        records = await run
        await runner.client.close()
    assert read
    assert [one.index for one in records] == list(range(40))
    assert runner.counts.failed == sum(one.failure is not None for one in records) > 5


async def test_a_run_ends_when_its_first_reply_would_be_that_of_every_request() -> None:
    for status in ("401", "404"):
        async with MockEndpoint(MockSettings(**QUICK, errors=((status, 1.0),))) as url:
            runner = make_runner(url, closed_plan(2, requests=1000), singles(10))
            records = await runner.run()
            await runner.client.close()
        assert runner.ending == "refused"
        assert 1 <= len(records) <= 4
        assert all(record.failure is not None for record in records)


async def test_a_refusal_after_a_good_reply_ends_nothing() -> None:
    plan = closed_plan(1, requests=20)
    settings = MockSettings(**QUICK, errors=(("404", 0.5),), seed=1)  # the first one succeeds
    async with MockEndpoint(settings) as url:
        runner = make_runner(url, plan, singles(20))
        records = await runner.run()
        await runner.client.close()
    assert runner.ending == "complete"
    assert len(records) == 20
    assert 0 < sum(record.failure is not None for record in records) < 20


async def test_a_refusal_of_one_prompt_ends_nothing() -> None:
    async with MockEndpoint(MockSettings(**QUICK, errors=(("403", 1.0),))) as url:
        runner = make_runner(url, closed_plan(1, requests=3), singles(3))
        records = await runner.run()
        await runner.client.close()
    assert (runner.ending, len(records)) == ("complete", 3)
