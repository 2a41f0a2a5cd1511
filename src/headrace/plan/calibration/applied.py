"""A calibration as a plan of speed takes it: rates for the weights at hand, with their error."""

from __future__ import annotations

from dataclasses import replace

from headrace.catalog import Catalog
from headrace.catalog.rows import Quantization
from headrace.plan.calibration.measurements import kind_of
from headrace.plan.calibration.stored import Calibration, Found
from headrace.plan.machine.device import Device
from headrace.plan.model.model_shape import ModelShape
from headrace.plan.step.efficiency import Efficiencies, Efficiency
from headrace.plan.step.measured_steps import MeasuredSteps


def calibrated_or(
    stated: Efficiencies,
    found: Found,
    catalog: Catalog,
    shape: ModelShape,
    weights: Quantization | None,
    device: Device,
    compute_type: str,
) -> Efficiencies:
    """The rates of `found` for a model on this machine; shares are of what `device` states.

    `stated`, with the reason, where there is no calibration or it has nothing of these weights.
    """
    calibration = found.calibration
    if calibration is None:
        return replace(stated, origin=found.note)
    kind = kind_named(catalog, shape, weights)
    rates = calibration.rates.get(kind or "")
    if rates is None:
        return replace(
            stated,
            origin=f"the calibration {found.path} has no {kind or 'such'} weights (there is "
            f"{', '.join(calibration.rates)}): measure a model of that kind with `headrace plan "
            "calibrate --measure MODEL`",
        )
    band = calibration.band(shape.name, shape.parameters.total)

    def reached(rate: float, limit: float) -> Efficiency:
        share = min(1.0, rate / limit)  # limits of a host that is shared may be measured too low
        return Efficiency(
            low=share, value=share, high=share, source=str(found.path), basis="measured",
            as_of=calibration.day,
        )  # fmt: skip

    return Efficiencies(
        bandwidth=reached(rates.bandwidth_bytes_per_s, device.bandwidth_bytes_per_s),
        compute=reached(rates.operations_per_s, device.peak(compute_type)),
        rates=rates,
        rates_error=band,
        origin=f"{found.path} of {calibration.day}, {calibration.runtime} at "
        f"{calibration.cpu_level} with {calibration.threads} threads, {kind} weights; nine of ten "
        f"tests were within {band:.0%}",
    )


def measured_steps_of(
    found: Found | None, catalog: Catalog, shape: ModelShape, weights: Quantization | None
) -> MeasuredSteps | None:
    """What drafts cost beside this very model in these weights; None where it was not measured."""
    if found is None or found.calibration is None:
        return None
    wanted = (shape.name, shape.parameters.total, kind_named(catalog, shape, weights))
    fits = (
        fit.draft_steps
        for fit in found.calibration.models
        if (fit.model, fit.parameters, fit.kind) == wanted
    )
    return next((steps for steps in fits if steps is not None), None)


def kind_named(catalog: Catalog, shape: ModelShape, weights: Quantization | None) -> str | None:
    """The codec that most weights are in: of the header, of a kind, or of a mix its first."""
    if weights is None:
        return None if not shape.weight_bytes else kind_of(dict(shape.weight_bytes))
    if weights.codec is None and weights.mix_of:
        return catalog.quantizations[weights.mix_of[0]].codec
    return weights.codec


def device_of_calibration(calibration: Calibration, name: str) -> Device:
    """This machine where `headrace bench machine` was not run: as fast as its engine was seen."""
    rates = calibration.rates
    return Device(
        name=name,
        bandwidth_bytes_per_s=max(one.bandwidth_bytes_per_s for one in rates.values()),
        peak_operations_per_s={
            _TYPES.get(kind, "int8"): one.operations_per_s for kind, one in rates.items()
        },
    )


_TYPES = {"F32": "fp32", "F16": "fp32", "BF16": "bf16"}
