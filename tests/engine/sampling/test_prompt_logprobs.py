"""Log probabilities of prompts: the same bits however the prompt is cut, never twice, bounded."""

from __future__ import annotations

import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.messages import Submit, TokenLogprob
from headrace.engine.params import SamplingParams
from headrace.engine.sampling.sampler import LOGPROB_FLOOR
from headrace.engine.scheduling.step_rows import PROMPT_LOGIT_ROWS
from headrace.models import load_model
from tests.engine.expected import answer, prompt_scores
from tests.engine.mock import (
    NUM_TOKENS,
    Collected,
    MockModel,
    collect,
    drain,
    make_core,
    real_ops,
    submit,
)
from tests.engine.plans import plans_of, prompt
from tests.tiny import NUM_TOKENS as TINY_TOKENS
from tests.tiny import tiny_checkpoint

SPOILED = NUM_TOKENS + 1


@pytest.mark.parametrize("chunk", [1, 7, 64, 512])
@pytest.mark.parametrize("max_tokens", [0, 3])
def test_they_are_the_raw_ones_of_every_token_but_the_first(chunk: int, max_tokens: int) -> None:
    core = make_core(max_num_batched_tokens=chunk)
    wanted = submit(
        "a", prompt(150), prompt_logprobs=2, max_tokens=max_tokens, temperature=1.5, seed=1
    )
    core.submit(wanted)
    core.submit(submit("beside", prompt(40, 3), max_tokens=20))
    got = drain(core)["a"]
    assert got.prompt_logprobs == prompt_scores(wanted)
    assert got.outputs[0].prompt_logprobs is got.prompt_logprobs
    assert [
        None if logprob is None else logprob.token_id for logprob in got.prompt_logprobs or []
    ] == [
        None,
        *prompt(150)[1:],
    ]
    assert all(logprob is None or len(logprob.top) == 2 for logprob in got.prompt_logprobs or [])
    assert got.token_ids == answer(wanted)[0]
    assert got.finish_reason == "length"


@pytest.mark.parametrize("backend", [pytest.param("reference", marks=pytest.mark.load), "cpu"])
@pytest.mark.parametrize("codec", ["F32", "Q8_0"])
def test_real_arithmetic_gives_the_same_bits_whatever_the_chunks_and_as_when_they_were_drawn(
    backend: str, codec: str
) -> None:
    ops = real_ops(backend)
    model = load_model(tiny_checkpoint("qwen3", codec, logit_scale=2.0), ops)  # type: ignore[arg-type]

    def core(chunk: int, blocks: int = 40) -> EngineCore:
        config = EngineConfig(
            block_size=16, num_gpu_blocks_override=blocks, max_num_batched_tokens=chunk
        )
        return EngineCore(model, ops, config, num_tokens=TINY_TOKENS)

    stem = [(7 * i) % 250 for i in range(30)]
    draws = SamplingParams(temperature=1.0, seed=3, max_tokens=70, logprobs=3, ignore_eos=True)
    alone = core(64)
    alone.submit(Submit("drawn", stem, draws))
    drawn = drain(alone)["drawn"]
    own = [entry for output in drawn.outputs for entry in output.logprobs or []]
    text = [*stem, *drawn.token_ids]
    reads = SamplingParams(max_tokens=0, prompt_logprobs=3)
    given: list[list[TokenLogprob | None]] = []
    for chunk in (1, 7, 64):
        busy = core(chunk)
        for i in range(3):
            busy.submit(Submit(f"beside{i}", [*stem, i], draws))
        busy.submit(Submit("read", text, reads))
        entries = drain(busy)["read"].prompt_logprobs
        assert entries is not None
        given.append(entries)
    assert given[0] == given[1] == given[2]
    assert given[0][len(stem) :] == own
    assert len(given[0]) == len(text)


