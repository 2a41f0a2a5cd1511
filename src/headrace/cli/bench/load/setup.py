"""From the options of `headrace bench load` to an experiment that can be run."""

from __future__ import annotations

import asyncio
import math
import os
import re
import secrets
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import msgspec

from headrace.bench.client.endpoints import Endpoint, EndpointKind, split_url
from headrace.bench.client.limits import ClientLimits
from headrace.bench.cost import Prices
from headrace.bench.definitions import definition
from headrace.bench.definitions.vllm import VLLM
from headrace.bench.known_prices import endpoint_prices
from headrace.bench.load.demands import check_demands
from headrace.bench.load.experiment import Experiment
from headrace.bench.load.live import make_view
from headrace.bench.load.load_options import LoadOptions, with_default_end
from headrace.bench.load.probe import check_model, choose_model, look
from headrace.bench.load.prompt_options import FileKind, PromptOptions
from headrace.bench.load.save import SaveOptions
from headrace.bench.load.search_runs import SearchOptions
from headrace.bench.load.sweep import DEFAULT_POINTS, SweepOptions
from headrace.bench.load.tokenization import load_tokenization
from headrace.bench.load.trace_progress import make_progress
from headrace.bench.prompts.lengths import Uniform, around
from headrace.bench.prompts.options import RequestOptions
from headrace.bench.report.files import CSV, METRICS, REQUESTS, RESULT
from headrace.bench.slo import parse_slo
from headrace.bench.vllm_form import VllmForm
from headrace.cli.bench.load.load_command import DATASETS
from headrace.cli.bench.load.profile import take_data, take_profile
from headrace.cli.bench.load.sweep import check_lists
from headrace.errors import ConfigError, shown

# Connections beyond the users: a request that was cut off leaves its place a moment later.
_SPARE_CONNECTIONS = 16
_OPEN_CONNECTIONS = 16_384
_WRITTEN = (RESULT, REQUESTS, CSV, METRICS, "report.html")


def make_experiment(
    given: dict[str, Any], kind: str, api_key: str | None, command: Sequence[str]
) -> tuple[Experiment, LoadOptions]:
    """given: the options by name; what other tools' flags mean is put there in ours. command: as
    it was typed, without the program's name.

    Raises ConfigError for what cannot be, UnreachableError where nobody answers.
    """
    settle(given)
    prices = prices_of(given)
    slo = parse_slo(given["goodput"]) if given["goodput"] else None
    if slo is not None and given["search"]:
        check_demands(slo, given["attainment"])
    split_url(given["url"])
    prompts = prompts_of(given)
    # A search finds out how long its trials are to be.
    endless = given["search"] or prompts.trace is not None
    options = with_default_end(load_of(given), trace=endless)
    endpoint = Endpoint(
        kind=cast("EndpointKind", kind),
        base_url=given["url"],
        model=given["model"] or "",
        api_key=api_key,
        path=given["path"],
        headers=dict(_header(text) for text in given["headers"]),
        max_tokens_field=given["max_tokens_field"],
        include_usage=given["include_usage"],
        continuous_usage=given["continuous_usage"],
        return_metrics=given["return_metrics"] is True,
    )
    tokenization = load_tokenization(given["tokenizer"])
    found = asyncio.run(look(endpoint))
    asked = given["return_metrics"]
    endpoint = msgspec.structs.replace(
        endpoint,
        model=choose_model(found, given["model"]),
        return_metrics=found.tells_metrics(endpoint.kind) if asked is None else asked,
    )
    asyncio.run(check_model(endpoint, found))
    today = datetime.now().astimezone().date()
    prices = endpoint_prices(prices, endpoint.base_url, endpoint.model, os.environ, today)
    limits = ClientLimits(
        max_connections=_connections(
            options, sweep_of(given), search=given["search"], trace=prompts.trace is not None
        ),
        request_timeout_s=given["timeout_s"],
        keepalive_s=given["keepalive_s"],
    )
    experiment = Experiment(
        endpoint,
        options,
        prompts,
        tokenization,
        limits=limits,
        view=lambda of: make_view(
            sys.stderr, quiet=given["quiet"], requests=of.requests, duration_s=of.duration_s
        ),
        command=["headrace", *command],
        now=lambda: datetime.now().astimezone(),
        count_outputs=given["tokenizer"] is not None,
        metrics_path=given["metrics_path"] or None,
        slo=slo,
        definition=definition(given["definitions"]),
        prices=prices,
        making=make_progress(sys.stderr, quiet=given["quiet"]),
    )
    return experiment, options


