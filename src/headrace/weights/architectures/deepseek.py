"""DeepSeek-V2, V3 and V3.2, Kimi K2 and GLM-5: latent attention, with experts.

GGUF files state heads as the cache sees them (one head of K as wide as the latent and what is
rotated) and, in keys of their own, as they were trained; older ones the latter alone. The matrices
of heads are split and turned there (`weights.tensors.latent_heads`). Rows that are rotated together
lie next to each other in both containers. llama.cpp has one architecture for V2, V3 and Kimi K2;
how experts are scored tells V2 apart. It chooses groups of experts by their best two in all of
them.

Source: llama.cpp models/deepseek2.cpp, deepseek32.cpp, glm-dsa.cpp; conversion/deepseek.py, glm.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headrace.weights.architectures.architecture import LEFT_OUT, Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.architectures.glm import DENSE_LAYERS, DRAFT, DRAFT_LAYERS, read_count
from headrace.weights.architectures.shared import (
    EXPERTS,
    FOLDER_EXPERTS,
    GATED_MLP,
    GATING,
    NORMED,
    PRE_NORMS,
    SIGMOID,
    SILU,
    TOP,
)
from headrace.weights.model_config.config_reader import ConfigReader

INDEXED = "indexed_attention"
OLDER_KINDS = ("deepseek_sparse_attention",)
"""What transformers called such a layer before."""

_SOFTMAX = 1
_KEY, _VALUE = "attention.key_length", "attention.value_length"
_KV_HEADS = "attention.head_count_kv"
_QUERY = "attention.q_lora_rank"
_GROUPS, _CHOSEN_GROUPS = "expert_group_count", "expert_group_used_count"
_TYPES = "attention.indexer.types"


def _read_heads(keys: GGUFKeys, config: dict[str, Any]) -> None:
    """Widths of heads as they were trained; those of the cache must agree."""
    heads, rope = config["num_attention_heads"], config["qk_rope_head_dim"]
    latent = config["kv_lora_rank"]
    key, value, kv_heads = keys.size(_KEY), keys.size(_VALUE), keys.size(_KV_HEADS)
    trained, trained_value = keys.size(f"{_KEY}_mla"), keys.size(f"{_VALUE}_mla")
    if trained is None and trained_value is None:
        cached = {_KV_HEADS: (kv_heads, heads)}
        trained, trained_value = key, value
    else:
        cached = {_KV_HEADS: (kv_heads, 1), _KEY: (key, latent + rope), _VALUE: (value, latent)}
    for name, (stated, required) in cached.items():
        if stated not in (None, required):
            raise keys.error(name, stated, f"{required} is required beside the other widths")
    if trained is None or trained <= rope:
        raise keys.error(f"{_KEY}_mla", trained, f"more than the {rope} rotated dimensions")
    if trained_value is None:
        raise keys.error(f"{_VALUE}_mla", None, "the width of a head's output is required")
    config["num_key_value_heads"] = heads
    config["qk_nope_head_dim"], config["v_head_dim"] = trained - rope, trained_value
    config.setdefault("q_lora_rank", None)


def _write_heads(config: ConfigReader, entries: dict[str, Any], nope: int, value: int) -> None:
    heads = config.size("num_attention_heads")
    config.expect("num_key_value_heads", int, (heads,), heads)
    rope, latent = config.size("qk_rope_head_dim", 64), config.size("kv_lora_rank", 512)
    entries[_KV_HEADS] = 1
    entries[_KEY], entries[_VALUE] = latent + rope, latent
    entries[f"{_KEY}_mla"] = config.size("qk_nope_head_dim", nope) + rope
    entries[f"{_VALUE}_mla"] = config.size("v_head_dim", value)


def _read_layers(keys: GGUFKeys, config: dict[str, Any]) -> None:
    """Where a file says nothing, no layer is dense and none predicts further tokens."""
    config["first_k_dense_replace"] = read_count(keys, DENSE_LAYERS, 1 << 31)
    config["num_nextn_predict_layers"] = read_count(keys, DRAFT_LAYERS, config["num_hidden_layers"])
    config["num_hidden_layers"] -= config["num_nextn_predict_layers"]


def _write_layers(config: ConfigReader, entries: dict[str, Any], dense: int) -> None:
    dense = config.get("first_k_dense_replace", int, dense)
    if not 0 <= dense <= entries["block_count"]:
        config.refuse("first_k_dense_replace", dense, "0 to num_hidden_layers")
    entries[DENSE_LAYERS] = dense
    drafts = config.get("num_nextn_predict_layers", int, 0)
    if not 0 <= drafts < 1 << 16:
        config.refuse("num_nextn_predict_layers", drafts, "0 to 65535")
    if drafts:
        entries["block_count"] += drafts
        entries[DRAFT_LAYERS] = drafts


def _read(keys: GGUFKeys, config: dict[str, Any]) -> None:
    _read_heads(keys, config)
    _read_layers(keys, config)
    normed = keys.take(NORMED)
    if normed is not None and not isinstance(normed, bool):
        raise keys.error(NORMED, normed, "true or false is required")
    config["norm_topk_prob"] = bool(normed)
    config["n_group"] = max(1, read_count(keys, _GROUPS, 1 << 16))
    config["topk_group"] = max(1, read_count(keys, _CHOSEN_GROUPS, 1 << 16))


def _read_v2(keys: GGUFKeys, config: dict[str, Any]) -> None:
    _read(keys, config)
    grouped = config["n_group"] > 1
    config["topk_method"] = "group_limited_greedy" if grouped else "greedy"


def _read_indexed(keys: GGUFKeys, config: dict[str, Any]) -> None:
    _read(keys, config)
    # Which layers have an indexer of their own; indexers are not run.
    keys.take(_TYPES)


def _writer(
    dense: int,
    groups: int,
    chosen_groups: int,
    scoring: int,
    query: int = 1536,
    *,
    nope: int = 128,
    value: int = 128,
) -> Callable[[ConfigReader, dict[str, Any]], None]:
    """How entries are completed, by what a silent config means."""

    def write(config: ConfigReader, entries: dict[str, Any]) -> None:
        _write_heads(config, entries, nope, value)
        _write_layers(config, entries, dense)
        if not config.states("q_lora_rank"):
            entries[_QUERY] = query
        entries[GATING] = scoring
        entries[NORMED] = config.get("norm_topk_prob", bool, scoring == SIGMOID)
        greedy = scoring == _SOFTMAX and config.get("topk_method", str, "greedy") == "greedy"
        stated = config.size("n_group", groups), config.size("topk_group", chosen_groups)
        entries[_GROUPS], entries[_CHOSEN_GROUPS] = (1, 1) if greedy else stated

    return write


def _indexed(
    write: Callable[[ConfigReader, dict[str, Any]], None],
) -> Callable[[ConfigReader, dict[str, Any]], None]:
    """The same where configs may state layers and experts twice: both times alike."""

    def write_and_compare(config: ConfigReader, entries: dict[str, Any]) -> None:
        layers = entries["block_count"]
        write(config, entries)
        dense = entries[DENSE_LAYERS]
        kinds = config.raw("mlp_layer_types")
        if kinds not in (None, ["dense"] * dense + ["sparse"] * (layers - dense)):
            config.refuse("mlp_layer_types", kinds, "what first_k_dense_replace says")
        count = entries["expert_count"]
        config.expect("num_experts", int, (count,), count)

    return write_and_compare


_BLOCK: Mapping[str, str] = {
    **PRE_NORMS,
    "attn_q": "self_attn.q_proj",
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
    "attn_k_b": "self_attn.k_b_proj",
    "attn_v_b": "self_attn.v_b_proj",
    "attn_output": "self_attn.o_proj",
    **GATED_MLP,
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
    **DRAFT,
}
_INDEXER: Mapping[str, str] = {
    "indexer.attn_q_b": "self_attn.indexer.wq_b",
    "indexer.attn_k": "self_attn.indexer.wk",
    "indexer.k_norm": "self_attn.indexer.k_norm",
    "indexer.proj": "self_attn.indexer.weights_proj",
}


def _keys(
    positions: int, width: int, experts: int, scale: float, eps: float = 1e-6, *, shared: int = 1
) -> tuple[Key, ...]:
    """Keys with what a silent config.json means."""
    return (
        Key("context_length", "max_position_embeddings", in_config=positions),
        Key("embedding_length", "hidden_size"),
        Key("block_count", "num_hidden_layers"),
        Key("feed_forward_length", "intermediate_size"),
        Key("attention.head_count", "num_attention_heads"),
        Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=eps),
        Key("attention.kv_lora_rank", "kv_lora_rank", in_config=512),
        Key(_QUERY, "q_lora_rank", in_gguf=LEFT_OUT, in_config=LEFT_OUT),
        Key("rope.dimension_count", "qk_rope_head_dim", in_config=64),
        Key("expert_count", "n_routed_experts", in_config=experts),
        Key("expert_used_count", "num_experts_per_tok", in_config=8),
        Key("expert_shared_count", "n_shared_experts", in_config=shared),
        Key("expert_feed_forward_length", "moe_intermediate_size", in_config=width),
        Key("expert_weights_scale", "routed_scaling_factor", "positive", 1.0, scale, off=0.0),
    )


# Values of no effect, and what the authors' code has beside them.
_ACCEPTED: Mapping[str, tuple[Any, ...]] = {
    **SILU,
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "rope_interleave": (True,),
    "moe_layer_freq": (1,),
    "ep_size": (),
    "aux_loss_alpha": (),
    "seq_aux": (),
    "qk_head_dim": (),
}
_NOAUX = {**_ACCEPTED, "scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",)}

DEEPSEEK_V3 = Architecture(
    name="deepseek2",
    model_type="deepseek_v3",
    hf_class="DeepseekV3ForCausalLM",
    block=_BLOCK,
    top=TOP,
    keys=_keys(4096, 2048, 256, 2.5),
    head_dim=False,
    latent=True,
    accepted=_NOAUX,
    neutral={GATING: SIGMOID},
    is_this=lambda keys: keys.says(GATING, SIGMOID),
    reads=_read,
    writes=_writer(3, 8, 4, SIGMOID),
    experts=EXPERTS,
    folder_experts=FOLDER_EXPERTS,
    vectors={"exp_probs_b.bias": "mlp.gate.e_score_correction_bias"},
    routers=("mlp.gate",),
)
KIMI_K2 = replace(DEEPSEEK_V3, model_type="kimi_k2", is_this=lambda keys: False)
"""In GGUF files a DeepSeek-V3, which is what it computes."""

DEEPSEEK_V2 = replace(
    DEEPSEEK_V3,
    model_type="deepseek_v2",
    hf_class="DeepseekV2ForCausalLM",
    keys=_keys(2048, 1407, 64, 1.0, shared=2),
    accepted={
        **_ACCEPTED,
        "scoring_func": ("softmax",),
        "topk_method": ("greedy", "group_limited_greedy"),
        "norm_topk_prob": (False,),
    },
    neutral={GATING: _SOFTMAX},
    is_this=lambda keys: True,
    reads=_read_v2,
    writes=_writer(0, 1, 1, _SOFTMAX),
    vectors={},
)


def _indexer_keys(heads: int) -> tuple[Key, ...]:
    return (
        Key("attention.indexer.head_count", "index_n_heads", in_config=heads),
        Key("attention.indexer.key_length", "index_head_dim", in_config=128),
        Key("attention.indexer.top_k", "index_topk", in_config=2048),
    )


_INDEXED = replace(
    DEEPSEEK_V3,
    block={**_BLOCK, **_INDEXER},
    keys=(*_keys(163840, 2048, 256, 2.5), *_indexer_keys(64)),
    accepted={
        **_NOAUX,
        "head_dim": (),
        "layer_types": (INDEXED, *OLDER_KINDS),
    },
    is_this=lambda keys: True,
    reads=_read_indexed,
    writes=_indexed(_writer(3, 8, 4, SIGMOID)),
)
DEEPSEEK_V32 = replace(
    _INDEXED, name="deepseek32", model_type="deepseek_v32", hf_class="DeepseekV32ForCausalLM"
)
GLM_MOE_DSA = replace(
    _INDEXED,
    name="glm-dsa",
    model_type="glm_moe_dsa",
    hf_class="GlmMoeDsaForCausalLM",
    keys=(*_keys(202752, 2048, 256, 2.5, eps=1e-5), *_indexer_keys(32)),
    accepted={
        **_INDEXED.accepted,
        "indexer_rope_interleave": (True,),
        "indexer_types": (),
        "index_topk_freq": (),
        "index_topk_pattern": (),
        "index_skip_topk_offset": (),
        "index_share_for_mtp_iteration": (),
        "moe_router_dtype": ("float32",),
    },
    writes=_indexed(_writer(3, 1, 1, SIGMOID, 2048, nope=192, value=256)),
)
