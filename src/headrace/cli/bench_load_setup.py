"""From the options of `headrace bench load` to an experiment that can be run."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

import msgspec

from headrace.bench.client.endpoints import Endpoint, EndpointKind, split_url
from headrace.bench.client.limits import ClientLimits
from headrace.bench.definitions import definition
from headrace.bench.load.demands import check_demands
from headrace.bench.load.experiment import Experiment
from headrace.bench.load.live import make_view
from headrace.bench.load.load_options import LoadOptions, with_default_end
from headrace.bench.load.probe import choose_model, look
from headrace.bench.load.prompt_options import FileKind, PromptOptions
from headrace.bench.load.tokenization import load_tokenization
from headrace.bench.prompts.lengths import Uniform, around
from headrace.bench.prompts.options import RequestOptions
from headrace.bench.slo import parse_slo
from headrace.cli.bench_load_command import DATASETS
from headrace.errors import ConfigError, shown

# Connections beyond the users: a request that was cut off leaves its place a moment later.
_SPARE_CONNECTIONS = 16
_OPEN_CONNECTIONS = 16_384


def make_experiment(
    given: dict[str, Any], kind: str, api_key: str | None, command: Sequence[str]
) -> tuple[Experiment, LoadOptions]:
    """given: the options by name; `percentiles` is put there as numbers.

    Raises ConfigError for what cannot be, UnreachableError where nobody answers.
    """
    _check_together(given)
    given["percentiles"] = _percentiles(given["percentiles"])
    slo = parse_slo(given["goodput"]) if given["goodput"] else None
    if slo is not None and given["search"]:
        check_demands(slo)
    split_url(given["url"])
    prompts = _prompts(given)
    options = with_default_end(_load(given), trace=prompts.trace is not None)
    endpoint = Endpoint(
        kind=cast("EndpointKind", kind),
        base_url=given["url"],
        model=given["model"] or "",
        api_key=api_key,
        path=given["path"],
        headers=dict(_header(text) for text in given["headers"]),
    )
    tokenization = load_tokenization(given["tokenizer"])
    found = asyncio.run(look(endpoint))
    endpoint = msgspec.structs.replace(endpoint, model=choose_model(found, given["model"]))
    users = options.users if options.is_closed else options.concurrency
    limits = ClientLimits(
        max_connections=_OPEN_CONNECTIONS if users is None else users + _SPARE_CONNECTIONS,
        request_timeout_s=given["timeout_s"],
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
    )
    return experiment, options


def _check_together(given: dict[str, Any]) -> None:
    if given["search"] and given["sweep"] is not None:
        raise ConfigError("--search and --sweep are two ways to vary the load; give one")
    for flag in ("search", "require_slo"):
        if given[flag] and not given["goodput"]:
            name = flag.replace("_", "-")
            raise ConfigError(f"--{name} needs an SLO: add --goodput 'ttft:500 tpot:50'")
    varied = "--search" if given["search"] else "--sweep"
    if (given["search"] or given["sweep"] is not None) and given["trace"] is not None:
        raise ConfigError(f"{varied} makes its own times; a --trace has them, so leave one")
    if given["sweep"] is not None and given["rate"] is not None:
        raise ConfigError("--sweep finds its rates; leave --rate away")
    if given["ramp_from"] is not None and varied == "--search" and given["search"]:
        raise ConfigError("--search holds each rate; leave --ramp-from away")
    if given["speed"] != 1.0 and given["trace"] is None:
        raise ConfigError(f"--speed {given['speed']:g} is of a --trace; name one")


def _load(given: dict[str, Any]) -> LoadOptions:
    arrivals = given["arrivals"]
    if arrivals is None:
        arrivals = "poisson" if given["burstiness"] is None else "gamma"
    names = ("concurrency", "rate", "burstiness", "ramp_s", "ramp_from", "requests", "duration_s")
    more = ("warmup_requests", "max_errors", "grace_s", "speed", "processes")
    return LoadOptions(arrivals=arrivals, **{name: given[name] for name in (*names, *more)})


def _prompts(given: dict[str, Any]) -> PromptOptions:
    kind = given["dataset_kind"]
    if kind == "random" and given["dataset"] is not None:
        raise ConfigError("--dataset-kind random is of synthetic prompts; leave --dataset away")
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
        input_tokens=_varied("--input-tokens", given["input_tokens"], given["range_ratio"]),
        output_tokens=_varied("--output-tokens", given["output_tokens"], given["range_ratio"]),
        dataset_kind=cast("FileKind | None", DATASETS.get(kind)) if kind else None,
        request=request,
        seed=given["seed"],
        salt_seed=secrets.randbits(48) if given["unique"] else 0,
        **{name: given[name] for name in names},
    )


def _varied(flag: str, text: str, ratio: float | None) -> str:
    if not ratio:
        return text
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ConfigError(f"--range-ratio {ratio:g} is of one number, not of {flag} {shown(text)}")
    found = around(int(text), ratio)
    return f"{found.low}..{found.high}" if isinstance(found, Uniform) else text


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ConfigError("--header is not NAME:VALUE; write it like x-team:search")
    return name.strip(), value.strip()


def _body(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"--extra-body {shown(text)}: {error}; write an object like '{{\"top_p\": 0.9}}'"
        ) from error


def _percentiles(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = (-1.0,)
    if not all(0 <= one <= 100 for one in found):
        raise ConfigError(f"--percentiles {shown(text)} is not a list such as 50,90,99")
    return found
