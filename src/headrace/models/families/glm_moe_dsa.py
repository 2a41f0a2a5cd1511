"""GLM-5: DeepSeek-V3.2 with other widths, and indexers that some layers share.

Which layers have an indexer of their own (indexer_types) makes no difference up to index_topk
tokens, where every token is chosen; no request may be longer.
Sources: arXiv 2602.15763; transformers modeling_glm_moe_dsa.py for arithmetic and keys.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig
from headrace.models.families.deepseek_v3 import Defaults
from headrace.models.families.deepseek_v32 import DeepseekV32, read_indexed
from headrace.weights.model_config.config_reader import ConfigReader

_DEFAULTS = Defaults(
    positions=202752, query_rank=2048, nope_width=192, value_width=256, groups=1, chosen_groups=1,
    drafts=0, norm_eps=1e-5,
)  # fmt: skip


class GlmMoeDsa(DeepseekV32):
    """GlmMoeDsaForCausalLM, for requests of at most index_topk tokens."""

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        reader.expect("rope_interleave", bool, (True,), True)
        # Of the indexers, which are not run.
        reader.expect("indexer_rope_interleave", bool, (True,), True)
        reader.unused(
            "indexer_types", "index_topk_freq", "index_topk_pattern", "index_skip_topk_offset",
            "index_share_for_mtp_iteration",
        )  # fmt: skip
        # The router is computed in float32 in any case.
        reader.expect("moe_router_dtype", str, ("float32",), "float32")
        config = read_indexed(reader, "glm_moe_dsa", _DEFAULTS)
        if config.experts is not None:
            # Some versions of transformers write it beside n_routed_experts.
            count = config.experts.routing.num_experts
            reader.expect("num_experts", int, (count,), count)
        return config
