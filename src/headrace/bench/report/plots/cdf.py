"""Which share of requests was at least so fast: cumulative distributions, by clock or by run.

A curve is drawn through percentiles, closer together towards the end, where the slow ones are; its
last place is the slowest sample itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.bench.pooled import PooledSamples
from headrace.page.figures import duration
from headrace.page.plots import frame
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.scale import LOG_BEYOND, Scale, suited

WIDTH, HEIGHT = 520, 300

LEAST_MS = 0.05
"""Shorter times come out of one read of the socket; 0 has no place on a logarithmic axis."""

# Half per cents up to 99, then tenths, then hundredths: as many as a page shows apart.
_QUANTILES = (
    *(index / 200 for index in range(199)),
    *(0.99 + index / 1000 for index in range(1, 10)),
    *(0.999 + index / 10_000 for index in range(1, 11)),
)


@dataclass(frozen=True, slots=True)
class Curve:
    """Samples in milliseconds with the key that names them; None: there are none."""

    key: Key
    samples: PooledSamples | None


def cdf(
    title: str,
    curves: Sequence[Curve],
    *,
    limit_ms: float | None = None,
    caption: str = "",
) -> Plot | None:
    """None where no curve has samples. limit_ms: of an SLO, drawn upright."""
    drawn = [
        (one.key, one.samples) for one in curves if one.samples is not None and one.samples.size
    ]
    if not drawn:
        return None
    ends = [float(value) for _, one in drawn for value in (one.ordered[0], one.ordered[-1])]
    least = 0.0
    if min(ends) < LEAST_MS and max(ends) > LOG_BEYOND * LEAST_MS:
        least = LEAST_MS
        ends = [max(value, least) for value in ends]
        caption = (
            f"{caption} Values below {duration(least)} are drawn at {duration(least)}.".strip()
        )
    slo = "" if limit_ms is None else f"SLO {duration(limit_ms)}"
    caption = " ".join(filter(None, (caption, frame.beyond(limit_ms, ends, slo))))
    limit_ms = frame.within(limit_ms, ends)
    if limit_ms is not None:
        ends.append(limit_ms)
    x = suited(ends, frame.LEFT, WIDTH - frame.RIGHT)
    y = Scale(0, 1, HEIGHT - frame.BOTTOM, frame.TOP)
    parts = frame.axes(
        x,
        y,
        title + (", logarithmic" if x.logarithmic else ""),
        "share of samples",
        x_label=duration,
        y_label=lambda share: f"{share * 100:.0f} %",
    )
    if limit_ms is not None:
        parts += frame.limit_upright(x, y, limit_ms, slo)
    for key, of in drawn:
        values = [max(at, least) for at in of.percentiles(_QUANTILES)]
        places = [
            (x.at(value), y.at(share)) for value, share in zip(values, _QUANTILES, strict=True)
        ]
        p50, p90, p99 = of.percentiles((0.5, 0.9, 0.99))
        parts.append(
            frame.curve(
                places,
                key,
                title=(
                    f"{key.name}: {of.size:,} samples, p50 {duration(p50)}, "
                    f"p90 {duration(p90)}, p99 {duration(p99)}, most {duration(of.ordered[-1])}"
                ),
            )
        )
    return Plot(
        title=title,
        svg=frame.svg(WIDTH, HEIGHT, f"Cumulative distribution of {title}", parts),
        caption=caption,
        keys=tuple(key for key, _ in drawn),
    )
