"""The highest rate of chunks that `headrace bench load` holds on one core and on two.

`python -m benchmarks.client_chunk_rate [--quick] [--json]` raises the rate of streams until the
client no longer holds it, then halves the bracket. A rate is held where all chunks came that were
to come, no more than LATE_MS after they were written (p99), and the client's own verdict does not
call it the limit; one that is not is tried again, TRIALS times in all, as a shared host has its
moments. Beyond that the verdict has to say so: a rate at which chunks were later than it
allows, without its saying so, is shown as "unsaid". Chunks are written and stamped by
chunk_source.py, as the mock would be the limit before the client. The sources have the cores that
the client leaves; where it leaves none they share all, and the figure is of both. Exit status 1:
something was unsaid; 2: something failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.load_runs import RunError, as_script, cores, cpu_s, endpoint, json_of, load_here
from benchmarks.markdown import number, surroundings, surroundings_line, table, tell

if TYPE_CHECKING:
    from headrace.bench.record import RequestRecord

# Long enough that what a request costs beside its chunks is a small part; a second of them.
CHUNKS = 200
EVERY_MS = 5.0
LATE_MS = 3.0
# Of what was to be sent: less is not held by whoever sent or received less.
WHOLE = 0.98
# The source's own lateness, p99; it waits in milliseconds.
SOURCE_LATE_MS = 5.0
MOST_STEPS = 24
TRIALS = 2
# From the highest that was tried, where chunks were late and nobody called the client the limit.
FURTHER = 1.5

Standing = Literal["held", "late", "client", "unsaid", "source"]
MEANINGS: dict[Standing, str] = {
    "held": "held",
    "late": "chunks came late, within what the verdict allows",
    "client": "the client says that it was the limit",
    "unsaid": "chunks came later than the verdict allows, and it did not say so",
    "source": "the source was the limit",
}


def window_ns(records: Sequence[RequestRecord]) -> tuple[int, int]:
    """From the first end to the last start: while all streams were at work."""
    return (
        min(record.end_ns for record in records if record.end_ns is not None),
        max(record.intended_ns for record in records),
    )


def chunk_figures(records: Sequence[RequestRecord], every_ms: float) -> dict[str, float | None]:
    """Rates within the window, and how late chunks were, in milliseconds.

    Rates are None where there was no such window. lag: of the client's time after the source's.
    source_late: of the source's stamps after the stream's pace, from its most punctual chunk on.
    Records are of completed requests.
    """
    import numpy as np

    begin, end = window_ns(records)
    at = np.array([[chunk.at_ns for chunk in record.content] for record in records], dtype=np.int64)
    stamps = np.array(
        [[c.stamped_ns for c in record.content] for record in records], dtype=np.int64
    )
    pace = np.arange(at.shape[1], dtype=np.int64) * round(every_ms * 1e6)
    off = stamps - pace
    late = (off - off.min(axis=1, keepdims=True)) / 1e6
    lag = (at - stamps) / 1e6
    seconds = max(0.0, (end - begin) / 1e9)

    def within(times: Any) -> float | None:
        if not seconds:
            return None
        return float(np.count_nonzero((times > begin) & (times <= end)) / seconds)

    return {
        "window_s": seconds,
        "sent_per_s": within(stamps),
        "received_per_s": within(at),
        "lag_p50_ms": float(np.percentile(lag, 50)),
        "lag_p99_ms": float(np.percentile(lag, 99)),
        "source_late_p99_ms": float(np.percentile(late, 99)),
    }


def standing(step: dict[str, Any]) -> Standing:
    """What a rate showed; the client's own word counts first, then who was late."""
    if step["client_bound"]:
        return "client"
    if step["lag_p99_ms"] > step["allowed_lag_ms"]:
        return "unsaid"
    whole_per_s = WHOLE * step["offered_per_s"]
    if step["completed"] < step["requests"] or (step["sent_per_s"] or 0.0) < whole_per_s:
        return "source"
    if step["source_late_p99_ms"] > SOURCE_LATE_MS:
        return "source"
    if step["lag_p99_ms"] > LATE_MS or (step["received_per_s"] or 0.0) < whole_per_s:
        return "late"
    return "held"


