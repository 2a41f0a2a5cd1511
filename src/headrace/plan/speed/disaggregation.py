"""Prefill and decode on replicas of their own, beside the same replicas doing both.

    TTFT        prefill · 1.1 + the transfer of the prompt's KV cache
    TPOT        a decode step · 1.08, which no prefill stops
    requests/s  what the slower pool does

Corrections are aiconfigurator's, rows of the catalog. A prefill replica computes one prompt at a
time; a decode replica keeps `batch` answers under way; pools are taken as full, without a queue.
Zhong et al.: DistServe (OSDI 2024). Patel et al.: Splitwise (ISCA 2024).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headrace.catalog import Catalog
from headrace.errors import ConfigError
from headrace.plan.machine.device import Link
from headrace.plan.machine.hardware_memory import constant
from headrace.plan.model.renamed import figure_input
from headrace.plan.quantity import Input, Quantity, input_of_fact
from headrace.plan.speed.replica import Replica
from headrace.plan.speed.speed import Band, Load
from headrace.plan.step.communication import link_between
from headrace.plan.validation import above_zero, not_below

_MOST_OF_A_POOL = 16


@dataclass(frozen=True, kw_only=True)
class Pools:
    """Replicas for each. bandwidth_bytes_per_s: of a transfer; None for what the devices have."""

    prefill: int
    decode: int
    bandwidth_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("prefill", "decode"):
            not_below(
                f"{name} replicas",
                getattr(self, name),
                1,
                "each pool has at least one replica: write 1:2",
            )
        if self.bandwidth_bytes_per_s is not None:
            above_zero("transfer", self.bandwidth_bytes_per_s, "GB/s, as 50 of InfiniBand NDR")


@dataclass(frozen=True, kw_only=True)
class DisaggregatedSpeed:
    """The answer."""

    pools: Pools
    ttft: Quantity
    tpot: Quantity
    transfer: Quantity
    requests: Quantity
    together: Quantity
    """Requests/s of as many replicas that do both."""
    bound_by: str
    """The pool that is full first."""
    best: tuple[int, int]
    """The pools, of up to 16 replicas each, that do most requests for each replica."""
    note: str = ""

    @property
    def figures(self) -> tuple[Quantity, ...]:
        """All of them."""
        return (self.ttft, self.transfer, self.tpot, self.requests, self.together)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "prefill_replicas": self.pools.prefill,
            "decode_replicas": self.pools.decode,
            "bound_by": self.bound_by,
            "best_pools": {"prefill": self.best[0], "decode": self.best[1]},
            "quantities": [one.as_dict() for one in self.figures],
            "note": self.note,
        }


def disaggregated_speed(
    catalog: Catalog, replica: Replica, load: Load, pools: Pools
) -> DisaggregatedSpeed:
    """`replica` in both pools under `load`.

    Raises ConfigError where nothing is known of what the devices could send over, and for answers
    of one token, which no decode follows.
    """
    if load.output_tokens < 2:
        raise ConfigError("output is 1 token, so nothing is decoded: use at least 2")
    speed = replica.model.speed(load)
    slower_first, first_input = constant(catalog, "disaggregation-ttft-factor")
    slower_each, each_input = constant(catalog, "disaggregation-tpot-factor")
    link, devices, note = _transfer_link(replica, pools)
    cache = replica.memory(load.prompt_tokens + load.output_tokens, load.batch).cache
    sent = cache.request_bytes(load.prompt_tokens)
    transfer_s = sent / link.bandwidth_bytes_per_s + link.latency_s
    transfer = Quantity(
        "apart.transfer", "transfer of the KV cache", transfer_s, "s", "D5",
        (
            Input("KV of the prompt on a device", sent, "byte", replica.shape.origin, "exact"),
            _bandwidth(catalog, replica, pools, link),
            Input("latency", link.latency_s, "s", link.latency_source or link.name, "given"),
            Input("devices that send", devices, "", "--count", "given"),
        ),
    )  # fmt: skip
    prefill, step = speed.ttft, speed.tpot
    ttft = _time(
        "apart.ttft", "TTFT apart, prefill and transfer alone", prefill, slower_first, "D1",
        first_input, transfer,
    )  # fmt: skip
    tpot = _time("apart.tpot", "TPOT apart", step, slower_each, "D2", each_input)

    def rates(many: Pools, first_s: float, each_s: float) -> tuple[float, float]:
        answers = load.batch / ((load.output_tokens - 1) * each_s)
        return many.prefill / first_s, many.decode * answers

    def slower(many: Pools, first_s: float, each_s: float) -> float:
        return min(rates(many, first_s, each_s))

    first = {end: getattr(prefill, end) * slower_first for end in ("best_s", "value_s", "worst_s")}
    ends = zip(
        ("worst_s", "value_s", "best_s"), (tpot.band[1], tpot.value, tpot.band[0]), strict=True
    )
    low, value, high = (slower(pools, first[end], each) for end, each in ends)
    prompts, answers = rates(pools, first["value_s"], tpot.value)
    given = (
        Input("prefill replicas", pools.prefill, "", "--apart", "given"),
        Input("decode replicas", pools.decode, "", "--apart", "given"),
        Input("batch", load.batch, "requests", "--batch", "given"),
        Input("output", load.output_tokens, "tokens", "--output", "given"),
    )
    first_together, each_together = (
        Input(name, time.value_s, "s", f"figure speed.{id}", "given")
        for name, id, time in (("TTFT, prefill alone", "ttft", prefill), ("TPOT", "tpot", step))
    )
    requests = Quantity(
        "apart.requests", "requests served apart", value, "requests/s", "D3",
        (first_together, first_input, figure_input(tpot), *given), low, high,
    )  # fmt: skip
    both = pools.prefill + pools.decode
    whole = [
        both * load.batch
        / (load.batch * getattr(prefill, end) + (load.output_tokens - 1) * getattr(step, end))
        for end in ("worst_s", "value_s", "best_s")
    ]  # fmt: skip
    together = Quantity(
        "apart.together", "requests served by as many replicas together", whole[1], "requests/s",
        "D4", (first_together, each_together, *given), whole[0], whole[2],
    )  # fmt: skip
    sizes = [
        (one, two)
        for one in range(1, _MOST_OF_A_POOL + 1)
        for two in range(1, _MOST_OF_A_POOL + 1)
    ]  # fmt: skip

    def for_each(size: tuple[int, int]) -> tuple[float, int]:
        many = replace(pools, prefill=size[0], decode=size[1])
        served = slower(many, first["value_s"], tpot.value) / sum(size)
        return round(served, 12), -sum(size)  # of two alike the fewer replicas

    return DisaggregatedSpeed(
        pools=pools,
        ttft=ttft,
        tpot=tpot,
        transfer=transfer,
        requests=requests,
        together=together,
        bound_by="prefill" if prompts <= answers else "decode",
        best=max(sizes, key=for_each),
        note=note,
    )


def _transfer_link(replica: Replica, pools: Pools) -> tuple[Link, int, str]:
    """What a device sends its part of the cache over, and how many do."""
    devices = replica.place.devices
    if pools.bandwidth_bytes_per_s is not None:
        each = pools.bandwidth_bytes_per_s / devices
        return Link(name="--transfer", bandwidth_bytes_per_s=each, latency_s=0.0), devices, ""
    device = replica.model.setup.device
    if device.network is not None:
        return device.network, devices, ""
    note = "the network between machines is not known: KV is sent over the link inside one"
    return link_between(device, 2), devices, note


def _bandwidth(catalog: Catalog, replica: Replica, pools: Pools, link: Link) -> Input:
    """The fact of the device that the bandwidth is, where it was not given."""
    stated = Input("bandwidth", link.bandwidth_bytes_per_s, "byte/s", link.name, "given")
    row = None if replica.hardware is None else catalog.hardware.find(replica.hardware)
    if row is None or pools.bandwidth_bytes_per_s is not None:
        return stated
    has_network = replica.model.setup.device.network is not None
    field = "network_bytes_per_s" if has_network else "link_bytes_per_s"
    fact = row.facts.get(field)
    return stated if fact is None else input_of_fact(row, field, fact, link.bandwidth_bytes_per_s)


def _time(
    id: str,
    name: str,
    band: Band,
    factor: float,
    formula: str,
    source: Input,
    more: Quantity | None = None,
) -> Quantity:
    """`band` times `factor`, and `more` seconds."""
    more_s = 0.0 if more is None else more.value
    best, value, worst = (
        one * factor + more_s for one in (band.best_s, band.value_s, band.worst_s)
    )
    inputs = (
        Input("together", band.value_s, "s", f"figure speed.{id.rpartition('.')[2]}", "given"),
        source,
        *(() if more is None else (figure_input(more),)),
    )
    return Quantity(id, name, value, "s", formula, inputs, best, worst)
