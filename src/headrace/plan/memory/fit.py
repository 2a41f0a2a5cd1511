"""Does it fit, how much more would, and which changes make it fit.

A change is tried by planning memory again with it, so its saving is the difference of two plans
and not a rule. They are ranked by whether one alone is enough, then by what is lost: bits of the
cache first, then bits of the weights, then users and context, then money.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from headrace.catalog import Catalog
from headrace.plan.machine.hardware_memory import DeviceMemory
from headrace.plan.memory.draft import Draft
from headrace.plan.memory.fit_figures import missing_figure, request_figures, saving_figures
from headrace.plan.memory.fit_kinds import kinds_to_try
from headrace.plan.memory.kv_cache import kv_kind
from headrace.plan.memory.mapped_experts import MappedExperts, mapped_experts
from headrace.plan.memory.memory import Load, MemoryPlan, Storage, memory_plan
from headrace.plan.memory.placed_experts import PlacedExperts, placed_experts
from headrace.plan.model.model_shape import ModelShape
from headrace.plan.parallel_notes import heads_notes
from headrace.plan.quantity import Input, Quantity

Verdict = Literal[
    "fits", "fits with mapped experts", "fits with experts on the CPU", "fits with changes",
    "does not fit",
]  # fmt: skip

_MOST_DEVICES = 64
_UNLIMITED = 1 << 34

Try: TypeAlias = Callable[..., "Change | None"]
"""Text, option and what is new, to the change with what it saves."""


@dataclass(frozen=True)
class Change:
    """One thing to do."""

    text: str
    option: str
    """What to add to the command."""
    saving_bytes: float
    """Saving on each device."""
    enough: bool
    """Whether it fits then, with nothing else changed."""


@dataclass(frozen=True)
class Fit:
    """The fit of a model on a device."""

    shape: ModelShape
    load: Load
    memory: MemoryPlan
    verdict: Verdict
    most_context: Quantity
    """Maximum context for the given users."""
    most_users: Quantity
    """Maximum users at the given context."""
    context_limit: Literal["memory", "model"]
    """What ends the context first: "memory" or "model"."""
    changes: tuple[Change, ...]
    """Best first; none where it fits."""
    tensor: int | None = None
    """Devices that each layer is divided over; None: all of them."""
    expert_cache: MappedExperts | None = None
    """What `headrace serve` holds of the experts where it leaves them in the file."""
    placed: PlacedExperts | None = None
    """What it computes on the CPU where a card does not hold all."""

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """Every figure, by which `plan explain` finds them."""
        memory = self.memory
        parts = (
            memory.all_weights, *memory.components,
            *request_figures(memory, self.load.context_tokens),
        )  # fmt: skip
        missing = () if memory.fits else (missing_figure(memory),)
        unique = {one.id: one for one in parts}.values()
        return (
            *unique, memory.needed, memory.usable, memory.free_for_kv, self.most_context,
            self.most_users, *missing, *saving_figures(memory, self.changes),
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        place = self.memory.place
        return {
            "model": self.shape.name,
            "model_source": self.shape.source,
            "hardware": place.name,
            "devices": place.devices,
            "context_tokens": self.load.context_tokens,
            "users": self.load.users,
            "verdict": self.verdict,
            "fits": self.memory.fits,
            "missing_bytes": round(self.memory.missing_bytes),
            "context_limit": self.context_limit,
            "expert_cache": None if self.expert_cache is None else self.expert_cache.as_dict(),
            "cpu_experts": None if self.placed is None else self.placed.as_dict(),
            "quantities": [one.as_dict() for one in self.quantities],
            "changes": [
                {
                    "text": one.text,
                    "option": one.option,
                    "saving_bytes": round(one.saving_bytes),
                    "enough": one.enough,
                }
                for one in self.changes
            ],
            "notes": list(self.notes),
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know of the model's figures and the machine's."""
        place = (self.memory.place.note,) if self.memory.place.note else ()
        model = self.shape.context_tokens
        longer: tuple[str, ...] = ()
        if model is not None and self.load.context_tokens > model:
            longer = (
                f"the context of {self.load.context_tokens:,} tokens, is longer than the "
                f"{model:,} that {self.shape.name} was made for",
            )
        heads = heads_notes(self.shape, self.tensor or self.memory.place.devices)
        return (*self.shape.notes, *longer, *heads, *place)