def _connections(
    options: LoadOptions, sweep: SweepOptions | None, *, search: bool, trace: bool
) -> int:
    """As many as any run needs; where nothing limits what is in flight, as many as come."""
    # A trace has times of its own, and without them a length that is not known yet.
    users = options.users if options.is_closed and not trace else options.concurrency
    if sweep is not None or search:
        chosen = () if sweep is None else sweep.users
        most = max((options.concurrency or 0, *chosen))
        return max(_OPEN_CONNECTIONS, most + _SPARE_CONNECTIONS)
    return _OPEN_CONNECTIONS if users is None else users + _SPARE_CONNECTIONS


def settle(given: dict[str, Any]) -> None:
    """Put other tools' words into ours, lists into numbers. Raises ConfigError."""
    take_profile(given)
    take_data(given)
    check_lists(given)
    _check_together(given)
    sweep_of(given)  # a bad list is told before anybody is asked
    given["percentiles"] = _percentiles(given["percentiles"])
    given["percentile_metrics"] = _percentile_metrics(given["percentile_metrics"])
    _take_saving(given)


def _check_together(given: dict[str, Any]) -> None:
    if given["search"] and given["sweep"] is not None:
        raise ConfigError("--search and --sweep both vary the load; give one of them")
    for flag in ("search", "require_slo"):
        if given[flag] and not given["goodput"]:
            name = flag.replace("_", "-")
            raise ConfigError(f"--{name} needs an SLO: add --goodput 'ttft:500 tpot:50'")
    varied = "--search" if given["search"] else "--sweep"
    if (given["search"] or given["sweep"] is not None) and given["trace"] is not None:
        raise ConfigError(
            f"{varied} chooses its own times, and so does a --trace; give one of them"
        )
    if given["ramp_from"] is not None and varied == "--search" and given["search"]:
        raise ConfigError("--search keeps each rate constant; omit --ramp-from")
    if given["speed"] != 1.0 and given["trace"] is None:
        raise ConfigError(f"--speed {given['speed']:g} needs a --trace; add one")
    if given["block_tokens"] is not None and given["trace"] is None:
        raise ConfigError(f"--trace-block-tokens {given['block_tokens']} needs a --trace; add one")
    if given["stop_when_saturated"]:
        _check_saturation(given)


def _check_saturation(given: dict[str, Any]) -> None:
    if given["search"]:
        raise ConfigError(
            "--stop-when-saturated cuts runs short, and a --search would take what was cut "
            "off for good requests; a search ends by itself at rates that miss the SLO, so "
            "omit one of them"
        )
    rate = given["rate"]
    closed = given["trace"] is None and (rate is None or math.isinf(rate))
    if closed and given["sweep"] is None:
        raise ConfigError(
            "--stop-when-saturated: a closed loop never sends more than the server answers; "
            "add --rate, --trace or --sweep"
        )


def _take_saving(given: dict[str, Any]) -> None:
    """`--save-result` and `--result-filename`, as vllm has them."""
    if given["save_result"] and given["save"] is None:
        given["save"] = Path(datetime.now().astimezone().strftime("headrace-bench-%Y%m%d-%H%M%S"))
    name = given["result_filename"]
    if name is None:
        return
    if given["save"] is None:
        raise ConfigError(f"--result-filename {shown(name)}: add --save-result or --save DIR")
    if name != Path(name).name or name in _WRITTEN:
        raise ConfigError(
            f"--result-filename {shown(name)} must be a name without folders, other than "
            f"{', '.join(_WRITTEN)}"
        )


def prices_of(given: dict[str, Any]) -> Prices:
    """Raises ConfigError for prices of two kinds."""
    by_tokens = [given[f"price_{of}"] for of in ("input", "output", "cached")]
    if given["price_hour"] is not None and by_tokens != [None] * 3:
        raise ConfigError(
            "--price-per-hour is for your own server and --price-input, --price-output, "
            "--price-cached are for a hosted one; give one kind"
        )
    if by_tokens[2] is not None and by_tokens[0] is None:
        raise ConfigError(
            "--price-cached also needs the price of input that is not cached: add --price-input"
        )
    return Prices(
        input_usd=by_tokens[0],
        output_usd=by_tokens[1],
        cached_usd=by_tokens[2],
        hour_usd=given["price_hour"],
    )


def load_of(given: dict[str, Any]) -> LoadOptions:
    """When requests are sent, of settled options."""
    arrivals = given["arrivals"]
    if arrivals is None:
        arrivals = "poisson" if given["burstiness"] is None else "gamma"
    names = ("concurrency", "rate", "burstiness", "ramp_s", "ramp_from", "requests", "duration_s")
    more = ("warmup_requests", "max_errors", "grace_s", "speed", "processes", "ramp_shape")
    return LoadOptions(
        arrivals=arrivals,
        stop_when_saturated=given["stop_when_saturated"],
        **{name: _one_load(given[name]) for name in (*names, *more)},
    )


def _one_load(value: Any) -> Any:
    """None in place of a list: those are of a sweep, whose runs have one each."""
    return None if isinstance(value, tuple) else value


