"""The families of models, each a declaration in a file named as its `model_type`.

A model is of one of them, and so one file is imported for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.models.model import Model

_CLASSES = {
    "arcee": "arcee:Arcee",
    "cohere": "cohere:Cohere",
    "cohere2": "cohere2:Cohere2",
    "deepseek_v2": "deepseek_v2:DeepseekV2",
    "deepseek_v3": "deepseek_v3:DeepseekV3",
    "deepseek_v32": "deepseek_v32:DeepseekV32",
    "ernie4_5": "ernie4_5:Ernie",
    "ernie4_5_moe": "ernie4_5_moe:ErnieMoe",
    "falcon": "falcon:Falcon",
    "gemma": "gemma:Gemma",
    "gemma2": "gemma2:Gemma2",
    "gemma3_text": "gemma3:Gemma3",
    "gemma4_text": "gemma4:Gemma4",
    "glm": "glm:Glm",
    "glm4": "glm4:Glm4",
    "glm4_moe": "glm4_moe:Glm4Moe",
    "glm_moe_dsa": "glm_moe_dsa:GlmMoeDsa",
    "gpt2": "gpt2:GPT2",
    "gpt_bigcode": "gpt_bigcode:GPTBigCode",
    "gpt_neox": "gpt_neox:GPTNeoX",
    "gpt_oss": "gpt_oss:GptOss",
    "granite": "granite:Granite",
    "granitemoe": "granitemoe:GraniteMoe",
    "hunyuan_v1_dense": "hunyuan_v1_dense:HunyuanDense",
    "hunyuan_v1_moe": "hunyuan_v1_moe:HunyuanMoe",
    "internlm2": "internlm2:InternLM2",
    "internlm3": "internlm3:InternLM3",
    "kimi_k2": "kimi_k2:KimiK2",
    "llama": "llama:Llama",
    "llama4_text": "llama4:Llama4",
    "mimo": "mimo:MiMo",
    "mimo_v2_flash": "mimo_v2_flash:MiMoV2Flash",
    "minimax_m2": "minimax_m2:MiniMaxM2",
    "minimax_m3": "minimax_m3:MiniMaxM3",
    "ministral3": "ministral3:Ministral3",
    "mistral": "mistral:Mistral",
    "mixtral": "mixtral:Mixtral",
    "nemotron-nas": "nemotron_nas:NemotronNAS",
    "olmo2": "olmo2:Olmo2",
    "olmo3": "olmo3:Olmo3",
    "olmoe": "olmoe:Olmoe",
    "phi3": "phi3:Phi3",
    "phimoe": "phimoe:Phimoe",
    "qwen2": "qwen2:Qwen2",
    "qwen2_moe": "qwen2_moe:Qwen2Moe",
    "qwen3": "qwen3:Qwen3",
    "qwen3_moe": "qwen3_moe:Qwen3Moe",
    "qwen3_vl_moe_text": "qwen3_vl_moe:Qwen3VLMoe",
    "qwen3_vl_text": "qwen3_vl:Qwen3VL",
    "seed_oss": "seed_oss:SeedOss",
    "smollm3": "smollm3:SmolLM3",
    "stablelm": "stablelm:StableLm",
    "starcoder2": "starcoder2:Starcoder2",
    "step3p7": "step3p7:Step",
}
"""By `model_type`, the file here and its class."""


class Families(Mapping[str, "type[Model]"]):
    """The families by their `model_type`, each imported when it is first asked for."""

    def __getitem__(self, model_type: str) -> type[Model]:
        module, _, name = _CLASSES[model_type].partition(":")
        family: type[Model] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        return family

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)

    def __contains__(self, model_type: object) -> bool:
        return model_type in _CLASSES


FAMILIES: Mapping[str, type[Model]] = Families()
