"""The model that ships in the package: one GGUF file beside this one, trained by training."""

from __future__ import annotations

from pathlib import Path

from headrace.errors import CheckpointError

EMBEDDED_NAME = "headrace-base"
"""The name clients and commands can rely on, whatever file is the newest."""


def embedded_model() -> Path:
    """The file of the model that ships. Raises CheckpointError where this build has none."""
    folder = Path(__file__).resolve().parent
    files = sorted(folder.glob("*.gguf"))
    if len(files) != 1:
        held = "none" if not files else ", ".join(file.name for file in files)
        raise CheckpointError(
            f"{folder}: one embedded model is expected, there is {held}; "
            "name a model: a GGUF file or a Hugging Face folder"
        )
    return files[0]
