"""What every model offers the engine: facts about itself, and one forward pass.

Its weights are immutable once loaded; the KV cache is handed in with each step. It knows token ids
and positions, not requests or text. A family states how its config is read and what its layer is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from headrace.models.config_reader import ConfigReader
from headrace.models.loader import Loader
from headrace.models.rope import RopeConfig
from headrace.ops.interface import (
    Array,
    AttentionShape,
    KVCacheArrays,
    KVCacheSpec,
    KVCodec,
    Ops,
    RaggedBatch,
    RopeTable,
)

FIRST_ROPE_POSITIONS = 4096
"""Positions of the first rope table: 1 MiB at a head_dim of 64, made in a few milliseconds."""


@dataclass(frozen=True)
class DecoderConfig:
    """What a decoder's config says, in our words. Widths in values, lengths in tokens.

    vocab_size: None where the file does not state it; the embedding's rows are then taken.
    attention_bias, mlp_bias, tied: None where the file does not say; what it holds then decides.
    """

    model_type: str
    vocab_size: int | None
    hidden_size: int
    intermediate_size: int
    num_layers: int
    attention: AttentionShape
    rope: RopeConfig
    max_positions: int
    rms_norm_eps: float
    attention_bias: bool | None = None
    mlp_bias: bool | None = None
    tied: bool | None = None

    @property
    def attention_width(self) -> int:
        """Values in the output of all heads."""
        return self.attention.num_heads * self.attention.head_dim


def read_attention(reader: ConfigReader, heads: int, head_dim: int) -> AttentionShape:
    """Grouped attention with the usual scale; checks what has to divide what."""
    kv_heads = reader.size("num_key_value_heads", heads)
    if heads % kv_heads:
        reader.refuse("num_key_value_heads", kv_heads, f"divisors of num_attention_heads {heads}")
    if head_dim % 2:
        reader.refuse("head_dim", head_dim, "even numbers, which rotation needs")
    return AttentionShape(heads, kv_heads, head_dim, scale=head_dim**-0.5)


class Layer(ABC):
    """One decoder layer: reads its weights when made, runs when called."""

    @abstractmethod
    def __init__(self, config: DecoderConfig, loader: Loader, index: int) -> None: ...

    @abstractmethod
    def __call__(
        self, ops: Ops, x: Array, rope: RopeTable, kv: KVCacheArrays, batch: RaggedBatch
    ) -> Array:
        """The residual stream f32[N, hidden] after this layer; its K and V are in the cache."""


class Model(ABC):
    """A decoder: embedding, layers, final norm, lm_head.

    vocab_size: width of the logits, rows of padding included. max_positions: the model's own
    limit, from its config. weight_codec: the codec most bytes of matrices are stored in.
    weight_bytes: all tensors as stored. step_weight_bytes: those that every step reads in full,
    which leaves out an embedding table that is only looked up.
    """

    layer_type: ClassVar[type[Layer]]

    @staticmethod
    @abstractmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        """The config in our words; raises UnsupportedModelError for what is not implemented."""

    def __init__(
        self, config: DecoderConfig, ops: Ops, loader: Loader, *, max_positions: int
    ) -> None:
        hidden, head_dim = config.hidden_size, config.attention.head_dim
        rows = config.vocab_size or loader.embedding_rows()
        divisors = loader.optional_vector("rope_freqs.weight", head_dim // 2)
        self._ops = ops
        self._frequencies = config.rope.frequencies(head_dim, divisors)
        self._longest = max_positions
        self._rope: RopeTable | None = None
        self._rope_positions = 0
        self._embedding = loader.embedding(rows, hidden)
        self._layers = [self.layer_type(config, loader, i) for i in range(config.num_layers)]
        self._norm = loader.norm("model.norm.weight", hidden, config.rms_norm_eps)
        self._head = loader.head(rows, hidden, tied=config.tied)

        self.config = config
        self.vocab_size = rows
        self.weight_codec = loader.dominant_codec
        self.weight_bytes = loader.total_bytes
        self.step_weight_bytes = loader.step_bytes

    @property
    def model_type(self) -> str:
        """The family, as in config.json."""
        return self.config.model_type

    @property
    def max_positions(self) -> int:
        """Tokens of prompt and output the model was made for."""
        return self.config.max_positions

    @property
    def attention(self) -> AttentionShape:
        """Heads of every layer."""
        return self.config.attention

    def kv_cache_spec(
        self, block_size: int, num_blocks: int, k_codec: KVCodec, v_codec: KVCodec
    ) -> KVCacheSpec:
        """The KV cache this model needs, of that many blocks."""
        return KVCacheSpec(
            num_layers=self.config.num_layers,
            num_kv_heads=self.attention.num_kv_heads,
            head_dim=self.attention.head_dim,
            block_size=block_size,
            num_blocks=num_blocks,
            k_codec=k_codec,
            v_codec=v_codec,
        )

    def forward(self, batch: RaggedBatch, kv: KVCacheArrays) -> Array:
        """Logits f32[L, vocab_size] of `batch.logit_rows`; every token's K and V are stored."""
        ops = self._ops
        rope = self._rope_table(batch)
        x = ops.embedding(self._embedding, batch.token_ids)
        for layer in self._layers:
            x = layer(ops, x, rope, kv, batch)
        x = ops.take_rows(x, batch.logit_rows)
        return self._head(x, norm=self._norm)

    def _rope_table(self, batch: RaggedBatch) -> RopeTable:
        """A table that covers the batch, made when first needed and doubled when outgrown.

        The full one of Llama 3.1, 131,072 positions, is 64 MiB, and that of Qwen3 takes a tenth of
        a second of a start; few requests ever get there.
        """
        needed = int(batch.positions.max(initial=0)) + 1
        if self._rope is None or self._rope_positions < min(needed, self._longest):
            doubled = max(FIRST_ROPE_POSITIONS, 1 << (needed - 1).bit_length())
            self._rope_positions = min(doubled, self._longest)
            self._rope = self._ops.rope_table(self._frequencies, self._rope_positions)
        return self._rope
