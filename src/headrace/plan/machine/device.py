"""A device as speed is planned with it: what a hardware row says, with nothing missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from headrace.catalog import Catalog
from headrace.catalog.fact import Confidence
from headrace.catalog.rows.hardware import Hardware
from headrace.errors import ConfigError
from headrace.plan.quantity import Input, input_of_fact
from headrace.plan.validation import above_zero, not_below

_PEAKS = ("fp32", "bf16", "fp16", "fp8", "int8", "fp4")
# What has another's peak where none of its own is stated.
_SAME_PEAK = {"fp16": "bf16", "bf16": "fp16", "nvfp4": "fp4", "mxfp4": "fp4"}


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link between devices."""

    name: str
    bandwidth_bytes_per_s: float
    """Per device and direction."""
    latency_s: float
    """Latency of a transfer."""
    latency_source: str = ""
    """The row it is from, where that is not the device's own; "" where it is."""

    def __post_init__(self) -> None:
        above_zero(
            "bandwidth_bytes_per_s", self.bandwidth_bytes_per_s, "per direction, as 450e9 of NVLink"
        )
        not_below("latency_s", self.latency_s, 0, "10e-6 is usual over NVLink")


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device."""

    name: str
    bandwidth_bytes_per_s: float
    """Of a step that reads no more than `cached_bytes`."""
    peak_operations_per_s: Mapping[str, float]
    """Dense, by type ("bf16", "fp8", …)."""
    link: Link | None = None
    """Inside a machine of `devices_per_machine`."""
    network: Link | None = None
    """Between machines; None: not known."""
    devices_per_machine: int | None = None
    power_w: float | None = None
    """None if not stated."""
    inputs: tuple[Input, ...] = ()
    """The facts behind the figures, where they are of the catalog."""
    cached_bytes: float = math.inf
    """What a cache holds that is read at `bandwidth_bytes_per_s`."""
    memory_bytes_per_s: float = 0.0
    """Of a step that reads more; 0: the same."""
    attention_operations_per_s: float | None = None
    """Of attention; None: as of the products beside it."""

    def peak(self, compute_type: str) -> float:
        """Operations/s of products of `compute_type`; raises ConfigError naming what there is.

        The two kinds of 16 bits, and those of 4, stand for each other where one is not stated.
        """
        kind = self._peak_kind(compute_type)
        found = self.peak_operations_per_s.get(kind)
        if found is None:
            there = ", ".join(self.peak_operations_per_s) or "no type"
            raise ConfigError(
                f"compute_type is {compute_type!r}; {self.name} has a peak for {there}: "
                f"choose one of them, or add dense_{kind}_flops to your own catalog file"
            )
        return found

    def inputs_of(self, compute_type: str) -> tuple[Input, ...]:
        """Those of `inputs` that a step computed in `compute_type` is timed with."""
        kinds = [kind for kind in _PEAKS if kind != self._peak_kind(compute_type)]
        return tuple(
            one
            for one in self.inputs
            if not any(one.name.endswith((f"dense_{kind}_flops", f"of {kind}")) for kind in kinds)
        )

    def _peak_kind(self, compute_type: str) -> str:
        if compute_type in self.peak_operations_per_s:
            return compute_type
        return _SAME_PEAK.get(compute_type, compute_type)


def device_of(
    catalog: Catalog, name: str, *, link_latency_s: float | None = None
) -> tuple[Device, int]:
    """The device that a row is or is made of, and how many of it.

    link_latency_s: in place of the row's. Where the row states none, that of another row of the
    vendor with such a link is taken. What is but a claim counts as not stated. Raises CatalogError
    for an unknown name, ConfigError for what is missing.
    """
    row = catalog.hardware[name]
    count = 1
    if row.made_of is not None:
        count, row = row.count or 1, catalog.hardware[row.made_of]
    if row.bandwidth_bytes_per_s is None:
        raise ConfigError(
            f"bandwidth_bytes_per_s of {row.id} is not known; a plan of speed needs it: add "
            "it to your own catalog file"
        )
    peaks = {
        kind: value
        for kind in _PEAKS
        if (value := getattr(row, f"dense_{kind}_flops")) and _is_known(row, f"dense_{kind}_flops")
    }
    latency, latency_source = _latency(catalog, row, link_latency_s)
    return (
        Device(
            name=row.name,
            bandwidth_bytes_per_s=row.bandwidth_bytes_per_s,
            peak_operations_per_s=MappingProxyType(peaks),
            link=_link(row.link, row.link_bytes_per_s, latency, latency_source),
            network=_link(row.network, row.network_bytes_per_s, latency, latency_source),
            devices_per_machine=row.devices_per_machine,
            power_w=row.power_w,
            inputs=tuple(
                input_of_fact(row, field, row.facts[field])
                for field in ("bandwidth_bytes_per_s", *(f"dense_{kind}_flops" for kind in peaks))
            ),
        ),
        count,
    )


def _is_known(row: Hardware, field: str) -> bool:
    fact = row.facts.get(field)
    return fact is None or fact.confidence is not Confidence.CLAIM


def _link(
    name: str | None, bytes_per_s: float | None, latency_s: float | None, source: str
) -> Link | None:
    if bytes_per_s is None or latency_s is None:
        return None
    return Link(
        name=name or "link",
        bandwidth_bytes_per_s=bytes_per_s,
        latency_s=latency_s,
        latency_source=source,
    )


def _latency(catalog: Catalog, row: Hardware, given: float | None) -> tuple[float | None, str]:
    if given is not None:
        return given, "given"
    if row.link_latency_s is not None:
        return row.link_latency_s, ""
    technique = (row.link or "").split()[:1]  # "NVLink 4" and "NVLink 5" are one
    for other in catalog.hardware:
        if other.link_latency_s is None or other.vendor != row.vendor or not technique:
            continue
        if (other.link or "").split()[:1] == technique:
            return other.link_latency_s, other.id
    return None, ""
