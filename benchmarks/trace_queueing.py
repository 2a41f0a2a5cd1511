"""What a closed loop does not show: Azure's conversation trace against an endpoint that queues.

`python -m benchmarks.trace_queueing [--quick] [--json] [--save FOLDER]` replays the trace of 2023
ten times as fast against `headrace bench mock` with a twentieth more places than the trace's mean
load needs, so that in the mean it keeps up, and bursts have to wait. Three runs send the same
requests: at the trace's times; at the trace's times with no more in flight than there are places;
and as a closed loop of as many users. How long each request has to wait is known beforehand:
places, arrivals and work are given (`waits_s`), and the table has that in its first row. Each run
takes as long as that part of the trace does at this speed (1 min 42 s), and all of it six minutes.
The trace is looked for under HEADRACE_ASSETS, then in ../shared/assets beside the repository;
--trace names any other file that headrace reads. Exit status 1: the queue was not seen where it
should be, or was where it should not; 2: something failed.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.load_runs import RunError, as_script, cores, endpoint, load_apart, mock_command
from benchmarks.markdown import number, surroundings, surroundings_line, table, tell

if TYPE_CHECKING:
    from headrace.bench.traces.row import TraceRow

ROOT = Path(__file__).resolve().parents[1]
TRACE = Path("traces/azure-2023/AzureLLMInferenceTrace_conv.csv")
SPEED = 10.0
# A quarter of the trace.
REQUESTS = 5000
# With as many places as the mean load needs a queue never gets shorter: a client that holds
# everything back would look alike.
HEADROOM = 1.05
BUSIEST_S = 5.0
# Of the mock: a request has its place for TTFT + (n - 1) TPOT.
TTFT_MS = 100.0
TPOT_MS = 10.0
TOKENS_PER_CHUNK = 8
SLO_TTFT_MS = 500.0
SHOWN = ("p50", "p90", "p99")
# What the measured p50 and p99 may be beside those that were known beforehand: prompts are sent
# and read in time, too, and a request more or less in the queue is a hundredth of a second.
NEAR = 0.1
NEAR_MS = 50.0


def find_trace(named: Path | None) -> Path:
    """The trace's file. Raises RunError that says where it was looked for."""
    assets = os.environ.get("HEADRACE_ASSETS")
    folder = Path(assets) if assets else ROOT.parent / "shared" / "assets"
    path = named or folder / TRACE
    if not path.is_file():
        raise RunError(
            f"{path}: there is no such file; get AzureLLMInferenceTrace_conv.csv from "
            "github.com/Azure/AzurePublicDataset, and name it with --trace, or set HEADRACE_ASSETS "
            f"to a folder that has it as {TRACE}"
        )
    return path


def work_s(row: TraceRow) -> float:
    """How long the mock works on a request."""
    return (TTFT_MS + (row.output_tokens - 1) * TPOT_MS) / 1e3


def places_for(rows: Sequence[TraceRow], speed: float, headroom: float) -> int:
    """Places that the mean load needs, times `headroom`: work over the time in which it comes."""
    lasting_s = (rows[-1].at_ns - rows[0].at_ns) / 1e9 / speed
    if lasting_s <= 0:
        raise RunError("the part of the trace has no duration; take more --requests")
    return max(1, math.ceil(headroom * sum(work_s(row) for row in rows) / lasting_s))


def busiest(rows: Sequence[TraceRow], speed: float, places: int) -> float:
    """Work that comes in the busiest BUSIEST_S, over what the places can do in that time."""
    came: dict[int, float] = {}
    for row in rows:
        at_s = (row.at_ns - rows[0].at_ns) / 1e9 / speed
        came[int(at_s / BUSIEST_S)] = came.get(int(at_s / BUSIEST_S), 0.0) + work_s(row)
    return max(came.values()) / (BUSIEST_S * places)


def waits_s(rows: Sequence[TraceRow], speed: float, places: int) -> list[float]:
    """How long each request waits for a place, first come first served."""
    free_s = [0.0] * places
    found = []
    for row in rows:
        at_s = row.at_ns / 1e9 / speed
        begin_s = max(at_s, heapq.heappop(free_s))
        heapq.heappush(free_s, begin_s + work_s(row))
        found.append(begin_s - at_s)
    return found


def spread(values_ms: Sequence[float]) -> dict[str, float]:
    """Percentiles as SHOWN, linear between samples."""
    from headrace.bench.statistics import percentile

    ordered = sorted(values_ms)
    return {name: percentile(ordered, float(name[1:]) / 100) for name in SHOWN}


