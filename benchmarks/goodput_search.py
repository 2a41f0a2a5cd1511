"""The highest rate at which our server holds an SLO: `headrace bench load --search`, end to end.

`python -m benchmarks.goodput_search [--quick] [--json] [--save FOLDER]` starts `headrace serve` of
the embedded model on loopback, waits until /ready says so, and searches under TTFT 500 ms and TPOT
50 ms. Prints each rate that was tried with the interval of its good share, and the highest one that
was met with its confidence; the report of the best run is report.html in --save, or --html. Trials
are as long as the search itself finds they have to be, half a minute for answers of less than
0.2 s, and there are some two dozen: a quarter of an hour, after which no run begins (--budget).
Server and client share the machine, as they do for whoever tries this: the client's verdict says
whether that mattered. Exit status 1: no rate met the SLO; 2: something failed. That the rate above
is not decided is no failure: next to the limit it takes more trials than there is time for.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.load_runs import (
    RunError,
    as_script,
    endpoint,
    load_apart,
    serve_command,
    wait_ready,
)
from benchmarks.markdown import number, surroundings, surroundings_line, table, tell

SLO = "ttft:500 tpot:50"
INPUT_TOKENS = 256
OUTPUT_TOKENS = 128
ATTAINMENT = 0.9
SHOWN = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}
# Beyond the budget: a run that has begun, and what follows the last.
GRACE_S = 900.0


def search_flags(options: argparse.Namespace, folder: Path) -> list[str]:
    """Of `headrace bench load`."""
    flags = ["--search", "--goodput", options.slo, "--attainment", f"{options.attainment:g}"]
    flags += ["--input-tokens", str(options.input_tokens)]
    flags += ["--output-tokens", str(options.output_tokens), "--ignore-eos", "--unique-prompts"]
    flags += ["--warmup", str(options.warmup)]
    if options.requests is not None:
        flags += ["--requests", str(options.requests)]
    flags += ["--precision", f"{options.precision:g}", "--trials", str(options.trials)]
    flags += ["--budget", f"{options.budget:g}", "--processes", str(options.processes)]
    flags += ["--max-error-rate", "1", "--save", str(folder)]
    if options.html is not None:
        flags += ["--html", str(options.html)]
    return flags + (["--rate", f"{options.rate:g}"] if options.rate else [])


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The search, and what the server was."""
    named = [options.model] if options.model else []
    with endpoint(serve_command(*named, *options.serve)) as server:
        wait_ready(server.url)
        model = server.facts["model"]
        tell(f"{model} at {server.url}: {options.slo}, no run begins after {options.budget:g} s")
        flags = [server.url, "--model", model, *search_flags(options, folder)]
        told = load_apart(flags, timeout_s=options.budget + GRACE_S)
    if "search" not in told:
        raise RunError(f"nothing was searched: {told['summary']['requests']}")
    report = folder / "report.html"
    if not report.is_file():
        raise RunError(f"{report}: the search wrote no report")
    return {
        "model": model,
        "slo": options.slo,
        "attainment": options.attainment,
        "input_tokens": options.input_tokens,
        "output_tokens": options.output_tokens,
        **told,
    }


def report(found: dict[str, Any]) -> str:
    """The rates, and what the best of them came to."""
    search, summary = found["search"], found["summary"]
    title = (
        f"`{found['model']}`, prompts of {found['input_tokens']} tokens, answers of "
        f"{found['output_tokens']}; {found['slo']} ms for {found['attainment']:.0%} of requests. "
        f"{search['trial_rule']}."
    )
    columns = ["requests/s", "runs", "good of judged", "good share, interval", "it was"]
    rows = [_row(step) for step in sorted(search["steps"], key=lambda step: step["rate"])]
    parts = [title, table(columns, rows), outcome(search, found["slo"], found["attainment"])]
    if search["highest_met"] is not None:
        parts.append(_best(summary))
    return "\n\n".join([*parts, " ".join(summary["client"]["sentences"])])


def _row(step: dict[str, Any]) -> list[object]:
    # Of several demands the one that stands worst decides; its interval is the step's.
    worst = min(step["shares"], key=lambda share: share["good"] / max(1, share["judged"]))
    return [
        number(step["rate"], 2),
        step["trials"],
        f"{worst['good']} of {worst['judged']}",
        f"{step['low']:.3f} to {step['high']:.3f}",
        step["standing"],
    ]


def outcome(search: dict[str, Any], slo: str, attainment: float) -> str:
    """The result in a sentence, with how sure it is."""
    sure = "decided" if search["decided"] else "not decided"
    return (
        f"**{search['told']}**, {slo} ms for {attainment:.0%} of requests; {sure}, at "
        f"{search['confidence']:.0%} confidence over all rates and looks."
    )


def _best(summary: dict[str, Any]) -> str:
    goodput = summary["goodput"]
    columns = ["last run at the highest rate met, ms", "p50", "p99"]
    rows: list[list[object]] = []
    for name, title in SHOWN.items():
        spread = summary["from_intended"].get(name)
        if spread is not None:
            values = spread["distribution"]
            rows.append([title, number(values["p50"], 1), number(values["p99"], 1)])
    return (
        f"{table(columns, rows)}\n\nGoodput {number(goodput['requests_per_s'])} requests/s, "
        f"{number(goodput['tokens_per_s'], 0)} tokens/s, {goodput['fraction']:.1%} of requests "
        f"good; the server gave {number(summary['tps_system'], 0)} tokens/s in all."
    )


def succeeded(search: dict[str, Any]) -> bool:
    """Whether there is a rate that was met."""
    return search["highest_met"] is not None


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """With what --quick means put in."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--model", help="another than the embedded one")
    parser.add_argument("--slo", default=SLO)
    parser.add_argument("--attainment", type=float, default=ATTAINMENT)
    parser.add_argument("--input-tokens", type=int, default=INPUT_TOKENS)
    parser.add_argument("--output-tokens", type=int, default=OUTPUT_TOKENS)
    parser.add_argument("--requests", type=int, help="of each run [as many as it takes to know]")
    parser.add_argument("--warmup", type=int, default=16)
    parser.add_argument("--rate", type=float, help="to begin with [what one user gets]")
    parser.add_argument("--precision", type=float, default=0.05)
    parser.add_argument("--trials", type=int, default=10, help="runs at one rate, at most")
    parser.add_argument("--budget", type=float, default=900.0, help="seconds, then no run begins")
    parser.add_argument("--processes", type=int, default=1, help="of the client")
    parser.add_argument(
        "--serve", action="append", default=[], metavar="FLAG", help="of the server; repeatable"
    )
    parser.add_argument("--save", type=Path, help="folder for the best run and its report")
    parser.add_argument("--html", type=Path, help="file for the report alone")
    parser.add_argument("--quick", action="store_true", help="a few requests, two rates or so")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(given)
    if options.quick:
        options.requests, options.warmup, options.trials, options.precision = 12, 2, 1, 1.0
        options.output_tokens, options.budget, options.rate = 16, 10.0, 1.0
    return options


def main() -> int:
    """Measure and print."""
    options = arguments()
    facts = surroundings(datetime.now(UTC))
    tell(surroundings_line(facts))
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(options, options.save or Path(temporary) / "search")
    if options.json:
        sys.stdout.write(json.dumps({"machine": facts, **found}) + "\n")
    else:
        sys.stdout.write(f"{report(found)}\n\n{surroundings_line(facts)}\n")
    return int(not options.quick and not succeeded(found["search"]))


if __name__ == "__main__":
    sys.exit(as_script(main))
