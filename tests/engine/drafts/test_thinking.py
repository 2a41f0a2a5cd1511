"""A budget for thinking: where it is used up the ids that close it come, and the answer goes on."""

from __future__ import annotations

import random

import pytest

from headrace.engine.drafts.thinking import Thinking
from headrace.engine.messages import Submit
from headrace.engine.params import ThinkingBudget
from headrace.errors import RequestError
from headrace.structured.grammar import Grammar
from tests.engine.drafts.test_drafts import Scripted, check_same, mixed, run
from tests.engine.drafts.test_forced_spans import PIECES, vocabulary
from tests.engine.mock import NUM_TOKENS, VOCAB, Collected, MockModel, drain, make_core, submit
from tests.engine.plans import prompt

CLOSE = (8, 9)


def budget(max_tokens: int, **fields: object) -> ThinkingBudget:
    return ThinkingBudget(**{"max_tokens": max_tokens, "end_ids": CLOSE, **fields})  # type: ignore[arg-type]


def answer_of(thinking: ThinkingBudget | None, **params: object) -> list[int]:
    core = make_core()
    core.submit(submit("r", prompt(9), **{"max_tokens": 12, "thinking": thinking, **params}))
    return drain(core)["r"].token_ids


def closed_at(token_ids: list[int], start: int = 0) -> int:
    """Tokens of reasoning before the first ids that close it, from `start` on."""
    for at in range(start, len(token_ids) - 1):
        if tuple(token_ids[at : at + 2]) == CLOSE:
            return at - start
    raise AssertionError(f"{token_ids} is not closed")


def test_reasoning_is_closed_where_the_budget_ends_and_the_answer_goes_on() -> None:
    free = answer_of(None)
    assert not {*CLOSE} & {*free[:4]}
    held = answer_of(budget(4))
    assert held[:6] == [*free[:4], *CLOSE] and len(held) == 12
    assert answer_of(budget(0))[:2] == [*CLOSE]
    assert answer_of(budget(99)) == free


def test_what_the_model_closes_itself_is_not_closed_again() -> None:
    bias = {8: 100.0}
    drawn = answer_of(budget(5), logit_bias=bias)
    assert drawn[:6] == [8, 8, 8, 8, 8, 9], "the last 8 begins the ids that close it"
    free = answer_of(None)
    end = tuple(free[2:4])
    assert answer_of(ThinkingBudget(max_tokens=3, end_ids=end)) == free


def test_what_else_ends_reasoning_is_followed_by_no_ids_that_close_it() -> None:
    free = answer_of(None)
    held = budget(4, other_end_ids=((1, 2, 3), tuple(free[2:4])))
    assert answer_of(held) == free
    assert answer_of(budget(3, other_end_ids=(tuple(free[2:4]),))) == free, "it had begun"
    begun = (free[2], VOCAB - 1)
    assert answer_of(budget(3, other_end_ids=(begun,)))[:6] == [*free[:4], *CLOSE], "no more than"


def test_the_marks_of_reasoning_cannot_come_once_the_budget_has_ended_it() -> None:
    bias = {7: 100.0}
    free = answer_of(budget(2), logit_bias=bias)
    assert free == [7, 7, *CLOSE, *[7] * 8]
    held = answer_of(budget(2, masked_ids=(7,)), logit_bias=bias)
    assert held[:4] == [7, 7, *CLOSE] and 7 not in held[4:]
    own = budget(9, end_ids=(7,), masked_ids=(7,))
    assert answer_of(own, logit_bias=bias) == [7] * 12, "what the model ended itself is its own"
    chosen = answer_of(budget(2, masked_ids=(7,)), allowed_token_ids=(7,))
    assert chosen == [7, 7, *CLOSE, *[7] * 8], "nothing else may come"


def test_reasoning_that_the_answer_opens_counts_from_there() -> None:
    free = answer_of(None)
    opens = tuple(free[2:4])
    held = answer_of(budget(3, is_open=False, begin_ids=opens))
    assert held[:9] == [*free[:7], *CLOSE]
    never = (VOCAB - 1, VOCAB - 1)
    assert answer_of(budget(0, is_open=False, begin_ids=never)) == free


def test_closing_ids_are_cut_by_max_tokens_and_end_a_request_that_stops_at_them() -> None:
    free = answer_of(None)
    assert answer_of(budget(4), max_tokens=5) == [*free[:4], 8]
    assert answer_of(budget(4), stop_token_ids=(9,)) == [*free[:4], 8, 9]
    assert answer_of(budget(4), stop_token_ids=(8,)) == [*free[:4], 8]


def test_closing_ids_have_log_probabilities_of_the_model() -> None:
    results: dict[str, Collected] = {}
    core = make_core()
    core.submit(submit("r", prompt(9), max_tokens=7, thinking=budget(3), logprobs=2))
    drain(core, results)
    got = results["r"]
    follow = make_core()
    text = [*prompt(9), *got.token_ids[:4]]
    follow.submit(submit("s", text, max_tokens=1, logprobs=2))
    (entry,) = drain(follow)["s"].logprobs
    assert got.logprobs[4].token_id == 9 and got.logprobs[4].top == entry.top


