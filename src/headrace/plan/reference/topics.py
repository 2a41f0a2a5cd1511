"""The topics of the reference, in their order, and which rows each shows.

Rows are picked by their fields, so that what people add to the catalog stands where it belongs.
Each row of a kind is in one part that is no view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.catalog import Catalog
from headrace.catalog.names import hint, plain
from headrace.catalog.rows import Technique
from headrace.errors import CatalogError
from headrace.plan.reference import columns
from headrace.plan.reference.part import Part
from headrace.plan.reference.registers import contradictions, sources, trees
from headrace.plan.reference.table import Table


@dataclass(frozen=True, slots=True)
class Topic:
    """A page of the reference. tables: those that are no rows of one kind, after the parts."""

    name: str
    title: str
    about: str
    parts: tuple[Part, ...] = ()
    registers: tuple[Callable[[Catalog], Table], ...] = ()

    def tables(self, known: Catalog) -> tuple[Table, ...]:
        """Of every part that has a line."""
        made = [
            *(one.table(known) for one in self.parts),
            *(register(known) for register in self.registers),
        ]
        return tuple(one for one in made if one.lines)


def _rules(title: str, *topics: str) -> Part:
    return Part(title, "constant", columns.RULE, "topic", topics)


def _impact(row: Technique) -> tuple[float, float]:
    """The rank that a source gives; then what gains the largest factor."""
    ends = [one for span in row.gains.values() for one in (span.high, span.low) if one is not None]
    return (row.impact_rank or float("inf"), -max(ends, default=0.0))


def _about_experts(row: Technique) -> bool:
    said = " ".join([row.id, row.name, row.does or ""])
    return "expert" in plain(said)


_TOPICS = (
    Topic(
        "metrics",
        "Metrics",
        "what TTFT, TPOT, E2E, TPS and goodput mean, and what to aim at",
        (_rules("Definitions", "definition"), _rules("Targets, and what is typical", "slo")),
    ),
    Topic(
        "moe",
        "Mixture of experts",
        "models with experts, what they gain and what they cost",
        (
            _rules("Gains and costs", "moe"),
            Part("Models with experts", "model", columns.EXPERTS, "num_experts", view=True,
                 order=lambda row: -(row.total_parameters or 0)),
            Part("Techniques of experts", "technique", columns.TECHNIQUE, keep=_about_experts,
                 view=True, order=_impact),
        ),
    ),
    Topic(
        "quantization",
        "Quantization",
        "kinds of weights and KV cache: bits, quality against size, where they run",
        (
            Part("Kinds of GGUF files", "quantization", columns.KIND, "family",
                 ("gguf-mix", "gguf"), order=lambda row: -(row.bits_per_weight or 0)),
            Part("Kinds for GPUs", "quantization", columns.KIND, "family", ("gpu", "float")),
            Part("Kinds of the KV cache", "quantization", columns.KIND, "family", ("kv-cache",)),
            Part("Formats and methods", "quantization", columns.KIND, "family", ("method", None)),
            _rules("Rules", "quantization"),
        ),
    ),
    Topic(
        "models",
        "Models",
        "open and closed: parameters, context, licence, what they are for",
        (
            Part("Open weights", "model", columns.MODEL, "open_weights", (True,)),
            Part("Behind an API", "model", columns.MODEL, "open_weights", (False, None)),
        ),
    ),
    Topic(
        "runtimes",
        "Runtimes",
        "programs that run and serve models",
        (Part("Runtimes", "runtime", columns.RUNTIME),),
    ),
    Topic(
        "providers",
        "Providers",
        "who sells tokens and GPU hours",
        (
            Part("APIs", "provider", columns.PROVIDER, "category", ("model-api", None)),
            Part("Rented GPUs", "provider", columns.PROVIDER, "category", ("gpu-rental",)),
            Part("Servers of your own", "provider", columns.PROVIDER, "category", ("server",)),
        ),
    ),
    Topic(
        "prices",
        "Prices",
        "dollars for a million tokens, dated",
        (
            Part("Prices", "price", columns.PRICE, "in_use", (True,)),
            Part("Stated elsewhere, not billed with", "price", columns.PRICE, "in_use", (False,)),
        ),
    ),
    Topic(
        "hardware",
        "Hardware",
        "memory, bandwidth against compute, dollars an hour",
        (
            Part("Devices and machines", "hardware", columns.HARDWARE),
            Part("Dollars an hour", "hardware", columns.RENT, "price_usd_per_hour", view=True),
            _rules("Rules", "hardware"),
        ),
    ),
    Topic(
        "gateways",
        "Gateways",
        "routers, proxies and platforms between an application and models",
        (
            Part("Routers and gateways", "provider", columns.PROVIDER, "category",
                 ("router", "gateway")),
            Part("Platforms", "provider", columns.PROVIDER, "category",
                 ("serverless-gpu", "hub", "edge")),
        ),
    ),
    Topic(
        "techniques",
        "Techniques",
        "what to do to serve faster, cheaper or more, by impact, with conditions",
        (
            Part("Techniques by impact", "technique", columns.TECHNIQUE, order=_impact,
                 notes=("Ordered by the source's ranking, then by the largest factor stated. "
                     "Factors refer to different quantities and baselines: see the notes.",)),
        ),
    ),
    Topic(
        "rules",
        "Rules of thumb",
        "efficiencies, memory, batching, speculation, tokens, deployment",
        (
            _rules("Efficiency", "efficiency"),
            _rules("Memory", "memory"),
            _rules("Batching and speculation", "batching", "speculation"),
            _rules("Tokens, deployment, practice", "tokens", "deployment", "practice"),
        ),
    ),
    Topic(
        "cost",
        "Cost",
        "hardware, energy, break-even, the market",
        (_rules("Cost and energy", "cost", "energy"), _rules("Market", "market")),
    ),
    Topic(
        "speeds",
        "Published speeds",
        "what others measured, and what a roofline says of it",
        (Part("Measurements", "measurement", columns.MEASUREMENT),),
    ),
    Topic(
        "pitfalls",
        "Pitfalls",
        "what goes wrong, and what to do instead",
        (
            Part("Pitfalls", "constant", columns.PITFALL, "topic", ("pitfall",)),
            Part("Techniques that do not always pay", "technique",
                 tuple(one for one in columns.TECHNIQUE if one.heading in ("needs", "not when")),
                 "avoid_when", view=True),
        ),
    ),
    Topic(
        "advice",
        "Rules of the planner",
        "by which headrace plan recommend excludes or marks options",
        (Part("Rules", "rule", columns.ADVICE),),
    ),
    Topic(
        "trees",
        "Decision trees",
        "questions that lead to a runtime, gateway, quantization, hardware or host",
        registers=(trees,),
    ),
    Topic(
        "contradictions",
        "Contradictions",
        "where sources disagree: what is used here, and why",
        registers=(contradictions,),
    ),
    Topic("sources", "Sources", "where facts come from", registers=(sources,)),
)  # fmt: skip

TOPICS: dict[str, Topic] = {one.name: one for one in _TOPICS}


def topic_named(name: str) -> Topic:
    """The topic of that name; raises CatalogError with the nearest."""
    found = TOPICS.get(plain(name))
    if found is None:
        raise CatalogError(
            f"there is no topic {name!r}; {hint(name, TOPICS)} (there are: {', '.join(TOPICS)})"
        )
    return found


def as_dict(topic: Topic, tables: tuple[Table, ...]) -> dict[str, Any]:
    """For JSON."""
    return {
        "topic": topic.name,
        "title": topic.title,
        "about": topic.about,
        "tables": [one.as_dict() for one in tables],
    }
