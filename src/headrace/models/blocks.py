"""Parts that decoders are put together from: attention, and the MLPs with and without a gate.

A part reads its weights when made and is called with the residual stream; `norm` goes before its
first product, `residual` and `scale` into its last one, so that a backend can fuse them:

    Attention:  residual + scale * o_proj(attention(rotate(qkv_proj(norm(x)))))
    GatedMLP:   residual + scale * down_proj(act(gate) * up),  gate, up = gate_up_proj(norm(x))
    MLP:        residual + scale * down_proj(act(up_proj(norm(x))))
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

from headrace.models.config import DecoderConfig
from headrace.models.loader import Loader
from headrace.models.loading.linear import Linear
from headrace.ops.interface import Ops
from headrace.ops.kv import AttentionShape, KVCacheArrays, RaggedBatch
from headrace.ops.operands import Activation, Array, Norm, RopeTable


class Step(NamedTuple):
    """The inputs that every layer of one forward pass gets."""

    ops: Ops
    batch: RaggedBatch
    kv: KVCacheArrays
    rope: RopeTable | None
    """For layers that rotate; None in models without."""
    local_rope: RopeTable | None
    """For layers with a window where theirs differs; otherwise the same table."""
    query_factors: Array | None = None
    """f32[positions, 1], for layers whose queries are scaled by position; None in models without.
    """
    layer_inputs: Array | None = None
    """f32[N, layers * width], what each layer gets beside the residual stream; None in models
    without."""


class Attention:
    """Grouped attention of one layer; subclasses change what happens between its products.

    shape: with the layer's own window. rotates: False in layers without positions.
    """

    def __init__(
        self,
        config: DecoderConfig,
        index: int,
        qkv_proj: Linear,
        o_proj: Linear,
        *,
        q_norm: Norm | None = None,
        k_norm: Norm | None = None,
    ) -> None:
        self.shape: AttentionShape = config.attention_of(index)
        self.rotates = config.rotates[index] if config.rotates else config.rope is not None
        scaling = config.query_scaling
        self.scales_queries = scaling is not None and scaling.applies_to(index)
        self.index = index
        self.qkv_proj = qkv_proj
        self.o_proj = o_proj
        self.q_norm = q_norm
        self.k_norm = k_norm
        self.sinks: Array | None = None
        """f32[heads]; None in models without."""
        self.v_norm: Norm | None = None
        """A norm over each head of V, its weights those of all heads; None in models without."""
        self.output_scale = 1.0
        """Factor of what attention gives: in families whose values have one, that of the values."""
        self.gates: Linear | None = None
        """A product with a result for each head, whose sigmoid its output is multiplied by; None in
        models without."""
        self.has_own_kv = config.kv_source_of(index) == index

    @classmethod
    def load(
        cls,
        config: DecoderConfig,
        loader: Loader,
        index: int,
        prefix: str,
        *,
        values_are_keys: bool = False,
    ) -> Attention:
        """With projections under their usual names, `{prefix}.q_proj` and so on.

        Families that store Q, K and V as one matrix call it `{prefix}.qkv_proj`.
        values_are_keys: whether V is what K is before its norm and rotation.
        """
        if loader.has(f"{prefix}.qkv_proj.weight"):
            return cls.load_fused(config, loader, index, f"{prefix}.qkv_proj", f"{prefix}.o_proj")
        shape, hidden = config.attention_of(index), config.hidden_size
        bias, dims = config.attention_bias, config.rotary_dim_of(index)
        stored: Literal["qkv", "qkk", "q"] = "qkk" if values_are_keys else "qkv"
        if config.kv_source_of(index) != index:
            stored = "q"
        qkv = loader.qkv(prefix, shape, hidden, bias=bias, rotary_dim=dims, stored=stored)
        return cls(config, index, qkv, _output(config, loader, f"{prefix}.o_proj", shape))

    @classmethod
    def load_fused(
        cls, config: DecoderConfig, loader: Loader, index: int, qkv_name: str, o_name: str
    ) -> Attention:
        """With Q, K and V stored as one matrix, and names of the family's own."""
        shape, hidden = config.attention_of(index), config.hidden_size
        bias, dims = config.attention_bias, config.rotary_dim_of(index)
        qkv = loader.fused_qkv(qkv_name, shape, hidden, bias=bias, rotary_dim=dims)
        return cls(config, index, qkv, _output(config, loader, o_name, shape))

    def load_head_norms(self, config: DecoderConfig, loader: Loader, prefix: str) -> None:
        """Norms over each head of Q and K, `{prefix}.q_norm` and `{prefix}.k_norm`.

        Raises ValueError in layers that do not rotate: norms and rotation are one operation.
        """
        if not self.rotates:
            raise ValueError(f"{prefix}: norms of heads in a layer without rotation")
        head_dim, eps = self.shape.head_dim, config.norm_eps
        dims = config.rotary_dim_of(self.index)
        self.q_norm = loader.head_norm(f"{prefix}.q_norm", head_dim, eps, rotary_dim=dims)
        if self.has_own_kv:
            self.k_norm = loader.head_norm(f"{prefix}.k_norm", head_dim, eps, rotary_dim=dims)

    def load_value_norm(self, config: DecoderConfig, loader: Loader) -> None:
        """A norm without weights over each head of V."""
        if self.has_own_kv:
            width = self.shape.num_kv_heads * self.shape.value_width
            self.v_norm = loader.unit_norm(width, config.norm_eps)

    def load_gates(self, config: DecoderConfig, loader: Loader, name: str) -> None:
        """A gate for each head, the product `name` of what goes into attention."""
        heads, hidden = self.shape.num_heads, config.hidden_size
        self.gates = loader.linear([name], [heads], hidden, bias=False)

    def load_sinks(self, loader: Loader, prefix: str, *, name: str = "sinks") -> None:
        """A score for each head that joins its softmax and has no value, `{prefix}.{name}`."""
        self.sinks = loader.vector(f"{prefix}.{name}", self.shape.num_heads)

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
        ops, batch = step.ops, step.batch
        qkv = self.qkv_proj(x, norm=norm)
        if not self.has_own_kv:
            # K and V are in the cache; operations expect a place for them in the row.
            qkv = ops.widened(qkv, self.shape.row_width)
        if self.v_norm is not None:
            start = (self.shape.num_heads + self.shape.num_kv_heads) * self.shape.head_dim
            ops.norm_columns(qkv, start, self.v_norm, groups=self.shape.num_kv_heads)
        self.rotate(qkv, step, stores=self.has_own_kv)
        if self.scales_queries and step.query_factors is not None:
            columns = self.shape.num_heads * self.shape.head_dim
            ops.scale_rows_at(qkv, step.query_factors, batch.positions, columns=columns)
        attended = ops.paged_attention(
            qkv, self.shape, step.kv, self.index, batch, sinks=self.sinks
        )
        if self.gates is not None:
            ops.gate_heads(attended, self.gates(x, norm=norm))
        return self.o_proj(attended, residual=residual, scale=scale * self.output_scale)

    def rotate(self, qkv: Array, step: Step, *, stores: bool) -> None:
        """Norms of Q and K, and positions, in place; then K and V go to the cache, where wanted."""
        ops, batch, norms = step.ops, step.batch, {"q_norm": self.q_norm, "k_norm": self.k_norm}
        table = step.local_rope if self.shape.window else step.rope
        if not self.rotates or table is None:
            if stores:
                ops.kv_write(qkv, self.shape, step.kv, self.index, batch)
        elif stores:
            ops.rope_and_write(qkv, self.shape, table, step.kv, self.index, batch, **norms)
        else:
            ops.rope(qkv, self.shape, table, batch.positions, **norms)


