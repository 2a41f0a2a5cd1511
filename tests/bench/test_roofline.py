"""The roofline plot: well-formed, and every point where its figures put it."""

from __future__ import annotations

from xml.etree import ElementTree

from headrace.bench.roofline import Point, roofline_svg

SVG = "{http://www.w3.org/2000/svg}"


def plot(*points: Point) -> ElementTree.Element:
    text = roofline_svg(
        points, bytes_per_s=8e10, ops_per_s=2e12, title="a <model> & more", kind="int8"
    )
    return ElementTree.fromstring(text)


def test_points_lie_where_their_figures_put_them() -> None:
    low, on_roof = Point("tg128 b1", 2.0, 8e10), Point("pp512 b1", 400.0, 2e12)
    root = plot(low, on_roof)
    circles = [(float(c.get("cx", 0)), float(c.get("cy", 0))) for c in root.iter(f"{SVG}circle")]
    assert len(circles) == 2
    assert circles[0][0] < circles[1][0] and circles[0][1] > circles[1][1]
    line = root.find(f"{SVG}polyline")
    assert line is not None
    corners = [tuple(map(float, pair.split(","))) for pair in line.get("points", "").split()]
    assert abs(circles[1][1] - corners[1][1]) < 0.2, "a point at the peak lies on the roof"
    texts = " ".join(text.text or "" for text in root.iter(f"{SVG}text"))
    assert "a <model> & more" in texts
    assert "tg128 b1 (50% of the roof)" in texts and "pp512 b1 (100% of the roof)" in texts
    assert "ridge 25.0" in texts


def test_everything_lies_within_the_frame_and_labels_do_not_collide() -> None:
    root = plot(*(Point(f"case {n}", 1.0 + n * 1e-3, 5e10) for n in range(6)), Point("x", 3e4, 9e7))
    width, height = map(float, root.get("viewBox", "").split()[2:])
    for circle in root.iter(f"{SVG}circle"):
        assert 0 < float(circle.get("cx", -1)) < width
        assert 0 < float(circle.get("cy", -1)) < height
    labels = [float(t.get("y", 0)) for t in root.iter(f"{SVG}text") if "case" in (t.text or "")]
    assert len(set(labels)) == 6
    assert min(b - a for a, b in zip(sorted(labels), sorted(labels)[1:], strict=False)) >= 14
