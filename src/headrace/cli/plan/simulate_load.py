"""The load and the service that the options of `headrace plan simulate` describe."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.plan.options import catalog_of, replica_named
from headrace.errors import ConfigError, shown

if TYPE_CHECKING:
    from headrace.plan.simulation.arrival import Arrival
    from headrace.plan.simulation.draft_times import DraftTimes
    from headrace.plan.simulation.settings import EngineSettings, SimulationSettings
    from headrace.plan.simulation.stream import Lane, SharedPrefix
    from headrace.plan.speed.replica import Replica

Load = Callable[[], "Iterator[Arrival]"]

_LOOKED_AT = 2000
"""Requests whose mean length a replica is sized for."""
_DEFAULT_DURATION_S = 600.0
_SCALE_TARGETS = {"queue": 2.0, "kv": 0.7, "slo": 0.7}


def load_of(options: dict[str, Any]) -> tuple[Load, tuple[str, ...]]:
    """What gives the requests, from the beginning at each call, and notes on them."""
    from headrace.plan.simulation.stream import in_lanes, scaled

    if (options["rate"] is None) == (options["trace"] is None):
        raise ConfigError("a load comes from either --rate or --trace; give one of them")
    base, notes = _of_rate(options) if options["trace"] is None else _of_trace(options)
    lanes, factor, seed = _lanes(options["lanes"]), options["scale"], options["seed"]

    def load() -> Iterator[Arrival]:
        found = base()
        if factor != 1:
            found = scaled(found, factor, seed=seed)
        return in_lanes(found, lanes, seed=seed) if lanes else found

    return load, notes


def _of_rate(options: dict[str, Any]) -> tuple[Load, tuple[str, ...]]:
    from headrace.bench.prompts.lengths import parse_lengths
    from headrace.plan.simulation.stream import drawn

    for name in ("speed", "day_curve", "block_tokens"):
        if options[name] not in (None, 1.0):
            raise ConfigError(f"--{name.replace('_', '-')} needs a --trace; add one")
    if options["day"]:
        raise ConfigError("--day repeats a --trace; add one")
    prompts = parse_lengths(options["prompt"] or "1024", "--prompt")
    outputs = parse_lengths(options["output"] or "256", "--output")
    shared = _shared_prefix(options["shared_prefix"])
    duration_s = options["duration"] or _DEFAULT_DURATION_S

    def load() -> Iterator[Arrival]:
        return drawn(
            options["rate"], duration_s, prompts, outputs, burstiness=options["burstiness"],
            shared=shared, seed=options["seed"],
        )  # fmt: skip

    return load, ()


def _of_trace(options: dict[str, Any]) -> tuple[Load, tuple[str, ...]]:
    from headrace.bench.traces.formats import read_trace
    from headrace.plan.simulation.stream import DAY, daily, replayed

    for name in ("prompt", "output", "shared_prefix"):
        if options[name] is not None:
            raise ConfigError(f"--{name.replace('_', '-')} is for --rate; a trace has its own")
    trace = read_trace(
        Path(options["trace"]), duration_s=options["duration"],
        block_tokens=options["block_tokens"],
    )  # fmt: skip
    if not trace.timed:
        raise ConfigError(f"{trace.name} has lengths without times; use one with times")
    curve = _numbers(options["day_curve"], "--day-curve") if options["day_curve"] else DAY
    if options["day"] or options["day_curve"]:
        if options["speed"] != 1:
            raise ConfigError("--speed and --day cannot be combined: use --scale for more requests")
        notes = (*trace.notes, "the curve of the day is " + ", ".join(f"{one:g}" for one in curve))

        def day() -> Iterator[Arrival]:
            return daily(trace.rows, curve, block_tokens=trace.block_tokens, seed=options["seed"])

        return day, notes

    def once() -> Iterator[Arrival]:
        return replayed(trace.rows, speed=options["speed"], block_tokens=trace.block_tokens)

    return once, trace.notes


def engine_for(
    model: str | None, load: Load, options: dict[str, Any]
) -> tuple[EngineSettings, Replica | None, int, tuple[str, ...]]:
    """The engine of a replica, the replica, the mean tokens of a request, and notes."""
    from headrace.plan.calibration.stored import stored_calibration
    from headrace.plan.machine.hardware_memory import THIS
    from headrace.plan.model.find_model import shape_named
    from headrace.plan.simulation.engine_of import (
        engine_of,
        latency_of_parts,
        measured_latency,
        read_latency,
        with_parts,
    )
    from headrace.plan.simulation.settings import EngineSettings

    peek = list(islice(load(), _LOOKED_AT))
    if not peek:
        raise ConfigError("this load has no requests: raise --rate, --scale or --duration")
    context = sum(one.prompt_tokens + one.output_tokens for one in peek) // len(peek)
    caching = options["prefix_caching"]
    notes: tuple[str, ...] = ()
    if caching is None:
        caching = any(one.shared for one in peek)
        if not caching:
            notes = (
                "the load has no shared beginnings, so prefix caching is off; --prefix-caching "
                "turns it on, for preempted requests",)  # fmt: skip
    parts = dict(_part(one) for one in options["latency"])
    file = options["latency_model"]
    latency = None if file is None else with_parts(read_latency(Path(file)), parts)
    size, kv_tokens = options["block_size"], options["kv_tokens"]
    blocks = None if kv_tokens is None else max(1, kv_tokens // size)
    if model is None:
        if latency is None and not parts:
            raise ConfigError(
                "the step times are not known: name a MODEL and --hardware, or give "
                "--latency-model FILE or --latency PART=SECONDS"
            )
        if blocks is None:
            raise ConfigError(
                "without a MODEL the size of the KV cache is not known: give --kv-tokens"
            )
        engine = EngineSettings(
            latency=latency or latency_of_parts(parts), num_blocks=blocks, block_size=size,
            max_num_batched_tokens=options["step_tokens"], max_num_seqs=options["max_num_seqs"],
            prefix_caching=caching,
        )  # fmt: skip
        return engine, None, context, notes
    known = catalog_of(options["folders"])
    shape = shape_named(known, model, os.environ)
    replica = replica_named(known, shape, options)
    if latency is None:
        stored = stored_calibration(os.environ, datetime.now(UTC))
        latency = measured_latency(stored, replica.hardware or THIS, shape.name)
    engine = engine_of(
        replica, context_tokens=max(1, context), max_num_seqs=options["max_num_seqs"],
        prefix_caching=caching, latency=latency, kv_tokens=kv_tokens,
    )  # fmt: skip
    from dataclasses import replace

    return replace(engine, latency=with_parts(engine.latency, parts)), replica, context, notes


def acceptance_of(text: str | None) -> tuple[float, ...]:
    """The shares of --acceptance."""
    if not text:
        return ()
    from headrace.cli.plan.metrics_text import metrics_text
    from headrace.plan.speed.measured_acceptance import read_acceptance

    return read_acceptance("--acceptance", text, metrics_text).shares


def draft_times_of(
    replica: Replica | None, acceptance: tuple[float, ...], draft: str | None
) -> tuple[DraftTimes | None, tuple[str, ...]]:
    """What drafts were measured to cost, if they were, and a note that says what they cost.

    Raises ConfigError for a draft whose passes were not measured.
    """
    from headrace.plan.simulation.draft_times import DraftTimes

    if not acceptance:
        if draft is not None:
            raise ConfigError("--draft-model makes drafts only with --acceptance: add it")
        return None, ()
    steps = None if replica is None else replica.model.setup.measured_steps
    name = None if draft is None else Path(draft).name
    if name is not None and (steps is None or all(known.draft != name for known in steps.drafts)):
        raise ConfigError(
            f"--draft-model {shown(name)}: its passes were not measured beside this model; run "
            "`headrace plan calibrate --measure MODEL --draft-model DRAFT` first"
        )
    if steps is None:
        return None, ("a draft costs what a token of a prompt does at its place: what it costs was "
                      "not measured (`headrace plan calibrate --measure`)",)  # fmt: skip
    said = f"steps with drafts take what was measured on {steps.day}, up to {steps.batches[-1]} "
    said += "requests"
    said += "" if name is None else f", and so do passes of {name}"
    return DraftTimes(steps=steps, draft=name), (said,)


def service_of(
    engine: EngineSettings, replica: Replica | None, context: int, options: dict[str, Any]
) -> SimulationSettings:
    """What serves the load."""
    from headrace.plan.simulation.settings import FailureSettings, SimulationSettings

    failures = None
    if options["mtbf"] is not None or options["fail_at"]:
        failures = FailureSettings(
            at=tuple(_failure(one) for one in options["fail_at"]),
            mtbf_s=options["mtbf"], mttr_s=options["mttr"],
        )  # fmt: skip
    return SimulationSettings(
        engine=engine,
        replicas=options["replicas"],
        routing=options["routing"],
        autoscale=_autoscale(options),
        failures=failures,
        disaggregation=_disaggregation(replica, context, options),
        sample_s=options["sample"],
        seed=options["seed"],
    )


def conditions_of(options: dict[str, Any]) -> tuple[Any, ...]:
    """The SLO's, as `headrace bench` reads them."""
    from headrace.bench.slo import parse_slo

    return parse_slo(options["goodput"]).conditions if options["goodput"] else ()


