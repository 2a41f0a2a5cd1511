"""What a tensor of a GGUF file does, by its name, and whether it may be quantised.

Source: llama.cpp, llama-quant.cpp (tensor_get_category, tensor_allows_quantization).
"""

from __future__ import annotations

import re
from enum import Enum

_LAYER = re.compile(r"blk\.(\d+)\.")


class Role(Enum):
    """The part a matrix has in a model, as far as mixes distinguish matrices."""

    OUTPUT = "output"
    EMBEDDING = "embedding"
    VALUES = "values"
    """V of attention, alone, joined with Q and K, or expanded from a latent."""
    KEYS = "keys"
    QUERIES = "queries"
    ATTENTION_OUTPUT = "attention output"
    DOWN = "down"
    GATE = "gate"
    UP = "up"
    OTHER = "other"


_EXACT = {
    "output.weight": Role.OUTPUT,
    "token_embd.weight": Role.EMBEDDING,
    "per_layer_token_embd.weight": Role.EMBEDDING,
}
# The first that a name contains decides.
_PARTS = (
    ("attn_qkv.weight", Role.VALUES),
    ("attn_kv_b.weight", Role.VALUES),
    ("attn_v.weight", Role.VALUES),
    ("attn_k.weight", Role.KEYS),
    ("attn_q.weight", Role.QUERIES),
    ("attn_output.weight", Role.ATTENTION_OUTPUT),
    ("ffn_up", Role.UP),
    ("ffn_gate", Role.GATE),
    ("ffn_down", Role.DOWN),
)

# Matrices that are small, choose experts, or are added to the residual stream as they are.
_KEPT_EXACT = ("position_embd.weight", "token_types.weight")
_KEPT_PARTS = (
    "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel",
    "per_layer_model_proj", "ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj.weight",
    "indexer.q_proj.weight", "time_mix_first.weight", "time_mix_w0.weight", "time_mix_w1.weight",
    "time_mix_w2.weight", "time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight",
    "time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight", "time_mix_g1.weight",
    "time_mix_g2.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight", "attn_rel_b.weight", ".position_embd", "sam.pos_embd",
    "sam.neck.", "sam.net_", ".rel_pos", ".patch_embd", ".patch_merger", "a.rvq.codebook",
    "mm.a.code_embd",
)  # fmt: skip


def role_of(name: str) -> Role:
    """The role of a tensor by its name in the file."""
    if name in _EXACT:
        return _EXACT[name]
    return next((role for part, role in _PARTS if part in name), Role.OTHER)


def may_be_quantised(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor is a matrix, or a stack of them, that mixes are about.

    shape: as in Hugging Face, (out, in).
    """
    # A matrix of one row is a vector to ggml, which counts no dimensions of 1 at the end.
    if not any(size > 1 for size in shape[:-1]) or not name.endswith("weight"):
        return False
    return name not in _KEPT_EXACT and not any(part in name for part in _KEPT_PARTS)


def layer_of(name: str) -> int:
    """The number of the layer a tensor belongs to; -1 for none."""
    found = _LAYER.match(name)
    return int(found[1]) if found else -1
