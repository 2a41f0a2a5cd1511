"""How fast a model answers on a machine: prefill, TPOT, throughput, and what bounds them.

    TTFT = prefill of what is not in the prefix cache, alone   (a served request waits as well)
    TPOT = a decode step of the batch, half way through the answers
    E2E  = TTFT + TPOT · (output tokens − 1)

Each step is a roofline of its bytes and operations, with stated efficiencies, the time on links,
and what each kernel launched takes at least. `assumptions` of a result says what else is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from headrace.plan.machine.device import Device
from headrace.plan.model.model_shape import ModelShape
from headrace.plan.speed.speculation import PayingBatches, paying_batches
from headrace.plan.step.communication import Parallelism, communication, pipeline_bubble_share
from headrace.plan.step.efficiency import Efficiencies, End
from headrace.plan.step.measured_steps import MeasuredSteps
from headrace.plan.step.roofline import Bottleneck, Roofline, StepTime
from headrace.plan.step.step import StepCounter, StepWork, Storage
from headrace.plan.validation import not_below, share

_KERNELS_PER_LAYER = 10
"""Norm, QKV, rope, KV write, attention, output, norm, gate and up, activation, down."""
_LARGEST_BATCH = 65_536


@dataclass(frozen=True, kw_only=True)
class SpeedSetup:
    """The model to serve, and the devices it runs on."""

    shape: ModelShape
    storage: Storage
    device: Device
    efficiencies: Efficiencies
    compute_type: str = "bf16"
    """Number type of matrix products ("bf16", "fp8", …)."""
    parallelism: Parallelism = field(default_factory=Parallelism)
    prefill_chunk_tokens: int = 2048
    """Maximum prompt tokens that one step computes."""
    activation_bytes: float = 2.0
    measured_steps: MeasuredSteps | None = None
    """What drafts cost on these very devices, where it was measured."""

    def __post_init__(self) -> None:
        not_below("prefill_chunk_tokens", self.prefill_chunk_tokens, 1, "2048 is usual")


@dataclass(frozen=True, kw_only=True)
class Load:
    """Requests alike. batch: decoded together. cached_prompt_share: found in the prefix cache."""

    prompt_tokens: int
    output_tokens: int
    batch: int = 1
    cached_prompt_share: float = 0.0

    def __post_init__(self) -> None:
        not_below("prompt_tokens", self.prompt_tokens, 1, "a request has at least one prompt token")
        not_below("output_tokens", self.output_tokens, 1, "a request has at least one output token")
        not_below("batch", self.batch, 1, "1 is a single request")
        share("cached_prompt_share", self.cached_prompt_share, "0 is an empty prefix cache")

    @property
    def cached_tokens(self) -> int:
        """Of the prompt, not computed again; a match leaves one token to compute."""
        return min(self.prompt_tokens - 1, int(self.prompt_tokens * self.cached_prompt_share))

    @property
    def middle_context_tokens(self) -> int:
        """In the cache half way through the answer."""
        return self.prompt_tokens + (self.output_tokens - 1) // 2


@dataclass(frozen=True, kw_only=True)
class PassTime:
    """The time of a prompt's prefill or of a decode step."""

    seconds: float
    """Less than the sum of the parts where pipeline stages work at the same time."""
    parts: StepTime
    """Summed over steps, one after another."""

    @property
    def bottleneck(self) -> Bottleneck:
        return self.parts.bottleneck


@dataclass(frozen=True, kw_only=True)
class Band:
    """A time in seconds, and between which it is expected: with the best and the worst efficiencies
    that are stated, and for decode with what others measured."""

    best_s: float
    value_s: float
    worst_s: float


