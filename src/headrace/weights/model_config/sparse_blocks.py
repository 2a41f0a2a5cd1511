"""Attention to blocks of tokens that an indexer chooses, as configs of MiniMax-M3 state it.

Published configs have it in `sparse_attention_config`, transformers writes it in keys of its own;
a config that has both must say the same twice. Of no more blocks than are chosen every one is, so
that up to `dense_tokens` tokens the indexer makes no difference.

Source: transformers configuration_minimax_m3_vl.py, the published config.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.layer_kinds import read_flags
from headrace.weights.model_config.rope_config import FULL

SPARSE = "minimax_m3_sparse"
"""Kind of a layer in `layer_types` whose attention chooses."""
_SECTION = "sparse_attention_config"


class SparseBlocks(NamedTuple):
    """The indexers of a model, and the layers that have one."""

    heads: int
    head_dim: int
    block_size: int
    """Tokens of a block."""
    chosen: int
    """Blocks that a token sees."""
    local: int
    """Blocks before a token that are always among them."""
    layers: tuple[bool, ...]
    """Which layers have an indexer."""

    @property
    def dense_tokens(self) -> int:
        """Tokens up to which every block is chosen; 0 where no layer chooses."""
        return self.block_size * self.chosen if any(self.layers) else 0

    @classmethod
    def read(cls, config: ConfigReader, layers: int) -> SparseBlocks:
        """From either form; raises UnsupportedModelError for what is not implemented."""
        section = config.section(_SECTION)

        def size(key: str, inner: str, default: int) -> int:
            return _size(config, section, key, inner, default)

        return cls(
            heads=size("index_n_heads", "sparse_num_index_heads", 4),
            head_dim=size("index_head_dim", "sparse_index_dim", 128),
            block_size=size("index_block_size", "sparse_block_size", 128),
            chosen=size("index_topk_blocks", "sparse_topk_blocks", 16),
            local=size("index_local_blocks", "sparse_local_block", 1),
            layers=_read_layers(config, section, layers),
        )


def _size(
    config: ConfigReader, section: ConfigReader | None, key: str, inner: str, default: int
) -> int:
    if section is None or section.optional(inner, int) is None:
        return config.size(key, default)
    size = section.size(inner)
    config.expect(key, int, (size,), size)
    return size


def _read_layers(
    config: ConfigReader, section: ConfigReader | None, layers: int
) -> tuple[bool, ...]:
    stated = silent = None
    if section is not None:
        section.expect("use_sparse_attention", bool, (True,), True)
        section.expect("sparse_score_type", str, ("max",), "max")
        # Blocks at the beginning that are always chosen.
        section.expect("sparse_init_block", int, (0,), 0)
        stated = read_flags(section, "sparse_attention_freq", layers)
        silent = read_flags(section, "sparse_disable_index_value", layers)
    found = stated or (False,) * layers
    if (kinds := config.raw("layer_types")) is not None:
        known = isinstance(kinds, list) and all(kind in [FULL, SPARSE] for kind in kinds)
        found = tuple(kind == SPARSE for kind in kinds) if known else ()
        if len(found) != layers or stated not in (None, found):
            config.refuse("layer_types", kinds, f"{FULL!r} or {SPARSE!r}, {layers} times")
    # Layers whose indexers add nothing to what attention gives; others are not implemented.
    others = any(sparse and not flag for sparse, flag in zip(found, silent or found, strict=True))
    if section is not None and others:
        flags = section.raw("sparse_disable_index_value")
        section.refuse("sparse_disable_index_value", flags, "1 in each layer that chooses")
    return found
