"""What a decoder's config says, in our words, whatever words its family uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from headrace.models.layer_cache import LayerCache, LayerKV, SharedKV
from headrace.models.query_scaling import QueryScaling
from headrace.models.rope import RopeConfig
from headrace.models.visible import visible_of
from headrace.ops.experts import Routing
from headrace.ops.kv import AttentionShape
from headrace.ops.operands import Activation
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.rope_config import FULL, WINDOWED
from headrace.weights.tensors.expert_stacks import MAX_EXPERTS

MAX_DRAFT_LAYERS = 16
"""Published models have up to seven; the bound is for hostile configs."""


@dataclass(frozen=True)
class ExpertsConfig:
    """The mixture of experts in a decoder's layers; widths in values."""

    routing: Routing
    intermediate_size: int
    """Width between the two products of one expert."""
    layers: tuple[bool, ...]
    """Which layers have experts; the others have an MLP as wide as the decoder's config says."""
    shared_size: int = 0
    """Width of the shared expert, which every token uses; 0 in families without."""
    weigh_input: bool = False
    """Whether a token's weight multiplies what goes into an expert, not what comes out."""


@dataclass(frozen=True)
class DecoderConfig:
    """The shape of a decoder: widths in values, lengths in tokens.

    Families with more to say derive from it.
    """

    model_type: str
    vocab_size: int | None
    """None where the file does not state it; the embedding's rows are then taken."""
    hidden_size: int
    intermediate_size: int
    num_layers: int
    attention: AttentionShape
    """Heads of every layer that `layer_attention` does not name; windows are in `windows`."""
    layer_attention: tuple[AttentionShape, ...] = field(default=(), kw_only=True)
    """Heads of each layer, in models whose layers differ; empty where they are those of
    `attention` in all."""
    mlp_widths: tuple[int, ...] = field(default=(), kw_only=True)
    """Of each layer's MLP, 0 in layers without one; empty where all are `intermediate_size` wide,
    but for those with experts alone."""
    kv_sources: tuple[int, ...] = field(default=(), kw_only=True)
    """Whose K and V each layer reads, by number: its own, or those of an earlier layer as wide,
    which it then does not compute. Empty where all read their own."""
    attention_scales: tuple[float, ...] = field(default=(), kw_only=True)
    """Factor of the scores of each layer; empty where it is that of `attention` in all."""
    rope: RopeConfig | None
    """None in models that do not rotate."""
    max_positions: int
    norm_eps: float
    norm: Literal["rms", "layer"] = "rms"
    activation: Activation = "silu"
    attention_bias: bool | None = None
    """None where the file does not say; what it holds then decides."""
    output_bias: bool | None = None
    """Of the attention's output projection, where it differs from attention_bias."""
    mlp_bias: bool | None = None
    """None where the file does not say; what it holds then decides."""
    head_bias: bool | None = False
    """Of lm_head; None where the file does not say."""
    tied: bool | None = None
    """None where the file does not say; what it holds then decides."""
    local_rope: RopeConfig | None = None
    """Of layers with a window, where it differs."""
    windows: tuple[int, ...] = ()
    """Positions each layer sees, 0 for all; empty where no layer has a window."""
    chunks: tuple[int, ...] = ()
    """Positions of the chunks that each layer's attention stays within, 0 for none; empty where no
    layer has chunks."""
    attends: tuple[bool, ...] = ()
    """Which layers have attention; empty where all do."""
    rotates: tuple[bool, ...] = ()
    """Which layers rotate; empty where all do."""
    query_scaling: QueryScaling | None = None
    """Factors of queries that grow with the position; None in models without."""
    embedding_scale: float = 1.0
    """Factor of the embeddings."""
    residual_scale: float = 1.0
    """Factor of what a layer adds to the residual stream."""
    logit_scale: float = 1.0
    """Factor of the logits."""
    logit_softcap: float = 0.0
    """0 means no cap."""
    experts: ExpertsConfig | None = None
    """None in models whose layers have one MLP each."""
    draft_layers: int = 0
    """Layers behind the others that predict further tokens; known by name and not run."""

    sparse_after: int = 0
    """Positions up to which attention that chooses some of them chooses all, and beyond which no
    request goes; 0 in models without such a choice."""
    sparse_keys: str = "index_topk"
    """The keys of config.json that say so."""

    @property
    def length_cause(self) -> str:
        """What keeps requests at max_positions where the model was made for more; "" elsewhere."""
        if not self.sparse_after or self.max_positions < self.sparse_after:
            return ""
        return (
            f"beyond {self.max_positions} tokens ({self.sparse_keys}) this model's attention "
            "chooses among the tokens before, and sparse attention is not run"
        )

    @property
    def attention_width(self) -> int:
        """Values in the output of all heads."""
        return self.attention.output_width

    def attention_of(self, layer: int) -> AttentionShape:
        """Heads, scale, window and chunks of one layer."""
        shape = self.layer_attention[layer] if self.layer_attention else self.attention
        scale = self.attention_scales[layer] if self.attention_scales else shape.scale
        window = self.windows[layer] if self.windows else shape.window
        chunk = self.chunks[layer] if self.chunks else shape.chunk
        return replace(shape, window=window, scale=scale, chunk=chunk)

    @property
    def looked_up_values(self) -> int:
        """Values of tables that are only looked up, beside that of the embeddings."""
        return 0

    @property
    def other_values(self) -> int:
        """Values of matrices that every token meets outside attention, MLPs and the head."""
        return 0

    @property
    def layer_caches(self) -> tuple[LayerCache, ...]:
        """What each layer keeps of a request."""
        return tuple(map(self._cache_of, range(self.num_layers)))

    def _cache_of(self, layer: int) -> LayerCache:
        if self.attends and not self.attends[layer]:
            return None
        if (source := self.kv_source_of(layer)) != layer:
            return SharedKV(source)
        shape = self.attention_of(layer)
        visible = visible_of(shape)
        return LayerKV(
            shape.num_kv_heads,
            shape.head_dim,
            visible.reach,
            shape.value_dim,
            shape.latent,
            visible.chunked,
        )

    def kv_source_of(self, layer: int) -> int:
        """The layer whose K and V one layer reads, which mostly is itself."""
        return self.kv_sources[layer] if self.kv_sources else layer

    @property
    def rotary_dim(self) -> int:
        """Dimensions of a head that are rotated, in layers as `attention` and `rope` have them."""
        head_dim = self.attention.head_dim
        return head_dim if self.rope is None else self.rope.rotary_dim(head_dim)

    def rope_of(self, layer: int) -> RopeConfig | None:
        """The rope of one layer; None where the model has none."""
        windowed = bool(self.windows and self.windows[layer])
        return self.local_rope if windowed and self.local_rope is not None else self.rope

    def rotary_dim_of(self, layer: int) -> int:
        """Dimensions of a head of one layer that are rotated."""
        head_dim, rope = self.attention_of(layer).head_dim, self.rope_of(layer)
        return head_dim if rope is None else rope.rotary_dim(head_dim)


