"""headrace-moe with its weights as F32, and what transformers continues ten beginnings with.

Run from the repository to write shipped_moe.json again, where torch and transformers are installed:
python -m tests.models.shipped_moe
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headrace import LLM, SamplingParams
from headrace.text import load_tokenizer
from headrace.weights.conversion.convert import write_hf_folder
from headrace.weights.open import open_checkpoint

SHIPPED = Path(__file__).resolve().parents[2] / "models/headrace-moe/headrace-moe-q8_0.gguf"
GREEDY = Path(__file__).with_name("shipped_moe.json")
NEW_TOKENS = 64
BEGINNINGS = (
    "def fibonacci(n):\n",
    "import os\nimport sys\n\n\ndef main():\n    parser = argparse.ArgumentParser(",
    'class Reader:\n    """Reads."""\n\n    def read(',
    "def test_",
    "import numpy as np\n\n\ndef normalize(values):\n",
    "from __future__ import annotations\n\nfrom dataclasses import dataclass\n\n\n@dataclass\n"
    "class ",
    "try:\n    import ",
    "for name, value in sorted(",
    '"""Utilities for working with paths."""\n\n',
    "<|im_start|>user\nWhat does `len` do?<|im_end|>\n<|im_start|>assistant\n",
)


def write_f32(folder: Path) -> Path:
    """The model as a folder of F32 tensors."""
    write_hf_folder(open_checkpoint(SHIPPED), folder, "F32")
    return folder


def prompts() -> list[list[int]]:
    """Ids of the beginnings; marks of a chat are control tokens."""
    tokenizer = load_tokenizer(open_checkpoint(SHIPPED).tokenizer)
    return [tokenizer.encode(text, add_special_tokens=True) for text in BEGINNINGS]


def greedy_of_transformers(folder: Path, prompt_ids: Sequence[Sequence[int]]) -> list[list[int]]:
    """What each prompt is continued with, one token at a time, beyond the end of a text too."""
    import torch

    model = model_of_transformers(folder)
    continued = []
    with torch.no_grad():
        for prompt in prompt_ids:
            fed, cache, tokens = list(prompt), None, []
            for _ in range(NEW_TOKENS):
                out = model(torch.tensor([fed]), past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                fed = [int(out.logits[0, -1].argmax())]
                tokens += fed
            continued.append(tokens)
    return continued


def likeliest_of_transformers(
    folder: Path, prompt_ids: Sequence[Sequence[int]], continued: Sequence[Sequence[int]]
) -> list[list[int]]:
    """The likeliest token in place of each of a continuation, after what stands before it.

    Where these are the continuation itself, it is the greedy one.
    """
    import torch

    model = model_of_transformers(folder)
    likeliest: list[list[int]] = []
    with torch.no_grad():
        for prompt, tokens in zip(prompt_ids, continued, strict=True):
            logits = model(torch.tensor([[*prompt, *tokens[:-1]]])).logits[0]
            likeliest.append(logits[len(prompt) - 1 :].argmax(dim=-1).tolist())
    return likeliest


def model_of_transformers(folder: Path) -> Any:
    import torch
    import transformers

    kind: Any = transformers.AutoModelForCausalLM
    return kind.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, local_files_only=True
    ).eval()


def greedy_of_headrace(
    model: Path, prompt_ids: Sequence[Sequence[int]], tokens: int = NEW_TOKENS, **settings: Any
) -> list[list[int]]:
    """The same by headrace, all together, with K and V in F32. settings: of an engine."""
    llm = LLM(model, kv_cache_dtype="f32", threads=2, **settings)
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    results = llm.generate([list(ids) for ids in prompt_ids], params, progress=False)
    return [list(result.token_ids) for result in results]


def main() -> None:
    """Write shipped_moe.json."""
    prompt_ids = prompts()
    with TemporaryDirectory() as folder:
        greedy = greedy_of_transformers(write_f32(Path(folder)), prompt_ids)
    lines = [
        json.dumps({"prompt": prompt, "greedy": tokens})
        for prompt, tokens in zip(prompt_ids, greedy, strict=True)
    ]
    GREEDY.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