def _autoscale(options: dict[str, Any]) -> Any:
    from headrace.plan.simulation.engine_of import stated_cold_start_s
    from headrace.plan.simulation.settings import AutoscaleSettings

    by = options["autoscale"]
    if by is None:
        for name in ("scale_target", "min_replicas", "max_replicas", "cold_start"):
            limits_search = name == "max_replicas" and options["find_replicas"]
            if options[name] is not None and not limits_search:
                raise ConfigError(f"--{name.replace('_', '-')} needs --autoscale; add it")
        return None
    cold = options["cold_start"]
    limits = [
        one.limit / 1e3
        for one in conditions_of(options)
        if one.metric == "ttft"
    ]  # fmt: skip
    target = options["scale_target"]
    return AutoscaleSettings(
        by=by,
        target=_SCALE_TARGETS[by] if target is None else target,
        least=options["min_replicas"] or 1,
        most=options["max_replicas"] or max(10, 2 * options["replicas"]),
        cold_start_s=(
            stated_cold_start_s(catalog_of(options["folders"])) if cold is None else _span(cold)
        ),
        interval_s=options["scale_interval"],
        down_after_s=options["scale_down_after"],
        ttft_s=min(limits) if limits else None,
    )


def _disaggregation(replica: Replica | None, context: int, options: dict[str, Any]) -> Any:
    from headrace.plan.simulation.engine_of import kv_bytes_per_token
    from headrace.plan.simulation.settings import Disaggregation

    prefill, decode = options["prefill_replicas"], options["decode_replicas"]
    if prefill is None and decode is None:
        return None
    if prefill is None or decode is None:
        raise ConfigError("there are two pools: give both --prefill-replicas and --decode-replicas")
    per_token = options["kv_bytes_per_token"]
    if per_token is None:
        if replica is None:
            raise ConfigError(
                "the bytes of a token's keys and values are not known: give --kv-bytes-per-token"
            )
        per_token = kv_bytes_per_token(replica, max(1, context))
    return Disaggregation(
        prefill_replicas=prefill,
        decode_replicas=decode,
        kv_bytes_per_token=per_token,
        link_bytes_per_s=options["link"] * 1e9,
        link_latency_s=options["link_latency"],
    )


