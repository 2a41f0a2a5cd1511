"""The members of the family: their names, what they are for, and where they stand.

A checkpoint does not know which member it is; the name of its run's folder says it. Knows nothing
of shapes or tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

# Of the repository, and so of the weights; what the data asks for stands in PROVENANCE_FILE.
LICENCE = "Apache-2.0"
PROVENANCE_FILE = Path("models") / "PROVENANCE.md"
FOLDER_FILES = {
    "adapter": ("adapter_model.safetensors", "adapter_config.json"),
    "head": ("model.safetensors", "config.json"),
}


@dataclass(frozen=True)
class Member:
    """`run` is the folder of its run, `place` that of its files in the repository.

    A "model" stands on its own; an "adapter" is added to the base, and so is a "head", which
    guesses its next tokens. `purpose` is one sentence.
    """

    run: str
    kind: Literal["model", "adapter", "head"]
    place: Path
    purpose: str

    @property
    def name(self) -> str:
        return f"headrace-{self.run}"

    @property
    def gguf(self) -> Path:
        """The file of a model, in the repository."""
        return self.place / f"{self.name}-q8_0.gguf"

    @property
    def folder_files(self) -> tuple[str, ...]:
        """Names in the folder that a member other than a model is used as, the weights first."""
        return FOLDER_FILES.get(self.kind, ())

    @property
    def card(self) -> Path:
        return self.place / "CARD.md"


MEMBERS = {
    member.run: member
    for member in (
        Member(
            "base",
            "model",
            Path("src/headrace/embedded"),
            "Completes Python code and answers short questions about it; the model that headrace "
            "serves when none is named.",
        ),
        Member(
            "draft",
            "model",
            Path("models/headrace-draft"),
            "Guesses what headrace-base is about to say, for speculative decoding.",
        ),
        Member(
            "head",
            "head",
            Path("models/headrace-head"),
            "An EAGLE-3 head of headrace-base: one layer that guesses the base's next tokens from "
            "what the base has computed.",
        ),
        Member(
            "mtp",
            "head",
            Path("models/headrace-mtp"),
            "A layer of headrace-base for multi-token prediction, which guesses its next tokens "
            "from what it has computed.",
        ),
        Member(
            "moe",
            "model",
            Path("models/headrace-moe"),
            "A mixture of experts grown from headrace-base, as large as it per token.",
        ),
        Member(
            "typed",
            "adapter",
            Path("models/headrace-typed"),
            "A LoRA adapter of headrace-base that writes type annotations.",
        ),
        Member(
            "terse",
            "adapter",
            Path("models/headrace-terse"),
            "A LoRA adapter of headrace-base that writes comments instead of docstrings.",
        ),
    )
}
