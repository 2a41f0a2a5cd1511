"""Further information of LiteLLM's model_list on a deployment: `model_info` and names beside it."""

from __future__ import annotations

import re
from typing import Any

# What models are asked for here; LiteLLM's others are other APIs.
_MODES = frozenset(("chat", "completion", "responses", "embedding"))
# LiteLLM takes the mode of a deployment without one from its table of prices. Names say as much.
_NAMED = {
    re.compile(rf"(?i)(?<![a-z])(?:{names})(?![a-z])"): mode
    for names, mode in (
        ("rerank(?:er|qa)?", "rerank"),
        (
            "chatgpt-image|dall-e|flux|gpt-image|ideogram|imagegeneration|imagen|nova-canvas|"
            "recraft|sd3|sdxl|seedream|stable-diffusion|stable-image|titan-image-generator",
            "image_generation",
        ),
        ("whisper|transcribe", "audio_transcription"),
        ("tts|speech", "audio_speech"),
        ("moderation", "moderation"),
        ("sora|veo", "video_generation"),
        ("realtime", "realtime"),
        ("mistral-ocr", "ocr"),
    )
}
_ENTRY = frozenset(("model_name", "litellm_params", "model_info"))
_KNOWN = frozenset(
    (
        "id", "mode", "base_model", "input_cost_per_token", "output_cost_per_token",
        "cache_read_input_token_cost", "cache_creation_input_token_cost",
    )
)  # fmt: skip


def info_of(entry: dict[str, Any]) -> dict[str, Any]:
    """{} where there is none that can be read."""
    info = entry.get("model_info")
    return info if isinstance(info, dict) else {}


def unserved(info: dict[str, Any], model: str, where: str) -> str | None:
    """Why a deployment has no place here, None if it has. model: the provider's name of it."""
    mode = info.get("mode")
    if mode is None:
        mode = next((mode for name, mode in _NAMED.items() if name.search(model)), None)
    if mode is None or str(mode) in _MODES:
        return None
    return f"{where}: models of mode {mode} are not served here; it was omitted"


def left_out(entry: dict[str, Any], where: str) -> list[str]:
    """Names of which nothing is taken."""
    notes = [f"{where}.{name}: not carried over" for name in entry if name not in _ENTRY]
    for name in info_of(entry):
        if name == "access_groups":
            notes.append(
                f"{where}.model_info.access_groups: write the models of each group into "
                "access.keys.NAME.models or access.teams.NAME.models"
            )
        elif name not in _KNOWN:
            notes.append(f"{where}.model_info.{name}: not carried over")
    return notes
