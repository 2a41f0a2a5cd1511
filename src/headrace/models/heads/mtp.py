"""Layers for multi-token prediction that come with checkpoints: DeepSeek-V3, GLM-4.5, MiMo.

    x = join(norm(embedding of t + 1), norm(features of t))       features: behind the final norm
    y = layer(x)                                                  a layer of the model's own kind
    logits of t + 2 = head(norm(y))

The table of embeddings and the head are the model's: checkpoints hold copies. Of several layers the
first is run, at each place again on what it gave, as vLLM does where it has one.

Sources: arXiv 2412.19437, 2.2 for the arithmetic; vLLM's deepseek_mtp.py and mimo_mtp.py for what
is joined in which order and what a further place reads.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import ConfigError
from headrace.models.config import DecoderConfig
from headrace.models.families import FAMILIES
from headrace.models.heads.head import DraftHead
from headrace.models.loader import Loader
from headrace.models.model import NORMED, Model
from headrace.ops.interface import Array, Ops
from headrace.ops.kv import KVCacheArrays, RaggedBatch
from headrace.weights.architectures import LONGROPE_FACTORS, ROPE_FACTORS
from headrace.weights.checkpoint import Checkpoint

_PLACE = "model.layers.0"


class MtpHead(DraftHead):
    """The first layer for multi-token prediction of a checkpoint."""

    feature_layers = (NORMED,)

    def __init__(self, target: Model, config: DecoderConfig, ops: Ops, loader: Loader) -> None:
        """loader: of tensors named as of a layer 0. config: of that one layer."""
        super().__init__(target, config, ops, loader)
        parts = target.draft_parts
        if parts is None:
            raise ConfigError(f"{target.model_type}: its layers for further tokens cannot be run")
        hidden, eps, kind = config.hidden_size, config.norm_eps, config.norm
        self._parts = parts
        self.weight_bytes = loader.total_bytes
        self._token_norm = loader.norm(f"{_PLACE}.{parts.token_norm}", hidden, eps, kind)
        self._feature_norm = loader.norm(f"{_PLACE}.{parts.feature_norm}", hidden, eps, kind)
        self._join = loader.linear([f"{_PLACE}.{parts.join}"], [hidden], 2 * hidden, bias=False)
        self._layer = target.layer_type(config, loader, 0)
        self._final_norm = loader.norm(f"{_PLACE}.{parts.final_norm}", hidden, eps, kind)
        # What such a layer has and this one does not read, as an indexer, is known by its name.
        loader.set_aside(_PLACE, target.draft_names(target.config))
        loader.finish()

    @property
    def model_type(self) -> str:
        """The family, and what of it."""
        return f"{self._target.model_type}_mtp"

    def states(self, features: Array) -> Array:
        """Features as they are."""
        return features

    def forward(self, batch: RaggedBatch, kv: KVCacheArrays, states: Array) -> tuple[Array, Array]:
        """As of DraftHead."""
        ops, parts = self._ops, self._parts
        tokens = ops.norm(self._target.embed_tokens(batch.token_ids), self._token_norm)
        features = ops.norm(states, self._feature_norm)
        x = self._join(ops.concat((tokens, features) if parts.token_first else (features, tokens)))
        y = ops.take_rows(self._layer(x, self._step(batch, kv)), batch.logit_rows)
        following = ops.norm(y, self._final_norm) if parts.carries_normed else y
        return self._target.logits(y, self._final_norm), following


def mtp_checkpoint(checkpoint: Checkpoint, config: DecoderConfig) -> Checkpoint:
    """The first layer for further tokens of a checkpoint, its tensors named as those of a layer 0.

    Raises ConfigError where it has none, or none that can be run.
    """
    family = FAMILIES[config.model_type]
    places = [f"model.layers.{config.num_layers}."]
    if family.drafts_name is not None:
        places.insert(0, f"{family.drafts_name}.0.")
    remedy = "use method ngram, suffix, draft_model or eagle3"
    if family.draft_parts is None:
        known = ", ".join(sorted(name for name, each in FAMILIES.items() if each.draft_parts))
        raise ConfigError(
            f"--speculative-config: method is mtp, and layers of {config.model_type} for further "
            f"tokens are not run; {remedy}, or a model of {known}"
        )
    for place in places:
        tensors = {
            f"{_PLACE}.{name.removeprefix(place)}": tensor
            for name, tensor in checkpoint.tensors.items()
            if name.startswith(place)
        }
        if tensors:
            break
    else:
        raise ConfigError(
            f"--speculative-config: method is mtp, and {checkpoint.path} has no tensors of "
            f"{places[0]}*, a layer for further tokens; {remedy}, or a file that was converted "
            "with it"
        )
    # The table and the head are the model's.
    for copy in ("embed_tokens.weight", "shared_head.head.weight"):
        tensors.pop(f"{_PLACE}.{copy}", None)
    shared = {
        name: checkpoint.tensors[name]
        for name in (ROPE_FACTORS, *LONGROPE_FACTORS)
        if name in checkpoint.tensors
    }
    named = {name: tensor.renamed(name) for name, tensor in tensors.items()}
    return replace(checkpoint, tensors={**named, **shared})


def load_mtp(checkpoint: Checkpoint, target: Model, ops: Ops) -> MtpHead:
    """The head of what `mtp_checkpoint` gave. Raises what `load_model` does."""
    return MtpHead(target, one_layer(target.config), ops, Loader(checkpoint, ops))


def one_layer(config: DecoderConfig) -> DecoderConfig:
    """The config of a model that has a layer like this one's last and no other."""
    experts = config.experts
    return replace(
        config,
        num_layers=1,
        layer_attention=config.layer_attention[-1:],
        mlp_widths=config.mlp_widths[-1:],
        attention_scales=config.attention_scales[-1:],
        windows=config.windows[-1:],
        chunks=config.chunks[-1:],
        attends=config.attends[-1:],
        rotates=config.rotates[-1:],
        kv_sources=(),
        draft_layers=0,
        experts=None if experts is None else replace(experts, layers=experts.layers[-1:]),
    )
