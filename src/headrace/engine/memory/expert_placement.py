"""How many layers have their experts on the processor, where a device computes the rest.

Two memories, one arithmetic: the device has to hold the tensors that stay there as they are stored,
what its steps take and the smallest KV cache that serves what is set; this machine has to hold the
experts that are placed, packed, or a cache of them beside the mapped file. Where nothing is said
the fewest layers are placed with which the device's part fits: none, where all of it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.config.settings import EngineConfig
from headrace.engine.memory.device_memory import step_bytes
from headrace.engine.memory.expert_memory import (
    KVNeeds,
    Needs,
    PlannedModel,
    WeightPlan,
    cache_bytes,
    largest_matrix,
    packed_size,
    plan_together,
    routed_experts,
    scratch_bytes,
)
from headrace.engine.memory.kv_memory import MIB, REST_BYTES
from headrace.engine.memory.stored_shape import stored_shape
from headrace.engine.memory.weight_memory import known_available
from headrace.errors import ConfigError
from headrace.models import read_config
from headrace.ops.placement import ALL_LAYERS, layer_of_expert
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.tensors.tensor import Tensor


def requested_layers(config: EngineConfig) -> int | None:
    """Layers whose experts the settings place on the processor; None where they leave it open.

    Raises ConfigError where they contradict each other, or the backend has no two places.
    """
    requested = config.n_cpu_moe
    if config.cpu_moe:
        if requested is not None:
            raise ConfigError(
                f"--cpu-moe places the experts of all layers and --n-cpu-moe those of {requested}: "
                "omit one of them"
            )
        requested = ALL_LAYERS
    if requested and config.backend == "reference":
        raise ConfigError(
            "--cpu-moe and --n-cpu-moe are for experts apart from the rest on a device, and "
            "--backend reference is one alone: omit them, or use --backend torch"
        )
    return requested


def plan_places(
    models: Sequence[PlannedModel],
    device_bytes: int | None,
    available_bytes: int | None = None,
    beside_bytes: int = 0,
) -> WeightPlan:
    """What the weights of models that are held at a time take, and where their experts are.

    device_bytes: of a device with memory of its own, for all there is, None where there is none.
    available_bytes: of this machine's memory; looked up when None. beside_bytes: of weights that
    are no model by themselves, as a head's. Raises ConfigError where they do not fit, and for
    settings that mean nothing for these models.
    """
    if models[0].config.backend == "torch":
        placed = place_experts(models, device_bytes, available_bytes, beside_bytes)
        if placed is not None:
            return placed
    elif requested_layers(models[0].config):
        _check_has_experts([model.checkpoint for model in models])
    room = available_bytes if device_bytes is None else device_bytes
    return plan_together(models, room, beside_bytes)


def place_experts(
    models: Sequence[PlannedModel],
    device_bytes: int | None,
    available_bytes: int | None = None,
    beside_bytes: int = 0,
) -> WeightPlan | None:
    """What weights take on a device and here; None where no expert is placed.

    models: of settings whose backend is torch, the first one's that place. device_bytes: of the
    device, for all there is; None where it computes in this machine's memory, in which nothing is
    placed unless the settings say so. available_bytes: of this machine; looked up when None.
    beside_bytes: of weights on the device that are no model by themselves. Raises ConfigError where
    either memory is too small and where there are no experts to place.
    """
    config = models[0].config
    requested = requested_layers(config)
    if requested == 0 or (requested is None and device_bytes is None):
        return None
    sizes = _Sizes.of(models, beside_bytes)
    if not sizes.layers:
        if requested:
            _check_has_experts([model.checkpoint for model in models])
        return None
    layers = requested
    if device_bytes is not None:
        room = max(0, device_bytes - REST_BYTES)
        least = sizes.least_layers(room)
        if requested is None:
            if least == 0:
                return None
            layers = ALL_LAYERS if least is None else least
        sizes.check_device(layers or 0, room)
    assert layers is not None, "without a device of its own it is set"
    here = known_available(available_bytes)
    return sizes.plan(layers, here, config, shared=device_bytes is None)


@dataclass(frozen=True)
class _Sizes:
    """The bytes of models by where they can be."""

    path: str
    rest_bytes: int
    """As stored: of all tensors but routed experts."""
    layers: dict[int, int]
    """By layer: of its routed experts as stored; ascending."""
    experts: dict[str, Tensor]
    """All routed experts, by model and name."""
    step_bytes: int
    """Of a step on the device, at most."""
    scratch_bytes: int
    """Of the rows that a step hands to experts here."""
    kv: KVNeeds

    @classmethod
    def of(cls, models: Sequence[PlannedModel], beside_bytes: int) -> _Sizes:
        rest, steps, scratch, kv = beside_bytes, 0, 0, KVNeeds(0, 1)
        layers: dict[int, int] = {}
        experts: dict[str, Tensor] = {}
        for number, (checkpoint, config) in enumerate(models):
            tensors = dict(checkpoint.tensors)
            routed = routed_experts(tensors)
            rest += sum(item.nbytes for name, item in tensors.items() if name not in routed)
            for name, tensor in routed.items():
                layer = layer_of_expert(name) or 0
                layers[layer] = layers.get(layer, 0) + tensor.nbytes
                experts[f"{number}.{name}"] = tensor
            if not routed and number == 0:
                continue
            decoder = read_config(checkpoint, ignore_config_keys=config.ignore_config_keys)
            vocab = decoder.vocab_size or _most_rows(checkpoint)
            shape = stored_shape(checkpoint, decoder)
            # The steps of a draft are not recorded.
            tables = 0 if number else shape.cache_layout.num_tables
            steps += step_bytes(decoder, vocab, config, recorded_tables=tables)
            scratch = max(scratch, scratch_bytes(decoder, config.max_num_batched_tokens))
            kv = kv.beside(KVNeeds.of(shape, config))
        names = dict.fromkeys(str(model.checkpoint.path) for model in models)
        ordered = dict(sorted(layers.items()))
        return cls(" and ".join(names), rest, ordered, experts, steps, scratch, kv)

    def on_device(self, layers: int) -> int:
        """Bytes of weights that stay on the device with the experts of so many layers here."""
        return self.rest_bytes + sum(n for layer, n in self.layers.items() if layer >= layers)

    def least_layers(self, room: int) -> int | None:
        """The fewest layers with which the device's part fits; None where none of them is."""
        return self._fewest(room - self.step_bytes - self.kv.least_bytes)

    def _fewest(self, weights: int) -> int | None:
        """The fewest layers with which no more weights than these stay on the device."""
        counts = (0, *(layer + 1 for layer in self.layers))
        return next((n for n in counts if self.on_device(n) <= weights), None)

    def check_device(self, layers: int, room: int) -> None:
        """Raise ConfigError where the weights that stay are larger than the room for them; a KV
        cache that does not fit beside them is refused with its own flags when it is planned."""
        needed = self.on_device(layers)
        if needed <= room:
            return
        least = self.least_layers(room) or self._fewest(room)
        if least is None:
            remedy = "Use the same model in a smaller kind, or a larger --gpu-memory-utilization"
            which = "even with the experts of all layers on the CPU"
        else:
            remedy = f"Use --n-cpu-moe {least} or more, or neither it nor --cpu-moe"
            which = f"with --n-cpu-moe {layers}"
        raise ConfigError(
            f"{self.path}: {which} the weights on the device take {needed} bytes "
            f"({needed // MIB} MiB) and {room} bytes ({room // MIB} MiB) of it are available for "
            f"them. {remedy}"
        )

    def plan(
        self, layers: int, available: int | None, config: EngineConfig, *, shared: bool
    ) -> WeightPlan:
        """What is taken, with the experts of so many layers here. shared: one memory for all."""
        placed = {
            name: tensor
            for name, tensor in self.experts.items()
            if (layer_of_expert(tensor.name) or 0) < layers
        }
        expert_bytes = sum(map(packed_size, placed.values()))
        dense = self.on_device(layers) if shared else 0
        needs = Needs(
            path=self.path,
            dense_bytes=dense,
            expert_bytes=expert_bytes,
            largest_bytes=largest_matrix(placed),
            scratch_bytes=self.scratch_bytes,
            kv=self.kv if shared else KVNeeds(0, 1),
        )
        room = None if available is None else max(0, available - REST_BYTES)
        return WeightPlan(
            dense,
            expert_bytes,
            self.scratch_bytes,
            cache_bytes(needs, config.expert_cache_memory_bytes, room) if placed else None,
            layers,
        )


def _check_has_experts(checkpoints: Sequence[Checkpoint]) -> None:
    if not any(routed_experts(dict(checkpoint.tensors)) for checkpoint in checkpoints):
        raise ConfigError(
            f"{checkpoints[0].path} has no experts that a router chooses from: omit --cpu-moe and "
            "--n-cpu-moe"
        )


def _most_rows(checkpoint: Checkpoint) -> int:
    """Rows of the largest table, where the config does not state a vocabulary."""
    return max((tensor.shape[0] for tensor in checkpoint.tensors.values()), default=1)
