"""Guesses change no verdict, no mask and no error, however small the limits of states and items.

They may change where a limit of expressions (`step_fuel`) is met: those that a guess came to are at
hand for the answer, which then takes less of its limit for one token.
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
