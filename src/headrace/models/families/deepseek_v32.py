"""DeepSeek-V3.2: DeepSeek-V3 whose attention sees the index_topk tokens that an indexer chooses.

Of no more tokens than index_topk every one is chosen, and the result is that of DeepSeek-V3; so
far is what is implemented, and no request may be longer. The indexer's tensors are known by name,
kept when a file is converted, and not loaded.
Sources: arXiv 2512.02556; transformers modeling_deepseek_v32.py for arithmetic and keys.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headrace.models.config import DecoderConfig
from headrace.models.families.deepseek_v3 import (
    DeepseekV3,
    Defaults,
    LatentLayer,
    read_deepseek,
)
from headrace.models.latent_attention import LatentAttention
from headrace.models.loader import Loader
from headrace.weights.architectures.deepseek import INDEXED, OLDER_KINDS
from headrace.weights.model_config.config_reader import ConfigReader

INDEXER_NAMES = (
    "wq_b.weight", "wk.weight", "k_norm.weight", "k_norm.bias", "weights_proj.weight",
)  # fmt: skip


class IndexedLayer(LatentLayer):
    """A layer with latent attention whose indexer is set aside."""

    def load_attention(
        self, config: DecoderConfig, loader: Loader, index: int, at: str
    ) -> LatentAttention:
        loader.set_aside(f"{at}.self_attn.indexer", INDEXER_NAMES)
        return super().load_attention(config, loader, index, at)


class DeepseekV32(DeepseekV3):
    """DeepseekV32ForCausalLM, for requests of at most index_topk tokens."""

    layer_type = IndexedLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        # transformers turns pairs whatever this key says.
        reader.expect("rope_interleave", bool, (True,), True)
        return read_indexed(reader, "deepseek_v32", Defaults(positions=163840, drafts=0))

    @staticmethod
    def draft_names(config: DecoderConfig) -> Collection[str]:
        indexer = [f"self_attn.indexer.{name}" for name in INDEXER_NAMES]
        return (*DeepseekV3.draft_names(config), *indexer)


def read_indexed(reader: ConfigReader, model_type: str, defaults: Defaults) -> DecoderConfig:
    """A decoder with an indexer, as DeepSeek-V3.2's configs say it."""
    layers = reader.size("num_hidden_layers")
    limit = reader.size("index_topk", 2048)
    # Widths of the indexer, which is not run.
    reader.size("index_head_dim", 128)
    reader.size("index_n_heads", 64)
    # transformers writes the width that is rotated; published GLM-5.2 another one, unread.
    reader.unused("head_dim")
    reader.expect("mlp_bias", bool, (False,), False)
    reader.expect_all("layer_types", INDEXED, layers, older=OLDER_KINDS)
    more: dict[str, Any] = {"sparse_after": limit}
    config = read_deepseek(reader, model_type, defaults, **more)
    kinds = reader.raw("mlp_layer_types")
    if kinds is not None and config.experts is not None:
        usual = ["sparse" if sparse else "dense" for sparse in config.experts.layers]
        if not isinstance(kinds, list) or kinds != usual:
            reader.refuse("mlp_layer_types", kinds, "what first_k_dense_replace says")
    return config
