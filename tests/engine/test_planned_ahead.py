"""Steps planned while the one before them computes: every answer is the one without."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.flight import plans_ahead
from headrace.errors import ConfigError
from headrace.models import load_model
from tests.engine.conftest import Survived
from tests.engine.deferred import DeferredDraw, Queue, deferred
from tests.engine.expected import answer
from tests.engine.mock import (
    NUM_TOKENS,
    Collected,
    MockModel,
    MockOps,
    collect,
    drain,
    make_core,
    real_ops,
    submit,
)
from tests.engine.streams import Case, cases, logprobs_of
from tests.engine.test_core_property import Engine, patient
from tests.tiny import EOS as TINY_EOS
from tests.tiny import NUM_TOKENS as TINY_TOKENS
from tests.tiny import tiny_checkpoint


def make_deferred(model: MockModel, **settings: Any) -> tuple[EngineCore, Queue]:
    """An engine over the mock, which computes as late as can be."""
    later, ops, queue = deferred(model, MockOps())
    return make_core(later, ops=ops, **settings), queue


class AheadEngine(Engine):
    """The same engine over a backend that is asynchronous."""

    steps_of_a_call = 2  # where a step that is planned ahead has to wait for results

    def made(self, model: MockModel, **settings: Any) -> EngineCore:
        core, self.queue = make_deferred(model, **settings)
        return core


class TestAhead(AheadEngine.TestCase):  # type: ignore[misc]
    settings = patient(max_examples=6, stateful_step_count=15)


@pytest.mark.load
class TestAheadThoroughly(AheadEngine.TestCase):  # type: ignore[misc]
    settings = patient(max_examples=30, stateful_step_count=30)


def test_a_step_is_begun_before_the_host_knows_the_tokens_it_follows() -> None:
    model = MockModel()
    core, queue = make_deferred(model)
    one, other = (submit(name, [3, 4], max_tokens=12, seed=5, temperature=1.0) for name in "ab")
    core.submit(one)
    core.submit(other)
    results = drain(core)
    assert queue.num_ahead == 11, "all steps but that of the prompts"
    for name in "ab":
        assert (results[name].token_ids, results[name].finish_reason) == answer(one)
    assert model.steps == 12, "a length is known beforehand: nothing is computed in vain"


def test_an_end_is_seen_a_step_late_and_leaves_no_trace() -> None:
    """What is computed in vain is in no answer, no count of tokens and no prefix."""
    found = 0
    for first in range(1, 30):
        one = submit("a", [first, 2, 3], max_tokens=40, ignore_eos=False)
        expected, reason = answer(one)
        if reason != "stop" or not 3 <= len(expected) < 40:
            continue
        found += 1
        model = MockModel()
        core, _ = make_deferred(model)
        core.submit(one)
        results = drain(core)
        assert (results["a"].token_ids, results["a"].finish_reason) == (expected, "stop")
        assert model.steps == len(expected) + 1
        assert core.stats().generation_tokens == len(expected)
        assert core.stats().blocks_owned == 0
        again = submit("b", [first, 2, 3, *expected, 9], max_tokens=6)
        core.submit(again)
        assert drain(core)["b"].token_ids == answer(again)[0]
    assert found > 2


def test_who_draws_from_its_own_text_waits_for_it() -> None:
    """Penalties and words of several ids wait; a mask that follows from the length does not."""
    changes: list[dict[str, Any]] = [
        {"repetition_penalty": 4.0, "frequency_penalty": 2.0},
        {"presence_penalty": 2.0, "min_tokens": 3},
    ]
    plain = answer(submit("a", [5], max_tokens=30))[0]
    changes.append({"bad_words_token_ids": tuple(pairwise(plain[:8]))})
    for change in changes:
        core, queue = make_deferred(MockModel())
        one = submit("a", [5], max_tokens=30, **change)
        core.submit(one)
        assert drain(core)["a"].token_ids == answer(one)[0] != plain
        assert queue.num_ahead == 0
    core, queue = make_deferred(MockModel())
    bias = dict.fromkeys(range(0, NUM_TOKENS, 2), 9.0)
    one = submit("a", [5], max_tokens=30, min_tokens=20, ignore_eos=False, logit_bias=bias,
                 stop_token_ids=(4, 8), allowed_token_ids=tuple(range(30)))  # fmt: skip
    core.submit(one)
    results = drain(core)
    assert (results["a"].token_ids, results["a"].finish_reason) == answer(one)
    assert queue.num_ahead >= 19


def mixed(count: int, seed: int) -> list[Case]:
    """Requests of which some need to know their own tokens, which others do not."""
    rng = random.Random(seed)
    made = []
    for case in cases(count, rng):
        changes: dict[str, Any] = rng.choice(
            [
                {},
                {},
                {"min_tokens": rng.randint(1, 6)},
                {"logit_bias": {rng.randrange(200): 3.0}, "choice": 1},
                {"samplers": ("top_k", "temperature", "min_p", "top_p")},
                {"repetition_penalty": 1.3, "frequency_penalty": 0.2},
                {"bad_words_token_ids": ((rng.randrange(200), rng.randrange(200)),)},
                {"prompt_logprobs": 1},
            ]
        )
        # They come apart, so that some steps are planned ahead.
        params = msgspec.structs.replace(case.submit.params, **changes)
        at = 4 * case.at_step
        made.append(
            replace(
                case,
                submit=msgspec.structs.replace(case.submit, params=params),
                at_step=at,
                cancel_at=case.cancel_at and at + rng.randint(0, 20),
            )
        )
    return made


def answers(core: EngineCore, requests: list[Case]) -> dict[str, Collected]:
    """Of requests that come and go by steps."""
    results: dict[str, Collected] = {}
    step = 0
    while core.has_work or step <= 80:
        for case in requests:
            if case.at_step == step:
                core.submit(case.submit)
            if case.cancel_at == step:
                core.cancel(case.submit.request_id)
        collect(results, core.step())
        core.check()
        step += 1
        assert step < 5000
    return results


def check_same(requests: list[Case], got: dict[str, Collected], own: dict[str, Collected]) -> None:
    """Bit for bit, as far as neither was cancelled."""
    for case in requests:
        one, other = got[case.submit.request_id], own[case.submit.request_id]
        ends = {one.finish_reason, other.finish_reason}
        count = min(len(one.token_ids), len(other.token_ids))
        if "abort" not in ends:
            assert len(ends) == 1 and len(one.token_ids) == len(other.token_ids)
            assert one.prompt_logprobs == other.prompt_logprobs
        assert one.token_ids[:count] == other.token_ids[:count]
        logprobs = logprobs_of(one), logprobs_of(other)
        assert logprobs[0][:count] == logprobs[1][:count]


@pytest.mark.parametrize(
    ("family", "blocks"),
    [
        ("llama", 11),
        pytest.param("gemma2", 16, marks=pytest.mark.load),
        pytest.param("gpt_oss", 16, marks=pytest.mark.load),
    ],
)
def test_streams_on_the_kernels_are_bit_for_bit_the_same(family: str, blocks: int) -> None:
    """Of every kind, in a cache so small that they are preempted, with prefixes they share."""
    ops = real_ops("cpu")
    model = load_model(tiny_checkpoint(family, "Q8_0", logit_scale=2.0), ops)
    later, later_ops, queue = deferred(model, ops)
    requests = mixed(14, 3)
    config = EngineConfig(
        num_gpu_blocks_override=blocks, block_size=16, max_num_batched_tokens=48,
        speculative_config="none",
    )  # fmt: skip
    results = []
    for one, its_ops in ((later, later_ops), (model, ops)):
        core = EngineCore(one, its_ops, config, num_tokens=TINY_TOKENS, eos_token_ids=(TINY_EOS,))
        results.append(answers(core, requests))
        stats = core.stats()
        assert stats.num_preemptions > 0 or family != "llama"
        assert stats.prefix_hits_tokens > 0
    check_same(requests, *results)
    assert queue.num_ahead > 60


@pytest.mark.parametrize("late", [False, True])
def test_a_row_that_fails_fails_alone(late: bool, survived: Survived) -> None:
    """Found when the step is begun, or when what it gave is read and the next one is in flight."""
    survived.failed_steps = 1
    asked = [submit("a", [1, 2], max_tokens=9), submit("c", [2, 3], max_tokens=9)]
    said = {token_id for one in asked for token_id in answer(one)[0]}
    bad = next(token_id for token_id in range(4, NUM_TOKENS) if token_id not in said)
    model = MockModel(raise_on=bad)
    later, ops, queue = deferred(model, MockOps())
    if not late:
        forward = later.forward

        def checked(batch: Any, kv: Any) -> Any:
            if bad in batch.token_ids:
                raise RuntimeError("this token cannot be computed")
            return forward(batch, kv)

        later.forward = checked
    core = make_core(later, ops=ops)
    results: dict[str, Collected] = {}
    core.submit(asked[0])
    for _ in range(3):
        collect(results, core.step())
    core.submit(submit("b", [1, bad], max_tokens=9))
    core.submit(asked[1])
    drain(core, results)
    for one in asked:
        assert results[one.request_id].token_ids == answer(one)[0]
    assert results["b"].finish_reason == "error"
    assert queue.num_ahead > 5


def test_a_row_without_a_distribution_ends_its_request_alone() -> None:
    whole = answer(submit("a", [1, 2], max_tokens=30))[0]
    at = next(place for place in range(4, 30) if whole[place] not in whole[:place])
    model = MockModel(nan_on=whole[at])
    core, _ = make_deferred(model)
    clean = submit("b", [5, 6], max_tokens=at)
    core.submit(submit("a", [1, 2], max_tokens=30, logprobs=1))
    core.submit(clean)
    results = drain(core)
    assert results["a"].token_ids == whole[: at + 1]
    assert "holds NaN" in (results["a"].outputs[-1].error or "")
    expected = answer(clean)[0]
    if whole[at] not in expected[:-1]:
        assert results["b"].token_ids == expected


def test_memory_that_runs_out_changes_no_answer() -> None:
    model = MockModel(most_tokens=5)
    core, queue = make_deferred(model)
    asked = [submit(f"r{i}", [i + 1] * (3 + 2 * i), max_tokens=12) for i in range(4)]
    for one in asked:
        core.submit(one)
    results = drain(core)
    assert core.stats().out_of_memory_steps > 0
    for one in asked:
        assert results[one.request_id].token_ids == answer(one)[0]
    assert queue.num_ahead <= 1, "until there is memory again steps are computed in parts"


@pytest.mark.parametrize("num_prompt", [18, 20, 24, 30, 36])
@pytest.mark.parametrize("needs_results", [False, True])
def test_part_of_a_prompt_that_found_no_memory_is_computed_again(
    num_prompt: int, needs_results: bool
) -> None:
    """Late, and of a step that draws nothing, whether it was begun or is waited for."""
    model = MockModel(most_tokens=8)
    core, _ = make_deferred(model, max_num_batched_tokens=16)
    long = submit("a", [(7 * at + 3) % 40 for at in range(num_prompt)], max_tokens=6)
    asked = [long]
    core.submit(long)
    results: dict[str, Collected] = {}
    collect(results, core.step())
    if needs_results:
        asked.append(submit("b", [1, 2], max_tokens=6, presence_penalty=2.0))
        core.submit(asked[1])
    drain(core, results)
    assert core.stats().out_of_memory_steps > 0
    assert {at for at, _ in model.computed} >= {*range(num_prompt)}
    for one in asked:
        assert results[one.request_id].token_ids == answer(one)[0]


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("other", [{"presence_penalty": 2.0}, {"prompt_logprobs": 0}, {}])
def test_a_row_whose_token_never_came_is_planned_anew(
    steps: int, times: int, other: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step cannot be read and its repetition is put off, while one that was planned behind it is
    not begun: somebody who came needs results first, or has the next one put off too."""
    later, ops, _ = deferred(MockModel(), MockOps())
    core = make_core(later, ops=ops, max_num_batched_tokens=16)
    one = submit("a", [3, 4, 5], max_tokens=8)
    core.submit(one)
    results: dict[str, Collected] = {}
    for _ in range(steps):
        collect(results, core.step())
    short = ["read", *["forward"] * times]

    def lacking(name: str, work: Any) -> Any:
        def tried(*args: Any) -> Any:
            if short and short[0] == name:
                del short[0]
                raise MemoryError("others hold it")
            return work(*args)

        return tried

    with monkeypatch.context() as patched:
        patched.setattr(DeferredDraw, "read", lacking("read", DeferredDraw.read))
        later.forward = lacking("forward", later.forward)
        two = submit("b", [1, 2], max_tokens=6, **other)
        core.submit(two)
        drain(core, results)
    assert not short and core.stats().kv_accounting_errors == 0
    for each in (one, two):
        assert results[each.request_id].token_ids == answer(each)[0]


