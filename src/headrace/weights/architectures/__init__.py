"""The families a checkpoint can be of: how each is named and stored in both containers.

To add one: declare an `Architecture` in a module here (sisters share one) and enter it in `_ALL`.

* Names: `top` and `block` map GGUF modules to Hugging Face ones; `shared` has Llama's in parts.
* Keys: one `Key` per value that both sides have. `in_gguf` is llama.cpp's default, `in_config`
  transformers'. Head widths (attention.key_length), rope and vocabulary are read and written for
  every family already; set `rope=False` or `head_dim=False` where config.json has none.
* What GGUF leaves unsaid goes into `implied` (put into the config, and the only value written);
  what may be passed over when writing goes into `accepted`; what tables cannot say is a function:
  `reads(keys, config)` when opening GGUF, `writes(config, entries)` when writing it. A key that
  nobody reads stops the load or the writing by itself; name no key that you do not know.
* Conventions: `gguf` and `hf` say what each container stores; the loader undoes them, and
  conversion goes from one to the other (rows of Q and K, norms less one, transposed matrices).
* Experts: `experts` names the tensors that GGUF has for all experts of a layer at once, `routers`
  what picks among them, `folder_experts` those of folders; which keys state their number and width
  is up to `keys`.

The same table serves opening, writing GGUF (`write_gguf`) and writing folders (`write_hf_folder`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import UnsupportedModelError, shown
from headrace.weights.architectures.architecture import (
    LEFT_OUT,
    LONGROPE_FACTORS,
    REFUSED,
    ROPE_FACTOR_NAMES,
    ROPE_FACTORS,
    UNKNOWN_PREFIX,
    Architecture,
    Key,
)
from headrace.weights.architectures.cohere import COHERE, COHERE2
from headrace.weights.architectures.deci import DECI
from headrace.weights.architectures.deepseek import (
    DEEPSEEK_V2,
    DEEPSEEK_V3,
    DEEPSEEK_V32,
    GLM_MOE_DSA,
    KIMI_K2,
)
from headrace.weights.architectures.ernie import ERNIE, ERNIE_MOE
from headrace.weights.architectures.falcon import FALCON
from headrace.weights.architectures.gemma import GEMMA, GEMMA2, GEMMA3
from headrace.weights.architectures.gemma4 import GEMMA4
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.architectures.glm import GLM, GLM4, GLM4_MOE
from headrace.weights.architectures.gpt2 import GPT2, STARCODER
from headrace.weights.architectures.gpt_neox import GPT_NEOX
from headrace.weights.architectures.gpt_oss import GPT_OSS
from headrace.weights.architectures.hunyuan import HUNYUAN_DENSE, HUNYUAN_MOE
from headrace.weights.architectures.llama import (
    ARCEE,
    GRANITE,
    GRANITE_MOE,
    INTERNLM2,
    INTERNLM3,
    LLAMA,
    MINISTRAL3,
    MISTRAL,
    MISTRAL3,
    MIXTRAL,
    SEED_OSS,
    SMOLLM3,
)
from headrace.weights.architectures.llama4 import LLAMA4
from headrace.weights.architectures.mimo2 import MIMO_V2_FLASH
from headrace.weights.architectures.minimax import MINIMAX_M2, MINIMAX_M3
from headrace.weights.architectures.olmo import OLMO2, OLMO3, OLMOE
from headrace.weights.architectures.phi3 import PHI3, PHIMOE
from headrace.weights.architectures.qwen import (
    MIMO,
    QWEN2,
    QWEN2_MOE,
    QWEN3,
    QWEN3_MOE,
    QWEN3_VL,
    QWEN3_VL_MOE,
)
from headrace.weights.architectures.stablelm import STABLELM
from headrace.weights.architectures.starcoder2 import STARCODER2
from headrace.weights.architectures.step import STEP
from headrace.weights.gguf.values import Metadata

__all__ = [
    "ARCHITECTURES", "LEFT_OUT", "LONGROPE_FACTORS", "REFUSED", "ROPE_FACTORS", "ROPE_FACTOR_NAMES",
    "UNKNOWN_PREFIX", "Architecture", "GGUFKeys", "Key", "architecture_of_config",
    "architecture_of_gguf", "known_architecture",
]  # fmt: skip

# Where several have one GGUF name, the first whose `is_this` says yes is taken.
_ALL: tuple[Architecture, ...] = (
    MIXTRAL,
    MISTRAL,
    LLAMA,
    MINISTRAL3,
    MISTRAL3,
    LLAMA4,
    DECI,
    HUNYUAN_DENSE,
    HUNYUAN_MOE,
    ERNIE,
    ERNIE_MOE,
    SMOLLM3,
    ARCEE,
    SEED_OSS,
    INTERNLM3,
    INTERNLM2,
    STABLELM,
    GPT_NEOX,
    GRANITE,
    GRANITE_MOE,
    QWEN2,
    MIMO,
    QWEN2_MOE,
    QWEN3,
    QWEN3_MOE,
    QWEN3_VL,
    QWEN3_VL_MOE,
    GEMMA,
    GEMMA2,
    GEMMA3,
    GEMMA4,
    OLMO3,
    OLMO2,
    OLMOE,
    COHERE,
    COHERE2,
    GLM,
    GLM4,
    GLM4_MOE,
    DEEPSEEK_V3,
    DEEPSEEK_V2,
    KIMI_K2,
    DEEPSEEK_V32,
    GLM_MOE_DSA,
    GPT2,
    STARCODER,
    STARCODER2,
    STEP,
    GPT_OSS,
    MIMO_V2_FLASH,
    MINIMAX_M2,
    MINIMAX_M3,
    FALCON,
    PHI3,
    PHIMOE,
)

ARCHITECTURES: Mapping[str, Architecture] = {item.model_type: item for item in reversed(_ALL)}
"""By `model_type` of config.json; where several have one, the first is what is written."""


def architecture_of_gguf(metadata: Metadata) -> tuple[Architecture, GGUFKeys]:
    """The architecture of `general.architecture`, and its keys; raises UnsupportedModelError."""
    name = metadata.scalar("general.architecture")
    candidates = [item for item in _ALL if item.name == name]
    keys = GGUFKeys(metadata, str(name))
    for item in candidates:
        if item.is_this(keys):
            return item, keys
    known = ", ".join(dict.fromkeys(item.name for item in _ALL))
    raise UnsupportedModelError(
        f"{metadata.path}: general.architecture is {shown(name)}; supported: {known}"
    )


def known_architecture(model_type: Any) -> Architecture | None:
    """The architecture of a config.json's `model_type`, or None."""
    return ARCHITECTURES.get(model_type) if isinstance(model_type, str) else None


def architecture_of_config(model_type: Any) -> Architecture:
    """The architecture of a config.json's `model_type`; raises UnsupportedModelError."""
    architecture = known_architecture(model_type)
    if architecture is None:
        raise UnsupportedModelError(
            f"model_type is {model_type!r}; a GGUF file can be written of: "
            f"{', '.join(ARCHITECTURES)}"
        )
    return architecture