def test_what_is_cached_is_not_used_but_what_it_computes_is_shared_afterwards() -> None:
    model = MockModel()
    core = make_core(model)
    core.submit(submit("before", prompt(60), max_tokens=1))
    drain(core)
    model.computed.clear()
    wanted = submit("reads", prompt(60), max_tokens=1, prompt_logprobs=1)
    core.submit(wanted)
    got = drain(core)["reads"]
    assert len(model.computed) == 60
    assert got.prompt_logprobs == prompt_scores(wanted)
    assert (got.outputs[0].cached_tokens, got.outputs[0].cache_miss) == (
        0,
        "prompt_logprobs at token 0",
    )
    stats = core.stats()
    assert stats.prefix_queries_tokens == 60, "it did not ask"
    core.submit(submit("other", prompt(100, 5), max_tokens=1, prompt_logprobs=1))
    drain(core)
    core.submit(submit("after", prompt(100, 5), max_tokens=1))
    assert drain(core)["after"].outputs[0].cached_tokens == 99


def test_it_does_not_wait_for_a_prefix_in_flight() -> None:
    core = make_core(max_num_batched_tokens=40)
    core.submit(submit("first", prompt(30), max_tokens=2))
    core.submit(submit("waits", prompt(30), max_tokens=2))
    core.submit(submit("reads", prompt(30), max_tokens=2, prompt_logprobs=0))
    results: dict[str, Collected] = {}
    collect(results, core.step())
    core.check()
    assert [each.request_id for each in core.scheduler.running] == ["first", "reads"]
    drain(core, results)
    assert len({tuple(result.token_ids) for result in results.values()}) == 1


def test_preempted_in_the_middle_it_loses_and_repeats_nothing() -> None:
    model = MockModel()
    core = make_core(model, scheduling_policy="priority", max_num_seqs=1, max_num_batched_tokens=20)
    wanted = submit("reads", prompt(150), prompt_logprobs=1, priority=5, max_tokens=2)
    core.submit(wanted)
    results: dict[str, Collected] = {}
    for round_ in range(3):
        for _ in range(2):
            collect(results, core.step())
        core.submit(submit(f"urgent{round_}", prompt(9, round_ + 3), max_tokens=2))
        collect(results, core.step())
        core.check()
    drain(core, results)
    got = results["reads"]
    assert got.outputs[-1].num_preemptions == 3
    assert got.prompt_logprobs == prompt_scores(wanted)
    assert got.token_ids == answer(wanted)[0]
    assert len(model.computed) < 150 + 2 + 3 * (9 + 2) + 3 * 16, "its own blocks were cached"


def test_rows_of_logits_are_bounded_over_all_requests_and_the_first_gets_them() -> None:
    model = MockModel()
    core = make_core(model, max_num_batched_tokens=512, num_gpu_blocks_override=200)
    plans = plans_of(core)
    for i in range(3):
        core.submit(submit(f"reads{i}", prompt(100, i), max_tokens=1, prompt_logprobs=0))
    core.submit(submit("plain", prompt(200, 7), max_tokens=1))
    results = drain(core)
    for batch in model.batches:
        assert len(batch.logit_rows) <= PROMPT_LOGIT_ROWS + batch.num_requests
    rows = [[(row.request.request_id, row.num_tokens) for row in plan.rows] for plan in plans]
    assert rows[0] == [("reads0", 64), ("plain", 200)], "who needs no logits passes"
    assert rows[1] == [("reads0", 36), ("reads1", 29)]
    assert all(result.finish_reason == "length" for result in results.values())
    assert sum(plan.num_tokens for plan in plans) == 500


def test_a_prompt_of_one_token_has_one_entry_which_is_none() -> None:
    core = make_core()
    core.submit(submit("a", [3], prompt_logprobs=5))
    core.submit(submit("b", [3], prompt_logprobs=5, max_tokens=0))
    results = drain(core)
    assert results["a"].prompt_logprobs == results["b"].prompt_logprobs == [None]


def test_a_token_that_is_never_drawn_has_the_floor() -> None:
    core = make_core()
    core.submit(submit("a", [3, NUM_TOKENS + 4, 5], prompt_logprobs=1))
    entries = drain(core)["a"].prompt_logprobs
    assert entries is not None and entries[1] is not None and entries[2] is not None
    assert (entries[1].token_id, entries[1].logprob) == (NUM_TOKENS + 4, LOGPROB_FLOOR)
    assert entries[1].rank == NUM_TOKENS + 1
    assert entries[1].top[0][0] < NUM_TOKENS
    assert entries[2].logprob > LOGPROB_FLOOR


