"""Whether all experts of a model are packed at load and, if not, how large the cache of them is.

Experts that do not fit in memory stay in the mapped file, and a cache holds those that were packed
last. What every token needs cannot stay there: where that is larger than what is available, the
load is refused before it begins. Only the headers of the file are read; docs/engine.md says more.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.config.settings import EngineConfig
from headrace.engine.memory.kv_memory import (
    DEFAULT_SHARE,
    MIB,
    REST_BYTES,
    block_bytes_of,
    blocks_of_request,
    kinds_of,
)
from headrace.engine.memory.stored_shape import StoredShape, stored_shape
from headrace.engine.memory.weight_memory import (
    check_weights_fit,
    copied_bytes,
    copied_tensors,
    known_available,
)
from headrace.errors import ConfigError
from headrace.models import DecoderConfig, read_config
from headrace.ops.packed_size import packed_bytes
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.tensors.tensor import Tensor

LEAST_TOKENS = 1000
"""Where no length is set, a request of so many tokens has to fit beside the weights before
all experts are packed at load."""

PASS_BYTES = 256 * MIB
"""Of rows that the experts of a layer are given at a time, at most (native/experts.cpp)."""

LOAD_BYTES = 16 * MIB
"""Of threads, tokenizers and Python, which loading takes beside weights."""

_EXPERT = re.compile(r"(?P<layer>.+\.experts)\.(?P<number>\d+)\.(?P<part>.+)")
_DOWN = ("down_proj.", "w2.")
"""How the names of the second product begin; those of the first are computed as one matrix."""


class WeightPlan(NamedTuple):
    """The memory that weights take, in bytes as the kernels hold them.

    All 0 where that is not counted before loading: models without experts, other backends than the
    kernels.
    """

    dense_bytes: int = 0
    """Of all but the experts that a router chooses from."""
    expert_bytes: int = 0
    """Of those experts, whether or not there is room for all."""
    scratch_bytes: int = 0
    """Of the rows that a step hands to experts."""
    expert_cache_bytes: int | None = None
    """Of the cache of experts; None packs all of them at load."""
    cpu_layers: int = 0
    """Layers, from the first on, whose experts the CPU computes beside a device, whose memory is
    none of the above; ALL_LAYERS for those of all."""

    @property
    def loaded_bytes(self) -> int:
        """Of what is there once the model is loaded."""
        return self.dense_bytes + (self.expert_bytes if self.expert_cache_bytes is None else 0)

    @property
    def reserved_bytes(self) -> int:
        """Of what steps take, after the KV cache was sized."""
        return self.scratch_bytes + (self.expert_cache_bytes or 0)


class PlannedModel(NamedTuple):
    """A model to be loaded, and the settings that its KV cache and steps follow from."""

    checkpoint: Checkpoint
    config: EngineConfig


def plan_weights(
    checkpoint: Checkpoint, config: EngineConfig, available_bytes: int | None = None
) -> WeightPlan:
    """What the weights take, and the size of the cache of experts.

    available_bytes: of memory; looked up when None, and where that cannot be told nothing is
    refused and all is packed at load. Raises ConfigError where the weights do not fit, and for an
    --expert-cache-memory-bytes that is too small or too large.
    """
    return plan_together([PlannedModel(checkpoint, config)], available_bytes)


def plan_together(
    models: Sequence[PlannedModel], available_bytes: int | None = None, beside_bytes: int = 0
) -> WeightPlan:
    """The same of models that one backend holds at a time, with one cache of experts for all.

    Its size, where one is chosen, is that of the first model's settings. beside_bytes: of weights
    that are no model by themselves, as a head's.
    """
    available = known_available(available_bytes)
    if available is not None:
        available = max(0, available - beside_bytes)
    needs = [Needs.of(*model) for model in models]
    if not any(item.expert_bytes for item in needs):
        for checkpoint, config in models:
            check_weights_fit(checkpoint, config.backend, available)
            if available is not None:
                available = max(0, available - copied_bytes(checkpoint))
        return WeightPlan()
    together = functools.reduce(Needs.beside, needs)
    room = None if available is None else max(0, available - REST_BYTES)
    return WeightPlan(
        together.dense_bytes,
        together.expert_bytes,
        together.scratch_bytes,
        cache_bytes(together, models[0].config.expert_cache_memory_bytes, room),
    )


def scratch_bytes(config: DecoderConfig, step_tokens: int) -> int:
    """Bytes of the rows that a step of so many tokens hands to experts, about; docs/kernels.md.

    Of each pair of a token and one of its experts: rows of gate and up or of the result, the row
    between the products, and the row as it is rounded.
    """
    experts = config.experts
    if experts is None:
        return 0
    mixtures = (
        (experts.routing.experts_per_token, experts.intermediate_size),
        (1, experts.shared_size),
    )
    hidden = config.hidden_size
    largest = 0
    for chosen, inner in mixtures:
        pair = 4 * (max(2 * inner, hidden) + inner + 2 * hidden)
        tokens = min(step_tokens, max(1, PASS_BYTES // (pair * chosen)))
        largest = max(largest, tokens * chosen * pair)
    return largest


@dataclass(frozen=True)
class KVNeeds:
    """The memory of a KV cache, in bytes."""

    least_bytes: int
    """Of the smallest one that serves what is set."""
    share: int
    """One part in so many of what is left goes to it; 1 where its size is set."""

    @classmethod
    def of(cls, shape: StoredShape, config: EngineConfig) -> KVNeeds:
        kinds = kinds_of(config, shape.weight_codec)
        layout = shape.cache_layout.stored_as(kinds)
        block_bytes = block_bytes_of(layout, kinds, config)
        if config.num_gpu_blocks_override is not None:
            return cls(config.num_gpu_blocks_override * block_bytes, 1)
        if config.kv_cache_memory_bytes is not None:
            return cls(config.kv_cache_memory_bytes, 1)
        length = config.max_model_len or min(shape.max_positions, LEAST_TOKENS)
        blocks = blocks_of_request(layout, config, length)
        return cls(blocks * block_bytes, DEFAULT_SHARE)

    def beside(self, other: KVNeeds) -> KVNeeds:
        """Of two models."""
        return KVNeeds(self.least_bytes + other.least_bytes, max(self.share, other.share))

    def beside_all(self) -> int:
        """What has to be left beside all weights, so that its share of that is enough."""
        return self.least_bytes * self.share

    def of_left(self, left_bytes: int) -> int:
        """What it takes where so much is left for it and for experts."""
        if self.share == 1:
            return self.least_bytes
        return max(self.least_bytes, left_bytes // self.share)


@dataclass(frozen=True)
class Needs:
    """The memory of the parts of a model, in bytes as the kernels hold them."""

    path: str
    dense_bytes: int
    expert_bytes: int
    """0 for a model without experts; no other part but the dense ones is counted then."""
    largest_bytes: int
    """Of the largest matrix of one expert: less than that no cache can be."""
    scratch_bytes: int
    kv: KVNeeds

    @classmethod
    def of(cls, checkpoint: Checkpoint, config: EngineConfig) -> Needs:
        tensors = copied_tensors(checkpoint)
        experts = routed_experts(tensors) if config.backend in ("auto", "cpu") else {}
        dense = sum(packed_size(tensor) for name, tensor in tensors.items() if name not in experts)
        path = str(checkpoint.path)
        if not experts:
            return cls(path, dense, 0, 0, 0, KVNeeds(0, 1))
        decoder = read_config(checkpoint, ignore_config_keys=config.ignore_config_keys)
        return cls(
            path=path,
            dense_bytes=dense,
            expert_bytes=sum(packed_size(tensor) for tensor in experts.values()),
            largest_bytes=largest_matrix(experts),
            scratch_bytes=scratch_bytes(decoder, config.max_num_batched_tokens),
            kv=KVNeeds.of(stored_shape(checkpoint, decoder), config),
        )

    def beside(self, other: Needs) -> Needs:
        """Of both models; rows of steps belong to the backend and are those of the larger."""
        return Needs(
            path=self.path if self.path == other.path else f"{self.path} and {other.path}",
            dense_bytes=self.dense_bytes + other.dense_bytes,
            expert_bytes=self.expert_bytes + other.expert_bytes,
            largest_bytes=max(self.largest_bytes, other.largest_bytes),
            scratch_bytes=max(self.scratch_bytes, other.scratch_bytes),
            kv=self.kv.beside(other.kv),
        )


def cache_bytes(needs: Needs, chosen_bytes: int | None, room: int | None) -> int | None:
    """The size of the cache; None where all experts are packed at load.

    chosen_bytes: --expert-cache-memory-bytes, None for auto. room: memory for weights, KV cache
    and steps, None where it is not known.
    """
    largest = needs.largest_bytes
    if chosen_bytes is not None and chosen_bytes < largest:
        raise ConfigError(
            f"--expert-cache-memory-bytes is {chosen_bytes}; one matrix of an expert of this model "
            f"takes {largest} bytes. Use --expert-cache-memory-bytes {largest} or more, or auto"
        )
    # More than all of them would not be used.
    size = None if chosen_bytes is None else min(chosen_bytes, needs.expert_bytes)
    if room is None:
        return size
    left = room - needs.dense_bytes - needs.scratch_bytes
    if size is None and needs.expert_bytes + needs.kv.beside_all() <= left:
        return None
    if left < largest:
        raise _does_not_fit(needs, room)
    if size is None:
        # Never less than one matrix: a KV cache too large beside that is refused with its own flag.
        return max(largest, less_margin(left - needs.kv.of_left(left)))
    most = left - needs.kv.least_bytes
    if size > most:
        fitting = less_margin(most)
        remedy = "Use --expert-cache-memory-bytes auto, or a smaller KV cache"
        if fitting >= largest:
            remedy = f"Use --expert-cache-memory-bytes {fitting} or less, or auto"
        raise ConfigError(
            f"--expert-cache-memory-bytes is {chosen_bytes}; beside "
            f"{needs.dense_bytes} bytes of other weights, {needs.scratch_bytes} of the rows of a "
            f"step and {needs.kv.least_bytes} of KV cache, {max(0, most)} bytes "
            f"({max(0, most) // MIB} MiB) of memory are available. {remedy}"
        )
    return size


def less_margin(num_bytes: int) -> int:
    """What is left of so much once loading has taken what headers do not show: a sixteenth, at
    least LOAD_BYTES, at most half.
    """
    left = max(0, num_bytes)
    return left - max(left // 16, min(left // 2, LOAD_BYTES))


def _does_not_fit(needs: Needs, room: int) -> ConfigError:
    dense, scratch = needs.dense_bytes, needs.scratch_bytes
    return ConfigError(
        f"{needs.path}: without its experts, which may stay in the file, the weights "
        f"take {dense} bytes ({dense // MIB} MiB), the rows of a step {scratch} and one matrix of "
        f"an expert {needs.largest_bytes}; {room} bytes ({room // MIB} MiB) of memory are "
        "available for them. Free memory, lower --max-num-batched-tokens, or use the same model "
        "as a GGUF file in a smaller kind"
    )


def routed_experts(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Matrices of experts that a router chooses from; the only one of a layer is not.

    Biases of experts are with the other weights: the kernels hold all of them.
    """
    found = {
        name: match
        for name, tensor in tensors.items()
        if len(tensor.shape) == 2 and (match := _EXPERT.fullmatch(name))
    }
    several = {match["layer"] for match in found.values() if int(match["number"]) > 0}
    return {name: tensors[name] for name, match in found.items() if match["layer"] in several}


def largest_matrix(experts: dict[str, Tensor]) -> int:
    """Bytes of the largest matrix of one expert, gate and up being one."""
    first: dict[tuple[str, str], list[Tensor]] = {}
    largest = 0
    for name, tensor in experts.items():
        match = _EXPERT.fullmatch(name)
        assert match is not None, "they were found by it"
        if match["part"].startswith(_DOWN):
            largest = max(largest, packed_size(tensor))
        else:
            first.setdefault((match["layer"], match["number"]), []).append(tensor)
    for parts in first.values():
        rows = sum(part.shape[0] for part in parts)
        largest = max(largest, packed_bytes(parts[0].codec, rows, parts[0].shape[-1]))
    return largest


def packed_size(tensor: Tensor) -> int:
    """Bytes of a tensor as the kernels hold it."""
    if len(tensor.shape) != 2:
        return tensor.nbytes
    return packed_bytes(tensor.codec, *tensor.shape)
