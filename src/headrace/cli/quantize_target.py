"""`headrace quantize` with a target in place of a type: the search and what is printed of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.json_line import print_json

if TYPE_CHECKING:
    from headrace.eval.mixes.fit import Fit, Point, Stage
    from headrace.eval.mixes.order import FitOptions
    from headrace.weights.quantize.make import QuantizeOptions

_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([a-z]*)", re.IGNORECASE)


def file_size(_ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Option callback: bytes of "4GiB", "750 MB" or "123456"."""
    if value is None:
        return None
    found = _SIZE.fullmatch(value.strip())
    unit = None if found is None else _UNITS.get(found[2].lower())
    if found is None or unit is None:
        raise click.BadParameter(
            f"{value!r} is not a size such as 4GiB, 750MB or 123456 (bytes)", param=param
        )
    return int(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit


def fit_target(
    source: Path, out: Path, options: FitOptions, threads: int, as_json: bool
) -> QuantizeOptions:
    """The order that meets the target; the curve is printed."""
    from headrace.eval.mixes.order import fitted

    with _json_stages() if as_json else _bar_of_stages() as show:
        order, fit = fitted(source, out, options, threads=threads, progress=show)
    if as_json:
        print_json(_fields(fit))
    else:
        _print_curve(fit)
    return order


@contextmanager
def _json_stages() -> Iterator[Callable[[Stage], None]]:
    def show(stage: Stage) -> None:
        print_json(
            {
                "event": "measured", "bytes": stage.nbytes, "judged": stage.judged,
                "kl_mean": stage.mean.mean, "kl_error": stage.mean.error,
                "number": stage.number, "count": stage.count,
            }
        )  # fmt: skip

    yield show


@contextmanager
def _bar_of_stages() -> Iterator[Callable[[Stage], None]]:
    from headrace.cli.counting import counting

    with counting("measurements of this round") as count:
        yield lambda stage: count(stage.number, stage.count)


def _fields(fit: Fit) -> dict[str, Any]:
    return {
        "event": "curve",
        "factor": fit.factor,
        "mixes": fit.mixes,
        "points": [_point(point, fit) for point in fit.curve],
        "kinds": {name: codec.name for name, codec in fit.point.kinds.items()},
    }


def _point(point: Point, fit: Fit) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "bytes": point.nbytes,
        "chosen": point.kinds == fit.point.kinds,
        "predicted_kl": point.predicted,
        "predicted_kl_by_factor": point.predicted * fit.factor,
    }
    if point.measured is not None:
        fields |= {
            "kl_mean": point.measured.mean,
            "kl_error": point.measured.error,
            "kl_p999": point.measured.p999,
        }
    return fields


def _print_curve(fit: Fit) -> None:
    click.echo("         bytes   predicted    measured       +-      99.9 %")
    for point in fit.curve:
        measured = point.measured
        found = (
            "" if measured is None
            else f"{measured.mean:11.6f} {measured.error:8.6f} {measured.p999:11.6f}"
        )  # fmt: skip
        mark = "  <" if point.kinds == fit.point.kinds else ""
        click.echo(f"{point.nbytes:14,} {point.predicted * fit.factor:11.6f} {found}{mark}")
    click.echo(
        f"mean KL in nats; predicted: from {fit.mixes} mixes on other windows, times "
        f"{fit.factor:.2f}"
    )
