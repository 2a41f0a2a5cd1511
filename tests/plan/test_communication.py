"""What goes over links, by hand; devices and efficiencies as the catalog states them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.catalog import Catalog, Confidence
from headrace.errors import CatalogError, ConfigError
from headrace.plan.machine.device import Device, Link, device_of
from headrace.plan.step.communication import (
    Communication,
    Parallelism,
    all_reduce_s,
    all_to_all_s,
    communication,
    link_between,
    pipeline_bubble_share,
)
from headrace.plan.step.efficiency import Efficiency, exactly, stated_efficiencies

CATALOG = Catalog.load()
NVLINK = Link(name="NVLink 4", bandwidth_bytes_per_s=450e9, latency_s=10e-6)
NETWORK = Link(name="InfiniBand", bandwidth_bytes_per_s=50e9, latency_s=20e-6)
DEVICE = Device(
    name="test",
    bandwidth_bytes_per_s=1e12,
    peak_operations_per_s={"bf16": 1e15},
    link=NVLINK,
    network=NETWORK,
    devices_per_machine=8,
)


def test_an_all_reduce_sends_the_payload_twice_less_ones_own_part() -> None:
    assert all_reduce_s(16384, 8, NVLINK) == pytest.approx(2 * 16384 * 7 / 8 / 450e9 + 10e-6)
    assert all_reduce_s(16384, 1, NVLINK) == 0


def test_an_all_to_all_sends_each_devices_part_less_its_own() -> None:
    assert all_to_all_s(8e6, 4, NVLINK) == pytest.approx(2e6 * 3 / 4 / 450e9 + 10e-6)
    assert all_to_all_s(8e6, 1, NVLINK) == 0


def test_bubbles_of_a_pipeline() -> None:
    assert pipeline_bubble_share(4, 8) == pytest.approx(3 / 11)
    assert pipeline_bubble_share(1, 1) == 0
    assert pipeline_bubble_share(2, 1) == 0.5


def test_f21_tensor_parallel_is_two_all_reduces_a_layer() -> None:
    sent = communication(DEVICE, Parallelism(tensor=8), tokens=1, hidden_size=8192, layers=80)
    assert sent.tensor_s == pytest.approx(160 * all_reduce_s(16384, 8, NVLINK))
    assert sent.tensor_s == pytest.approx(1.61e-3, abs=0.005e-3)
    assert sent.seconds == sent.tensor_s


def test_pipeline_sends_over_each_boundary() -> None:
    sent = communication(DEVICE, Parallelism(pipeline=4), tokens=100, hidden_size=1000, layers=8)
    assert sent == Communication(pipeline_s=pytest.approx(3 * (200_000 / 450e9 + 10e-6)))


def test_experts_exchange_instead_of_the_second_all_reduce() -> None:
    sent = communication(
        DEVICE,
        Parallelism(tensor=8, expert=8),
        tokens=64,
        hidden_size=7168,
        layers=61,
        expert_layers=58,
        experts_per_token=8,
    )
    payload = 64 * 7168 * 2
    assert sent.expert_s == pytest.approx(2 * 58 * all_to_all_s(8 * payload, 8, NVLINK))
    assert sent.tensor_s == pytest.approx((2 * 61 - 58) * all_reduce_s(payload, 8, NVLINK))


def test_one_device_sends_nothing() -> None:
    sent = communication(DEVICE, Parallelism(), tokens=9, hidden_size=9, layers=9)
    assert sent.seconds == 0


def test_what_does_not_fit_a_machine_goes_over_the_network() -> None:
    assert link_between(DEVICE, 8) is NVLINK
    assert link_between(DEVICE, 16) is NETWORK


@given(payload=st.floats(0, 1e12), more=st.floats(1, 10), devices=st.integers(2, 64))
def test_more_bytes_and_more_devices_never_take_less(
    payload: float, more: float, devices: int
) -> None:
    one = all_reduce_s(payload, devices, NVLINK)
    assert all_reduce_s(payload * more, devices, NVLINK) >= one
    assert all_reduce_s(payload, devices + 1, NVLINK) >= one * (1 - 1e-12)


def test_links_that_are_not_known_are_an_error() -> None:
    alone = Device(name="alone", bandwidth_bytes_per_s=1, peak_operations_per_s={})
    with pytest.raises(ConfigError, match="link_bytes_per_s and link_latency_s of alone are not"):
        communication(alone, Parallelism(tensor=2), tokens=1, hidden_size=1, layers=1)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Parallelism(tensor=0), "tensor is 0.*at least 1"),
        (lambda: Parallelism(tensor=8, expert=3), "expert is 3.*divide tensor, which is 8"),
        (lambda: all_reduce_s(1, 0, NVLINK), "devices is 0"),
        (lambda: pipeline_bubble_share(2, 0), "micro_batches is 0"),
        (
            lambda: Link(name="a", bandwidth_bytes_per_s=0, latency_s=0),
            "bandwidth_bytes_per_s is 0",
        ),
        (lambda: DEVICE.peak("fp8"), "compute_type is 'fp8'.*has a peak for bf16"),
        (lambda: exactly(0, "me"), "value is 0.*above 0|low is 0.*above 0"),
        (
            lambda: Efficiency(low=0.5, value=0.4, high=0.6, source="me"),
            "value is 0.4.*at least 0.5",
        ),
    ],
)
def test_errors_name_field_value_and_limit(call: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        call()  # type: ignore[operator]


def test_an_h100_of_the_catalog() -> None:
    device, count = device_of(CATALOG, "h100")
    assert count == 1
    assert device.bandwidth_bytes_per_s == 3.35e12
    assert device.peak("bf16") == device.peak("fp16") == 989e12
    assert device.link == Link(name="NVLink 4", bandwidth_bytes_per_s=450e9, latency_s=10e-6)


def test_a_machine_is_so_many_of_its_devices() -> None:
    device, count = device_of(CATALOG, "8x-h100-sxm")
    assert (device.name, count) == ("NVIDIA H100 SXM 80 GB", 8)


def test_a_latency_that_is_not_stated_is_that_of_the_same_link_or_given() -> None:
    borrowed, _ = device_of(CATALOG, "h200-sxm")
    assert borrowed.link is not None
    assert borrowed.link.latency_s == 10e-6
    assert borrowed.link.latency_source
    given, _ = device_of(CATALOG, "h200-sxm", link_latency_s=7e-6)
    assert given.link is not None
    assert (given.link.latency_s, given.link.latency_source) == (7e-6, "given")


def test_unknown_devices_and_missing_bandwidth_are_errors() -> None:
    with pytest.raises(CatalogError, match="h100"):
        device_of(CATALOG, "h1000")
    nameless = [row.id for row in CATALOG.hardware
                if row.made_of is None and row.bandwidth_bytes_per_s is None]  # fmt: skip
    assert nameless
    with pytest.raises(ConfigError, match=f"bandwidth_bytes_per_s of {nameless[0]} is not known"):
        device_of(CATALOG, nameless[0])


def test_every_device_with_a_bandwidth_can_be_planned_with_but_for_claims() -> None:
    for row in CATALOG.hardware:
        if row.made_of is not None or row.bandwidth_bytes_per_s is None:
            continue
        if row.fact("bandwidth_bytes_per_s").confidence is Confidence.CLAIM:
            with pytest.raises(ConfigError, match="is a claim"):
                device_of(CATALOG, row.id)
            continue
        device, _ = device_of(CATALOG, row.id)
        stated = stated_efficiencies(CATALOG, row)
        assert stated.bandwidth.low <= stated.bandwidth.value <= stated.bandwidth.high
        assert device.bandwidth_bytes_per_s == row.bandwidth_bytes_per_s
        assert len(device.inputs) == 1 + len(device.peak_operations_per_s)


def test_efficiencies_of_servers_and_of_machines_for_people() -> None:
    server = stated_efficiencies(CATALOG, CATALOG.hardware["h100"])
    assert (server.bandwidth.low, server.bandwidth.high) == (0.6, 0.8)
    assert server.bandwidth.value == pytest.approx(0.7)
    assert (server.compute.low, server.compute.high) == (0.45, 0.6)
    assert server.operation_s == pytest.approx(3e-6)
    laptop = stated_efficiencies(CATALOG, CATALOG.hardware["m4-max-48gb"])
    assert (laptop.bandwidth.low, laptop.bandwidth.high) == (0.5, 0.75)
    assert laptop.operation_s == 0
    assert laptop.bandwidth.source == "mbu-decode-consumer"


def test_ends_have_no_band() -> None:
    stated = stated_efficiencies(CATALOG, CATALOG.hardware["h100"])
    best, worst = stated.at("best").bandwidth, stated.at("worst").compute
    assert (best.low, best.value, best.high) == (0.8, 0.8, 0.8)
    assert (worst.low, worst.value, worst.high) == (0.45, 0.45, 0.45)
    assert best.as_input("bandwidth efficiency").note == ""
