"""Figures of a simulation with what they came from, by which `plan explain` finds them.

All come from one run, so each names `simulate.completed`, which names load, service and engine. The
bands are of chance alone; how sure step times are is said where they come from.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.plan.model.renamed import figure_input
from headrace.plan.quantity import Input, Quantity
from headrace.plan.simulation.finished import TIMES
from headrace.plan.simulation.result import LaneResult, SimulationResult, Spread
from headrace.plan.simulation.settings import SimulationSettings
from headrace.plan.simulation.simulate import FewestReplicas

NAMES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E latency", "queue": "time in the queue"}
STATISTICS = ("mean", "p50", "p90", "p95", "p99", "most")
_WORDS = {"mean": "mean", "most": "longest"}
_FORMULAS = {"mean": "Q4", "most": "Q6"}


def statistic_id(metric: str, statistic: str, priority: int | None = None) -> str:
    """Such as "simulate.ttft.p95", or "simulate.lane0.ttft.p95" of a priority."""
    lane = "" if priority is None else f"lane{priority}."
    return f"simulate.{lane}{metric}.{statistic}"


def run_figures(
    result: SimulationResult, found: FewestReplicas | None, engine: tuple[Quantity, ...]
) -> tuple[Quantity, ...]:
    """Every figure of a run; engine: the step and the size of the KV cache, of `engine_figures`."""
    completed = _completed(result, engine)
    ended = figure_input(completed)
    return (
        completed,
        *_latencies(result.overall, ended),
        *(one for lane in result.lanes for one in _latencies(lane, ended)),
        *_rates(result, ended),
        *_use(result, ended),
        *_goodput(result, ended),
        *_cost(result, ended),
        *_fewest(found),
    )


def _completed(result: SimulationResult, engine: tuple[Quantity, ...]) -> Quantity:
    settings = result.settings
    inputs = (
        Input("requests that arrived", result.arrived, "requests", "the load", "given"),
        Input("prompt tokens of those that ended", result.prompt_tokens, "tokens", "the load",
              "given"),
        Input("output tokens of those that ended", result.served_tokens, "tokens", "the load",
              "given"),
        *_service(settings),
        Input("most tokens of a step", settings.engine.max_num_batched_tokens, "tokens",
              "--step-tokens", "given"),
        Input("longest step while requests decode", settings.engine.max_step_ms, "ms",
              "--max-step-ms", "given", note="0 lifts the limit"),
        Input("most requests of a replica at once", settings.engine.max_num_seqs, "requests",
              "--max-num-seqs", "given"),
        Input("prefix caching", "on" if settings.engine.prefix_caching else "off", "",
              "--prefix-caching", "given"),
        *(figure_input(one) for one in engine),
        Input("seed", settings.seed, "", "--seed", "given", note="another one gives another run"),
    )  # fmt: skip
    return Quantity(
        "simulate.completed", "requests that ended", result.completed, "requests", "Q1", inputs
    )


def _service(settings: SimulationSettings) -> Iterator[Input]:
    split, scale, failures = settings.disaggregation, settings.autoscale, settings.failures
    if split is None:
        yield Input("replicas at the start", settings.replicas, "", "--replicas", "given")
    else:
        yield Input("prefill replicas", split.prefill_replicas, "", "--prefill-replicas", "given")
        yield Input("decode replicas", split.decode_replicas, "", "--decode-replicas", "given")
        yield Input("KV of a token", split.kv_bytes_per_token, "byte/token",
                    "--kv-bytes-per-token, or of the model", "given")  # fmt: skip
        yield Input("link", split.link_bytes_per_s, "byte/s", "--link", "given")
    yield Input("routing", settings.routing, "", "--routing", "given")
    if scale is not None:
        cold = f"cold starts of {scale.cold_start_s[0]:g} to {scale.cold_start_s[1]:g} s"
        yield Input(f"autoscaling by {scale.by}", f"{scale.least} to {scale.most}", "replicas",
                    "--autoscale", "given", note=f"target {scale.target:g}, {cold}")  # fmt: skip
    if failures is not None and failures.mtbf_s is not None:
        yield Input("MTBF of a replica", failures.mtbf_s, "s", "--mtbf", "given",
                    note=f"MTTR {failures.mttr_s:g} s")  # fmt: skip


def _latencies(lane: LaneResult, ended: Input) -> Iterator[Quantity]:
    of = "" if lane.priority is None else f" of priority {lane.priority}"
    for metric in TIMES:
        spread = lane.spreads[metric]
        if spread is None:
            continue
        for statistic in STATISTICS:
            value, low, high = statistic_of(spread, statistic)
            yield Quantity(
                statistic_id(metric, statistic, lane.priority),
                f"{NAMES[metric]}{of}, {_WORDS.get(statistic, statistic)}",
                value, "s", _FORMULAS.get(statistic, "Q5"),
                (ended, Input("requests measured", spread.count, "requests", "the run", "given")),
                low, high,
            )  # fmt: skip


def statistic_of(spread: Spread, statistic: str) -> tuple[float, float, float]:
    """Value and band of "mean", "p95" or "most"; the longest is of this run and has no band."""
    value = float(getattr(spread, f"{statistic}_s"))
    low, high = spread.bands.get(statistic, (value, value))
    return value, min(low, value), max(high, value)


def _rates(result: SimulationResult, ended: Input) -> Iterator[Quantity]:
    seconds = Input("seconds of the run", result.seconds, "s", "until the last request ended",
                    "given")  # fmt: skip
    tokens = Input("output tokens", result.served_tokens, "tokens", "the run", "given")
    yield Quantity("simulate.requests", "requests served", result.requests_per_s, "requests/s",
                   "Q7", (ended, seconds))  # fmt: skip
    yield Quantity("simulate.tokens", "output tokens served", result.output_tokens_per_s,
                   "tokens/s", "Q7", (ended, tokens, seconds))  # fmt: skip


def _use(result: SimulationResult, ended: Input) -> Iterator[Quantity]:
    for name, said, value, unit, formula in (
        ("busy", "time that replicas are busy", result.busy_share, "share", "Q9"),
        ("batch", "requests in a step", result.batch, "requests", "Q9"),
        ("kv", "KV cache in use", result.kv_share, "share", "Q9"),
        ("kv.most", "KV cache in use, most", result.kv_share_most, "share", "Q10"),
        ("waiting", "requests waiting", result.waiting, "requests", "Q9"),
        ("waiting.most", "requests waiting, most", result.waiting_most, "requests", "Q10"),
        ("replicas.most", "replicas paid for, most", result.replicas_most, "", "Q10"),
        ("preemptions", "preemptions", result.preemptions, "", "Q11"),
        ("retries", "requests started again", result.retries, "requests", "Q11"),
        ("refused", "requests refused", result.refused, "requests", "Q11"),
        ("prefix-hits", "prompt tokens found in prefix caches", result.prefix_hit_share, "share",
         "Q11"),
        ("replica-hours", "replica-hours", result.replica_hours, "h", "Q12"),
    ):  # fmt: skip
        if value is not None:
            yield Quantity(f"simulate.{name}", said, value, unit, formula, (ended,))


def _goodput(result: SimulationResult, ended: Input) -> Iterator[Quantity]:
    goodput = result.goodput
    if goodput is None:
        return
    limits = ", ".join(one.condition for one in goodput.conditions)
    inputs = (
        ended,
        Input("limits", limits, "", "--goodput", "given"),
        Input("requests judged", goodput.judged, "requests", "the run", "given"),
    )
    good = Quantity("simulate.good", "requests that are good", goodput.fraction, "share", "Q8",
                    inputs)  # fmt: skip
    yield good
    for name, said, value, unit in (
        ("goodput", "goodput", goodput.requests_per_s, "requests/s"),
        ("goodput.tokens", "output tokens of good requests", goodput.output_tokens_per_s,
         "tokens/s"),
    ):  # fmt: skip
        yield Quantity(f"simulate.{name}", said, value, unit, "Q7", (figure_input(good),))


def _cost(result: SimulationResult, ended: Input) -> Iterator[Quantity]:
    cost = result.cost
    if cost is None:
        return
    hours = Input("replica-hours", result.replica_hours, "h", "figure simulate.replica-hours",
                  "given")  # fmt: skip
    price = Input("price of a replica", cost.usd_per_replica_hour, "USD/h", "--price", "given")
    whole = Quantity("simulate.cost", "cost of the run", cost.total, "USD", "Q13", (hours, price))
    seconds = Input("seconds of the run", result.seconds, "s", "the run", "given")
    yield whole
    yield Quantity("simulate.cost.hour", "cost of an hour", cost.per_hour, "USD/h", "Q7",
                   (figure_input(whole), seconds))  # fmt: skip
    if cost.million_output_tokens is not None:
        tokens = Input("output tokens", result.served_tokens, "tokens", "the run", "given")
        yield Quantity("simulate.cost.tokens", "1M output tokens", cost.million_output_tokens,
                       "USD/1M tokens", "Q14", (figure_input(whole), tokens, ended))  # fmt: skip


def _fewest(found: FewestReplicas | None) -> Iterator[Quantity]:
    if found is None:
        return
    tried = tuple(
        Input(f"good with {count:,} replicas", share, "share",
              "a run of its own" if count != found.replicas else "figure simulate.good", "given",
              note="met" if met else "not met")
        for count, met, share in sorted(found.tried)
    )  # fmt: skip
    wanted = Input("attainment", found.attainment, "share", "--attainment", "given")
    yield Quantity("simulate.fewest-replicas", "fewest replicas", found.replicas, "", "Q15",
                   (wanted, *tried))  # fmt: skip
