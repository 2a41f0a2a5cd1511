"""The roofline: ridges and times of the register, bottlenecks by name, limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.plan.step.roofline import Roofline, compute_bound_batch
from headrace.telemetry.work import Work

BILLION = 1e9


def roofline(bandwidth: float, peak: float, mbu: float = 1, mfu: float = 1) -> Roofline:
    return Roofline(
        bandwidth_bytes_per_s=bandwidth,
        peak_operations_per_s=peak,
        bandwidth_efficiency=mbu,
        compute_efficiency=mfu,
    )


H100 = roofline(3.35e12, 989e12)


@pytest.mark.parametrize(
    ("bandwidth", "peak", "ridge"),
    [
        (3.35e12, 989e12, 295),
        (3.35e12, 1979e12, 591),
        (2.039e12, 312e12, 153),
        (8.0e12, 2250e12, 281),
        (8.0e12, 4500e12, 562),
        (1.008e12, 165.2e12, 164),
    ],
    ids=["H100 bf16", "H100 fp8", "A100", "B200 bf16", "B200 fp8", "RTX 4090"],
)
def test_ridges(bandwidth: float, peak: float, ridge: float) -> None:
    assert roofline(bandwidth, peak).sheet_ridge == pytest.approx(ridge, abs=0.6)


def test_batch_from_which_decode_is_bound_by_compute() -> None:
    assert compute_bound_batch(H100, 2) == pytest.approx(295, abs=0.5)
    assert compute_bound_batch(H100, 0.5) == pytest.approx(74, abs=0.5)


def test_attention_may_have_a_peak_of_its_own() -> None:
    work = Work(0, 9e12, attention_operations=3e12)
    assert roofline(1e12, 3e12, mfu=0.5).time(work).compute_s == pytest.approx(6)
    apart = replace(roofline(1e12, 3e12, mfu=0.5), attention_operations_per_s=0.5e12)
    assert apart.time(work).compute_s == pytest.approx((2 + 6) / 0.5)
    with pytest.raises(ConfigError, match="attention_operations_per_s is 0"):
        replace(apart, attention_operations_per_s=0)


def test_f12_f15_a_single_stream_uses_a_third_of_a_percent() -> None:
    step = H100.time(Work(140e9, 140e9))
    assert step.compute_s / step.seconds == pytest.approx(1 / 295, rel=0.001)
    assert step.bottleneck == "bandwidth"


def test_f13_prefill_of_1000_tokens_and_decode_of_one_on_a_notional_h100() -> None:
    prefill = H100.time(Work(140e9, 2 * 70 * BILLION * 1000))
    assert prefill.compute_s == pytest.approx(141.6e-3, abs=0.05e-3)
    assert prefill.bandwidth_s == pytest.approx(42e-3, abs=0.3e-3)
    assert prefill.bottleneck == "compute"
    decode = H100.time(Work(140e9, 2 * 70 * BILLION))
    assert decode.seconds == pytest.approx(42e-3, abs=0.3e-3)
    assert decode.compute_s == pytest.approx(0.14e-3, abs=0.002e-3)
    assert decode.bandwidth_s / decode.compute_s == pytest.approx(300, rel=0.02)


def test_f11_f14_intensity_is_the_batch_at_16_bits() -> None:
    assert Work(140e9, 140e9).intensity == 1
    assert Work(140e9, 8 * 140e9).intensity == 8
    assert Work(0, 0).intensity == 0


@pytest.mark.parametrize(
    ("bandwidth", "weights", "tokens_per_s", "published", "reached"),
    [
        (546e9, 39.3e9, 13.9, 10, 0.72),  # M4 Max, 70B at 4 bits
        (400e9, 39.3e9, 10.2, 5, 0.49),  # M3 Max
        (1008e9, 4.1e9, 246, 67.5, 0.27),  # RTX 4090, 7B at Q4
        (3.35e12, 14.5e9, 231, 92.5, 0.40),  # H100, Mistral 7B at 16 bits
        (204.8e9, 3.9e9, 52, 4.5, 0.09),  # Jetson AGX Orin, 7B at 4 bits
        (204.8e9, 3.9e9, 52, 30, 0.58),
    ],
    ids=["M4 Max", "M3 Max", "RTX 4090", "H100", "Orin, guide", "Orin, reference"],
)
def test_decode_of_one_request_by_bandwidth_beside_what_is_published(
    bandwidth: float, weights: float, tokens_per_s: float, published: float, reached: float
) -> None:
    step = roofline(bandwidth, 1e15).time(Work(weights, 2))
    assert 1 / step.seconds == pytest.approx(tokens_per_s, rel=0.012)
    assert published * step.seconds == pytest.approx(reached, abs=0.01)


def test_time_by_hand_with_efficiencies_overhead_links_and_two_devices() -> None:
    two = Roofline(
        bandwidth_bytes_per_s=100,
        peak_operations_per_s=1000,
        bandwidth_efficiency=0.5,
        compute_efficiency=0.25,
        overhead_s=0.125,
        devices=2,
    )
    step = two.time(Work(bytes=400, operations=1000), communication_s=0.25)
    assert (step.bandwidth_s, step.compute_s) == (4.0, 2.0)
    assert step.seconds == 4.375
    assert two.ridge == 5
    assert two.sheet_ridge == 10


def test_bottlenecks_by_name() -> None:
    assert H100.time(Work(1e12, 1)).bottleneck == "bandwidth"
    assert H100.time(Work(1, 1e15)).bottleneck == "compute"
    assert H100.time(Work(1, 1), communication_s=1).bottleneck == "link"
    slow = Roofline(
        bandwidth_bytes_per_s=1e12,
        peak_operations_per_s=1e15,
        bandwidth_efficiency=1,
        compute_efficiency=1,
        overhead_s=1,
    )
    assert slow.time(Work(1, 1)).bottleneck == "overhead"


amounts = st.floats(0, 1e18)


@given(size=amounts, operations=amounts, more=st.floats(1, 100))
def test_more_work_never_takes_less_and_more_devices_never_longer(
    size: float, operations: float, more: float
) -> None:
    one = H100.time(Work(size, operations)).seconds
    assert H100.time(Work(size * more, operations)).seconds >= one
    assert H100.time(Work(size, operations * more)).seconds >= one
    two = Roofline(
        bandwidth_bytes_per_s=3.35e12,
        peak_operations_per_s=989e12,
        bandwidth_efficiency=1,
        compute_efficiency=1,
        devices=2,
    )
    assert two.time(Work(size, operations)).seconds <= one


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("bandwidth_bytes_per_s", 0, "bandwidth_bytes_per_s is 0.*above 0.*data sheet"),
        ("peak_operations_per_s", float("inf"), "peak_operations_per_s is inf"),
        ("bandwidth_efficiency", 0, "bandwidth_efficiency is 0.*above 0"),
        ("compute_efficiency", 1.1, "compute_efficiency is 1.1.*from 0 to 1"),
        ("overhead_s", -1, "overhead_s is -1.*at least 0"),
        ("devices", 0, "devices is 0.*at least 1"),
    ],
)
def test_errors_name_field_value_and_limit(field: str, value: float, says: str) -> None:
    fields = {
        "bandwidth_bytes_per_s": 1.0,
        "peak_operations_per_s": 1.0,
        "bandwidth_efficiency": 1.0,
        "compute_efficiency": 1.0,
    }
    with pytest.raises(ConfigError, match=says):
        Roofline(**{**fields, field: value})  # type: ignore[arg-type]
