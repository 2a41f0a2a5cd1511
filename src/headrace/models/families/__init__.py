"""The families of models, each a declaration in a file named as its `model_type`."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.models.families.arcee import Arcee
from headrace.models.families.cohere import Cohere
from headrace.models.families.cohere2 import Cohere2
from headrace.models.families.deepseek_v2 import DeepseekV2
from headrace.models.families.deepseek_v3 import DeepseekV3
from headrace.models.families.deepseek_v32 import DeepseekV32
from headrace.models.families.ernie4_5 import Ernie
from headrace.models.families.ernie4_5_moe import ErnieMoe
from headrace.models.families.falcon import Falcon
from headrace.models.families.gemma import Gemma
from headrace.models.families.gemma2 import Gemma2
from headrace.models.families.gemma3 import Gemma3
from headrace.models.families.gemma4 import Gemma4
from headrace.models.families.glm import Glm
from headrace.models.families.glm4 import Glm4
from headrace.models.families.glm4_moe import Glm4Moe
from headrace.models.families.glm_moe_dsa import GlmMoeDsa
from headrace.models.families.gpt2 import GPT2
from headrace.models.families.gpt_bigcode import GPTBigCode
from headrace.models.families.gpt_neox import GPTNeoX
from headrace.models.families.gpt_oss import GptOss
from headrace.models.families.granite import Granite
from headrace.models.families.granitemoe import GraniteMoe
from headrace.models.families.hunyuan_v1_dense import HunyuanDense
from headrace.models.families.hunyuan_v1_moe import HunyuanMoe
from headrace.models.families.internlm2 import InternLM2
from headrace.models.families.internlm3 import InternLM3
from headrace.models.families.kimi_k2 import KimiK2
from headrace.models.families.llama import Llama
from headrace.models.families.llama4 import Llama4
from headrace.models.families.mimo import MiMo
from headrace.models.families.mimo_v2_flash import MiMoV2Flash
from headrace.models.families.minimax_m2 import MiniMaxM2
from headrace.models.families.minimax_m3 import MiniMaxM3
from headrace.models.families.ministral3 import Ministral3
from headrace.models.families.mistral import Mistral
from headrace.models.families.mixtral import Mixtral
from headrace.models.families.nemotron_nas import NemotronNAS
from headrace.models.families.olmo2 import Olmo2
from headrace.models.families.olmo3 import Olmo3
from headrace.models.families.olmoe import Olmoe
from headrace.models.families.phi3 import Phi3
from headrace.models.families.phimoe import Phimoe
from headrace.models.families.qwen2 import Qwen2
from headrace.models.families.qwen2_moe import Qwen2Moe
from headrace.models.families.qwen3 import Qwen3
from headrace.models.families.qwen3_moe import Qwen3Moe
from headrace.models.families.qwen3_vl import Qwen3VL
from headrace.models.families.qwen3_vl_moe import Qwen3VLMoe
from headrace.models.families.seed_oss import SeedOss
from headrace.models.families.smollm3 import SmolLM3
from headrace.models.families.stablelm import StableLm
from headrace.models.families.starcoder2 import Starcoder2
from headrace.models.families.step3p7 import Step
from headrace.models.model import Model

FAMILIES: Mapping[str, type[Model]] = {
    "arcee": Arcee,
    "cohere": Cohere,
    "cohere2": Cohere2,
    "deepseek_v2": DeepseekV2,
    "deepseek_v3": DeepseekV3,
    "deepseek_v32": DeepseekV32,
    "ernie4_5": Ernie,
    "ernie4_5_moe": ErnieMoe,
    "falcon": Falcon,
    "gemma": Gemma,
    "gemma2": Gemma2,
    "gemma3_text": Gemma3,
    "gemma4_text": Gemma4,
    "glm": Glm,
    "glm4": Glm4,
    "glm4_moe": Glm4Moe,
    "glm_moe_dsa": GlmMoeDsa,
    "gpt2": GPT2,
    "gpt_bigcode": GPTBigCode,
    "gpt_neox": GPTNeoX,
    "gpt_oss": GptOss,
    "granite": Granite,
    "granitemoe": GraniteMoe,
    "hunyuan_v1_dense": HunyuanDense,
    "hunyuan_v1_moe": HunyuanMoe,
    "internlm2": InternLM2,
    "internlm3": InternLM3,
    "kimi_k2": KimiK2,
    "llama": Llama,
    "llama4_text": Llama4,
    "mimo": MiMo,
    "mimo_v2_flash": MiMoV2Flash,
    "minimax_m2": MiniMaxM2,
    "minimax_m3": MiniMaxM3,
    "ministral3": Ministral3,
    "mistral": Mistral,
    "mixtral": Mixtral,
    "nemotron-nas": NemotronNAS,
    "olmo2": Olmo2,
    "olmo3": Olmo3,
    "olmoe": Olmoe,
    "phi3": Phi3,
    "phimoe": Phimoe,
    "qwen2": Qwen2,
    "qwen2_moe": Qwen2Moe,
    "qwen3": Qwen3,
    "qwen3_moe": Qwen3Moe,
    "qwen3_vl_moe_text": Qwen3VLMoe,
    "qwen3_vl_text": Qwen3VL,
    "seed_oss": SeedOss,
    "smollm3": SmolLM3,
    "stablelm": StableLm,
    "starcoder2": Starcoder2,
    "step3p7": Step,
}
