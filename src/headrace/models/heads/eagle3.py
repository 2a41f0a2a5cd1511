"""EAGLE-3 heads: a layer over features of several layers of the target, with a vocabulary of its
own that may be smaller.

    s = fc(features of t), f32[hidden]; behind the first place what the layer gave instead
    x = s + attention(norm(embedding of t + 1), norm(s))      with norm_before_residual: norm(s) + …
    y = x + mlp(norm(x))
    logits of t + 2 = lm_head(norm(y)), of draft id i for the target's id i + d2t[i]

Sources: arXiv 2503.01840; the folders of EAGLE's repositories and of `speculators`; vLLM's
llama_eagle3.py for names and for the numbering of layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models.blocks import Attention, GatedMLP
from headrace.models.config import DecoderConfig
from headrace.models.families.llama import read_llama
from headrace.models.heads.head import Carried, DraftHead, FirstPass, SomeTokens, target_ids
from headrace.models.loader import Loader
from headrace.models.loading.reader import EMBEDDING
from headrace.models.model import Model
from headrace.models.registry import MAX_HEAD_DIM
from headrace.ops.interface import Ops
from headrace.ops.kv import KVCacheArrays, RaggedBatch
from headrace.ops.operands import Array, EmbeddingWeight
from headrace.weights.hugging_face.head_folder import HeadFolder
from headrace.weights.model_config.config_reader import ConfigReader

LAYER = "model.layers.0"
FEATURES = 3
"""Layers whose features are read."""


@dataclass(frozen=True)
class Eagle3Config:
    """The config of a head."""

    decoder: DecoderConfig
    """Of its one layer."""
    draft_vocab_size: int
    feature_layers: tuple[int, ...]
    """As of `Model.forward_with_features`; empty where it says none."""
    target_hidden_size: int
    norm_before_residual: bool


class Eagle3Head(DraftHead):
    """A head of EAGLE-3."""

    def __init__(
        self,
        target: Model,
        config: Eagle3Config,
        ops: Ops,
        loader: Loader,
        ids: npt.NDArray[np.int64],
    ) -> None:
        """ids: int64[draft_vocab_size], the target's id of each of its own."""
        decoder = config.decoder
        super().__init__(target, decoder, ops, loader)
        hidden, eps = decoder.hidden_size, decoder.norm_eps
        self.feature_layers = config.feature_layers or usual_layers(target.config.num_layers)
        self._norm_before_residual = config.norm_before_residual
        self._own_embedding: EmbeddingWeight | None = None
        if loader.has(EMBEDDING):
            rows = max(loader.rows(EMBEDDING), target.vocab_size)
            self._own_embedding = loader.embedding(EMBEDDING, rows, hidden)
        self._fc = loader.linear(
            ["model.fc"], [hidden], len(self.feature_layers) * config.target_hidden_size, bias=None
        )
        shape = decoder.attention_of(0)
        self._token_norm = loader.norm(f"{LAYER}.input_layernorm", hidden, eps)
        self._state_norm = loader.norm(f"{LAYER}.hidden_norm", hidden, eps)
        qkv = loader.qkv(
            f"{LAYER}.self_attn",
            shape,
            2 * hidden,
            bias=decoder.attention_bias,
            rotary_dim=decoder.rotary_dim_of(0),
        )
        output = loader.linear(
            [f"{LAYER}.self_attn.o_proj"], [hidden], shape.output_width, bias=decoder.attention_bias
        )
        self._attention = Attention(decoder, 0, qkv, output)
        self._post_norm = loader.norm(f"{LAYER}.post_attention_layernorm", hidden, eps)
        self._mlp = GatedMLP.load(decoder, loader, f"{LAYER}.mlp")
        self._norm = loader.norm("model.norm", hidden, eps)
        self._head = SomeTokens(loader, ops, ids, target.vocab_size, hidden, bias=None)
        loader.finish()
        self.weight_bytes = loader.total_bytes

    @property
    def model_type(self) -> str:
        """The kind of head."""
        return "eagle3"

    def _begin(self, given: FirstPass) -> tuple[Array, Carried]:
        return self._run(given.batch, given.kv, self._fc(given.features))

    def go_on(
        self, batch: RaggedBatch, kv: KVCacheArrays, carried: Carried, place: int
    ) -> tuple[Array, Carried]:
        """As of DraftHead."""
        del place
        return self._run(batch, kv, *carried)

    def _run(self, batch: RaggedBatch, kv: KVCacheArrays, states: Array) -> tuple[Array, Carried]:
        """states: f32[N, hidden], s of each token."""
        ops, step = self._ops, self._step(batch, kv)
        normed = ops.norm(states, self._state_norm)
        joined = ops.concat((ops.norm(self._embedded(batch.token_ids), self._token_norm), normed))
        kept = normed if self._norm_before_residual else states
        x = self._attention(joined, step, residual=kept)
        y = self._mlp(x, step, norm=self._post_norm, residual=x)
        logits = self._head(ops.take_rows(y, batch.logit_rows), self._norm)
        ends = ops.take_rows(y, batch.query_start[1:] - np.int32(1))
        return logits, (ends,)

    def _embedded(self, token_ids: Array) -> Array:
        if self._own_embedding is None:
            return self._target.embed_tokens(token_ids)
        return self._ops.embedding(self._own_embedding, token_ids)


