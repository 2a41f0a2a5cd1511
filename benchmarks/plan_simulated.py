"""Simulated beside measured: the same Poisson loads on `headrace serve` and in `plan simulate`.

`python -m benchmarks.plan_simulated [--quick] [--json] [--save FOLDER]` starts the embedded model's
server on loopback. First it calibrates: the engine alone (`plan calibrate --measure`), then the
server under one user, --users users, and Poisson loads of other rates than those that are checked.
Server and client share the machine with the engine's threads, so step times are those that the
streams of these runs show (plan/calibration/served.py); the line of the engine alone stands beside
it, as what a plan says that does not know of them. Then each share of what the server held under
--users users is sent --rounds times, in turns, and simulated with that run's own intended send
times and token counts. Prints p50 and p95 of TTFT and TPOT over the requests of all rounds,
measured and simulated, with the least and the greatest of single runs. Seven minutes. Exit status
1: a ratio is off by more than 15 %; 2: something failed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.load_runs import (
    HEADRACE,
    Endpoint,
    RunError,
    as_script,
    endpoint,
    load_apart,
    serve_command,
    wait_ready,
)
from benchmarks.markdown import number, surroundings, surroundings_line, table, tell
from headrace.plan.calibration.served import ServedFit, fit_served
from headrace.plan.run_file import Run, percentile, read_run
from headrace.plan.simulation.arrival import Arrival
from headrace.plan.simulation.service import Service
from headrace.plan.simulation.settings import EngineSettings, SimulationSettings
from headrace.plan.step.latency_model import LatencyModel

AIM = 0.15
STEP_TOKENS, SEQUENCES = 2048, 256
# Between the shares that are checked.
CALIBRATED_SHARES = (0.45, 0.7)
FIGURES = (("ttft", 0.5), ("ttft", 0.95), ("tpot", 0.5), ("tpot", 0.95))
TITLES = {"ttft": "TTFT", "tpot": "TPOT"}
TIMEOUT_S = 600.0
_CACHE = re.compile(r"^vllm:cache_config_info\{([^}]*)\}", re.MULTILINE)


class Times(NamedTuple):
    """Of measured requests, in seconds."""

    ttft: list[float]
    tpot: list[float]


class Checked(NamedTuple):
    """A run, measured and simulated with the streams' line and with the engine's."""

    share: float
    rate: float
    measured: Times
    simulated: Times
    engine_alone: Times
    client_bound: bool | None


def measured_times(run: Run) -> Times:
    """By our own definitions: TTFT from the intended send, TPOT to the last part of the answer."""
    streams = [each for each in run.completed if each.content_s and each.output_tokens]
    return Times(
        [stream.content_s[0] - stream.intended_s for stream in streams],
        [
            (stream.content_s[-1] - stream.content_s[0]) / (stream.output_tokens - 1)
            for stream in streams
            if stream.output_tokens is not None and stream.output_tokens > 1
        ],
    )


def simulated_times(run: Run, engine: EngineSettings) -> Times:
    """The same requests, warm-up too, of which the times are left out again."""
    begin_s = min(request.intended_s for request in run.requests)
    first_s = min(each.intended_s for each in run.measured) - begin_s
    arrivals = sorted(
        Arrival(request.intended_s - begin_s, request.prompt_tokens, request.output_tokens)
        for request in run.requests
        if request.prompt_tokens and request.output_tokens
    )
    found = Service(SimulationSettings(engine=engine), arrivals).run().finished
    kept = [at_s >= first_s for at_s in found.arrived_s]
    columns = (found.times(name).tolist() for name in ("ttft", "tpot"))
    ttft, tpot = (
        [time_s for time_s, keep in zip(each, kept, strict=True) if keep] for each in columns
    )
    return Times(ttft, [each for each in tpot if each == each])


def load(server: Endpoint, options: argparse.Namespace, folder: Path, *flags: str) -> Run:
    """One run of `headrace bench load`, as it was saved."""
    words = [server.url, "--model", server.facts["model"], "--save", str(folder), *flags]
    words += ["--input-tokens", options.input_tokens, "--output-tokens", options.output_tokens]
    words += ["--ignore-eos", "--unique-prompts", "--warmup", str(options.warmup)]
    load_apart(words, timeout_s=TIMEOUT_S)
    run = read_run(folder, with_chunks=True)
    if not run.completed:
        raise RunError(f"{folder}: no request was completed")
    return run


def poisson(
    server: Endpoint, options: argparse.Namespace, folder: Path, rate: float, seed: int
) -> Run:
    """A run at a rate, with prompts and arrivals of its own."""
    tell(f"{rate:.2f} requests/s for {options.seconds:g} s: {folder.name}")
    flags = ["--rate", f"{rate:g}", "--duration", f"{options.seconds:g}", "--seed", str(seed)]
    return load(server, options, folder, *flags)


def engine_line(options: argparse.Namespace, model: str, folder: Path) -> LatencyModel:
    """Of the engine alone, before a server runs."""
    command = [*HEADRACE, "plan", "calibrate", "--measure", model, "--no-store", "--json"]
    command += ["--measurements", str(folder / "engine.json"), "--repeats", str(options.repeats)]
    command += ["--longest", str(options.longest)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        raise RunError(f"{' '.join(command)}: exit status {done.returncode}")
    found = json.loads(done.stdout)["models"][0]["latency"]
    if found is None:
        raise RunError(f"{model}: too few tests of the engine; raise --longest")
    return msgspec.convert(found, LatencyModel)


def cache_of(url: str) -> tuple[int, int]:
    """Blocks of the server's KV cache, and tokens of each."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    told = _CACHE.search(text)
    if told is None:
        raise RunError(f"{url}/metrics: says nothing of the KV cache")
    labels = dict(re.findall(r'(\w+)="([^"]*)"', told[1]))
    return int(labels["num_gpu_blocks"]), int(labels["block_size"])