def _output(config: DecoderConfig, loader: Loader, name: str, shape: AttentionShape) -> Linear:
    bias = config.attention_bias if config.output_bias is None else config.output_bias
    return loader.linear([name], [config.hidden_size], shape.output_width, bias=bias)


class ColumnNormAttention(Attention):
    """Attention whose norms of Q and K have a weight of their own for every column.

    per_head: mean and variance are taken over each head, otherwise over all heads at once.
    """

    per_head: ClassVar[bool] = False
    q_columns: Norm
    k_columns: Norm

    def load_head_norms(self, config: DecoderConfig, loader: Loader, prefix: str) -> None:
        """Norms of the family's kind over Q and K, `{prefix}.q_norm` and `{prefix}.k_norm`."""
        head_dim = self.shape.head_dim
        self.q_columns, self.k_columns = (
            loader.projection_norm(
                f"{prefix}.{name}",
                (heads, head_dim) if self.per_head else (heads * head_dim,),
                head_dim,
                config.norm_eps,
                config.norm,
                rotary_dim=config.rotary_dim_of(self.index),
            )
            for name, heads in (
                ("q_norm", self.shape.num_heads),
                ("k_norm", self.shape.num_kv_heads),
            )
        )

    def rotate(self, qkv: Array, step: Step, *, stores: bool) -> None:
        """Norms of Q and K over columns, and then what every layer does."""
        shape = self.shape
        starts = (0, shape.num_heads * shape.head_dim)
        heads = (shape.num_heads, shape.num_kv_heads)
        for start, norm, count in zip(starts, (self.q_columns, self.k_columns), heads, strict=True):
            step.ops.norm_columns(qkv, start, norm, groups=count if self.per_head else 1)
        super().rotate(qkv, step, stores=stores)


