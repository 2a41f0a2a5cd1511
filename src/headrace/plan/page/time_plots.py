"""A simulated service over time: replicas, queue, batch and KV cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.page.figures import compact, figure, share
from headrace.page.plots.frame import Plot, key_at
from headrace.page.plots.lines import Axis, Line, lines_plot
from headrace.page.plots.lines import Point as Spot
from headrace.plan.simulation.result import SimulationResult
from headrace.plan.simulation.series import Point

_MOST_SPOTS = 240


def time_plots(result: SimulationResult) -> list[Plot | None]:
    """None of a series of one point."""
    slices = time_slices(result.points, _MOST_SPOTS)
    each = len(slices[0]) if slices else 1
    said = (
        f"Each place of a curve is the mean of {each:,} samples, one every "
        f"{result.settings.sample_s:g} s."
        if each > 1
        else f"A sample every {result.settings.sample_s:g} s."
    )
    failed = [(at, "failure") for at, _ in result.failures[:1]]
    if len(result.failures) > 1:
        said += f" The first of {len(result.failures):,} failures is marked."
    draw = _Drawing(slices, said, failed, *time_unit(result.seconds))
    return [
        draw.plot(
            "Replicas", "replicas", compact,
            [("paid for", lambda one: one.replicas_paid),
             ("ready", lambda one: one.replicas_ready)],
        ),
        draw.plot(
            "Requests waiting and running", "requests", compact,
            [("running", lambda one: one.running), ("waiting", lambda one: one.waiting)],
        ),
        draw.plot(
            "KV cache in use, and time replicas are busy", "share", share,
            [("KV cache", lambda one: one.kv_share), ("busy", lambda one: one.busy_share)],
        ),
        draw.plot(
            "Batch of a replica", "requests", figure, [("batch", lambda one: one.batch)]
        ),
    ]  # fmt: skip


class _Drawing:
    """The settings that the plots share."""

    def __init__(
        self,
        slices: list[Sequence[Point]],
        caption: str,
        marks: list[tuple[float, str]],
        unit: str,
        unit_s: float,
    ) -> None:
        self._slices = slices
        self._caption = caption
        self._unit, self._unit_s = unit, unit_s
        self._marks = [(at / unit_s, name) for at, name in marks]

    def plot(
        self,
        title: str,
        unit: str,
        label: Callable[[float], str],
        curves: Sequence[tuple[str, Callable[[Point], float]]],
    ) -> Plot | None:
        """A curve for each of several looks at a point."""
        lines = [
            Line(
                key_at(place, name),
                [
                    Spot(part[-1].at_s / self._unit_s, sum(map(look, part)) / len(part))
                    for part in self._slices
                ],
                dots=False,
            )
            for place, (name, look) in enumerate(curves)
        ]
        return lines_plot(
            title, lines, Axis(f"time, {self._unit}", compact), Axis(unit, label),
            upright=self._marks, caption=self._caption,
        )  # fmt: skip


def time_unit(seconds: float) -> tuple[str, float]:
    """In which a run of so many seconds is told, and how long that is."""
    if seconds >= 3 * 3600:
        return "h", 3600.0
    return ("min", 60.0) if seconds >= 240 else ("s", 1.0)


def time_slices(points: Sequence[Point], most: int) -> list[Sequence[Point]]:
    """Points in equal parts, at most so many; the last may be shorter."""
    each = -(-len(points) // most) or 1
    return [points[at : at + each] for at in range(0, len(points), each)]
