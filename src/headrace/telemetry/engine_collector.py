"""What an engine says of itself as metrics, read when somebody scrapes: a step costs nothing.

Here are the names vLLM has too; what has no note in docs/metrics.md means what it means there.
Five of them are what the Kubernetes inference gateway and llm-d schedule by. `engine_own` has ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headrace.telemetry import buckets, engine_own
from headrace.telemetry.engine_reports import EngineCounts, EngineFacts
from headrace.telemetry.families import Families


class Now(NamedTuple):
    """The engine's gauges. An engine that has ended runs nothing and holds nothing."""

    num_running: int = 0
    num_waiting: int = 0
    num_deferred: int = 0
    num_preempted: int = 0
    blocks_total: int = 0
    blocks_free: int = 0
    blocks_cached: int = 0
    blocks_owned: int = 0
    step_s: float = 0.0
    step_tokens: int = 0
    step_bytes: int = 0
    step_operations: int = 0
    step_attention_operations: int = 0
    expert_cache_held_bytes: int = 0

    @classmethod
    def of(cls, counts: EngineCounts) -> Now:
        """Those of an engine that runs."""
        return cls(*(getattr(counts, name) for name in cls._fields))


class EngineCollector(Collector):
    """Gauges and counters of one engine, under vLLM's names and our own.

    Once it has ended, counters keep their totals and the gauges of its state are 0.
    counts and alive are called at each scrape. labels: model_name and engine, on every sample.
    queued: requests that the server has accepted and the engine has not started; they wait, though
        the engine may not have heard of all of them. None where nobody counts them: then what
        waits is what the engine says.
    started_s: Unix time, given to lora_requests_info as vLLM does.
    """

    def __init__(
        self,
        *,
        labels: Mapping[str, str],
        facts: Callable[[], EngineFacts],
        counts: Callable[[], EngineCounts],
        alive: Callable[[], bool],
        prefix_caching: bool,
        version: str,
        started_s: float,
        queued: Callable[[], int] | None = None,
    ) -> None:
        self._make = Families(labels)
        self._facts = facts
        self._counts = counts
        self._alive = alive
        self._prefix_caching = prefix_caching
        self._version = version
        self._started_s = started_s
        self._queued = queued

    def collect(self) -> Iterator[Metric]:
        """Every family, in a fixed order."""
        counts, facts, alive = self._counts(), self._facts(), self._alive()
        now = Now.of(counts) if alive else Now()
        yield from self._queue(now)
        yield from self._aliased_gauge(
            "vllm:kv_cache_usage_perc",
            "vllm:gpu_cache_usage_perc",
            "Share of KV blocks that running requests own, 0 to 1.",
            now.blocks_owned / now.blocks_total if now.blocks_total else 0.0,
        )
        yield from self._infos(facts)
        yield from self._prefix_cache(counts)
        yield from self._tokens(counts)
        yield from engine_own.families(
            self._make, facts, counts, now, alive=alive, version=self._version
        )

    def _queue(self, now: Now) -> Iterator[Metric]:
        waiting = now.num_waiting
        if self._queued is not None:
            # The engine's word is as old as its last report; those it had started before, and has
            # preempted, are not in the server's count.
            waiting = self._queued() + now.num_preempted
        deferred = min(now.num_deferred, waiting)
        make = self._make
        yield make.gauge(
            "vllm:num_requests_running", "Requests in the running batch.", now.num_running
        )
        yield make.gauge("vllm:num_requests_waiting", "Requests accepted but not running.", waiting)
        yield make.gauges(
            "vllm:num_requests_waiting_by_reason",
            "Requests waiting, by reason: capacity, or deferred until another request has "
            "computed a shared prefix.",
            "reason",
            {"capacity": waiting - deferred, "deferred": deferred},
        )

    def _infos(self, facts: EngineFacts) -> Iterator[Metric]:
        yield self._make.gauge(
            "vllm:cache_config_info",
            "The KV cache's settings, as labels.",
            1,
            block_size=str(facts.block_size),
            num_gpu_blocks=str(facts.num_blocks),
            num_cpu_blocks="0",
            cache_dtype=facts.kv_cache_dtype,
            enable_prefix_caching=str(self._prefix_caching),
        )
        yield self._make.gauge(
            "vllm:lora_requests_info",
            "Adapters in use, as labels (none yet); the value is the Unix time of the start.",
            self._started_s,
            max_lora="0",
            running_lora_adapters="",
            waiting_lora_adapters="",
        )

    def _prefix_cache(self, counts: EngineCounts) -> Iterator[Metric]:
        both = (
            ("queries", "Prompt tokens looked up in the prefix cache.", "prefix_queries_tokens"),
            ("hits", "Prompt tokens found in the prefix cache.", "prefix_hits_tokens"),
        )
        for name, text, field in both:
            value = getattr(counts, field)
            new = f"vllm:prefix_cache_{name}"
            yield self._make.counter(new, text, value)
            former = f"The former name of {new}_total."
            yield self._make.counter(f"vllm:gpu_prefix_cache_{name}", former, value)

    def _tokens(self, counts: EngineCounts) -> Iterator[Metric]:
        make = self._make
        hits = counts.prefix_hits_tokens
        yield make.counter("vllm:prompt_tokens", "Prompt tokens processed.", counts.prompt_tokens)
        yield make.counters(
            "vllm:prompt_tokens_by_source",
            "Prompt tokens by the source of their K and V.",
            "source",
            {
                "local_compute": counts.prompt_tokens - hits,
                "local_cache_hit": hits,
                "external_kv_transfer": 0,
            },
        )
        yield make.counter("vllm:prompt_tokens_cached", "Prompt tokens taken from the cache.", hits)
        yield make.counter("vllm:generation_tokens", "Tokens generated.", counts.generation_tokens)
        yield make.counter(
            "vllm:spec_decode_num_drafts", "Steps of a request with drafts.", counts.spec_drafts
        )
        yield make.counter(
            "vllm:spec_decode_num_draft_tokens", "Tokens drafted.", counts.spec_draft_tokens
        )
        yield make.counter(
            "vllm:spec_decode_num_accepted_tokens",
            "Drafted tokens that were accepted.",
            counts.spec_accepted_tokens,
        )
        yield make.counters(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Drafted tokens that were accepted, by their place among the drafts of their step.",
            "position",
            {str(at): count for at, count in sorted(counts.spec_accepted_by_position.items())},
        )
        yield make.counter(
            "vllm:num_preemptions",
            "Times a request was preempted to free KV blocks.",
            counts.num_preemptions,
        )
        yield make.histogram(
            "vllm:iteration_tokens_total",
            "Tokens computed per step.",
            buckets.ITERATION_TOKENS,
            counts.iteration_tokens,
            counts.computed_tokens,
        )

    def _aliased_gauge(self, name: str, former: str, help: str, value: float) -> Iterator[Metric]:
        yield self._make.gauge(name, help, value)
        yield self._make.gauge(former, f"The former name of {name}.", value)