def known(rows: Sequence[TraceRow], speed: float, places: int) -> dict[str, Any]:
    """TTFT as it has to be, and the queue's share of it."""
    waits = waits_s(rows, speed, places)
    ttft = [wait * 1e3 + TTFT_MS for wait in waits]
    return {
        "ttft_ms": spread(ttft),
        "queue_ms": spread([wait * 1e3 for wait in waits]),
        "waited": sum(wait > 0 for wait in waits) / len(waits),
        "busiest": busiest(rows, speed, places),
        "within_slo": sum(each <= SLO_TTFT_MS for each in ttft) / len(ttft),
    }


def run(
    url: str, path: Path, loads: Sequence[str], save: Path | None, **how: Any
) -> dict[str, Any]:
    """One load of the trace's requests: what is shown of its summary."""
    flags = [url, "--trace", str(path), "--requests", str(how["requests"]), *loads]
    flags += ["--goodput", f"ttft:{SLO_TTFT_MS:g}", "--max-error-rate", "1", "--ignore-eos"]
    # The mock tells how long a request waited, as `headrace serve` does.
    flags += ["--extra-body", json.dumps({"return_metrics": True})]
    if save is not None:
        flags += ["--save", str(save)]
    told = load_apart(flags, timeout_s=how["timeout_s"], on=how["on"])["summary"]
    if not told["requests"]["completed"]:
        raise RunError(f"{' '.join(loads)}: no request was completed: {told['requests']}")
    return figures(told)


def figures(summary: dict[str, Any]) -> dict[str, Any]:
    """Of the summary that bench load prints with --json."""

    def shown(spread_of: dict[str, Any] | None) -> dict[str, float] | None:
        return None if spread_of is None else {k: spread_of["distribution"][k] for k in SHOWN}

    return {
        "intended_ms": shown(summary["from_intended"].get("ttft")),
        "sent_ms": shown(summary["from_sent"].get("ttft")),
        "queue_ms": shown(summary["queue"]),
        "rps": summary["rps"],
        "in_flight": summary["concurrency"]["mean"],
        "within_slo": summary["goodput"]["fraction"],
        "completed": summary["requests"]["completed"],
        "errors": summary["requests"]["errors"],
        "verdict": summary["client"]["sentences"],
        "client_bound": summary["client"]["client_bound"],
    }


def measure(
    path: Path, requests: int, speed: float, headroom: float, save: Path | None
) -> dict[str, Any]:
    """The three runs, each against a mock of its own, and what is known beforehand."""
    from headrace.bench.traces.formats import read_trace

    trace = read_trace(path, limit=requests)
    rows = trace.rows
    places = places_for(rows, speed, headroom)
    seconds = trace.duration_ns / 1e9 / speed
    tell(f"{len(rows)} requests in {seconds:.0f} s, {places} places; three runs of about as long")
    free = cores()
    ours, theirs = (free[:1], free[1:2]) if len(free) > 1 else (None, None)
    how = {"requests": len(rows), "on": ours, "timeout_s": 3 * seconds + 300}
    replay = ["--speed", f"{speed:g}"]
    loads = {
        "replay": replay,
        "capped": [*replay, "--concurrency", str(places)],
        "closed": ["--rate", "inf", "--concurrency", str(places)],
    }
    mock = ["--ttft", f"{TTFT_MS:g}", "--tpot", f"{TPOT_MS:g}", "--capacity", str(places)]
    mock += ["--tokens-per-chunk", str(TOKENS_PER_CHUNK)]
    runs = {}
    for name, flags in loads.items():
        tell(f"{name}: bench load {' '.join(flags)}")
        with endpoint(mock_command(*mock), on=theirs) as server:
            runs[name] = run(server.url, path, flags, save and save / name, **how)
    return {
        "trace": trace.name,
        "requests": len(rows),
        "seconds": seconds,
        "speed": speed,
        "places": places,
        "known": known(rows, speed, places),
        "runs": runs,
    }


def disagreements(found: dict[str, Any]) -> list[str]:
    """What is not as it has to be, in sentences."""
    wanted, runs = found["known"]["ttft_ms"], found["runs"]
    told = []
    for name in ("replay", "capped"):
        for key in ("p50", "p99"):
            got = runs[name]["intended_ms"][key]
            if abs(got - wanted[key]) > max(NEAR_MS, NEAR * wanted[key]):
                told.append(f"{name}: TTFT {key} {got:,.0f} ms from the intended time, where ")
                told[-1] += f"{wanted[key]:,.0f} ms had to be"
    for name, clock in (("capped", "sent_ms"), ("closed", "sent_ms"), ("closed", "intended_ms")):
        got = runs[name][clock]["p99"]
        if got > TTFT_MS + NEAR_MS:
            told.append(f"{name}, {clock}: TTFT p99 {got:,.0f} ms, though nobody had to wait")
    return told


