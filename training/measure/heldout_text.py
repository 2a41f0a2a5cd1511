"""The held-out documents with their packages, and an even choice of them. Needs no PyTorch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Document(NamedTuple):
    """A document of the corpus."""

    package: str
    path: str
    text: str


def read_held_out(corpus: Path) -> list[Document]:
    """The held-out documents, in the corpus's order, which is by package."""
    with (corpus / "heldout.jsonl").open() as lines:
        found = [json.loads(line) for line in lines]
    return [Document(entry["package"], entry["path"], entry["text"]) for entry in found]


def spread(documents: Sequence[Document], share: float) -> list[Document]:
    """A `share` of the documents, at least one, at even distances.

    Raises ValueError when share is not above 0 and at most 1.
    """
    if not 0.0 < share <= 1.0:
        raise ValueError(f"share is {share}; give more than 0 and at most 1")
    n_chosen = max(1, round(share * len(documents)))
    return [documents[int((i + 0.5) * len(documents) / n_chosen)] for i in range(n_chosen)]
