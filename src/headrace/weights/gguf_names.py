"""Tensor names of GGUF files and their canonical (Hugging Face) names, by architecture.

The table is the whole knowledge: a file whose architecture is not in it is refused, and a tensor
that is not in it keeps its name behind "gguf.", so that the model loader refuses it by name.

Source: gguf-py tensor_mapping.py and constants.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from headrace.errors import UnsupportedModelError

# Factors the rotary frequencies are divided by; there is no Hugging Face tensor for them (there
# they follow from config.rope_scaling), so the GGUF name is the canonical one.
ROPE_FACTORS = "rope_freqs.weight"

UNKNOWN_PREFIX = "gguf."

_TOP = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}

_GGUF_BLOCK = re.compile(r"blk\.(\d{1,5})\.(.+)\.(weight|bias)", re.ASCII)
_GGUF_TOP = re.compile(r"(.+)\.(weight|bias)", re.ASCII)
_CANONICAL_BLOCK = re.compile(r"model\.layers\.(\d{1,5})\.(.+)\.(weight|bias)", re.ASCII)


@dataclass(frozen=True)
class Architecture:
    """One value of `general.architecture`.

    model_type, hf_class: what config.json calls the same family.
    rope_layout: how rows of Q and K are stored; "interleaved" where the converter permutes them.
    top, block: module names without ".weight", GGUF to canonical.
    """

    name: str
    model_type: str
    hf_class: str
    rope_layout: Literal["half", "interleaved"]
    block: Mapping[str, str]
    top: Mapping[str, str] = field(default_factory=lambda: _TOP)

    def canonical_name(self, gguf_name: str) -> str:
        """The canonical name, or "gguf." before the given one when the table lacks it."""
        if gguf_name == ROPE_FACTORS:
            return gguf_name
        if match := _GGUF_BLOCK.fullmatch(gguf_name):
            layer, module, kind = match.groups()
            if canonical := self.block.get(module):
                return f"model.layers.{int(layer)}.{canonical}.{kind}"
        elif (match := _GGUF_TOP.fullmatch(gguf_name)) and (canonical := self.top.get(match[1])):
            return f"{canonical}.{match[2]}"
        return UNKNOWN_PREFIX + gguf_name

    def gguf_name(self, canonical_name: str) -> str:
        """The name in GGUF files; raises UnsupportedModelError when the table lacks it."""
        if canonical_name == ROPE_FACTORS:
            return canonical_name
        if match := _CANONICAL_BLOCK.fullmatch(canonical_name):
            layer, module, kind = match.groups()
            for gguf, canonical in self.block.items():
                if canonical == module:
                    return f"blk.{int(layer)}.{gguf}.{kind}"
        for gguf, canonical in self.top.items():
            for kind in ("weight", "bias"):
                if canonical_name == f"{canonical}.{kind}":
                    return f"{gguf}.{kind}"
        raise UnsupportedModelError(
            f"tensor {canonical_name!r} has no name in GGUF files of architecture {self.name!r}"
        )


ARCHITECTURES: Mapping[str, Architecture] = {
    architecture.name: architecture
    for architecture in (
        Architecture("llama", "llama", "LlamaForCausalLM", "interleaved", _BLOCK),
        Architecture("qwen3", "qwen3", "Qwen3ForCausalLM", "half", _BLOCK | _HEAD_NORMS),
    )
}


def architecture_of_gguf(name: object) -> Architecture:
    """The architecture of `general.architecture`; raises UnsupportedModelError."""
    architecture = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if architecture is None:
        raise UnsupportedModelError(
            f"general.architecture is {name!r}; supported: {', '.join(ARCHITECTURES)}"
        )
    return architecture


def architecture_of_config(model_type: object) -> Architecture:
    """The architecture a config.json's `model_type` is written as; UnsupportedModelError."""
    for architecture in ARCHITECTURES.values():
        if architecture.model_type == model_type:
            return architecture
    known = ", ".join(architecture.model_type for architecture in ARCHITECTURES.values())
    raise UnsupportedModelError(
        f"model_type is {model_type!r}; a GGUF file can be written of: {known}"
    )
