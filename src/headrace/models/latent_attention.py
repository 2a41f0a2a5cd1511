"""Latent attention (MLA): what a token keeps is one latent vector for all heads, and a rotated key.

    q = q_proj(h), or q_b_proj(norm(q_a_proj(h)))          of each head: [nope | rope]
    latent, k_rope = kv_a_proj_with_mqa(h);  c = norm(latent)
    score = (q_rope . k_rope + (W_k q_nope) . c) * scale    W_k, W_v: matrices of the head
    output of a head = W_v (the weighted sum of c)

A head's keys and values are never made: W_k goes into the query and W_v behind the sum
("absorbed"), in prefill as in decoding, so that both have one arithmetic and the cache holds the
latent and the rotated key alone. A row of the cache is [rotated key | latent], and the values are
its last dimensions.

Sources: arXiv 2405.04434; transformers modeling_deepseek_v3.py for names and scaling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.errors import UnsupportedModelError
from headrace.models.blocks import Step
from headrace.models.config import DecoderConfig
from headrace.models.loader import Loader
from headrace.models.loading.linear import Linear
from headrace.ops.kv import AttentionShape
from headrace.ops.operands import Array, HeadWeight, Norm
from headrace.weights.model_config.config_reader import MAX_SIZE, ConfigReader
from headrace.weights.model_config.rope_config import RopeConfig
from headrace.weights.tensors.rope_rows import heads_to_half

NORM_EPS = 1e-6
"""Of the norms inside attention, whatever rms_norm_eps says of the others."""

Order = npt.NDArray[np.int32]


@dataclass(frozen=True)
class LatentWidths:
    """Widths of latent attention, in values."""

    latent: int
    """Of what a token keeps for all heads."""
    nope: int
    """Of a head's query that meets the latent."""
    rope: int
    """Of a head's query that is rotated."""
    value: int
    """Of a head's output."""
    query: int | None
    """Between the two products of queries; None where there is one."""
    interleaved: bool = True
    """Whether files hold the rows that are rotated together next to each other."""

    @property
    def key(self) -> int:
        """Of a head's query in all."""
        return self.nope + self.rope


@dataclass(frozen=True)
class LatentConfig(DecoderConfig):
    """The config of a decoder with latent attention."""

    widths: LatentWidths = field(kw_only=True)


def read_widths(
    reader: ConfigReader,
    *,
    interleaved: bool,
    query_default: int,
    nope_default: int = 128,
    value_default: int = 128,
) -> LatentWidths:
    """The widths that a config states in DeepSeek's words.

    query_default: q_lora_rank where the config does not state it; null means one product.
    nope_default, value_default: the same of qk_nope_head_dim and v_head_dim.
    """
    query: int | None = None
    if not reader.states("q_lora_rank") or reader.raw("q_lora_rank") is not None:
        query = reader.size("q_lora_rank", query_default)
    widths = LatentWidths(
        latent=reader.size("kv_lora_rank", 512),
        nope=reader.size("qk_nope_head_dim", nope_default),
        rope=reader.size("qk_rope_head_dim", 64),
        value=reader.size("v_head_dim", value_default),
        query=query,
        interleaved=interleaved,
    )
    if widths.rope % 2:
        reader.refuse("qk_rope_head_dim", widths.rope, "even numbers, which rotation needs")
    return widths


def read_latent_attention(
    reader: ConfigReader, widths: LatentWidths, rope: RopeConfig
) -> tuple[AttentionShape, RopeConfig]:
    """The heads as the cache sees them, and the rope of the dimensions that are rotated."""
    heads = reader.size("num_attention_heads")
    kv_heads = reader.size("num_key_value_heads", heads)
    if kv_heads != heads:
        reader.refuse("num_key_value_heads", kv_heads, f"{heads}, as num_attention_heads")
    row = widths.rope + widths.latent
    if heads * max(row, widths.key) > MAX_SIZE:
        raise UnsupportedModelError(
            f"config keys num_attention_heads = {heads} and kv_lora_rank = {widths.latent} make "
            f"rows of more than {MAX_SIZE} values"
        )
    scale: float = widths.key**-0.5
    if rope.kind == "yarn" and rope.mscale_all_dim and rope.factor > 1:
        scale *= (0.1 * rope.mscale_all_dim * math.log(rope.factor) + 1.0) ** 2
    shape = AttentionShape(heads, 1, row, scale, value_dim=widths.latent, latent=True)
    return shape, replace(rope, partial=widths.rope / row)


