"""Batching: how many requests are decoded together, how prompts are cut, who waits."""

from __future__ import annotations

from headrace.plan.lint import planned
from headrace.plan.lint.finding import Check, Evidence, Found, Needs, Outcome
from headrace.plan.lint.prefix import shared_beginnings
from headrace.plan.lint.subject import Subject
from headrace.plan.lint.threshold import threshold
from headrace.telemetry.readings import growth, values_of


def batch_of_one(subject: Subject) -> Outcome:
    """One sequence on hardware that is paid for by the hour."""
    engine, hardware = subject.engine, subject.hardware
    seqs = engine.max_num_seqs if engine else None
    readings = subject.run.readings if subject.run else ()
    running = values_of(readings, "running")
    evidence: list[Evidence] = []
    if seqs is not None and seqs.value == 1:
        evidence.append(seqs.evidence("requests"))
    elif seqs is None and len(running) > 1 and max(running) <= 1:
        where = subject.run.where if subject.run else ""
        evidence.append(
            Evidence("most requests running", max(running), f"{where}/metrics.jsonl", "requests")
        )
    elif seqs is None and len(running) < 2:
        return Needs("--max-num-seqs (--parallel) to be stated, or a run with /metrics")
    if not evidence:
        return ()
    if hardware is None:
        return subject.need("hardware", planned.HARDWARE_NEEDED)
    if not hardware.price_usd_per_hour:
        return Needs(f"a rent: the catalog has no price per hour of {hardware.name}")
    vendor, rent = min(
        hardware.price_usd_per_hour.items(), key=lambda one: one[1].low or float("inf")
    )
    evidence.append(
        Evidence(f"rent of {hardware.name}, {vendor}", str(rent.low), f"catalog: {hardware.id}",
                 "USD/h"),
    )  # fmt: skip
    found = planned.replica(subject)
    if not isinstance(found, Needs):
        context = planned.request_context(subject)
        tokens = min(context.value if context else 2048, 2048)
        one, many = (batch / found.model.decode_step(batch, tokens).seconds for batch in (1, 32))
        evidence += [
            Evidence("decoding one request", round(one, 1), "plan speed, formula T4", "tokens/s"),
            Evidence("decoding 32", round(many, 1), "plan speed, formula T4", "tokens/s"),
        ]
    low, high = _ends(subject, "batch-sweet-spot")
    return (
        Found(
            "a GPU that is rented by the hour decodes one request at a time",
            tuple(evidence),
            f"--max-num-seqs (llama-server: --parallel) {low:.0f} to {high:.0f}, as memory allows "
            "(`headrace plan fit`)",
        ),
    )


def static_batching(subject: Subject) -> Outcome:
    """Batches that wait for their longest request."""
    engine = subject.engine
    if engine is None:
        return Needs("an engine's config")
    setting = engine.continuous_batching
    if setting is None or setting.value:
        return ()  # all three batch continuously unless they are told not to
    return (
        Found(
            "a new request waits until the whole batch is done",
            (setting.evidence(),),
            "omit --no-cont-batching, or write --cont-batching",
        ),
    )


def max_num_seqs(subject: Subject) -> Outcome:
    """Whether the bound on sequences is what holds requests back, or what overfills the cache."""
    run = subject.run
    if run is None:
        return Needs("a run, with the server's /metrics")
    waiting, kv = values_of(run.readings, "waiting"), values_of(run.readings, "kv")
    running, preempted = values_of(run.readings, "running"), growth(run.readings, "preemptions")
    where = f"{run.where}/metrics.jsonl"
    if len(waiting) < 2 or not running:
        return Needs("the server's /metrics in the run (requests running and waiting)")
    seqs = subject.engine.max_num_seqs if subject.engine else None
    stated = (seqs.evidence("requests"),) if seqs else ()
    told = (*stated, Evidence("most running", max(running), where, "requests"))
    if preempted:
        share = preempted / max(1, len(run.requests))
        evidence = (
            *told,
            Evidence("preemptions", preempted, where, "requests"),
            Evidence("preemptions for each request", round(share, 3), "computed"),
        )
        return (
            Found(
                "requests were evicted from the cache and computed again: more are admitted "
                "than it holds",
                evidence,
                f"--max-num-seqs below {max(running):.0f}, or more memory for KV",
            ),
        )
    queued = sum(one > 0 for one in waiting) / len(waiting)
    if not kv:
        return Needs("use of the KV cache in the server's /metrics")
    if queued < threshold(subject, "waiting-share") or max(kv) > threshold(subject, "low-kv-use"):
        return ()
    if seqs is not None and max(running) < seqs.value:
        return ()
    return (
        Found(
            "requests wait while the KV cache has room: the bound on sequences holds them back",
            (
                *told,
                Evidence("readings in which requests waited", round(queued, 3), where, "share"),
                Evidence("most of the KV cache in use", round(max(kv), 3), where, "share"),
            ),
            f"--max-num-seqs above {max(running):.0f}; measure again",
        ),
    )


