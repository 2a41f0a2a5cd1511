"""What a run shows of the service: cold starts, capacity that idles, calls one after another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from headrace.plan.lint.finding import Check, Evidence, Found, Needs, Outcome
from headrace.plan.lint.subject import Subject
from headrace.plan.lint.threshold import threshold
from headrace.plan.run_file import Request, Run, percentile
from headrace.telemetry.readings import Reading, values_of

_RUN_NEEDED = "a run of `headrace bench load --save`"
_IDLE_S = 30.0
_AFTER_S = 5.0
_FEWEST = 20
_SLOT_S = 60.0
_FEWEST_SLOTS = 10
_FEWEST_SEQUENTIAL = 10


class Spell(NamedTuple):
    """Requests in a row whose first token came late. why: what happened just before."""

    requests: tuple[Request, ...]
    why: str


def cold_starts(subject: Subject) -> Outcome:
    """First tokens that come late together, after a start, a pause or an added engine."""
    run = subject.run
    if run is None:
        return Needs(_RUN_NEEDED)
    told = sorted(
        (one for one in run.requests if one.ttft_s is not None and one.sent_s is not None),
        key=lambda one: one.sent_s or 0.0,
    )
    if len(told) < _FEWEST:
        return Needs(f"{_FEWEST} requests with a first token; the run has {len(told)}")
    times = [one.ttft_s or 0.0 for one in told]
    median = percentile(times, 0.5)
    factor, over_s = threshold(subject, "slow-factor"), threshold(subject, "slow-over")
    spells = _spells(told, max(factor * median, median + over_s), run.readings)
    if not spells:
        return ()
    worst = max(spells, key=lambda spell: max(one.ttft_s or 0.0 for one in spell.requests))
    slowest = max(worst.requests, key=lambda one: one.ttft_s or 0.0)
    where = f"{run.where}/requests.jsonl"
    figure = subject.catalog.constants["cold-start-70b"].figure
    evidence = [
        Evidence("TTFT median", round(median, 3), where, "s"),
        Evidence("TTFT p99", round(percentile(times, 0.99), 3), where, "s"),
        Evidence(f"slowest, request {slowest.index}", round(slowest.ttft_s or 0.0, 3), where, "s"),
        Evidence("late first tokens together", len(worst.requests), worst.why, "requests"),
        Evidence("such spells", len(spells), where),
    ]
    if figure is not None:
        evidence.append(
            Evidence("cold start of a 70B", f"{figure.low:g} to {figure.high:g}",
                     "catalog: cold-start-70b", "s"),
        )  # fmt: skip
    return (
        Found(
            f"first tokens are late together {worst.why}: requests waited for a start",
            tuple(evidence),
            "keep one replica warm (minReplicas 1 or more), send a warm-up before traffic, "
            "scale earlier and by the queue",
        ),
    )


def over_provisioned(subject: Subject) -> Outcome:
    """Capacity for the peak, which is rare."""
    run = subject.run
    if run is not None and len(run.readings) > 1:
        found = _idle_server(subject, run)
        if found is not None:
            return found
    moments: list[float] = []
    where = ""
    if subject.prompts is not None:
        moments = [one.at_s for one in subject.prompts.prompts if one.at_s is not None]
        where = f"{subject.prompts.where}, timestamps"
    if not moments and run is not None and run.about.get("open_loop"):
        moments, where = [one.intended_s for one in run.requests], f"{run.where}/requests.jsonl"
    slots = _slots(moments)
    if len(slots) < _FEWEST_SLOTS:
        return Needs("ten minutes of arrivals (a trace with timestamps), or of /metrics in a run")
    mean, most = sum(slots) / len(slots), max(slots)
    if most < threshold(subject, "peak-factor") * mean:
        return ()
    return (
        Found(
            "traffic comes in bursts: capacity for the peak is idle most of the time",
            (
                Evidence("requests in the busiest minute", most, where),
                Evidence("mean of a minute", round(mean, 1), where),
                Evidence("idle if sized for the peak", round(1 - mean / most, 3), "computed",
                         "share"),
            ),
            "autoscaling by queue depth, spot machines or an API for bursts, batch work in the "
            "valleys",
        ),
    )  # fmt: skip


def sequential(subject: Subject) -> Outcome:
    """One request after another where they do not depend on each other."""
    run = subject.run
    if run is None:
        return Needs(_RUN_NEEDED)
    done = sorted(
        (one for one in run.completed if one.sent_s is not None), key=lambda one: one.sent_s or 0.0
    )
    if len(done) < _FEWEST_SEQUENTIAL:
        return Needs(f"{_FEWEST_SEQUENTIAL} completed requests; the run has {len(done)}")
    overlap = sum((after.sent_s or 0.0) < (before.end_s or 0.0) for before, after in pairwise(done))
    sessions = [one.session for one in done if one.session is not None]
    one_session = len(sessions) == len(done) and len(set(sessions)) == 1
    if overlap or one_session or run.about.get("open_loop"):
        return ()
    busy = sum((one.end_s or 0.0) - (one.sent_s or 0.0) for one in done)
    whole = (done[-1].end_s or 0.0) - (done[0].sent_s or 0.0)
    where = f"{run.where}/requests.jsonl"
    gain = subject.catalog.techniques["parallel-requests"].gains
    evidence = [
        Evidence("requests, never two at once", len(done), where),
        Evidence("waited for answers", round(busy, 2), where, "s"),
        Evidence("of", round(whole, 2), where, "s"),
    ]
    evidence += [
        Evidence(f"gain of parallel requests, {name}", f"{one.low:g} to {one.high:g}",
                 "catalog: parallel-requests", "times")
        for name, one in gain.items() if one.low is not None and one.high is not None
    ][:1]  # fmt: skip
    return (
        Found(
            "requests that do not need each other's answers are sent one after another",
            tuple(evidence),
            "send them together (bench: --concurrency 16; in code: gather over a semaphore), or as "
            "a batch",
        ),
    )


def _spells(told: Sequence[Request], limit: float, readings: Sequence[Reading]) -> list[Spell]:
    """Late ones in a row that begin with the run, after a pause, or after a server began."""
    begun = _begun(readings)
    found: list[Spell] = []
    late: list[Request] = []
    why = ""
    for before, one in zip([None, *told[:-1]], told, strict=True):
        if (one.ttft_s or 0.0) > limit:
            if not late:
                why = _why(before, one, begun)
            late.append(one)
        elif late:
            found.append(Spell(tuple(late), why))
            late = []
    if late:
        found.append(Spell(tuple(late), why))
    return [spell for spell in found if spell.why]


def _why(before: Request | None, one: Request, begun: Sequence[float]) -> str:
    sent = one.sent_s or 0.0
    if before is None:
        return "at the start of the run"
    if before.end_s is not None and sent - before.end_s > _IDLE_S:
        return f"after {sent - before.end_s:.0f} s without requests"
    near = [at for at in begun if at - _AFTER_S <= sent <= at + _IDLE_S]
    return f"when an engine was added or restarted ({near[0]:.0f} s)" if near else ""


def _begun(readings: Sequence[Reading]) -> list[float]:
    """Seconds at which there were more engines, or a process had begun anew."""
    found = []
    for old, new in pairwise(readings):
        anew = new.values.get("started", 0.0) > old.values.get("started", float("inf"))
        if new.engines > old.engines or anew:
            found.append(new.at_s)
    return found


def _idle_server(subject: Subject, run: Run) -> Outcome | None:
    """By requests running; None where the run is too short to tell."""
    running = values_of(run.readings, "running")
    seconds = run.readings[-1].at_s - run.readings[0].at_s
    if len(running) < 2 or seconds < _FEWEST_SLOTS * _SLOT_S:
        return None
    mean, most = sum(running) / len(running), max(running)
    if most < 8 or most < threshold(subject, "peak-factor") * mean:
        return ()
    where = f"{run.where}/metrics.jsonl"
    evidence = [Evidence("most requests running", most, where),
                Evidence("mean", round(mean, 2), where),
                Evidence("idle if sized for the peak", round(1 - mean / most, 3), "computed",
                         "share")]  # fmt: skip
    hardware = subject.hardware
    rents = [one.low for one in hardware.price_usd_per_hour.values() if one.low] if hardware else []
    if hardware and rents:
        idle = min(rents) * (1 - mean / most) * subject.devices
        evidence.append(
            Evidence("rent of idle capacity", round(idle, 2), f"catalog: {hardware.id}", "USD/h")
        )
    return (
        Found(
            "the server is sized for a rare peak",
            tuple(evidence),
            "autoscaling by queue depth, fewer replicas with an API for bursts, batch work between",
        ),
    )


def _slots(moments: Sequence[float]) -> list[int]:
    """Arrivals by minute, of the whole minutes."""
    if not moments:
        return []
    first = min(moments)
    whole = int((max(moments) - first) // _SLOT_S)
    counts = [0] * whole
    for one in moments:
        at = int((one - first) // _SLOT_S)
        if at < whole:
            counts[at] += 1
    return counts


CHECKS = (
    Check(
        "L-cold", "cold starts", "warning", ("run",), "twenty requests with a first token",
        "warm replicas, a warm-up", ("cr-482", "cold-start-70b", "pinned-replica-pays"),
        cold_starts,
    ),
    Check(
        "L-overprovision", "capacity for the peak", "warning", ("run", "prompts"),
        "ten minutes of arrivals or of /metrics", "autoscaling by queue depth",
        ("cr-470", "autoscaling"), over_provisioned,
    ),
    Check(
        "L-sequential", "sequential calls that could be parallel", "warning", ("run",),
        "ten completed requests", "concurrency, batches", ("parallel-requests",), sequential,
    ),
)  # fmt: skip
