"""What every model offers the engine: facts about itself, and one forward pass.

Its weights are immutable once loaded; the KV cache is handed in with each step. It knows token ids
and positions, not requests or text. A family states how its config is read and what its layer is;
where its ends differ too it overrides `embed` or the names below.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from headrace.models.blocks import Step
from headrace.models.config import DecoderConfig, of_layers
from headrace.models.cost import CostModel, ExpertCost, LayerCost
from headrace.models.layer_cache import cache_layout
from headrace.models.loader import Loader
from headrace.models.loading.reader import EMBEDDING
from headrace.models.rope_tables import begin_step, rope_tables
from headrace.ops.interface import Ops
from headrace.ops.kv import AttentionShape, KVCacheArrays, KVCacheSpec, RaggedBatch
from headrace.ops.operands import Array, Norm
from headrace.weights.model_config.config_reader import ConfigReader

NORMED = -1
"""Among layers of features: the last one's result behind the final norm."""


@dataclass(frozen=True)
class DraftParts:
    """The names in a layer that predicts a further token, behind its own name, and what it reads.

    x = join(norm(embedding of the next token), norm(features of this one)), then a layer of the
    model, then final_norm and a head.
    """

    token_norm: str = "enorm"
    feature_norm: str = "hnorm"
    join: str = "eh_proj"
    final_norm: str | None = "shared_head.norm"
    """None: the model's own."""
    head: str | None = None
    """A head of its own; None: the model's."""
    token_first: bool = True
    """Whether the embedding stands before the features in what goes into `join`."""
    features_normed: bool = True
    """Whether the model's features are those behind its final norm, or those that go into it."""
    carries_normed: bool = False
    """Whether the features of the next place are what comes out of final_norm, not into it."""
    chained: bool = True
    """Of several layers: whether each reads what the one before it gave, or all of them the model's
    features."""
    apart: str | None = None
    """Where norms and join of layer {layer} are, by their names {part}, if not in the layer; one
    without {layer} has those of all layers."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Names in such a layer of what has another one in the model's layers."""
    copies: tuple[str, ...] = ("embed_tokens.weight", "shared_head.head.weight")
    """What is the model's again, and is not read."""

    def apart_of(self, layer: int) -> dict[str, str]:
        """Where names begin of what stands apart of such a layer, and its name in the layer."""
        parts = (self.token_norm, self.feature_norm, self.join, self.final_norm)
        if self.apart is None:
            return {}
        return {self.apart.format(part=part, layer=layer): part for part in parts if part}


class Layer(ABC):
    """One decoder layer: reads its weights when made, runs when called."""

    @abstractmethod
    def __init__(self, config: DecoderConfig, loader: Loader, index: int) -> None: ...

    @abstractmethod
    def __call__(self, x: Array, step: Step) -> Array:
        """The residual stream f32[N, hidden] after this layer; its K and V are in the cache."""


