"""Spans that a grammar forces are one row, and answers are those of a token at a time."""

from __future__ import annotations

import json
import random
from functools import cache

import pytest

from headrace.engine.core import EngineCore
from headrace.engine.messages import Stats, Submit
from headrace.structured.grammar import Grammar
from headrace.structured.vocabulary import Vocabulary
from tests.engine.drafts.test_drafts import check_same, run
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

PIECES = (
    "a", "b", "c", "d", "e", "f", "g", "<end>", "0", "1", "2", "{", "}", '"', ":", ",", "[", "]",
    "n", "m", "t", "r", "u", "l", "s", "-", '":', '{"', '","', "na", "name", "ab", "abc", "tru",
    "true", "als", "se", '":"', "ag", "age",
)  # fmt: skip
"""The text of each id: pieces of a schema that can be cut in several ways."""
assert len(PIECES) == NUM_TOKENS and PIECES[EOS] == "<end>"


@cache
def vocabulary() -> Vocabulary:
    ids = {piece: at for at, piece in enumerate(PIECES) if at != EOS}

    def encode(text: str) -> list[int]:
        """The longest piece first, which is one way, and always the same, to write a text."""
        found = []
        while text:
            piece = next(text[:size] for size in (4, 3, 2, 1) if text[:size] in ids)
            found.append(ids[piece])
            text = text[len(piece) :]
        return found

    return Vocabulary([piece.encode() for piece in PIECES], [EOS], encode)


def of_schema(value: dict[str, object]) -> Grammar:
    return Grammar("json_schema", json.dumps(value))


