"""Options on machines of one's own or rented: what fits, keeps the SLO and is within the budget."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headrace.catalog import Catalog
from headrace.catalog.names import plain
from headrace.errors import ConfigError
from headrace.plan.calibration.stored import RUNTIME, Found
from headrace.plan.machine.hardware_memory import THIS
from headrace.plan.memory.kv_cache import kv_kind
from headrace.plan.memory.memory import MemoryPlan, Storage
from headrace.plan.memory.weights_memory import weights_quantity
from headrace.plan.recommendation.advice import Adviser, Chosen, device_answers, scale_of
from headrace.plan.recommendation.breach import Breach, RuledOut
from headrace.plan.recommendation.capacity import (
    LARGEST_BATCH,
    Capacity,
    Latency,
    capacity_of,
    latency_at,
)
from headrace.plan.recommendation.checkpoints import origin_of
from headrace.plan.recommendation.latency_figures import latency_figures
from headrace.plan.recommendation.limits import (
    too_dear,
    too_large,
    too_many,
    too_slow,
    total_excess,
    unplanned,
)
from headrace.plan.recommendation.models import Shaped, model_marks
from headrace.plan.recommendation.money import month_of_devices
from headrace.plan.recommendation.option import Machines, Option
from headrace.plan.recommendation.option_figures import (
    capacity_figures,
    memory_figures,
    month_by_replicas,
)
from headrace.plan.recommendation.places import RuntimeCandidate
from headrace.plan.recommendation.question import Question
from headrace.plan.recommendation.size import quality_of
from headrace.plan.speed.replica import Replica, ReplicaChoice, replica_of
from headrace.telemetry.machine import Machine

# The smallest count that does, and the next, which is faster.
_COUNTS_KEPT = 2
# How much looser than what one request alone sees a limit that is missed is tried.
_LOOSER = (1.0, 1.25, 2.0, 4.0)


class _Run(NamedTuple):
    """The quantities that the figures of an option are computed from."""

    replica: Replica
    rate: float
    latency: Latency


@dataclass
class SelfHosted:
    """A search of models in settings; collects `options` and what is `out`.

    calibration: of this machine. It was measured of headrace's own engine, so other runtimes here
    are planned from stated efficiencies.
    """

    catalog: Catalog
    question: Question
    machine: Machine | None
    calibration: Found | None = None
    options: list[Option] = field(default_factory=list)
    out: list[RuledOut] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._kept: set[tuple[str, str]] = set()
        self._f16 = kv_kind("F16", self.catalog)
        self._adviser = Adviser(self.catalog)
        limits = self.catalog.rules["rule-scale"].limits
        self._scales = [(name, limits[name].low or 0.0) for name in ("few", "many")]
        self._long = limits["long-context"].low or 0.0
        self._lowest_s = (limits["lowest-latency"].high or 0.0) * 1e-3

    def look_at(self, model: Shaped, setting: RuntimeCandidate) -> None:
        """Every count of devices, from the least on."""
        breach = self._no_checkpoint(model, setting)
        if breach is not None:
            self._rule_out(model, setting, 0, (breach,))
            return
        if self._has_more_bits(model, setting):
            return
        kept, missed = 0, None
        # Layers split over devices make nothing faster; more of them only fit more.
        most = _COUNTS_KEPT if "tensor" in setting.runtime.parallelism else 1
        for devices in setting.site.counts:
            if devices > self.question.max_devices or kept == most:
                break
            found = self._tried(model, setting, devices)
            if isinstance(found, Option):
                self.options.append(found)
                self._kept.add((model.row.id, setting.site.name))
                kept += 1
            elif missed is None or total_excess(found) < total_excess(missed[1]):
                missed = (devices, found)
        if not kept and missed is not None:
            self._rule_out(model, setting, *missed)

    def _rule_out(
        self, model: Shaped, setting: RuntimeCandidate, devices: int, breaches: tuple[Breach, ...]
    ) -> None:
        name = _name(model, setting, devices)
        self.out.append(RuledOut(name=name, breaches=breaches, model=model.row.id))

    def _has_more_bits(self, model: Shaped, setting: RuntimeCandidate) -> bool:
        """Whether the kind is below Q4_K_M, and one from there on runs in the same place."""
        enough = self.catalog.quantizations["q4-k-m"].bits_per_weight or 0.0
        bits = setting.kind.bits_per_weight or enough
        if bits >= enough or setting.kind.family == "gpu":
            return False
        return (model.row.id, setting.site.name) in self._kept

    def _no_checkpoint(self, model: Shaped, setting: RuntimeCandidate) -> Breach | None:
        """A family that is released in one kind is run in it, and that kind is of no other."""
        family = plain(model.row.family or "")
        alone: dict[str, str] = {}
        for said in self.catalog.rules["rule-checkpoint"].values:
            of, _, released = said.partition(":")
            alone[of.strip()] = released.strip()
        kind = setting.kind.id
        if family in alone and kind != alone[family]:
            return Breach(rule="rule-checkpoint", text=f"is released in {alone[family]}")
        if family not in alone and kind in alone.values():
            return Breach(rule="rule-checkpoint", text=f"it has no checkpoint in {kind}")
        if origin_of(model.row, setting.kind, setting.runtime.id) == "none":
            there = ", ".join(model.row.checkpoints)
            return Breach(rule="rule-checkpoint", text=f"is published in {there}, not in {kind}")
        return None

    def _tried(
        self, model: Shaped, setting: RuntimeCandidate, devices: int
    ) -> Option | tuple[Breach, ...]:
        question, site = self.question, setting.site
        weights = weights_quantity(model.shape, setting.kind).value
        memory = 0 if site.row is None else site.row.usable_memory_bytes or site.row.memory_bytes
        if memory and weights / devices > memory:  # before anything is planned
            return (too_large(weights / devices, memory, "the weights alone", devices),)
        tensor = devices if "tensor" in setting.runtime.parallelism else 1
        choice = ReplicaChoice(
            hardware=THIS if site.row is None else site.row.id, count=devices, tensor=tensor,
            pipeline=devices // tensor,
        )  # fmt: skip
        storage = Storage(setting.kind, self._f16, self._f16)
        try:
            own = setting.runtime.id == RUNTIME
            replica = replica_of(
                self.catalog, model.shape, storage, choice, self.machine,
                self.calibration if own else None,
            )  # fmt: skip
        except ConfigError as error:
            told = str(error).partition(":")[0]
            return (Breach(rule="rule-hardware-known", text=told),)
        plan = replica.memory(question.context_tokens, 1)
        if not plan.fits:
            return (too_large(plan.needed.value, plan.usable.value, "it", devices),)
        most = _most_batch(replica, plan, question.context_tokens, setting)
        capacity = capacity_of(replica.model, question, most)
        if capacity.missed:
            return self._missed(setting, replica, capacity, most)
        return self._option(model, setting, replica, capacity)

    def _missed(
        self, setting: RuntimeCandidate, replica: Replica, capacity: Capacity, most: int
    ) -> tuple[Breach, ...]:
        """The limits that are missed, and what would be broken still were they looser.

        As loose as one request needs leaves no room for a batch, and costs most; the looseness is
        taken that misses all limits and the budget by least.
        """
        tries = [self._loosened(setting, replica, capacity, most, by) for by in _LOOSER]
        return min(tries, key=total_excess)

    def _loosened(
        self, setting: RuntimeCandidate, replica: Replica, capacity: Capacity, most: int, by: float
    ) -> tuple[Breach, ...]:
        question, price = self.question, setting.site.price
        seen = {limit: math.ceil(seconds * by * 1e3) / 1e3 for limit, seconds in capacity.missed}
        slo = tuple(replace(one, seconds=seen.get(one, one.seconds)) for one in question.slo)
        option = f"--slo '{','.join(one.text for one in slo)}'"
        slow = tuple(
            too_slow(limit, seconds, seen[limit], option) for limit, seconds in capacity.missed
        )
        able = capacity_of(replica.model, replace(question, slo=slo), most)
        replicas = max(1, math.ceil(question.rate / (able.requests_per_s * question.headroom)))
        devices = replica.place.devices * replicas
        month = None if price is None else month_of_devices("loose", price, devices).value
        return (
            *slow, *too_many(question, devices, setting.site.here),
            *too_dear(question, month),
        )  # fmt: skip

    def _option(
        self, model: Shaped, setting: RuntimeCandidate, replica: Replica, capacity: Capacity
    ) -> Option | tuple[Breach, ...]:
        question, site = self.question, setting.site
        planned = capacity.requests_per_s * question.headroom
        replicas = max(1, math.ceil(question.rate / planned))
        devices = replica.place.devices * replicas
        rate = question.rate / replicas
        latency = latency_at(replica.model, question, rate)
        breaches = list(too_many(question, devices, site.here))
        id = _id(model, setting, replica.place.devices)
        month = None if site.price is None else month_of_devices(id, site.price, devices)
        breaches += too_dear(question, None if month is None else month.value)
        if breaches:
            return tuple(breaches)
        in_flight = question.rate * latency.e2e_s
        plan = replica.memory(question.context_tokens, capacity.batch)
        setup = replica.model.setup
        machines = Machines(
            hardware=site.name, hardware_name=site.title, devices=replica.place.devices,
            tensor=setup.parallelism.tensor, pipeline=setup.parallelism.pipeline,
            replicas=replicas, batch=capacity.batch,
            capacity_requests_per_s=capacity.requests_per_s,
            utilization=rate / capacity.requests_per_s, in_flight=in_flight,
            memory_bytes=plan.needed.value, usable_bytes=plan.usable.value,
            usable_share=replica.place.usable_share,
        )  # fmt: skip
        answers = self._answers(setting, replica.place.devices, in_flight)
        place = site.name if site.row is None else site.row.id
        chosen = Chosen(setting.runtime.id, setting.kind.id, place)
        self._runs[id] = _Run(replica, rate, latency)
        return Option(
            id=id, name=_name(model, setting, replica.place.devices), model=model.row.id,
            model_name=model.row.name, quality=quality_of(model.row, setting.kind),
            paid="unknown" if site.price is None else site.price.paid, usd_per_month=month,
            quantization=setting.kind.id, runtime=setting.runtime.id, machines=machines,
            e2e_s=latency.e2e_s,
            marks=tuple(self._marks(model, setting, plan, capacity.alone.ttft_s)),
            advice=self._adviser.advice(answers, chosen),
        )  # fmt: skip

    def told(self, option: Option) -> Option:
        """The option with figures and reasons, which are left out until it is told."""
        run = self._runs.get(option.id)
        if run is None or option.machines is None:
            return option
        replica, rate, latency = run
        id, question, machines = option.id, self.question, option.machines
        times = latency_figures(id, replica, question, rate, latency)
        of_load = capacity_figures(id, replica, question, machines, times.e2e)
        month = option.usd_per_month
        if month is not None:
            month = month_by_replicas(month, machines, of_load[1])
        return replace(
            option, ttft=times.ttft, tpot=times.tpot, e2e=times.e2e, usd_per_month=month,
            reasons=tuple(_reasons(question, machines, latency, replica)),
            sources=(
                *of_load, *times.alone, *memory_figures(id, replica, question, machines.batch)
            ),
        )  # fmt: skip

    def _answers(self, setting: RuntimeCandidate, devices: int, in_flight: float) -> dict[str, str]:
        question = self.question
        limit = question.limit("tpot")
        lowest = limit is not None and limit.seconds <= self._lowest_s
        return {
            "task": question.task,
            "private": "yes" if question.private else "no",
            "edge": "yes" if question.edge else "no",
            "scale": scale_of(in_flight, self._scales),
            "devices": "several" if devices > 1 else "one",
            "context": "long" if question.context_tokens >= self._long else "ordinary",
            "latency": "lowest" if lowest else "ordinary",
            **device_answers(setting.site.row),
        }

    def _marks(
        self, model: Shaped, setting: RuntimeCandidate, plan: MemoryPlan, prefill_s: float
    ) -> Iterator[Breach]:
        """Soft rules."""
        yield from model_marks(self.catalog, self.question, model.row)
        yield from unplanned(self.question, prefill_s)
        origin = origin_of(model.row, setting.kind, setting.runtime.id)
        if origin in ("unseen", "converted"):
            text = f"check that there is a checkpoint in {setting.kind.name}: none is known"
            yield Breach(rule=f"rule-checkpoint-{origin}", text=text)
        price = setting.site.price
        if price is None:
            yield Breach(
                rule="rule-price-unknown", text=f"the price of {setting.site.title} is not known"
            )
        elif price.paid == "rented" and self.question.private:
            yield Breach(rule="rule-private-rented", text="the machines are rented")
        if model.row.licence is None:
            yield Breach(
                rule="rule-licence-unstated", text="the catalog does not state its licence"
            )
        if "tensor" not in setting.runtime.parallelism and plan.place.devices > 1:
            yield Breach(rule="rule-layer-split", text=f"layers over {plan.place.devices} devices")
        if not plan.fits_surely:
            over = (plan.needed.band[1] - plan.usable.value) / 1e9
            yield Breach(rule="rule-tight", text=f"{over:.2f} GB too much at the upper end")
        least = self.catalog.rules["rule-bits"].limits["bits"].low or 0.0
        bits = setting.kind.bits_per_weight
        if self.question.least_bits is None and bits is not None and bits < least:
            yield Breach(rule="rule-bits", text=f"{bits:g} bits a weight, below {least:g}")


def _most_batch(
    replica: Replica, plan: MemoryPlan, context_tokens: int, setting: RuntimeCandidate
) -> int:
    """Requests that fit together and that the runtime takes.

    Logits of a batch are small, so one plan nearly says it.
    """
    free = plan.free_for_kv.value
    able = min(LARGEST_BATCH, setting.runtime.most_sequences or LARGEST_BATCH)
    most = min(able, max(1, plan.cache.most_requests(free, context_tokens)))
    while most > 1 and not replica.memory(context_tokens, most).fits:
        most = max(1, int(most * 0.98) if most > 50 else most - 1)
    return most


def _reasons(
    question: Question, machines: Machines, latency: Latency, replica: Replica
) -> Iterator[str]:
    spare = machines.usable_bytes - machines.memory_bytes
    yield (
        f"{machines.memory_bytes / 1e9:.1f} of {machines.usable_bytes / 1e9:.1f} GB usable on a "
        f"device with {machines.batch:,} requests of {question.context_tokens:,} tokens, "
        f"{spare / 1e9:.1f} GB free"
    )
    yield (
        f"a replica takes {machines.capacity_requests_per_s:.3g} requests/s at batch "
        f"{machines.batch:,}; {machines.replicas:,} at {machines.utilization:.0%} for "
        f"{question.rate:g} requests/s, {machines.in_flight:.3g} in flight (Little)"
    )
    step = replica.model.decode_step(latency.batch, question.prompt_tokens)
    yield f"decode is bound by {step.bottleneck} at batch {latency.batch}"
    efficiencies = replica.model.setup.efficiencies
    if replica.calibration is not None:
        where = f": {efficiencies.origin}" if efficiencies.origin else ""
        yield f"speed is {efficiencies.basis}{where}"


def _name(model: Shaped, setting: RuntimeCandidate, devices: int) -> str:
    count = f"{devices} x " if devices > 1 else ""
    return (
        f"{model.row.name} {setting.kind.name}, {setting.runtime.name}, {count}{setting.site.title}"
    )


def _id(model: Shaped, setting: RuntimeCandidate, devices: int) -> str:
    return ".".join(
        ("recommend", model.row.id, setting.kind.id, setting.runtime.id,
         f"{devices}x{setting.site.name}")
    )  # fmt: skip