def report(found: dict[str, Any]) -> str:
    """The table, and the paragraph that it is for."""
    runs, places = found["runs"], found["places"]
    columns = ["TTFT, ms", *SHOWN, "queue told by the server p50", "p99", "requests/s"]
    columns += [f"within {SLO_TTFT_MS:g} ms"]
    rows: list[list[object]] = [
        _row(f"as it has to be, {places} places, first come first served", found["known"], "ttft")
    ]
    for name, title in (
        ("replay", "replay"),
        ("capped", f"replay, at most {places} in flight"),
        ("closed", f"closed loop of {places} users"),
    ):
        rows.append(_row(f"{title}, from the intended time", runs[name], "intended"))
        # SLOs are judged from the intended time alone.
        sent = runs[name] | {"within_slo": None, "queue_ms": None, "rps": None}
        rows.append(_row(f"{title}, from when it was sent", sent, "sent"))
    title = (
        f"{found['trace']}, {found['requests']:,} requests at {found['speed']:g} times its speed: "
        f"{found['seconds']:.0f} s. Mock: TTFT {TTFT_MS:g} ms, TPOT {TPOT_MS:g} ms, {places} "
        f"places; the busiest {BUSIEST_S:g} s bring {found['known']['busiest']:.0%} of what these "
        "can do."
    )
    return "\n\n".join([title, table(columns, rows), _paragraph(found), *_verdicts(runs)])


def _row(title: str, of: dict[str, Any], clock: str) -> list[object]:
    ttft, queue = of[f"{clock}_ms"], of["queue_ms"] or {}
    share = of["within_slo"]
    return [
        title,
        *(number(ttft[name], 0) for name in SHOWN),
        number(queue.get("p50"), 0),
        number(queue.get("p99"), 0),
        number(of.get("rps"), 1),
        None if share is None else f"{share:.1%}",
    ]


def _paragraph(found: dict[str, Any]) -> str:
    runs = found["runs"]
    replay, capped, closed = (runs[name] for name in ("replay", "capped", "closed"))
    wrong = disagreements(found)
    if wrong:
        return "Not as it has to be: " + "; ".join(wrong) + "."
    return (
        f"{found['known']['waited']:.0%} of the requests come when all places are taken. From the "
        f"time at which it should have been sent, the median request had its first token after "
        f"{replay['intended_ms']['p50']:,.0f} ms and one in a hundred after "
        f"{replay['intended_ms']['p99']:,.0f} ms or more: {replay['within_slo']:.0%} within "
        f"{SLO_TTFT_MS:g} ms. A closed loop of {found['places']} users sends the same requests to "
        f"the same server and finds {closed['intended_ms']['p50']:,.0f} and "
        f"{closed['intended_ms']['p99']:,.0f} ms, {closed['within_slo']:.0%} within: each user "
        "asks when the answer before has ended, so a place is always free, and who would have "
        "waited is never sent. A client that replays the times but holds back what is beyond "
        f"{found['places']} in flight has the queue in itself: from when requests were sent, "
        f"{capped['sent_ms']['p99']:,.0f} ms at p99; from when they should have been, "
        f"{capped['intended_ms']['p99']:,.0f} ms."
    )


def _verdicts(runs: dict[str, Any]) -> list[str]:
    return [
        f"{name}: {each['completed']:,} completed, {each['errors'] or 'none'} failed. "
        + " ".join(each["verdict"])
        for name, each in runs.items()
    ]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--trace", type=Path, help="another file than Azure's")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="the first of the trace")
    parser.add_argument("--speed", type=float, default=SPEED)
    parser.add_argument(
        "--headroom", type=float, default=HEADROOM, help="places, in those that the mean needs"
    )
    parser.add_argument("--save", type=Path, help="folder for the runs and their reports")
    parser.add_argument("--quick", action="store_true", help="some seconds of the trace")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    requests = 120 if options.quick else options.requests
    facts = surroundings(datetime.now(UTC))
    tell(surroundings_line(facts))
    path = find_trace(options.trace)
    found = measure(path, requests, options.speed, options.headroom, options.save)
    wrong = disagreements(found)
    if options.json:
        told = {"machine": facts, "disagreements": wrong, **found}
        sys.stdout.write(json.dumps(told) + "\n")
    else:
        sys.stdout.write(f"{report(found)}\n\n{surroundings_line(facts)}\n")
    return int(bool(wrong) and not options.quick)


if __name__ == "__main__":
    sys.exit(as_script(main))
