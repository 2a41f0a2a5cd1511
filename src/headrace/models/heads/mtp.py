"""Layers for multi-token prediction, of checkpoints or of places of their own (mtp_folder.py);
families declare theirs (`DraftParts`).

    x = join(norm(embedding of t + 1), norm(f))              f: features of t, behind the final norm
    y = layer(x)                                             or before it
    logits of t + 2 = head(norm(y))

The table of embeddings is the model's, and mostly the head is: checkpoints hold copies. One for
some of the model's ids is for those alone.

Of several layers the k-th gives the k-th draft: its entry of token t + k is made of f of t, which
is what layer k - 1 gave at its entry of t + k - 1 (chained), or the model's features. So that it
has K and V of the whole text, every layer reads every token, from its own place on. The last layer
gives all further drafts, each time of what it gave itself.

Sources: arXiv 2412.19437, 2.2 for the arithmetic and for chains of layers; vLLM's deepseek_mtp.py
and mimo_mtp.py for what is joined in which order and what a further place reads; those of other
families are named in their files.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from headrace.errors import ConfigError
from headrace.models.config import DecoderConfig
from headrace.models.families import FAMILIES
from headrace.models.heads.head import Carried, DraftHead, FirstPass, SomeTokens
from headrace.models.loader import Loader
from headrace.models.loading.linear import Linear
from headrace.models.model import NORMED, DraftParts, Model
from headrace.ops.interface import Ops
from headrace.ops.kv import KVCacheArrays, RaggedBatch
from headrace.ops.operands import Array
from headrace.weights.architectures import LONGROPE_FACTORS, ROPE_FACTORS
from headrace.weights.checkpoint import Checkpoint

_LAYERS = "model.layers"


class _Predictor:
    """One of the layers, and what is around it."""

    def __init__(
        self, target: Model, parts: DraftParts, config: DecoderConfig, loader: Loader, index: int
    ) -> None:
        at = f"{_LAYERS}.{index}"
        hidden, eps, kind = config.hidden_size, config.norm_eps, config.norm
        self.token_norm = loader.norm(f"{at}.{parts.token_norm}", hidden, eps, kind)
        self.feature_norm = loader.norm(f"{at}.{parts.feature_norm}", hidden, eps, kind)
        self.join = loader.linear([f"{at}.{parts.join}"], [hidden], 2 * hidden, bias=None)
        self.layer = target.layer_type(config, loader, index)
        self.final_norm = target.final_norm
        if parts.final_norm is not None:
            self.final_norm = loader.norm(f"{at}.{parts.final_norm}", hidden, eps, kind)
        self.head: Linear | None = None
        if parts.head is not None and loader.has(f"{at}.{parts.head}.weight"):
            name = f"{at}.{parts.head}"
            self.head = loader.linear([name], [target.vocab_size], hidden, bias=False)
        # What such a layer has and this one does not read, as an indexer, is known by its name.
        loader.set_aside(at, target.draft_names(target.config))


class MtpHead(DraftHead):
    """Layers for multi-token prediction."""

    def __init__(
        self,
        target: Model,
        config: DecoderConfig,
        ops: Ops,
        loader: Loader,
        ids: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """loader: of tensors named as of layers 0, 1, … config: of these layers. ids: those of the
        target that its own head is for; None without one for all layers."""
        super().__init__(target, config, ops, loader)
        parts = target.draft_parts
        if parts is None:
            raise ConfigError(f"{target.model_type}: its layers for further tokens cannot be run")
        self._parts = parts
        self.feature_layers = (NORMED if parts.features_normed else target.config.num_layers,)
        self.weight_bytes = loader.total_bytes
        self._predictors = [
            _Predictor(target, parts, config, loader, index) for index in range(config.num_layers)
        ]
        self._some: SomeTokens | None = None
        if ids is not None:
            hidden = target.config.hidden_size
            self._some = SomeTokens(loader, ops, ids, target.vocab_size, hidden)
        self.num_kept = len(self._predictors) - 1
        loader.finish()

    @property
    def model_type(self) -> str:
        """The family, and what of it."""
        return f"{self._target.model_type}_mtp"

    def _begin(self, given: FirstPass) -> tuple[Array, Carried]:
        """Carried are what each layer but the first reads at the next token, and
        what the last one gave."""
        batch = given.batch
        ops, step = self._ops, self._step(batch, given.kv)
        tokens = self._target.embed_tokens(batch.token_ids)
        ends = batch.query_start[1:] - np.int32(1)
        order = _one_later(batch.query_start)
        first, *others = self._predictors
        read = given.features
        y = first.layer(self._joined(first, tokens, read), step)
        logits = self._logits(first, ops.take_rows(y, batch.logit_rows))
        last, carried = first, list[Array]()
        for predictor, kept in zip(others, given.before, strict=True):
            passed = self._given(last, y) if self._parts.chained else read
            carried.append(ops.take_rows(passed, ends))
            read = ops.take_rows(ops.stacked((passed, kept)), order)
            y = predictor.layer(self._joined(predictor, tokens, read), step)
            last = predictor
        carried.append(self._given(last, ops.take_rows(y, ends)))
        return logits, tuple(carried)

    def go_on(
        self, batch: RaggedBatch, kv: KVCacheArrays, carried: Carried, place: int
    ) -> tuple[Array, Carried]:
        """As of DraftHead. Layers before that of the place are done with."""
        step = self._step(batch, kv)
        tokens = self._target.embed_tokens(batch.token_ids)
        last = self.num_kept
        first = min(place, last)
        following, logits = list(carried), None
        for index in range(first, last + 1):
            predictor = self._predictors[index]
            read = carried[last] if place > last else carried[index - 1]
            y = predictor.layer(self._joined(predictor, tokens, read), step)
            if index == first:
                logits = self._logits(predictor, y)
            given = self._given(predictor, y)
            following[index] = given if self._parts.chained or index == last else read
        return logits, tuple(following)

    def _joined(self, predictor: _Predictor, tokens: Array, read: Array) -> Array:
        """What goes into the layer, of embeddings and features f32[N, hidden]."""
        token = self._ops.norm(tokens, predictor.token_norm)
        feature = self._ops.norm(read, predictor.feature_norm)
        both = (token, feature) if self._parts.token_first else (feature, token)
        return predictor.join(self._ops.concat(both))

    def _given(self, predictor: _Predictor, y: Array) -> Array:
        """What a layer's result is to the next one."""
        return self._ops.norm(y, predictor.final_norm) if self._parts.carries_normed else y

    def _logits(self, predictor: _Predictor, y: Array) -> Array:
        if self._some is not None:
            config = self._target.config
            scale, softcap = config.logit_scale, config.logit_softcap
            return self._some(y, predictor.final_norm, scale=scale, softcap=softcap)
        if predictor.head is None:
            return self._target.logits(y, predictor.final_norm)
        return predictor.head(y, norm=predictor.final_norm)


