"""Qwen1.5 and Qwen2 with experts (A2.7B, 57B-A14B): Qwen2 whose MLP is experts and a shared one.

    q, k, v = qkv_proj(norm(x)) + bias
    h = x + o_proj(attention(rope(q), rope(k), v))
    n = norm(h)
    y = h + sigmoid(shared_gate(n)) * shared(n) + sum of weight * expert(n)

    scores = softmax(router(n)); chosen: the largest; weights: their scores, over their sum where
    norm_topk_prob

Layers that mlp_only_layers lists, or that are not a multiple of decoder_sparse_step, have one MLP.
Sources: arXiv 2407.10671; transformers modeling_qwen2_moe.py for the keys.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig, read_layer_windows, read_window
from headrace.models.decoder import ExpertLayer
from headrace.models.experts import ExpertNames
from headrace.models.families.llama import read_llama
from headrace.models.families.qwen3_moe import read_qwen_experts
from headrace.models.model import Model
from headrace.weights.model_config.config_reader import ConfigReader


class Qwen2MoeLayer(ExpertLayer):
    """A layer with experts and a shared one whose output has a gate."""

    expert_names = ExpertNames(shared="shared_expert", shared_gate="shared_expert_gate")


class Qwen2Moe(Model):
    """Qwen2MoeForCausalLM."""

    layer_type = Qwen2MoeLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        layers = reader.size("num_hidden_layers")
        shared = reader.size("shared_expert_intermediate_size", 5632)
        return read_llama(
            reader,
            "qwen2_moe",
            default_positions=32768,
            default_kv_heads=16,
            windows=_read_lower_windows(reader, layers),
            attention_bias=reader.optional("qkv_bias", bool),
            output_bias=False,
            mlp_bias=False,
            experts=read_qwen_experts(
                reader, layers, count=60, chosen=4, width=1408, shared_size=shared
            ),
        )


def _read_lower_windows(reader: ConfigReader, layers: int) -> tuple[int, ...]:
    """Window of each layer where every other one below `max_window_layers` has one, from the first
    on, or as `layer_types` says. A window that is not used says nothing.
    """
    end = reader.get("max_window_layers", int, 28)
    used = reader.get("use_sliding_window", bool, False)
    window = read_window(reader, 4096) if used else 0
    reader.unused("sliding_window")
    usual = tuple(window if index % 2 == 0 and index < end else 0 for index in range(layers))
    return read_layer_windows(reader, window, usual)