def test_logits_that_are_no_numbers_end_their_own_request_only() -> None:
    core = make_core(MockModel(nan_on=SPOILED))
    good = submit("good", prompt(20), prompt_logprobs=1)
    core.submit(submit("bad", [*prompt(9, 2), SPOILED, 1, 2], prompt_logprobs=1))
    core.submit(good)
    core.submit(submit("unread", [*prompt(9, 2), SPOILED, 1, 2]))
    results = drain(core)
    last = results["bad"].outputs[-1]
    assert (last.finish_reason, last.prompt_logprobs) == ("error", None)
    assert "NaN" in (last.error or "")
    assert results["good"].prompt_logprobs == prompt_scores(good)
    assert results["unread"].finish_reason == "length"


@pytest.mark.parametrize("length", [1, 16, 17, 200])
def test_a_prompt_may_be_read_without_a_token(length: int) -> None:
    core = make_core()
    for name, cached in (("a", 0), ("b", length - 1)):
        core.submit(submit(name, prompt(length), max_tokens=0))
        (output,) = drain(core)[name].outputs
        assert (output.finish_reason, output.token_ids, output.error) == ("length", [], None)
        assert output.cached_tokens == cached
        assert output.queue_s > 0 and output.prefill_s > 0
        assert output.prompt_logprobs is None
    stats = core.stats()
    assert stats.generation_tokens == 0
    assert stats.prompt_tokens == 2 * length


def test_a_prompt_as_long_as_the_model_may_be_read() -> None:
    core = make_core(max_model_len=100)
    wanted = submit("a", prompt(100), max_tokens=0, prompt_logprobs=0)
    core.submit(wanted)
    assert drain(core)["a"].prompt_logprobs == prompt_scores(wanted)


@pytest.mark.parametrize("end", ["cancel", "timeout"])
def test_what_did_not_get_ready_is_not_given(end: str) -> None:
    core = make_core(max_num_batched_tokens=16)
    core.submit(submit("a", prompt(60), prompt_logprobs=0, timeout_s=100.0))
    core.step()
    if end == "cancel":
        core.cancel("a")
    else:
        core._clock.now_s += 200.0  # type: ignore[attr-defined]
    (output,) = core.step()
    assert output.prompt_logprobs is None
    core.check()


def test_one_for_whom_a_step_has_no_rows_waits_and_lets_others_pass() -> None:
    core = make_core(max_num_batched_tokens=512)
    for i, name in enumerate("ab"):
        core.submit(submit(name, prompt(200, i), prompt_logprobs=1))
    core.submit(submit("plain", prompt(20, 5)))
    core.step()
    assert [each.request_id for each in core.scheduler.running] == ["a", "plain"]
    assert [each.request_id for each in core.scheduler.waiting] == ["b"]
    results = drain(core)
    assert all(results[name].prompt_logprobs for name in "ab")


def test_it_does_not_pass_a_long_prompt_when_rows_would_cut_it() -> None:
    core = make_core(max_num_batched_tokens=300, num_gpu_blocks_override=100)
    core.submit(submit("long", prompt(900, 1)))
    core.step()
    core.submit(submit("cut", prompt(PROMPT_LOGIT_ROWS + 20, 2), prompt_logprobs=1))
    core.submit(submit("whole", prompt(PROMPT_LOGIT_ROWS - 20, 3), prompt_logprobs=1))
    core.step()
    assert [each.request_id for each in core.scheduler.running] == ["long", "whole"]
    drain(core)


def test_what_is_computed_again_takes_no_rows_and_is_not_bound_by_them() -> None:
    core = make_core(max_num_batched_tokens=512)
    plans = plans_of(core)
    wanted = submit("a", prompt(300), prompt_logprobs=1)
    core.submit(wanted)
    core.step()
    core.step()
    core.scheduler._preempt(core.scheduler.running[0], "blocks")
    core.reset_prefix_cache()
    core.step()
    (row,) = plans[-1].rows
    assert (row.start, row.num_tokens) == (0, 3 * PROMPT_LOGIT_ROWS)
    assert row.scored == range(2 * PROMPT_LOGIT_ROWS, 3 * PROMPT_LOGIT_ROWS)
    assert drain(core)["a"].prompt_logprobs == prompt_scores(wanted)
