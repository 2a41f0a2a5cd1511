"""How long a step takes at least: the roofline, with stated efficiencies.

    seconds = max(bytes / (bandwidth · bandwidth efficiency),
                  (operations of products / peak + operations of attention / its peak)
                  / compute efficiency) + communication + overhead

Williams, Waterman, Patterson: Roofline (CACM 2009). Products and reads overlap, so the slower of
the two counts; what goes over links and what the host adds is taken not to overlap with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.plan.validation import above_zero, not_below, share
from headrace.telemetry.work import Work

Bottleneck = Literal["bandwidth", "compute", "link", "overhead"]


@dataclass(frozen=True)
class StepTime:
    """The parts of a step's time, in seconds; `seconds` is the total."""

    bandwidth_s: float
    compute_s: float
    communication_s: float
    overhead_s: float
    overlapped_s: float | None = None
    """Time of reading and computing together, by a calibration; None: the longer of the two."""

    @property
    def seconds(self) -> float:
        both = self.overlapped_s
        if both is None:
            both = max(self.bandwidth_s, self.compute_s)
        return both + self.communication_s + self.overhead_s

    @property
    def bottleneck(self) -> Bottleneck:
        """The part that is longest; of two as long as each other the first named above."""
        parts: dict[Bottleneck, float] = {
            "bandwidth": self.bandwidth_s,
            "compute": self.compute_s,
            "link": self.communication_s,
            "overhead": self.overhead_s,
        }
        return max(parts, key=parts.__getitem__)


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """The limits that `devices` identical devices reach together. Raises ConfigError."""

    bandwidth_bytes_per_s: float
    peak_operations_per_s: float
    """With `bandwidth_bytes_per_s`: of one device as its data sheet says."""
    bandwidth_efficiency: float
    compute_efficiency: float
    """With `bandwidth_efficiency`: shares of them that are reached (MBU, MFU), above 0 and at most
    1."""
    overhead_s: float = 0.0
    """Overhead of each step, whatever it computes."""
    devices: int = 1
    attention_operations_per_s: float | None = None
    """Peak of attention, of one device; None: that of products."""

    def __post_init__(self) -> None:
        for field in ("bandwidth_bytes_per_s", "peak_operations_per_s"):
            above_zero(field, getattr(self, field), "take it from the device's data sheet")
        for field in ("bandwidth_efficiency", "compute_efficiency"):
            value = getattr(self, field)
            above_zero(field, value, "it is the share of the peak that is reached, as 0.7")
            share(field, value, "nothing is faster than its data sheet")
        if self.attention_operations_per_s is not None:
            above_zero(
                "attention_operations_per_s",
                self.attention_operations_per_s,
                "leave it out where attention has the peak of products",
            )
        not_below("overhead_s", self.overhead_s, 0, "use 0 where it is not known")
        not_below("devices", self.devices, 1, "a plan needs at least one device")

    @property
    def ridge(self) -> float:
        """Operations per byte from which a step is bound by compute, as efficiencies are."""
        return (self.peak_operations_per_s * self.compute_efficiency) / (
            self.bandwidth_bytes_per_s * self.bandwidth_efficiency
        )

    @property
    def sheet_ridge(self) -> float:
        """The same of the peaks alone: H100 at BF16 295."""
        return self.peak_operations_per_s / self.bandwidth_bytes_per_s

    def time(self, work: Work, communication_s: float = 0.0) -> StepTime:
        """The time of a step of `work`, divided evenly over the devices."""
        reached = self.bandwidth_bytes_per_s * self.bandwidth_efficiency * self.devices
        at_peak = work.computing_s(self.peak_operations_per_s, self.attention_operations_per_s)
        return StepTime(
            bandwidth_s=work.bytes / reached,
            compute_s=at_peak / (self.compute_efficiency * self.devices),
            communication_s=communication_s,
            overhead_s=self.overhead_s,
        )


def compute_bound_batch(roofline: Roofline, bytes_per_weight: float) -> float:
    """Requests from which a decode step of a dense model is bound by compute, KV left out.

    ridge · bytes per weight / 2, since a weight is read once and used in two operations a request:
    295 on an H100 with 16-bit weights, 74 with 4-bit weights and 16-bit products.
    """
    above_zero("bytes_per_weight", bytes_per_weight, "2 for 16 bits, 0.5 for 4 bits")
    return roofline.ridge * bytes_per_weight / 2
