"""Benchmarks: whether a run says anything about production."""

from __future__ import annotations

from headrace.plan.lint.finding import Check, Evidence, Found, Needs, Outcome
from headrace.plan.lint.subject import Subject
from headrace.plan.lint.threshold import threshold, threshold_evidence

_RUN_NEEDED = "a run of `headrace bench load --save`"


def short(subject: Subject) -> Outcome:
    """A run that ends before it is steady."""
    run = subject.run
    if run is None:
        return Needs(_RUN_NEEDED)
    if run.duration_s is None or not run.completed:
        return Needs("completed requests in the run")
    if run.duration_s >= threshold(subject, "short-run"):
        return ()
    return (
        Found(
            "the run ends before the server is steady",
            (Evidence("duration", round(run.duration_s, 1), f"{run.where}/result.json", "s"),
             threshold_evidence(subject, "short-run", "enough")),
            "bench load --duration 300, with --warmup",
        ),
    )  # fmt: skip


def one_length(subject: Subject) -> Outcome:
    """Prompts or answers of one length."""
    run = subject.run
    if run is None:
        return Needs(_RUN_NEEDED)
    done = run.completed
    if len(done) < 2:
        return Needs("two completed requests")
    found = []
    where = f"{run.where}/requests.jsonl"
    for name, lengths in (
        ("prompts", {one.prompt_tokens for one in done}),
        ("answers", {one.output_tokens for one in done}),
    ):
        if len(lengths) != 1 or None in lengths:
            continue
        length = next(iter(lengths)) or 0
        found.append(
            Found(
                f"all {name} have the same length; production has long and short ones",
                (Evidence(f"{name} of one length", len(done), where, "requests"),
                 Evidence("length", length, where, "tokens")),
                "a data set of your own traffic (--dataset), a trace (--trace), or lengths that "
                "vary",
            )
        )  # fmt: skip
    return tuple(found)


def client_bound(subject: Subject) -> Outcome:
    """The load generator was the limit."""
    run = subject.run
    if run is None:
        return Needs(_RUN_NEEDED)
    if run.client.client_bound is None:
        return Needs("the client's own figures in result.json")
    if not run.client.client_bound:
        return ()
    said = " ".join(run.client.sentences)
    return (
        Found(
            "the client was the limit: the figures say little about the server",
            (Evidence("verdict", said or "client bound", f"{run.where}/result.json"),),
            "more --processes, another machine, or a lower rate",
        ),
    )


def percentiles(subject: Subject) -> Outcome:
    """Percentiles of too few samples."""
    run = subject.run
    if run is None:
        return Needs(_RUN_NEEDED)
    count = len(run.completed)
    enough = round(threshold(subject, "fewest-for-p99"))
    if count >= enough or not count:
        return () if count else Needs("completed requests in the run")
    few = count < threshold(subject, "fewest-for-p50")
    return (
        Found(
            "the 99th percentile is little more than the slowest request"
            + (", and the median is uncertain, too" if few else ""),
            (Evidence("completed requests", count, f"{run.where}/requests.jsonl"),
             threshold_evidence(subject, "fewest-for-p99", "enough for p99"),
             Evidence("requests above p99", round(count / 100, 2), "computed")),
            f"bench load -n {enough}, or quote the median alone",
            "warning" if few else "info",
        ),
    )  # fmt: skip


def cached_prompts(subject: Subject) -> Outcome:
    """The same prompts again and again, which a prefix cache answers."""
    run = subject.run
    if run is None:
        return Needs(_RUN_NEEDED)
    told = [one for one in run.completed if one.cached_tokens is not None and one.prompt_tokens]
    if not told:
        return Needs("cached tokens in the server's answers")
    share = sum(one.cached_tokens or 0 for one in told) / sum(
        one.prompt_tokens or 1 for one in told
    )
    if not run.about.get("prompts_repeat") or share < 0.5:
        return ()
    return (
        Found(
            "prompts repeat and come from the cache, more than they would in production",
            (Evidence("of the prompts' tokens cached", round(share, 3),
                      f"{run.where}/requests.jsonl", "share"),
             Evidence("prompts repeat", "yes", f"{run.where}/result.json: prompts_repeat")),
            "prompts of your own traffic, as many as requests; state the share of hits beside the "
            "figures",
        ),
    )  # fmt: skip


def failures(subject: Subject) -> Outcome:
    """Failed requests are in no latency, so latencies look better than they were."""
    run = subject.run
    if run is None:
        return Needs(_RUN_NEEDED)
    measured = [one for one in run.measured if one.failure != "cancelled"]
    if not measured:
        return Needs("measured requests in the run")
    failed = [one for one in measured if one.failure]
    if len(failed) < threshold(subject, "failed-share") * len(measured) or not failed:
        return ()
    kinds = sorted({one.failure for one in failed})
    return (
        Found(
            "requests failed, and the latencies do not include them",
            (Evidence("failed", len(failed), f"{run.where}/requests.jsonl", "requests"),
             Evidence("of", len(measured), f"{run.where}/requests.jsonl", "requests"),
             Evidence("classes", ", ".join(kinds), f"{run.where}/requests.jsonl")),
            "a lower rate, or goodput (--goodput), which counts them",
        ),
    )  # fmt: skip


def closed_loop(subject: Subject) -> Outcome:
    """Users that wait for their answers send less when the server is slow."""
    run = subject.run
    if run is None:
        return Needs(_RUN_NEEDED)
    if run.about.get("open_loop") is None:
        return Needs("the kind of load in result.json")
    if run.about["open_loop"]:
        return ()
    load = run.about.get("load")
    return (
        Found(
            "a closed loop slows down with the server, so queueing does not show in its latencies",
            (Evidence("load", str(load), f"{run.where}/result.json"),),
            "bench load --rate R for the latency that users see; a closed loop for throughput",
            "info",
        ),
    )


def definitions(subject: Subject) -> Outcome:
    """Figures of two tools side by side."""
    if len(subject.runs) < 2:
        return Needs("two runs that are compared")
    names = {run.definition: run.where for run in subject.runs}
    if len(names) < 2:
        return ()
    return (
        Found(
            "runs are reported under different tools' definitions: their figures do not compare",
            tuple(Evidence("definitions", name, where) for name, where in names.items()),
            "headrace bench compare --definitions, which computes all again with the same "
            "definitions",
        ),
    )


CHECKS = (
    Check("L-bench-short", "run too short", "warning", ("run",), "", "--duration", ("cr-486",),
          short),
    Check("L-bench-lengths", "one length of prompts or answers", "warning", ("run",),
          "token counts", "--dataset, --trace", ("cr-486",), one_length),
    Check("L-bench-client", "client was the limit", "error", ("run",), "the client's own figures",
          "--processes", ("cr-486",), client_bound),
    Check("L-bench-samples", "percentiles of too few samples", "info", ("run",), "",
          "more requests", ("cr-486",), percentiles),
    Check("L-bench-cache", "prompts that repeat", "warning", ("run",),
          "cached tokens in the answers", "prompts of your own traffic", ("cr-486",),
          cached_prompts),
    Check("L-bench-failures", "latencies without failed requests", "warning", ("run",), "",
          "--goodput, a lower rate", ("cr-486",), failures),
    Check("L-bench-closed-loop", "closed loop", "info", ("run",), "", "--rate", ("cr-486",),
          closed_loop),
    Check("L-definitions", "definitions of two tools mixed", "error", ("run",), "two runs",
          "bench compare --definitions", ("definition-tools-disagree",), definitions),
)  # fmt: skip
