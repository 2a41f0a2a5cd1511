"""Speculation: whether drafts are accepted, and up to which batch they pay."""

from __future__ import annotations

from headrace.errors import HeadraceError
from headrace.plan.lint import planned
from headrace.plan.lint.finding import Check, Evidence, Found, Needs, Outcome
from headrace.plan.lint.subject import Subject
from headrace.plan.memory.memory import Storage
from headrace.plan.memory.weights_memory import default_kind
from headrace.plan.speed.replica import Replica
from headrace.plan.speed.speculation import acceptance_for, expected_tokens_per_pass, paying_batches
from headrace.plan.speed.speed import SpeedModel
from headrace.telemetry.readings import growth

_CONTEXT_TOKENS = 2048
_LARGEST_BATCH = 256
_DRAFT_MODEL_FREE = (
    "ngram",
    "suffix",
    "n-gram",
    "eagle",
    "eagle3",
    "dflash",
    "medusa",
    "mtp",
    "mlp_speculator",
)
"""Ways to draft that cost little or nothing of a step."""


def acceptance(subject: Subject) -> Outcome:
    """Drafts accepted, of those made, against what they cost."""
    engine, run = subject.engine, subject.run
    setting = engine.speculates if engine else None
    drafted = growth(run.readings, "drafted") if run else None
    if setting is None and not drafted:
        return () if engine is not None or run is not None else Needs("an engine's config or a run")
    if run is None or not run.readings:
        return Needs("a run with the server's /metrics: the share of drafts that was accepted")
    where = f"{run.where}/metrics.jsonl"
    if drafted is None:
        assert setting is not None
        return (
            Found(
                "drafts are made, but their acceptance is not measured",
                (setting.evidence(),
                 Evidence("readings of /metrics without drafts in them", len(run.readings), where)),
                "a server whose /metrics count drafted and accepted tokens; or measure the run "
                "with and without speculation and `headrace bench compare`",
            ),
        )  # fmt: skip
    if not drafted:
        return ()
    accepted = growth(run.readings, "accepted") or 0.0
    share = accepted / drafted
    evidence = [Evidence("drafted", drafted, where, "tokens"),
                Evidence("accepted", accepted, where, "tokens"),
                Evidence("acceptance", round(share, 3), "computed", "share")]  # fmt: skip
    tokens = engine.draft_tokens if engine else None
    cost = _cost_ratio(subject)
    if isinstance(cost, Needs):
        return cost
    if tokens is None:
        return Needs("the tokens of a draft: add the engine's config (num_speculative_tokens)")
    gain = (1 + share * tokens.value) / (tokens.value * cost[0] + 1)
    if gain >= 1:
        return ()
    try:
        wanted = acceptance_for(1.0, tokens.value, cost[0])
        needed = (expected_tokens_per_pass(wanted, tokens.value) - 1) / tokens.value
    except HeadraceError:
        needed = 1.0
    evidence += [tokens.evidence("tokens"), Evidence("a draft step costs", round(cost[0], 4),
                 cost[1], "of a step"), Evidence("times as fast", round(gain, 3), "formula S3"),
                 Evidence("acceptance at which it starts to pay", round(needed, 3), "formula S3",
                          "share")]  # fmt: skip
    return (
        Found(
            "drafts cost more than they gain: too few are accepted",
            tuple(evidence),
            f"num_speculative_tokens {max(1, tokens.value // 2)}, another draft, or none",
        ),
    )


