"""`headrace plan simulate`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.options import integer
from headrace.cli.plan.options import (
    catalog_of,
    catalog_options,
    parallel_options,
    place_options,
    storage_options,
)
from headrace.cli.plan.output import keep_for_explain, output_options, plan_about, write_page
from headrace.cli.sections import SectionedCommand, SectionOption

if TYPE_CHECKING:
    from headrace.plan.simulation.result import SimulationResult

_BETWEEN_S = 1.0
_DEFAULT_SEARCH_LIMIT = 1024

option = partial(click.option, cls=SectionOption)
_load = partial(option, section="Load")
_service = partial(option, section="Service")
_engine = partial(option, section="Engine of a replica")
_judge = partial(option, section="Judging")


class SimulateCommand(SectionedCommand):
    """Help by heading, with examples."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Commands that work as they stand, but for the files."""
        with formatter.section("Examples"):
            for line in (
                "headrace plan simulate llama-3.1-8b --hardware h100 --rate 20 --replicas 2",
                "headrace plan simulate llama-3.1-8b --hardware h100 --rate 60 "
                "--goodput 'ttft:500 tpot:50' --find-replicas",
                "headrace plan simulate llama-3.1-8b --hardware h100 --trace conv.csv --day "
                "--scale 40 --replicas 10 --autoscale queue --max-replicas 40 --price 2.5",
            ):
                formatter.write_text(line)