@dataclass(frozen=True, kw_only=True)
class Speed:
    """The speed of one replica under a load."""

    load: Load
    ttft: Band
    """Prefill alone: the part of a served TTFT that is computed."""
    tpot: Band
    e2e: Band
    """Prefill alone and the tokens after it."""
    user_tokens_per_s: float
    system_tokens_per_s: float
    """Output rate of all requests together while they decode."""
    system_tokens_per_s_and_device: float
    devices: int
    """Devices of the replica."""
    prefill_bottleneck: Bottleneck
    decode_bottleneck: Bottleneck
    assumptions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SpeedPoint:
    """Throughput and latency at one batch and context."""

    batch: int
    context_tokens: int
    tpot_s: float
    user_tokens_per_s: float
    system_tokens_per_s: float
    bottleneck: Bottleneck


class SpeedModel:
    """Times of one setup. Raises ConfigError for what the device or its links do not state."""

    def __init__(self, setup: SpeedSetup) -> None:
        self.setup = setup
        self._counter = StepCounter(setup.shape, setup.storage, tensor=setup.parallelism.tensor)
        efficiencies = setup.efficiencies
        self._roofline = Roofline(
            bandwidth_bytes_per_s=setup.device.bandwidth_bytes_per_s,
            peak_operations_per_s=setup.device.peak(setup.compute_type),
            bandwidth_efficiency=efficiencies.bandwidth.value,
            compute_efficiency=efficiencies.compute.value,
            overhead_s=efficiencies.operation_s * _KERNELS_PER_LAYER * setup.shape.num_layers,
            devices=setup.parallelism.tensor,
            attention_operations_per_s=setup.device.attention_operations_per_s,
        )
        self._beyond_caches = self._roofline
        if memory_bytes_per_s := setup.device.memory_bytes_per_s:
            self._beyond_caches = replace(self._roofline, bandwidth_bytes_per_s=memory_bytes_per_s)
        # Links that are not known are told here, not in the middle of a sweep.
        self._communication_s(1)

    @property
    def roofline(self) -> Roofline:
        """Of the devices that one stage is divided over."""
        return self._roofline

    def decode_step(self, batch: int, context_tokens: int, tokens_per_request: int = 1) -> PassTime:
        """The time between two tokens of each request.

        With a pipeline each stage works on another part of the batch: a token takes the time of a
        whole pass of such a part. Steps of several tokens a request take what was measured of them
        beyond those of one, where it was (`drafts_measured`); their parts are those that are
        computed.
        """
        not_below("batch", batch, 1, "a step has at least one request")
        part = math.ceil(batch / self.setup.parallelism.pipeline)
        measured = self.setup.measured_steps
        if measured is not None and self.drafts_measured(batch, tokens_per_request):

            def plain_s(context: int) -> float:
                return self.decode_step(batch, context).seconds

            added_s = measured.added_s(batch, batch * tokens_per_request, plain_s)
            work = self._counter.decode(part, context_tokens, tokens_per_request)
            return PassTime(
                seconds=plain_s(context_tokens) + added_s,
                parts=self._time(work, part * tokens_per_request),
            )
        work = self._counter.decode(part, context_tokens, tokens_per_request)
        time = self._time(work, part * tokens_per_request)
        return PassTime(seconds=time.seconds, parts=time)

    def drafts_measured(self, batch: int, tokens_per_request: int) -> bool:
        """Whether steps of several tokens a request take what was measured of such steps."""
        measured = self.setup.measured_steps
        return (
            measured is not None
            and tokens_per_request > 1
            and measured.knows(batch, batch * tokens_per_request)
        )

    def prefill(self, prompt_tokens: int, cached_tokens: int = 0) -> PassTime:
        """Chunk after chunk of one prompt, alone on the machine.

        With a pipeline, chunks are its micro-batches: stages idle at both ends.
        """
        not_below("prompt_tokens", prompt_tokens, 1, "a request has at least one prompt token")
        not_below("cached_tokens", cached_tokens, 0, "0 is an empty prefix cache")
        left = not_below(
            "prompt_tokens - cached_tokens", prompt_tokens - cached_tokens, 1, "one is computed"
        )
        size = self.setup.prefill_chunk_tokens
        times = [
            self._time(
                self._counter.prefill(
                    min(size, prompt_tokens - start), start, last=start + size >= prompt_tokens
                ),
                min(size, prompt_tokens - start),
            )
            for start in range(cached_tokens, prompt_tokens, size)
        ]
        stages = self.setup.parallelism.pipeline
        busy = 1 - pipeline_bubble_share(stages, math.ceil(left / size))
        parts = StepTime(
            bandwidth_s=sum(time.bandwidth_s for time in times),
            compute_s=sum(time.compute_s for time in times),
            communication_s=sum(time.communication_s for time in times),
            overhead_s=sum(time.overhead_s for time in times),
            overlapped_s=None
            if self.setup.efficiencies.rates is None
            else sum(time.overlapped_s or 0.0 for time in times),
        )
        seconds = sum(time.seconds for time in times) / stages / busy
        return PassTime(seconds=seconds, parts=parts)

    def speed(self, load: Load) -> Speed:
        """What a request sees and the replica yields under `load`."""
        prefill, decode = self._passes(load)
        best, worst = (self.at(end)._passes(load) for end in ("best", "worst"))
        tpot = self._seen(_band(best[1].seconds, decode.seconds, worst[1].seconds), load.batch)
        wanted = load.output_tokens
        throughput = load.batch / decode.seconds
        devices = self.setup.parallelism.devices
        return Speed(
            load=load,
            ttft=_band(best[0].seconds, prefill.seconds, worst[0].seconds),
            tpot=tpot,
            e2e=_band(
                e2e_s(best[0].seconds, tpot.best_s, wanted),
                e2e_s(prefill.seconds, tpot.value_s, wanted),
                e2e_s(worst[0].seconds, tpot.worst_s, wanted),
            ),
            user_tokens_per_s=1 / decode.seconds,
            system_tokens_per_s=throughput,
            system_tokens_per_s_and_device=throughput / devices,
            devices=devices,
            prefill_bottleneck=prefill.bottleneck,
            decode_bottleneck=decode.bottleneck,
            assumptions=self.assumptions,
        )

    def _seen(self, tpot: Band, batch: int) -> Band:
        """A band that also holds eight in ten of what others measured at such batches."""
        spread = self.setup.efficiencies.decode_spread(batch)
        if spread is None:
            return tpot
        return _band(
            min(tpot.best_s, tpot.value_s * spread.low),
            tpot.value_s,
            max(tpot.worst_s, tpot.value_s * spread.high),
        )

    def sweep(self, batches: Iterable[int], contexts: Iterable[int]) -> tuple[SpeedPoint, ...]:
        """Decoding at each batch and context, contexts outside."""
        batches = tuple(batches)
        points = []
        for context in contexts:
            for batch in batches:
                step = self.decode_step(batch, context)
                points.append(
                    SpeedPoint(
                        batch=batch,
                        context_tokens=context,
                        tpot_s=step.seconds,
                        user_tokens_per_s=1 / step.seconds,
                        system_tokens_per_s=batch / step.seconds,
                        bottleneck=step.bottleneck,
                    )
                )
        return tuple(points)

    def knee_batch(self, context_tokens: int, largest_batch: int = _LARGEST_BATCH) -> int | None:
        """The batch from which computing a decode step takes longer than reading it.

        None: no batch up to `largest_batch` does, as where each request's K and V are so many that
        reading them takes longer than its share of the products.
        """
        not_below("largest_batch", largest_batch, 1, "a step has at least one request")

        def computes(batch: int) -> bool:
            parts = self.decode_step(batch, context_tokens).parts
            return parts.compute_s >= parts.bandwidth_s

        # Operations per byte only grow with the batch, so the knee can be closed in on.
        low, high = 0, largest_batch
        if not computes(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if computes(middle):
                high = middle
            else:
                low = middle
        return high

    def speculation(
        self,
        draft: SpeedModel,
        acceptance: float,
        draft_tokens: int,
        context_tokens: int,
        largest_batch: int = 256,
    ) -> PayingBatches:
        """Speculative decoding with a draft model, its time and this one's by batch."""
        return paying_batches(
            acceptance,
            draft_tokens,
            largest_batch,
            lambda batch, tokens: self.decode_step(batch, context_tokens, tokens).seconds,
            lambda batch, tokens: draft.decode_step(batch, context_tokens, tokens).seconds,
        )

    def at(self, end: End) -> SpeedModel:
        """The same with efficiencies at one of their ends."""
        efficiencies = self.setup.efficiencies.at(end)
        return SpeedModel(replace(self.setup, efficiencies=efficiencies))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a result is computed with, beside its inputs."""
        setup = self.setup
        bandwidth, compute = setup.efficiencies.bandwidth, setup.efficiencies.compute
        basis = setup.efficiencies.basis
        said = [
            "TTFT is prefill alone, and E2E begins with it: a served request also waits in the "
            "queue, for the step that runs, for the host and for the network (`headrace plan "
            "simulate` adds the queue, `headrace bench load` measures all of it)",
            "a prompt is prefilled with nothing else in the step",
            f"{basis}: {setup.efficiencies.origin}" if setup.efficiencies.origin else basis,
        ]
        if setup.efficiencies.rates is None:
            of = "what was measured here" if setup.efficiencies.of_measured else "the data sheet"
            said += [
                f"bandwidth reached is {_range(bandwidth.low, bandwidth.value, bandwidth.high)} of "
                f"{of} ({bandwidth.source})",
                f"compute reached is {_range(compute.low, compute.value, compute.high)} of "
                f"{of} ({compute.source})",
            ]
        if setup.efficiencies.decode_spreads:
            said.append(
                "the band of TPOT is as wide as the errors of eight in ten plans against "
                "published measurements at such batches (published-tpot-to-batch-N)"
            )
        if setup.efficiencies.operation_s:
            said.append(
                f"a step launches {_KERNELS_PER_LAYER} kernels a layer, each of at least "
                f"{setup.efficiencies.operation_s * 1e6:g} us"
            )
        if setup.shape.moe:
            said.append("experts are chosen uniformly; skewed routing touches fewer")
        if setup.parallelism.devices > 1:
            said.append("transfers over links do not overlap with computation")
            link = setup.device.link
            if link is not None and link.latency_source:
                said.append(f"the link's latency is {link.latency_s * 1e6:g} us "
                            f"({link.latency_source})")  # fmt: skip
        if setup.parallelism.pipeline > 1:
            said.append("each pipeline stage holds as many layers and works on as many requests")
        return (*said, *setup.shape.notes)

    def _passes(self, load: Load) -> tuple[PassTime, PassTime]:
        return (
            self.prefill(load.prompt_tokens, load.cached_tokens),
            self.decode_step(load.batch, load.middle_context_tokens),
        )

    def _time(self, work: StepWork, tokens: int) -> StepTime:
        rates = self.setup.efficiencies.rates
        if rates is not None:
            sent_s = self._communication_s(tokens)
            return rates.time(work, sent_s, self.setup.parallelism.tensor)
        is_cached = work.work.bytes <= self.setup.device.cached_bytes
        roofline = self._roofline if is_cached else self._beyond_caches
        return roofline.time(work.work, self._communication_s(tokens))

    def _communication_s(self, tokens: int) -> float:
        shape = self.setup.shape
        return communication(
            self.setup.device,
            self.setup.parallelism,
            tokens=tokens,
            hidden_size=shape.hidden_size,
            layers=shape.num_layers,
            expert_layers=sum(layer.count for layer in shape.moe),
            experts_per_token=max((layer.experts_per_token for layer in shape.moe), default=0),
            activation_bytes=self.setup.activation_bytes,
        ).seconds


def e2e_s(ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """TTFT + TPOT · (output tokens − 1): the first token is TTFT's."""
    not_below("output_tokens", output_tokens, 1, "a request has at least one output token")
    return ttft_s + tpot_s * (output_tokens - 1)


def _band(best_s: float, value_s: float, worst_s: float) -> Band:
    return Band(best_s=best_s, value_s=value_s, worst_s=worst_s)


def _range(low: float, value: float, high: float) -> str:
    return f"{value:.0%}" if low == high else f"{value:.0%} ({low:.0%} to {high:.0%})"
