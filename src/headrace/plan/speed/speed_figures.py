"""Figures of speed with what they came from: formula, inputs, sources, band."""

from __future__ import annotations

from dataclasses import asdict

from headrace.plan.quantity import Basis, Input, Quantity
from headrace.plan.speed.speed import Band, Speed, SpeedModel
from headrace.plan.step.efficiency import Efficiencies


def speed_figures(
    model: SpeedModel, speed: Speed, weights: Quantity | None = None
) -> tuple[Quantity, ...]:
    """Prefill (TTFT without any waiting), TPOT, E2E and throughput of `speed`, which `model` gave.

    weights: the figure that bytes per weight come from, where there is one.
    """
    setup, load = model.setup, speed.load
    shape, efficiencies = setup.shape, setup.efficiencies
    common: tuple[Input, ...] = (
        Input("active parameters", shape.parameters.active, "parameters", _origin(model), "exact",
              shape.as_of),
        _bytes_per_weight(model, weights),
        Input("devices", speed.devices, "", "given", "given"),
        *setup.device.inputs_of(setup.compute_type),
        efficiencies.bandwidth.as_input("bandwidth efficiency"),
        efficiencies.compute.as_input("compute efficiency"),
    )  # fmt: skip
    formulas = ("T1", "T2")
    if efficiencies.rates is not None:
        formulas = ("T1C", "T2C")
        common += _rates(efficiencies)
    prompt = (
        _given("prompt", load.prompt_tokens, "tokens"),
        _given("cached", load.cached_tokens, "tokens"),
    )
    decode: tuple[Input, ...] = (
        _given("batch", load.batch, "requests"),
        _given("context", load.middle_context_tokens, "tokens"),
    )
    decode += _spread(efficiencies, load.batch)
    ttft = _seconds(
        "speed.ttft", "TTFT, prefill alone", speed.ttft, formulas[0], (*prompt, *common)
    )
    tpot = _seconds("speed.tpot", "TPOT", speed.tpot, formulas[1], (*decode, *common))
    e2e = _seconds(
        "speed.e2e", "E2E, without waiting", speed.e2e, "F3",
        (_figure(ttft), _figure(tpot), _given("output", load.output_tokens, "tokens")),
    )  # fmt: skip
    throughput = Quantity(
        id="speed.throughput",
        name="throughput of a replica",
        value=speed.system_tokens_per_s,
        unit="tokens/s",
        formula="T4",
        inputs=(_given("batch", load.batch, "requests"), _figure(tpot)),
        low=load.batch / speed.tpot.worst_s,
        high=load.batch / speed.tpot.best_s,
    )
    return ttft, tpot, e2e, throughput


def _spread(efficiencies: Efficiencies, batch: int) -> tuple[Input, ...]:
    """What the band of a TPOT is as wide as, where it is not a calibration's."""
    spread = efficiencies.decode_spread(batch)
    if spread is None:
        return ()
    middle = (spread.low + spread.high) / 2
    said = f"{spread.low:g} to {spread.high:g}, eight in ten; only the band is made with it"
    return (
        Input("TPOT of others over the planned", middle, "x", spread.source, "measured",
              spread.as_of, note=said),
    )  # fmt: skip


_RATE_UNITS = (("_bytes_per_s", "byte/s"), ("_per_s", "operation/s"), ("_s", "s"), ("", ""))


def _rates(efficiencies: Efficiencies) -> tuple[Input, ...]:
    """Those of a calibration, as it was measured, and how far it was off."""
    rates, measured = efficiencies.rates, efficiencies.bandwidth
    assert rates is not None
    rows = [("expected error", efficiencies.rates_error, "share")]
    for name, value in asdict(rates).items():
        ending, unit = next(one for one in _RATE_UNITS if name.endswith(one[0]))
        rows.append((name.removesuffix(ending).replace("_", " "), value, unit))
    return tuple(
        Input(f"calibrated {name}", value, unit, measured.source, "measured", measured.as_of)
        for name, value, unit in rows
    )


def _bytes_per_weight(model: SpeedModel, weights: Quantity | None) -> Input:
    value, shape = model.setup.storage.bytes_per_weight, model.setup.shape
    if weights is not None:
        basis: Basis = "exact" if weights.is_exact else "given"
        return Input("bytes per weight", value, "B", f"figure {weights.id}", basis)
    if shape.weight_bytes:
        return Input("bytes per weight", value, "B", shape.source, "exact")
    return Input("bytes per weight", value, "B", "given", "given")


def _seconds(id: str, name: str, band: Band, formula: str, inputs: tuple[Input, ...]) -> Quantity:
    return Quantity(
        id=id,
        name=name,
        value=band.value_s,
        unit="s",
        formula=formula,
        inputs=inputs,
        low=band.best_s,
        high=band.worst_s,
    )


def _given(name: str, value: float, unit: str) -> Input:
    return Input(name, value, unit, "given", "given")


def _figure(figure: Quantity) -> Input:
    return Input(figure.name, figure.value, figure.unit, f"figure {figure.id}", "given")


def _origin(model: SpeedModel) -> str:
    return model.setup.shape.origin or model.setup.shape.source