def calibrated(
    server: Endpoint, options: argparse.Namespace, folder: Path, engine: LatencyModel
) -> tuple[ServedFit, float]:
    """Step times as streams show them, and requests a second under --users users."""
    tell("calibrating the server: one user")
    requests = ["--requests", str(options.lone), "--seed", "1"]
    runs = [load(server, options, folder / "one-user", "--concurrency", "1", *requests)]
    tell(f"{options.users} users for {options.seconds:g} s")
    users = ["--concurrency", str(options.users), "--duration", f"{options.seconds:g}"]
    full = load(server, options, folder / "users", *users, "--seed", "2")
    if not full.duration_s:
        raise RunError(f"{full.where}: no duration")
    holds = len(full.completed) / full.duration_s
    runs.append(full)
    for number_, share in enumerate(CALIBRATED_SHARES, 3):
        name = f"calibration-{share:.0%}"
        runs.append(poisson(server, options, folder / name, share * holds, number_))
    return fit_served(runs, engine, step_tokens=STEP_TOKENS), holds


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Everything, in the order in which it happens."""
    from headrace.embedded import embedded_model

    model = options.model or str(embedded_model())
    tell("calibrating the engine alone")
    alone = engine_line(options, model, folder)
    limits = ["--max-num-batched-tokens", str(STEP_TOKENS), "--max-num-seqs", str(SEQUENCES)]
    limits += ["--max-step-ms", "0"]  # the fits count steps of all these tokens
    named = [options.model] if options.model else []
    with endpoint(serve_command(*named, *limits)) as server:
        wait_ready(server.url)
        blocks, block_size = cache_of(server.url)
        fit, holds = calibrated(server, options, folder, alone)
        tell(f"{holds:.2f} requests/s under {options.users} users")

        def settings(latency: LatencyModel) -> EngineSettings:
            return EngineSettings(
                latency=latency, num_blocks=blocks, block_size=block_size,
                max_num_batched_tokens=STEP_TOKENS, max_num_seqs=SEQUENCES, prefix_caching=False,
            )  # fmt: skip

        checks: list[Checked] = []
        for turn in range(options.rounds):
            for share in options.shares:
                seed = 100 + 10 * turn + len(checks)
                name = f"{share:.0%}-{turn + 1}"
                run = poisson(server, options, folder / name, share * holds, seed)
                checks.append(
                    Checked(
                        share,
                        share * holds,
                        measured_times(run),
                        simulated_times(run, settings(fit.latency)),
                        simulated_times(run, settings(alone)),
                        run.client.client_bound,
                    )
                )
        name = server.facts["model"]
    return {
        "model": name,
        "holds": holds,
        "users": options.users,
        "lengths": [options.input_tokens, options.output_tokens],
        "line": asdict(fit.latency),
        "engine_line": asdict(alone),
        "fit": {
            "requests": fit.requests,
            "alone": fit.alone,
            "mean_error": fit.errors.mean if fit.errors else None,
            "engine_mean_error": fit.engine_errors.mean if fit.engine_errors else None,
            "server": None if fit.server is None else msgspec.to_builtins(fit.server),
        },
        "checks": [figures_of(share, checks) for share in options.shares],
    }


def figures_of(share: float, checks: Iterable[Checked]) -> dict[str, Any]:
    """Of all runs of a share: seconds over the requests of all of them, and of single runs."""
    runs = [check for check in checks if check.share == share]
    figures = []
    for name, quantile in FIGURES:
        measured, simulated, engine = (
            _over([getattr(getattr(run, which), name) for run in runs], quantile)
            for which in ("measured", "simulated", "engine_alone")
        )
        figures.append(
            {
                "figure": f"{TITLES[name]} p{100 * quantile:g}",
                "measured": measured,
                "simulated": simulated,
                "ratio": simulated["all"] / measured["all"],
                "engine_alone_ratio": engine["all"] / measured["all"],
            }
        )
    return {
        "share": share,
        "rate": runs[0].rate,
        "runs": len(runs),
        "requests": sum(len(run.measured.ttft) for run in runs),
        "client_bound": any(run.client_bound for run in runs),
        "figures": figures,
    }


def _over(runs: Sequence[list[float]], quantile: float) -> dict[str, float]:
    single = [percentile(run, quantile) for run in runs]
    return {
        "all": percentile(list(chain.from_iterable(runs)), quantile),
        "least": min(single),
        "most": max(single),
    }


def report(found: dict[str, Any]) -> str:
    """The table, the lines and how they were had."""
    columns = [
        "ms", "measured", "single runs", "simulated", "single runs", "ratio",
        "by the engine's line",
    ]  # fmt: skip
    rows = [
        [
            f"{each['rate']:.1f}/s ({each['share']:.0%}), {figure['figure']}",
            *_cells(figure["measured"]),
            *_cells(figure["simulated"]),
            number(figure["ratio"]),
            number(figure["engine_alone_ratio"]),
        ]
        for each in found["checks"]
        for figure in each["figures"]
    ]
    prompts, answers = found["lengths"]
    counts = ", ".join(f"{each['requests']:,} in {each['runs']} runs" for each in found["checks"])
    parts = [
        f"`{found['model']}`, prompts of {prompts} tokens, answers of {answers}; it held "
        f"{found['holds']:.1f} requests/s under {found['users']} users. Requests: {counts}.",
        table(columns, rows),
        _line("Step times of the streams", found["line"]),
        _line("Of the engine alone", found["engine_line"]),
        f"The first is fitted to {found['fit']['requests']:,} requests of the calibration's own "
        f"runs, {found['fit']['alone']} of them alone; off by {_percent(found['fit'], '')} on "
        f"their streams, the second by {_percent(found['fit'], 'engine_')}.",
    ]
    if any(each["client_bound"] for each in found["checks"]):
        parts.append("The client was the limit in a run.")
    return "\n\n".join(parts)


def _cells(seconds: dict[str, float]) -> list[str | None]:
    least, most = number(1e3 * seconds["least"]), number(1e3 * seconds["most"])
    return [number(1e3 * seconds["all"]), f"{least} to {most}"]


def _percent(fit: dict[str, Any], which: str) -> str:
    error = fit[f"{which}mean_error"]
    return "-" if error is None else f"{error:.1%}"


def _line(title: str, line: dict[str, Any]) -> str:
    return (
        f"{title}: step {1e3 * line['step_s']:.3f} ms, prompt token "
        f"{1e6 * line['prefill_token_s']:.1f} us, pair {1e9 * line['prefill_pair_s']:.2f} ns, "
        f"request {1e6 * line['decode_request_s']:.1f} us, context "
        f"{1e9 * line['decode_context_token_s']:.1f} ns, outside of steps "
        f"{1e3 * line['request_s']:.2f} ms."
    )


def missed(found: dict[str, Any]) -> list[str]:
    """The figures that are off by more than the aim, each as a sentence."""
    return [
        f"{figure['figure']} at {each['rate']:.1f}/s is simulated {figure['ratio']:.2f} times as "
        f"measured, the aim is within {AIM:.0%}"
        for each in found["checks"]
        for figure in each["figures"]
        if abs(figure["ratio"] - 1) > AIM
    ]


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """With what --quick means put in."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--model", help="another than the embedded one")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.3, 0.6, 0.8])
    parser.add_argument("--rounds", type=int, default=3, help="runs of each share, in turns")
    parser.add_argument("--seconds", type=float, default=25.0, help="of each run")
    parser.add_argument("--users", type=int, default=8, help="whose throughput is all it holds")
    parser.add_argument("--lone", type=int, default=60, help="requests of one user")
    parser.add_argument("--input-tokens", default="128..384")
    parser.add_argument("--output-tokens", default="64..192")
    parser.add_argument("--warmup", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=2, help="of each test of the engine alone")
    parser.add_argument("--longest", type=int, default=512, help="prompt of these tests")
    parser.add_argument("--save", type=Path, help="folder for every run and the result")
    parser.add_argument("--quick", action="store_true", help="seconds, to see that it runs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(given)
    if options.quick:
        options.shares, options.rounds, options.seconds = [0.5], 1, 3.0
        options.lone, options.warmup, options.repeats, options.longest = 8, 1, 1, 128
    return options


def main() -> int:
    """Calibrate, measure, simulate and print."""
    options = arguments()
    facts = surroundings(datetime.now(UTC))
    tell(surroundings_line(facts))
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = (options.save or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        found = {"machine": facts, **measure(options, folder)}
        if options.save:
            result = folder / "plan_simulated.json"
            result.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            tell(f"all of it is in {result}")
    if options.json:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        sys.stdout.write(f"{report(found)}\n\n{surroundings_line(facts)}\n")
    far = [] if options.quick else missed(found)
    for sentence in far:
        tell(sentence)
    return int(bool(far))


if __name__ == "__main__":
    sys.exit(as_script(main))
