"""Bytes of keys, values and states: per token, per request, for requests together.

Formula F7 with its exceptions: 2 · layers · KV heads · head size · bytes, but latent attention
keeps one vector a token (no factor 2), windows end what a layer keeps, and recurrent layers keep a
state whatever the length. A request holds whole blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.catalog import Catalog
from headrace.errors import ConfigError
from headrace.plan.model.layer_shape import AttentionLayers
from headrace.plan.model.model_shape import ModelShape
from headrace.weights.codecs import CODECS

DEFAULT_BLOCK_TOKENS = 16
_STATE_BYTES = 4
_CONV_BYTES = 2
# Names that runtimes give to kinds the catalog has under another.
_SAME = {"fp8": "kv-fp8", "fp8e4m3": "kv-fp8", "int8": "kv-int8", "int4": "kv-int4"}
# A scale of four bytes for each token of a head, as the engine here has and vLLM under these names.
_PER_HEAD = {"int8_per_token_head": 8, "int4_per_token_head": 4}
_HEAD_SCALE_BYTES = 4
_FLOATS = {"fp16": "F16", "float16": "F16", "bfloat16": "BF16", "fp32": "F32", "float32": "F32"}
_CODECS = ("F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "IQ4_NL")


@dataclass(frozen=True)
class KvKind:
    """A storage type of cached keys and values."""

    name: str
    bits: float
    """Bits of one value, with its share of scales."""
    source: str
    """The format's block layout, or the row of the catalog."""
    as_of: str = ""
    head_scale_bytes: int = 0
    """Of each token of a head, beside the bits of its values."""

    @property
    def bytes_per_value(self) -> float:
        """2 for F16, 0.5625 for Q4_0; without the scales of heads."""
        return self.bits / 8

    def mean_bytes_per_value(self, shape: ModelShape) -> float:
        """Of a value of the layers that are read, with the scales of their heads."""
        values = sum(layer.count * layer.key_values_per_token for layer in shape.attention)
        heads = sum(layer.count * layer.stored_heads for layer in shape.attention)
        return self.bytes_per_value + (self.head_scale_bytes * heads / values if values else 0.0)


def kv_kind(name: str, catalog: Catalog) -> KvKind:
    """The kind called `name`: a float or block format, or a KV kind of the catalog ("fp8").

    Raises ConfigError with the names there are.
    """
    codec = _FLOATS.get(name.lower(), name.upper())
    if codec in _CODECS:
        return KvKind(codec, CODECS[codec].bits_per_weight, f"block layout of {codec}")
    if name.lower() in _PER_HEAD:
        note = "with a scale of four bytes for each token of a head"
        return KvKind(name.lower(), _PER_HEAD[name.lower()], note, "", _HEAD_SCALE_BYTES)
    row = catalog.quantizations.find(_SAME.get(name.lower().replace("_", ""), name))
    if row is None or row.family != "kv-cache" or row.bits_per_weight is None:
        names = ", ".join((*_CODECS, *sorted((*_SAME, *_PER_HEAD))))
        raise ConfigError(f"KV type {name!r} is not known; there are: {names}")
    fact = row.facts["bits_per_weight"]
    return KvKind(row.name, row.bits_per_weight, f"{row.id} ({fact.source})", str(fact.as_of))


@dataclass(frozen=True)
class KvCache:
    """The cache of a model under a choice of kinds.

    devices: that share the layers by tensor parallelism; figures are then of one device. KV heads
    are split among them and repeated where there are fewer heads than devices; a latent cache has
    no heads and is repeated on each; states are split.
    """

    shape: ModelShape
    keys: KvKind
    values: KvKind
    block_tokens: int = DEFAULT_BLOCK_TOKENS
    devices: int = 1
    sliding: KvKind | None = None
    """Of keys and values in layers with a window, where it is another."""
    draft: KvCache | None = None
    """The cache of a draft that each request has as well, as long as the draft was made for."""

    def __post_init__(self) -> None:
        for field, value in (("block_tokens", self.block_tokens), ("devices", self.devices)):
            if value < 1:
                raise ConfigError(f"{field} is {value}; it must be a whole number >= 1")

    @property
    def bytes_per_token(self) -> float:
        """Of one more token while it is inside every window; 0 of a model without attention."""
        return sum(layer.count * self.layer_token_bytes(layer) for layer in self.shape.keeping)

    @property
    def endless_bytes_per_token(self) -> float:
        """Of one more token beyond every window; 0 where the cache stops growing."""
        return sum(
            layer.count * self.layer_token_bytes(layer)
            for layer in self.shape.keeping
            if layer.window_tokens is None
        )

    @property
    def state_bytes(self) -> float:
        """Of one request whatever its length."""
        per_request = sum(
            one.count * (_STATE_BYTES * one.state_values + _CONV_BYTES * one.conv_values)
            for one in self.shape.states
        )
        return per_request / self.devices

    def tokens_kept(self, tokens: int, window_tokens: int | None = None) -> int:
        """Tokens for which a layer holds memory: those inside its window, in whole blocks."""
        kept = tokens if window_tokens is None else min(tokens, window_tokens)
        return -(-kept // self.block_tokens) * self.block_tokens

    def request_bytes(self, tokens: int) -> float:
        """Bytes of one request of `tokens`, prompt and output together, its draft's among them."""
        cached = sum(
            layer.count
            * self.layer_token_bytes(layer)
            * self.tokens_kept(tokens, layer.window_tokens)
            for layer in self.shape.keeping
        )
        own = cached + (self.state_bytes if tokens else 0)
        if self.draft is None:
            return own
        most = self.draft.shape.context_tokens or tokens
        return own + self.draft.request_bytes(min(tokens, most))

    def read_bytes(self, tokens: int) -> float:
        """Bytes that decoding one token after `tokens` reads: what is cached, without rounding."""
        cached = sum(
            layer.count * self.layer_token_bytes(layer) * min(tokens, layer.window_tokens or tokens)
            for layer in self.shape.attention
        )
        return cached + self.state_bytes

    def most_tokens(self, free_bytes: float, requests: int = 1, limit: int = 1 << 34) -> int:
        """The longest context, up to `limit`, that so many requests can each have.

        `limit` where memory does not grow with the context; 0 where not even a block fits.
        """
        share = free_bytes / requests
        if self.request_bytes(limit) <= share:
            return limit
        low, high = 0, limit  # request_bytes never falls, so halving finds the last that fits
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.request_bytes(middle) <= share else (low, middle)
        return low

    def most_requests(self, free_bytes: float, tokens: int) -> int:
        """How many requests of `tokens` fit together."""
        each = self.request_bytes(tokens)
        return int(free_bytes // each) if free_bytes > 0 and each else 0

    def layer_token_bytes(self, layer: AttentionLayers) -> float:
        """Of one token in one such layer."""
        heads = layer.stored_heads
        of_keys, of_values = self.keys, self.values
        if self.sliding is not None and layer.window_tokens is not None:
            of_keys = of_values = self.sliding
        keys = (
            layer.key_values_per_token * of_keys.bytes_per_value + heads * of_keys.head_scale_bytes
        )
        values = (
            layer.value_values_per_token * of_values.bytes_per_value
            + heads * of_values.head_scale_bytes
        )
        if layer.kind == "mla":
            return keys
        return (keys + values) * -(-layer.kv_heads // self.devices) / layer.kv_heads
