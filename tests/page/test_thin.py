"""Fewer marks, by rules that keep what people look for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.page.plots.thin import Spot, by_slices, evenly, thinned_note

SPOTS = st.lists(
    st.builds(Spot, st.floats(0, 100), st.floats(0, 1e6), st.integers(0, 9)), max_size=300
)


@given(st.lists(st.integers(), max_size=50), st.integers(2, 60))
def test_evenly_keeps_the_ends_and_the_order(items: list[int], most: int) -> None:
    numbered = list(enumerate(items))
    kept = evenly(numbered, most)
    assert len(kept) == min(len(items), most) and kept == sorted(set(kept))
    if items:
        assert kept[0] == numbered[0] and kept[-1] == numbered[-1]


@given(SPOTS)
def test_slices_keep_the_lowest_and_the_highest(spots: list[Spot]) -> None:
    kept = by_slices(spots, 40, slices=10)
    assert len(kept) <= max(40, min(len(spots), 40))
    assert set(kept) <= set(spots)
    if spots:
        assert max(one.y for one in kept) == max(one.y for one in spots)
        assert min(one.y for one in kept) == min(one.y for one in spots)


def test_a_caption_says_what_is_missing() -> None:
    assert thinned_note(3, 3, "requests", "rule") == ""
    assert thinned_note(3, 4000, "requests", "every n-th") == (
        "3 of 4,000 requests are drawn: every n-th."
    )
