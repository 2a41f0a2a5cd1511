"""The roofline plot: well-formed, points where their figures put them, nothing over another."""

from __future__ import annotations

import math
from itertools import combinations
from xml.etree import ElementTree

from headrace.bench.roofline import Point, roofline_svg

SVG = "{http://www.w3.org/2000/svg}"


def plot(*points: Point, notes: tuple[str, ...] = ()) -> ElementTree.Element:
    text = roofline_svg(
        points,
        bytes_per_s=8e10,
        ops_per_s=2e12,
        title="a <model> & more",
        kind="int8",
        notes=notes,
    )
    return ElementTree.fromstring(text)


def spots(root: ElementTree.Element, tag: str, x: str, y: str) -> list[tuple[float, float]]:
    """Of all elements that say where they are."""
    found = [(one.get(x), one.get(y)) for one in root.iter(f"{SVG}{tag}")]
    return [(float(a), float(b)) for a, b in found if a is not None and b is not None]


def numbers(root: ElementTree.Element) -> list[tuple[float, float]]:
    """Where the numbers beside points stand; those of the list are not in the middle of theirs."""
    return [
        (float(one.get("x", 0)), float(one.get("y", 0)) - 4)
        for one in root.iter(f"{SVG}text")
        if one.get("font-weight") == "bold" and one.get("text-anchor") == "middle"
    ]


def test_points_lie_where_their_figures_put_them() -> None:
    low, on_roof = Point("tg128 b1", 2.0, 8e10), Point("pp512 b1", 400.0, 2e12)
    root = plot(low, on_roof, notes=("b: requests that run at once",))
    circles = spots(root, "circle", "cx", "cy")
    assert len(circles) == 2
    assert circles[0][0] < circles[1][0] and circles[0][1] > circles[1][1]
    line = root.find(f"{SVG}polyline")
    assert line is not None
    corners = [tuple(map(float, pair.split(","))) for pair in line.get("points", "").split()]
    assert abs(circles[1][1] - corners[1][1]) < 0.2, "a point at the peak lies on the roof"
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "a <model> & more" in texts and "b: requests that run at once" in texts
    assert texts[texts.index("tg128 b1") - 1 :][:4] == ["1", "tg128 b1", "80", "50%"]
    assert texts[texts.index("pp512 b1") - 1 :][:4] == ["2", "pp512 b1", "2,000", "100%"]
    assert "ridge 25.0" in texts and "int8 peak 2,000 GOPS" in texts and "read 80.0 GB/s" in texts


def test_everything_lies_within_the_page_however_many_there_are() -> None:
    cases = [Point(f"case {n}", 1.0 + n * 1e-3, 5e10) for n in range(40)]
    root = plot(*cases, Point("x", 3e4, 9e7), notes=("last",))
    width, height = map(float, root.get("viewBox", "").split()[2:])
    for a, b in [*spots(root, "circle", "cx", "cy"), *spots(root, "text", "x", "y")]:
        assert 0 < a < width and 0 < b < height
    (last,) = (t for t in root.iter(f"{SVG}text") if t.text == "last")
    assert float(last.get("y", 0)) == max(b for a, b in spots(root, "text", "x", "y") if a > 680)


def test_numbers_cover_neither_each_other_nor_points_nor_the_roof() -> None:
    cases = [Point("same", 400.0, 1.9e12 + n * 1e10) for n in range(4)]
    root = plot(*cases, Point("left", 2.0, 1.6e11), Point("ridge", 25.0, 2e12))
    placed, circles = numbers(root), spots(root, "circle", "cx", "cy")
    assert len(placed) == len(circles) == 6
    assert all(math.dist(a, b) >= 12.9 for a, b in combinations(placed, 2))
    assert all(math.dist(a, b) >= 11.9 for a in placed for b in circles)
    line = root.find(f"{SVG}polyline")
    assert line is not None
    knee, end = (tuple(map(float, pair.split(","))) for pair in line.get("points", "").split()[1:])
    assert all(abs(b - knee[1]) > 7 for a, b in placed if knee[0] <= a <= end[0])