def fit(
    catalog: Catalog,
    shape: ModelShape,
    place: DeviceMemory,
    storage: Storage,
    load: Load,
    tensor: int | None = None,
    draft: Draft | None = None,
    host_bytes: int | None = None,
) -> Fit:
    """Whether `shape` under `load` fits into `place`, and what would.

    tensor: devices that each layer is divided over; None: all of them. draft: that makes drafts for
    it, which has to fit as well. host_bytes: usable memory of the machine that a card is in, for
    experts; None where it is not known.

    Raises ConfigError where the storage of the weights is not known.
    """
    plan = memory_plan(catalog, shape, place, storage, load, draft)
    context, limit = _most_context(plan, shape, load)
    changes: tuple[Change, ...] = ()
    verdict: Verdict = "fits"
    if not plan.fits:
        found = list(_changes(catalog, shape, place, storage, load, plan, draft))
        found.sort(key=lambda change: not change.enough)  # stable: the rest stays by loss
        changes = tuple(found)
        verdict = "fits with changes" if any(one.enough for one in found) else "does not fit"
    experts = mapped_experts(shape, storage, load, plan)
    if experts is not None:
        verdict = "fits with mapped experts"
    placed = placed_experts(shape, storage, load, plan, host_bytes)
    if placed is not None:
        verdict = "fits with experts on the CPU"
    users = _most_users(plan, load)
    return Fit(shape, load, plan, verdict, context, users, limit, changes, tensor, experts, placed)


def _most_context(
    plan: MemoryPlan, shape: ModelShape, load: Load
) -> tuple[Quantity, Literal["memory", "model"]]:
    ceiling = shape.context_tokens or _UNLIMITED
    low, value, high = (
        plan.cache.most_tokens(free, load.users, ceiling) if free > 0 else 0
        for free in (plan.free_for_kv.band[0], plan.free_for_kv.value, plan.free_for_kv.band[1])
    )
    inputs = [
        Input("free for KV", plan.free_for_kv.value, "byte", "figure free-for-kv", "given"),
        Input(
            "KV of a token",
            plan.cache.bytes_per_token,
            "byte/token",
            "figure kv-per-token",
            "exact",
        ),
        Input("users", load.users, "requests", "--users", "given"),
    ]
    if shape.context_tokens is not None:
        made_for = Input(
            "context of the model", ceiling, "tokens", shape.origin, "exact", shape.as_of
        )
        inputs.append(made_for)
    figure = Quantity(
        "most-context", f"most context, {load.users:,} at once", value, "tokens", "M5",
        tuple(inputs), low, high,
    )  # fmt: skip
    return figure, "model" if value == ceiling else "memory"


def _most_users(plan: MemoryPlan, load: Load) -> Quantity:
    # The logits of those asked for are in the activations; of more users they are small beside KV.
    low, value, high = (
        plan.cache.most_requests(free, load.context_tokens)
        for free in (plan.free_for_kv.band[0], plan.free_for_kv.value, plan.free_for_kv.band[1])
    )
    each = plan.cache.request_bytes(load.context_tokens)
    return Quantity(
        "most-users", f"most users, {load.context_tokens:,} tokens each", value, "requests", "M6",
        (
            Input("free for KV", plan.free_for_kv.value, "byte", "figure free-for-kv", "given"),
            Input("KV of a request", each, "byte/request", "figure kv-per-request", "exact"),
        ),
        low, high,
    )  # fmt: skip


