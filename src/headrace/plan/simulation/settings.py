"""What is simulated: the engine of a replica, how many of them, and what happens to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.engine.scheduling.step_budget import StepLoad
from headrace.errors import ConfigError, shown
from headrace.models.layer_cache import ONE_GROUP, CacheGroup
from headrace.plan.simulation.draft_times import DraftTimes
from headrace.plan.step.latency_model import LatencyModel
from headrace.plan.validation import above_zero, not_above, not_below, share

# Each replica has a scheduler of its own in memory.
MOST_REPLICAS = 10_000
# Of a request in a step; engines make 1 to 16.
MOST_DRAFTS = 64
_MANY = "simulate a part of the service under its part of the load"
# Decisions, failures and samples more often than that are all that a simulation would do.
_LEAST_INTERVAL_S = 0.1

Routing = Literal["round-robin", "least-loaded", "prefix-aware"]
ScaleBy = Literal["queue", "kv", "slo"]
Role = Literal["all", "prefill", "decode"]


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """One replica; names are the engine's own. Raises ConfigError."""

    latency: LatencyModel
    num_blocks: int
    """Blocks of the KV cache, each of `block_size` tokens in one block table."""
    block_size: int = 16
    groups: tuple[CacheGroup, ...] = ONE_GROUP
    """What the model's layers keep, as the engine groups them."""
    max_num_batched_tokens: int = 2048
    max_step_ms: float = 0.0
    """Milliseconds a step may take while requests decode, as the engine holds them by `latency`; 0
    for no limit."""
    max_num_seqs: int = 256
    prefix_caching: bool = True
    acceptance: tuple[float, ...] = ()
    """Of each draft that a decoding request computes in a step beside its own token, the share that
    is accepted where those before it are; () for no drafts."""
    draft_times: DraftTimes | None = None
    """What drafts were measured to cost; None where they cost what `latency` says of as many tokens
    of a prompt."""
    single_steps: bool = False
    """Whether each step is planned alone, which gives the same and takes longer."""

    def __post_init__(self) -> None:
        for name in ("num_blocks", "block_size", "max_num_batched_tokens", "max_num_seqs"):
            not_below(name, getattr(self, name), 1, "a replica that computes nothing never ends")
        not_below("max_step_ms", self.max_step_ms, 0, "milliseconds, or 0 for steps of any length")
        not_above("acceptance", len(self.acceptance), MOST_DRAFTS, "name fewer drafts")
        for accepted in self.acceptance:
            share("acceptance", accepted, "it is the share of drafts that are accepted")

    def seconds(self, load: StepLoad) -> float:
        """What a step takes."""
        if self.draft_times is None:
            return self.latency.seconds(load)
        return self.draft_times.seconds(self.latency, load)

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV cache holds in all layers."""
        return self.num_blocks // sum(group.num_tables for group in self.groups) * self.block_size


@dataclass(frozen=True, kw_only=True)
class AutoscaleSettings:
    """The rule that adds and removes replicas, which is that of Kubernetes: desired = ⌈replicas ·
    metric / target⌉, unchanged within `tolerance`."""

    by: ScaleBy
    """The metric. "queue": waiting requests per ready replica; "kv": the share of KV blocks in use;
    "slo": the 95th percentile of TTFT in the last `window_s` divided by `ttft_s`."""
    target: float
    least: int
    most: int
    cold_start_s: tuple[float, float]
    """Minimum and maximum time until a new replica is ready; uniform in between."""
    interval_s: float = 15.0
    down_after_s: float = 300.0
    """Replicas are removed only if fewer were desired for this long."""
    tolerance: float = 0.1
    window_s: float = 60.0
    ttft_s: float | None = None

    def __post_init__(self) -> None:
        above_zero("target", self.target, "desired replicas are the metric over it")
        not_below("min_replicas", self.least, 1, "one replica has to answer")
        not_below("max_replicas", self.most, self.least, "it is at least min_replicas")
        not_above("max_replicas", self.most, MOST_REPLICAS, _MANY)
        not_below(
            "scale_interval", self.interval_s, _LEAST_INTERVAL_S, "15 s is what Kubernetes does"
        )
        not_below("scale_down_after", self.down_after_s, 0, "300 s is what Kubernetes does")
        not_below("cold_start", self.cold_start_s[0], 0, "seconds until a replica is ready")
        not_below("cold_start", self.cold_start_s[1], self.cold_start_s[0], "least..greatest")
        if self.by == "slo" and self.ttft_s is None:
            raise ConfigError("scaling by slo needs a limit of TTFT: add --goodput ttft:500")


@dataclass(frozen=True, kw_only=True)
class FailureSettings:
    """Replicas that die: at given (second, replica) or, each of them, after an exponential time.

    mtbf_s: mean time a ready replica lives; None: only at the given times. mttr_s: until it is
    ready again; its cache is then empty.
    """

    at: tuple[tuple[float, int], ...] = ()
    mtbf_s: float | None = None
    mttr_s: float = 120.0

    def __post_init__(self) -> None:
        not_below("mttr", self.mttr_s, 0, "seconds until a replica is back")
        if self.mtbf_s is not None:
            not_below(
                "mtbf",
                self.mtbf_s,
                _LEAST_INTERVAL_S,
                "mean seconds between failures of a replica",
            )
        for second, replica in self.at:
            not_below("fail_at", second, 0, "seconds from the start")
            not_below("fail_at", replica, 0, "replicas are counted from 0")


@dataclass(frozen=True, kw_only=True)
class Disaggregation:
    """Prefill and decode on replicas of their own, the KV cache sent from one to the other.

    kv_bytes_per_token: of all layers. Raises ConfigError.
    """

    prefill_replicas: int
    decode_replicas: int
    kv_bytes_per_token: float
    link_bytes_per_s: float
    link_latency_s: float = 0.0

    def __post_init__(self) -> None:
        not_below(
            "prefill_replicas", self.prefill_replicas, 1, "each pool has at least one replica"
        )
        not_below("decode_replicas", self.decode_replicas, 1, "each pool has at least one replica")
        not_above("prefill_replicas", self.prefill_replicas, MOST_REPLICAS, _MANY)
        not_above("decode_replicas", self.decode_replicas, MOST_REPLICAS, _MANY)
        above_zero("kv_bytes_per_token", self.kv_bytes_per_token, "keys and values of all layers")
        above_zero("link", self.link_bytes_per_s, "bytes a second")
        not_below("link_latency", self.link_latency_s, 0, "seconds")

    def transfer_s(self, tokens: int) -> float:
        """Of the KV cache of so many tokens, alone on the link."""
        return self.link_latency_s + tokens * self.kv_bytes_per_token / self.link_bytes_per_s


@dataclass(frozen=True, kw_only=True)
class SimulationSettings:
    """A service."""

    engine: EngineSettings
    replicas: int = 1
    """Replicas at the start; unused with disaggregation, which has its own."""
    routing: Routing = "least-loaded"
    autoscale: AutoscaleSettings | None = None
    failures: FailureSettings | None = None
    disaggregation: Disaggregation | None = None
    sample_s: float = 10.0
    """Seconds between two points of the series over time."""
    seed: int = 0
    """Seed of all random numbers."""

    def __post_init__(self) -> None:
        not_below("replicas", self.replicas, 1, "a service has at least one replica")
        not_above("replicas", self.replicas, MOST_REPLICAS, _MANY)
        above_zero("sample_s", self.sample_s, "seconds between points of the series")
        scale = self.autoscale
        if scale and not self.disaggregation and not scale.least <= self.replicas <= scale.most:
            raise ConfigError(
                f"replicas is {shown(self.replicas)}; with autoscaling it is from min_replicas "
                f"{scale.least} to max_replicas {scale.most}: change one of them"
            )
