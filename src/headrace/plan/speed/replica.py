"""One replica of a model on hardware as it is named: its speed, its memory, what of it fits.

What a SpeedModel takes is put together here from rows of the catalog or from what was measured of
this machine, and whether a load fits is asked of the same memory plan as `plan fit` prints.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from headrace.catalog import Catalog
from headrace.catalog.rows import Quantization
from headrace.errors import ConfigError
from headrace.plan.calibration.applied import (
    calibrated_or,
    device_of_calibration,
    measured_steps_of,
)
from headrace.plan.calibration.stored import Found
from headrace.plan.machine.device import Device, device_of
from headrace.plan.machine.hardware_memory import THIS, DeviceMemory, place_of
from headrace.plan.memory.memory import Load as MemoryLoad
from headrace.plan.memory.memory import MemoryPlan, memory_plan
from headrace.plan.memory.memory import Storage as MemoryStorage
from headrace.plan.memory.weights_memory import weights_quantity
from headrace.plan.model.model_shape import ModelShape
from headrace.plan.quantity import Input, Quantity
from headrace.plan.speed.speed import SpeedModel, SpeedSetup
from headrace.plan.step.communication import Parallelism
from headrace.plan.step.efficiency import Efficiencies, measured_efficiencies, stated_efficiencies
from headrace.plan.step.step import Storage
from headrace.plan.validation import not_below
from headrace.telemetry.machine import DEVICE, DRAM_FOOTPRINT_BYTES, Machine

_PEAKS = {"f32": "fp32", "bf16": "bf16", "int8": "int8"}
"""Of products; what attention multiplies by beside them has a rate of its own."""
_FLOATS = ("F32", "F16", "BF16")


@dataclass(frozen=True, kw_only=True)
class ReplicaChoice:
    """Hardware and how a replica is spread over it."""

    hardware: str
    """A row of the catalog, or "this" machine."""
    count: int = 1
    tensor: int | None = None
    """None for all that is there."""
    pipeline: int = 1
    expert: int = 1
    compute_type: str | None = None
    """None for what the weights' kind multiplies in."""
    step_tokens: int = 2048


@dataclass(frozen=True, kw_only=True)
class Replica:
    """A model where it runs."""

    catalog: Catalog
    model: SpeedModel
    place: DeviceMemory
    """The devices of one replica."""
    storage: MemoryStorage
    weights: Quantity
    """Bytes of all weights."""
    replicas: int
    """Number of replicas that the hardware holds."""
    hardware: str | None
    """The row of the device, None for this machine."""
    calibration: Found | None = None
    """Calibration of this machine, if one was looked for."""

    @property
    def shape(self) -> ModelShape:
        return self.model.setup.shape

    def memory(self, context_tokens: int, batch: int) -> MemoryPlan:
        """Memory of `batch` requests of `context_tokens` each, prompt and output together."""
        load = MemoryLoad(context_tokens, batch, self.model.setup.prefill_chunk_tokens)
        return memory_plan(self.catalog, self.shape, self.place, self.storage, load)

    def most_batch(self, context_tokens: int) -> int:
        """Requests of that context that fit together by the middle of the band; 0 for none."""
        low, high = 0, 1 << 20
        while high - low > 1:  # what is needed only grows with the batch
            middle = (low + high) // 2
            low, high = (
                (middle, high) if self.memory(context_tokens, middle).fits else (low, middle)
            )
        return low

    def check_fits(self, context_tokens: int, batch: int) -> tuple[str, ...]:
        """Raises ConfigError where the load surely does not fit; a note where it may not."""
        plan = self.memory(context_tokens, batch)
        if plan.fits_surely:
            return ()
        each = " on each device" if self.place.devices > 1 else ""
        if plan.fits:
            over = plan.needed.band[1] - plan.usable.value
            return (f"fits, but at the upper end of the band {_gb(over)} too much{each}",)
        if plan.needed.band[0] <= plan.usable.value:
            return (
                f"takes {_gb(plan.missing_bytes)} too much memory{each}, by the middle of the band",
            )
        name = f"{self.shape.name} on {self.place.devices} x {self.place.name}"
        most = self.most_batch(context_tokens) if batch > 1 else 0
        if most:
            raise ConfigError(
                f"batch is {batch:,}; of {name} at most {most:,} requests of {context_tokens:,} "
                f"tokens fit, {batch - most:,} fewer ({_gb(plan.missing_bytes)} too much{each}): "
                "lower --batch, or see `headrace plan fit`"
            )
        raise ConfigError(
            f"{name} does not fit with {context_tokens:,} tokens: {_gb(plan.missing_bytes)} "
            f"too much{each}; use fewer bits with --quantization or more devices with --count "
            "(`headrace plan fit` lists what would make it fit)"
        )

    def beside(self, shape: ModelShape, storage: MemoryStorage) -> SpeedModel:
        """The speed of another model on the same devices, as a draft model is run."""
        setup = self.model.setup
        parallelism = replace(setup.parallelism, expert=1)
        weights = weights_quantity(shape, storage.weights, self.catalog)
        kind = setup.compute_type
        efficiencies = setup.efficiencies
        if self.calibration is not None:
            stated = measured_efficiencies(self.catalog)
            efficiencies = calibrated_or(
                stated, self.calibration, self.catalog, shape, storage.weights, setup.device, kind
            )
        return SpeedModel(
            replace(
                setup, shape=shape, storage=_speed_storage(shape, storage, weights),
                parallelism=parallelism, efficiencies=efficiencies, measured_steps=None,
            )
        )  # fmt: skip