def _one_later(query_start: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """For each of N tokens the one before it in its request, and N + r for the first of request r:
    int32[N]."""
    count = int(query_start[-1])
    order = np.arange(-1, count - 1, dtype=np.int32)
    firsts = query_start[:-1]
    order[firsts] = np.arange(count, count + len(firsts), dtype=np.int32)
    return order


def mtp_checkpoint(checkpoint: Checkpoint, config: DecoderConfig, most: int = 64) -> Checkpoint:
    """The layers for further tokens of a checkpoint, at most so many, their tensors named as those
    of layers 0, 1, …

    Raises ConfigError where it has none, or none that can be run.
    """
    family = FAMILIES[config.model_type]
    parts = family.draft_parts
    remedy = (
        "use method ngram or suffix, which need no weights, or draft_model, eagle3, dflash or "
        "medusa with model"
    )
    if parts is None:
        known = ", ".join(sorted(name for name, each in FAMILIES.items() if each.draft_parts))
        raise ConfigError(
            f"--speculative-config: method is mtp, and layers of {config.model_type} for further "
            f"tokens are not run; {remedy}, or a model of {known}"
        )
    tensors = {
        name: tensor.renamed(name)
        for name in (ROPE_FACTORS, *LONGROPE_FACTORS)
        if (tensor := checkpoint.tensors.get(name)) is not None
    }
    names = sorted(checkpoint.tensors)
    for index in range(most):
        places = _places(family, parts, config.num_layers, index)
        found = {
            f"{_LAYERS}.{index}.{own}": checkpoint.tensors[name]
            for name in names
            if (own := _own_name(name, places, parts)) is not None
        }
        own_layer = tuple(name for name, instead in places.items() if not instead)
        if not any(tensor.name.startswith(own_layer) for tensor in found.values()):
            break
        tensors |= {name: tensor.renamed(name) for name, tensor in found.items()}
    if not any(name.startswith(f"{_LAYERS}.0.") for name in tensors):
        first = next(iter(_places(family, parts, config.num_layers, 0)))
        raise ConfigError(
            f"--speculative-config: method is mtp, and {checkpoint.path} has no tensors of "
            f"{first}*, a layer for further tokens; use mtp with model, a folder or GGUF file that "
            f"has them, or a file that was converted with them, or {remedy.removeprefix('use ')}"
        )
    return replace(checkpoint, tensors=tensors)


def _places(family: type[Model], parts: DraftParts, layers: int, index: int) -> dict[str, str]:
    """Where names of the index-th layer begin, and what stands there in a layer's own names."""
    places = {f"{family.layers_name}.{layers + index}.": ""}
    if family.drafts_name is not None:
        places = {f"{family.drafts_name}.{index}.": "", **places}
    apart = parts.apart_of(index).items()
    return places | {f"{name}.": f"{part}." for name, part in apart}


def _own_name(name: str, places: dict[str, str], parts: DraftParts) -> str | None:
    """A tensor's name in a layer; None for one of elsewhere, and for copies of the model's."""
    for place, instead in places.items():
        if name.startswith(place):
            own = instead + name.removeprefix(place)
            module, _, kind = own.rpartition(".")
            own = f"{parts.renamed.get(module, module)}.{kind}"
            return None if own in parts.copies else own
    return None


def load_mtp(
    checkpoint: Checkpoint,
    target: Model,
    ops: Ops,
    config: DecoderConfig | None = None,
    ids: npt.NDArray[np.int64] | None = None,
) -> MtpHead:
    """The head of what `mtp_checkpoint` gave. config: of its layers, where it is not as the
    target's. ids: of the rows of a head of its own. Raises what `load_model` does."""
    config = config or mtp_config(checkpoint, target.config)
    return MtpHead(target, config, ops, Loader(checkpoint, ops), ids)


def mtp_config(checkpoint: Checkpoint, config: DecoderConfig) -> DecoderConfig:
    """The config of the layers of what `mtp_checkpoint` gave. config: the model's."""
    begin = f"{_LAYERS}."
    names = (name for name in checkpoint.tensors if name.startswith(begin))
    count = len({name.removeprefix(begin).split(".")[0] for name in names})
    return FAMILIES[config.model_type].draft_config(config, count)
