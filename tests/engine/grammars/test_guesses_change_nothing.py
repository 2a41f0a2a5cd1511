"""Guesses change no verdict, no mask and no error, however small the limits; nor do other answers.

What a guess or another answer came to is at hand for an answer, which then takes less of its limit
for one token: where that could spare it the limit, it reads with a grammar of its own.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from headrace.engine.grammars.constraint import Constraint, Look
from headrace.structured.compile import GrammarTokenizer, compile_grammar
from headrace.structured.grammar import Grammar
from headrace.structured.limits import GrammarLimits
from tests.engine.grammars.test_rebuilt_matchers import END, PROMPT, VOCABULARY, constraint_with

AMBIGUOUS = 'start: e\ne: e e | "a" | "b" | "(" e ")" | X\nX: /[a-m]{1,9}/\n'
CASES = {
    "states": (Grammar("regex", "(.*a.{9}){3}z"), GrammarLimits(lexer_states=120)),
    "items of a token": (
        Grammar("lark", AMBIGUOUS), GrammarLimits(written_step_items=300, written_row_items=80)),
    "items of a place": (Grammar("lark", AMBIGUOUS), GrammarLimits(written_row_items=30)),
}  # fmt: skip


def shown(look: Look) -> tuple[str, str, str | None, bytes | None]:
    bits = None if look.bits is None else look.bits.tobytes()
    return look.verdict, look.error, look.error_code, bits


def check_answer(alone: Constraint, guessed: Constraint, rng: random.Random) -> str:
    """One answer of 40 tokens at most, looked at with and without guesses; how it ended."""
    token_ids = list(PROMPT)
    for _ in range(40):
        expected = shown(alone.look(token_ids))
        drafts = [
            rng.randrange(END) if rng.random() < 0.3 else rng.randrange(13)
            for _ in range(rng.randrange(9))
        ]
        assert shown(guessed.look_along(token_ids, drafts)[0]) == expected
        verdict, error, _, bits = expected
        if bits is None:
            return error or verdict
        words = np.frombuffer(bits, np.uint8)
        allowed = np.flatnonzero(np.unpackbits(words, bitorder="little")).tolist()
        choices = [token_id for token_id in allowed if token_id != END]
        if not choices:
            return verdict
        right = drafts and drafts[0] in choices and rng.random() < 0.5
        token_ids.append(drafts[0] if right else rng.choice(choices))
        if alone.take(token_ids) != guessed.take(token_ids):
            # Of a grammar that is slow the verdict is found by the look that follows.
            assert alone.pace.is_slow or guessed.pace.is_slow
    return "open"


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_an_answer_is_the_same_with_and_without_guesses(name: str) -> None:
    grammar, limits = CASES[name]
    tokenizer = GrammarTokenizer(VOCABULARY)
    for seed in range(25):
        alone, guessed = (
            constraint_with(compile_grammar(grammar, tokenizer, limits), tokenizer)
            for _ in range(2)
        )
        check_answer(alone, guessed, random.Random(seed))


EXPENSIVE = Grammar("regex", "a{3}(.*a.{9}){3}z")
LITTLE_FUEL = GrammarLimits(step_fuel=300)
EXPENSIVE_AT = 12
"""The token of an answer of a's whose mask takes more than that."""
TOO_MUCH = "the grammar cannot be followed: lexer error: too many expressions constructed"


def ending(constraint: Constraint, drafts: list[int], most: int = 40) -> tuple[int, str, str]:
    """Where an answer of a's ends, guessed at with the same drafts at each token, and how."""
    token_ids = list(PROMPT)
    for place in range(most):
        looks = constraint.look_along(token_ids, drafts)
        assert all(look.verdict != "failed" for look in looks[1:])
        if looks[0].verdict != "open":
            return place, looks[0].verdict, looks[0].error
        token_ids.append(0)
        constraint.take(token_ids)
    return most, "open", ""


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8])
def test_a_grammar_that_takes_too_much_at_a_token_fails_there_whatever_is_guessed(
    count: int,
) -> None:
    tokenizer = GrammarTokenizer(VOCABULARY)
    compiled = compile_grammar(EXPENSIVE, tokenizer, LITTLE_FUEL)
    guessed = constraint_with(compiled, tokenizer)
    assert ending(guessed, [0] * count) == (EXPENSIVE_AT, "failed", TOO_MUCH)
    assert guessed.error_code == "grammar_too_large"


