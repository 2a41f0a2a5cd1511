"""How much of a prompt is computed: reported where requested, without changing what is computed."""

from __future__ import annotations

import msgspec
import pytest

from headrace.engine.messages import Output, Prefill
from headrace.engine.process.output_buffer import SEPARATE, OutputBuffer
from tests.engine.expected import answer
from tests.engine.mock import drain, make_core, submit
from tests.engine.plans import prompt


def reports(outputs: list[Output]) -> list[Prefill]:
    return [output.prefill for output in outputs if output.prefill is not None]


@pytest.mark.parametrize(("chunk", "length"), [(16, 100), (7, 50), (64, 65)])
def test_each_step_but_the_last_reports(chunk: int, length: int) -> None:
    core = make_core(max_num_batched_tokens=chunk)
    wanted = msgspec.structs.replace(submit("a", prompt(length)), report_prefill=True)
    core.submit(wanted)
    core.submit(submit("beside", prompt(20, 3)))
    got = drain(core)
    told = reports(got["a"].outputs)
    computed = [report.computed_tokens for report in told]
    assert computed == sorted(set(computed))
    assert computed[0] == chunk
    assert length - chunk <= computed[-1] < length
    assert all(report.cached_tokens == 0 for report in told)
    times_s = [report.spent_s for report in told]
    assert times_s == sorted(times_s) and times_s[0] > 0
    first = next(output for output in got["a"].outputs if output.token_ids)
    assert got["a"].outputs[: len(told)] == [o for o in got["a"].outputs if o.prefill is not None]
    assert times_s[-1] <= first.prefill_s
    assert got["a"].token_ids == answer(wanted)[0]
    assert reports(got["beside"].outputs) == []


def test_a_prompt_of_one_step_reports_nothing() -> None:
    core = make_core(max_num_batched_tokens=64)
    core.submit(msgspec.structs.replace(submit("a", prompt(64)), report_prefill=True))
    assert reports(drain(core)["a"].outputs) == []


def test_what_was_cached_counts_as_computed() -> None:
    core = make_core(max_num_batched_tokens=16)
    core.submit(submit("first", prompt(64)))
    drain(core)
    core.submit(msgspec.structs.replace(submit("a", prompt(128)), report_prefill=True))
    told = reports(drain(core)["a"].outputs)
    cached = told[0].cached_tokens
    assert cached > 0
    assert {report.cached_tokens for report in told} == {cached}
    assert told[0].computed_tokens == cached + 16


async def test_a_reader_that_is_behind_gets_the_latest() -> None:
    buffer = OutputBuffer()
    for number in range(SEPARATE + 1):
        buffer.put(Output("a", [], prefill=Prefill(number, 0, 0.1)))
    joined = await buffer.take()
    assert joined is not None and joined.prefill == Prefill(SEPARATE, 0, 0.1)
    for number in range(SEPARATE):
        buffer.put(Output("a", [], prefill=Prefill(number, 0, 0.1)))
    buffer.put(Output("a", [5]))
    joined = await buffer.take()
    assert joined is not None and (joined.token_ids, joined.prefill) == ([5], None)
