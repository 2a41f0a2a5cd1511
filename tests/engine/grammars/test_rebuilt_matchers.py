"""A matcher that was dropped, as by preemption, is made again from the tokens that came."""

from __future__ import annotations

import random

import numpy as np
import pytest

from headrace.engine.grammars.constraint import Constraint
from headrace.structured.compile import CompiledGrammar, GrammarTokenizer, compile_grammar
from headrace.structured.grammar import Grammar
from headrace.structured.limits import GrammarLimits
from headrace.structured.vocabulary import Vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
PIECES = [*LETTERS, *(first + second for first in LETTERS[:30] for second in LETTERS[20:50])]
END = len(PIECES)
PROMPT = [5, 6, 7]


def _encode(text: str) -> list[int]:
    return [LETTERS.index(character) for character in text]


VOCABULARY = Vocabulary([*(piece.encode() for piece in PIECES), b""], [END], _encode)


def constraint_of(grammar: Grammar, tokenizer: GrammarTokenizer) -> Constraint:
    return constraint_with(compile_grammar(grammar, tokenizer), tokenizer)


def constraint_with(compiled: CompiledGrammar, tokenizer: GrammarTokenizer) -> Constraint:
    return Constraint(
        compiled,
        num_prompt=len(PROMPT),
        grammar_end_id=tokenizer.end_id,
        vocab_size=END + 1,
        end_ids=[END],
    )


def written(constraint: Constraint, count: int) -> list[int]:
    """The prompt and as many tokens as are drawn, each from its mask."""
    rng = random.Random(1)
    token_ids = list(PROMPT)
    for _ in range(count):
        look = constraint.look(token_ids)
        assert look.bits is not None, look.error
        allowed = np.flatnonzero(np.unpackbits(look.bits.view(np.uint8), bitorder="little"))
        token_ids.append(rng.choice([each for each in allowed.tolist() if each != END]))
        assert constraint.take(token_ids) == "open", constraint.error
    return token_ids


TEXTS = {
    "a text of 4,000 tokens": ("[a-zA-Z0-9]{0,9000}", 4000),
    "a list of words": ("([a-z]{1,9}|[A-Z0-9]{1,30})*", 4000),
    # Each token takes so much that a matcher that never read them could not read all at once.
    "a text that takes much for each token": ("([a-z]|[A-Z0-9]{1,30}){0,4000}", 450),
}


@pytest.mark.long
@pytest.mark.parametrize("name", TEXTS)
def test_a_matcher_is_made_again_from_a_long_answer(name: str) -> None:
    pattern, count = TEXTS[name]
    tokenizer = GrammarTokenizer(VOCABULARY)
    constraint = constraint_of(Grammar("regex", pattern), tokenizer)
    token_ids = written(constraint, count)
    expected = constraint.look(token_ids)
    assert expected.bits is not None
    bits = expected.bits.copy()
    constraint.rewind()
    again = constraint.look(token_ids)
    assert (again.verdict, again.error) == ("open", "")
    assert again.bits is not None and np.array_equal(again.bits, bits)


def test_a_text_that_the_grammar_does_not_have_is_refused_however_it_is_read() -> None:
    constraint = constraint_of(Grammar("regex", "[a-c]{9}"), GrammarTokenizer(VOCABULARY))
    look = constraint.look([*PROMPT, 0, 1, LETTERS.index("z")])
    assert look.verdict == "failed" and "cannot be followed" in look.error


MANY_STATES = Grammar("regex", "(.*a.{9}){3}z")
"""Each answer comes to some hundred states."""
FEW = GrammarLimits(lexer_states=3000)
MANY_ITEMS = Grammar("regex", "((a{1,1000}){1,1000}){1,1000}")
"""Some ten tokens need more than one may."""


def told(constraint: Constraint, token_ids: list[int], num_drafts: int = 0) -> list[str]:
    """The verdict at each place of an answer, found by steps that have drafts behind each."""
    verdicts = []
    for end in range(len(PROMPT), len(token_ids) + 1):
        drafts = token_ids[end : end + num_drafts]
        look = constraint.look_along(token_ids[:end], drafts)[0]
        verdicts.append(look.error or look.verdict)
    return verdicts


@pytest.mark.long
@pytest.mark.parametrize("num_drafts", [0, 2])
def test_a_limit_of_states_is_met_by_an_answer_and_not_by_all_of_a_grammar(num_drafts: int) -> None:
    tokenizer = GrammarTokenizer(VOCABULARY)
    rng = random.Random(2)
    texts = [[*PROMPT, *rng.choices(range(4), k=length)] for length in [60] * 40 + [2500]]
    shared = compile_grammar(MANY_STATES, tokenizer, FEW)
    together = [told(constraint_with(shared, tokenizer), text, num_drafts) for text in texts]
    assert shared.is_full
    assert {verdict for verdicts in together[:-1] for verdict in verdicts} == {"open"}
    own = constraint_with(compile_grammar(MANY_STATES, tokenizer, FEW), tokenizer)
    assert "too many states" in together[-1][-1]
    assert told(own, texts[-1]) == together[-1]


@pytest.mark.long
def test_guesses_that_were_wrong_bring_no_answer_nearer_to_a_limit() -> None:
    tokenizer = GrammarTokenizer(VOCABULARY)
    rng = random.Random(3)
    text = [*PROMPT, *rng.choices(range(4), k=2500)]

    def failed_after(num_drafts: int) -> int:
        constraint = constraint_with(compile_grammar(MANY_STATES, tokenizer, FEW), tokenizer)
        for end in range(len(PROMPT), len(text) + 1):
            wrong = [(token_id + 1) % 4 for token_id in text[end : end + num_drafts]]
            if constraint.look_along(text[:end], wrong)[0].verdict != "open":
                return end
        raise AssertionError("no limit was met")

    assert failed_after(0) == failed_after(3) == failed_after(8)


def test_a_limit_at_a_guess_is_unknown_and_ends_all_guesses() -> None:
    tokenizer = GrammarTokenizer(VOCABULARY)
    constraint = constraint_with(compile_grammar(MANY_ITEMS, tokenizer), tokenizer)
    text = [*PROMPT]
    while True:
        looks = constraint.look_along(text, [0, 0, 0, 0])
        assert looks[0].verdict == "open"
        if looks[-1].verdict == "unknown":
            break
        text.append(0)
        assert len(text) < 3000, "no limit was met"
    assert not constraint.takes_guesses
    alone = constraint_with(compile_grammar(MANY_ITEMS, tokenizer), tokenizer)
    assert {*told(alone, text)} == {"open"}  # token by token: each has a limit of its own
    while (look := constraint.look_along(text, [0])[0]).verdict == "open":
        assert alone.look(text).verdict == "open"
        text.append(0)
    assert (look.verdict, look.error) == (alone.look(text).verdict, constraint.error)
    assert look.error_code == "grammar_too_large"
