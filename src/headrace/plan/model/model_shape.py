"""What memory and speed of a model follow from: its layers, its weights by part, its vocabulary.

Three sources say it: a row of the catalog, a config.json, and the header of a checkpoint. Only the
last knows how the weights are stored; no weight is ever read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from headrace.catalog.fact import Confidence
from headrace.catalog.rows import Model
from headrace.errors import ConfigError
from headrace.plan.header import PartCounts, bytes_by_codec, parameters_by_part
from headrace.plan.model.config_fields import (
    fields_of_config,
    notes_of_config,
    refuse_blocks,
    text_part,
)
from headrace.plan.model.declared_layers import DeclaredLayers, declared_layers, with_declared
from headrace.plan.model.layer_building import layers_of
from headrace.plan.model.layer_shape import (
    AttentionLayers,
    DenseLayers,
    ExpertLayers,
    LayerKind,
    StateLayers,
)
from headrace.plan.model.published_kind import PublishedKind, kind_of_checkpoints, kind_of_config
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.open import open_checkpoint

ShapeSource = Literal["catalog", "config.json", "GGUF header", "safetensors header"]

# Beyond this, what a row says and what its shapes give are of two models.
_AGREES = 0.1


@dataclass(frozen=True)
class Parameters:
    """Counts of weights by part; the parts add up to `total`."""

    embedding: int
    """Parameters of the embedding of input tokens; 0 without one; with tied embeddings it is the
    head as well."""
    head: int
    """The output matrix where it is one of its own."""
    attention: int
    """Mixers of all layers, states included."""
    ffn: int
    """Dense layers, routers and shared experts."""
    experts: int
    """All routed ones."""
    one_expert: int
    """A single expert of a single layer."""
    other: int
    """Norms, and what no shape accounts for."""
    total: int
    active: int
    """Parameters that a token uses, including the whole embedding."""
    tables: int = 0
    """Tables beside the embedding of which a token reads a row: positions, inputs of layers."""


@dataclass(frozen=True)
class ModelShape:
    """A model as far as planning goes."""

    name: str
    source: ShapeSource
    hidden_size: int
    vocabulary_tokens: int
    tied_embeddings: bool
    num_layers: int
    layers: tuple[LayerKind, ...]
    """Kinds with counts; a block of a transformer is one of attention (or a state) and one of
    feed-forward."""
    parameters: Parameters
    context_tokens: int | None = None
    """Context that the model was made for."""
    weight_bytes: Mapping[str, int] | None = None
    """Bytes by storage kind ("Q4_K"), from a header; None if only shapes are known."""
    published: PublishedKind | None = None
    """The storage kind of the published checkpoint, where it has fewer than 16 bits and no header
    was read."""
    as_of: str = ""
    origin: str = ""
    notes: tuple[str, ...] = field(default=())
    """What the source leaves open, and how it was taken."""
    checkpoint: Checkpoint | None = field(default=None, repr=False, compare=False)
    """Whose headers were read, where it lies on this disk."""

    @property
    def attention(self) -> tuple[AttentionLayers, ...]:
        """Layers that read keys and values of the tokens before."""
        return tuple(one for one in self.layers if isinstance(one, AttentionLayers))

    @property
    def keeping(self) -> tuple[AttentionLayers, ...]:
        """Those of them with a KV cache of their own."""
        return tuple(layer for layer in self.attention if not layer.shared)

    @property
    def states(self) -> tuple[StateLayers, ...]:
        """Layers with a state of constant size."""
        return tuple(one for one in self.layers if isinstance(one, StateLayers))

    @property
    def dense(self) -> tuple[DenseLayers, ...]:
        """Feed-forward layers without experts."""
        return tuple(one for one in self.layers if isinstance(one, DenseLayers))

    @property
    def moe(self) -> tuple[ExpertLayers, ...]:
        """Feed-forward layers with experts."""
        return tuple(one for one in self.layers if isinstance(one, ExpertLayers))

    @property
    def total_weight_bytes(self) -> int | None:
        """Bytes of all tensors as stored; None where no header was read."""
        return None if self.weight_bytes is None else sum(self.weight_bytes.values())


def shape_of_catalog(row: Model) -> ModelShape:
    """The shape of a row of the catalog.

    Raises ConfigError where the row has too little: a model behind an API, or one whose sizes
    nobody published, naming the fields that lack.
    """
    fields: dict[str, Any] = {name: fact.value for name, fact in row.facts.items()}
    if row.attention == "undisclosed" or row.num_layers is None:
        raise ConfigError(
            f"the catalog has no shape of {row.name}: its maker does not publish it; "
            "`headrace plan fit` needs a model with open weights"
        )
    layers, notes = layers_of(fields, row.name)
    if row.tied_embeddings is None:
        fields["tied_embeddings"] = _tied_as_counted(fields, layers)
    used = _experts_as_active(fields, layers)
    if used is not None:
        fields["experts_per_token"] = used
        layers, notes = layers_of(fields, row.name)
        notes.append(f"{used} experts a token follow from the active weights that are stated")
    shape = _shape(row.name, "catalog", fields, layers, notes)
    dates = [fact.as_of for fact in row.facts.values()]
    shape = replace(shape, origin=f"catalog model {row.id}", as_of=str(max(dates)) if dates else "")
    published = kind_of_checkpoints(row.checkpoints, bool(shape.moe))
    return _as_published(_as_stated(shape, row), published)


def shape_of_config(
    config: Mapping[str, Any], name: str = "config.json", origin: str = "config.json"
) -> ModelShape:
    """The shape of a Hugging Face config.json, with the kind that it is published in.

    Raises ConfigError naming the key that is missing or is not a size.
    """
    shape = shape_of_layers(config, name, origin)
    return _as_published(shape, kind_of_config(config, text_part(config)))


def shape_of_layers(config: Mapping[str, Any], name: str, origin: str) -> ModelShape:
    """The shape of a config.json whose weights are beside it: their headers state the kind."""
    declared = declared_layers(config)
    if declared is None or not declared.mlp_widths:
        refuse_blocks(config)
    fields = fields_of_config(config)
    if declared is not None:
        fields = with_declared(fields, declared)
    layers, notes = layers_of(fields, name, declared)
    notes += notes_of_config(config, declared is not None)
    shape = replace(_shape(name, "config.json", fields, layers, notes), origin=origin)
    return shape if declared is None else _with_declared_values(shape, declared)


def _with_declared_values(shape: ModelShape, declared: DeclaredLayers) -> ModelShape:
    """With the weights that are in no layer of a kind known here."""
    counted = shape.parameters
    more = declared.looked_up_values + declared.other_values
    parameters = replace(
        counted,
        tables=declared.looked_up_values,
        other=counted.other + declared.other_values,
        total=counted.total + more,
        active=counted.active + more,
    )
    return replace(shape, parameters=parameters)


def shape_of_checkpoint(path: str | Path) -> ModelShape:
    """The shape of a GGUF file or a folder with safetensors, from headers alone.

    Raises CheckpointError or UnsupportedModelError as opening a model does.
    """
    checkpoint = open_checkpoint(path)
    name = str(checkpoint.metadata.get("general.name") or Path(path).stem or path)
    kind: ShapeSource = "GGUF header" if checkpoint.format == "gguf" else "safetensors header"
    shape = shape_of_layers(checkpoint.config, name, str(checkpoint.path))
    parts = parameters_by_part(checkpoint.tensors.values())
    return replace(
        shape,
        source=kind,
        tied_embeddings=parts.head == 0,
        parameters=counted_parameters(shape, parts),
        weight_bytes=bytes_by_codec(checkpoint.tensors.values()),
        checkpoint=checkpoint,
    )


def _as_published(shape: ModelShape, published: PublishedKind | None) -> ModelShape:
    if published is None:
        return shape
    return replace(shape, published=published, notes=(*shape.notes, published.note))


def counted_parameters(shape: ModelShape, parts: PartCounts) -> Parameters:
    """What the tensors of a header come to; of experts those that `shape` uses are active."""
    routed = sum(layer.count * layer.experts for layer in shape.moe)
    one_expert = parts.experts // routed if routed else 0
    used = sum(layer.count * layer.experts_per_token for layer in shape.moe)
    return Parameters(
        embedding=parts.embedding,
        head=parts.head,
        attention=parts.attention,
        ffn=parts.ffn,
        experts=parts.experts,
        one_expert=one_expert,
        other=parts.other,
        total=parts.total,
        active=parts.total - parts.experts + one_expert * used,
        tables=parts.tables,
    )


def _shape(
    name: str,
    source: ShapeSource,
    fields: Mapping[str, Any],
    layers: tuple[LayerKind, ...],
    notes: Iterable[str],
) -> ModelShape:
    hidden, vocabulary = fields["hidden_size"], fields.get("vocabulary_tokens", 0)
    tied = bool(fields.get("tied_embeddings", False))
    context = fields.get("context_tokens")
    return ModelShape(
        name=name,
        source=source,
        hidden_size=hidden,
        vocabulary_tokens=vocabulary,
        tied_embeddings=tied,
        num_layers=fields["num_layers"],
        layers=layers,
        parameters=_counted(hidden, vocabulary, tied, layers),
        context_tokens=context if isinstance(context, int) else None,
        notes=tuple(notes),
    )


def _counted(hidden: int, vocabulary: int, tied: bool, layers: tuple[LayerKind, ...]) -> Parameters:
    """Weights that the shapes give; norms are in the layers."""
    attention = ffn = experts = unused = one_expert = 0
    for layer in layers:
        if isinstance(layer, AttentionLayers | StateLayers):
            attention += layer.count * layer.parameters
            continue
        ffn += layer.count * layer.parameters
        if isinstance(layer, ExpertLayers):
            one_expert = layer.expert_parameters
            experts += layer.count * layer.experts * one_expert
            unused += layer.count * (layer.experts - layer.experts_per_token) * one_expert
    embedding = hidden * vocabulary
    head = 0 if tied else embedding
    total = embedding + head + attention + ffn + experts + hidden
    return Parameters(
        embedding, head, attention, ffn, experts, one_expert, hidden, total, total - unused
    )


def _as_stated(shape: ModelShape, row: Model) -> ModelShape:
    """The row's own total where it is surer than the shapes are; the rest of it is `other`.

    A total that only a name or a card gives is rounded, or counts an encoder as well: of it and
    what the shapes give the larger is taken, so that what is said to fit does.
    """
    stated, counted = row.total_parameters, shape.parameters
    if stated is None:
        return shape
    stated = round(stated)
    rest = stated - counted.total
    sure = row.facts["total_parameters"].confidence in (Confidence.EXACT, Confidence.HIGH)
    near = abs(rest) <= _AGREES * stated
    if not sure and near and rest <= 0:
        return shape
    active = counted.active + rest
    notes = shape.notes
    if not near:
        if row.active_parameters is not None:
            active = round(row.active_parameters)
        said = f"{counted.total / 1e9:.2f} B weights and the row says {stated / 1e9:.2f} B"
        notes = (*notes, f"shapes give {said}, which is used")
    return replace(
        shape,
        parameters=replace(counted, other=counted.other + rest, total=stated, active=active),
        notes=notes,
    )


def _experts_as_active(fields: dict[str, Any], layers: tuple[LayerKind, ...]) -> int | None:
    """Experts a token uses, from active weights where a row states those and not that."""
    active = fields.get("active_parameters")
    if fields.get("experts_per_token") or not isinstance(active, int | float):
        return None
    tied = bool(fields.get("tied_embeddings"))
    counted = _counted(fields["hidden_size"], fields.get("vocabulary_tokens", 0), tied, layers)
    per_use = sum(one.count for one in layers if isinstance(one, ExpertLayers)) * counted.one_expert
    return max(1, round((active - counted.total + counted.experts) / per_use)) if per_use else None


def _tied_as_counted(fields: dict[str, Any], layers: tuple[LayerKind, ...]) -> bool:
    """Whether the stated total is nearer to one with tied embeddings; for rows that do not say."""
    stated = fields.get("total_parameters")
    if not isinstance(stated, int | float):
        return False
    hidden, vocabulary = fields["hidden_size"], fields.get("vocabulary_tokens", 0)
    off = {
        tied: _counted(hidden, vocabulary, tied, layers).total - stated for tied in (True, False)
    }
    return abs(off[True]) < abs(off[False])