def next_rate(steps: Sequence[dict[str, Any]], first: float, precision: float) -> float | None:
    """The next rate to try: twice the highest that was held, or between it and the lowest that was
    not, until those are within `precision`; then upwards until somebody was the limit.

    None at the end, and where nothing is held at a hundredth of the first.
    """
    tried: dict[bool, list[float]] = {True: [], False: []}
    for step in steps:
        tried[step["standing"] == "held"].append(step["offered_per_s"])
    held, beyond = max(tried[True], default=None), min(tried[False], default=None)
    if held is None:
        following = first if beyond is None else beyond / 2
        return following if following >= first / 100 else None
    if beyond is None:
        return held * 2
    if beyond > held * (1 + precision):
        return (held + beyond) / 2
    if any(step["standing"] in ("client", "unsaid", "source") for step in steps):
        return None
    return max(tried[False]) * FURTHER


def client(url: str, offered_per_s: float, seconds: float, processes: int) -> dict[str, Any]:
    """One rate, in this process, which is the client's."""
    rate = offered_per_s / CHUNKS
    requests = max(4, round(rate * seconds))
    flags = [url, "--rate", f"{rate!r}", "--arrivals", "constant", "--requests", str(requests)]
    flags += ["--processes", str(processes), "--input-tokens", "8", "--metrics-path", ""]
    flags += ["--output-tokens", str(CHUNKS), "--max-error-rate", "1", "--quiet"]
    done = load_here(flags)
    whole = [
        request
        for request in done.run.requests
        if request.failure is None
        and len(request.content) == CHUNKS
        and request.sent_ns is not None
    ]
    verdict = done.summary.client
    if len(whole) < 2:
        raise RunError(f"{offered_per_s:g} chunks/s: {len(whole)} of {requests} streams were whole")
    return {
        "offered_per_s": offered_per_s,
        "requests": requests,
        "completed": len(whole),
        **chunk_figures(whole, EVERY_MS),
        "client_bound": verdict.client_bound,
        "allowed_lag_ms": verdict.allowed_lag_ms,
        "schedule_lag_p99_ms": verdict.schedule_lag_p99_ms,
        "loop_lag_p99_ms": verdict.loop_lag_p99_ms,
        "cpu_share": verdict.cpu_share,
        "cpu_shares": [round(share, 3) for share in done.run.health.cpu_share],
        "verdict": list(verdict.sentences),
    }


def divide(free: Sequence[int], processes: int) -> tuple[list[int], list[int]]:
    """Cores of the client, and of the sources: what it leaves, or all where it leaves none."""
    ours = list(free[:processes])
    return ours, list(free[processes:]) or list(free)


def search(
    processes: int, first: float, seconds: float, precision: float, most_steps: int, trials: int
) -> dict[str, Any]:
    """All rates that were tried, in order of their rate."""
    ours, theirs = divide(cores(), processes)
    shared = bool(set(ours) & set(theirs))
    many = 1 if shared else len(theirs)
    tell(
        f"{processes} client process{'es' * (processes > 1)} on cores {ours}, {many} "
        f"source{'s' * (many > 1)} on {theirs}" + (", shared" if shared else "")
    )
    steps: list[dict[str, Any]] = []
    while len(steps) < most_steps:
        offered = next_rate(steps, first, precision)
        if offered is None:
            break
        shown: list[Standing] = []
        while len(shown) < trials and "held" not in shown:
            step = one_rate(offered, seconds, processes, ours, theirs, many)
            shown.append(standing(step))
        step |= {"standing": shown[-1], "trials": shown}
        steps.append(step)
        tell(f"  {offered:,.0f} chunks/s: {MEANINGS[step['standing']]}")
    steps.sort(key=lambda step: step["offered_per_s"])
    return {"processes": processes, "client_cores": ours, "source_cores": theirs, "steps": steps}


