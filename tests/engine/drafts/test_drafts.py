"""Rows that take several tokens: whatever is guessed, answers are those of a token at a time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from headrace.engine.core import EngineCore
from headrace.engine.drafts.proposer import Drafter, Drafts, Proposal
from headrace.engine.messages import Stats, Submit
from headrace.engine.params import ThinkingBudget
from headrace.engine.request import Request
from headrace.engine.scheduling.step_rows import DRAFT_LOGIT_ROWS
from headrace.structured.grammar import Grammar
from tests.engine.grammars.test_grammars import vocabulary
from tests.engine.mock import (
    EOS,
    NUM_TOKENS,
    Collected,
    MockModel,
    collect,
    drain,
    make_core,
    submit,
)
from tests.engine.plans import plans_of, prompt

Guess = Callable[[random.Random, list[int]], list[int]]


def right(rng: random.Random, following: list[int]) -> list[int]:
    return following


def wrong(rng: random.Random, following: list[int]) -> list[int]:
    return [(token_id + 1) % NUM_TOKENS for token_id in following]


def mixed(rng: random.Random, following: list[int]) -> list[int]:
    kept = following[: rng.randrange(1 + len(following))]
    return kept + [rng.randrange(NUM_TOKENS) for _ in range(rng.randrange(3))]


class Scripted:
    """A proposer that knows the answers by request, and spoils them by `guess`."""

    def __init__(self, answers: dict[str, list[int]], guess: Guess, most: int = 7) -> None:
        self._answers = answers
        self._guess = guess
        self._most = most
        self._rng = random.Random(5)

    def propose(self, request: Request, most: int) -> Proposal | None:
        assert most >= 1
        done = len(request.token_ids) - request.num_prompt
        assert request.token_ids[request.num_prompt :] == self._answers[request.request_id][:done]
        following = self._answers[request.request_id][done : done + self._most]
        return Proposal(self._guess(self._rng, following), is_certain=False)


def requests(count: int, seed: int) -> list[Submit]:
    """Of every kind of edit, mask and end that looks at the tokens before."""
    rng = random.Random(seed)
    made = []
    for index in range(count):
        chosen: dict[str, object] = {
            "temperature": rng.choice([0.0, 0.7, 1.3]),
            "seed": index,
            "max_tokens": rng.choice([1, 17, 40, 70]),
            "ignore_eos": rng.random() < 0.8,
            "stop_token_ids": rng.choice([(), (), (3,), (11, 12)]),
            "repetition_penalty": rng.choice([1.0, 1.4]),
            "frequency_penalty": rng.choice([0.0, 0.9]),
            "min_tokens": rng.choice([0, 0, 4]),
            "logprobs": rng.choice([None, 0, 2]),
            "logit_bias": rng.choice([{}, {EOS: 2.0, 3: 1.0}]),
            "bad_words_token_ids": rng.choice([(), ((4, 5), (6,), (1, 2, 3))]),
        }
        chosen["min_tokens"] = min(int(str(chosen["min_tokens"])), int(str(chosen["max_tokens"])))
        if rng.random() < 0.2:
            chosen["prompt_logprobs"] = 1
        if rng.random() < 0.4:
            chosen["grammar"] = Grammar("regex", rng.choice(["[a-h0-9]+", "(ab|cd)*", "a{3}.*"]))
        if rng.random() < 0.3:
            budget = ThinkingBudget(max_tokens=rng.choice([0, 1, 6]), end_ids=(8, 9))
            if chosen.get("grammar") is None:
                chosen["thinking"] = budget
        stem = prompt(rng.choice([0, 12, 24]), 1)
        made.append(submit(f"r{index}", [*stem, *prompt(rng.randint(1, 9), index)], **chosen))
    return made


def check_same(got: dict[str, Collected], expected: dict[str, Collected]) -> None:
    assert got.keys() == expected.keys()
    for name, answer in expected.items():
        assert got[name].token_ids == answer.token_ids, name
        assert got[name].logprobs == answer.logprobs, name
        assert got[name].prompt_logprobs == answer.prompt_logprobs, name
        last, wanted = got[name].outputs[-1], answer.outputs[-1]
        assert (last.finish_reason, last.stop_reason, last.ends_with_text, last.error) == (
            wanted.finish_reason, wanted.stop_reason, wanted.ends_with_text, wanted.error,
        ), name  # fmt: skip


def core_of(proposers: Sequence[Scripted] = (), **settings: object) -> EngineCore:
    return make_core(vocabulary=vocabulary, proposers=proposers, **settings)


def run(core: EngineCore, submits: Sequence[Submit], each_step: int = 64) -> dict[str, Collected]:
    results: dict[str, Collected] = {}
    pending = list(submits)
    while pending:
        for submitted in pending[:each_step]:
            core.submit(submitted)
        del pending[:each_step]
        collect(results, core.step())
        core.check()
    return drain(core, results)


@pytest.mark.parametrize("guess", [right, wrong, mixed])
def test_drafts_change_no_answer(guess: Guess) -> None:
    check_drafts(guess, (0,), requests(10, 3))


@pytest.mark.load
@pytest.mark.parametrize(
    ("guess", "windows"), [(right, (0,)), (wrong, (17, 0)), (mixed, (0,)), (mixed, (17, 0))]
)
def test_drafts_change_no_answer_of_many(guess: Guess, windows: tuple[int, ...]) -> None:
    # Grammars are compiled beside the steps, so how many run at once, and whether somebody is
    # preempted, depends on the time that takes; the answers do not.
    stats = check_drafts(guess, windows, requests(40, 3))
    assert stats.prefix_hits_tokens > 0


def check_drafts(guess: Guess, windows: tuple[int, ...], submits: Sequence[Submit]) -> Stats:
    model = MockModel(windows=windows)
    alone = run(make_core(MockModel(windows=windows), vocabulary=vocabulary,
                          enable_forced_spans=False), submits)  # fmt: skip
    answers = {name: got.token_ids for name, got in alone.items()}
    core = make_core(
        model,
        vocabulary=vocabulary,
        proposers=[Scripted(answers, guess)],
        num_gpu_blocks_override=9 * model.cache_layout.num_tables,
        max_num_batched_tokens=24,
    )
    check_same(run(core, submits, each_step=8), alone)
    stats = core.stats()
    assert stats.spec_draft_tokens > 0 < stats.spec_drafts
    if guess is right:
        assert stats.spec_accepted_tokens > 0.9 * stats.spec_draft_tokens
    if guess is wrong:
        assert stats.spec_accepted_tokens == 0
    assert core.kv.num_owned == 0
    return stats


def test_right_guesses_take_fewer_steps_and_wrong_ones_no_more() -> None:
    submits = [submit("r", prompt(20), max_tokens=33)]
    answers = {"r": run(make_core(), submits)["r"].token_ids}
    steps = {}
    for name, guess in {"right": right, "wrong": wrong}.items():
        core = core_of([Scripted(answers, guess, most=7)])
        assert run(core, submits)["r"].token_ids == answers["r"]
        steps[name] = core.stats().steps
    # The prompt's row gives 8 tokens and so do the next ones; what is left of 33 comes at last.
    assert steps == {"right": 5, "wrong": 33}


def test_rejected_drafts_are_in_no_block_that_another_request_finds() -> None:
    long = prompt(40)
    submits = [submit("r", long, max_tokens=30)]
    answer = run(make_core(), submits)["r"].token_ids
    core = core_of([Scripted({"r": answer, "next": []}, wrong)])
    run(core, submits)
    follow = submit("next", [*long, *answer[:-1], 1], max_tokens=1)
    got = run(core, [follow])["next"]
    assert got.outputs[0].cached_tokens == len(long) + len(answer) - 1
    assert got.token_ids == run(make_core(), [follow])["next"].token_ids


def test_drafts_get_what_decodes_leave_of_the_budget_and_come_before_prompts() -> None:
    submits = [submit(name, prompt(8, at), max_tokens=24) for at, name in enumerate("abc")]
    answers = {name: got.token_ids for name, got in run(make_core(), submits).items()}
    late = submit("late", prompt(60, 9), max_tokens=1)
    answers["late"] = run(make_core(), [late])["late"].token_ids
    core = core_of([Scripted(answers, right, most=4)], max_num_batched_tokens=32)
    plans = plans_of(core)
    for each in submits:
        core.submit(each)
    core.step()
    core.submit(late)
    results = drain(core)
    assert results["late"].token_ids == answers["late"]
    sizes = {row.request.request_id: row.num_tokens for row in plans[1].rows}
    assert sizes == {"a": 5, "b": 5, "c": 5, "late": 17}
    assert all(plan.num_tokens <= 32 for plan in plans)


def test_drafts_push_nobody_out_where_blocks_are_short() -> None:
    submits = [submit(name, prompt(14, at), max_tokens=18) for at, name in enumerate("ab")]
    answers = {name: got.token_ids for name, got in run(make_core(), submits).items()}
    core = core_of([Scripted(answers, right, most=30)], num_gpu_blocks_override=4)
    got = run(core, submits)
    assert {name: each.token_ids for name, each in got.items()} == answers
    assert core.stats().num_preemptions == 0


def test_places_of_drafts_are_as_many_as_a_step_has_logits_for() -> None:
    submits = [submit(str(at), prompt(4, at), max_tokens=60) for at in range(4)]
    answers = {name: got.token_ids for name, got in run(make_core(), submits).items()}
    model = MockModel()
    core = make_core(
        model, proposers=[Scripted(answers, right, most=59)], max_num_batched_tokens=512
    )
    assert {name: each.token_ids for name, each in run(core, submits).items()} == answers
    most = max(len(batch.logit_rows) for batch in model.batches)
    assert DRAFT_LOGIT_ROWS < most <= DRAFT_LOGIT_ROWS + 4


def test_an_output_is_spoiled_by_a_row_without_a_distribution_no_earlier_than_it_comes() -> None:
    submits = [submit("r", prompt(9), max_tokens=20)]
    answer = run(make_core(), submits)["r"].token_ids
    spoils = answer[6]
    assert spoils not in answer[:6] and spoils not in prompt(9)
    expected = run(make_core(MockModel(nan_on=spoils)), submits)["r"]
    core = make_core(MockModel(nan_on=spoils), proposers=[Scripted({"r": answer}, right)])
    got = run(core, submits)["r"]
    assert got.token_ids == expected.token_ids == answer[:7]
    assert got.finish_reason == expected.finish_reason == "error"
    assert got.outputs[-1].error == expected.outputs[-1].error


def test_a_request_is_cancelled_between_rows_of_drafts() -> None:
    submits = [submit(name, prompt(9, at), max_tokens=40) for at, name in enumerate("ab")]
    answers = {name: got.token_ids for name, got in run(make_core(), submits).items()}
    core = core_of([Scripted(answers, mixed)])
    results: dict[str, Collected] = {}
    for each in submits:
        core.submit(each)
    for _ in range(3):
        collect(results, core.step())
    core.cancel("a")
    drain(core, results)
    assert results["a"].finish_reason == "abort"
    assert results["a"].token_ids == answers["a"][: len(results["a"].token_ids)] != []
    assert results["b"].token_ids == answers["b"]
    assert core.kv.num_owned == 0


def test_what_is_certain_and_has_no_room_is_known_without_being_computed() -> None:
    drafts = Drafts((4, 5, 6), are_certain=True)
    assert drafts.within(3) is drafts
    assert drafts.within(1) == Drafts((4,), True, 5)
    assert Drafts((4, 5), True, 6).within(0) == Drafts((), True, 4)
    assert Drafts((4, 5, 6)).within(2) == Drafts((4, 5))


class Certain:
    """A proposer that is sure of three tokens."""

    def propose(self, request: Request, most: int) -> Proposal | None:
        return Proposal([4, 5, 6][:most], is_certain=True)


@pytest.mark.parametrize(
    ("max_len", "stop", "room", "expected"),
    [
        (20, (), 9, Drafts([4, 5, 6], True)),
        (20, (), 2, Drafts([4, 5], True, 6)),
        (20, (), 0, Drafts([], True, 4)),
        (5, (), 9, Drafts([4], True, 5)),
        (4, (), 9, Drafts([], True, 4)),
        (20, (5,), 9, Drafts([4], True, 5)),
        (6, (), 9, Drafts([4, 5], True, 6)),
    ],
)
def test_certain_tokens_end_where_the_request_does(
    max_len: int, stop: tuple[int, ...], room: int, expected: Drafts
) -> None:
    params = submit("r", [1], stop_token_ids=stop).params
    request = Request("r", [1, 2, 3], 3, params, max_len)
    assert Drafter([Certain()]).drafts(request, room) == expected
