"""The text model inside a folder of a model that reads images as well (Gemma 3, Kimi K2.5).

Such a config.json has the text model's config under `text_config`, and its tensors have a longer
name. Both are put into the words of the text model alone. Tensors of the image encoder are left
out, and counted by module so that whoever loads the model can name them: text is answered as by
the whole model, images are not read.

Source: transformers modeling_gemma3.py and modeling_gemma4.py, modeling_mistral3.py
(Mistral3ForConditionalGeneration) and conversion_mapping.py, published folders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import CheckpointError, shown
from headrace.weights.tensors.tensor import Tensor

# The family of the text, by the outer model_type, where text_config states none.
_TEXT_TYPES = {
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "kimi_k25": "kimi_k2",
    "llama4": "llama4_text",
    "minimax_m3_vl": "minimax_m3",
    "mistral3": "mistral",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "step3p7": "step3p7",
}
# Other names of a family: of an earlier model, and what transformers writes of the text.
_OTHER_NAMES = {"minimax_m3_vl_text": "minimax_m3", "step3p5": "step3p7"}
# What these configs say of images and sound alone.
_IMAGE_KEYS = frozenset(
    {
        "audio_config", "audio_token_id", "boa_token_id", "boi_token_id", "boi_token_index",
        "eoa_token_id", "eoa_token_index", "eoi_token_id", "eoi_token_index", "ignore_index",
        "image_token_id", "image_token_index", "media_placeholder_token_id", "mm_tokens_per_image",
        "multimodal_projector_bias", "projector_bias", "projector_hidden_act",
        "projector_hidden_size",
        "spatial_merge_size", "use_unified_vision_chunk", "video_placeholder", "video_token_id",
        "video_token_index", "vision_config",
        "vision_end_token_id", "vision_feature_layer", "vision_soft_tokens_per_image",
        "vision_start_token_id",
    }
)  # fmt: skip
_IMAGE_MODULES = (
    "vision_tower", "vision_model", "visual", "multi_modal_projector", "mm_projector",
    "embed_vision", "audio_tower", "embed_audio", "patch_merge_mlp", "vit_large_projector",
)  # fmt: skip
# By the version of transformers that wrote the file; the longest first.
_TEXT_PREFIXES = {"language_model.model.": "model.", "model.language_model.": "model.",
                  "language_model.lm_head.": "lm_head."}  # fmt: skip


@dataclass(frozen=True)
class TextPart:
    """The tensors of a folder's text model, under its own names."""

    tensors: Mapping[str, Tensor]
    left_out: Mapping[str, int]
    """How many tensors of each module outside the text model the folder has."""


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The text model's config.json, under its family's name; any other config as it is.

    Keys around `text_config` that speak of more than images are kept, the inner ones winning but
    for `tie_word_embeddings`: lm_head is the whole model's.
    """
    text_type, inner = _TEXT_TYPES.get(str(config.get("model_type"))), config.get("text_config")
    if text_type is None or not isinstance(inner, dict):
        return _by_family(dict(config))
    outer = {key: value for key, value in config.items() if key not in _IMAGE_KEYS}
    del outer["text_config"]
    tied = {key: outer[key] for key in ("tie_word_embeddings",) if key in outer}
    return _by_family({**outer, "model_type": text_type, **inner, **tied})


def _by_family(config: dict[str, Any]) -> dict[str, Any]:
    other = _OTHER_NAMES.get(str(config.get("model_type")))
    return config if other is None else {**config, "model_type": other}


def text_part(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> TextPart:
    """The text model's tensors; of any other config all, as they are.

    Raises CheckpointError where two of them have the same name there.
    """
    if str(config.get("model_type")) not in _TEXT_TYPES:
        return TextPart(tensors, {})
    left_out: Counter[str] = Counter()
    kept: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        module = name.removeprefix("model.").partition(".")[0]
        if module in _IMAGE_MODULES:
            left_out[module] += 1
            continue
        text_name = _text_name(name)
        if text_name in kept:
            raise CheckpointError(
                f"the tensors {shown(kept[text_name].name)} and {shown(name)} are the same one of "
                f"the text model, {text_name}; the files are not of one model, fetch them again"
            )
        kept[text_name] = tensor
    named = {text_name: tensor.renamed(text_name) for text_name, tensor in kept.items()}
    return TextPart(named, dict(sorted(left_out.items())))


def _text_name(name: str) -> str:
    for prefix, short in _TEXT_PREFIXES.items():
        if name.startswith(prefix):
            return short + name.removeprefix(prefix)
    return name