def one_rate(
    offered: float,
    seconds: float,
    processes: int,
    ours: Sequence[int],
    theirs: Sequence[int],
    many: int,
) -> dict[str, Any]:
    """A run against sources of its own."""
    source = [sys.executable, "-m", "benchmarks.chunk_source", "--chunks", str(CHUNKS)]
    source += ["--every-ms", f"{EVERY_MS:g}", "--port"]
    command = [sys.executable, "-m", "benchmarks.client_chunk_rate", "--offered", repr(offered)]
    command += ["--seconds", repr(seconds), "--processes", str(processes), "--client"]
    with ExitStack() as stack:
        first = stack.enter_context(endpoint([*source, "0"], on=theirs))
        others = [
            stack.enter_context(endpoint([*source, str(first.facts["port"])], on=theirs))
            for _ in range(many - 1)
        ]
        sources = [each.process.pid for each in (first, *others)]
        spent_s = -sum(map(cpu_s, sources))
        step = json_of([*command, first.url], timeout_s=60 + 20 * seconds, on=ours)
        spent_s += sum(map(cpu_s, sources))
    step["source_cpu_us"] = 1e6 * spent_s / (step["requests"] * CHUNKS)
    received = step["received_per_s"]
    step["client_cpu_us"] = 1e6 * sum(step["cpu_shares"]) / received if received else None
    return step


def report(found: Sequence[dict[str, Any]]) -> str:
    """A table for each number of processes, and what it comes to."""
    return "\n\n".join(_report(each) for each in found)


def _report(found: dict[str, Any]) -> str:
    columns = ["offered, chunks/s", "written", "received", "lag p50, ms", "p99", "loop lag p99"]
    columns += ["client's CPU, busiest process", "CPU per chunk: client, µs", "source"]
    columns += ["source late p99, ms", "what it showed"]
    rows = [
        [
            number(each["offered_per_s"], 0),
            number(each["sent_per_s"], 0),
            number(each["received_per_s"], 0),
            number(each["lag_p50_ms"]),
            number(each["lag_p99_ms"]),
            number(each["loop_lag_p99_ms"]),
            f"{each['cpu_share']:.0%}",
            number(each["client_cpu_us"], 1),
            number(each["source_cpu_us"], 1),
            number(each["source_late_p99_ms"]),
            MEANINGS[each["standing"]],
        ]
        for each in found["steps"]
    ]
    many = found["processes"]
    shared = sorted(set(found["client_cores"]) & set(found["source_cores"]))
    title = f"`--processes {many}`, {len(found['client_cores'])} of the machine's cores"
    if shared:
        title += f"; the source shares {len(shared)} of them, so the figure is of both together"
    return "\n".join([title + ":", "", table(columns, rows), "", _told(found["steps"])])


def _told(steps: Sequence[dict[str, Any]]) -> str:
    held = [step for step in steps if step["standing"] == "held"]
    beyond = next((step for step in steps if step["standing"] != "held"), None)
    text = "No rate was held." if not held else f"Held: {held[-1]['offered_per_s']:,.0f} chunks/s."
    if beyond is None:
        return text + " Nothing higher was tried."
    text += f" At {beyond['offered_per_s']:,.0f}: {MEANINGS[beyond['standing']]}"
    if beyond["standing"] == "source":
        return text + ", so the client's own limit lies higher."
    said = next((step for step in steps if step["standing"] == "client"), None)
    if said is None:
        return text + ". The client did not say so at any rate that was tried."
    return f"{text}. Its words at {said['offered_per_s']:,.0f}: {' '.join(said['verdict'])}"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--first", type=float, default=10_000.0, help="chunks/s to begin with")
    parser.add_argument("--seconds", type=float, default=6.0, help="in which streams begin")
    parser.add_argument("--precision", type=float, default=0.1, help="of the limit, as a share")
    parser.add_argument("--quick", action="store_true", help="seconds, of one low rate")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--offered", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        found = client(options.client, options.offered, options.seconds, options.processes[0])
        sys.stdout.write(json.dumps(found) + "\n")
        return 0
    facts = surroundings(datetime.now(UTC))
    tell(surroundings_line(facts))
    how = (options.first, options.seconds, options.precision, MOST_STEPS, TRIALS)
    if options.quick:
        how = (1000.0, 2.5, 1.0, 1, 1)
    results = [search(many, *how) for many in options.processes]
    if options.json:
        sys.stdout.write(json.dumps({"machine": facts, "results": results}) + "\n")
    else:
        sys.stdout.write(f"{report(results)}\n\n{surroundings_line(facts)}\n")
    return int(any("unsaid" in step["trials"] for result in results for step in result["steps"]))


if __name__ == "__main__":
    sys.exit(as_script(main))
