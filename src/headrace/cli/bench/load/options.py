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

F = TypeVar("F", bound=Callable[..., Any])

_AT = "Where requests go"
_LOAD = "When it is sent"
_MANY = "Several runs"
_JUDGE = "What is reported"

_count = click.IntRange(1)
_seconds = click.FloatRange(0, min_open=True)
_price = click.FloatRange(0)

OPTIONS = (
    section_option(_AT, "--base-url", "--url", "-u", "--target", "base_url",
            help="The address, in place of URL."),
    section_option(
        _AT,
        "--endpoint-type",
        "--backend",
        "kind",
        type=HintedChoice(list(KINDS), BACKENDS_ELSEWHERE),
        default="chat",
        show_default=True,
        help="Which API is spoken; `openai` and `vllm` are completions, as vllm has it.",
    ),
    section_option(
        _AT,
        "--endpoint",
        "--custom-endpoint",
        "path",
        help="Path on the host, in place of the API's own.",
    ),
    section_option(_AT, "--model", "-m", help="Model's name. [default: the one that is served]"),
    section_option(
        _AT,
        "--header",
        "-H",
        "headers",
        multiple=True,
        metavar="NAME:VALUE",
        help="A header of every request; may be repeated, and be NAME=VALUE.",
    ),
    section_option(
        _AT,
        "--timeout",
        "--request-timeout-seconds",
        "timeout_s",
        type=_seconds,
        default=600.0,
        show_default=True,
        help="Seconds for one request, from taking it up to the end of its reply.",
    ),
    section_option(
        _AT,
        "--keepalive",
        "keepalive_s",
        type=click.FloatRange(0, 86_400),
        default=4.0,
        show_default=True,
        help="Seconds that a connection may rest and be used again; 0: one for each request.",
    ),
    section_option(
        _AT,
        "--metrics-path",
        default="/metrics",
        show_default=True,
        help='Where the server tells of itself; "" does not ask.',
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
        help="Users of a closed loop [default: 8]; with --rate or --trace, the most in flight; "
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
        help="Requests (or conversations) a second, whatever comes back; inf: all at once; with "
        "--sweep a list such as 1,2,5.",
    ),
    section_option(
        _LOAD,
        "--arrivals",
        "--arrival-pattern",
        "--request-rate-mode",
        "arrivals",
        type=click.Choice(["poisson", "constant", "gamma"]),
        help="How they come. [default: poisson; gamma with --burstiness]",
    ),
    section_option(
        _LOAD,
        "--burstiness",
        "--arrival-smoothness",
        "--vllm-burstiness",
        "burstiness",
        type=click.FloatRange(0, min_open=True),
        help="Of gamma arrivals: 1 is Poisson, less comes in bursts, inf is constant.",
    ),
    section_option(
        _LOAD,
        "--profile",
        "--rate-type",
        "profile",
        type=click.Choice(PROFILES),
        help="The load as GuideLLM has it; --rate is then its users (concurrent), its points "
        "(sweep) or requests a second (constant, poisson); a list of users or of requests a second "
        "is a sweep.",
    ),
    section_option(_LOAD, "--ramp", "--concurrency-ramp-duration", "--rampup", "ramp_s",
            type=click.FloatRange(0), default=0.0, show_default=True,
            help="Seconds in which a closed loop's users begin one after another."),
    section_option(_LOAD, "--ramp-from", "--ramp-up-start-rps", "ramp_from",
            type=click.FloatRange(0, min_open=True),
            help="Rate at the beginning, from which it goes to --rate over the run."),
    section_option(_LOAD, "--ramp-shape", "--ramp-up-strategy", "ramp_shape",
            type=click.Choice(["linear", "exponential"]),
            help="How --ramp-from rises: in a straight line, or by equal factors in equal times. "
            "[default: linear]"),
    section_option(_LOAD, "--speed", type=click.FloatRange(0, min_open=True), default=1.0,
            show_default=True, help="Of a trace: 10 replays ten seconds in one."),
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
        help="How many are measured. [default: 100; a trace: all]",
    ),
    section_option(
        _LOAD,
        "--duration",
        "--benchmark-duration",
        "--max-seconds",
        "duration_s",
        type=_seconds,
        help="Seconds after which nothing new is sent.",
    ),
    section_option(_LOAD, "--grace", "--benchmark-grace-period", "grace_s",
            type=click.FloatRange(0), default=30.0, show_default=True,
            help="Seconds that requests have to end after --duration."),
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
        help="Requests that come first and are not measured, with prompts of their own.",
    ),
    section_option(_LOAD, "--max-errors", type=click.IntRange(0),
            help="End the run when more than this many have failed."),
    section_option(_LOAD, "--stop-when-saturated", "--detect-saturation", "stop_when_saturated",
            is_flag=True,
            help="End a run at a rate that the server does not keep up with, and a sweep's rates."),
    section_option(_LOAD, "--processes", type=click.IntRange(1, 64), default=1, show_default=True,
            help="Client processes; more where the verdict says that the client was the limit."),
    section_option(_MANY, "--sweep", type=Points(3, 100), metavar="POINTS", is_flag=False,
            flag_value=FOUND,
            help="One request at a time, --concurrency [64] at once, and rates in between, POINTS "
            "[8] in all; or each load of the list that --rate or --concurrency has."),
    section_option(_MANY, "--search", is_flag=True,
            help="Find the highest rate at which --goodput is met."),
    section_option(_MANY, "--highest-rate", type=click.FloatRange(0, min_open=True),
            help="Requests a second above which a search does not go."),
    section_option(_MANY, "--precision", type=click.FloatRange(0.001, 1), default=0.05,
            show_default=True, help="How narrow a search makes its bracket, as a share."),
    section_option(_MANY, "--trials", type=click.IntRange(1, 100), default=10, show_default=True,
            help="Runs at one rate, at most, until a search has decided it."),
    section_option(_MANY, "--budget", "budget_s", type=_seconds,
            help="Seconds after which a search begins no run."),
    section_option(_JUDGE, "--goodput", multiple=True, metavar="SLO",
            help="Limits in ms, such as `ttft:500 tpot:50` or `ttft:p95<300ms`."),
    section_option(_JUDGE, "--attainment", type=click.FloatRange(0, 1, min_open=True), default=0.9,
            show_default=True,
            help="Share of requests that have to meet limits of each, to meet the SLO."),
    section_option(_JUDGE, "--require-slo", is_flag=True,
            help="Exit with 4 where --goodput is missed; of a sweep, at every load."),
    section_option(_JUDGE, "--max-error-rate", type=click.FloatRange(0, 1), default=0.0,
            show_default=True, help="Share of failed requests beyond which the exit status is 1."),
    section_option(_JUDGE, "--definitions", default="headrace", show_default=True,
            type=click.Choice(DEFINITIONS),
            help="Whose metrics are shown."),
    section_option(_JUDGE, "--percentiles", "--metric-percentiles", "percentiles",
            default="50,90,95,99", show_default=True, help="Under vllm's keys in result.json."),
    section_option(_JUDGE, "--percentile-metrics", metavar="METRICS",
            help="Metrics under vllm's keys there, of ttft,tpot,itl,e2el. [default: all]"),
    section_option(_JUDGE, "--price-input", type=_price, metavar="USD",
            help="What a million tokens of prompts cost at this endpoint."),
    section_option(_JUDGE, "--price-output", type=_price, metavar="USD",
            help="What a million tokens of answers cost."),
    section_option(_JUDGE, "--price-cached", type=_price, metavar="USD",
            help="What a million cached tokens of prompts cost. [default: as others]"),
    section_option(_JUDGE, "--price-per-hour", "price_hour", type=_price, metavar="USD",
            help="What an hour of the server costs, in place of prices by tokens."),
    section_option(_JUDGE, "--json", "as_json", is_flag=True, help="Print the summary as JSON."),
    section_option(_JUDGE, "--save", "--result-dir", "--artifact-dir", "--output-artifact-dir",
            "--output-dir", "--results-dir", "save",
            type=click.Path(path_type=Path, file_okay=False),
            help="Folder for result.json, requests.jsonl, requests.csv, metrics.jsonl, "
            "report.html."),
    section_option(_JUDGE, "--save-result", is_flag=True,
            help="As --save; without a folder, in a new one named after the time."),
    section_option(_JUDGE, "--result-filename", metavar="NAME",
            help="A copy of result.json under this name, beside it."),
    section_option(_JUDGE, "--html", type=click.Path(path_type=Path, dir_okay=False),
            help="File for the page of report.html alone."),
    section_option(_JUDGE, "--save-detailed", "detailed", is_flag=True,
            help="With vllm's lists of each request in result.json."),
    section_option(_JUDGE, "--quiet", "-q", "--disable-tqdm", "--disable-progress", "quiet",
            is_flag=True, help="Show nothing while it runs."),
)  # fmt: skip


def load_options(command: F) -> F:
    """All of them, in the order of the table."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command
