"""What a model needs of each device under a load, by component, and what is left for KV.

Weights are split over devices by tensor parallelism. Every component is a figure with formula,
inputs and band; the sums keep the bands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.catalog import Catalog
from headrace.catalog.rows import Quantization
from headrace.errors import ConfigError
from headrace.plan.machine.hardware_memory import DeviceMemory, constant, constant_span
from headrace.plan.memory.draft import Draft
from headrace.plan.memory.kv_cache import KvCache, KvKind
from headrace.plan.memory.weights_memory import weights_quantity
from headrace.plan.model.model_shape import ModelShape
from headrace.plan.quantity import Input, Quantity, total

DEFAULT_STEP_TOKENS = 2048
_ACTIVATION_BYTES = 2
_LOGIT_BYTES = 4
# Devices from which a coefficient of the catalog holds.
_COEFFICIENTS = (
    (4, "activation-coefficient-4"), (2, "activation-coefficient-2"), (1, "activation-coefficient"),
)  # fmt: skip


@dataclass(frozen=True)
class Load:
    """The load to serve: `users` requests at once, each of `context_tokens` in all."""

    context_tokens: int
    users: int = 1
    step_tokens: int = DEFAULT_STEP_TOKENS
    """Maximum tokens of one step of the engine, which bounds activations."""

    def __post_init__(self) -> None:
        for name in ("context_tokens", "users", "step_tokens"):
            if (value := getattr(self, name)) < 1:
                raise ConfigError(f"{name} is {value}; it must be a whole number >= 1")


@dataclass(frozen=True)
class Storage:
    """The storage types of weights and of the KV cache."""

    weights: Quantization | None
    """None: as the header states."""
    keys: KvKind
    values: KvKind
    block_tokens: int = 16
    sliding: KvKind | None = None
    """Of keys and values in layers with a window, where it is another."""


@dataclass(frozen=True)
class MemoryPlan:
    """Figures in bytes, all of one device but `all_weights`, which is of all together.

    components: add up to `needed`. free_for_kv: what is left when the cache is not counted; it is
    below 0 where the rest alone is too much.
    """

    place: DeviceMemory
    cache: KvCache
    all_weights: Quantity
    components: tuple[Quantity, ...]
    needed: Quantity
    usable: Quantity
    free_for_kv: Quantity

    @property
    def fits(self) -> bool:
        """Whether what is needed, by the middle of its band, is not above what is usable."""
        return self.needed.value <= self.usable.value

    @property
    def fits_surely(self) -> bool:
        """The same by the upper end of the band."""
        return self.needed.band[1] <= self.usable.value

    @property
    def missing_bytes(self) -> float:
        """How much too much it is on each device; 0 where it fits."""
        return max(0.0, self.needed.value - self.usable.value)


def memory_plan(
    catalog: Catalog,
    shape: ModelShape,
    place: DeviceMemory,
    storage: Storage,
    load: Load,
    draft: Draft | None = None,
) -> MemoryPlan:
    """The memory of `shape` on each device of `place` under `load`, with that of its draft.

    Raises ConfigError where the weights' storage is not known.
    """
    cache = KvCache(
        shape, storage.keys, storage.values, storage.block_tokens, place.devices, storage.sliding
    )
    weights = weights_quantity(shape, storage.weights, catalog)
    share = _share_of_weights(weights, place.devices)
    kv = _kv(cache, load)
    of_draft: tuple[Quantity, ...] = ()
    if draft is not None:
        # Its layers may have no window, whatever the model's are stored in.
        drafts = KvCache(
            draft.shape, storage.keys, storage.values, storage.block_tokens, 1, storage.sliding
        )
        cache = replace(cache, draft=drafts)
        of_draft = (draft.weights, _draft_kv(draft, drafts, load))
    activations = _activations(catalog, shape, place, load)
    runtime = _runtime(catalog, place)
    usable = Quantity(
        "usable", "usable memory", place.memory_bytes * place.usable_share, "byte", "M3",
        place.inputs,
    )  # fmt: skip
    parts = (share, kv, *of_draft, activations, runtime)
    needed = total("needed", "needed", parts, "M7")
    others = (share, *of_draft[:1], activations, runtime)
    fixed = total("fixed", "without KV", others, "M7")
    free = Quantity(
        id="free-for-kv",
        name="free for KV",
        value=usable.value - fixed.value,
        unit="byte",
        formula="M4",
        inputs=tuple(_as_input(one) for one in (usable, *others)),
        low=usable.value - fixed.band[1],
        high=usable.value - fixed.band[0],
    )
    return MemoryPlan(place, cache, weights, parts, needed, usable, free)


def _share_of_weights(weights: Quantity, devices: int) -> Quantity:
    if devices == 1:
        return weights
    low, high = weights.band
    return Quantity(
        "weights-per-device", f"{weights.name}, of {devices} devices", weights.value / devices,
        "byte", "M11",
        (_as_input(weights), Input("devices", devices, "", "--hardware and --count", "given")),
        low / devices, high / devices,
    )  # fmt: skip


def _kv(cache: KvCache, load: Load) -> Quantity:
    shape = cache.shape
    kinds = cache.keys.name
    if cache.values.name != cache.keys.name:
        kinds = f"{cache.keys.name} keys, {cache.values.name} values"
    if cache.sliding is not None:
        kinds += f", {cache.sliding.name} in layers with a window"
    inputs = [
        Input(
            f"{layer.count} layers of {layer.kind.upper()}"
            + (f", window {layer.window_tokens:,}" if layer.window_tokens else ""),
            layer.values_per_token, "values/token", shape.origin, "exact", shape.as_of,
        )
        for layer in shape.keeping
    ]  # fmt: skip
    inputs += [
        Input(
            f"{one.count} layers with a state", 4 * one.state_values + 2 * one.conv_values,
            "byte/request", shape.origin, "exact", shape.as_of,
        )
        for one in shape.states
    ]  # fmt: skip
    inputs += [
        Input("bits of a key", cache.keys.bits, "bits", cache.keys.source, "exact"),
        Input("bits of a value", cache.values.bits, "bits", cache.values.source, "exact"),
        *_of_windows(cache),
        Input("tokens of a block", cache.block_tokens, "tokens", "--block-size", "given"),
        Input("context", load.context_tokens, "tokens", "--context", "given"),
        Input("users", load.users, "requests", "--users", "given"),
    ]
    if cache.devices > 1:
        inputs.append(Input("devices", cache.devices, "", "--hardware and --count", "given"))
    value = load.users * cache.request_bytes(load.context_tokens)
    return Quantity("kv", f"KV cache, {kinds}", value, "byte", "F7", tuple(inputs))


def _draft_kv(draft: Draft, cache: KvCache, load: Load) -> Quantity:
    shape = draft.shape
    tokens = min(load.context_tokens, shape.context_tokens or load.context_tokens)
    inputs = (
        Input("KV of a token of the draft", cache.bytes_per_token, "byte/token", shape.origin,
              "exact", shape.as_of),
        Input("tokens of a block", cache.block_tokens, "tokens", "--block-size", "given"),
        Input("context of the draft", tokens, "tokens", "--context", "given"),
        Input("users", load.users, "requests", "--users", "given"),
    )  # fmt: skip
    value = load.users * cache.request_bytes(tokens)
    return Quantity("draft-kv", f"KV cache of {draft.name}", value, "byte", "F7", inputs)


def _of_windows(cache: KvCache) -> list[Input]:
    if cache.sliding is None:
        return []
    bits, source = cache.sliding.bits, cache.sliding.source
    return [Input("bits of either in layers with a window", bits, "bits", source, "exact")]


def _activations(catalog: Catalog, shape: ModelShape, place: DeviceMemory, load: Load) -> Quantity:
    id = next(id for devices, id in _COEFFICIENTS if place.devices >= devices)
    coefficient, input = constant(catalog, id)
    error, error_input = constant(catalog, "activation-error")
    step = load.step_tokens * coefficient * shape.hidden_size * _ACTIVATION_BYTES
    logits = load.users * shape.vocabulary_tokens * _LOGIT_BYTES
    value = step + logits
    return Quantity(
        id="activations",
        name="activations and logits",
        value=value,
        unit="byte",
        formula="M2",
        inputs=(
            input,
            error_input,
            Input("tokens per step", load.step_tokens, "tokens", "--step-tokens", "given"),
            Input("hidden size", shape.hidden_size, "", shape.origin, "exact", shape.as_of),
            Input("vocabulary", shape.vocabulary_tokens, "tokens", shape.origin, "exact"),
            Input("users", load.users, "requests", "--users", "given"),
        ),
        low=value - error * step,
        high=value + error * step,
    )


def _runtime(catalog: Catalog, place: DeviceMemory) -> Quantity:
    id = "gpu-runtime-memory" if place.kind == "gpu" else "cpu-runtime-memory"
    value, input = constant(catalog, id)
    low, high = constant_span(catalog, id)
    inputs = [input]
    if place.devices > 1:
        _, input = constant(catalog, "nccl-memory")
        two, more = constant_span(catalog, "nccl-memory")
        buffers = two if place.devices == 2 else more
        value, low, high = value + buffers, low + buffers, high + buffers
        inputs.append(input)
    return Quantity("runtime", "runtime", value, "byte", "M8", tuple(inputs), low, high)


def _as_input(figure: Quantity) -> Input:
    return Input(figure.name, figure.value, figure.unit, f"figure {figure.id}", "given")
