"""What the automaton guesses is what looking through all texts gives."""

from __future__ import annotations

import random

from headrace.engine.drafts.lookup._lookup import Reader, SuffixAutomaton

LEAST_MATCH = 2


def counted(texts: list[list[int]], piece: list[int]) -> dict[int, tuple[int, int, int]]:
    """The tokens that follow a piece: in how many texts, the last of those, the id negated."""
    found: dict[int, tuple[int, int, int]] = {}
    for number, text in enumerate(texts):
        after = {
            text[end]
            for end in range(len(piece), len(text))
            if text[end - len(piece) : end] == piece
        }
        for token_id in after:
            found[token_id] = (found.get(token_id, (0,))[0] + 1, number, -token_id)
    return found


def looked_up(texts: list[list[int]], text: list[int], most: int) -> list[int]:
    """The slow twin."""
    for length in range(len(text), LEAST_MATCH - 1, -1):
        piece, guess = text[len(text) - length :], list[int]()
        while len(guess) < most and (choices := counted(texts, [*piece, *guess])):
            guess.append(max(choices, key=choices.__getitem__))
        if guess:
            return guess
    return []


def random_text(rng: random.Random, num_ids: int, most: int) -> list[int]:
    return [rng.randrange(num_ids) for _ in range(rng.randrange(1, most))]


def test_a_guess_follows_the_longest_match_by_counts() -> None:
    rng = random.Random(4)
    for _ in range(150):
        num_ids = rng.choice([1, 2, 3])
        automaton, texts = SuffixAutomaton(), list[list[int]]()
        for _ in range(rng.randrange(1, 6)):
            texts.append(random_text(rng, num_ids, 12))
            automaton.begin()
            automaton.add(texts[-1])
        reader, text = Reader(automaton), list[int]()
        for _ in range(14):
            text.append(rng.randrange(num_ids))
            reader.read(text[-1:])
            assert reader.guess(LEAST_MATCH, 4)[0] == looked_up(texts, text, 4)


def test_a_reader_has_a_match_while_texts_are_added() -> None:
    rng = random.Random(5)
    for _ in range(150):
        automaton, texts, text = SuffixAutomaton(), list[list[int]](), list[int]()
        reader = Reader(automaton)
        for _ in range(5):
            texts.append([])
            automaton.begin()
            for token_id in random_text(rng, 2, 9):
                texts[-1].append(token_id)
                automaton.add([token_id])
                text.append(rng.randrange(2))
                reader.read(text[-1:])
                piece = text[len(text) - reader.match_tokens :]
                assert any(
                    each[at : at + len(piece)] == piece
                    for each in texts
                    for at in range(len(each) + 1)
                )
                guess, match = reader.guess(LEAST_MATCH, 3)
                assert not guess or guess[0] in counted(texts, text[len(text) - match :])
        later = Reader(automaton)
        later.read(text)
        assert later.guess(LEAST_MATCH, 4)[0] == looked_up(texts, text, 4)