BOOLEAN = {"type": "boolean"}
GRAMMARS = [
    of_schema({
        "type": "object",
        "properties": {"name": {"enum": ["abc", "abed", "bag"]}, "age": {"enum": [0, 11, 120]}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }),
    of_schema({
        "type": "object",
        "properties": {"na": BOOLEAN, "name": BOOLEAN, "names": BOOLEAN},
        "required": ["name"],
        "additionalProperties": False,
    }),
    of_schema({"type": "array", "items": {"const": "true"}, "minItems": 2, "maxItems": 3}),
    Grammar("choice", json.dumps(["name-age", "name-ab", "abcabc", "true"])),
    Grammar("regex", r"(name:(ab|true)-){1,3}(age)?"),
    Grammar("regex", "truename"),
    Grammar("regex", "a*"),
]  # fmt: skip


def made(count: int, seed: int) -> list[Submit]:
    """Requests of every kind that a span may meet."""
    rng = random.Random(seed)
    ids = range(NUM_TOKENS)
    submits = []
    for index in range(count):
        max_tokens = rng.choice([1, 2, 3, 5, 9, 30, 70])
        chosen: dict[str, object] = {
            "grammar": rng.choice(GRAMMARS) if rng.random() < 0.85 else None,
            "temperature": rng.choice([0.0, 0.7, 1.5]),
            "seed": index // 3,
            "choice": index % 3,
            "max_tokens": max_tokens,
            "min_tokens": min(max_tokens, rng.choice([0, 0, 0, 2, 6])),
            "ignore_eos": rng.random() < 0.3,
            "stop_token_ids": tuple(rng.sample(ids, rng.choice([0, 0, 1, 4]))),
            "repetition_penalty": rng.choice([1.0, 1.0, 1.5]),
            "presence_penalty": rng.choice([0.0, 0.0, 1.5]),
            "logit_bias": {at: rng.choice([-100.0, 5.0]) for at in rng.sample(ids, 6)},
            "logprobs": rng.choice([None, None, 0, 3]),
            "prompt_logprobs": rng.choice([None, None, None, 1]),
        }
        if rng.random() < 0.2:
            words = tuple(tuple(rng.sample(ids, rng.choice([1, 2]))) for _ in range(2))
            chosen["bad_words_token_ids"] = words
        if rng.random() < 0.1:
            chosen["allowed_token_ids"] = tuple(rng.sample(ids, 30))
        tokens = [*prompt(rng.choice([0, 16, 30]), 1), *prompt(rng.randint(1, 20), index)]
        priority = rng.choice([0, 0, -1, 2])
        submits.append(submit(f"r{index}", tokens, priority=priority, **chosen))
    return submits


def core_of(model: MockModel | None = None, **settings: object) -> EngineCore:
    return make_core(model, vocabulary=vocabulary, **settings)


def answers_alone(submits: list[Submit], **settings: object) -> dict[str, Collected]:
    """A token at a time, and each request by itself."""
    core = core_of(scheduling_policy="priority", enable_forced_spans=False,
                   enable_prefix_caching=False, max_num_seqs=1, **settings)  # fmt: skip
    answers = run(core, submits)
    assert core.stats().certain_tokens == 0
    return answers


def check(count: int, seed: int, **settings: object) -> Stats:
    submits = made(count, seed)
    alone = answers_alone(submits)
    busy = core_of(scheduling_policy="priority", **settings)
    # It depends on no thread's turn which requests run together.
    run(busy, [submit(f"first{at}", [at], grammar=of) for at, of in enumerate(GRAMMARS)])
    together = run(busy, submits, each_step=3)
    check_same(together, alone)
    for name, got in together.items():
        counted = alone[name].outputs
        assert sum(len(out.token_ids) for out in counted) == len(got.token_ids)
    assert busy.stats().certain_tokens > 0
    return busy.stats()


@pytest.mark.parametrize("budget", [64, 7])
def test_answers_are_those_of_single_steps(budget: int) -> None:
    check(12, 1, max_num_batched_tokens=budget, num_gpu_blocks_override=12)


@pytest.mark.load
@pytest.mark.parametrize("seed", range(3))
def test_many_answers_are_those_of_single_steps(seed: int) -> None:
    budget = (3, 5, 16, 64, 64, 64)[seed]
    stats = check(60, seed, max_num_batched_tokens=budget, num_gpu_blocks_override=8)
    assert stats.prefix_hits_tokens > 0
    assert stats.num_preemptions > 0 or budget < 16


@pytest.mark.load
def test_many_answers_are_those_of_single_steps_where_layers_have_windows() -> None:
    submits = made(40, 77)
    alone = run(core_of(MockModel(windows=(17, 0)), enable_forced_spans=False,
                        scheduling_policy="priority"), submits)  # fmt: skip
    busy = core_of(MockModel(windows=(17, 0)), num_gpu_blocks_override=16,
                   scheduling_policy="priority")  # fmt: skip
    check_same(run(busy, submits, each_step=4), alone)


def sizes(grammar: Grammar, **params: object) -> tuple[list[tuple[int, int]], list[list[str]]]:
    """Of a request of 5 prompt tokens: each row's tokens and its places with logits, and the pieces
    that each step gave."""
    model = MockModel()
    core = core_of(model)
    plans = plans_of(core)
    core.submit(submit("r", prompt(5), **{"ignore_eos": False, "grammar": grammar, **params}))
    got = drain(core)["r"]
    rows = [row for plan in plans for row in plan.rows]
    assert [row.num_tokens for row in rows] == [len(batch.token_ids) for batch in model.batches]
    assert [row.num_logits for row in rows] == [len(batch.logit_rows) for batch in model.batches]
    given = [[PIECES[token_id] for token_id in out.token_ids] for out in got.outputs]
    return [(row.num_tokens, row.num_logits) for row in rows], given


def test_the_prompt_and_a_span_behind_it_are_one_row_with_one_place_of_logits() -> None:
    rows, given = sizes(Grammar("regex", "(name:true-[0-2])"), max_tokens=9)
    assert given == [["name", ":", "true", "-", given[0][-1]]]
    assert rows == [(9, 1)]


def test_an_answer_without_a_choice_draws_nothing() -> None:
    rows, given = sizes(Grammar("regex", "truename"), max_tokens=9)
    assert (rows, given) == ([(6, 0)], [["true", "name"]])


def test_log_probabilities_take_a_place_of_logits_each() -> None:
    rows, given = sizes(Grammar("regex", "truename-[0-2]"), max_tokens=9, logprobs=0)
    assert (rows, len(given[0])) == ([(8, 4)], 4)


def test_a_span_is_cut_by_max_tokens_and_by_a_stop_token_within() -> None:
    grammar = Grammar("regex", "name:true-ab")
    assert sizes(grammar, max_tokens=2) == ([(6, 0)], [["name", ":"]])
    stop = PIECES.index("true")
    rows, given = sizes(grammar, max_tokens=9, stop_token_ids=(stop,))
    assert (rows, given) == ([(7, 0)], [["name", ":", "true"]])


def test_a_span_goes_on_in_the_next_step_where_the_budget_ends() -> None:
    core = core_of(max_num_batched_tokens=7)
    core.submit(submit("r", prompt(5), grammar=Grammar("regex", "(name:){4}[ab]"), max_tokens=20))
    outputs = drain(core)["r"].outputs
    # With its last token known the row of 7 gives 3, and the next gives the rest and draws.
    assert [len(output.token_ids) for output in outputs] == [3, 6]
    assert core.stats().certain_tokens == 8


def test_others_decode_beside_a_span_and_are_not_delayed_by_it() -> None:
    core = core_of(max_num_batched_tokens=16)
    plans = plans_of(core)
    for at, name in enumerate("abc"):
        core.submit(submit(name, prompt(3, at), max_tokens=12))
    core.step()
    core.submit(submit("r", prompt(3, 5), grammar=Grammar("regex", "(name:){9}"), max_tokens=30))
    results = drain(core)
    assert "".join(PIECES[at] for at in results["r"].token_ids) == "name:" * 9
    assert all(len(plan.rows) >= 3 for plan in plans[1:12])


def test_where_something_else_masks_ids_there_are_no_spans_and_errors_are_the_same() -> None:
    name, colon = PIECES.index("name"), PIECES.index(":")
    grammar = Grammar("regex", "name:true")
    for params in ({"bad_words_token_ids": ((colon,),)}, {"allowed_token_ids": (name,)},
                   {"min_tokens": 3, "stop_token_ids": (colon,)}):  # fmt: skip
        core = core_of()
        core.submit(submit("r", prompt(5), grammar=grammar, max_tokens=9, **params))
        got = drain(core)["r"]
        assert (got.finish_reason, got.token_ids) == ("error", [name])
        assert "no token is left to come" in str(got.outputs[-1].error)


def test_a_request_is_cancelled_within_a_span() -> None:
    core = core_of(max_num_batched_tokens=8)
    core.submit(submit("r", prompt(5), grammar=Grammar("regex", "(name:){9}"), max_tokens=30))
    core.submit(submit("other", prompt(5, 3), max_tokens=9))
    results: dict[str, Collected] = {}
    while "r" not in results:
        collect(results, core.step())
    core.cancel("r")
    drain(core, results)
    assert results["r"].finish_reason == "abort"
    other = run(core_of(), [submit("other", prompt(5, 3), max_tokens=9)])["other"]
    assert results["other"].token_ids == other.token_ids
    assert core.kv.num_owned == 0


def test_a_span_that_a_conversation_goes_on_from_is_cached_as_far_as_single_steps_cache_it() -> (
    None
):
    cached = {}
    for spans in (True, False):
        core = core_of(enable_forced_spans=spans)
        core.submit(submit("r", prompt(20), grammar=Grammar("regex", "(name:){9}"), max_tokens=30))
        answer = drain(core)["r"].token_ids
        core.submit(submit("next", [*prompt(20), *answer, 3], max_tokens=1))
        cached[spans] = drain(core)["next"].outputs[0].cached_tokens
    assert cached[True] == cached[False] == 20 + 18 - 1