Config = TypeVar("Config", bound=DecoderConfig)


def of_layers(config: Config, layers: Sequence[int], *, dense: bool = False) -> Config:
    """The config of a model whose layers are like these of another, by number, each with K and V of
    its own. dense: whether none of them has experts."""

    def chosen(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(values[layer] for layer in layers) if values else ()

    experts = config.experts
    if experts is not None:
        sparse = tuple(experts.layers[layer] and not dense for layer in layers)
        experts = replace(experts, layers=sparse)
    return replace(
        config,
        num_layers=len(layers),
        kv_sources=(),
        draft_layers=0,
        experts=experts,
        layer_attention=chosen(config.layer_attention),
        mlp_widths=chosen(config.mlp_widths),
        attention_scales=chosen(config.attention_scales),
        windows=chosen(config.windows),
        chunks=chosen(config.chunks),
        attends=chosen(config.attends),
        rotates=chosen(config.rotates),
    )


def read_attention(
    reader: ConfigReader,
    heads: int,
    head_dim: int,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
    default_kv_heads: int | None = None,
) -> AttentionShape:
    """Grouped attention, by default with the usual scale; checks what has to divide what.

    default_kv_heads: where the config is silent; None means as many as there are heads.
    """
    kv_heads = reader.size("num_key_value_heads", default_kv_heads or heads)
    if heads % kv_heads:
        reader.refuse("num_key_value_heads", kv_heads, f"divisors of num_attention_heads {heads}")
    if head_dim % 2:
        reader.refuse("head_dim", head_dim, "even numbers, which rotation needs")
    usual = head_dim**-0.5
    return AttentionShape(
        heads, kv_heads, head_dim, scale=usual if scale is None else scale, softcap=softcap
    )


def read_window(reader: ConfigReader, default: int) -> int:
    """`sliding_window`, `default` where the config does not state it, 0 where that is null."""
    if reader.states("sliding_window") and reader.raw("sliding_window") is None:
        return 0
    return reader.size("sliding_window", default)


def read_uniform_windows(reader: ConfigReader, layers: int, max_positions: int) -> tuple[int, ...]:
    """Window of each layer in families where all have the one stated, or none where it is null.

    One that no request can outgrow is none (Phi-3's 262144 of 131072 positions).
    """
    if reader.optional("sliding_window", int) is None:
        return ()
    window = reader.size("sliding_window")
    return (window,) * layers if window < max_positions else ()


def read_windows(
    reader: ConfigReader, layers: int, window: int, full_every: int
) -> tuple[int, ...]:
    """Window of each layer where some see everything: as `layer_types` says, or else each
    `full_every`-th layer has none.
    """
    usual = tuple(0 if index % full_every == 0 else window for index in range(1, layers + 1))
    return read_layer_windows(reader, window, usual)


def read_layer_windows(
    reader: ConfigReader, window: int, otherwise: tuple[int, ...]
) -> tuple[int, ...]:
    """Window of each layer: as `layer_types` says, or `otherwise`.

    window: of layers that have one; 0 where the config switches windows off.
    """
    kinds = reader.raw("layer_types")
    windows = otherwise
    if kinds is not None:
        known = {FULL: 0} | ({WINDOWED: window} if window else {})
        count = len(otherwise)
        # Compared one by one: what a hostile file lists need not be hashable.
        are_known = isinstance(kinds, list) and all(kind in [*known] for kind in kinds)
        if not are_known or len(kinds) != count:
            reader.refuse("layer_types", kinds, f"{' or '.join(map(repr, known))}, {count} times")
        windows = tuple(known[kind] for kind in kinds)
    return windows


def read_expert_count(reader: ConfigReader, key: str, default: int | None = None) -> int:
    """Experts of a layer, at most `MAX_EXPERTS`."""
    return reader.size(key, default, most=MAX_EXPERTS)


def read_experts_per_token(
    reader: ConfigReader,
    experts: int,
    default: int | None = None,
    *,
    key: str = "num_experts_per_tok",
) -> int:
    """Experts of each token, which there must be enough experts for."""
    chosen = reader.size(key, default)
    if chosen > experts:
        reader.refuse(key, chosen, f"1 to the {experts} experts of a layer")
    return chosen


def read_groups(
    reader: ConfigReader,
    count: int,
    chosen: int,
    *,
    groups: int = 1,
    chosen_groups: int = 1,
    at_least: int = 1,
) -> tuple[int, int]:
    """Groups of a layer's `count` experts, and how many of them the `chosen` of a token come from.

    groups, chosen_groups: where the config is silent. at_least: experts of a group.
    """
    groups = reader.size("n_group", groups)
    chosen_groups = reader.size("topk_group", chosen_groups)
    if count % groups or count // groups < at_least:
        reader.refuse("n_group", groups, f"groups of at least {at_least} of {count} experts")
    if chosen_groups > groups or chosen > chosen_groups * (count // groups):
        reader.refuse("topk_group", chosen_groups, f"{chosen} experts from 1 to {groups} groups")
    return groups, chosen_groups


def read_sigmoid_routing(
    reader: ConfigReader,
    *,
    experts: int,
    chosen: int,
    groups: int = 1,
    chosen_groups: int = 1,
    scale: float = 1.0,
) -> Routing:
    """Experts chosen by sigmoids and a selection bias, of the groups with the best two.

    Keyword arguments are what silence means.
    """
    count = read_expert_count(reader, "n_routed_experts", experts)
    chosen = read_experts_per_token(reader, count, chosen)
    groups, chosen_groups = read_groups(
        reader, count, chosen, groups=groups, chosen_groups=chosen_groups, at_least=2
    )
    return Routing(
        num_experts=count,
        experts_per_token=chosen,
        score="sigmoid",
        normalised=reader.get("norm_topk_prob", bool, True),
        epsilon=1e-20,
        scale=reader.positive("routed_scaling_factor", scale),
        num_groups=groups,
        chosen_groups=chosen_groups,
        group_score="top2",
    )


def read_layers_behind_dense(reader: ConfigReader, layers: int, dense: int) -> tuple[bool, ...]:
    """Layers with experts: all behind the first `first_k_dense_replace`, or `dense` of them."""
    dense = reader.get("first_k_dense_replace", int, min(dense, layers))
    if not 0 <= dense <= layers:
        reader.refuse("first_k_dense_replace", dense, f"0 to num_hidden_layers {layers}")
    return tuple(index >= dense for index in range(layers))


def read_sparse_layers(reader: ConfigReader, layers: int) -> tuple[bool, ...]:
    """Layers with experts: each `decoder_sparse_step`-th that `mlp_only_layers` does not list."""
    step = reader.size("decoder_sparse_step", 1)
    dense = reader.raw("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(type(layer) is int for layer in dense):
        reader.refuse("mlp_only_layers", dense, "lists of layers")
    listed = frozenset(dense)
    return tuple(index not in listed and (index + 1) % step == 0 for index in range(layers))


def read_draft_layers(
    reader: ConfigReader, key: str = "num_nextn_predict_layers", *, default: int = 0
) -> int:
    """Layers behind the others that predict further tokens; `default` where `key` is absent."""
    layers = reader.get(key, int, default)
    if not 0 <= layers <= MAX_DRAFT_LAYERS:
        reader.refuse(key, layers, f"0 to {MAX_DRAFT_LAYERS}")
    return layers
