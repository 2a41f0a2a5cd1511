"""Figures beside those of the memory plan: of one request, of what is too much, of changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.plan.quantity import Input, Quantity

if TYPE_CHECKING:
    from headrace.plan.memory.fit import Change
    from headrace.plan.memory.memory import MemoryPlan
    from headrace.plan.memory.placed_experts import PlacedExperts


def request_figures(plan: MemoryPlan, context_tokens: int) -> tuple[Quantity, Quantity]:
    """KV of a token inside of every window, and of a whole request, both of one device."""
    kv = next(one for one in plan.components if one.id == "kv")
    shapes = tuple(one for one in kv.inputs if one.name != "users")
    of_token = tuple(one for one in shapes if one.name not in ("context", "tokens of a block"))
    if plan.cache.draft is not None:
        drafts = next(part for part in plan.components if part.id == "draft-kv")
        shapes += tuple(item for item in drafts.inputs if item.name.startswith("KV of a token"))
    return (
        Quantity("kv-per-token", "KV of a token", plan.cache.bytes_per_token, "byte/token", "F7",
                 of_token),
        Quantity("kv-per-request", "KV of a request", plan.cache.request_bytes(context_tokens),
                 "byte/request", "F7", shapes),
    )  # fmt: skip


def missing_figure(plan: MemoryPlan) -> Quantity:
    """What is too much on each device, by the band of what is needed; 0 where it fits."""
    needed, usable = plan.needed, plan.usable
    low, high = (max(0.0, end - usable.value) for end in needed.band)
    return Quantity(
        "missing", "too much", plan.missing_bytes, "byte", "M9",
        tuple(_input_of(one) for one in (needed, usable)), low, high,
    )  # fmt: skip


def saving_figures(plan: MemoryPlan, changes: Iterable[Change]) -> tuple[Quantity, ...]:
    """What each change saves on each device: the difference of two plans."""
    needed = replace(_input_of(plan.needed), basis="exact")
    return tuple(
        Quantity(
            saving_id(one), f"saved by {one.option}", one.saving_bytes, "byte", "M10",
            (
                needed,
                Input("needed with the change", plan.needed.value - one.saving_bytes, "byte",
                      f"the same plan with {one.option}", "given"),
            ),
        )
        for one in changes
    )  # fmt: skip


def saving_id(change: Change) -> str:
    """Such as "saving.kv-type-q8_0"."""
    words = change.option.replace("--", "").split()
    return f"saving.{'-'.join(words).lower()}"


def placed_words(placed: PlacedExperts, size: Callable[[float], str]) -> str:
    """What `headrace serve` does with experts that the card does not hold."""
    words = (
        f"headrace serve computes the experts of the first {placed.layers} of "
        f"{placed.all_layers} layers on the CPU (--n-cpu-moe {placed.layers}): "
        f"{size(placed.expert_bytes)} of the machine's own memory"
    )
    if placed.host_bytes is None:
        return f"{words}; --host-memory says how much there is"
    if placed.fits:
        return f"{words}, of {size(placed.host_bytes)} usable"
    return f"{words}, of which {size(placed.host_bytes)} are usable: the others stay in the file"


def _input_of(figure: Quantity) -> Input:
    return Input(figure.name, figure.value, figure.unit, f"figure {figure.id}", "given")
