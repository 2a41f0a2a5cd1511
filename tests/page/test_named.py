"""Points with names: none covers another, and what has no room is told."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from headrace.page.figures import compact
from headrace.page.plots.frame import Plot, key_at
from headrace.page.plots.named_points import Group, NamedPoint, Slope, named_points
from headrace.page.plots.scale import logarithmic
from tests.page.test_markup import HOSTILE, Parsed


def drawn(*points: NamedPoint, slopes: tuple[Slope, ...] = ()) -> Plot:
    made = named_points(
        "Plot", [Group(key_at(0, "all"), points)], logarithmic, logarithmic, x_title="x",
        y_title="y", x_label=compact, y_label=compact, slopes=slopes,
    )  # fmt: skip
    assert made is not None
    return made


def names_of(made: Plot) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(made.svg).iter("text")]


def test_names_stand_beside_their_points() -> None:
    made = drawn(NamedPoint("left", 1, 1), NamedPoint("right", 100, 50, "with words"))
    assert {"left", "right"} <= set(names_of(made)) and made.caption == ""
    assert "right: with words" in made.svg


def test_points_in_one_place_have_one_name_each_as_far_as_there_is_room() -> None:
    made = drawn(*(NamedPoint(f"device {at} of many", 10, 10) for at in range(40)))
    named = [one for one in names_of(made) if one.startswith("device")]
    assert 4 <= len(named) < 40 and len(set(named)) == len(named)
    assert f"{40 - len(named)} of 40 points have no room" in made.caption
    assert made.svg.count("<circle") == 40


def test_no_name_covers_another() -> None:
    made = drawn(*(NamedPoint(f"name {at}", 1 + at % 7, 1 + at % 5) for at in range(35)))
    boxes = []
    for one in ElementTree.fromstring(made.svg).iter("text"):
        if (one.text or "").startswith("name"):
            width, at = 6.6 * len(one.text or ""), float(one.get("x", 0))
            share = {"start": 0.0, "middle": 0.5, "end": 1.0}[one.get("text-anchor", "start")]
            boxes.append((at - share * width, float(one.get("y", 0))))
    for at, (left, base) in enumerate(boxes):
        for other_left, other_base in boxes[at + 1 :]:
            apart = abs(left - other_left) > 6.6 * 6 - 1 or abs(base - other_base) > 13
            assert apart, (left, base, other_left, other_base)


def test_a_slope_is_a_line_of_equal_ratio() -> None:
    made = drawn(NamedPoint("a", 1, 10), NamedPoint("b", 100, 1000), slopes=(Slope(10, "ten"),))
    assert "ten" in names_of(made) and re.search(r'class="limit"', made.svg)


def test_no_points_no_plot_and_hostile_names_are_text() -> None:
    assert (
        named_points("", [], logarithmic, logarithmic, x_title="", y_title="", x_label=compact,
                     y_label=compact)
        is None
    )  # fmt: skip
    parsed = Parsed(drawn(NamedPoint(HOSTILE, 1, 1, HOSTILE)).markup)
    assert not any(name == "script" for name, _ in parsed.tags)
