"""Counts are a function of the text, however it came about."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.sampling.token_counts import TokenCounts

TOKENS = st.lists(st.integers(0, 9), max_size=12)


def as_dict(counts: TokenCounts, output: list[int]) -> dict[int, int]:
    ids, times = counts.of(output)
    assert len(set(ids.tolist())) == len(ids) == len(times)
    return dict(zip(ids.tolist(), times.tolist(), strict=True))


def by_counting(prompt: list[int], output: list[int]) -> dict[int, int]:
    return {token_id: output.count(token_id) for token_id in {*prompt, *output}}


@given(prompt=TOKENS, outputs=st.lists(TOKENS, max_size=6))
def test_any_text_after_any_other(prompt: list[int], outputs: list[list[int]]) -> None:
    counts = TokenCounts(prompt)
    for output in outputs:
        assert as_dict(counts, output) == by_counting(prompt, output)


@given(prompt=TOKENS, text=TOKENS, cuts=st.lists(st.tuples(st.integers(0, 12), TOKENS)))
def test_drafts_that_are_cut_and_replaced(
    prompt: list[int], text: list[int], cuts: list[tuple[int, list[int]]]
) -> None:
    counts, output = TokenCounts(prompt), list(text)
    for length, draft in cuts:
        output = output[:length] + draft
        assert as_dict(counts, output) == by_counting(prompt, output)
        assert as_dict(counts, output) == by_counting(prompt, output)


def test_more_ids_than_were_made_room_for() -> None:
    counts = TokenCounts([5, 5, 900])
    output = [*range(1000, 1500), 5]
    assert as_dict(counts, output) == by_counting([5, 900], output)
    assert as_dict(counts, []) == {5: 0, 900: 0}


def test_the_prompt_comes_first_and_then_the_output_as_it_came() -> None:
    ids, times = TokenCounts([7, 3, 7]).of([9, 3, 8])
    assert ids.tolist() == [3, 7, 9, 8]
    assert times.tolist() == [1, 0, 1, 1]
