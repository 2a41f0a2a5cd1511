"""What an engine says of itself as metrics, read when somebody scrapes: a step costs nothing.

Names without a note in docs/metrics.md mean what they mean in vLLM; five of them are what the
Kubernetes inference gateway and llm-d schedule by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class EngineCounts(Protocol):
    """State of an engine after a step; the counters are totals since its start."""

    @property
    def num_running(self) -> int: ...
    @property
    def num_waiting(self) -> int: ...
    @property
    def blocks_total(self) -> int: ...
    @property
    def blocks_free(self) -> int: ...
    @property
    def blocks_cached(self) -> int: ...
    @property
    def blocks_owned(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def step_s(self) -> float: ...
    @property
    def step_tokens(self) -> int: ...
    @property
    def step_bytes(self) -> int: ...
    @property
    def step_operations(self) -> int: ...
    @property
    def busy_s(self) -> float: ...
    @property
    def moved_bytes(self) -> int: ...
    @property
    def operations(self) -> int: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def generation_tokens(self) -> int: ...
    @property
    def computed_tokens(self) -> int: ...
    @property
    def prefix_queries_tokens(self) -> int: ...
    @property
    def prefix_hits_tokens(self) -> int: ...
    @property
    def num_preemptions(self) -> int: ...
    @property
    def miss_reasons(self) -> Mapping[str, int]: ...
    @property
    def failed_steps(self) -> int: ...
    @property
    def kv_accounting_errors(self) -> int: ...


class EngineFacts(Protocol):
    """What does not change while an engine runs. Seconds per load phase in `phases_s`."""

    @property
    def model_type(self) -> str: ...
    @property
    def block_size(self) -> int: ...
    @property
    def num_blocks(self) -> int: ...
    @property
    def kv_cache_dtype(self) -> str: ...
    @property
    def backend(self) -> str: ...
    @property
    def cpu_level(self) -> str: ...
    @property
    def num_threads(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def kv_bytes(self) -> int: ...
    @property
    def phases_s(self) -> Mapping[str, float]: ...
    @property
    def read_limit_bytes_per_s(self) -> float | None: ...
    @property
    def compute_limit_ops_per_s(self) -> float | None: ...


class _Now(NamedTuple):
    """What goes up and down. An engine that has ended runs nothing and holds nothing."""

    num_running: int = 0
    num_waiting: int = 0
    blocks_total: int = 0
    blocks_free: int = 0
    blocks_cached: int = 0
    blocks_owned: int = 0
    step_s: float = 0.0
    step_tokens: int = 0
    step_bytes: int = 0
    step_operations: int = 0

    @classmethod
    def of(cls, counts: EngineCounts) -> _Now:
        """Those of an engine that runs."""
        return cls(*(getattr(counts, name) for name in cls._fields))


class EngineCollector(Collector):
    """Gauges and counters of one engine, under vLLM's names and our own.

    Once it has ended, counters keep their totals and the gauges of its state are 0.
    counts and alive are called at each scrape. labels: model_name and engine, on every sample.
    started_s: Unix time, given to lora_requests_info as vLLM does.
    """

    def __init__(
        self,
        *,
        labels: Mapping[str, str],
        facts: EngineFacts,
        counts: Callable[[], EngineCounts],
        alive: Callable[[], bool],
        prefix_caching: bool,
        version: str,
        started_s: float,
    ) -> None:
        self._labels = dict(labels)
        self._facts = facts
        self._counts = counts
        self._alive = alive
        self._prefix_caching = prefix_caching
        self._version = version
        self._started_s = started_s

    def collect(self) -> Iterator[Metric]:
        """Every family, in a fixed order."""
        counts, alive = self._counts(), self._alive()
        now = _Now.of(counts) if alive else _Now()
        yield from self._vllm_gauges(now)
        yield from self._vllm_counters(counts)
        yield self._gauge("headrace:engine_up", "1 while the engine's loop runs, 0 after.", alive)
        yield from self._own_gauges(now)
        yield from self._own_counters(counts)

    def _vllm_gauges(self, now: _Now) -> Iterator[Metric]:
        used = now.blocks_owned / now.blocks_total if now.blocks_total else 0.0
        facts = self._facts
        yield self._gauge(
            "vllm:num_requests_running", "Requests in the running batch.", now.num_running
        )
        yield self._gauge("vllm:num_requests_waiting", "Requests queued.", now.num_waiting)
        yield self._gauge(
            "vllm:kv_cache_usage_perc",
            "Share of KV blocks that running requests own, 0 to 1.",
            used,
        )
        yield self._gauge(
            "vllm:cache_config_info",
            "The KV cache's settings, as labels.",
            1,
            block_size=str(facts.block_size),
            num_gpu_blocks=str(facts.num_blocks),
            num_cpu_blocks="0",
            cache_dtype=facts.kv_cache_dtype,
            enable_prefix_caching=str(self._prefix_caching),
        )
        yield self._gauge(
            "vllm:lora_requests_info",
            "Adapters in use, as labels (none yet); the value is the start's Unix time.",
            self._started_s,
            max_lora="0",
            running_lora_adapters="",
            waiting_lora_adapters="",
        )

    def _vllm_counters(self, counts: EngineCounts) -> Iterator[Metric]:
        yield self._counter(
            "vllm:prefix_cache_queries",
            "Prompt tokens looked up in the prefix cache.",
            counts.prefix_queries_tokens,
        )
        yield self._counter(
            "vllm:prefix_cache_hits",
            "Prompt tokens found in the prefix cache.",
            counts.prefix_hits_tokens,
        )
        yield self._counter("vllm:prompt_tokens", "Prompt tokens processed.", counts.prompt_tokens)
        yield self._counter("vllm:generation_tokens", "Tokens generated.", counts.generation_tokens)
        yield self._counter(
            "vllm:num_preemptions",
            "Times a request was preempted to free KV blocks.",
            counts.num_preemptions,
        )

    def _own_gauges(self, now: _Now) -> Iterator[Metric]:
        facts = self._facts
        yield self._gauge(
            "headrace:engine_info",
            "What runs, as labels.",
            1,
            version=self._version,
            model_type=facts.model_type,
            backend=facts.backend,
            cpu_level=facts.cpu_level,
            threads=str(facts.num_threads),
        )
        yield self._gauge("headrace:weight_bytes", "Bytes of weights.", facts.weight_bytes)
        yield self._gauge("headrace:kv_cache_bytes", "Bytes of the KV cache.", facts.kv_bytes)
        yield self._family(
            GaugeMetricFamily,
            "headrace:load_seconds",
            "Seconds each phase of loading took.",
            "phase",
            facts.phases_s,
        )
        yield self._family(
            GaugeMetricFamily,
            "headrace:kv_blocks",
            "KV blocks by state; free, cached and owned add up to total.",
            "state",
            {
                "free": now.blocks_free,
                "cached": now.blocks_cached,
                "owned": now.blocks_owned,
                "total": now.blocks_total,
            },
        )
        yield self._gauge("headrace:last_step_seconds", "Seconds the last step took.", now.step_s)
        yield self._gauge(
            "headrace:last_step_tokens", "Tokens the last step computed.", now.step_tokens
        )
        yield from self._shares(now)

    def _shares(self, now: _Now) -> Iterator[Metric]:
        """MBU and MFU of the last step. Absent, not 0, where limit or step is not known."""
        shares = (
            ("mbu", "memory bandwidth", now.step_bytes, self._facts.read_limit_bytes_per_s),
            ("mfu", "multiply rate", now.step_operations, self._facts.compute_limit_ops_per_s),
        )
        for name, what, amount, limit in shares:
            if limit and now.step_s and amount:
                text = f"Share of this machine's {what} that the last step reached."
                yield self._gauge(f"headrace:last_step_{name}", text, amount / now.step_s / limit)

    def _own_counters(self, counts: EngineCounts) -> Iterator[Metric]:
        yield self._counter("headrace:engine_steps", "Steps the engine has done.", counts.steps)
        yield self._counter(
            "headrace:computed_tokens",
            "Tokens computed: prompts without cache hits, output, and recomputation.",
            counts.computed_tokens,
        )
        yield self._counter("headrace:step_seconds", "Seconds spent in steps.", counts.busy_s)
        yield self._counter(
            "headrace:step_bytes",
            "Bytes that steps had to move: weights, and K and V read and written.",
            counts.moved_bytes,
        )
        yield self._counter(
            "headrace:step_operations",
            "Multiplications and additions of matrix products and attention.",
            counts.operations,
        )
        yield self._family(
            CounterMetricFamily,
            "headrace:prefix_cache_misses",
            "Requests whose prompt was not wholly cached, by reason.",
            "reason",
            counts.miss_reasons,
        )
        yield self._counter(
            "headrace:failed_steps",
            "Steps whose batch raised and was run again request by request.",
            counts.failed_steps,
        )
        yield self._counter(
            "headrace:kv_accounting_errors",
            "Times that KV blocks did not add up when the engine became idle.",
            counts.kv_accounting_errors,
        )

    def _gauge(self, name: str, help: str, value: float, **labels: str) -> Metric:
        everything = self._labels | labels
        family = GaugeMetricFamily(name, help, labels=list(everything))
        family.add_metric(list(everything.values()), value)
        return family

    def _counter(self, name: str, help: str, value: float) -> Metric:
        family = CounterMetricFamily(name, help, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _family(
        self,
        kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
        name: str,
        help: str,
        label: str,
        values: Mapping[str, float],
    ) -> Metric:
        family = kind(name, help, labels=[*self._labels, label])
        for key in sorted(values):
            family.add_metric([*self._labels.values(), key], values[key])
        return family
