"""Names of files in a Hugging Face folder that more than one module goes by."""

from __future__ import annotations

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