def chunked_prefill(subject: Subject) -> Outcome:
    """Long prompts in one step: everyone else's stream stands still meanwhile."""
    engine = subject.engine
    if engine is None:
        return Needs("an engine's config")
    evidence: list[Evidence] = []
    says = "a long prompt is computed in one step, and all streams wait for it"
    if engine.chunked_prefill is not None and not engine.chunked_prefill.value:
        evidence.append(engine.chunked_prefill.evidence())
        remedy = "omit --no-enable-chunked-prefill"
    else:
        context, step = planned.request_context(subject), engine.step_tokens
        if step is None:
            return ()  # defaults of all three cut prompts
        long_step = round(threshold(subject, "long-step"))
        if step.value < long_step:
            return ()
        if context is None:
            return Needs("the context: state --max-model-len, or add --model")
        if step.value < context.value:
            return ()
        evidence += [step.evidence("tokens"), context.evidence("tokens")]
        remedy = f"--max-num-batched-tokens {long_step // 4}"
    found = planned.replica(subject)
    context = planned.request_context(subject)
    if not isinstance(found, Needs) and context is not None:
        seconds = found.model.prefill(context.value).seconds
        evidence.append(
            Evidence(f"prefill of {context.value:,} tokens", round(seconds, 3),
                     "plan speed, formula T1", "s"),
        )  # fmt: skip
    return (Found(says, tuple(evidence), remedy),)


def prefix_cache_off(subject: Subject) -> Outcome:
    """Equal beginnings of prompts are computed again and again."""
    engine = subject.engine
    if engine is None:
        return Needs("an engine's config")
    setting = engine.prefix_caching
    if setting is None or setting.value:
        return ()
    evidence = [setting.evidence()]
    if subject.prompts is not None and len(subject.prompts.prompts) > 1:
        shared, whole = shared_beginnings(subject.prompts.prompts)
        evidence.append(
            Evidence("of the prompts that begins like another", round(shared / whole, 3),
                     f"{subject.prompts.where}, characters", "share"),
        )  # fmt: skip
        if shared == 0:
            return ()
    remedy = {
        "llama.cpp": "omit --no-cache-prompt",
        "vllm": "--enable-prefix-caching",
        "headrace": "--enable-prefix-caching",
    }[engine.runtime]
    return (Found("equal beginnings of prompts are computed every time", tuple(evidence), remedy),)


def queue_bound(subject: Subject) -> Outcome:
    """A queue that grows without end, or may."""
    engine, run = subject.engine, subject.run
    if engine is None and run is None:
        return Needs("an engine's config, or a run with the server's /metrics")
    found: list[Found] = []
    if engine is not None and engine.max_queued and engine.max_num_seqs:
        queued, seqs = engine.max_queued, engine.max_num_seqs
        most = round(threshold(subject, "queued-per-sequence") * seqs.value)
        if engine.request_timeout_s is None and queued.value > most:
            found.append(
                Found(
                    "far more requests may wait than run, and nothing limits how long they wait",
                    (queued.evidence("requests"), seqs.evidence("requests")),
                    f"--max-num-queued-reqs {most}, or --request-timeout",
                    "info",
                )
            )
    if run is not None:
        waiting = values_of(run.readings, "waiting")
        if len(waiting) >= 6:
            third = len(waiting) // 3
            first, last = (sum(part) / third for part in (waiting[:third], waiting[-third:]))
            middle = sum(waiting[third:-third]) / max(1, len(waiting) - 2 * third)
            refused = sum(one.status in (429, 503) for one in run.measured)
            if last > middle > first and last > 2 * max(1.0, first) and not refused:
                where = f"{run.where}/metrics.jsonl"
                found.append(
                    Found(
                        "the queue grew to the end of the run, and no request was refused",
                        (
                            Evidence("waiting, first third", round(first, 1), where, "requests"),
                            Evidence("waiting, second third", round(middle, 1), where, "requests"),
                            Evidence("waiting, last third", round(last, 1), where, "requests"),
                            Evidence("refused (429, 503)", refused, f"{run.where}/requests.jsonl"),
                        ),
                        "bound the queue (--max-num-queued-reqs; in a gateway "
                        "max_parallel_requests), and scale by its depth",
                    )
                )
        elif engine is None or engine.max_queued is None:
            return Needs("at least six readings of the server's /metrics")
    elif not found and (engine is None or engine.max_queued is None):
        return Needs("a run with the server's /metrics: the engine has no setting for its queue")
    return tuple(found)


def _ends(subject: Subject, constant: str) -> tuple[float, float]:
    figure = subject.catalog.constants[constant].figure
    assert figure is not None and figure.low is not None and figure.high is not None
    return figure.low, figure.high


CHECKS = (
    Check(
        "L-batch1", "batch of one on a rented GPU", "warning", ("engine", "run"),
        "--hardware with a rent in the catalog; the bound on sequences or a run with /metrics",
        "--max-num-seqs, --parallel", ("cr-460", "batch-sweet-spot", "single-stream-utilization"),
        batch_of_one,
    ),
    Check(
        "L-static-batch", "static batching", "warning", ("engine",), "",
        "--cont-batching", ("qg-965", "qg-973", "continuous-batching"), static_batching,
    ),
    Check(
        "L-max-num-seqs", "bound on sequences not tuned", "warning", ("run", "engine"),
        "the server's /metrics in the run", "--max-num-seqs",
        ("qg-574", "qg-978", "max-batch"), max_num_seqs,
    ),
    Check(
        "L-chunked-prefill", "chunked prefill off", "warning", ("engine",), "",
        "--enable-chunked-prefill, a smaller --max-num-batched-tokens",
        ("qg-576", "cr-476", "chunked-prefill"), chunked_prefill,
    ),
    Check(
        "L-prefix-cache", "prefix caching off", "warning", ("engine", "prompts"), "",
        "--enable-prefix-caching", ("qg-577", "qg-974", "prefix-caching"), prefix_cache_off,
    ),
    Check(
        "L-queue", "queue without bound", "warning", ("engine", "run"),
        "headrace's settings, or /metrics in the run",
        "--max-num-queued-reqs, max_parallel_requests", ("qg-575", "admission-control"),
        queue_bound,
    ),
)  # fmt: skip
