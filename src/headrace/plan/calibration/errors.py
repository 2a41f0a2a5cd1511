"""How far predictions are from what was measured: each test, without it, and without its model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from headrace.plan.calibration.fitting import (
    Fit,
    Observed,
    fit,
    observed,
    predict,
    seconds_left_out,
)
from headrace.plan.calibration.measurements import MeasurementSet
from headrace.plan.step.step_rates import StepRates

_TAIL = 0.9


class CheckedRow(msgspec.Struct, frozen=True, kw_only=True):
    """Rates in tokens per second."""

    model: str
    kind: str
    test: str
    measured_tokens_per_s: float
    predicted_tokens_per_s: float
    error: float
    """Predicted / measured − 1."""
    left_out_error: float | None = None
    """The same of a fit that had not seen this test."""
    other_model_error: float | None = None
    """Nor any test of this model. None where it was not requested, or no fit is left."""


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The distribution of relative errors."""

    rows: int
    mean: float
    tail: float
    """Nine of ten errors are not above it."""
    worst: float


def spread(errors: Iterable[float | None]) -> Spread | None:
    """Of those that are known; None where none is."""
    sizes = sorted(abs(one) for one in errors if one is not None)
    if not sizes:
        return None
    tail = sizes[min(len(sizes) - 1, int(_TAIL * len(sizes)))]
    return Spread(rows=len(sizes), mean=sum(sizes) / len(sizes), tail=tail, worst=sizes[-1])


def checked(
    rates: Mapping[str, StepRates], sets: Iterable[MeasurementSet]
) -> tuple[CheckedRow, ...]:
    """Predicted beside measured, of tests that `rates` may never have seen.

    Raises ConfigError for a kind of weights that `rates` lacks.
    """
    sets = tuple(sets)
    return _rows(sets, predict(rates, observed(sets)))


def self_checked(sets: Sequence[MeasurementSet], found: Fit) -> tuple[CheckedRow, ...]:
    """The tests that `found` was fitted to, and what fits without them say."""
    rows = observed(sets)
    left_out = [
        None if seconds is None else one.row.seconds / seconds - 1
        for one, seconds in zip(rows, seconds_left_out(rows), strict=True)
    ]
    other_model: list[float | None] = []
    for measured in _by_model(sets):
        others = list(observed(one for one in sets if one.identity != measured[0].identity))
        other_model += _without(others, observed(measured))
    # Tests are listed by set and the sets of a model may stand apart.
    order = [one for measured in _by_model(sets) for one in observed(measured)]
    by_row = {id(one.row): error for one, error in zip(order, other_model, strict=True)}
    return tuple(
        msgspec.structs.replace(
            row, left_out_error=left_out[at], other_model_error=by_row[id(rows[at].row)]
        )
        for at, row in enumerate(_rows(sets, found.seconds))
    )


def _by_model(sets: Iterable[MeasurementSet]) -> list[list[MeasurementSet]]:
    found: dict[tuple[str, int], list[MeasurementSet]] = {}
    for one in sets:
        found.setdefault(one.identity, []).append(one)
    return list(found.values())


def _without(others: Sequence[Observed], rows: Sequence[Observed]) -> list[float | None]:
    """Errors of `rows` by a fit to `others`; None for kinds those do not have."""
    kinds = {one.kind for one in others}
    known = [one for one in rows if one.kind in kinds]
    if not known:
        return [None] * len(rows)
    rates = fit(others).rates
    errors = iter(
        one.row.seconds / seconds - 1
        for one, seconds in zip(known, predict(rates, known), strict=True)
    )
    return [next(errors) if one.kind in kinds else None for one in rows]


def _rows(sets: Iterable[MeasurementSet], seconds: Sequence[float]) -> tuple[CheckedRow, ...]:
    pairs = [(one, row) for one in sets for row in one.rows]
    return tuple(
        CheckedRow(
            model=one.model,
            kind=one.kind,
            test=row.test.name,
            measured_tokens_per_s=row.tokens_per_s,
            predicted_tokens_per_s=row.test.tokens / predicted,
            error=row.seconds / predicted - 1,
        )
        for (one, row), predicted in zip(pairs, seconds, strict=True)
    )