def replica_of(
    catalog: Catalog,
    shape: ModelShape,
    storage: MemoryStorage,
    choice: ReplicaChoice,
    machine: Machine | None,
    calibration: Found | None = None,
) -> Replica:
    """The replica that `choice` describes; machine: what was measured of this one, if anything.

    calibration: of this machine or of the card that `choice` names; None where none is to be used.
    It is not used for other hardware.

    Raises CatalogError for unknown hardware, ConfigError for what is not known of it and for more
    parallelism than there are devices.
    """
    place = place_of(catalog, choice.hardware, choice.count)
    if choice.hardware == THIS:
        read_bytes = weights_quantity(shape, storage.weights, catalog).value
        kv_types = f"{storage.keys.name},{storage.values.name}"
        device, efficiencies, row_id = _measured(
            catalog, machine, calibration, read_bytes, kv_types
        )
    else:
        device, _ = device_of(catalog, choice.hardware)
        row = catalog.hardware[choice.hardware]
        row = row if row.made_of is None else catalog.hardware[row.made_of]
        efficiencies, row_id = stated_efficiencies(catalog, row), row.id
        of_card = _of_card(catalog, row.id, machine)
        if of_card is not None:
            device = _as_measured(device, of_card)
            efficiencies = measured_efficiencies(catalog)
    not_below("step_tokens", choice.step_tokens, 1, "2048 is usual")
    compute_type = choice.compute_type or _compute_type(device, shape, storage.weights)
    if choice.hardware != THIS and not _is_of_row(catalog, row_id, calibration):
        calibration = None
    if calibration is not None:
        efficiencies = calibrated_or(
            efficiencies, calibration, catalog, shape, storage.weights, device, compute_type
        )
    parallelism = _parallelism(choice, place.devices)
    weights = weights_quantity(shape, storage.weights, catalog)
    model = SpeedModel(
        SpeedSetup(
            shape=shape,
            storage=_speed_storage(shape, storage, weights),
            device=device,
            efficiencies=efficiencies,
            compute_type=compute_type,
            parallelism=parallelism,
            prefill_chunk_tokens=choice.step_tokens,
            measured_steps=measured_steps_of(calibration, catalog, shape, storage.weights),
        )
    )
    return Replica(
        catalog=catalog,
        model=model,
        place=replace(place, devices=parallelism.devices),
        storage=storage,
        weights=weights,
        replicas=place.devices // parallelism.devices,
        hardware=row_id,
        calibration=calibration,
    )


