"""The core's words: outputs, ends, errors that stay with one request, refusals, figures."""

from __future__ import annotations

import pytest

from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.errors import HeadraceError, RequestError
from tests.engine.conftest import Survived
from tests.engine.expected import answer
from tests.engine.mock import (
    EOS,
    NUM_TOKENS,
    VOCAB,
    Collected,
    MockModel,
    collect,
    drain,
    make_core,
    submit,
)

PROMPT = [(3 * i) % 40 for i in range(30)]
SPOILED = NUM_TOKENS + 1
"""A token only a prompt can hold; mocks are told to fail at it."""


def test_every_request_is_answered_as_if_it_were_alone() -> None:
    core = make_core(max_num_seqs=16, num_gpu_blocks_override=200, max_num_batched_tokens=100)
    submits = [
        submit(str(i), PROMPT[: i + 1], temperature=i % 3, top_k=10, seed=i, max_tokens=10 + i)
        for i in range(30)
    ]
    for each in submits:
        core.submit(each)
    results = drain(core)
    for each in submits:
        assert results[each.request_id].token_ids == answer(each)[0]
    assert not core.has_work


def test_cached_and_timed_figures_come_with_the_first_token() -> None:
    core = make_core(max_num_seqs=1)
    core.submit(submit("a", PROMPT))
    core.submit(submit("b", PROMPT))
    results = drain(core)
    for name, cached in (("a", 0), ("b", 29)):
        first, *rest = results[name].outputs
        assert first.cached_tokens == cached
        assert first.queue_s > 0 and first.prefill_s > 0
        assert all((each.queue_s, each.prefill_s) == (0, 0) for each in rest)
    assert results["b"].outputs[0].queue_s > results["a"].outputs[0].queue_s


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_ends_in_the_order_end_id_stop_id_length(temperature: float) -> None:
    core = make_core()
    free = submit("free", PROMPT, max_tokens=3, temperature=temperature, seed=6)
    tokens, _ = answer(free)
    third = tokens[2]
    assert third not in tokens[:2]
    assert EOS not in tokens
    common = {"temperature": temperature, "seed": 6}
    core.submit(submit("stop", PROMPT, max_tokens=12, stop_token_ids=(5, third), **common))
    core.submit(submit("both", PROMPT, max_tokens=3, stop_token_ids=(third,), **common))
    core.submit(submit("length", PROMPT, max_tokens=3, **common))
    results = drain(core)
    for name, reason, stop_reason in (
        ("stop", "stop", third), ("both", "stop", third), ("length", "length", None),
    ):  # fmt: skip
        last = results[name].outputs[-1]
        assert (last.finish_reason, last.stop_reason) == (reason, stop_reason)
        assert results[name].token_ids == tokens[:3]


def test_an_end_id_comes_before_the_same_stop_id_unless_ignored() -> None:
    model = MockModel()
    core = make_core(model)
    seed = next(
        seed for seed in range(1000)
        if EOS in answer(submit("x", [1], temperature=2.0, seed=seed, max_tokens=10))[0]
    )  # fmt: skip
    params = {"temperature": 2.0, "seed": seed, "max_tokens": 10}
    core.submit(submit("end", [1], stop_token_ids=(EOS,), ignore_eos=False, **params))
    core.submit(submit("stop", [1], stop_token_ids=(EOS,), ignore_eos=True, **params))
    results = drain(core)
    assert results["end"].token_ids == results["stop"].token_ids
    assert results["end"].token_ids[-1] == EOS
    assert results["end"].outputs[-1].stop_reason is None
    assert results["stop"].outputs[-1].stop_reason == EOS


def test_without_max_tokens_it_runs_to_the_models_length() -> None:
    core = make_core(max_model_len=50)
    core.submit(submit("a", PROMPT, max_tokens=None))
    results = drain(core)
    assert len(results["a"].token_ids) == 20
    assert results["a"].finish_reason == "length"


