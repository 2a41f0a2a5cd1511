"""Prompts of four kinds of work, made of this repository's own files, as token ids.

completion   the beginning of a source file, to be gone on with
editing      a function, and the same function begun a second time, as an editor's model is asked
answers      a question about a function, through the chat template
free         the beginning of a page of the docs
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from headrace.text.chat_template import ChatTemplate
from headrace.text.tokenizer import Tokenizer, load_tokenizer
from headrace.weights.checkpoint import Checkpoint

ROOT = Path(__file__).parents[2]
TASKS = ("completion", "editing", "answers", "free")
_FUNCTION = re.compile(r"^(?:def|class) .*\n(?:(?:    .*)?\n)+", re.MULTILINE)
_PROMPT_CHARACTERS = 1200
_FUNCTION_CHARACTERS = (500, 1500)
_REPEATED_CHARACTERS = 60
"""Of a function that is begun again."""


def prompts(task: str, count: int, checkpoint: Checkpoint) -> list[list[int]]:
    """So many prompts of a task. Raises ValueError where the repository has fewer."""
    tokenizer = load_tokenizer(checkpoint.tokenizer, checkpoint.eos_token_ids)
    found = list(islice(_texts(task), count))
    if len(found) < count:
        raise ValueError(f"{task} has {len(found)} prompts, fewer than {count}")
    if task == "answers":
        return [_question(text, checkpoint, tokenizer) for text in found]
    return [tokenizer.encode(text, add_special_tokens=True) for text in found]


def _texts(task: str) -> Iterator[str]:
    if task == "free":
        for page in sorted((ROOT / "docs").glob("*.md")):
            text = page.read_text(encoding="utf-8")
            if len(text) > _PROMPT_CHARACTERS:
                yield text[:_PROMPT_CHARACTERS]
        return
    for file in sorted((ROOT / "src/headrace").rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        if task == "completion":
            if len(source) > 2 * _PROMPT_CHARACTERS:
                yield source[:_PROMPT_CHARACTERS]
            continue
        low, high = _FUNCTION_CHARACTERS
        for part in _FUNCTION.findall(source):
            if low <= len(part) <= high:
                yield f"{part}\n\n{part[:_REPEATED_CHARACTERS]}" if task == "editing" else part
                break


def _question(source: str, checkpoint: Checkpoint, tokenizer: Tokenizer) -> list[int]:
    template = ChatTemplate.for_tokenizer(checkpoint.chat_templates, tokenizer)
    content = f"What does this code do?\n\n```python\n{source}```"
    return tokenizer.encode(
        template.render([{"role": "user", "content": content}]), add_special_tokens=False
    )
