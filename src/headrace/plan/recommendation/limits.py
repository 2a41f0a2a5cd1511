"""Limits of the question that an option on machines breaks, and by how much."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from headrace.plan.recommendation.breach import Breach
from headrace.plan.recommendation.question import Limit, Question


def total_excess(breaches: Iterable[Breach]) -> float:
    """How far all are over their limits together, for comparing near misses."""
    return sum(math.inf if breach.excess is None else breach.excess for breach in breaches)


def unplanned(question: Question, prefill_s: float) -> Iterator[Breach]:
    """Limits on TTFT, of which only prefill is planned."""
    limits = [limit.text for limit in question.slo if limit.metric == "ttft"]
    if limits:
        yield Breach(
            rule="rule-ttft-served",
            text=f"not checked: {', '.join(limits)}; prefill alone takes "
            f"{prefill_s * 1e3:.4g} ms of it, and waiting is not planned",
        )


def too_large(needed: float, usable: float, what: str, devices: int) -> Breach:
    """`what` needs more bytes than are usable, on each of `devices` devices."""
    over = needed - usable
    each = " on each device" if devices > 1 else ""
    verb = "take" if what.endswith("alone") else "takes"
    return Breach(
        rule="rule-memory",
        text=f"{what} {verb} {needed / 1e9:.1f} GB{each}, {over / 1e9:.1f} GB more than "
        f"the {usable / 1e9:.1f} usable",
        excess=over / usable,
    )


def too_slow(limit: Limit, seen_s: float, allowed_s: float, option: str) -> Breach:
    """A limit that one request alone misses; `option` asks for a looser one of `allowed_s`."""
    of = "" if limit.quantile is None else f"p{limit.quantile * 100:g} of "
    what = "prefill" if limit.metric == "ttft" else f"{of}{limit.metric.upper()}"
    return Breach(
        rule=f"rule-{limit.metric}",
        text=f"{what} is {seen_s * 1e3:.4g} ms for one request alone, "
        f"{(seen_s - limit.seconds) * 1e3:.4g} ms over {limit.seconds * 1e3:g} ms",
        excess=allowed_s / limit.seconds - 1,
        option=option,
    )


def too_many(question: Question, devices: int, here: int | None) -> Iterator[Breach]:
    """More devices than the question allows, or than there are `here`, None where any number is."""
    most = question.max_devices if here is None else min(here, question.max_devices)
    if devices > most:
        yield Breach(
            rule="rule-devices",
            text=f"{question.rate:g} requests/s take {devices:,} devices, {devices - most:,} more "
            f"than {most}",
            excess=devices / most - 1,
            option="" if here is not None and devices > here else f"--max-devices {devices}",
        )


def too_dear(question: Question, usd: float | None) -> Iterator[Breach]:
    """A month above the budget, or one whose price is not known."""
    budget = question.budget_usd
    if budget is None:
        return
    if usd is None:
        yield Breach(rule="rule-price", text="no price of the hardware is known")
    elif usd > budget:
        yield Breach(
            rule="rule-budget",
            text=f"${usd:,.0f} a month, ${usd - budget:,.0f} over ${budget:,.0f}",
            excess=usd / budget - 1,
            option=f"--budget {math.ceil(usd)}",
        )
