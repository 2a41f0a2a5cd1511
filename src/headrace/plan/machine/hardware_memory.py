"""Where a model is to run, as far as memory goes: rows of the catalog, or this machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from headrace.catalog import Catalog
from headrace.catalog.units import SPELLINGS, known_unit
from headrace.errors import ConfigError
from headrace.plan.quantity import Input, input_of_fact
from headrace.telemetry.machine import this_machine

THIS = "this"


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of devices that are alike."""

    name: str
    kind: Literal["gpu", "cpu"]
    devices: int
    memory_bytes: int
    """Of each device."""
    usable_share: float
    """The share of `memory_bytes` that a runtime takes."""
    inputs: tuple[Input, ...]
    """Where both figures come from."""
    note: str = ""
    """What people should know, "" for nothing."""
    is_unified: bool = False
    """Whether it is the processor's memory too."""


def place_of(catalog: Catalog, name: str, count: int = 1) -> DeviceMemory:
    """`count` times the hardware called `name`; "this" is the machine this runs on.

    Raises CatalogError for an unknown name with the nearest, ConfigError where its memory is not
    known or `count` is none.
    """
    if count < 1:
        raise ConfigError(f"count is {count}; it must be a whole number of devices >= 1")
    if name == THIS:
        return _this_place(catalog, count)
    row = catalog.hardware[name]
    devices = count
    title = row.name
    if row.made_of is not None:
        devices *= row.count or 1
        row = catalog.hardware[row.made_of]
        title = row.name
    field = "memory_bytes" if row.usable_memory_bytes is None else "usable_memory_bytes"
    memory = row.usable_memory_bytes or row.memory_bytes
    if not memory:
        raise ConfigError(f"memory_bytes of {row.id} is not known; add it to your own catalog file")
    share, share_input = constant(catalog, "usable-memory-share")
    inputs = [input_of_fact(row, field, row.facts[field])]
    if row.unified_memory and row.usable_memory_bytes is not None:
        share = 1.0  # what the system lets a program have is the limit already
    else:
        inputs.append(share_input)
    return DeviceMemory(
        name=title,
        kind="cpu" if row.category == "cpu" else "gpu",
        devices=devices,
        memory_bytes=round(memory),
        usable_share=share,
        inputs=tuple(inputs),
        is_unified=row.unified_memory or False,
    )


def constant(catalog: Catalog, id: str) -> tuple[float, Input]:
    """A constant of the catalog, in base units, with its input; the middle where it is a range."""
    low, high = constant_span(catalog, id)
    row = catalog.constants[id]
    fact = row.facts["figure"]
    middle = (low + high) / 2
    return middle, replace(input_of_fact(row, "figure", fact, middle), unit=_base(fact.unit)[0])


def constant_span(catalog: Catalog, id: str) -> tuple[float, float]:
    """Both ends of a constant in base units; the same number twice where it is one."""
    row = catalog.constants[id]
    figure = row.figure
    if figure is None or figure.low is None or figure.high is None:
        raise ConfigError(f"constant {id} of the catalog needs a figure with both ends")
    _, factor = _base(row.facts["figure"].unit)
    return figure.low * factor, figure.high * factor


def constant_most(catalog: Catalog, id: str) -> float:
    """The upper end of a constant in base units, also of one that is stated as "up to 50"."""
    row = catalog.constants[id]
    if row.figure is None or row.figure.high is None:
        raise ConfigError(f"constant {id} of the catalog needs a figure with an upper end")
    return row.figure.high * _base(row.facts["figure"].unit)[1]


def _base(unit: str) -> tuple[str, float]:
    """The base unit of `unit`, and how many of it one is; figures are kept as they are stated."""
    base = known_unit(unit) or unit
    return base, SPELLINGS.get(base, {}).get(unit, 1.0)


def _this_place(catalog: Catalog, count: int) -> DeviceMemory:
    if count != 1:
        raise ConfigError(f"count is {count}; there is only one of this machine: omit --count")
    cpu, cpus, memory = this_machine()
    share, share_input = constant(catalog, "usable-memory-share")
    seen = Input("memory of this machine", memory, "byte", "the operating system", "measured")
    return DeviceMemory(
        name=f"this machine ({cpu}, {cpus} CPUs)",
        kind="cpu",
        devices=1,
        memory_bytes=memory,
        usable_share=share,
        inputs=(seen, share_input),
        note="planned on its CPU; name a graphics card with --hardware",
    )