def sweep_of(given: dict[str, Any]) -> SweepOptions | None:
    """Of settled options; None where there is no sweep. Raises ConfigError for a bad list."""
    if given["sweep"] is None:
        return None
    rate, users = given["rate"], given["concurrency"]
    return SweepOptions(
        points=given["sweep"] or DEFAULT_POINTS,
        rates=rate if isinstance(rate, tuple) else (),
        users=users if isinstance(users, tuple) else (),
    )


def search_of(given: dict[str, Any]) -> SearchOptions:
    """Of settled options."""
    return SearchOptions(
        attainment=given["attainment"],
        highest_rate=given["highest_rate"] or math.inf,
        precision=given["precision"],
        most_trials=given["trials"],
        budget_s=given["budget_s"] or math.inf,
    )


def save_of(given: dict[str, Any]) -> SaveOptions | None:
    """Of settled options; None where nothing is to be kept."""
    if given["save"] is None:
        return None
    return SaveOptions(
        folder=given["save"],
        vllm_form=VllmForm(
            percentiles=given["percentiles"],
            metrics=given["percentile_metrics"],
            detailed=given["detailed"],
        ),
        result_filename=given["result_filename"],
    )


def prompts_of(given: dict[str, Any]) -> PromptOptions:
    """What is sent, of settled options. Raises ConfigError."""
    kind = given["dataset_kind"]
    if kind == "random" and given["dataset"] is not None:
        raise ConfigError("--dataset-kind random means synthetic prompts; omit --dataset")
    if kind in DATASETS and given["dataset"] is None:
        raise ConfigError(f"--dataset-kind {kind} needs a file: add --dataset FILE")
    request = RequestOptions(
        ignore_eos=given["ignore_eos"],
        min_tokens=given["min_tokens"],
        stream=given["streaming"],
        extra_body=_body(given["extra_body"]),
    )
    names = ("prefix_tokens", "prefixes", "dataset", "trace", "turns", "think", "images", "unique")
    return PromptOptions(
        block_tokens=given["block_tokens"],
        input_tokens=_varied("--input-tokens", "256", "input", given),
        output_tokens=_varied("--output-tokens", "128", "output", given),
        dataset_kind=cast("FileKind | None", DATASETS.get(kind)) if kind else None,
        request=request,
        seed=given["seed"],
        salt_seed=secrets.randbits(48) if given["unique"] else 0,
        **{name: given[name] for name in names},
    )


def _varied(flag: str, default: str, kind: str, given: dict[str, Any]) -> str:
    text: str = given[f"{kind}_tokens"] or default
    ratio: float | None = given["range_ratio"]
    deviation: float | None = given[f"{kind}_stddev"]
    if not ratio and not deviation:
        return text
    what = f"--range-ratio {ratio:g}" if ratio else f"{flag}-stddev {deviation:g}"
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ConfigError(f"{what} needs one number, not {flag} {shown(text)}")
    if ratio and deviation:
        raise ConfigError(
            f"--range-ratio and {flag}-stddev both set how lengths vary; give one of them"
        )
    if deviation:
        return f"normal({text},{deviation:.6f})"
    found = around(int(text), ratio or 0.0)
    return f"{found.low}..{found.high}" if isinstance(found, Uniform) else text


def _header(text: str) -> tuple[str, str]:
    """AIPerf's NAME:VALUE or vllm's NAME=VALUE."""
    match = re.fullmatch(r"\s*([^:=\s]+)\s*[:=](.*)", text, re.DOTALL)
    if match is None:
        raise ConfigError("--header is not NAME:VALUE; write it as in x-team:search")
    return match[1], match[2].strip()


def _body(texts: Sequence[str]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for text in texts:
        body |= _fields(text)
    return body


def _fields(text: str) -> dict[str, Any]:
    """An object, or GenAI-Perf's NAME:VALUE, whose value is JSON or else a text."""
    named = re.fullmatch(r"([A-Za-z_][A-Za-z_0-9]*):(.+)", text)
    if named is not None:
        try:
            return {named[1]: msgspec.json.decode(named[2])}
        except msgspec.DecodeError:
            return {named[1]: named[2]}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"--extra-body {shown(text)}: {error}; write an object like '{{\"top_p\": 0.9}}'"
        ) from error


def _percentile_metrics(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    found = tuple(part.strip() for part in text.split(","))
    known = [metric.name for metric in VLLM.metrics]
    if not set(found) <= set(known):
        raise ConfigError(
            f"--percentile-metrics {shown(text)} is not a list of some of {','.join(known)}"
        )
    return found


def _percentiles(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = (-1.0,)
    if not all(0 <= one <= 100 for one in found):
        raise ConfigError(f"--percentiles {shown(text)} is not a list such as 50,90,99")
    return found