def test_logits_that_are_no_numbers_end_their_own_request_only() -> None:
    core = make_core(MockModel(nan_on=SPOILED))
    good = [submit(f"good{i}", [*PROMPT, i], logprobs=2) for i in range(3)]
    core.submit(good[0])
    core.submit(submit("bad", [*PROMPT, SPOILED]))
    core.submit(good[1])
    core.submit(good[2])
    results = drain(core)
    bad = results["bad"].outputs
    assert [(each.finish_reason, each.token_ids) for each in bad] == [("error", [])]
    assert "NaN" in (bad[0].error or "")
    for each in good:
        expected, _ = answer(each)
        assert results[each.request_id].token_ids == expected
        logprobs = [entry for output in results[each.request_id].outputs
                    for entry in output.logprobs or []]  # fmt: skip
        assert [entry.token_id for entry in logprobs] == expected


def test_a_step_that_raises_ends_only_the_request_that_makes_it_raise(
    caplog: pytest.LogCaptureFixture, survived: Survived
) -> None:
    survived.failed_steps = 1
    core = make_core(MockModel(raise_on=SPOILED), max_num_batched_tokens=128)
    good = [submit(f"good{i}", [*PROMPT, i]) for i in range(3)]
    core.submit(good[0])
    results: dict[str, Collected] = {}
    collect(results, core.step())
    core.submit(submit("bad", [1] * 20 + [SPOILED] + [2] * 20))
    for each in good[1:]:
        core.submit(each)
    drain(core, results)
    assert results["bad"].finish_reason == "error"
    assert "this token cannot be computed" in (results["bad"].outputs[-1].error or "")
    for each in good:
        assert results[each.request_id].token_ids == answer(each)[0]
    traced = [record for record in caplog.records if record.exc_info]
    assert ["requests failed" in each.getMessage() for each in traced] == [True, False]
    assert "request bad failed" in traced[1].getMessage()


def test_a_fault_of_the_batch_alone_is_survived_counted_and_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture, survived: Survived
) -> None:
    core = make_core(MockModel(raise_on_rows=2))
    submits = [submit(str(i), [*PROMPT[:5], i], max_tokens=9) for i in range(3)]
    for each in submits:
        core.submit(each)
    results = drain(core)
    for each in submits:
        assert results[each.request_id].token_ids == answer(each)[0]
    assert core.stats().failed_steps == core.stats().steps == 9
    survived.failed_steps = 9
    # The 1st, 2nd, 4th and 8th of them.
    assert [record.exc_info is not None for record in caplog.records] == [True] * 4
    assert "a fault of the batch" in caplog.text
    assert "now 8 steps in all" in caplog.records[-1].getMessage()


def test_a_wrong_parameter_is_not_taken_for_a_broken_model(survived: Survived) -> None:
    core = make_core()
    core._runner._sampler._num_tokens = VOCAB + 1
    core.submit(submit("a", PROMPT))
    error = drain(core)["a"].outputs[-1].error
    assert error is not None
    assert error.startswith(f"ValueError in the engine: num_tokens {VOCAB + 1}")
    survived.failed_steps = 1


def test_blocks_that_do_not_add_up_are_counted_when_idle_and_serving_goes_on(
    caplog: pytest.LogCaptureFixture, survived: Survived
) -> None:
    core = make_core()
    for count, name in enumerate(("lost", "owned", "cancelled"), 1):
        if name == "lost":
            core.kv._num_touched += 1  # block 0 is taken by nobody
        elif name == "owned":
            core.kv._free.insert(0, 0)
            core.kv._owned[0] += 1
        core.submit(submit(name, PROMPT))
        if name == "cancelled":
            core.cancel(name)
        while core.has_work:
            core.step()
        assert core.step() == []
        assert core.stats().kv_accounting_errors == count
    assert "KV block counts are inconsistent" in caplog.text
    survived.kv_accounting_errors = 3


def test_cancel_is_answered_once_and_unknown_ids_do_nothing() -> None:
    core = make_core()
    core.cancel("nobody")
    assert not core.has_work
    core.submit(submit("a", PROMPT))
    core.cancel("a")
    core.cancel("a")
    assert core.has_work
    (output,) = core.step()
    assert (output.request_id, output.finish_reason, output.token_ids) == ("a", "abort", [])
    assert core.step() == []
    core.submit(submit("a", PROMPT))
    assert len(drain(core)["a"].token_ids) == 4