def test_a_budget_and_a_grammar_go_together_where_the_grammar_has_the_closing_ids() -> None:
    end = (PIECES.index("]"),)
    grammar = Grammar("regex", r"[a-c]*\]name:(ab|true)")
    for most in (0, 1, 4):
        core = make_core(vocabulary=vocabulary)
        thinking = ThinkingBudget(max_tokens=most, end_ids=end)
        core.submit(submit("r", prompt(5), grammar=grammar, thinking=thinking, max_tokens=30,
                           logit_bias={end[0]: -50.0}))  # fmt: skip
        got = drain(core)["r"]
        pieces = [PIECES[token_id] for token_id in got.token_ids]
        assert pieces.index("]") == most
        assert "".join(pieces[most + 1 :]) in ("name:ab", "name:true")
        assert got.finish_reason == "stop"


def test_closing_ids_that_the_grammar_refuses_end_the_request_with_an_error() -> None:
    core = make_core(vocabulary=vocabulary)
    other = submit("other", prompt(9, 3), max_tokens=9)
    core.submit(other)
    thinking = ThinkingBudget(max_tokens=2, end_ids=(PIECES.index("]"),))
    core.submit(submit("r", prompt(5), grammar=Grammar("regex", "[a-c]{9}"), thinking=thinking))
    results = drain(core)
    last = results["r"].outputs[-1]
    assert last.finish_reason == "error"
    assert "the grammar cannot be followed" in str(last.error)
    assert results["other"].token_ids == run(make_core(), [other])["other"].token_ids


def made(count: int, seed: int) -> list[Submit]:
    rng = random.Random(seed)
    submits = []
    for index in range(count):
        is_open = rng.random() < 0.7
        thinking = ThinkingBudget(
            max_tokens=rng.choice([0, 1, 2, 5, 9]),
            end_ids=tuple(rng.sample(range(NUM_TOKENS), rng.choice([1, 2, 3]))),
            is_open=is_open,
            begin_ids=() if is_open else (rng.randrange(NUM_TOKENS),),
            other_end_ids=tuple(
                tuple(rng.sample(range(NUM_TOKENS), rng.choice([2, 3])))
                for _ in range(rng.choice([0, 9]))
            ),
            masked_ids=tuple(rng.sample(range(NUM_TOKENS), rng.choice([0, 9]))),
        )
        submits.append(
            submit(
                f"r{index}", prompt(rng.randint(1, 40), index % 5), max_tokens=rng.randint(1, 40),
                temperature=rng.choice([0.0, 1.2]), seed=index, thinking=thinking,
                logprobs=rng.choice([None, 1]), ignore_eos=rng.random() < 0.5,
                repetition_penalty=rng.choice([1.0, 1.3]),
            )
        )  # fmt: skip
    return submits


def check(count: int, seed: int) -> None:
    """Against an engine that does them one by one, token by token."""
    submits = made(count, seed)
    alone = run(make_core(max_num_seqs=1, max_num_batched_tokens=1), submits)
    for each in submits:
        thinking, got = each.params.thinking, alone[each.request_id]
        assert thinking is not None
        if thinking.is_open and got.finish_reason == "length" and not thinking.other_end_ids:
            end = list(thinking.end_ids)
            whole = thinking.max_tokens + len(end)
            text = got.token_ids[:whole]
            closes = [text[at : at + len(end)] == end for at in range(len(text))]
            assert any(closes) or len(got.token_ids) < whole
    answers = {name: got.token_ids for name, got in alone.items()}
    core = make_core(
        MockModel(),
        proposers=[Scripted(answers, mixed)],
        num_gpu_blocks_override=9,
        max_num_batched_tokens=24,
    )
    check_same(run(core, submits, each_step=3), alone)


def test_budgets_hold_whatever_runs_beside_them_and_whatever_is_guessed() -> None:
    check(10, 2)


@pytest.mark.load
@pytest.mark.parametrize("seed", range(2))
def test_many_budgets_hold_whatever_runs_beside_them_and_whatever_is_guessed(seed: int) -> None:
    check(50, seed)


def test_the_state_is_a_function_of_the_tokens_however_they_come() -> None:
    rng = random.Random(1)
    thinking = budget(5, is_open=False, begin_ids=(1, 2))
    for _ in range(200):
        tokens = [rng.choice([1, 2, 8, 9]) for _ in range(20)]
        slowly = Thinking(thinking, 3)
        for length in range(3, 21):
            whole = Thinking(thinking, 3)
            ahead = slowly.was_closed_by_force(tokens[: length + 2])
            assert slowly.left(tokens[:length]) == whole.left(tokens[:length])
            for drafts in (0, 2):
                text = tokens[: length + drafts]
                assert slowly.was_closed_by_force(text) == whole.was_closed_by_force(text)
            assert ahead == slowly.was_closed_by_force(tokens[: length + 2])


@pytest.mark.parametrize(
    ("fields", "param", "problem"),
    [
        ({"max_tokens": -1}, "thinking.max_tokens", "is -1"),
        ({"max_tokens": 3, "end_ids": ()}, "thinking.end_ids", "is empty"),
        ({"max_tokens": 3, "end_ids": (VOCAB,)}, "thinking.end_ids[0]", f"is token id {VOCAB}"),
        ({"max_tokens": 3, "end_ids": (1,) * 65}, "thinking.end_ids", "at most 64"),
        ({"max_tokens": 3, "is_open": False}, "thinking.begin_ids", "is empty"),
        ({"max_tokens": 3, "begin_ids": (1,)}, "thinking.begin_ids", "give one of both"),
    ],
)
def test_a_budget_that_cannot_be_kept_is_refused(
    fields: dict[str, object], param: str, problem: str
) -> None:
    thinking = budget(**fields)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=problem.replace("[", r"\[")) as refused:
        make_core().submit(submit("r", prompt(3), thinking=thinking))
    assert refused.value.param == param
