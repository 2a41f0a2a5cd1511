"""What is measured: something that gives logits for token ids, and how the family's models do.

A Predictor needs no gradient. `open_predictor` reads a training checkpoint or a Hugging Face
folder of a member of the family, with an adapter folded in if one is given. `continued` is greedy
decoding; models of this repository keep their keys and values for it, so that 64 tokens behind 256
take 319 positions instead of 18,400.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from training.loop.checkpoint import load_weights
from training.models.config import ModelConfig, read_note
from training.models.lora import load_adapter, merged
from training.models.model import Attention, LanguageModel, Layer, rotate
from training.models.moe_config import MoEConfig, config_of_shape
from training.models.moe_model import MoELanguageModel

CONFIGS: dict[str, type[ModelConfig]] = {"qwen3": ModelConfig, "glm4_moe": MoEConfig}


class Predictor(Protocol):
    """Anything that predicts tokens."""

    def logits(self, ids: Tensor) -> Tensor:
        """Logits [B, T, vocabulary] of what follows each of `ids` int64 [B, T]."""


class ModulePredictor:
    """A model of this repository. Layers compute in bfloat16 when asked, logits in float32.

    In bfloat16 logits would have ties: two of eight thousand are often less than 2^-8 apart.
    """

    def __init__(self, model: LanguageModel, bfloat16: bool = True) -> None:
        self.model = model.eval().requires_grad_(False)
        self.bfloat16 = bfloat16

    def logits(self, ids: Tensor) -> Tensor:
        with self.precision():
            hidden = self.model.model(ids)
        return self._output(hidden)

    def continued(self, prefixes: Tensor, n_tokens: int) -> Tensor:
        """The `n_tokens` likeliest tokens, one by one, behind `prefixes` [B, P]: int64 [B, N]."""
        caches: list[list[Tensor]] = [[] for _ in self.model.model.layers]
        ids, found = prefixes, []
        for _ in range(n_tokens):
            with self.precision():
                hidden = self._next_hidden(ids, caches)
            ids = self._output(hidden[:, -1:]).argmax(dim=-1)
            found.append(ids)
        return torch.cat(found, dim=1)

    def precision(self) -> torch.autocast:
        """What its layers are computed in."""
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bfloat16)

    def _output(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden.float(), self.model.model.embed_tokens.weight.float())

    def _next_hidden(self, ids: Tensor, caches: list[list[Tensor]]) -> Tensor:
        """Hidden states [B, T, D] of `ids` [B, T], which come behind what `caches` hold."""
        decoder = self.model.model
        first = caches[0][0].shape[-2] if caches[0] else 0
        x = decoder.embed_tokens(ids)
        cos, sin = (table[first : first + ids.shape[1]] for table in (decoder.cos, decoder.sin))
        for layer, cache in zip(cast(Sequence[Layer], decoder.layers), caches, strict=True):
            x = x + attended(layer.self_attn, layer.input_layernorm(x), cos, sin, cache)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        normed: Tensor = decoder.norm(x)
        return normed


def attended(
    attention: Attention, x: Tensor, cos: Tensor, sin: Tensor, cache: list[Tensor]
) -> Tensor:
    """`attention` of x [B, T, D] to itself and the keys and values in `cache`, which grows."""
    batch, length, _ = x.shape

    def heads(projected: Tensor) -> Tensor:
        return projected.view(batch, length, -1, attention.head_dim).transpose(1, 2)

    q = rotate(attention.q_norm(heads(attention.q_proj(x))), cos, sin)
    k = rotate(attention.k_norm(heads(attention.k_proj(x))), cos, sin)
    v = heads(attention.v_proj(x))
    new = (k.to(v.dtype), v)
    cache[:] = [torch.cat(pair, dim=-2) for pair in zip(cache, new, strict=True)] if cache else new
    k, v = (part.repeat_interleave(attention.n_shared, dim=1) for part in cache)
    scores = (q * attention.head_dim**-0.5) @ k.transpose(-1, -2)
    total = k.shape[-2]
    visible = torch.arange(total - length, total)[:, None] >= torch.arange(total)[None, :]
    shares = torch.where(visible, scores, float("-inf")).float().softmax(dim=-1)
    mixed = (shares.to(v.dtype) @ v).transpose(1, 2).reshape(batch, length, -1)
    projected: Tensor = attention.o_proj(mixed)
    return projected


def continued(predictor: Predictor, prefixes: Tensor, n_tokens: int) -> Tensor:
    """The greedy continuation int64 [B, n_tokens] of `prefixes` [B, P], past any end."""
    if isinstance(predictor, ModulePredictor):
        return predictor.continued(prefixes, n_tokens)
    ids = prefixes
    for _ in range(n_tokens):
        following = predictor.logits(ids)[:, -1:].argmax(dim=-1)
        ids = torch.cat((ids, following), dim=1)
    return ids[:, prefixes.shape[1] :]


def open_predictor(
    path: Path, adapter: Path | None = None, bfloat16: bool = True
) -> ModulePredictor:
    """The model of a training checkpoint (a file) or a Hugging Face folder.

    Raises ValueError for a checkpoint of something else and a model type outside of CONFIGS.
    """
    weights = path / "model.safetensors" if path.is_dir() else path
    config = _config_of_folder(path) if path.is_dir() else config_of_shape(read_note(path)["model"])
    model = MoELanguageModel(config) if isinstance(config, MoEConfig) else LanguageModel(config)
    load_weights(weights, model)
    if adapter is not None:
        tensors, lora = load_adapter(adapter)
        model.load_state_dict(merged(model.state_dict(), tensors, lora.scale))
    return ModulePredictor(model, bfloat16)


def _config_of_folder(folder: Path) -> ModelConfig:
    stored = json.loads((folder / "config.json").read_text())
    kind = CONFIGS.get(stored["model_type"])
    if kind is None:
        raise ValueError(
            f"config.json of {folder.name} has model_type {stored['model_type']!r}; "
            f"only {', '.join(CONFIGS)} can be measured: give a member of the family"
        )
    return kind(**{field.name: stored[field.name] for field in dataclasses.fields(kind)})
