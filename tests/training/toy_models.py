"""Models to measure: a random one, one that counts, and the files they are read from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import Tensor

from training.data.tokenizer import train_tokenizer
from training.loop import checkpoint
from training.measure.heldout_text import Document
from training.models.config import ModelConfig
from training.models.model import LanguageModel
from training.models.moe_config import MoEConfig
from training.models.moe_model import MoELanguageModel

VOCABULARY = 40
SHAPE = ModelConfig(
    vocab_size=VOCABULARY,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    max_position_embeddings=64,
)
# Of the tokenizer and the models that are on disk; their context is the family's.
STORED_VOCABULARY = 300
STORED_SHAPE = replace(SHAPE, vocab_size=STORED_VOCABULARY, max_position_embeddings=2048)


def random_model(seed: int) -> LanguageModel:
    """A model whose guesses depend on what it reads: weights are larger than at a start."""
    torch.manual_seed(seed)
    model = LanguageModel(SHAPE)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(8.0)
    return model


class Counting:
    """Predicts that n follows n - 1, but says 0 behind every token in `wrong_behind`."""

    def __init__(self, wrong_behind: Sequence[int] = ()) -> None:
        self.wrong_behind = wrong_behind

    def logits(self, ids: Tensor) -> Tensor:
        guesses = (ids + 1) % VOCABULARY
        for token in self.wrong_behind:
            guesses = torch.where(ids == token, 0, guesses)
        return 10.0 * torch.nn.functional.one_hot(guesses, VOCABULARY).float()


def write_held_out(data: Path) -> list[Document]:
    """A held-out corpus of two packages and a tokenizer, below `data`."""
    documents = []
    for index in range(6):
        package = "one" if index < 3 else "two"
        text = f"def f_{index}(x):\n    return x * {index}\n" * (index + 1)
        documents.append(Document(package, f"{package}/{index}.py", text))
    (data / "corpus").mkdir()
    lines = [json.dumps(document._asdict()) + "\n" for document in documents]
    (data / "corpus" / "heldout.jsonl").write_text("".join(lines))
    (data / "tokenizer").mkdir()
    tokenizer = train_tokenizer([document.text for document in documents], STORED_VOCABULARY)
    tokenizer.save(str(data / "tokenizer" / "tokenizer.json"))
    return documents


def write_checkpoint(path: Path, seed: int, experts: bool = False) -> LanguageModel:
    """A training checkpoint of the model that is given back, dense or of experts."""
    torch.manual_seed(seed)
    if experts:
        config = MoEConfig(**asdict(STORED_SHAPE), moe_intermediate_size=16, n_routed_experts=4)
        model: LanguageModel = MoELanguageModel(config)
        shape = asdict(config)
    else:
        model, shape = LanguageModel(STORED_SHAPE), asdict(STORED_SHAPE)
    checkpoint.save(path, model, [], checkpoint.Progress(), {}, shape)
    return model