def test_slots_and_tables_are_made_as_they_are_needed() -> None:
    core = make_core(max_num_seqs=10**9, num_gpu_blocks_override=400, max_num_batched_tokens=4096)
    assert core._runner._tables._groups[0]._by_slot.size == 0
    results: dict[str, Collected] = {}
    for wave, (count, length) in enumerate(((2, 20), (21, 70), (5, 400), (3, 5))):
        waves = [
            submit(f"{wave}-{i}", [(i * 7 + j) % 40 for j in range(length)], max_tokens=6)
            for i in range(count)
        ]
        for each in waves:
            core.submit(each)
        collect(results, core.step())
        assert len(core.scheduler.running) == count
        assert max(each.slot for each in core.scheduler.running) < 21
        drain(core, results)
        for each in waves:
            assert results[each.request_id].token_ids == answer(each)[0]
    assert core._runner._tables._groups[0]._by_slot.shape == (1, 32, 32), (
        "21 requests, and 26 blocks of one of them"
    )


def test_an_id_is_free_again_with_the_last_output() -> None:
    core = make_core()
    core.submit(submit("a", PROMPT))
    with pytest.raises(RequestError, match="'a' is in use"):
        core.submit(submit("a", PROMPT))
    drain(core)
    core.submit(submit("a", PROMPT))
    drain(core)


def test_what_is_refused_changes_nothing() -> None:
    core = make_core(max_model_len=100)
    with pytest.raises(RequestError) as caught:
        core.submit(submit("long", [1] * 90, max_tokens=11))
    assert caught.value.code == "context_length_exceeded"
    assert "100 tokens" in str(caught.value)
    assert "101" in str(caught.value)
    assert not core.has_work
    core.submit(submit("fits", [1] * 90, max_tokens=10))
    assert len(drain(core)["fits"].token_ids) == 10


def test_a_request_without_a_seed_gets_its_own() -> None:
    core = make_core()
    seeds = iter([3, 4, 3])
    core._draw_seed = lambda: next(seeds)
    results = []
    for name in "abc":
        params = SamplingParams(temperature=1.0, max_tokens=12, ignore_eos=True)
        core.submit(Submit(name, PROMPT, params))
        results.append(drain(core)[name].token_ids)
    assert results[0] == results[2] != results[1]


def test_padding_ids_may_be_read_but_are_never_drawn() -> None:
    core = make_core()
    core.submit(submit("a", [NUM_TOKENS + 3, 1], temperature=50.0, seed=1, max_tokens=200))
    assert max(drain(core)["a"].token_ids) < NUM_TOKENS


def test_figures_add_up() -> None:
    core = make_core()
    for name in "ab":
        core.submit(submit(name, PROMPT, max_tokens=5))
        drain(core)
    stats = core.stats()
    assert stats.prompt_tokens == 60
    assert stats.generation_tokens == 10
    assert stats.prefix_queries_tokens == 60
    assert stats.prefix_hits_tokens == 29
    assert stats.computed_tokens == 2 * (30 + 4) - 29
    assert (stats.num_running, stats.num_waiting) == (0, 0)
    assert stats.step_tokens == 1 and stats.step_s > 0
    assert stats.steps == 10
    assert stats.blocks_owned == 0 and stats.blocks_cached == 3
    info = core.info()
    assert (info.num_blocks, info.block_size, info.max_model_len) == (64, 16, 1024)
    assert (info.kv_cache_dtype, info.backend) == ("f32", "mock")


def test_warm_up_leaves_no_trace_and_finds_a_broken_model() -> None:
    core = make_core()
    core.warm_up()
    core.submit(submit("a", PROMPT))
    assert drain(core)["a"].token_ids == answer(submit("a", PROMPT))[0]
    with pytest.raises(HeadraceError, match=r"does not work: .*NaN"):
        make_core(MockModel(nan_on=0)).warm_up()


def test_block_tables_are_handed_to_the_model_zero_padded() -> None:
    model = MockModel()
    core = make_core(model, max_num_batched_tokens=512)
    core.submit(submit("long", [1] * 100, max_tokens=1))
    drain(core)
    core.submit(submit("short", [2] * 5, max_tokens=3))
    core.submit(submit("other", [3] * 70, max_tokens=3))
    drain(core)
    for batch in model.batches:
        (tables,) = batch.block_tables
        assert tables.dtype == batch.token_ids.dtype == "int32"
        ends = batch.positions[batch.query_start[1:] - 1]
        for table, end in zip(tables, ends, strict=True):
            assert not table[end // 16 + 1 :].any()
