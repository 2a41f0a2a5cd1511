"""Plots of characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.page.text_plot import TextAxis, TextCurve, text_bar, text_plot

AXIS = TextAxis("x")


def test_points_stand_where_they_belong() -> None:
    lines = text_plot("t", [TextCurve("c", "o", [(0, 0), (10, 10)])], AXIS, TextAxis("y"), width=40)
    assert lines[0] == "t"
    assert lines[1].endswith("o") and "o" in lines[12] and "·" in lines[6]
    assert lines[12].index("o") == len("       0 ┤")
    assert "x: x" in lines[-1] and "o c" in lines[-1]


def test_a_later_curve_covers_an_earlier_and_nothing_is_no_plot() -> None:
    curves = [TextCurve("a", "a", [(1, 1)]), TextCurve("b", "b", [(1, 1)])]
    drawn = "\n".join(text_plot("", curves, AXIS, AXIS)[1:13])
    assert "b" in drawn and "a" not in drawn
    assert text_plot("", [TextCurve("a", "a", [])], AXIS, AXIS) == []


@given(
    st.lists(st.tuples(st.floats(1e-3, 1e9), st.floats(1e-3, 1e9)), min_size=1, max_size=8),
    st.booleans(),
    st.integers(24, 90),
)
def test_no_line_is_wider_than_was_asked(
    points: list[tuple[float, float]], logarithmic: bool, width: int
) -> None:
    axis = TextAxis("z", logarithmic)
    lines = text_plot("title", [TextCurve("curve", "o", points)], axis, axis, width=width)
    assert all(len(line) <= width for line in lines)
    assert any("o" in line for line in lines[1:13])


def test_a_bar_shows_the_limit_and_what_is_beyond() -> None:
    assert text_bar([("a", 2), ("b", 1)], 6, 6) == "aab···|"
    assert text_bar([("a", 4), ("b", 2)], 3, 6) == "aaa|abb"
    assert text_bar([("a", 0)], 0, 6) == ""
