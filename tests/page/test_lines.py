"""Line plots, the roofline and the stacked bar."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from headrace.page.figures import compact
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.lines import Axis, Line, Point, lines_plot
from headrace.page.plots.roofline import Roof, roofline_plot
from headrace.page.plots.stacked_bar import Part, stacked_bar

HOSTILE = "</svg><script>x</script>"


def elements(plot: Plot, name: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(plot.svg).iter(name))


def test_lines_have_dots_labels_and_limits() -> None:
    points = [Point(1, 10, HOSTILE, "one"), Point(100, 1000, "two", hollow=True)]
    plot = lines_plot(
        HOSTILE,
        [Line(Key("a", "c1"), points), Line(Key("too short", "c2"), points[:1])],
        Axis("x", compact, logarithmic=True),
        Axis("y", compact),
        across=[(2000, "most")],
        upright=[(5, "here")],
    )
    assert plot is not None and [key.name for key in plot.keys] == ["a"]
    first, second = elements(plot, "circle")
    assert first.get("class") == "dot" and second.get("fill") == "var(--card)"
    assert float(second.get("cx", 0)) > float(first.get("cx", 0))
    assert float(second.get("cy", 0)) < float(first.get("cy", 0))
    texts = [one.text for one in elements(plot, "text")]
    assert {"one", "most", "here", "x, logarithmic", "y"} <= set(texts)
    assert "<script" not in plot.markup


def test_no_line_is_no_plot() -> None:
    assert lines_plot("", [], Axis("x", compact), Axis("y", compact)) is None


def test_roofs_bend_at_their_ridge() -> None:
    roof = Roof("sheet", 100.0, 1000.0)
    assert roof.ridge == 10 and roof.at(5) == 500 and roof.at(50) == 1000
    plot = roofline_plot(
        "Roofline", [roof], [Line(Key("steps", "c1"), [Point(5, 400, "a"), Point(50, 900, "b")])]
    )
    assert [key.name for key in plot.keys] == ["sheet", "steps"]
    assert len(elements(plot, "circle")) == 2


@pytest.mark.parametrize(("limit", "red"), [(10.0, 0), (2.0, 1)])
def test_a_bar_marks_what_is_beyond_the_limit(limit: float, red: int) -> None:
    parts = [Part(Key("a", "c1"), 2, "a"), Part(Key("b", "c2"), 1, HOSTILE)]
    plot = stacked_bar("bar", parts, limit=limit, limit_name="most", axis="GB", label=compact)
    bars = elements(plot, "rect")
    assert len(bars) == 2 + red
    widths = [float(one.get("width", 0)) for one in bars]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.01)
