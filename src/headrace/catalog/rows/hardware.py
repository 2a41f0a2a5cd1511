"""Devices that models run on, and machines made of several."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.catalog.rows.row import (
    Bytes,
    BytesPerSecond,
    Count,
    Figure,
    FlopsPerSecond,
    Row,
    Seconds,
    Share,
    UsdPerHourSpan,
    UsdSpan,
    Watts,
)

Category = Literal["gpu", "soc", "tpu", "accelerator", "npu", "machine", "rack", "cpu"]


class Hardware(Row, frozen=True, kw_only=True):
    """A device, or a machine of `count` devices `made_of` another row.

    Peaks (dense_*_flops) are of one device without sparsity, in FLOP/s or integer
    operations/s. Links are per device and per direction.
    """

    vendor: str | None = None
    architecture: str | None = None
    category: Category | None = None
    released_year: Count | None = None
    made_of: str | None = None
    count: Count | None = None
    memory_type: str | None = None
    memory_bytes: Bytes | None = None
    """As sold."""
    usable_memory_bytes: Bytes | None = None
    """What a program can have of it."""
    unified_memory: bool | None = None
    bandwidth_bytes_per_s: BytesPerSecond | None = None
    achievable_bandwidth_share: Share | None = None
    """Of the peak, as kernels reach it."""
    sram_bytes: Bytes | None = None
    sram_bandwidth_bytes_per_s: BytesPerSecond | None = None
    slow_memory_bytes: Bytes | None = None
    dense_fp32_flops: FlopsPerSecond | None = None
    dense_bf16_flops: FlopsPerSecond | None = None
    dense_fp16_flops: FlopsPerSecond | None = None
    """Given where it differs from bf16, or there is no bf16 peak."""
    dense_fp8_flops: FlopsPerSecond | None = None
    dense_int8_flops: FlopsPerSecond | None = None
    dense_fp4_flops: FlopsPerSecond | None = None
    native_types: tuple[str, ...] = ()
    compute_capability: str | None = None
    link: str | None = None
    link_bytes_per_s: BytesPerSecond | None = None
    """To the other devices of the machine."""
    link_latency_s: Seconds | None = None
    pcie_bytes_per_s: BytesPerSecond | None = None
    network: str | None = None
    network_bytes_per_s: BytesPerSecond | None = None
    """To other machines."""
    devices_per_machine: Count | None = None
    devices_per_rack: Count | None = None
    runtime_reserve_bytes: Bytes | None = None
    power_w: Watts | None = None
    price_usd_per_hour: dict[str, UsdPerHourSpan] = msgspec.field(default_factory=dict)
    """Rented, per device, by vendor."""
    price_usd: dict[str, UsdSpan] = msgspec.field(default_factory=dict)
    largest_q4_model: str | None = None
    best_for: str | None = None
    figures: dict[str, Figure] = msgspec.field(default_factory=dict)