class RopeNormAttention(Attention):
    """Attention with norms over each head of Q and K that come after the rotation."""

    rotated_norms: tuple[Norm, Norm]
    """Of Q and of K: a weight for every column, the same in each head."""

    def load_head_norms(self, config: DecoderConfig, loader: Loader, prefix: str) -> None:
        """Norms of the family's names, `{prefix}.query_layernorm` and `{prefix}.key_layernorm`."""
        head_dim, eps, dims = self.shape.head_dim, config.norm_eps, config.rotary_dim
        self.rotated_norms = (
            loader.head_norm(
                f"{prefix}.query_layernorm", head_dim, eps, rotary_dim=dims,
                heads=self.shape.num_heads,
            ),
            loader.head_norm(
                f"{prefix}.key_layernorm", head_dim, eps, rotary_dim=dims,
                heads=self.shape.num_kv_heads,
            ),
        )  # fmt: skip

    def make_unit_norms(self, config: DecoderConfig, loader: Loader) -> None:
        """Norms without weights, which bring the mean square of a head to 1."""
        shape, eps = self.shape, config.norm_eps
        self.rotated_norms = (
            loader.unit_norm(shape.num_heads * shape.head_dim, eps),
            loader.unit_norm(shape.num_kv_heads * shape.head_dim, eps),
        )

    def rotate(self, qkv: Array, step: Step, *, stores: bool) -> None:
        """Positions, and then norms of Q and K, in place; then K and V go to the cache."""
        super().rotate(qkv, step, stores=False)
        shape = self.shape
        starts = (0, shape.num_heads * shape.head_dim)
        heads = (shape.num_heads, shape.num_kv_heads)
        for start, norm, count in zip(starts, self.rotated_norms, heads, strict=True):
            step.ops.norm_columns(qkv, start, norm, groups=count)
        if stores:
            step.ops.kv_write(qkv, shape, step.kv, self.index, step.batch)


class GatedMLP:
    """down(act(gate) * up)."""

    def __init__(self, gate_up_proj: Linear, down_proj: Linear, activation: Activation) -> None:
        self.gate_up_proj = gate_up_proj
        self.down_proj = down_proj
        self.activation = activation
        self.limit = 0.0
        """Of `gated_activation`; 0 in models without."""

    @classmethod
    def load(
        cls, config: DecoderConfig, loader: Loader, prefix: str, *, width: int | None = None
    ) -> GatedMLP:
        """With projections under their usual names, `{prefix}.gate_proj` and so on.

        Families that store gate and up as one matrix call it `{prefix}.gate_up_proj`, gate first.
        width: of the values between the products, where it is not the config's.
        """
        hidden, bias = config.hidden_size, config.mlp_bias
        ffn = config.intermediate_size if width is None else width
        if loader.has(f"{prefix}.gate_up_proj.weight"):
            gate_up = loader.linear([f"{prefix}.gate_up_proj"], [2 * ffn], hidden, bias=bias)
        else:
            names = [f"{prefix}.gate_proj", f"{prefix}.up_proj"]
            gate_up = loader.linear(names, [ffn, ffn], hidden, bias=bias)
        down = loader.linear([f"{prefix}.down_proj"], [hidden], ffn, bias=bias)
        return cls(gate_up, down, config.activation)

    def __call__(
        self,
        x: Array,
        step: Step,
        *,
        norm: Norm | None = None,
        residual: Array | None = None,
        scale: float = 1.0,
    ) -> Array:
        """residual + scale * mlp(norm(x)): f32[N, hidden]."""
        gate_up = self.gate_up_proj(x, norm=norm)
        inner = step.ops.gated_activation(gate_up, self.activation, limit=self.limit)
        return self.down_proj(inner, residual=residual, scale=scale)


class MLP:
    """down(act(up))."""

    def __init__(self, up_proj: Linear, down_proj: Linear, activation: Activation) -> None:
        self.up_proj = up_proj
        self.down_proj = down_proj
        self.activation = activation

    @classmethod
    def load(cls, config: DecoderConfig, loader: Loader, up_name: str, down_name: str) -> MLP:
        """With projections under names of the family's own."""
        hidden, ffn, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        up_proj = loader.linear([up_name], [ffn], hidden, bias=bias)
        down_proj = loader.linear([down_name], [hidden], ffn, bias=bias)
        return cls(up_proj, down_proj, config.activation)

    def __call__(
        self,
        x: Array,
        step: Step,
        *,
        norm: Norm | None = None,
        residual: Array | None = None,
        scale: float = 1.0,
    ) -> Array:
        """residual + scale * mlp(norm(x)): f32[N, hidden]."""
        inner = step.ops.activation(self.up_proj(x, norm=norm), self.activation)
        return self.down_proj(inner, residual=residual, scale=scale)
