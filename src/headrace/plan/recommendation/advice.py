"""What the decision trees of the catalog say of an option, as far as a program can walk them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from headrace.catalog import Catalog
from headrace.catalog.names import plain
from headrace.catalog.rows import Decision, Hardware

_GGUF = {"gguf", "gguf-mix"}
# What rows of a topic an option has one of; other topics are for people to walk.
_TOPICS = {"runtime": "runtimes", "quantization": "quantizations", "hardware": "hardware"}


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One tree walked to an end. agrees: whether the option has one of the rows it takes."""

    decision: str
    end: str
    takes: tuple[str, ...]
    because: str
    agrees: bool
    source: str
    disputed_by: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "decision": self.decision, "end": self.end, "takes": list(self.takes),
            "because": self.because, "agrees": self.agrees, "source": self.source,
            "disputed_by": list(self.disputed_by),
        }  # fmt: skip


class Chosen(NamedTuple):
    """The choices of an option that decision trees cover: ids of rows, "" where it has none."""

    runtime: str
    quantization: str
    hardware: str


class Adviser:
    """A walk through the trees of a catalog; ends are kept: many options give the same answers."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._decisions = [one for one in catalog.decisions if one.topic in _TOPICS]
        self._ends = cache(self._walked)
        self._is_of = cache(self._row_is_of)
        self._concerns = cache(self._is_about)

    def advice(self, answers: Mapping[str, str], chosen: Chosen) -> tuple[Advice, ...]:
        """Of every tree that the answers lead to an end in, of topics the option has a row of."""
        found = []
        for decision, end in self._ends(tuple(sorted(answers.items()))):
            mine = getattr(chosen, decision.topic)
            rows = [one for one in end.takes if self._is_of(decision.topic, one)]
            if not mine or not rows:
                continue
            if decision.topic == "quantization" and not self._concerns(decision.id, mine):
                continue
            fact = decision.fact(f"takes.{end.id}")
            found.append(
                Advice(
                    decision=decision.id, end=end.label, takes=end.takes, because=end.because,
                    agrees=mine in rows, source=fact.source, disputed_by=end.disputed_by,
                )
            )  # fmt: skip
        return tuple(found)

    def _is_about(self, decision: str, kind: str) -> bool:
        """Whether a tree of kinds is about that one: those of GGUF files say nothing of others."""
        table = self._catalog.quantizations
        ends = self._catalog.decisions[decision].takes.values()
        named = {row for taken in ends for row in taken if row in table}
        families = {table[row].family for row in named}
        return not families <= _GGUF or table[kind].family in _GGUF

    def _walked(self, answers: tuple[tuple[str, str], ...]) -> list[tuple[Decision, Any]]:
        known = dict(answers)
        return [
            (decision, path[-1]) for decision in self._decisions for path in decision.ends(known)
        ]

    def _row_is_of(self, topic: str, row: str) -> bool:
        return row in getattr(self._catalog, _TOPICS[topic])


def device_answers(row: Hardware | None) -> dict[str, str]:
    """What trees ask of a device: device, class, architecture. None: this machine, a CPU."""
    if row is None:
        return {"device": "cpu", "class": "consumer", "architecture": ""}
    maker = plain(row.vendor or "")
    device = maker if row.category in ("gpu", "machine", "rack") else row.category or ""
    if maker == "apple" or (maker == "nvidia" and row.category == "soc"):
        device = maker
    return {
        "device": device,
        "class": "server" if is_server(row) else "consumer",
        "architecture": plain(row.architecture or ""),
    }


def is_server(row: Hardware) -> bool:
    """Whether it stands in a data centre: HBM, several in a machine, or hours of it for rent."""
    stacked = (row.memory_type or "").startswith("HBM")
    return bool(
        stacked or row.devices_per_machine or row.price_usd_per_hour
        or row.category in ("tpu", "accelerator", "machine", "rack")
    )  # fmt: skip


def scale_of(in_flight: float, bounds: Iterable[tuple[str, float]]) -> str:
    """ "one", or the last of `bounds` (name and least requests at once, rising) it reaches."""
    found = "one"
    for name, least in bounds:
        if in_flight >= least:
            found = name
    return found