def test_what_is_cancelled_in_flight_says_nothing_more() -> None:
    core, _ = make_deferred(MockModel())
    for name in "ab":
        core.submit(submit(name, [1, 2], max_tokens=20))
    results: dict[str, Collected] = {}
    for _ in range(4):
        collect(results, core.step())
    core.cancel("a")
    drain(core, results)
    assert results["a"].finish_reason == "abort"
    expected = answer(submit("b", [1, 2], max_tokens=20))[0]
    assert results["b"].token_ids == expected
    assert results["a"].token_ids == expected[: len(results["a"].token_ids)]
    core.submit(submit("c", [1, 2], max_tokens=20))
    core.step()
    core.cancel("c")
    assert [one.finish_reason for one in core.step()] == ["abort"]
    assert not core.has_work and core.stats().blocks_owned == 0


def test_when_steps_are_planned_ahead() -> None:
    def planned(is_asynchronous: bool = True, **settings: Any) -> bool:
        return plans_ahead(EngineConfig(**settings), is_asynchronous=is_asynchronous)

    assert planned() and planned(async_scheduling=True) and planned(speculative_config="none")
    assert not planned(is_asynchronous=False)
    assert not planned(is_asynchronous=False, async_scheduling=True)
    assert not planned(async_scheduling=False)
    assert not planned(speculative_config="ngram") and not planned(speculative_config="auto")
    with pytest.raises(ConfigError, match=r"--async-scheduling plans .* is 'ngram'"):
        planned(async_scheduling=True, speculative_config="ngram")
    core = make_core(async_scheduling=True)
    core.submit(submit("a", [1, 2]))
    assert core.step()[0].token_ids, "a backend that computes at once gives its tokens at once"
