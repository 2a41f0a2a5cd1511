"""The options of `headrace bench load`, by heading, with the names that other tools have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headrace.cli.bench.load.choices import BACKENDS_ELSEWHERE, HintedChoice
from headrace.cli.bench.load.lists import FOUND, Loads, Points
from headrace.cli.bench.load.load_command import DEFINITIONS, KINDS
from headrace.cli.bench.load.profile import PROFILES
from headrace.cli.bench.load.prompt_options import PROMPT_OPTIONS, section_option
from headrace.cli.numbers import NumberRange

F = TypeVar("F", bound=Callable[..., Any])

_AT = "Where requests go"
_LOAD = "When it is sent"
_MANY = "Several runs"
_JUDGE = "What is reported"

_count = click.IntRange(1)
_seconds = NumberRange(0, min_open=True)
_price = NumberRange(0)

OPTIONS = (
    section_option(_AT, "--base-url", "--url", "-u", "--target", "base_url",
            help="Address of the server, in place of URL."),
    section_option(
        _AT,
        "--endpoint-type",
        "--backend",
        "kind",
        type=HintedChoice(list(KINDS), BACKENDS_ELSEWHERE),
        default="chat",
        show_default=True,
        help="API to use; `openai` and `vllm` mean completions, as in vllm bench.",
    ),
    section_option(
        _AT,
        "--endpoint",
        "--custom-endpoint",
        "path",
        help="Path on the host, in place of the API's own.",
    ),
    section_option(_AT, "--model", "-m",
            help="Name of the model. [default: the one that is served]"),
    section_option(
        _AT,
        "--header",
        "-H",
        "headers",
        multiple=True,
        metavar="NAME:VALUE",
        help="Header sent with every request, NAME:VALUE or NAME=VALUE; may be repeated.",
    ),
    section_option(
        _AT,
        "--timeout",
        "--request-timeout-seconds",
        "timeout_s",
        type=_seconds,
        default=600.0,
        show_default=True,
        help="Seconds allowed for one request, from its start to the end of its reply.",
    ),
    section_option(
        _AT,
        "--keepalive",
        "keepalive_s",
        type=NumberRange(0, 86_400),
        default=4.0,
        show_default=True,
        help="Seconds that an idle connection is kept for reuse; 0: a new connection for "
        "each request.",
    ),
    section_option(
        _AT,
        "--metrics-path",
        default="/metrics",
        show_default=True,
        help="Path of the server's metrics; '' reads none.",
    ),
    *PROMPT_OPTIONS,
    section_option(
        _LOAD,
        "--concurrency",
        "-c",
        "--max-concurrency",
        "--num-concurrent-requests",
        "concurrency",
        type=Loads(whole=True),
        metavar="USERS",
        help="Users of a closed loop [default: 8]; with --rate or --trace, the maximum in flight; "
            "with --sweep a list such as 1,4,16.",
    ),
    section_option(
        _LOAD,
        "--rate",
        "--request-rate",
        "--ramp-up-end-rps",
        "rate",
        type=Loads(),
        metavar="RATE",
        help="Requests (or conversations) per second, sent whether or not replies arrive; inf: "
            "all at once; with --sweep a list such as 1,2,5.",
    ),
    section_option(
        _LOAD,
        "--arrivals",
        "--arrival-pattern",
        "--request-rate-mode",
        "arrivals",
        type=click.Choice(["poisson", "constant", "gamma"]),
        help="Distribution of the arrivals. [default: poisson; gamma with --burstiness]",
    ),
    section_option(
        _LOAD,
        "--burstiness",
        "--arrival-smoothness",
        "--vllm-burstiness",
        "burstiness",
        type=NumberRange(0, min_open=True),
        help="Shape of gamma arrivals: 1 is Poisson, less is burstier, inf is constant.",
    ),
    section_option(
        _LOAD,
        "--profile",
        "--rate-type",
        "profile",
        type=click.Choice(PROFILES),
        help="The load, named as in GuideLLM; --rate is then its users (concurrent), its points "
            "(sweep) or requests per second (constant, poisson); a list of users or of rates is "
            "a sweep.",
    ),
    section_option(_LOAD, "--ramp", "--concurrency-ramp-duration", "--rampup", "ramp_s",
            type=NumberRange(0), default=0.0, show_default=True,
            help="Seconds over which the users of a closed loop start, one after another."),
    section_option(_LOAD, "--ramp-from", "--ramp-up-start-rps", "ramp_from",
            type=NumberRange(0, min_open=True),
            help="Rate at the start of the run, from which it changes to --rate by the end."),
    section_option(_LOAD, "--ramp-shape", "--ramp-up-strategy", "ramp_shape",
            type=click.Choice(["linear", "exponential"]),
            help="How the rate changes from --ramp-from: linearly, or exponentially, by equal "
                "factors in equal times. [default: linear]"),
    section_option(_LOAD, "--speed", type=NumberRange(0, min_open=True), default=1.0,
            show_default=True,
            help="Speed at which a trace is replayed: 10 replays ten seconds in one."),
    section_option(
        _LOAD,
        "--requests",
        "-n",
        "--num-prompts",
        "--request-count",
        "--num-requests",
        "--max-requests",
        "--max-num-completed-requests",
        "requests",
        type=_count,
        help="Number of requests measured. [default: 100; a trace: all]",
    ),
    section_option(
        _LOAD,
        "--duration",
        "--benchmark-duration",
        "--max-seconds",
        "duration_s",
        type=_seconds,
        help="Seconds after which no new request is sent.",
    ),
    section_option(_LOAD, "--grace", "--benchmark-grace-period", "grace_s",
            type=NumberRange(0), default=30.0, show_default=True,
            help="Seconds that requests in flight have to finish after --duration."),
    section_option(
        _LOAD,
        "--warmup",
        "--num-warmups",
        "--warmup-request-count",
        "--num-warmup-requests",
        "warmup_requests",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Requests sent first and not measured; their prompts are not used again.",
    ),
    section_option(_LOAD, "--max-errors", type=click.IntRange(0),
            help="End the run when more than this many requests have failed."),
    section_option(_LOAD, "--stop-when-saturated", "--detect-saturation", "stop_when_saturated",
            is_flag=True,
            help="End a run, or a sweep, at the first rate that the server does not keep up with."),
    section_option(_LOAD, "--processes", type=click.IntRange(1, 64), default=1, show_default=True,
            help="Client processes; raise it if the verdict says that the client was the limit."),
    section_option(_MANY, "--sweep", type=Points(3, 100), metavar="POINTS", is_flag=False,
            flag_value=FOUND,
            help="Measure one request at a time, --concurrency [64] at once, and rates in "
                "between, POINTS [8] loads in all; or each load of the list given as --rate or "
                "--concurrency."),
    section_option(_MANY, "--search", is_flag=True,
            help="Find the highest rate at which --goodput is met."),
    section_option(_MANY, "--highest-rate", type=NumberRange(0, min_open=True),
            help="Highest rate that a search tries, in requests per second."),
    section_option(_MANY, "--precision", type=NumberRange(0.001, 1), default=0.05,
            show_default=True,
            help="Width of the bracket at which a search ends, as a share of the rate."),
    section_option(_MANY, "--trials", type=click.IntRange(1, 100), default=10, show_default=True,
            help="Maximum number of runs at one rate until the search has decided it."),
    section_option(_MANY, "--budget", "budget_s", type=_seconds,
            help="Seconds after which a search starts no further run."),
    section_option(_JUDGE, "--goodput", multiple=True, metavar="SLO",
            help="Limits in ms, such as `ttft:500 tpot:50` or `ttft:p95<300ms`."),
    section_option(_JUDGE, "--attainment", type=NumberRange(0, 1, min_open=True), default=0.9,
            show_default=True,
            help="Share of requests that have to meet the limits per request, for the SLO to be "
                "met."),
    section_option(_JUDGE, "--require-slo", is_flag=True,
            help="Exit with 4 if --goodput is missed; in a sweep, if it is missed at every load."),
    section_option(_JUDGE, "--max-error-rate", type=NumberRange(0, 1), default=0.0,
            show_default=True, help="Share of failed requests above which the exit status is 1."),
    section_option(_JUDGE, "--definitions", default="headrace", show_default=True,
            type=click.Choice(DEFINITIONS),
            help="Tool whose definitions of the metrics are used."),
    section_option(_JUDGE, "--percentiles", "--metric-percentiles", "percentiles",
            default="50,90,95,99", show_default=True,
            help="Percentiles under vllm's keys in result.json."),
    section_option(_JUDGE, "--percentile-metrics", metavar="METRICS",
            help="Metrics that get percentiles under vllm's keys, some of ttft,tpot,itl,e2el. "
                "[default: all]"),
    section_option(_JUDGE, "--price-input", type=_price, metavar="USD",
            help="Price of a million prompt tokens at this endpoint, in USD."),
    section_option(_JUDGE, "--price-output", type=_price, metavar="USD",
            help="Price of a million output tokens, in USD."),
    section_option(_JUDGE, "--price-cached", type=_price, metavar="USD",
            help="Price of a million cached prompt tokens, in USD. [default: as others]"),
    section_option(_JUDGE, "--price-per-hour", "price_hour", type=_price, metavar="USD",
            help="Price of an hour of the server, in USD, in place of prices per token."),
    section_option(_JUDGE, "--detail", is_flag=True,
            help="Print every metric, with means, intervals, tokens and definitions."),
    section_option(_JUDGE, "--json", "as_json", is_flag=True, help="Print the summary as JSON."),
    section_option(_JUDGE, "--save", "--result-dir", "--artifact-dir", "--output-artifact-dir",
            "--output-dir", "--results-dir", "save",
            type=click.Path(path_type=Path, file_okay=False),
            help="Folder for result.json, requests.jsonl, requests.csv, metrics.jsonl, "
            "report.html."),
    section_option(_JUDGE, "--save-result", is_flag=True,
            help="Like --save; without a folder, saves in a new one named after the time."),
    section_option(_JUDGE, "--result-filename", metavar="NAME",
            help="Also save a copy of result.json under this name."),
    section_option(_JUDGE, "--html", type=click.Path(path_type=Path, dir_okay=False),
            help="Write only the page of report.html, to this file."),
    section_option(_JUDGE, "--save-detailed", "detailed", is_flag=True,
            help="Add vllm's per-request lists to result.json."),
    section_option(_JUDGE, "--quiet", "-q", "--disable-tqdm", "--disable-progress", "quiet",
            is_flag=True, help="Show no progress."),
)  # fmt: skip


def load_options(command: F) -> F:
    """All of them, in the order of the table."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command
