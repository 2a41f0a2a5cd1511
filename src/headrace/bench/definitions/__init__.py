"""The same words as five tools mean them: one run, every definition.

Each tool has a file: a pure function from a record to its metrics, and a table of what counts; one
that has changed its mind has two definitions in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import get_args

import msgspec

from headrace.bench.definitions.aiperf import AIPERF
from headrace.bench.definitions.guidellm import GUIDELLM
from headrace.bench.definitions.headrace import HEADRACE
from headrace.bench.definitions.llmperf import LLMPERF
from headrace.bench.definitions.measure import Canonical, Clock, Definition, Measures, Metric
from headrace.bench.definitions.vllm import VLLM, VLLM_BEFORE_0_33
from headrace.errors import ConfigError, shown

__all__ = [
    "DEFINITIONS",
    "Clock",
    "Definition",
    "Measures",
    "Metric",
    "Row",
    "definition",
    "table",
]

DEFINITIONS = MappingProxyType(
    {one.name: one for one in (HEADRACE, VLLM, VLLM_BEFORE_0_33, AIPERF, GUIDELLM, LLMPERF)}
)


class Row(msgspec.Struct, frozen=True):
    """A line of the printed table: what one tool means by a metric of ours.

    canonical is None for a metric that only this tool has.
    """

    canonical: Canonical | None
    definition: str
    name: str
    counts: str


def definition(name: str) -> Definition:
    """Raises ConfigError for a tool that has none here."""
    found = DEFINITIONS.get(name)
    if found is None:
        known = ", ".join(DEFINITIONS)
        raise ConfigError(f"--definitions {shown(name)} is not known; use one of: {known}")
    return found


def table(definitions: Sequence[Definition]) -> tuple[Row, ...]:
    """What counts, metric by metric so that tools stand below one another, as reports print it."""
    rows = [
        Row(metric.canonical, one.name, metric.name, metric.counts)
        for one in definitions
        for metric in one.metrics
    ]
    order: list[str | None] = [*get_args(Canonical), None]
    return tuple(sorted(rows, key=lambda row: order.index(row.canonical)))