def _lanes(text: str | None) -> tuple[Lane, ...]:
    """`0:0.2,5:0.8`."""
    from headrace.plan.simulation.stream import Lane

    if text is None:
        return ()
    found = []
    for part in text.split(","):
        priority, _, share = part.partition(":")
        try:
            found.append(Lane(int(priority), float(share)))
        except ValueError:
            raise ConfigError(
                f"--lanes {shown(part)} is not PRIORITY:SHARE; write 0:0.2,5:0.8"
            ) from None
    return tuple(found)


def _shared_prefix(text: str | None) -> SharedPrefix | None:
    """`1024` or `1024:8`."""
    from headrace.plan.simulation.stream import SharedPrefix

    if text is None:
        return None
    tokens, _, groups = text.partition(":")
    if not tokens.isdigit() or not (groups or "1").isdigit() or not int(tokens) * int(groups or 1):
        raise ConfigError(f"--shared-prefix {shown(text)} is not TOKENS:GROUPS; write 1024:8")
    return SharedPrefix(int(tokens), int(groups or 1))


def _part(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    return name.strip(), _number(value, f"--latency {shown(text)}")


def _span(text: str) -> tuple[float, float]:
    low, _, high = text.partition("..")
    least = _number(low, "--cold-start")
    return least, _number(high, "--cold-start") if high else least


def _failure(text: str) -> tuple[float, int]:
    second, _, replica = text.partition(":")
    if not (replica or "0").isdigit():
        raise ConfigError(f"--fail-at {shown(text)} is not SECOND:REPLICA; write 300:0")
    return _number(second, "--fail-at"), int(replica or 0)


def _numbers(text: str, field: str) -> tuple[float, ...]:
    return tuple(_number(part, field) for part in text.split(","))


def _number(text: str, field: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"{field}: {shown(text)} is not a number; write one such as 0.006")
    return value
