"""The options of `headrace bench load`, by heading, with the names that other tools have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headrace.cli.bench_load_command import DATASETS, KINDS
from headrace.cli.sections import SectionOption

F = TypeVar("F", bound=Callable[..., Any])


def _option(section: str, *names: str, **given: Any) -> Callable[[F], F]:
    return click.option(*names, cls=SectionOption, section=section, **given)


_AT = "Where requests go"
_PROMPTS = "What is sent"
_LOAD = "When it is sent"
_MANY = "Several runs"
_JUDGE = "What is reported"

_count = click.IntRange(1)
_seconds = click.FloatRange(0, min_open=True)

OPTIONS = (
    _option(_AT, "--base-url", "--url", "-u", "--target", "base_url", help="As URL."),
    _option(
        _AT,
        "--endpoint-type",
        "--backend",
        "kind",
        type=click.Choice(list(KINDS)),
        default="chat",
        show_default=True,
        help="Which API is spoken; `openai` and `vllm` are completions, as vllm has it.",
    ),
    _option(_AT, "--endpoint", "path", help="Path on the host, in place of the API's own."),
    _option(_AT, "--model", "-m", help="Model's name. [default: the one that is served]"),
    _option(
        _AT, "--header", "-H", "headers", multiple=True, metavar="NAME:VALUE", help="Sent, too."
    ),
    _option(
        _AT,
        "--timeout",
        "timeout_s",
        type=_seconds,
        default=600.0,
        show_default=True,
        help="Seconds for one request, from taking it up to the end of its reply.",
    ),
    _option(
        _AT,
        "--metrics-path",
        default="/metrics",
        show_default=True,
        help='Where the server tells of itself; "" does not ask.',
    ),
    _option(
        _PROMPTS,
        "--input-tokens",
        "--isl",
        "--random-input-len",
        "--synthetic-input-tokens-mean",
        "--mean-input-tokens",
        "input_tokens",
        default="256",
        show_default=True,
        help="Lengths of synthetic prompts.",
    ),
    _option(
        _PROMPTS,
        "--output-tokens",
        "--osl",
        "--random-output-len",
        "--output-tokens-mean",
        "--mean-output-tokens",
        "output_tokens",
        default="128",
        show_default=True,
        help="Lengths of answers (max_tokens).",
    ),
    _option(
        _PROMPTS,
        "--range-ratio",
        "--random-range-ratio",
        "range_ratio",
        type=click.FloatRange(0, 1, max_open=True),
        help="Both lengths vary by this share either way, evenly.",
    ),
    _option(
        _PROMPTS,
        "--prefix-tokens",
        "--random-prefix-len",
        "prefix_tokens",
        help="Length of a beginning that prompts share; of conversations, their system message.",
    ),
    _option(
        _PROMPTS,
        "--prefixes",
        type=_count,
        default=1,
        show_default=True,
        help="So many different ones.",
    ),
    _option(
        _PROMPTS,
        "--dataset",
        "--dataset-path",
        "--input-file",
        "dataset",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="Prompts of a file: JSONL, or ShareGPT's JSON.",
    ),
    _option(
        _PROMPTS,
        "--dataset-kind",
        "--dataset-name",
        "dataset_kind",
        type=click.Choice([*DATASETS, "random"]),
        help="Which; `random` is synthetic. [default: sharegpt for .json]",
    ),
    _option(
        _PROMPTS,
        "--trace",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="Lengths and times of a trace: Azure, BurstGPT, Mooncake, Vidur.",
    ),
    _option(_PROMPTS, "--turns", help="Lengths of conversations in turns; of ShareGPT, the most."),
    _option(
        _PROMPTS,
        "--think",
        default="0",
        show_default=True,
        help="Seconds between turns: 2, 500ms, 1..5, exponential(4).",
    ),
    _option(_PROMPTS, "--image-size", "images", help="An image with each prompt: 512x512."),
    _option(
        _PROMPTS,
        "--unique-prompts",
        "unique",
        is_flag=True,
        help="Words of its own in front of each prompt, new in every run: no prefix is cached.",
    ),
    _option(_PROMPTS, "--ignore-eos", is_flag=True, help="Ask for answers of the full length."),
    _option(_PROMPTS, "--min-tokens", is_flag=True, help="Ask for it as min_tokens, too."),
    _option(
        _PROMPTS,
        "--streaming/--no-streaming",
        default=True,
        show_default=True,
        help="Ask for a stream; without one there is no TTFT.",
    ),
    _option(
        _PROMPTS,
        "--extra-body",
        "--extra-inputs",
        "extra_body",
        metavar="JSON",
        help="Fields of every request's body.",
    ),
    _option(
        _PROMPTS,
        "--tokenizer",
        help="Checkpoint whose tokenizer makes lengths and, after the run, counts outputs. "
        "[default: the embedded model's, which counts nothing]",
    ),
    _option(_PROMPTS, "--seed", "--random-seed", "seed", type=int, default=0, show_default=True,
            help="Of prompts and arrivals."),
    _option(
        _LOAD,
        "--concurrency",
        "-c",
        "--max-concurrency",
        "--num-concurrent-requests",
        "concurrency",
        type=_count,
        help="Users of a closed loop [default: 8]; with --rate or --trace, the most in flight.",
    ),
    _option(
        _LOAD,
        "--rate",
        "--request-rate",
        "rate",
        type=click.FloatRange(0, min_open=True),
        help="Requests (or conversations) a second, whatever comes back; inf: all at once.",
    ),
    _option(
        _LOAD,
        "--arrivals",
        "--arrival-pattern",
        "arrivals",
        type=click.Choice(["poisson", "constant", "gamma"]),
        help="How they come. [default: poisson; gamma with --burstiness]",
    ),
    _option(
        _LOAD,
        "--burstiness",
        "--arrival-smoothness",
        "burstiness",
        type=click.FloatRange(0, min_open=True),
        help="Of gamma arrivals: 1 is Poisson, less comes in bursts, inf is constant.",
    ),
    _option(_LOAD, "--ramp", "ramp_s", type=click.FloatRange(0), default=0.0, show_default=True,
            help="Seconds in which a closed loop's users begin one after another."),
    _option(_LOAD, "--ramp-from", type=click.FloatRange(0, min_open=True),
            help="Rate at the beginning, from which it goes to --rate in a straight line."),
    _option(_LOAD, "--speed", type=click.FloatRange(0, min_open=True), default=1.0,
            show_default=True, help="Of a trace: 10 replays ten seconds in one."),
    _option(
        _LOAD,
        "--requests",
        "-n",
        "--num-prompts",
        "--request-count",
        "--max-requests",
        "--max-num-completed-requests",
        "requests",
        type=_count,
        help="So many are measured. [default: 100; a trace: all]",
    ),
    _option(
        _LOAD,
        "--duration",
        "--benchmark-duration",
        "--max-seconds",
        "duration_s",
        type=_seconds,
        help="Seconds after which nothing new is sent.",
    ),
    _option(_LOAD, "--grace", "grace_s", type=click.FloatRange(0), default=30.0, show_default=True,
            help="Seconds that requests have to end after --duration."),
    _option(
        _LOAD,
        "--warmup",
        "--num-warmups",
        "--warmup-request-count",
        "warmup_requests",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Requests that come first and are not measured, with prompts of their own.",
    ),
    _option(_LOAD, "--max-errors", type=click.IntRange(0),
            help="End the run when more than so many have failed."),
    _option(_LOAD, "--processes", type=click.IntRange(1, 64), default=1, show_default=True,
            help="Client processes; more where the verdict says that the client was the limit."),
    _option(_MANY, "--sweep", type=click.IntRange(3, 100), metavar="POINTS",
            help="One request at a time, --concurrency [64] at once, and rates in between."),
    _option(_MANY, "--search", is_flag=True,
            help="Find the highest rate at which --goodput is met."),
    _option(_MANY, "--highest-rate", type=click.FloatRange(0, min_open=True),
            help="Of a search."),
    _option(_MANY, "--precision", type=click.FloatRange(0.001, 1), default=0.05,
            show_default=True, help="How narrow a search makes its bracket, as a share."),
    _option(_MANY, "--trials", type=click.IntRange(1, 100), default=5, show_default=True,
            help="Runs at one rate, at most, until a search has decided it."),
    _option(_MANY, "--budget", "budget_s", type=_seconds,
            help="Seconds after which a search begins no run."),
    _option(_JUDGE, "--goodput", multiple=True, metavar="SLO",
            help="Limits in ms, such as `ttft:500 tpot:50` or `ttft:p95<300ms`."),
    _option(_JUDGE, "--attainment", type=click.FloatRange(0, 1, min_open=True), default=0.9,
            show_default=True,
            help="Share of requests that have to meet limits of each, to meet the SLO."),
    _option(_JUDGE, "--require-slo", is_flag=True, help="Exit with 4 where it is missed."),
    _option(_JUDGE, "--max-error-rate", type=click.FloatRange(0, 1), default=0.0,
            show_default=True, help="Share of failed requests beyond which the exit status is 1."),
    _option(_JUDGE, "--definitions", default="headrace", show_default=True,
            type=click.Choice(["headrace", "vllm", "aiperf", "guidellm", "llmperf"]),
            help="Whose metrics are shown."),
    _option(_JUDGE, "--percentiles", "--metric-percentiles", "percentiles", default="50,90,95,99",
            show_default=True, help="Under vllm's keys in result.json."),
    _option(_JUDGE, "--json", "as_json", is_flag=True, help="Print the summary as JSON."),
    _option(_JUDGE, "--save", "--result-dir", "--artifact-dir", "save",
            type=click.Path(path_type=Path, file_okay=False),
            help="Folder for result.json, requests.jsonl, requests.csv, metrics.jsonl, "
            "report.html."),
    _option(_JUDGE, "--save-detailed", "detailed", is_flag=True,
            help="With vllm's lists of each request in result.json."),
    _option(_JUDGE, "--quiet", "-q", is_flag=True, help="Show nothing while it runs."),
)  # fmt: skip


def load_options(command: F) -> F:
    """All of them, in the order of the table."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command