class LatentMatrices(NamedTuple):
    """The matrices of all heads of a layer."""

    keys: HeadWeight
    """(latent, nope) each: what a query meets the latent with."""
    values: HeadWeight
    """(value, latent) each."""


class LatentAttention:
    """Latent attention of one layer; weights by their Hugging Face names under `prefix`."""

    def __init__(self, config: LatentConfig, loader: Loader, index: int, prefix: str) -> None:
        widths, hidden = config.widths, config.hidden_size
        heads, bias = config.attention.num_heads, config.attention_bias
        self.shape = config.attention
        self.index = index
        self.widths = widths
        rows = heads * widths.key
        order = partial(_query_rows, heads, widths)
        self.q_a_proj: Linear | None = None
        self.q_norm: Norm | None = None
        if widths.query is None:
            self.q_proj = loader.reordered(f"{prefix}.q_proj", rows, hidden, order, bias=False)
        else:
            name = f"{prefix}.q_a_proj"
            self.q_a_proj = loader.linear([name], [widths.query], hidden, bias=bias)
            self.q_norm = loader.norm(f"{prefix}.q_a_layernorm", widths.query, NORM_EPS)
            name = f"{prefix}.q_b_proj"
            self.q_proj = loader.reordered(name, rows, widths.query, order, bias=False)
        name, rows = f"{prefix}.kv_a_proj_with_mqa", widths.latent + widths.rope
        latent_order = partial(_latent_rows, widths)
        self.kv_proj = loader.reordered(name, rows, hidden, latent_order, bias=bias)
        self.kv_norm = loader.norm(f"{prefix}.kv_a_layernorm", widths.latent, NORM_EPS)
        self.matrices = LatentMatrices(
            *loader.latent_heads(prefix, heads, widths.nope, widths.value, widths.latent)
        )
        name = f"{prefix}.o_proj"
        self.o_proj = loader.linear([name], [hidden], heads * widths.value, bias=bias)

    def __call__(
        self,
        x: Array,
        step: Step,
        *,
        norm: Norm | None = None,
        residual: Array | None = None,
        scale: float = 1.0,
    ) -> Array:
        """residual + scale * attention(norm(x)): f32[N, hidden]."""
        ops, batch, rope = step.ops, step.batch, self.widths.rope
        if self.q_a_proj is None:
            q = self.q_proj(x, norm=norm)
        else:
            q = self.q_proj(self.q_a_proj(x, norm=norm), norm=self.q_norm)
        key = self.kv_proj(x, norm=norm)
        ops.norm_columns(key, rope, self.kv_norm)
        # Of each head [rotated | latent], and the key beside them: rows as attention takes them.
        rows = ops.head_linear(q, self.matrices.keys, kept=rope, beside=key)
        if step.rope is None:
            ops.kv_write(rows, self.shape, step.kv, self.index, batch)
        else:
            ops.rope_and_write(rows, self.shape, step.rope, step.kv, self.index, batch)
        attended = ops.paged_attention(rows, self.shape, step.kv, self.index, batch)
        values = ops.head_linear(attended, self.matrices.values)
        return self.o_proj(values, residual=residual, scale=scale)


def _rotated(widths: LatentWidths) -> Order:
    """Stored places of the rotated rows of one head in "half" order."""
    if widths.interleaved:
        return heads_to_half(1, widths.rope)
    return np.arange(widths.rope, dtype=np.int32)


def _query_rows(heads: int, widths: LatentWidths) -> Order:
    """Rows stored [nope | rope] for each head as [rope | nope]."""
    of_head = np.concatenate([widths.nope + _rotated(widths), np.arange(widths.nope)])
    rows = np.arange(heads)[:, None] * widths.key + of_head
    return np.ascontiguousarray(rows.ravel(), np.int32)


def _latent_rows(widths: LatentWidths) -> Order:
    """Rows stored [latent | rope] as [rope | latent]."""
    rows = np.concatenate([widths.latent + _rotated(widths), np.arange(widths.latent)])
    return np.ascontiguousarray(rows, np.int32)