class Model(ABC):
    """A decoder: embedding, layers, final norm, lm_head.

    vocab_size: width of the logits, rows of padding included. max_positions: the model's own
    limit, from its config. weight_codec: the codec most bytes of matrices are stored in.
    weight_bytes: all tensors as stored. step_weight_bytes: those that every step reads in full,
    which leaves out experts and an embedding table that is only looked up.
    """

    layer_type: ClassVar[type[Layer]]
    embedding_name: ClassVar[str] = EMBEDDING
    positions_name: ClassVar[str | None] = None
    """Table of learned positions, a row for each; None in models without."""
    more_tables: ClassVar[tuple[str, ...]] = ()
    """Other tables that are only looked up."""
    final_norm_name: ClassVar[str] = "model.norm"
    layers_name: ClassVar[str] = "model.layers"
    drafts_name: ClassVar[str | None] = None
    """Where layers that predict further tokens are in folders, counted from 0; None: behind the
    others."""
    drafts_behind: ClassVar[bool] = True
    """Whether they may stand behind the others all the same, as in GGUF files."""
    draft_parts: ClassVar[DraftParts | None] = None
    """What such a layer has beside those of a layer of the model, where it can be run."""
    quant_methods: ClassVar[tuple[str, ...]] = ()
    """Values of `quant_method` in a folder's `quantization_config` whose tensors are opened as
    tensors of one of our codecs; all others stop the load."""

    @staticmethod
    @abstractmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        """The config in our words; raises UnsupportedModelError for what is not implemented."""

    @staticmethod
    def draft_names(config: DecoderConfig) -> Collection[str]:
        """Tensors of a layer that predicts further tokens, behind its name; see `draft_layers`."""
        del config
        return ()

    @staticmethod
    def draft_config(config: DecoderConfig, count: int) -> DecoderConfig:
        """The config of the first `count` layers that predict further tokens, as of a model."""
        return of_layers(config, [config.num_layers - 1] * count)

    @classmethod
    def looked_up_tables(cls) -> tuple[str, ...]:
        """Tables that no product reads, beside that of the embeddings; they may stay mapped."""
        positions = () if cls.positions_name is None else (cls.positions_name,)
        return (*cls.more_tables, *positions)

    def __init__(
        self, config: DecoderConfig, ops: Ops, loader: Loader, *, max_positions: int
    ) -> None:
        hidden, name = config.hidden_size, self.embedding_name
        rows = config.vocab_size or loader.rows(name)
        self.config = config
        self.cache_layout = cache_layout(config.layer_caches)
        """What its layers keep of a request, in groups."""
        self._ops = ops
        for index in range(config.draft_layers):
            behind = f"{self.layers_name}.{config.num_layers + index}"
            if self.drafts_behind:
                loader.set_aside(behind, self.draft_names(config))
            if self.drafts_name is not None:
                loader.set_aside(f"{self.drafts_name}.{index}", self.draft_names(config))
            for apart in self.draft_parts.apart_of(index) if self.draft_parts else ():
                loader.set_aside(apart, ("weight", "bias"))
        self._rope = rope_tables(config, ops, loader, max_positions)
        self._embedding = loader.embedding(name, rows, hidden)
        self._positions = (
            loader.embedding(self.positions_name, config.max_positions, hidden)
            if self.positions_name
            else None
        )
        # The largest matrix of most models comes before the others: the pages of the file that it
        # is packed from are in memory beside all that is packed by then.
        self._head = loader.head(rows, hidden, tied=config.tied, bias=config.head_bias, table=name)
        self._head_elements = loader.packed_elements
        self.load_more(config, loader)
        self._layers = [self.layer_type(config, loader, i) for i in range(config.num_layers)]
        self._layer_elements = loader.packed_elements - self._head_elements
        self._expert_cost = _expert_cost(config, loader)
        self._norm = loader.norm(self.final_norm_name, hidden, config.norm_eps, config.norm)

        self.vocab_size = rows
        self.weight_codec = loader.dominant_codec
        self.weight_bytes = loader.total_bytes
        self.step_weight_bytes = loader.step_bytes(name, *self.looked_up_tables())

    @property
    def model_type(self) -> str:
        """The family, as in config.json."""
        return self.config.model_type

    @property
    def max_positions(self) -> int:
        """Tokens of prompt and output the model was made for."""
        return self.config.max_positions

    @property
    def length_cause(self) -> str:
        """What keeps requests at max_positions where the model was made for more; "" elsewhere."""
        return self.config.length_cause

    @property
    def final_norm(self) -> Norm:
        """The norm before its head."""
        return self._norm

    @property
    def attention(self) -> AttentionShape:
        """Heads of every layer."""
        return self.config.attention

    def cost(self, kv: KVCacheSpec) -> CostModel:
        """What its steps move and compute with such a KV cache."""
        return CostModel(
            weight_bytes=self.step_weight_bytes,
            layer_elements=self._layer_elements,
            head_elements=self._head_elements,
            layers=[
                LayerCost(self.config.attention_of(layer), kv.token_bytes(place))
                for layer, place in enumerate(kv.places)
                if place is not None
            ],
            experts=self._expert_cost,
        )

    def forward(self, batch: RaggedBatch, kv: KVCacheArrays) -> Array:
        """Logits f32[L, vocab_size] of `batch.logit_rows`; every token's K and V are stored."""
        logits, _ = self.forward_with_features(batch, kv, ())
        return logits

    def forward_with_features(
        self, batch: RaggedBatch, kv: KVCacheArrays, layers: Sequence[int]
    ) -> tuple[Array, Array | None]:
        """What `forward` gives, and the features of every token f32[N, len(layers) * hidden].

        layers: 0 for what goes into the first layer, n for what the first n give, NORMED for that
        of all behind the final norm; without any there are no features.
        """
        ops = self._ops
        step = self.step(batch, kv)
        x = self.embed(step)
        step = step._replace(layer_inputs=self.layer_inputs(x, step))
        seen = {0: x}
        for index, layer in enumerate(self._layers):
            x = layer(x, step)
            if index + 1 in layers:
                seen[index + 1] = x
        if NORMED in layers:
            seen[NORMED] = ops.norm(x, self._norm)
        features = ops.concat([seen[index] for index in layers]) if layers else None
        return self.logits(ops.take_rows(x, batch.logit_rows), self._norm), features

    def step(self, batch: RaggedBatch, kv: KVCacheArrays) -> Step:
        """What layers get of a batch."""
        return begin_step(self._ops, self._rope, batch, kv)

    def logits(
        self,
        x: Array,
        norm: Norm | None,
        *,
        scale: float | None = None,
        softcap: float | None = None,
    ) -> Array:
        """What the head gives of the norm of f32[L, hidden]: f32[L, vocab_size]. norm: None where
        x is behind it. scale, softcap: instead of the model's own."""
        scale = self.config.logit_scale if scale is None else scale
        softcap = self.config.logit_softcap if softcap is None else softcap
        logits = self._head(x, norm=norm, scale=scale)
        return self._ops.softcap(logits, softcap) if softcap else logits

    def embed(self, step: Step) -> Array:
        """What goes into the first layer: f32[N, hidden]."""
        x = self.embed_tokens(step.batch.token_ids)
        if self._positions is None:
            return x
        return step.ops.embedding(self._positions, step.batch.positions, residual=x)

    def embed_tokens(self, token_ids: Array, *, scale: float | None = None) -> Array:
        """Embeddings f32[N, hidden] of int32[N], without positions. scale: instead of the model's
        own."""
        scale = self.config.embedding_scale if scale is None else scale
        return self._ops.embedding(self._embedding, token_ids, scale=scale)

    def load_more(self, config: DecoderConfig, loader: Loader) -> None:
        """Read what a family has beside its layers and the usual ends."""
        del config, loader

    def layer_inputs(self, x: Array, step: Step) -> Array | None:
        """What layers get beside the residual stream, of what goes into the first; see Step."""
        del x, step
        return None


def _expert_cost(config: DecoderConfig, loader: Loader) -> ExpertCost | None:
    if config.experts is None:
        return None
    routing = config.experts.routing
    return ExpertCost(
        experts=routing.num_experts,
        experts_per_token=routing.experts_per_token,
        bytes=loader.routed_bytes,
        elements=loader.routed_elements,
    )
