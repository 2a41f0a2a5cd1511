"""A layer for multi-token prediction, with the tensor names of Qwen3-Next and Qwen3.5:

    x = fc(norm(embedding of t + 1), norm(s))        s: the base's features of t, behind its norm
    n = norm(layer(x)), a layer as the base's are
    logits of t + 2 = rows of the base's output of n;  s of the next place = n

Sources: arXiv 2412.19437, 2.2; vLLM's qwen3_next_mtp.py for names, for what is joined in which
order and for what a further place reads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.models.config import ModelConfig
from training.models.head_model import DeepAttention, Head, Kept
from training.models.model import FeedForward, LanguageModel, RMSNorm


class MtpLayer(nn.Module):
    """A layer of the base, whose attention is over the depths of a chain."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = DeepAttention(config, config.hidden_size, head_norms=True)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, kept: Kept) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, kept)
        mixed: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return mixed


class MtpDecoder(nn.Module):
    """Features and tokens to what the base's output is applied to."""

    def __init__(self, layer: ModelConfig) -> None:
        super().__init__()
        hidden, eps = layer.hidden_size, layer.rms_norm_eps
        self.pre_fc_norm_embedding = RMSNorm(hidden, eps)
        self.pre_fc_norm_hidden = RMSNorm(hidden, eps)
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.layers = nn.ModuleList([MtpLayer(layer)])
        self.norm = RMSNorm(hidden, eps)


class MtpHead(Head):
    """A layer for further tokens: its output is the base's, its norm begins as the base's."""

    rows: Tensor

    def build(self, layer: ModelConfig, base: LanguageModel) -> None:
        self.mtp = MtpDecoder(layer)

    def begin_as(self, base: LanguageModel, rows: Tensor) -> None:
        self.register_buffer("rows", rows, persistent=False)
        self.mtp.norm.weight.copy_(base.model.norm.weight)

    def begin(self, features: Tensor) -> Tensor:
        return features

    def guess(
        self, tokens: Tensor, state: Tensor, cos: Tensor, sin: Tensor, kept: Kept
    ) -> tuple[Tensor, Tensor]:
        mtp = self.mtp
        joined = torch.cat((mtp.pre_fc_norm_embedding(tokens), mtp.pre_fc_norm_hidden(state)), -1)
        n = mtp.norm(mtp.layers[0](mtp.fc(joined), cos, sin, kept))
        return F.linear(n, self.rows), n
