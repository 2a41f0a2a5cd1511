"""A simulation as a plan: the run, what it ran on, and every figure down to the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from headrace.plan.memory.fit_figures import request_figures
from headrace.plan.memory.memory import MemoryPlan
from headrace.plan.model.renamed import figure_input
from headrace.plan.quantity import Basis, Input, Quantity
from headrace.plan.simulation.figures import run_figures
from headrace.plan.simulation.result import SimulationResult
from headrace.plan.simulation.simulate import FewestReplicas
from headrace.plan.speed.replica import Replica
from headrace.plan.step.latency_model import LatencyModel


@dataclass(frozen=True, kw_only=True)
class SimulationPlan:
    """A simulation as a plan, with figures and their inputs."""

    result: SimulationResult
    """Result with the fewest replicas, if those were searched for."""
    replica: Replica | None
    """None if step times and KV cache are given without a model."""
    context_tokens: int
    """Mean tokens of a request, for which a replica is sized."""
    fewest: FewestReplicas | None = None
    kv_given: bool = False
    """Whether its KV cache is too."""

    @property
    def title(self) -> str:
        """What is simulated, in words."""
        if self.replica is None:
            return "an engine with the step times given"
        setup = self.replica.model.setup
        return f"{setup.shape.name} on {setup.parallelism.devices} x {setup.device.name} a replica"

    @cached_property
    def quantities(self) -> tuple[Quantity, ...]:
        """Every figure once, by which `plan explain` finds them."""
        memory = self._memory()
        of_memory: tuple[Quantity, ...] = ()
        if memory is not None:
            of_memory = (
                memory.all_weights, *memory.components, memory.usable, memory.free_for_kv,
                *request_figures(memory, self.context_tokens),
            )  # fmt: skip
        engine = tuple(self._engine(memory))
        figures = (*run_figures(self.result, self.fewest, engine), *engine, *of_memory)
        return tuple({one.id: one for one in figures}.values())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = self.result.as_dict()
        setup = None if self.replica is None else self.replica.model.setup
        found["model"] = "" if setup is None else setup.shape.name
        found["hardware"] = None if setup is None else setup.device.name
        if self.fewest is not None:
            found["fewest_replicas"] = {
                "replicas": self.fewest.replicas,
                "attainment": self.fewest.attainment,
                "tried": [
                    {"replicas": count, "met": met, "good": share}
                    for count, met, share in self.fewest.tried
                ],
            }
        found["quantities"] = [one.as_dict() for one in self.quantities]
        return found

    def _memory(self) -> MemoryPlan | None:
        """That the KV cache is sized by; None where it is given."""
        if self.replica is None or self.kv_given:
            return None
        return self.replica.memory(self.context_tokens, self.result.settings.engine.max_num_seqs)

    def _engine(self, memory: MemoryPlan | None) -> Iterator[Quantity]:
        """A step at the mean batch of the run, and the KV cache of a replica."""
        engine = self.result.settings.engine
        size = engine.block_size
        block = Input("tokens of a block", size, "tokens", "--block-size", "given")
        tokens = engine.kv_tokens
        name = "KV cache of a replica"
        if memory is None:
            given = Input("blocks", tokens // size, "blocks", "--kv-tokens", "given")
            yield Quantity("simulate.kv-tokens", name, tokens, "tokens", "Q3", (given, block))
        else:
            each, free = memory.cache.request_bytes(self.context_tokens), memory.free_for_kv
            blocks = -(-self.context_tokens // size)
            tokens, *ends = (
                max(0, int(end / (each / blocks))) * size for end in (free.value, *free.band)
            )
            yield Quantity(
                "simulate.kv-tokens", name, tokens, "tokens", "Q3",
                (
                    figure_input(free),
                    Input("KV of a request", each, "byte/request", "figure kv-per-request",
                          "exact"),
                    Input("blocks of a request", blocks, "blocks", "tokens of a request", "given"),
                    block,
                ),
                min(ends[0], tokens), max(ends[1], tokens),
            )  # fmt: skip
        yield self._step(engine.latency)

    def _step(self, latency: LatencyModel) -> Quantity:
        """Of the mean batch that decodes; the band is that of the roofline where that timed it."""
        result = self.result
        batch = max(1, round(result.batch))
        requests = max(1, result.completed)
        context = (result.prompt_tokens + result.served_tokens // 2) // requests
        seconds = latency.step([], batch, batch * context)
        basis: Basis = "given"
        more: tuple[Input, ...] = ()
        low = high = seconds
        if ": roofline of " in latency.source and self.replica is not None:
            model = self.replica.model
            setup = model.setup
            of_sheet = setup.efficiencies.basis == "from data sheet"
            basis = "data sheet" if of_sheet else "measured"
            more = (
                *setup.device.inputs,
                setup.efficiencies.bandwidth.as_input("bandwidth efficiency"),
                setup.efficiencies.compute.as_input("compute efficiency"),
            )
            low, high = (model.at(end).decode_step(batch, context).seconds
                         for end in ("best", "worst"))  # fmt: skip
        elif latency.source.startswith("headrace bench"):
            basis = "measured"
        parts = tuple(
            Input(name, value, "s", latency.source or "--latency", basis)
            for name, value in asdict(latency).items()
            if name != "source"
        )
        return Quantity(
            "simulate.step", "a step that decodes for the mean batch", seconds, "s", "Q2",
            (
                Input("requests that decode", batch, "requests", "mean of the run", "given"),
                Input("context of each", context, "tokens", "half way through an answer", "given"),
                *parts, *more,
            ),
            min(low, seconds), max(high, seconds),
        )  # fmt: skip