def _parallelism(choice: ReplicaChoice, devices: int) -> Parallelism:
    pipeline = int(not_below("pipeline_parallel", choice.pipeline, 1, "1 means not divided"))
    tensor = choice.tensor
    if tensor is None:
        tensor = max(1, devices // pipeline)
    found = Parallelism(tensor=tensor, pipeline=pipeline, expert=choice.expert)
    if found.devices > devices:
        raise ConfigError(
            f"tensor_parallel · pipeline_parallel is {found.tensor} · {found.pipeline} = "
            f"{found.devices}; there {'is' if devices == 1 else 'are'} {devices} of "
            f"{choice.hardware}, {found.devices - devices} too few: lower one of them, or raise "
            "--count"
        )
    return found


def _speed_storage(shape: ModelShape, storage: MemoryStorage, weights: Quantity) -> Storage:
    return Storage(
        bytes_per_weight=weights.value / shape.parameters.total,
        bytes_per_key_value=storage.keys.mean_bytes_per_value(shape),
        bytes_per_value_value=storage.values.mean_bytes_per_value(shape),
    )


def _compute_type(device: Device, shape: ModelShape, weights: Quantization | None) -> str:
    """What the kind multiplies in where the device has a peak for it, else 16 bits, else any."""
    there = device.peak_operations_per_s
    wanted = [] if weights is None else [weights.activation_type or ""]
    if device.name.startswith(THIS):
        kinds = shape.weight_bytes or {}
        floats = weights.family == "float" if weights else all(one in _FLOATS for one in kinds)
        wanted = [] if floats else ["int8"]
    return next((kind for kind in (*wanted, "bf16", "fp16", "fp32") if kind in there), "bf16")


def _measured(
    catalog: Catalog,
    machine: Machine | None,
    calibration: Found | None,
    read_bytes: float,
    kv_types: str,
) -> tuple[Device, Efficiencies, str | None]:
    """read_bytes: of the weights, which a step reads from wherever so many lie. kv_types: of K and
    V, which attention multiplies by."""
    limits = None if machine is None else _limits_of(machine.of_kernels, read_bytes)
    if limits is None and calibration and calibration.calibration:
        found = calibration.calibration
        name = f"{THIS} machine ({found.machine.cpu})"
        return device_of_calibration(found, name), measured_efficiencies(catalog), None
    if machine is None or limits is None:
        raise ConfigError(
            "this machine has not been measured: run `headrace bench machine` first, or name "
            "another with --hardware (`headrace catalog list hardware`)"
        )
    attention = machine.of_kernels.attention_rate(kv_types)
    seen = [] if attention is None else [("peak of attention", attention, "operation/s")]
    device = Device(
        name=f"{THIS} machine ({machine.cpu})",
        bandwidth_bytes_per_s=limits.bytes_per_s,
        peak_operations_per_s=MappingProxyType(limits.peaks),
        inputs=(*limits.inputs, *_inputs(machine, seen)),
        cached_bytes=limits.cached_bytes,
        memory_bytes_per_s=limits.memory_bytes_per_s,
        attention_operations_per_s=attention,
    )
    return device, measured_efficiencies(catalog), None


class _Limits(NamedTuple):
    """Limits of one place by `headrace bench machine`, as the formulas take them."""

    bytes_per_s: float
    peaks: dict[str, float]
    inputs: tuple[Input, ...]
    cached_bytes: float
    memory_bytes_per_s: float
    """With `cached_bytes`: as of `Device`."""


def _limits_of(machine: Machine, read_bytes: float) -> _Limits | None:
    """Of the fastest level and thread count that were measured, reading from where so many bytes
    lie; None where nothing was read."""
    read = machine.read_from(read_bytes)
    if not read:
        return None
    rate = max(reading.bytes_per_s for reading in read)
    far = [reading.bytes_per_s for reading in machine.read_from(math.inf)]
    footprint = min(reading.footprint_bytes for reading in read)
    cached = footprint if far and footprint < DRAM_FOOTPRINT_BYTES else math.inf
    peaks: dict[str, float] = {}
    for one in machine.peak:
        if one.kind in _PEAKS:
            kind = _PEAKS[one.kind]
            peaks[kind] = max(peaks.get(kind, 0.0), one.ops_per_s)
    seen = [("read bandwidth", rate, "byte/s")]
    seen += [(f"peak of {kind}", peak, "operation/s") for kind, peak in peaks.items()]
    inputs = _inputs(machine, seen)
    return _Limits(rate, peaks, inputs, cached, max(far, default=rate))


def _inputs(machine: Machine, seen: Iterable[tuple[str, float, str]]) -> tuple[Input, ...]:
    """Of names, values and units that were measured."""
    return tuple(
        Input(name, value, unit, "headrace bench machine", "measured", machine.measured_at[:10])
        for name, value, unit in seen
    )


def _of_card(catalog: Catalog, row_id: str, machine: Machine | None) -> _Limits | None:
    """What was measured of a card of this row in this machine; None where it has none."""
    for name in () if machine is None else machine.devices:
        row = catalog.hardware.find(name)
        if machine is not None and row is not None and row.id == row_id:
            return _limits_of(machine.of_device(name), DRAM_FOOTPRINT_BYTES)
    return None


def _as_measured(device: Device, limits: _Limits) -> Device:
    """The device with limits that were measured; kinds that were not keep what its row states."""
    stated = dict(device.peak_operations_per_s)
    replaced = ("bandwidth_bytes_per_s", *(f"dense_{kind}_flops" for kind in limits.peaks))
    kept = tuple(given for given in device.inputs if not given.name.endswith(replaced))
    return replace(
        device,
        bandwidth_bytes_per_s=limits.bytes_per_s,
        peak_operations_per_s=MappingProxyType({**stated, **limits.peaks}),
        inputs=(*limits.inputs, *kept),
    )


def _is_of_row(catalog: Catalog, row_id: str | None, calibration: Found | None) -> bool:
    """Whether a calibration is of a card of this row."""
    if calibration is None or calibration.calibration is None:
        return False
    row = catalog.hardware.find(calibration.calibration.cpu_level.removeprefix(DEVICE))
    return row is not None and row.id == row_id


def _gb(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.2f} GB"
