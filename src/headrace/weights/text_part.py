"""The text model inside a folder of a model that reads images as well (Gemma 3).

Such a config.json has the text model's config under `text_config`, and its tensors have a longer
name. Both are put into the words of the text model alone. A folder that holds the image encoder
too is refused by name: leaving it out would answer questions about images blindly.

Source: transformers modeling_gemma3.py (Gemma3ForConditionalGeneration), published folders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.errors import UnsupportedModelError
from headrace.weights.tensor import Tensor

_TEXT_TYPES = {"gemma3": "gemma3_text"}
# What these configs say of images alone.
_IMAGE_KEYS = frozenset(
    {
        "boi_token_id", "boi_token_index", "eoi_token_id", "eoi_token_index", "image_token_id",
        "image_token_index", "mm_tokens_per_image", "vision_config",
    }
)  # fmt: skip
_IMAGE_PREFIXES = ("vision_tower.", "vision_model.", "multi_modal_projector.")
# By the version of transformers that wrote the file; the longest first.
_TEXT_PREFIXES = {"language_model.model.": "model.", "model.language_model.": "model.",
                  "language_model.lm_head.": "lm_head."}  # fmt: skip


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The text model's config.json; any other config as it is.

    Keys around `text_config` that speak of more than images are kept, the inner ones winning.
    """
    text_type, inner = _TEXT_TYPES.get(str(config.get("model_type"))), config.get("text_config")
    if text_type is None or not isinstance(inner, dict):
        return dict(config)
    outer = {key: value for key, value in config.items() if key not in _IMAGE_KEYS}
    del outer["text_config"]
    return {**outer, **inner, "model_type": text_type}


def text_tensors(
    path: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> Mapping[str, Tensor]:
    """Tensors of the text model under its own names; of any other config as they are.

    Raises UnsupportedModelError where an image encoder is among them.
    """
    if str(config.get("model_type")) not in _TEXT_TYPES:
        return tensors
    images = [name for name in tensors if name.removeprefix("model.").startswith(_IMAGE_PREFIXES)]
    if images:
        raise UnsupportedModelError(
            f"{path}: holds an image encoder ({len(images)} tensors, {min(images)} and so on); "
            "only text is implemented. Use a GGUF file of the model, or a text-only folder"
        )
    names = {name: _text_name(name) for name in tensors}
    return {names[name]: replace(tensor, name=names[name]) for name, tensor in tensors.items()}


def _text_name(name: str) -> str:
    for prefix, short in _TEXT_PREFIXES.items():
        if name.startswith(prefix):
            return short + name.removeprefix(prefix)
    return name
