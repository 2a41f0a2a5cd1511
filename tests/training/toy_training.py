"""A corpus, a tokenizer and a model so small that a test can train on them."""

from __future__ import annotations

import json
from pathlib import Path

from training.data.tokenizer import train_tokenizer, write_tokenizer
from training.models.config import ModelConfig

VOCABULARY = 320
SHAPE = ModelConfig(
    vocab_size=VOCABULARY,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=2048,
)


def documents(n: int, first: int = 0) -> list[str]:
    """Short Python functions, each of its own."""
    return [
        f"def function_{i}(value):\n    return value * {i}\n\n\nclass Thing{i}:\n    pass\n"
        for i in range(first, first + n)
    ]


def write_data(data: Path, n_documents: int = 600) -> None:
    """`data` with a corpus and a tokenizer, as training's first programs leave them."""
    (data / "corpus").mkdir(parents=True)
    for split, texts in (
        ("train", documents(n_documents)),
        # Held-out text has to fill the windows it is measured on.
        ("heldout", documents(1600, first=5000)),
    ):
        lines = [
            json.dumps({"package": "toy", "path": f"{i}.py", "text": text}) + "\n"
            for i, text in enumerate(texts)
        ]
        (data / "corpus" / f"{split}.jsonl").write_text("".join(lines))
    files = [{"path": "toy/0.py", "n_bytes": 10, "sha256": "00", "split": "train"}]
    package = {"name": "toy", "version": "1.0", "licence": "MIT", "files": files}
    (data / "corpus" / "provenance.json").write_text(json.dumps({"packages": [package]}))
    write_tokenizer(train_tokenizer(documents(n_documents), VOCABULARY), data / "tokenizer")