def read_eagle3(folder: HeadFolder, *, target_hidden_size: int) -> Eagle3Config:
    """The config of a head's folder, of EAGLE's or of `speculators`.

    Raises UnsupportedModelError for a key or value that is not implemented.
    """
    stated = dict(folder.config)
    nested = stated.pop("transformer_layer_config", None)
    if nested is not None and not isinstance(nested, dict):
        raise UnsupportedModelError(
            f"{folder.path}: config key transformer_layer_config has to be an object"
        )
    # What the layer is stands in a section of its own in `speculators`, and beside the rest in
    # EAGLE's folders.
    reader = ConfigReader({**(nested or {}), **stated})
    reader.unused(*_OF_NO_EFFECT)
    reader.expect("model_type", str, ("llama", "eagle3", "speculator_model"), "llama")
    reader.expect("num_hidden_layers", int, (1,), 1)
    window = reader.optional("sliding_window", int)
    if reader.get("use_sliding_window", bool, False) and window is not None:
        reader.refuse("sliding_window", window, "null")
    decoder = read_llama(
        reader,
        "eagle3",
        attention_bias=reader.optional("attention_bias", bool),
        mlp_bias=reader.optional("mlp_bias", bool),
    )
    if decoder.attention.head_dim > MAX_HEAD_DIM:
        reader.refuse("head_dim", decoder.attention.head_dim, f"1 to {MAX_HEAD_DIM}")
    vocab = decoder.vocab_size or 0
    config = Eagle3Config(
        decoder=decoder,
        draft_vocab_size=reader.size("draft_vocab_size", vocab or None),
        feature_layers=_feature_layers(reader),
        target_hidden_size=reader.size("target_hidden_size", target_hidden_size),
        norm_before_residual=reader.get("norm_before_residual", bool, False),
    )
    reader.finish()
    return config


_OF_NO_EFFECT = (
    "architectures", "speculators_model_type", "speculators_version", "speculators_config",
    "auto_map", "has_no_defaults_at_init", "modules_to_not_convert", "target_model_type",
    "embed_requires_grad", "max_window_layers", "torch_dtype", "dtype", "tie_word_embeddings",
)  # fmt: skip
"""Keys that say where a head is from, or what its one layer does not have."""


def _feature_layers(reader: ConfigReader) -> tuple[int, ...]:
    key = "eagle_aux_hidden_state_layer_ids"
    eagle = reader.raw("eagle_config")
    layers: Any = reader.raw(key)
    if layers is None and isinstance(eagle, dict):
        layers = eagle.get(key)
        if eagle.get("use_aux_hidden_state", True) is not True:
            reader.refuse("eagle_config", eagle, "use_aux_hidden_state: true")
    if layers is None:
        return ()
    if (
        not isinstance(layers, list)
        or len(layers) != FEATURES
        or any(not isinstance(layer, int) or isinstance(layer, bool) for layer in layers)
    ):
        reader.refuse(key, layers, f"{FEATURES} numbers of layers")
    return tuple(layers)


def usual_layers(num_layers: int) -> tuple[int, ...]:
    """The layers of heads that name none: an early, a middle and a late one."""
    return (min(2, num_layers), num_layers // 2, max(0, num_layers - 3))


def load_eagle3(folder: HeadFolder, target: Model, ops: Ops) -> Eagle3Head:
    """The head in a folder, for its target.

    Raises UnsupportedModelError for what is not implemented and CheckpointError where tensors are
    missing, damaged or of another model.
    """
    hidden = target.config.hidden_size
    config = read_eagle3(folder, target_hidden_size=hidden)
    path = folder.path
    layers = config.feature_layers or usual_layers(target.config.num_layers)
    beyond = [layer for layer in layers if not 0 <= layer <= target.config.num_layers]
    if beyond:
        raise CheckpointError(
            f"{path}: it reads what the first {beyond[0]} layers give, and the model has "
            f"{target.config.num_layers}; it is a head of another model"
        )
    if config.target_hidden_size != hidden:
        raise CheckpointError(
            f"{path}: it reads features of {config.target_hidden_size} values, and the model's "
            f"have {hidden}; it is a head of another model"
        )
    if EMBEDDING not in folder.tensors and config.decoder.hidden_size != hidden:
        raise CheckpointError(
            f"{path}: {EMBEDDING} is missing, and the model's is {hidden} wide where the head's "
            f"layer is {config.decoder.hidden_size}; the file is incomplete"
        )
    ids = target_ids(folder, config.draft_vocab_size, target.vocab_size)
    return Eagle3Head(target, config, ops, Loader(folder.checkpoint, ops), ids)
