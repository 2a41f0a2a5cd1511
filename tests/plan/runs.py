"""Runs of `headrace bench load` as a server with known step times would give them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headrace.plan.run_file import Client, Request, Run
from headrace.plan.step.latency_model import LatencyModel
from headrace.telemetry.machine import this_machine
from headrace.telemetry.readings import Reading

LINE = LatencyModel(
    step_s=0.002, prefill_token_s=1e-4, prefill_pair_s=2e-8, decode_request_s=4e-4,
    decode_context_token_s=2e-7, request_s=0.005,
)  # fmt: skip


class Asked(NamedTuple):
    """A request to come; tokens."""

    at_s: float
    prompt: int
    output: int


def about(model: str = "Served") -> dict[str, Any]:
    cpu, cpus, memory_bytes = this_machine()
    return {
        "model": model, "started": "2026-11-22T08:00:00+00:00", "client_cpu": cpu,
        "client_cpus": cpus, "client_memory_bytes": memory_bytes,
    }  # fmt: skip


def served(asked: Sequence[Asked], line: LatencyModel = LINE, model: str = "Served") -> Run:
    """Steps that decode whoever runs and read the whole prompts of those that came meanwhile.

    Readings before and after count what the steps did.
    """
    waiting = sorted(asked)
    running: list[tuple[Asked, list[float]]] = []
    ended: list[tuple[Asked, list[float]]] = []
    now_s = queued_s = prefilled_s = stepped_s = 0.0
    steps = 0
    while waiting or running:
        come = [one for one in waiting if one.at_s <= now_s]
        if not come and not running:
            now_s = waiting[0].at_s
            continue
        waiting = [one for one in waiting if one.at_s > now_s]
        context = sum(one.prompt + len(times) for one, times in running)
        seconds = line.step([(0, one.prompt) for one in come], len(running), context)
        queued_s += sum(now_s - one.at_s for one in come)
        prefilled_s += seconds * len(come)
        now_s, stepped_s, steps = now_s + seconds, stepped_s + seconds, steps + 1
        running += [(one, []) for one in come]
        for _, times in running:
            times.append(now_s + line.request_s)
        ended += [each for each in running if len(each[1]) == each[0].output]
        running = [each for each in running if len(each[1]) < each[0].output]
    last = {
        "steps": float(steps), "stepped": stepped_s, "queued": queued_s, "prefilled": prefilled_s,
        "begun": float(len(ended)), "prompt": float(sum(one.prompt for one, _ in ended)),
        "output": float(sum(one.output for one, _ in ended)),
    }  # fmt: skip
    return Run(
        where="run",
        about=about(model),
        definition="headrace",
        duration_s=now_s,
        client=Client(),
        requests=tuple(_request(index, *each) for index, each in enumerate(ended)),
        readings=(Reading(0.0, dict.fromkeys(last, 0.0)), Reading(now_s, last)),
    )


def alone(count: int = 30) -> Run:
    """One at a time."""
    return served([Asked(2.0 * at, 60 + 20 * (at % 9), 40 + at) for at in range(count)])


def crowded(count: int = 120) -> Run:
    """Many at a time."""
    return served([
        Asked(0.06 * at + 0.01 * (at % 3), 50 + 37 * at % 300, 30 + 53 * at % 90)
        for at in range(count)
    ])  # fmt: skip


def write_run(folder: Path, run: Run) -> Path:
    """The files that `bench load --save` would have written, without /metrics."""
    folder.mkdir()
    result = {"headrace": {"format": 1, "about": run.about, "summary": {}}}
    (folder / "result.json").write_text(json.dumps(result))
    lines = [
        {
            "index": one.index, "measured": True, "intended_ns": _ns(one.intended_s),
            "sent_ns": _ns(one.sent_s or 0), "end_ns": _ns(one.end_s or 0), "status": 200,
            "usage": {"prompt_tokens": one.prompt_tokens, "completion_tokens": one.output_tokens},
            "chunks": [[_ns(one.content_s[0]), "role", ""]]
            + [[_ns(at), "text", "x"] for at in one.content_s],
        }
        for one in run.requests
    ]  # fmt: skip
    (folder / "requests.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _request(index: int, asked: Asked, times: list[float]) -> Request:
    return Request(
        index=index, measured=True, intended_s=asked.at_s, sent_s=asked.at_s, end_s=times[-1],
        ttft_s=times[0] - asked.at_s, failure="", status=200, prompt_tokens=asked.prompt,
        output_tokens=asked.output, cached_tokens=None, session=None, content_s=tuple(times),
    )  # fmt: skip
