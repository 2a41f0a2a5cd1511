"""What an adapter changes: the style of what is written, and the bits per byte of kinds of text.

Every member continues the same "def name(" of held-out modules, so that heads, docstrings and
comments are all the model's own. An adapter is right when its style moves while the bits per byte
of ordinary code and of conversations stay. Sampling runs on headrace's engine, from GGUF as served;
bits per byte are those of the float32 weights.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn import functional as F

from training.data.corpus import read_documents
from training.data.packing import Batch, pack, windows
from training.loop.launch import HeldOut
from training.models.config import ModelConfig
from training.models.model import LanguageModel
from training.styles.documents import STYLES, style_documents
from training.styles.measures import count_all, name_prompts
from training.turns.conversations import read_conversations

WINDOW_TOKENS = 1024
# A held-out text of a style is measured on what the whole held-out split gives.
ALL_BYTES = 1 << 40


def token_bytes(tokenizer: Tokenizer) -> torch.Tensor:
    """int64 [vocabulary]: the bytes of text that each token stands for, 0 for control tokens."""
    table = torch.zeros(tokenizer.get_vocab_size(), dtype=torch.int64)
    added = tokenizer.get_added_tokens_decoder()
    for text, token in tokenizer.get_vocab().items():
        # Byte-level BPE writes each byte as one character.
        table[token] = 0 if token in added and added[token].special else len(text)
    return table


def held_out_windows(
    tokenizer: Tokenizer, documents: Sequence[str], seed: int, n_windows: int, length: int
) -> HeldOut:
    """At most `n_windows` windows spread over the packed documents, and their exact bytes.

    Raises ValueError when the documents do not fill one window.
    """
    all_windows = windows(pack(tokenizer, documents, seed), length, 1)
    if not all_windows:
        raise ValueError(
            f"{len(documents)} held-out documents do not fill a window of {length} tokens: "
            "use a larger corpus"
        )
    batches = all_windows[:: math.ceil(len(all_windows) / n_windows)]
    sizes = token_bytes(tokenizer)
    return HeldOut(batches, sum(int(sizes[batch.targets].sum()) for batch in batches))


def load_folder(folder: Path) -> LanguageModel:
    """The model of a Hugging Face folder of this family."""
    description = json.loads((folder / "config.json").read_text())
    shape = {field.name: description[field.name] for field in fields(ModelConfig)}
    model = LanguageModel(ModelConfig(**shape))
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.eval().requires_grad_(False)


def bits_per_byte(model: LanguageModel, held_out: HeldOut) -> float:
    def nats(batch: Batch) -> float:
        logits = model(batch.ids).flatten(0, 1)
        return float(F.cross_entropy(logits, batch.targets.flatten(), reduction="sum"))

    with torch.no_grad():
        return sum(map(nats, held_out.batches)) / held_out.n_bytes / math.log(2.0)


def kinds_of_text(data: Path, seed: int) -> dict[str, list[str]]:
    """Held-out documents by kind: each style's, ordinary ones, and conversations where made."""
    ordinary = read_documents(data / "corpus", "heldout")
    kinds: dict[str, list[str]] = {
        style: style_documents(ordinary, style, seed, ALL_BYTES) for style in STYLES
    }
    kinds["ordinary"] = ordinary
    if (data / "turns" / "heldout.jsonl").exists():
        kinds["turns"] = list(read_conversations(data / "turns", "heldout"))
    return kinds


def written_texts(
    folder: Path, prompts: Sequence[str], max_tokens: int, temperature: float, seed: int
) -> list[str]:
    """What the model of a Hugging Face folder makes of each prompt, the prompt included."""
    # Training asks this module for its held-out windows, and is to need no engine.
    from headrace import LLM, SamplingParams
    from headrace.weights.conversion.convert import convert_to_gguf

    gguf = folder / "model-q8_0.gguf"
    convert_to_gguf(folder, gguf, "Q8_0")
    params = [
        SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=seed + index)
        for index in range(len(prompts))
    ]
    results = LLM(gguf).generate(list(prompts), params, progress=False)
    return [prompt + result.text for prompt, result in zip(prompts, results, strict=True)]


def report(
    members: Mapping[str, Path],
    data: Path,
    *,
    n_heads: int,
    n_windows: int,
    max_tokens: int,
    temperature: float,
    seed: int,
) -> dict[str, Any]:
    """Measure each member's Hugging Face folder; JSON-ready.

    `members`: per member `counts` and `shares` of the texts it wrote, `bits_per_byte` by kind of
    text, and the texts themselves as `texts`. `held_out`: documents and bytes by kind. The seed
    decides heads, order of documents and sampling.
    """
    tokenizer = Tokenizer.from_file(str(data / "tokenizer" / "tokenizer.json"))
    kinds = kinds_of_text(data, seed)
    held_out = {
        kind: held_out_windows(tokenizer, documents, seed, n_windows, WINDOW_TOKENS)
        for kind, documents in kinds.items()
    }
    heads = name_prompts(kinds["ordinary"])
    prompts = random.Random(seed).sample(heads, min(n_heads, len(heads)))
    measured: dict[str, Any] = {}
    for name, folder in members.items():
        texts = written_texts(folder, prompts, max_tokens, temperature, seed)
        counts = count_all(texts)
        model = load_folder(folder)
        measured[name] = {
            "shares": {key: round(value, 4) for key, value in counts.shares().items()},
            "counts": asdict(counts),
            "bits_per_byte": {
                kind: round(bits_per_byte(model, part), 4) for kind, part in held_out.items()
            },
            "texts": texts,
        }
    return {
        "heads": len(prompts),
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": seed,
        "held_out": {
            kind: {
                "documents": len(kinds[kind]),
                "windows": len(part.batches),
                "bytes": part.n_bytes,
            }
            for kind, part in held_out.items()
        },
        "members": measured,
    }