def paying_batch(subject: Subject) -> Outcome:
    """The batch from which verifying drafts takes longer than decoding without."""
    engine = subject.engine
    if engine is None:
        return Needs("an engine's config")
    setting, tokens = engine.speculates, engine.draft_tokens
    if setting is None:
        return ()
    batch = planned.usual_batch(subject)
    if batch is None:
        return Needs("the batch: state --max-num-seqs, or add a run with /metrics")
    if tokens is None or tokens.value < 1:
        return Needs("the tokens of a draft to be stated (num_speculative_tokens)")
    found = planned.replica(subject)
    if isinstance(found, Needs):
        return found
    draft = _draft_model(subject, found)
    if isinstance(draft, Needs):
        return draft
    rate, told = _measured_acceptance(subject)

    def model_s(requests: int, length: int) -> float:
        return found.model.decode_step(requests, _CONTEXT_TOKENS, length).seconds

    def draft_s(requests: int, length: int) -> float:
        if draft is None:
            return 0.0
        return draft.decode_step(requests, _CONTEXT_TOKENS, length).seconds

    largest = max(_LARGEST_BATCH, batch[0])
    paying = paying_batches(rate, tokens.value, largest, model_s, draft_s)
    if paying.stops_at_batch is None or batch[0] < paying.stops_at_batch:
        return ()
    at = paying.points[batch[0] - 1]
    return (
        Found(
            f"from a batch of {paying.stops_at_batch} on drafts cost more than they gain",
            (
                setting.evidence(),
                Evidence(batch[1], batch[0], batch[2], "requests"),
                tokens.evidence("tokens"),
                Evidence("acceptance of a token", round(rate, 3), told, "share"),
                Evidence("times as fast at that batch", round(at.speedup, 3), "plan speed, S3"),
                Evidence("stops paying at", paying.stops_at_batch, "plan speed, S3", "requests"),
            ),
            "no speculation at such batches, or --max-num-seqs "
            f"{max(1, paying.stops_at_batch - 1)}",
        ),
    )


def _measured_acceptance(subject: Subject) -> tuple[float, str]:
    """Of a run; where there is none all drafts are taken as accepted, the best there can be."""
    run = subject.run
    if run is not None:
        drafted, accepted = (growth(run.readings, name) for name in ("drafted", "accepted"))
        if drafted and accepted is not None:
            return min(1.0, accepted / drafted), f"{run.where}/metrics.jsonl, accepted / drafted"
    return 1.0, "not measured: the best possible"


def _cost_ratio(subject: Subject) -> tuple[float, str] | Needs:
    """A draft step against a step of the model, by the weights both read."""
    engine = subject.engine
    if engine is None or engine.draft_model is None or _is_free(subject):
        return 0.0, "drafts without a model of their own"
    if subject.shape is None:
        return subject.need("shape", planned.MODEL_NEEDED)
    if subject.draft_shape is None:
        return subject.need("draft_shape", "the draft model's shape")
    ratio = subject.draft_shape.parameters.active / subject.shape.parameters.active
    return ratio, "computed: active parameters of both, as both read them"


def _is_free(subject: Subject) -> bool:
    engine = subject.engine
    method = engine.speculative.value.lower() if engine and engine.speculative else ""
    return method in _DRAFT_MODEL_FREE


def _draft_model(subject: Subject, replica: Replica) -> SpeedModel | Needs | None:
    """None where drafts take no time."""
    engine = subject.engine
    if engine is None or engine.draft_model is None or _is_free(subject):
        return None
    if subject.draft_shape is None:
        return subject.need("draft_shape", "the draft model's shape")
    weights, draft = replica.storage.weights, subject.draft_shape
    try:
        if draft.weight_bytes is None and (weights is None or draft.published is not None):
            weights = subject.catalog.quantizations[default_kind(draft)]
        storage = Storage(weights, replica.storage.keys, replica.storage.values)
        return replica.beside(subject.draft_shape, storage)
    except HeadraceError as error:
        return Needs(f"the draft's speed: {error}")


CHECKS = (
    Check(
        "L-speculation", "speculation without acceptance", "warning", ("engine", "run"),
        "a run with drafted and accepted tokens in /metrics; shapes of both models",
        "num_speculative_tokens, another draft, none",
        ("cr-474", "qg-977", "speculation-formula"), acceptance,
    ),
    Check(
        "L-speculation-batch", "speculation past its paying batch", "warning", ("engine", "run"),
        "--hardware, shapes of both models, the batch", "--max-num-seqs, no speculation",
        ("qg-977", "speculation-when", "speculative-decoding"), paying_batch,
    ),
)  # fmt: skip