def test_an_answer_that_took_too_much_ends_no_other_of_its_grammar() -> None:
    tokenizer = GrammarTokenizer(VOCABULARY)
    compiled = compile_grammar(EXPENSIVE, tokenizer, LITTLE_FUEL)
    failing, other = (constraint_with(compiled, tokenizer) for _ in range(2))
    token_ids = [*PROMPT, 0, 0, 0, 0]
    assert other.look(token_ids).verdict == "open"
    assert ending(failing, [])[1] == "failed"
    assert compiled.is_full
    alone = constraint_with(compile_grammar(EXPENSIVE, tokenizer, LITTLE_FUEL), tokenizer)
    for _ in range(4, EXPENSIVE_AT):
        assert alone.verdict == "open"
        assert shown(other.look(token_ids)) == shown(alone.look(token_ids))
        token_ids.append(0)
    assert shown(other.look(token_ids)) == shown(alone.look(token_ids))
    assert (other.verdict, other.error) == ("failed", TOO_MUCH)


@pytest.mark.long
def test_no_guess_ends_an_answer_or_spares_it_its_end() -> None:
    tokenizer = GrammarTokenizer(VOCABULARY)
    for seed in range(12):
        rng = random.Random(seed)
        limits = GrammarLimits(step_fuel=rng.choice((200, 300, 400, 800)))
        alone, guessed = (
            constraint_with(compile_grammar(EXPENSIVE, tokenizer, limits), tokenizer)
            for _ in range(2)
        )
        token_ids = list(PROMPT)
        for _ in range(30):
            expected = shown(alone.look(token_ids))
            drafts = [rng.choice((0, 0, 1)) for _ in range(rng.randrange(9))]
            found = shown(guessed.look_along(token_ids, drafts)[0])
            assert found == expected
            if expected[0] != "open":
                break
            token_ids.append(0 if len(token_ids) < 6 or rng.random() < 0.8 else 1)


@pytest.mark.parametrize(("seed", "step_fuel"), [(127, 200), (170, 500), (211, 500), (234, 500)])
def test_guesses_that_took_a_part_of_what_an_answer_takes_spare_it_no_limit(
    seed: int, step_fuel: int
) -> None:
    """Of 400 seeds, those of which an answer went on where it ends without guesses."""
    tokenizer = GrammarTokenizer(VOCABULARY)
    rng = random.Random(seed)
    rng.choice((200, 250, 300, 350, 400, 500, 600, 800))
    limits = GrammarLimits(step_fuel=step_fuel)
    alone, guessed = (
        constraint_with(compile_grammar(EXPENSIVE, tokenizer, limits), tokenizer) for _ in range(2)
    )
    token_ids = list(PROMPT)
    while alone.verdict == "open":
        expected = shown(alone.look(token_ids))
        drafts = [rng.choice((0, 0, 1)) for _ in range(rng.randrange(9))]
        assert shown(guessed.look_along(token_ids, drafts)[0]) == expected
        token_ids.append(0 if len(token_ids) < 6 or rng.random() < 0.8 else 1)
    assert alone.error == TOO_MUCH


def test_answers_that_come_to_the_same_one_after_another_end_alike() -> None:
    tokenizer = GrammarTokenizer(VOCABULARY)
    compiled = compile_grammar(EXPENSIVE, tokenizer, LITTLE_FUEL)
    short = [constraint_with(compiled, tokenizer) for _ in range(3)]
    for count, constraint in enumerate(short, EXPENSIVE_AT - 5):
        assert ending(constraint, [], most=count)[1] == "open"
    assert ending(constraint_with(compiled, tokenizer), []) == (EXPENSIVE_AT, "failed", TOO_MUCH)
