"""An EAGLE-3 head, with the tensor names of `speculators` (arXiv 2503.01840):

s = fc(features of t)
x = s + attention(norm(embedding of t + 1), norm(s));  y = x + mlp(norm(x))
logits of t + 2 = lm_head(norm(y));  s of the next place = y
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.models.config import ModelConfig
from training.models.head_model import DeepAttention, Head, Kept
from training.models.model import FeedForward, LanguageModel, RMSNorm


class EagleLayer(nn.Module):
    """Attention over the pair of an embedding and a state, then feed-forward, each added to the
    state."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = DeepAttention(config, 2 * config.hidden_size, head_norms=False)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(
        self, tokens: Tensor, state: Tensor, cos: Tensor, sin: Tensor, kept: Kept
    ) -> Tensor:
        joined = torch.cat((self.input_layernorm(tokens), self.hidden_norm(state)), dim=-1)
        x = state + self.self_attn(joined, cos, sin, kept)
        mixed: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return mixed


class EagleDecoder(nn.Module):
    """Features and tokens to what the head's output is made of."""

    def __init__(self, layer: ModelConfig, features: int) -> None:
        super().__init__()
        self.fc = nn.Linear(features * layer.hidden_size, layer.hidden_size, bias=False)
        self.layers = nn.ModuleList([EagleLayer(layer)])
        self.norm = RMSNorm(layer.hidden_size, layer.rms_norm_eps)


class EagleHead(Head):
    """An EAGLE-3 head, whose output begins as rows of the base's."""

    def build(self, layer: ModelConfig, base: LanguageModel) -> None:
        self.model = EagleDecoder(layer, len(self.config.feature_layers))
        self.lm_head = nn.Linear(layer.hidden_size, self.config.vocab_size, bias=False)

    def begin_as(self, base: LanguageModel, rows: Tensor) -> None:
        self.lm_head.weight.copy_(rows)

    def begin(self, features: Tensor) -> Tensor:
        state: Tensor = self.model.fc(features)
        return state

    def guess(
        self, tokens: Tensor, state: Tensor, cos: Tensor, sin: Tensor, kept: Kept
    ) -> tuple[Tensor, Tensor]:
        y = self.model.layers[0](tokens, state, cos, sin, kept)
        return self.lm_head(self.model.norm(y)), y