def _changes(
    catalog: Catalog,
    shape: ModelShape,
    place: DeviceMemory,
    storage: Storage,
    load: Load,
    plan: MemoryPlan,
    draft: Draft | None,
) -> Iterator[Change]:
    def tried(text: str, option: str, **new: Any) -> Change | None:
        """The change with what it saves; None where it saves nothing."""
        after = memory_plan(
            catalog,
            shape,
            new.get("place", place),
            new.get("storage", storage),
            new.get("load", load),
            new.get("draft", draft),
        )
        saving = plan.needed.value - after.needed.value
        return Change(text, option, saving, after.fits) if saving > 0 else None

    weight_kinds, kv_kinds = kinds_to_try(catalog, shape, place, storage)
    small_kv: tuple[str, Storage] | None = None
    kv_is_enough = False
    for name in kv_kinds:
        kind = kv_kind(name, catalog)
        lighter = replace(storage, keys=kind, values=kind)
        change = tried(f"keep keys and values as {name}", f"--kv-type {name}", storage=lighter)
        if change is not None:
            small_kv = small_kv or (name, lighter)
            kv_is_enough = kv_is_enough or change.enough
            yield change
    beside = None if kv_is_enough else small_kv
    yield from _lighter_weights(catalog, storage, weight_kinds, tried, beside)
    if 1 <= (users := _users_that_fit(plan, load)) < load.users:
        fewer = replace(load, users=users)
        change = tried(f"serve {users:,} at once", f"--users {users}", load=fewer)
        if change is not None:
            yield change
    room = plan.free_for_kv.value
    tokens = plan.cache.most_tokens(room, load.users, load.context_tokens) if room > 0 else 0
    tokens -= tokens % plan.cache.block_tokens
    if 0 < tokens < load.context_tokens:
        shorter = replace(load, context_tokens=tokens)
        change = tried(f"end the context at {tokens:,} tokens", f"--context {tokens}", load=shorter)
        if change is not None:
            yield change
    if draft is not None:
        change = tried(f"serve without {draft.name}", "--speculative-config auto", draft=None)
        if change is not None:
            yield change
    if place.kind == "gpu":
        yield from _more_devices(place, tried)


def _users_that_fit(plan: MemoryPlan, load: Load) -> int:
    """Requests of the context asked for that what is free holds."""
    return plan.cache.most_requests(plan.free_for_kv.value, load.context_tokens)


def _lighter_weights(
    catalog: Catalog,
    storage: Storage,
    kinds: tuple[str, ...],
    tried: Try,
    small_kv: tuple[str, Storage] | None,
) -> Iterator[Change]:
    """The kinds from the most bits down, to the first that is enough, alone and with a small KV."""
    together = False
    for id in kinds:
        row = catalog.quantizations.find(id)
        if row is None or row.bits_per_weight is None:
            continue
        change = tried(
            f"store the weights as {row.name}",
            f"--quantization {row.id}",
            storage=replace(storage, weights=row),
        )
        if change is None:
            continue
        yield change
        if change.enough:
            return
        if small_kv is not None and not together:
            name, lighter = small_kv
            both = tried(
                f"store the weights as {row.name}, and keys and values as {name}",
                f"--quantization {row.id} --kv-type {name}",
                storage=replace(lighter, weights=row),
            )
            if both is not None and both.enough:
                together = True
                yield both


def _more_devices(place: DeviceMemory, tried: Try) -> Iterator[Change]:
    """The next powers of two of the same device, to the first that is enough."""
    devices = 2
    while devices <= _MOST_DEVICES:
        if devices > place.devices:
            change = tried(
                f"use {devices} of {place.name}",
                f"--count {devices}",
                place=replace(place, devices=devices),
            )
            if change is not None and (change.enough or devices * 2 > _MOST_DEVICES):
                yield change
                return
        devices *= 2