@click.command(
    cls=SimulateCommand, short_help="Simulate a service under a load before building it."
)
@click.argument("model", required=False)
@place_options
@storage_options
@parallel_options
@_load("--rate", type=float, help="Requests per second; arrivals are random.")
@_load(
    "--burstiness",
    type=float,
    default=1.0,
    help="Shape of the gamma distribution of the gaps: 1 is Poisson, below 1 is burstier, inf is "
    "constant. [default: 1]",
)
@_load(
    "--prompt",
    metavar="LENGTHS",
    help="Prompt tokens of the requests of --rate: 1024, 128..2048 or normal(512,64). [default: "
    "1024]",
)
@_load(
    "--output", metavar="LENGTHS", help="Output tokens of the requests of --rate. [default: 256]"
)
@_load(
    "--shared-prefix",
    metavar="TOKENS[:GROUPS]",
    help="Tokens at the beginning of each prompt that all requests of a group share, as a system "
    "prompt.",
)
@_load(
    "--trace",
    type=click.Path(dir_okay=False),
    help="File of a trace with requests, as `headrace bench load --trace` reads it; its block ids "
    "are shared beginnings.",
)
@_load(
    "--trace-block-tokens",
    "block_tokens",
    type=int,
    help="Tokens that each hash id of a trace stands for. [default: 512, as in Mooncake]",
)
@_load(
    "--speed",
    type=float,
    default=1.0,
    help="Speed at which a trace is replayed: 2 replays two seconds in one. [default: 1]",
)
@_load(
    "--scale",
    type=float,
    default=1.0,
    help="Multiply the requests of the load by this; which are copied or dropped is random. "
    "[default: 1]",
)
@_load(
    "--day",
    is_flag=True,
    help="Repeat an hour of a trace 24 times, with the number of requests in each hour following "
    "a curve.",
)
@_load(
    "--day-curve",
    metavar="NUMBERS",
    help="Factor for each hour, separated by commas; their number is the number of hours. "
    "[default: 1 at 15:00, 0.2 at 3:00]",
)
@_load(
    "--duration",
    type=float,
    help="Length of the load in seconds. [default: 600; a trace: all of it]",
)
@_load(
    "--lanes",
    metavar="PRIORITY:SHARE,...",
    help="Shares of requests by priority; lower numbers come first and may preempt others: "
    "0:0.2,5:0.8.",
)
@_load("--seed", type=int, default=0, help="Seed of all random numbers. [default: 0]")
@_service("--replicas", type=int, default=1, help="Replicas at the start. [default: 1]")
@_service(
    "--routing",
    type=click.Choice(["round-robin", "least-loaded", "prefix-aware"]),
    default="least-loaded",
    help="Policy that chooses the replica of a request. [default: least-loaded]",
)
@_service(
    "--autoscale",
    type=click.Choice(["queue", "kv", "slo"]),
    help="Add and remove replicas by the requests waiting per replica, by the share of KV blocks "
    "in use, or by p95 TTFT divided by its limit.",
)
@_service(
    "--scale-target",
    type=float,
    help="Value that --autoscale aims for. [default: 2 waiting, 0.7 of the blocks, 0.7 of the "
    "limit]",
)
@_service(
    "--min-replicas",
    type=int,
    help="Minimum number of replicas in each pool with --autoscale. [default: 1]",
)
@_service(
    "--max-replicas",
    type=int,
    help="Maximum number of replicas in each pool with --autoscale, or at which --find-replicas "
    "gives up. [default: 10, or twice --replicas; 1024 with --find-replicas]",
)
@_service(
    "--cold-start",
    metavar="SECONDS[..SECONDS]",
    help="Seconds until a new replica is ready. [default: the catalog's, 30..120]",
)
@_service(
    "--scale-interval",
    type=float,
    default=15.0,
    help="Seconds between decisions of --autoscale. [default: 15]",
)
@_service(
    "--scale-down-after",
    type=float,
    default=300.0,
    help="Seconds for which fewer replicas must have been enough before any is removed. [default: "
    "300]",
)
@_service("--mtbf", type=float, help="Mean seconds between failures of a replica. [default: none]")
@_service(
    "--mttr",
    type=float,
    default=120.0,
    help="Seconds until a failed replica is back, with an empty cache. [default: 120]",
)
@_service(
    "--fail-at",
    multiple=True,
    metavar="SECOND:REPLICA",
    help="Let a replica fail at this second; replicas are numbered from 0. [may be repeated]",
)
@_service(
    "--prefill-replicas",
    type=int,
    help="Number of replicas that only prefill, in place of --replicas.",
)
@_service("--decode-replicas", type=int, help="Number of replicas that only decode.")
@_service(
    "--link",
    type=float,
    default=50.0,
    help="GB/s at which a request's KV cache is sent from the prefill to the decode replica. "
    "[default: 50]",
)
@_service(
    "--link-latency",
    type=float,
    default=0.0,
    help="Latency of that transfer in seconds. [default: 0]",
)
@_service(
    "--kv-bytes-per-token",
    type=float,
    help="Bytes of the keys and values of a token. [default: MODEL's]",
)
@_engine(
    "--latency-model",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="JSON file with the seconds of each part of a step. [default: calibrated, or the "
    "roofline]",
)
@_engine(
    "--latency",
    multiple=True,
    metavar="PART=SECONDS",
    help="Override a part of the step time: step_s, prefill_token_s, prefill_pair_s, "
    "decode_request_s, decode_context_token_s or request_s. [may be repeated]",
)
@_engine(
    "--kv-tokens",
    metavar="INTEGER",
    callback=integer,
    help="Tokens that the KV cache of a replica holds. [default: as many as its memory holds]",
)
@_engine(
    "--max-step-ms",
    type=float,
    default=0.0,
    help="Milliseconds that a step may take while requests decode, as headrace's engine holds "
    "them; its own default is 100. 0: no limit. [default: 0]",
)
@_engine(
    "--max-num-seqs",
    type=int,
    default=256,
    help="Maximum number of requests that run in a replica at once. [default: 256]",
)
@_engine(
    "--prefix-caching/--no-prefix-caching",
    default=None,
    help="Reuse prompt beginnings that were computed before. [default: on if the load has shared "
    "ones]",
)
@_engine(
    "--acceptance",
    metavar="SHARES|URL|FILE",
    help="Share of drafted tokens that are accepted, separated by commas: of the first draft of a "
    "step, of the second where the first is accepted, and so on; or where it was measured, as for "
    "`plan speed --draft-acceptance`. [default: no drafts]",
)
@_engine(
    "--draft-model",
    help="Draft model or head that makes the drafts of --acceptance, whose passes `headrace plan "
    "calibrate --draft-model` measured. [default: making drafts takes no time]",
)
@_judge(
    "--goodput",
    multiple=True,
    metavar="SLO",
    help="Limits on ttft, tpot and e2e in ms, as in `headrace bench`: 'ttft:500 tpot:50'.",
)
@_judge(
    "--find-replicas",
    is_flag=True,
    help="Find the smallest number of replicas that meets --goodput.",
)
@_judge(
    "--attainment",
    type=float,
    default=0.99,
    help="Share of requests that have to be good with --find-replicas. [default: 0.99]",
)
@_judge(
    "--most-replicas",
    type=int,
    hidden=True,
    help="Former name of --max-replicas with --find-replicas.",
)
@_judge("--price", type=float, help="Price of a replica in USD per hour.")
@_judge(
    "--sample",
    type=float,
    default=10.0,
    help="Seconds between points of the time series. [default: 10]",
)
@catalog_options
@output_options
def simulate(model: str | None, **options: Any) -> None:
    """Simulate a service of MODEL under a load: latencies, goodput, queues, replicas and cost.

    Each replica runs the engine's own scheduler and KV cache; how long a step takes is a linear
    function of what it computes. MODEL is named as for `headrace plan fit`.
    """
    from dataclasses import replace

    from headrace.cli.plan.simulate_load import (
        acceptance_of,
        conditions_of,
        draft_times_of,
        engine_for,
        load_of,
        service_of,
    )
    from headrace.cli.plan.tables.simulate import print_simulation
    from headrace.errors import ConfigError
    from headrace.plan.simulation.plan import SimulationPlan
    from headrace.plan.simulation.simulate import fewest_replicas, with_replicas
    from headrace.plan.simulation.simulate import simulate as simulated

    conditions = conditions_of(options)
    find = options["find_replicas"]
    if find and not conditions:
        raise ConfigError("--find-replicas needs an SLO: add --goodput 'ttft:500 tpot:50'")
    if find and (options["autoscale"] or options["prefill_replicas"]):
        raise ConfigError("--find-replicas is for one pool of a fixed size: omit --autoscale and "
            "--prefill-replicas")  # fmt: skip
    search_limit = _search_limit(options)
    load, notes = load_of(options)
    engine, replica, context, more = engine_for(model, load, options)
    acceptance = acceptance_of(options["acceptance"])
    draft_times, said = draft_times_of(replica, acceptance, options["draft_model"])
    engine = replace(
        engine,
        acceptance=acceptance,
        draft_times=draft_times,
        max_step_ms=options["max_step_ms"],
    )
    settings = service_of(engine, replica, context, options)

    def run(replicas: int) -> SimulationResult:
        return simulated(
            with_replicas(settings, replicas) if find else settings,
            load(),
            conditions=conditions,
            usd_per_replica_hour=options["price"],
            notes=(*notes, *more, *said),
            on_progress=_progress(f"{replicas:,} replicas, " if find else ""),
        )

    found = None
    try:
        if find:
            found = fewest_replicas(run, search_limit, options["attainment"], options["replicas"])
        result = run(options["replicas"]) if found is None else found.result
    finally:
        _clear_progress()
    planned = SimulationPlan(
        result=result, replica=replica, context_tokens=max(1, context), fewest=found,
        kv_given=options["kv_tokens"] is not None,
    )  # fmt: skip
    about = plan_about("simulate", options["folders"])
    built = planned.as_dict()
    if options["keep"]:
        keep_for_explain(built, about)
    if options["as_json"]:
        import json

        click.echo(json.dumps(built, indent=2))
    else:
        print_simulation(result, replica, found, options["plot"])
    if options["html"] is not None:
        from headrace.plan.page import plan_page

        page = plan_page(catalog_of(options["folders"]), about, simulation=planned)
        write_page(options["html"], page)


def _search_limit(options: dict[str, Any]) -> int:
    """The number of replicas at which --find-replicas gives up."""
    from headrace.errors import ConfigError

    given, former = options["max_replicas"], options["most_replicas"]
    if former is not None:
        if given is not None:
            raise ConfigError("--most-replicas is now called --max-replicas, which is given too; "
                "remove one of the two")  # fmt: skip
        click.echo("warning: --most-replicas is now called --max-replicas: rename it", err=True)
    limits: tuple[int | None, ...] = (given, former)
    return next((limit for limit in limits if limit is not None), _DEFAULT_SEARCH_LIMIT)


def _progress(lead: str) -> Callable[[float, int], None] | None:
    """What is said on a terminal's stderr, about once a second; None where nobody reads it."""
    stream = sys.stderr
    if not stream.isatty():
        return None
    last_s = time.monotonic()

    def say(at_s: float, completed: int) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s >= _BETWEEN_S:
            last_s = now_s
            stream.write(f"\r{lead}{at_s:,.0f} s simulated, {completed:,} requests ended \x1b[K")
            stream.flush()

    return say


def _clear_progress() -> None:
    stream = sys.stderr
    if stream.isatty():
        stream.write("\r\x1b[K")
        stream.flush()
