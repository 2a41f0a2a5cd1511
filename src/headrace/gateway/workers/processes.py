"""Memory, CPU time and files of all processes of a gateway, for a scrape."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

# Metrics that are summed over processes; limits and start times are the parent's.
_SUMMED = ("process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds")
_CPU = "process_cpu_seconds_total"


class Processes(Collector):
    """The sums over all processes, the parent first. CPU time includes workers that ended, so that
    it never goes backwards."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids

    def describe(self) -> Iterator[Metric]:
        """Nothing; called when the collector is registered."""
        return iter(())

    def collect(self) -> Iterable[Metric]:
        """The metric families of ProcessCollector, each with one sample."""
        each = [list(_collector(pid).collect()) for pid in self._pids]
        values: dict[str, float] = {}
        for family in (family for families in each for family in families):
            for sample in family.samples:
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
        gone = resource.getrusage(resource.RUSAGE_CHILDREN)
        for family in each[0]:
            family.samples = [
                sample._replace(value=_value(sample.name, sample.value, values, gone))
                for sample in family.samples
            ]
            yield family


def _value(name: str, own: float, sums: dict[str, float], gone: resource.struct_rusage) -> float:
    if name == _CPU:
        return sums[name] + gone.ru_utime + gone.ru_stime
    return sums[name] if name in _SUMMED else own


def _collector(pid: int) -> ProcessCollector:
    return ProcessCollector(pid=lambda: pid, registry=None)
