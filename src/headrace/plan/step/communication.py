"""What tensor, pipeline and expert parallelism send, and how long that takes.

    tensor    2 all-reduces a layer; each device sends 2·(p − 1)/p of the activations' bytes (ring)
    pipeline  activations over p − 1 boundaries; stages idle (p − 1)/(m + p − 1) of m micro-batches
    expert    2 all-to-alls a layer with experts, tokens·k·d·bytes each, (p − 1)/p of it leaves;
              they stand in for the second all-reduce of that layer

Each transfer adds its latency once. Nothing is taken to overlap with computing, so these are upper
ends: runtimes hide some of it. Shoeybi et al.: Megatron-LM (2019); Huang et al.: GPipe (2019).
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import ConfigError
from headrace.plan.machine.device import Device, Link
from headrace.plan.validation import not_below

_ALL_REDUCES_PER_LAYER = 2
_ALL_TO_ALLS_PER_LAYER = 2


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """The number of devices that each kind of parallelism uses.

    A replica has tensor · pipeline devices. expert: 1, or over how many of the `tensor` devices
    whole experts are spread, where otherwise each is cut in as many parts.
    """

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        for field in ("tensor", "pipeline", "expert"):
            not_below(field, getattr(self, field), 1, "1 means not divided")
        if self.tensor % self.expert:
            raise ConfigError(
                f"expert is {self.expert}; it must divide tensor, which is {self.tensor}: experts "
                "lie on the devices of one stage"
            )

    @property
    def devices(self) -> int:
        return self.tensor * self.pipeline


@dataclass(frozen=True, kw_only=True)
class Communication:
    """Seconds of a step spent on links, by what for."""

    tensor_s: float = 0.0
    pipeline_s: float = 0.0
    expert_s: float = 0.0

    @property
    def seconds(self) -> float:
        return self.tensor_s + self.pipeline_s + self.expert_s


def all_reduce_s(payload_bytes: float, devices: int, link: Link) -> float:
    """Seconds to sum `payload_bytes` over devices, by a ring; 0 for one device."""
    not_below("devices", devices, 1, "one device sends nothing")
    if devices == 1:
        return 0.0
    sent = 2 * payload_bytes * (devices - 1) / devices
    return sent / link.bandwidth_bytes_per_s + link.latency_s


def all_to_all_s(payload_bytes: float, devices: int, link: Link) -> float:
    """Seconds to exchange `payload_bytes` that lie evenly on devices and go evenly to them."""
    not_below("devices", devices, 1, "one device sends nothing")
    if devices == 1:
        return 0.0
    sent = payload_bytes / devices * (devices - 1) / devices
    return sent / link.bandwidth_bytes_per_s + link.latency_s


def pipeline_bubble_share(stages: int, micro_batches: int) -> float:
    """Share of the time that stages idle: (p − 1)/(m + p − 1)."""
    not_below("stages", stages, 1, "1 means no pipeline")
    not_below("micro_batches", micro_batches, 1, "a step has at least one token")
    return (stages - 1) / (micro_batches + stages - 1)


def link_between(device: Device, devices: int) -> Link:
    """What `devices` of a kind talk over: the machine's link, or the network where they do not fit.

    Raises ConfigError where that is not known.
    """
    inside = device.devices_per_machine is None or devices <= device.devices_per_machine
    link = device.link if inside else device.network
    if link is None:
        field = "link_bytes_per_s and link_latency_s" if inside else "network_bytes_per_s"
        raise ConfigError(
            f"{field} of {device.name} are not known; {devices} devices need them: give a "
            "latency (10e-6 is usual over NVLink, 45e-6 over PCIe), or add both to your own "
            "catalog file"
        )
    return link


def communication(
    device: Device,
    parallelism: Parallelism,
    *,
    tokens: float,
    hidden_size: int,
    layers: int,
    expert_layers: int = 0,
    experts_per_token: int = 0,
    activation_bytes: float = 2.0,
) -> Communication:
    """Of a step over `tokens` tokens, activations of hidden_size · activation_bytes each."""
    payload = tokens * hidden_size * activation_bytes
    tensor = pipeline = expert = 0.0
    if parallelism.tensor > 1:
        link = link_between(device, parallelism.tensor)
        each = all_reduce_s(payload, parallelism.tensor, link)
        exchanged = expert_layers if parallelism.expert > 1 else 0
        tensor = (_ALL_REDUCES_PER_LAYER * layers - exchanged) * each
    if parallelism.pipeline > 1:
        link = link_between(device, parallelism.devices)
        each = payload / link.bandwidth_bytes_per_s + link.latency_s
        pipeline = (parallelism.pipeline - 1) * each
    if parallelism.expert > 1 and expert_layers:
        link = link_between(device, parallelism.expert)
        each = all_to_all_s(payload * experts_per_token, parallelism.expert, link)
        expert = _ALL_TO_ALLS_PER_LAYER * expert_layers * each
    return Communication(tensor_s=tensor, pipeline_s=pipeline, expert_s=expert)
