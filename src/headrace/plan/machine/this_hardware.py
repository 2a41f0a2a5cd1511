"""What `--hardware this` is: the NVIDIA cards of this machine where it has any, else its CPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.catalog import Catalog
from headrace.errors import ConfigError
from headrace.plan.machine.hardware_memory import THIS
from headrace.telemetry.nvidia_cards import NvidiaCard

CPU = "cpu"
"""The name by which people ask for this machine's CPU though it has cards."""


@dataclass(frozen=True)
class NamedHardware:
    """Hardware named on the command line."""

    name: str
    """A row of the catalog, or `THIS` for the CPU."""
    note: str = ""
    """A remark; "" without one."""
    here: int = 0
    """How many of the row this machine has; 0 where the name is not this machine's cards."""


def named_hardware(
    catalog: Catalog, name: str, count: int | None, cards: Iterable[NvidiaCard]
) -> NamedHardware:
    """The hardware that `name` asks for; `cards`: of this machine, read only for "this".

    count: of it that are planned, None where the plan itself finds how many.
    Raises ConfigError where more cards are asked for than there are.
    """
    if name == CPU:
        return NamedHardware(THIS)
    if name != THIS:
        return NamedHardware(name)
    seen: dict[str, int] = {}
    for card in cards:
        seen[card.name] = seen.get(card.name, 0) + 1
    for card_name, many in seen.items():
        row = catalog.hardware.find(card_name)
        if row is None:
            continue
        if count is not None and count > many:
            raise ConfigError(
                f"count is {count}; this machine has {many} of {row.name}: lower --count, or "
                f"name the hardware (--hardware {row.id})"
            )
        others = sorted(set(seen) - {card_name})
        note = f"this machine has {many} x {row.name}"
        note += f": --count {many} plans all of them" if count and count < many else ""
        note += f"; not planned: {', '.join(others)}" if others else ""
        return NamedHardware(row.id, f"{note}; --hardware {CPU} plans its CPU", many)
    if seen:
        names = ", ".join(seen)
        return NamedHardware(
            THIS, f"the catalog has no card called {names}: name a similar one with --hardware"
        )
    return NamedHardware(THIS)
