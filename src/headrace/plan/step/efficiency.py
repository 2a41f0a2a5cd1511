"""Shares of peaks, stated or measured, that are reached: from the catalog or a calibration.

What the catalog states is a range, and the range is the error band of every time computed with it:
its middle is planned with, its ends are the best and the worst that were seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from headrace.catalog import Catalog
from headrace.catalog.rows.hardware import Hardware
from headrace.errors import CatalogError
from headrace.plan.machine.hardware_memory import constant_span
from headrace.plan.quantity import Basis, Input, input_of_fact
from headrace.plan.step.step_rates import StepRates
from headrace.plan.validation import above_zero, not_below, share

_MICROSECONDS = 1e-6
_COMPARED_BATCHES = (4, 16, 64, 256)

End = Literal["best", "worst"]
PlanBasis = Literal["calibrated", "from the measured limits of this machine", "from data sheet"]


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """A share from `low` to `high`, planned with at `value`; all above 0 and at most 1."""

    low: float
    value: float
    high: float
    source: str
    """The id of the catalog's constant, or what measured it."""
    basis: Basis = "given"
    as_of: str = ""
    """With `basis`: as of an Input."""

    def __post_init__(self) -> None:
        for name in ("low", "value", "high"):
            end = getattr(self, name)
            above_zero(name, end, "it is the share of the peak that is reached, as 0.7")
            share(name, end, "nothing is faster than its data sheet")
        not_below("value", self.value, self.low, "low <= value <= high")
        not_below("high", self.high, self.value, "low <= value <= high")

    def as_input(self, name: str) -> Input:
        """For a figure that is computed with it."""
        return Input(
            name=name,
            value=self.value,
            unit="share",
            source=self.source,
            basis=self.basis,
            as_of=self.as_of,
            note="" if self.low == self.high else f"{self.low:g} to {self.high:g}",
        )


@dataclass(frozen=True, kw_only=True)
class DecodeSpread:
    """The spread of published TPOTs around planned ones: eight in ten lie between `low` and `high`
    times the plan, at batches up to `most_batch`."""

    most_batch: int
    low: float
    high: float
    source: str
    """Id of the catalog's constant."""
    as_of: str


@dataclass(frozen=True, kw_only=True)
class Efficiencies:
    """Efficiencies of a device, with their ranges."""

    bandwidth: Efficiency
    """MBU of decode."""
    compute: Efficiency
    """MFU of products."""
    operation_s: float = 0.0
    """Each kernel launched."""
    decode_spreads: tuple[DecodeSpread, ...] = ()
    """Spreads by batch, ascending; the last one holds beyond its batch; () if none are known."""
    of_measured: bool = False
    """The shares are of limits that were measured of this machine, not of a data sheet."""
    rates: StepRates | None = None
    """Rates of a calibration; times are computed from them, and the shares follow from the
    times."""
    rates_error: float = 0.0
    """The share by which those times may be off."""
    origin: str = ""
    """The calibration's file, date and setting; without rates, why; "" without a
    calibration."""

    @property
    def basis(self) -> PlanBasis:
        """What every plan says of its times."""
        if self.rates is not None:
            return "calibrated"
        return "from the measured limits of this machine" if self.of_measured else "from data sheet"

    def decode_spread(self, batch: int) -> DecodeSpread | None:
        """What was compared at such batches."""
        found = (one for one in self.decode_spreads if batch <= one.most_batch)
        return next(found, self.decode_spreads[-1] if self.decode_spreads else None)

    def at(self, end: End) -> Efficiencies:
        """The same with both shares at their best or their worst end, without a band."""

        def one(share: Efficiency) -> Efficiency:
            value = share.high if end == "best" else share.low
            return replace(share, low=value, value=value, high=value)

        rates = self.rates
        if rates is not None:
            off = 1 + self.rates_error
            rates = rates.slowed(1 / off if end == "best" else off)
        return replace(
            self, bandwidth=one(self.bandwidth), compute=one(self.compute), rates=rates,
            rates_error=0.0, decode_spreads=(),
        )  # fmt: skip


def exactly(value: float, source: str) -> Efficiency:
    """A share without a band, as a calibration or a person states it."""
    return Efficiency(low=value, value=value, high=value, source=source)


def stated_efficiencies(catalog: Catalog, hardware: Hardware) -> Efficiencies:
    """What to plan with on that device where nothing was measured on it.

    Devices with HBM have the range of server GPUs, those with any other memory that of consumer
    ones; where the row names no memory, chips for phones and laptops and processors are the latter.
    `operation_s` is a GPU's and 0 for others.
    """
    if hardware.memory_type is not None:
        consumer = not hardware.memory_type.startswith("HBM")
    else:
        consumer = hardware.category in ("soc", "npu", "cpu")
    is_gpu = hardware.category == "gpu"
    return Efficiencies(
        bandwidth=_stated(catalog, "mbu-decode-consumer" if consumer else "mbu-decode-server"),
        compute=_stated(catalog, "mfu-prefill"),
        operation_s=_middle(catalog, "operation-latency") * _MICROSECONDS if is_gpu else 0.0,
        decode_spreads=() if consumer else _decode_spreads(catalog),
    )


def measured_efficiencies(catalog: Catalog) -> Efficiencies:
    """What to plan with where limits of this machine were measured: shares of those."""
    return Efficiencies(
        bandwidth=_stated(catalog, "mbu-decode-measured"),
        compute=_stated(catalog, "mfu-prefill-measured"),
        of_measured=True,
    )


def _decode_spreads(catalog: Catalog) -> tuple[DecodeSpread, ...]:
    """The constants published-tpot-to-batch-N: what others measured of other engines on servers'
    GPUs, over what was planned."""
    found = []
    for most_batch in _COMPARED_BATCHES:
        name = f"published-tpot-to-batch-{most_batch}"
        low, high = constant_span(catalog, name)
        as_of = catalog.constants[name].fact("figure").as_of.isoformat()
        found.append(
            DecodeSpread(most_batch=most_batch, low=low, high=high, source=name, as_of=as_of)
        )
    return tuple(found)


def _stated(catalog: Catalog, name: str) -> Efficiency:
    middle = _middle(catalog, name)
    figure = catalog.constants[name].figure
    assert figure is not None
    assert figure.low is not None
    assert figure.high is not None
    fact = catalog.constants[name].fact("figure")
    return Efficiency(
        low=figure.low,
        value=middle,
        high=figure.high,
        source=name,
        basis="assumed",  # whatever its confidence: it was seen elsewhere, not here
        as_of=fact.as_of.isoformat(),
    )


def _middle(catalog: Catalog, name: str) -> float:
    row = catalog.constants[name]
    middle = row.figure.middle if row.figure else None
    if middle is None:
        raise CatalogError(
            f"constant {name} has no figure with both ends; a plan needs them: write [0.6, 0.8]"
        )
    input_of_fact(row, "figure", row.fact("figure"))  # refuses a claim
    return middle
